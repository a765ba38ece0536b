import { expect } from 'chai';
import type { ClientContext } from '../../src/downstream/services.ts';
import { reselect, selectLocator, selectName } from '../../src/downstream/type-stream.ts';
import { itsOwn } from '../../src/model/load.ts';
import { internParameters } from '../../src/model/parameters.ts';
import { ALLOW_ALL } from '../../src/security/authorization.ts';
import { type } from '../support/in-memory-relay.ts';

const url = type('eds');

/** Derives `env`, and `authority` for xdstp names; `env` of the relay's wins over a locator's. */
const clientOf = (env: string): ClientContext => ({
  selectionGroup: {},
  nodeId: '',
  nodeKey: '',
  place: 0,
  cluster: '',
  classKey: '',
  mayBeCanary: true,
  wrapped: false,
  ttl: false,
  relay: false,
  isEnvoy: false,
  unknownNames: false,
  passesVariants: false,
  loadOrigin: itsOwn,
  access: ALLOW_ALL,
  exempt: false,
  derived: (authority) =>
    internParameters([['env', env], ...(authority === undefined ? [] : [['authority', authority] as const])]),
  merged: (own) => internParameters([...own.entries, ['env', env]]),
});
const client = clientOf('prod');

const xdstp = (rest: string): string => `xdstp://auth/envoy.config.endpoint.v3.ClusterLoadAssignment/${rest}`;

describe('selecting', () => {
  const names: readonly (readonly [string, string, string])[] = [
    ['a', 'a', '[["env","prod"]]'],
    ['*', '*', '[["env","prod"]]'],
    ['', '', '[["env","prod"]]'],
    ['a/*', 'a/*', '[["env","prod"]]'],
    [xdstp('x?b=2&a=1'), xdstp('x?a=1&b=2'), '[["authority","auth"],["env","prod"]]'],
    [xdstp('*'), xdstp('*'), '[["authority","auth"],["env","prod"]]'],
  ];
  for (const [name, selector, parameters] of names) {
    it(`the name ${JSON.stringify(name)} selects ${selector} with ${parameters}`, () => {
      const selected = selectName(name, url, client);
      if (!selected.ok) throw new Error(selected.error);
      expect(selected.value).to.include({
        selector,
        requestedName: name,
        locator: false,
        locatorParameters: undefined,
      });
      expect(selected.value.parameters.key).to.equal(parameters);
    });
  }

  const refused: readonly (readonly [string, string])[] = [
    [xdstp('x?a=1&a=2'), 'twice'],
    ['xdstp://auth/envoy.config.cluster.v3.Cluster/x', 'Cluster'],
    [xdstp('%zz'), 'percent'],
  ];
  for (const [name, why] of refused) {
    it(`${name} is refused: ${why}`, () => {
      for (const selected of [
        selectName(name, url, client),
        selectLocator({ name, parameters: [] }, url, client),
      ]) {
        expect(selected.ok).to.equal(false);
        if (!selected.ok) expect(selected.error).to.contain(why);
      }
    });
  }

  it('a locator selects with its own parameters, as the rules allow', () => {
    const selected = selectLocator({ name: 'a', parameters: [['v', '1']] }, url, client);
    if (!selected.ok) throw new Error(selected.error);
    expect(selected.value.locator).to.equal(true);
    expect(selected.value.parameters.key).to.equal('[["env","prod"],["v","1"]]');
    expect(selected.value.locatorParameters?.key).to.equal('[["v","1"]]');
  });

  for (const [what, parameters] of [
    ['too many parameters', Array.from({ length: 129 }, (_, index) => [`k${index}`, 'v'] as const)],
    ['a key that is too long', [['k'.repeat(4097), 'v'] as const]],
    ['a value that is too long', [['k', 'v'.repeat(4097)] as const]],
  ] as const) {
    it(`a locator with ${what} is refused by name`, () => {
      const selected = selectLocator({ name: 'a', parameters }, url, client);
      expect(selected.ok).to.equal(false);
      if (!selected.ok) expect(selected.error).to.contain('"a"').and.to.contain('at most');
      if (!selected.ok) expect(selected.error.length).to.be.lessThan(400);
    });
  }

  it('a client that has changed selects the same with other parameters', () => {
    const later = clientOf('test');
    const name = selectName(xdstp('x'), url, client);
    const locator = selectLocator({ name: 'a', parameters: [['v', '1']] }, url, client);
    if (!name.ok || !locator.ok) throw new Error('refused');
    expect(reselect(name.value, later)).to.include({ selector: xdstp('x'), locator: false });
    expect(reselect(name.value, later).parameters.key).to.equal('[["authority","auth"],["env","test"]]');
    expect(reselect(locator.value, later).parameters.key).to.equal('[["env","test"],["v","1"]]');
  });
});
