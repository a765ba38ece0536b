import { expect } from 'chai';
import { unseen } from '../../src/admin/inspection.ts';
import { resourceName, revision } from '../../src/model/brand.ts';
import type { Constraints } from '../../src/model/constraints.ts';
import type { HeldVariant } from '../../src/model/rollout.ts';
import { type, when } from '../support/in-memory-relay.ts';

let reads = 0;

/** A variant of one name, which counts how often its name is read. */
function held(constraints: Constraints, alias: string): HeldVariant {
  const variant = {
    type: type('cds'),
    get name() {
      reads++;
      return resourceName('shop');
    },
    constraints,
    version: '1',
    deltaVersion: '1@1',
    payload: undefined,
    aliases: [alias],
    ttl: undefined,
    doNotCache: false,
    metadata: undefined,
    responseVersion: '1',
    upstream: 'central',
    cachedSince: 0,
    revision: revision(0),
  };
  return { variant, holders: [] };
}

describe('variants that wait, in an explanation', () => {
  it('are those whose name, constraints or content no variant has that is seen', () => {
    const [prod, test] = ['prod', 'test'].map((env) => when({ env }));
    if (prod === undefined || test === undefined) throw new Error('there are no constraints');
    const seen = [held(prod, 'old'), held(test, 'old')];
    const [same, changed, added] = [held(test, 'old'), held(prod, 'new'), held(when({ env: 'new' }), 'old')];
    expect(unseen([same, changed, added], seen)).to.deep.equal([changed, added]);
    expect(unseen(seen, [same, ...seen])).to.deep.equal([]);
  });

  it('twice as many variants make no more than three times the work', () => {
    const work = (count: number): number => {
      const make = (alias: string): readonly HeldVariant[] =>
        Array.from({ length: count }, (_, at) => held(when({ n: String(at) }), alias));
      const [before, after] = [make('old'), make('new')];
      reads = 0;
      expect(unseen(after, before)).to.have.length(count);
      return reads;
    };
    expect(work(400)).to.be.at.most(3 * work(200));
  });
});
