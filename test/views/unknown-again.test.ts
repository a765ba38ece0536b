import { fromBinary } from '@bufbuild/protobuf';
import { expect } from 'chai';
import { Store } from '../../src/cache/store.ts';
import { DeltaDiscoveryResponseSchema } from '../../src/gen/envoy/service/discovery/v3/discovery_pb.ts';
import { resourceName } from '../../src/model/brand.ts';
import { internParameters } from '../../src/model/parameters.ts';
import { Selection } from '../../src/model/selection.ts';
import { defersNothing, encoding } from '../../src/model/subscription.ts';
import { transaction } from '../../src/model/transaction.ts';
import { ALLOW_ALL } from '../../src/security/authorization.ts';
import { Views } from '../../src/views/views.ts';
import { namedHolder, put, type } from '../support/in-memory-relay.ts';
import { and, compiled, exists, is, not, told } from '../support/variants.ts';
import { VirtualClock } from '../support/virtual-clock.ts';

const cds = type('cds');
const parameters = internParameters([
  ['env', 'prod'],
  ['group', 'a'],
]);
const name = resourceName('shop');
const before = compiled(is('env', 'prod'));
const without = compiled(and(is('env', 'prod'), not(exists('group'))));
const after = compiled(and(is('env', 'prod'), is('group', 'a')));

/** A client with one locator that has the variant `before`, of which nothing is known any more (protocol §5, rules). */
function start() {
  const clock = new VirtualClock();
  const store = new Store({ clock, ambiguous: () => undefined, expiring: () => undefined });
  const views = new Views({
    catalogs: store.cohorts,
    interests: {
      subscribe: (one) => store.addInterest(one),
      resubscribe: () => undefined,
      contentOf: () => ({ hasContent: true, bytes: 0 }),
      markIdle: () => undefined,
      markActive: () => undefined,
      unsubscribe: (one) => void store.removeInterest(one),
    },
    clock,
    idleMilliseconds: 1000,
    maxCacheBytes: () => 2 ** 30,
    controlPlane: '',
    lookedUp: () => undefined,
    answered: () => undefined,
    defer: (run) => run(),
  });
  const asDelta = encoding({
    protocol: 'delta',
    wrapped: false,
    ttl: false,
    constrained: false,
    contentVersions: false,
    unknownNames: false,
    absencesUnsaid: false,
  });
  const locatorParameters = parameters;
  const selection = Selection.of([
    { selector: name, requestedName: 'shop', locator: true, parameters, locatorParameters },
  ]);
  const opens = () =>
    views.open(cds, asDelta, selection, ALLOW_ALL, { wake: () => undefined, payer: undefined });
  const client = opens();
  const takes = (one = client): string[] => {
    const response = one.take(defersNothing);
    // Without the five bytes of the gRPC prefix.
    return response === undefined
      ? []
      : told(fromBinary(DeltaDiscoveryResponseSchema, response.bytes.subarray(5)));
  };
  const interest = { type: cds, selector: name, parameters };
  const says = (constraints: typeof before, content: string): void => {
    const puts = [put(cds, 'shop', content, { constraints, version: content })];
    views.publish(store.apply(transaction({ holder: namedHolder, type: cds, puts, resolved: [interest] })));
  };
  says(before, 'old');
  expect(takes()).to.deep.equal(['+shop {env == "prod"} old']);
  const move = { holder: namedHolder, name, from: before, to: without };
  views.publish(store.restamp({ type: cds, moves: [move], unresolved: [interest] }));
  expect(takes(), 'nothing is concluded from the unknown').to.deep.equal([]);
  const subscribesAgain = (): void =>
    client.select(selection, ALLOW_ALL, new Set(selection.entries.keys()), []);
  return { client, takes, says, store, views, opens, subscribesAgain };
}

describe('what a client has and nothing is known of any more', () => {
  it('is taken back when its successor comes', () => {
    const { takes, says } = start();
    says(after, 'new');
    expect(takes()).to.deep.equal(['+shop {env == "prod" and group == "a"} new', '-shop {env == "prod"}']);
  });

  it('is taken back when it turns out to be gone', () => {
    const { takes, store, views } = start();
    const resolved = [{ type: cds, selector: name, parameters }];
    views.publish(store.apply(transaction({ holder: namedHolder, type: cds, resolved })));
    expect(takes()).to.deep.equal(['-shop {env == "prod"}']);
  });

  it('§4.2 is sent again when it is still so, if the client has subscribed to it again meanwhile', () => {
    const { takes, says, subscribesAgain } = start();
    subscribesAgain();
    expect(takes(), 'silent until it is known').to.deep.equal([]);
    says(before, 'old');
    expect(takes()).to.deep.equal(['+shop {env == "prod"} old']);
    says(before, 'old');
    expect(takes(), 'once').to.deep.equal([]);
  });

  it('§4.2 is said to be gone once, if the client has subscribed to it again meanwhile', () => {
    const { takes, store, views, subscribesAgain } = start();
    subscribesAgain();
    expect(takes()).to.deep.equal([]);
    const resolved = [{ type: cds, selector: name, parameters }];
    views.publish(store.apply(transaction({ holder: namedHolder, type: cds, resolved })));
    expect(takes()).to.deep.equal(['-shop {env == "prod"}']);
  });

  it('is not sent again when it is still so', () => {
    const { takes, says } = start();
    says(before, 'old');
    expect(takes()).to.deep.equal([]);
  });
});

describe('what is absent, and nothing is known of any more', () => {
  it('is not said to be absent to who comes, until it is known again', () => {
    const { takes, says, store, views, opens } = start();
    const interest = { type: cds, selector: name, parameters };
    views.publish(store.apply(transaction({ holder: namedHolder, type: cds, resolved: [interest] })));
    expect(takes()).to.deep.equal(['-shop {env == "prod"}']);
    views.publish(store.restamp({ type: cds, moves: [], unresolved: [interest] }));
    const newcomer = opens();
    expect([...takes(newcomer), ...takes()]).to.deep.equal([]);
    says(after, 'new');
    for (const one of [newcomer, undefined])
      expect(takes(one)).to.deep.equal(['+shop {env == "prod" and group == "a"} new']);
  });
});

describe('what many clients have and nothing is known of any more', () => {
  it('is taken back in one response for all that have the same', () => {
    const { client, takes, says, store, views, opens } = start();
    says(before, 'old');
    expect(takes()).to.deep.equal([]);
    const other = opens();
    expect(takes(other)).to.deep.equal(['+shop {env == "prod"} old']);
    const interest = { type: cds, selector: name, parameters };
    const move = { holder: namedHolder, name, from: before, to: without };
    views.publish(store.restamp({ type: cds, moves: [move], unresolved: [interest] }));
    for (const one of [client, other]) expect(takes(one)).to.deep.equal([]);
    says(after, 'new');
    const [own, shared] = [client, other].map((one) => one.take(defersNothing)?.bytes);
    expect(own).to.equal(shared);
    expect(own).to.not.equal(undefined);
  });
});
