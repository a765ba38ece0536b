import { fromBinary } from '@bufbuild/protobuf';
import { expect } from 'chai';
import fc from 'fast-check';
import { Store } from '../../src/cache/store.ts';
import { DeltaDiscoveryResponseSchema } from '../../src/gen/envoy/service/discovery/v3/discovery_pb.ts';
import { resourceName } from '../../src/model/brand.ts';
import { NO_PARAMETERS } from '../../src/model/parameters.ts';
import { Selection } from '../../src/model/selection.ts';
import { defersNothing, encoding, type Subscription } from '../../src/model/subscription.ts';
import { type Interest, transaction } from '../../src/model/transaction.ts';
import { ALLOW_ALL } from '../../src/security/authorization.ts';
import { Views } from '../../src/views/views.ts';
import { put, type, wildcardHolder } from '../support/in-memory-relay.ts';
import { VirtualClock } from '../support/virtual-clock.ts';

const cds = type('cds');
const delta = encoding({
  protocol: 'delta',
  wrapped: false,
  ttl: false,
  constrained: false,
  contentVersions: false,
  unknownNames: false,
  absencesUnsaid: false,
});
const selecting = (names: readonly string[]): Selection =>
  Selection.of(
    names.map((name) => ({
      selector: resourceName(name),
      requestedName: name,
      locator: false,
      parameters: NO_PARAMETERS,
      locatorParameters: undefined,
    })),
  );

const nobody = { wake: () => undefined, payer: undefined };

class Bench {
  readonly clock = new VirtualClock();
  readonly interests: Interest[] = [];
  readonly store = new Store({ clock: this.clock, ambiguous: () => undefined, expiring: () => undefined });
  readonly views = new Views({
    catalogs: this.store.cohorts,
    interests: {
      subscribe: (interest) => {
        this.store.addInterest(interest);
        this.interests.push(interest);
      },
      resubscribe: () => undefined,
      contentOf: () => ({ hasContent: true, bytes: 0 }),
      markIdle: () => undefined,
      markActive: () => undefined,
      unsubscribe: (interest) => this.store.removeInterest(interest),
    },
    clock: this.clock,
    idleMilliseconds: 1000,
    maxCacheBytes: () => 2 ** 30,
    controlPlane: '',
    lookedUp: () => undefined,
    answered: () => undefined,
    defer: () => undefined,
  });

  /** All that there is: name to version. */
  full(state: Readonly<Record<string, string>>): void {
    const puts = Object.entries(state).map(([name, content]) => put(cds, name, content));
    const all = { puts, version: '', complete: true, resolved: this.interests };
    this.views.publish(this.store.apply(transaction({ holder: wildcardHolder, type: cds, ...all })));
  }

  client(names: readonly string[]): Client {
    return new Client(this.views.open(cds, delta, selecting(names), ALLOW_ALL, nobody));
  }
}

/** What it has been sent, by name. */
class Client {
  readonly has = new Map<string, string>();
  readonly subscription: Subscription;

  constructor(subscription: Subscription) {
    this.subscription = subscription;
  }

  take(): void {
    const frame = this.subscription.take(defersNothing);
    if (frame === undefined) return;
    const response = fromBinary(DeltaDiscoveryResponseSchema, frame.bytes.subarray(5));
    for (const { name, resource } of response.resources) {
      this.has.set(name, Buffer.from(resource?.value ?? []).toString('latin1'));
    }
    for (const name of response.removedResources) this.has.delete(name);
  }

  /** What it unsubscribes it drops by itself (protocol §4.5), also if it subscribes to it again. */
  select(names: readonly string[]): void {
    for (const name of this.has.keys())
      if (!names.includes('*') && !names.includes(name)) this.has.delete(name);
    this.subscription.select(selecting(names), ALLOW_ALL, new Set(), []);
  }
}

const names = ['a', 'b', 'c', 'd'];
const selections = [['*'], ['*', 'x'], ['*', 'a'], ['*', 'a', 'y'], ['a', 'x']];
const step = fc.oneof(
  fc.record({
    kind: fc.constant('full' as const),
    state: fc.dictionary(fc.constantFrom(...names), fc.constantFrom('1', '2', '3')),
  }),
  fc.record({ kind: fc.constant('take' as const), client: fc.nat({ max: 5 }) }),
  fc.record({ kind: fc.constant('select' as const), client: fc.nat({ max: 5 }), to: fc.nat({ max: 4 }) }),
  fc.record({ kind: fc.constant('reopen' as const), client: fc.nat({ max: 5 }), to: fc.nat({ max: 4 }) }),
);

describe('a view of a wildcard and names, over the view of the wildcard', () => {
  it('shares the items of the wildcard', () => {
    const bench = new Bench();
    bench.client(['*']);
    bench.full({ a: '1', b: '1' });
    bench.client(['*', 'x', 'b']);
    const [base, layered] = [...bench.views.all()];
    expect(layered?.base).to.equal(base);
    expect(layered?.items.get(' a')).to.equal(base?.items.get(' a'));
    expect(layered?.items.get(' b')).not.to.equal(base?.items.get(' b'));
    expect([layered?.items.size, [...(layered?.items.values() ?? [])].length]).to.deep.equal([3, 3]);
    expect(layered?.shown).to.equal(layered);
  });

  it('keeps what quick clients of the wildcard have taken for a slow one over it', () => {
    const bench = new Bench();
    const [quick, slow] = [bench.client(['*']), bench.client(['*', 'x'])];
    bench.full({ a: '1', b: '1' });
    for (const one of [quick, slow]) one.take();
    bench.full({ a: '1' });
    quick.take();
    slow.take();
    expect([...slow.has.keys()]).to.deep.equal(['a']);
  });

  it('ends with its last client, and the base with the last over it', () => {
    const bench = new Bench();
    const client = bench.client(['*', 'x']);
    expect([...bench.views.all()]).to.have.length(1);
    client.subscription.close();
    expect([...bench.views.all()]).to.have.length(0);
    bench.clock.advance(10_000);
    expect([...bench.views.interests.all()]).to.deep.equal([]);
  });

  it('whoever takes what when, everybody has in the end what there is', () => {
    fc.assert(
      fc.property(fc.array(step, { maxLength: 40 }), (steps) => {
        const bench = new Bench();
        const chosen = Array.from({ length: 6 }, (_, at) => selections[at % selections.length] ?? []);
        const clients = chosen.map((selection) => bench.client(selection));
        let now: Readonly<Record<string, string>> = {};
        bench.full(now);
        for (const one of steps) {
          if (one.kind === 'full') {
            now = one.state;
            bench.full(now);
            continue;
          }
          if (one.kind === 'take') {
            clients[one.client]?.take();
            continue;
          }
          const selection = selections[one.to] ?? [];
          if (one.kind === 'reopen') {
            clients[one.client]?.subscription.close();
            clients[one.client] = bench.client(selection);
          } else clients[one.client]?.select(selection);
          chosen[one.client] = selection;
        }
        for (const [at, client] of clients.entries()) {
          client.take();
          const selection = chosen[at] ?? [];
          const expected = Object.keys(now).filter(
            (name) => selection.includes('*') || selection.includes(name),
          );
          expect([...client.has.keys()].toSorted()).to.deep.equal(expected.toSorted());
          for (const name of expected) expect(client.has.get(name)).to.contain(now[name]);
        }
      }),
      { numRuns: 1000 },
    );
  });
});
