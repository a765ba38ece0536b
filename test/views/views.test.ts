import { fromBinary } from '@bufbuild/protobuf';
import { expect } from 'chai';
import { Store } from '../../src/cache/store.ts';
import {
  DeltaDiscoveryResponseSchema,
  DiscoveryResponseSchema,
} from '../../src/gen/envoy/service/discovery/v3/discovery_pb.ts';
import type { Access } from '../../src/model/access.ts';
import { resourceName } from '../../src/model/brand.ts';
import { UNCONSTRAINED } from '../../src/model/constraints.ts';
import { internParameters, NO_PARAMETERS } from '../../src/model/parameters.ts';
import { Selection } from '../../src/model/selection.ts';
import { defersNothing, encoding, type Response, type Subscription } from '../../src/model/subscription.ts';
import { atOnce, type Payer } from '../../src/model/time-slices.ts';
import { type Interest, type Transaction, transaction, WILDCARD } from '../../src/model/transaction.ts';
import { type Attributes, UpdateTraces } from '../../src/observe/update-traces.ts';
import { ALLOW_ALL } from '../../src/security/authorization.ts';
import { Views } from '../../src/views/views.ts';
import { encodeStatus } from '../../src/wire/responses.ts';
import { namedHolder, put, resources, type, when, wildcardHolder } from '../support/in-memory-relay.ts';
import { VirtualClock } from '../support/virtual-clock.ts';

const cds = type('cds');
const sotw = encoding({
  protocol: 'sotw',
  wrapped: false,
  ttl: false,
  constrained: false,
  contentVersions: false,
  unknownNames: false,
  absencesUnsaid: false,
});
const named = (...names: string[]): Selection =>
  Selection.of(
    names.map((name) => ({
      selector: resourceName(name),
      requestedName: name,
      locator: false,
      parameters: NO_PARAMETERS,
      locatorParameters: undefined,
    })),
  );

/** It may see everything too, but shares no view with `ALLOW_ALL`. */
const otherTenant: Access = {
  key: 'other',
  unrestricted: true,
  cohort: 'released',
  allows: () => true,
  admits: () => true,
  deniesEverything: () => false,
};

/** A store and its views, with subscriptions that are taken from by hand. */
class Bench {
  readonly clock = new VirtualClock();
  readonly interests: Interest[] = [];
  readonly journal: string[] = [];
  readonly deferred: (() => void)[] = [];
  /** How the traces of updates ended. */
  readonly ended: Attributes[] = [];
  readonly traces = new UpdateTraces(
    {
      start: () => ({ child: () => undefined, end: (_, more = {}) => this.ended.push(more) }),
      stop: () => Promise.resolve(),
    },
    this.clock,
  );
  readonly store = new Store({ clock: this.clock, ambiguous: () => undefined, expiring: () => undefined });
  readonly views = new Views({
    catalogs: this.store.cohorts,
    interests: {
      subscribe: (interest) => {
        this.store.addInterest(interest);
        this.interests.push(interest);
        this.journal.push(`+${interest.selector}`);
      },
      resubscribe: () => undefined,
      contentOf: () => ({ hasContent: true, bytes: 0 }),
      markIdle: () => undefined,
      markActive: () => undefined,
      unsubscribe: (interest) => {
        this.store.removeInterest(interest);
        this.journal.push(`-${interest.selector}`);
      },
    },
    clock: this.clock,
    idleMilliseconds: 1000,
    maxCacheBytes: () => 2 ** 30,
    controlPlane: '',
    lookedUp: () => undefined,
    answered: () => undefined,
    defer: (run) => this.deferred.push(run),
    traces: this.traces,
  });

  open(selection = named('*'), wake: () => void = () => undefined, payer?: Payer): Subscription {
    return this.views.open(cds, sotw, selection, ALLOW_ALL, { wake, payer });
  }

  says(part: Partial<Transaction>): void {
    const whole = transaction({ holder: wildcardHolder, type: cds, resolved: this.interests, ...part });
    const commit = this.store.apply(whole);
    this.traces.applied(whole, commit, this.clock.monotonic());
    this.views.publish(commit);
    this.traces.published(commit);
  }

  full(state: Readonly<Record<string, string>>, version = ''): void {
    const puts = Object.entries(state).map(([name, content]) => put(cds, name, content));
    this.says({ puts, version, complete: true });
  }

  /** Entries in the histories of all views. */
  get history(): number {
    let count = 0;
    for (const view of this.views.all()) {
      for (const item of view.items.values()) {
        for (let entry: typeof item.last | undefined = item.last; entry !== undefined; entry = entry.older)
          count++;
      }
    }
    return count;
  }
}

const contents = (response: Response | undefined): Record<string, string> | undefined =>
  response && resources(fromBinary(DiscoveryResponseSchema, response.bytes.subarray(5)));

describe('views', () => {
  describe('shared frames', () => {
    it('also if a name is unknown again, and their names have parameters of two authorities', () => {
      const bench = new Bench();
      const eds = type('eds');
      const selection = Selection.of(
        ['a', 'b', 'c'].map((name) => ({
          selector: resourceName(name),
          requestedName: name,
          locator: false,
          parameters: internParameters([['of', name === 'a' ? '1' : '2']]),
          locatorParameters: undefined,
        })),
      );
      const subscriber = { wake: () => undefined, payer: undefined };
      const clients = Array.from({ length: 2 }, () =>
        bench.views.open(eds, sotw, selection, ALLOW_ALL, subscriber),
      );
      const says = (part: Partial<Transaction>) => {
        bench.says({ type: eds, holder: namedHolder, resolved: [], ...part });
        return clients.map((one) => one.take(defersNothing)?.bytes);
      };
      const puts = ['a', 'b', 'c'].map((name) => put(eds, name, '1'));
      expect(new Set(says({ puts })).size).to.equal(1);
      const removals = [{ name: resourceName('b'), constraints: UNCONSTRAINED }];
      says({ removals, unanswered: bench.interests });
      const [first, second] = says({ puts: [put(eds, 'c', '2')] });
      expect(first).not.to.equal(undefined);
      expect(first).to.equal(second);
    });

    it('two clients that stand alike get the very same buffer', () => {
      const bench = new Bench();
      const subscriptions = Array.from({ length: 5 }, () => bench.open());
      bench.full({ a: '1' });
      const first = subscriptions.map((one) => one.take(defersNothing)?.bytes);
      bench.full({ a: '2' });
      const second = subscriptions.map((one) => one.take(defersNothing)?.bytes);
      expect(new Set(first).size).to.equal(1);
      expect(new Set(second).size).to.equal(1);
      expect(first[0]).not.to.equal(second[0]);
    });

    it('a newcomer gets the very same buffer after a commit about what its view does not show', () => {
      const bench = new Bench();
      const opened = [bench.open(), bench.open()];
      const other = bench.open(named('z'));
      bench.full({ a: '1' });
      const [first] = opened.map((one) => one.take(defersNothing)?.bytes);
      bench.says({ holder: namedHolder, puts: [put(cds, 'z', '1')] });
      expect(contents(other.take(defersNothing))).to.deep.equal({ z: '1' });
      expect(bench.open().take(defersNothing)?.bytes).to.equal(first);
    });

    it('the complete state is the same buffer wherever its takers come from', () => {
      const bench = new Bench();
      const [quick, slow] = [bench.open(), bench.open()];
      bench.full({ a: '1' });
      quick.take(defersNothing);
      slow.take(defersNothing);
      bench.full({ a: '2' });
      quick.take(defersNothing);
      bench.full({ a: '2', b: '1' });
      const late = bench.open();
      const [one, two, three] = [quick, slow, late].map((subscription) => subscription.take(defersNothing));
      expect(two?.bytes).to.equal(one?.bytes);
      expect(three?.bytes).to.equal(one?.bytes);
      // What was new to each of them differs.
      const changed = [one, two, three].map((response) =>
        response?.changed.map(({ now }) => String(now.name)),
      );
      expect(changed).to.deep.equal([['b'], ['a', 'b'], ['a', 'b']]);
    });

    it('equal selections of different clients are one view, whatever their order', () => {
      const bench = new Bench();
      const subscriptions = [bench.open(named('a', 'b')), bench.open(named('b', 'a'))];
      expect([...bench.views.all()]).to.have.length(1);
      bench.full({ a: '1', b: '1' });
      const [one, other] = subscriptions.map((subscription) => subscription.take(defersNothing)?.bytes);
      expect(one).to.equal(other);
      expect(bench.journal).to.deep.equal(['+a', '+b']);
    });
  });

  describe('nonces', () => {
    it('grow on every stream, also where it takes a frame that others had before', () => {
      const bench = new Bench();
      const [one, other] = [bench.open(), bench.open()];
      bench.full({ a: '1' });
      const early = one.take(defersNothing);
      // Another selection moves this client's last nonce past the shared frame's.
      other.select(named('a'), ALLOW_ALL, new Set(), []);
      const own = other.take(defersNothing);
      other.select(named('*'), ALLOW_ALL, new Set([' *']), []);
      const again = other.take(defersNothing);
      expect(contents(again)).to.deep.equal({ a: '1' });
      expect(Number(own?.serial)).to.be.greaterThan(Number(early?.serial));
      expect(Number(again?.serial)).to.be.greaterThan(Number(own?.serial));
    });

    it('grow over types and views of the process', () => {
      const bench = new Bench();
      const serials: number[] = [];
      const subscriptions = [bench.open(), bench.open(named('a'))];
      for (let round = 0; round < 5; round++) {
        bench.full({ a: String(round) });
        for (const subscription of subscriptions)
          serials.push(Number(subscription.take(defersNothing)?.serial));
      }
      expect(serials).to.deep.equal(serials.toSorted((a, b) => a - b));
      expect(new Set(serials).size).to.equal(serials.length);
    });
  });

  describe('coalescing', () => {
    it('who does not take for a while gets only the newest, and what was overtaken is counted', () => {
      const bench = new Bench();
      const slow = bench.open();
      bench.full({ a: '0' });
      slow.take(defersNothing);
      for (let update = 1; update <= 10; update++) bench.full({ a: String(update) });
      expect(contents(slow.take(defersNothing))).to.deep.equal({ a: '10' });
      expect(slow.takeCoalesced()).to.equal(9);
      expect(slow.takeCoalesced(), 'since the last call').to.equal(0);
      expect(slow.take(defersNothing)).to.equal(undefined);
    });

    it('who keeps up overtakes nothing', () => {
      const bench = new Bench();
      const quick = bench.open();
      for (let update = 0; update < 10; update++) {
        bench.full({ a: String(update) });
        quick.take(defersNothing);
      }
      expect(quick.takeCoalesced()).to.equal(0);
    });

    it('a change that was taken back in the meantime is none', () => {
      const bench = new Bench();
      const slow = bench.open();
      bench.full({ a: '1' });
      slow.take(defersNothing);
      bench.full({ a: '2' });
      bench.full({ a: '1' });
      expect(slow.take(defersNothing)).to.equal(undefined);
    });
  });

  describe('history', () => {
    const tenWith = (content: string): Record<string, string> =>
      Object.fromEntries(Array.from({ length: 10 }, (_, index) => [`c${index}`, content]));

    it('is forgotten when everybody has taken', () => {
      const bench = new Bench();
      const all = [bench.open(), bench.open()];
      for (let update = 0; update < 50; update++) {
        bench.full(tenWith(String(update)));
        for (const one of all) one.take(defersNothing);
      }
      expect(bench.history).to.equal(10);
    });

    it('of 1,000 updates that one client misses stays bounded', () => {
      const bench = new Bench();
      const [quick, slow] = [bench.open(), bench.open()];
      bench.full(tenWith('first'));
      slow.take(defersNothing);
      let most = 0;
      for (let update = 0; update < 1000; update++) {
        bench.full(tenWith(String(update)));
        quick.take(defersNothing);
        most = Math.max(most, bench.history);
      }
      expect(most).to.be.lessThan(150);
      expect(contents(slow.take(defersNothing))).to.deep.equal(tenWith('999'));
      expect(bench.history).to.equal(10);
    });

    it('with many that stand at different places stays bounded by their number', () => {
      const bench = new Bench();
      const quick = bench.open();
      const slow: Subscription[] = [];
      for (let update = 0; update < 500; update++) {
        bench.full(tenWith(String(update)));
        quick.take(defersNothing);
        if (update % 100 !== 50) continue;
        const one = bench.open();
        one.take(defersNothing);
        slow.push(one);
      }
      // Ten items, each as the head and five cursors see it, and what came since the last pruning.
      expect(bench.history).to.be.lessThan(10 * 6 + 100);
      for (const one of slow) expect(contents(one.take(defersNothing))).to.deep.equal(tenWith('499'));
    });

    it('of resources that come and go for ever stays bounded', () => {
      const bench = new Bench();
      const [quick, slow] = [bench.open(), bench.open()];
      bench.full({ stays: '1' });
      slow.take(defersNothing);
      let most = 0;
      for (let update = 0; update < 1000; update++) {
        bench.full({ stays: '1', [`passing-${update}`]: '1' });
        quick.take(defersNothing);
        most = Math.max(most, bench.history);
      }
      expect(most).to.be.lessThan(400);
      expect(contents(slow.take(defersNothing))).to.deep.equal({ stays: '1', 'passing-999': '1' });
      bench.full({ stays: '1' });
      for (const one of [quick, slow]) one.take(defersNothing);
      expect(bench.history).to.equal(1);
    });

    it('a client that moves to another view is still known to hold what it had', () => {
      const bench = new Bench();
      const slow = bench.open(named('a', 'b'));
      bench.full({ a: '1', b: '1' });
      slow.take(defersNothing);
      for (let update = 0; update < 300; update++) bench.full({ a: '1', b: String(update) });
      slow.select(named('a', 'c'), ALLOW_ALL, new Set([' c']), []);
      for (let update = 0; update < 300; update++) bench.full({ a: '1', c: String(update) });
      const response = slow.take(defersNothing);
      expect(contents(response)).to.deep.equal({ a: '1', c: '299' });
      expect(
        response?.changed.map(({ now }) => String(now.name)),
        'a is known',
      ).to.deep.equal(['c']);
      expect([...bench.views.all()], 'the old view is gone').to.have.length(1);
    });
  });

  it('§3.7 a SotW client that leaves a wildcard for names is not told without need that a removal is over', () => {
    const bench = new Bench();
    const rds = type('rds');
    const subscriber = { wake: () => undefined, payer: undefined };
    const subscription = bench.views.open(rds, sotw, named('*', 'x'), ALLOW_ALL, subscriber);
    const interests = bench.interests.splice(0).map((one) => ({ ...one, type: rds }));
    const says = (part: Partial<Transaction>): void =>
      bench.says({ type: rds, resolved: interests, ...part });
    says({ puts: [put(rds, 'x', '1')] });
    expect(contents(subscription.take(defersNothing))).to.deep.equal({ x: '1' });
    says({ removals: [{ name: resourceName('x'), constraints: UNCONSTRAINED }] });
    subscription.take(() => true);
    expect(subscription.hasDeferredRemovals).to.equal(true);
    subscription.select(named('x'), ALLOW_ALL, new Set(), []);
    expect(subscription.take(defersNothing)).to.equal(undefined);
    expect(subscription.hasDeferredRemovals).to.equal(false);
  });

  describe('what a delta client says that it has', () => {
    /** How often all of it was looked through. */
    class Claims extends Map<string, string> {
      walks = 0;
      override [Symbol.iterator](): MapIterator<[string, string]> {
        this.walks++;
        return super[Symbol.iterator]();
      }
    }
    const returning = (bench: Bench, selection: Selection, claims: Claims): Subscription => {
      const subscriber = { wake: () => undefined, payer: undefined };
      const delta = encoding({ ...sotw, protocol: 'delta' });
      const subscription = bench.views.open(cds, delta, selection, ALLOW_ALL, subscriber);
      subscription.resume({ initialVersions: claims });
      return subscription;
    };

    it('is looked through once while a wildcard is not answered, however often the client asks', () => {
      const bench = new Bench();
      const claims = new Claims([['gone', '1']]);
      const subscription = returning(bench, named('*'), claims);
      for (let asked = 0; asked < 10; asked++) expect(subscription.take(defersNothing)).to.equal(undefined);
      expect(claims.walks).to.be.lessThan(3);
      expect([subscription.pending, subscription.due]).to.deep.equal([true, false]);
      bench.full({ a: '1' });
      expect(subscription.take(defersNothing)?.removed).to.deep.equal(['gone']);
    });

    it('what comes after nothing is a first state, and has no time', () => {
      const bench = new Bench();
      const delta = encoding({ ...sotw, protocol: 'delta' });
      const subscriber = { wake: () => undefined, payer: undefined };
      const [first, second] = [0, 1].map(() =>
        bench.views.open(cds, delta, named('*'), ALLOW_ALL, subscriber),
      );
      expect([first, second].map((one) => one?.take(defersNothing))).to.deep.equal([undefined, undefined]);
      bench.clock.advance(1000);
      bench.full({ a: '1' });
      for (const one of [first, second])
        expect(one?.take(defersNothing)).to.include({ receivedAt: undefined });
      bench.full({ a: '2' });
      expect(first?.take(defersNothing)?.receivedAt).to.be.a('number');
    });

    it('a name that is added beside a wildcard that nobody answers does not wait for it', () => {
      const bench = new Bench();
      const delta = encoding({ ...sotw, protocol: 'delta' });
      const subscriber = { wake: () => undefined, payer: undefined };
      const other = bench.views.open(cds, delta, named('x', 'y'), ALLOW_ALL, subscriber);
      const puts = [put(cds, 'x', '1'), put(cds, 'y', '1')];
      bench.says({ holder: namedHolder, puts, resolved: [...bench.interests] });
      other.take(defersNothing);
      const one = bench.views.open(cds, delta, named('*'), ALLOW_ALL, subscriber);
      expect(one.take(defersNothing)).to.equal(undefined);
      one.select(named('*', 'x'), ALLOW_ALL, new Set(), []);
      expect(one.take(defersNothing)?.resources).to.equal(1);
      const glob = 'xdstp://a/envoy.config.cluster.v3.Cluster/dir/*';
      const second = bench.views.open(cds, delta, named('x'), ALLOW_ALL, subscriber);
      expect(second.take(defersNothing)?.resources).to.equal(1);
      second.select(named('x', glob), ALLOW_ALL, new Set(), []);
      expect(second.take(defersNothing)).to.equal(undefined);
      second.select(named('x', 'y', glob), ALLOW_ALL, new Set(), []);
      expect(second.take(defersNothing)?.resources).to.equal(1);
    });

    it('errors that a full state leaves to the next response come also after a deferred removal', () => {
      const bench = new Bench();
      const subscription = bench.open();
      bench.full({ a: '1', b: '1' });
      subscription.take(defersNothing);
      const gone = { name: resourceName('a'), constraints: UNCONSTRAINED };
      bench.says({ removals: [gone] });
      subscription.take(() => true);
      const status = encodeStatus(7, 'no');
      bench.says({ resourceErrors: [{ ...gone, code: 7, message: 'no', status }] });
      subscription.take(() => true);
      expect(contents(subscription.take(defersNothing))).to.deep.equal({ b: '1' });
      expect(subscription.pending).to.equal(true);
      const last = subscription.take(defersNothing)?.bytes.subarray(5) ?? Buffer.alloc(0);
      expect(fromBinary(DiscoveryResponseSchema, last).resourceErrors).to.have.length(1);
    });

    for (const protocol of ['sotw', 'delta'] as const) {
      it(`an absence that is withheld is told once, while a removal is deferred (${protocol})`, () => {
        const bench = new Bench();
        const at = (name: string, env: string) => {
          const parameters = internParameters([['env', env]]);
          const selector = resourceName(name);
          return { selector, requestedName: name, locator: true, parameters, locatorParameters: parameters };
        };
        const selection = Selection.of([at('x', 'dev'), at('x', 'prod'), at('y', 'dev')]);
        const subscriber = { wake: () => undefined, payer: undefined };
        const encoded = encoding({ ...sotw, protocol });
        const one = bench.views.open(cds, encoded, selection, ALLOW_ALL, subscriber);
        const isProd = ({ parameters }: Interest): boolean => parameters.entries.get('env') === 'prod';
        const resolved = bench.interests.filter((interest) => !isProd(interest));
        bench.says({ holder: namedHolder, puts: [put(cds, 'y', '1')], resolved });
        one.take(defersNothing);
        const gone = { name: resourceName('y'), constraints: UNCONSTRAINED };
        bench.says({ holder: namedHolder, resolved: [], removals: [gone] });
        for (let look = 0; look < 3; look++) expect(one.take(() => true)).to.equal(undefined);
      });
    }

    it('a removal that is kept beside a glob that nobody answers is deferred, and not due', () => {
      const bench = new Bench();
      const delta = encoding({ ...sotw, protocol: 'delta' });
      const subscriber = { wake: () => undefined, payer: undefined };
      const subscription = bench.views.open(cds, delta, named('x'), ALLOW_ALL, subscriber);
      const [x] = bench.interests;
      const says = (part: Partial<Transaction>): void =>
        bench.says({ holder: namedHolder, resolved: [], ...part });
      says({ puts: [put(cds, 'x', '1')], resolved: x === undefined ? [] : [x] });
      subscription.take(defersNothing);
      const glob = 'xdstp://a/envoy.config.cluster.v3.Cluster/dir/*';
      subscription.select(named('x', glob), ALLOW_ALL, new Set(), []);
      subscription.take(defersNothing);
      says({ removals: [{ name: resourceName('x'), constraints: UNCONSTRAINED }] });
      expect(subscription.take(() => true)).to.equal(undefined);
      expect([subscription.hasDeferredRemovals, subscription.due]).to.deep.equal([true, false]);
      expect(subscription.take(defersNothing)?.removed).to.deep.equal(['x']);
    });

    it('a removal that waits as nothing is known of the name any more is looked at again once something is', () => {
      const bench = new Bench();
      const delta = encoding({ ...sotw, protocol: 'delta' });
      const subscriber = { wake: () => undefined, payer: undefined };
      const subscription = bench.views.open(cds, delta, named('x'), ALLOW_ALL, subscriber);
      const says = (part: Partial<Transaction>): void => bench.says({ holder: namedHolder, ...part });
      const state = () => [subscription.pending, subscription.due, subscription.hasDeferredRemovals];
      says({ puts: [put(cds, 'x', '1')] });
      subscription.take(defersNothing);
      says({ removals: [{ name: resourceName('x'), constraints: UNCONSTRAINED }] });
      expect(subscription.take(() => true)).to.equal(undefined);
      expect(state()).to.deep.equal([false, false, true]);
      bench.views.publish(bench.store.restamp({ type: cds, moves: [], unresolved: bench.interests }));
      expect(subscription.take(() => true)).to.equal(undefined);
      expect(state(), 'no acknowledgement makes it look').to.deep.equal([false, false, false]);
      says({});
      expect(subscription.take(defersNothing)?.removed).to.deep.equal(['x']);
    });

    it('§4.1 what is gone is removed from who asks for the wildcard with parameters, too', () => {
      const bench = new Bench();
      const [wildcard] = named('*').listed.values();
      const selection = Selection.of(wildcard === undefined ? [] : [{ ...wildcard, locator: true }]);
      const subscription = returning(bench, selection, new Claims([['gone', '1']]));
      bench.full({ a: '1' });
      expect(subscription.take(defersNothing)?.removed).to.deep.equal(['gone']);
    });

    it('§3.13 which wildcards are unknown is looked up once for all responses of one state', () => {
      const bench = new Bench();
      const selection = named('a', '*');
      const { listed } = selection;
      let walks = 0;
      Object.defineProperty(selection, 'listed', { get: () => (walks++, listed) });
      const below = encoding({ ...sotw, protocol: 'delta', unknownNames: true });
      const subscriber = { wake: () => undefined, payer: undefined };
      const relays = Array.from({ length: 10 }, (_, index) => {
        const one = bench.views.open(cds, below, selection, ALLOW_ALL, subscriber);
        one.resume({ initialVersions: new Map([[`own-${index}`, '1']]) });
        return one;
      });
      const [a] = bench.interests;
      bench.says({ holder: namedHolder, puts: [put(cds, 'a', '1')], resolved: a === undefined ? [] : [a] });
      const errors = () =>
        relays.map((one) => {
          const bytes = one.take(defersNothing)?.bytes.subarray(5) ?? new Uint8Array();
          return fromBinary(DeltaDiscoveryResponseSchema, bytes).resourceErrors.length;
        });
      expect(new Set(errors())).to.deep.equal(new Set([1]));
      expect(walks).to.be.lessThan(3);
      bench.says({});
      expect(new Set(errors()), 'also if it is answered with nothing').to.deep.equal(new Set([0]));
    });

    it('is forgotten but for the names that are not answered', () => {
      const bench = new Bench();
      const claims = new Claims([
        ['a', '1'],
        ['not-subscribed', '1'],
      ]);
      const subscription = returning(bench, named('a', 'nobody'), claims);
      const [a] = bench.interests;
      bench.says({ puts: [put(cds, 'a', '1')], resolved: a === undefined ? [] : [a] });
      expect(subscription.take(defersNothing)?.changed).to.have.length(1);
      expect([subscription.pending, subscription.due]).to.deep.equal([false, false]);
    });

    it('stays of a name until it is answered, and is not due before', () => {
      const bench = new Bench();
      const subscription = returning(bench, named('a', 'nobody'), new Claims([['nobody', '1']]));
      const [a, nobody] = bench.interests;
      bench.says({ puts: [put(cds, 'a', '1')], resolved: a === undefined ? [] : [a] });
      expect(subscription.take(defersNothing)?.removed).to.deep.equal([]);
      expect([subscription.pending, subscription.due]).to.deep.equal([true, false]);
      bench.says({ resolved: nobody === undefined ? [] : [nobody] });
      expect(subscription.due).to.equal(true);
      expect(subscription.take(defersNothing)?.removed).to.deep.equal(['nobody']);
      expect(subscription.pending).to.equal(false);
    });
  });

  describe('what a view keeps', () => {
    const wake = (): void => undefined;
    class Purse implements Payer {
      kept = 0;
      spent(): void {}
      keeps(bytes: number): void {
        this.kept += bytes;
      }
    }

    it('is for its only peer, and for nobody as soon as another one subscribes', () => {
      const bench = new Bench();
      const [one, other] = [new Purse(), new Purse()];
      const subscriptions = [one, one].map((purse) => bench.open(named('a', 'b'), wake, purse));
      const alone = one.kept;
      expect(alone).to.be.above(2 * 2600);
      const shared = bench.open(named('a', 'b'), wake, other);
      expect([one.kept, other.kept]).to.deep.equal([0, 0]);
      for (const subscription of subscriptions) subscription.close();
      expect([one.kept, other.kept]).to.deep.equal([0, alone]);
      shared.close();
      expect(other.kept).to.equal(0);
    });

    it('has a share for each resource that a wildcard shows, as they come and go', () => {
      const bench = new Bench();
      const purse = new Purse();
      const many = Object.fromEntries(Array.from({ length: 1000 }, (_, index) => [`c${index}`, '1']));
      bench.full(many);
      const subscription = bench.open(named('*'), wake, purse);
      const before = purse.kept;
      expect(before).to.be.above(1000 * 190);
      bench.full(Object.fromEntries(Object.entries(many).slice(500)));
      subscription.take(defersNothing);
      expect(purse.kept).to.be.below(0.7 * before);
      bench.full(many);
      expect(purse.kept).to.be.within(0.9 * before, 1.1 * before);
      subscription.close();
      expect(purse.kept).to.equal(0);
    });

    it('is that of a wildcard too where each client has names beside it, until another peer has them', () => {
      const bench = new Bench();
      const [one, other] = [new Purse(), new Purse()];
      bench.full(Object.fromEntries(Array.from({ length: 1000 }, (_, index) => [`c${index}`, '1'])));
      const members = 1000 * 190;
      const subscriptions = Array.from({ length: 12 }, (_, index) =>
        bench.open(named('*', `n${index}`), wake, one),
      );
      expect(one.kept).to.be.within(members, 3 * members);
      subscriptions.pop()?.close();
      subscriptions[0]?.select(named('*', 'n0', 'more'), ALLOW_ALL, new Set(), []);
      expect(one.kept).to.be.within(members, 3 * members);
      const another = bench.open(named('*', 'x'), wake, other);
      expect(one.kept + other.kept).to.be.below(members);
      for (const subscription of subscriptions) subscription.close();
      expect(one.kept).to.equal(0);
      expect(other.kept).to.be.above(members);
      another.close();
      expect(other.kept).to.equal(0);
    });

    it('goes on as long as a client has it that subscribes to something else, and reads nothing', () => {
      const bench = new Bench();
      const purse = new Purse();
      const many = Object.fromEntries(Array.from({ length: 1000 }, (_, index) => [`c${index}`, '1']));
      for (const [before, then] of [
        ['*', 'a'],
        ['* a', '* b'],
      ] as const) {
        const subscription = bench.open(named(...before.split(' ')), wake, purse);
        bench.full(many);
        subscription.take(defersNothing);
        const other = bench.open(named(...before.split(' ')), wake, purse);
        subscription.select(named(...then.split(' ')), ALLOW_ALL, new Set(), []);
        other.close();
        expect(purse.kept).to.be.above(1000 * 190);
        subscription.take(defersNothing);
        if (then === 'a') expect(purse.kept).to.be.below(10_000);
        else expect(purse.kept).to.be.above(1000 * 190);
        subscription.close();
        expect(purse.kept).to.equal(0);
      }
    });

    it('is for a client too that is kept what is gone while a wildcard is not answered', () => {
      const bench = new Bench();
      const purse = new Purse();
      const delta = encoding({ ...sotw, protocol: 'delta' });
      const subscription = bench.views.open(cds, delta, named('*', 'gone'), ALLOW_ALL, {
        wake,
        payer: purse,
      });
      subscription.resume({ initialVersions: new Map([['gone', '1']]) });
      const before = purse.kept;
      bench.says({ resolved: bench.interests.filter(({ selector }) => selector === 'gone') });
      expect(subscription.take(() => true)).to.equal(undefined);
      expect(purse.kept - before).to.be.above(500);
      bench.full({});
      expect(subscription.take(defersNothing)?.removed).to.deep.equal(['gone']);
      expect(purse.kept).to.be.below(before);
    });

    it('goes with its client to another selection', () => {
      const bench = new Bench();
      const purse = new Purse();
      const subscription = bench.open(named('a', 'b'), wake, purse);
      const before = purse.kept;
      subscription.select(named('a'), ALLOW_ALL, new Set(), []);
      expect(purse.kept).to.be.within(1, before - 1);
      subscription.close();
      expect(purse.kept).to.equal(0);
    });
  });

  describe('fan-out', () => {
    it('is done in slices: other events get their turn in between', () => {
      const bench = new Bench();
      let woken = 0;
      const busy = (): void => {
        woken++;
        const end = performance.now() + 0.5;
        while (performance.now() < end);
      };
      for (let client = 0; client < 200; client++) bench.open(named('*'), busy);
      bench.full({ a: '1' });
      expect(woken, 'not at once').to.equal(0);
      const slices: number[] = [];
      while (bench.deferred.length > 0) {
        const before = woken;
        for (const run of bench.deferred.splice(0)) run();
        slices.push(woken - before);
      }
      expect(woken).to.equal(200);
      expect(slices.length).to.be.greaterThan(5);
      expect(Math.max(...slices)).to.be.lessThan(60);
    });

    it('an update in the middle of it wakes everybody again, and waits in one place only', () => {
      const bench = new Bench();
      let woken = 0;
      for (let client = 0; client < 10; client++) bench.open(named('*'), () => woken++);
      bench.full({ a: '1' });
      bench.full({ a: '2' });
      bench.full({ a: '3' });
      expect(bench.deferred).to.have.length(1);
      for (const run of bench.deferred.splice(0)) run();
      expect(woken).to.equal(10);
    });

    it('a subscription that closes in the middle of it is not woken', () => {
      const bench = new Bench();
      const subscriptions: Subscription[] = [];
      let woken = 0;
      const wake = (): void => {
        woken++;
        for (const one of subscriptions.splice(0)) one.close();
      };
      const first = bench.open(named('*'), wake);
      subscriptions.push(...[1, 2, 3].map(() => bench.open(named('*'), wake)));
      bench.full({ a: '1' });
      for (const run of bench.deferred.splice(0)) run();
      expect(woken).to.equal(1);
      first.close();
    });

    it('the trace of an update waits for streams, not for clients that poll', () => {
      const bench = new Bench();
      const stream = bench.open();
      const polling = { wake: () => undefined, payer: undefined, polls: 'client' } as const;
      const poller = bench.views.open(cds, sotw, named('*'), ALLOW_ALL, polling);
      bench.full({ a: '1' });
      for (const one of [stream, poller]) one.take(defersNothing);
      bench.says({ puts: [put(cds, 'a', '2')], arrivedAt: 1 });
      const response = stream.take(defersNothing);
      bench.traces.handedOver(1);
      stream.answer(response?.nonce ?? '', undefined);
      expect(bench.ended.at(-1)).to.include({
        'distributary.end': 'answered',
        'distributary.subscribers': 1,
      });
    });

    it('views that cannot see a change are left in peace', () => {
      const bench = new Bench();
      const woken: string[] = [];
      for (const name of ['a', 'b']) bench.open(named(name), () => woken.push(name));
      bench.says({ puts: [put(cds, 'a', '1')], resolved: [] });
      for (const run of bench.deferred.splice(0)) run();
      expect(woken).to.deep.equal(['a']);
    });

    it('views whose clients may not be told of an error are left in peace', () => {
      const bench = new Bench();
      const own: Access = {
        ...{ ...otherTenant, unrestricted: false },
        allows: (_, name) => name === 'ours',
        admits: ({ name }) => name === 'ours',
      };
      let woken = 0;
      bench.views.open(cds, sotw, named('*'), own, { wake: () => woken++, payer: undefined });
      bench.full({});
      const says = (name: string): number => {
        woken = 0;
        const error = { name: resourceName(name), constraints: UNCONSTRAINED, code: 14, message: '' };
        bench.says({ resourceErrors: [{ ...error, status: encodeStatus(14, '') }], resolved: [] });
        for (const run of bench.deferred.splice(0)) run();
        return woken;
      };
      for (const run of bench.deferred.splice(0)) run();
      expect([says('ours'), says('theirs')]).to.deep.equal([1, 0]);
    });
  });

  describe('what a client costs', () => {
    const delta = encoding({ ...sotw, protocol: 'delta' });
    const subscriber = { wake: () => undefined, payer: undefined };
    const state = (count: number) =>
      Object.fromEntries(Array.from({ length: count }, (_, index) => [`resource-${index}`, '1']));

    it('§8.2 that moves to another view: the errors of each resource are looked up once', () => {
      const bench = new Bench();
      const client = bench.views.open(cds, delta, named('*'), ALLOW_ALL, subscriber);
      bench.full(state(100));
      client.take(defersNothing);
      const reader = bench.store.cohorts.released;
      const look = reader.resourceErrors.bind(reader);
      let lookups = 0;
      reader.resourceErrors = (...all) => {
        lookups++;
        return look(...all);
      };
      const counted = (run: () => void): number => {
        lookups = 0;
        run();
        return lookups;
      };
      const moves = (access: Access) => (): void => client.select(named('*'), access, new Set(), []);
      const takes = (): void => void client.take(defersNothing);
      const steps = [moves(otherTenant), takes, moves(ALLOW_ALL), moves(otherTenant)];
      // The last one before the client has read.
      expect(steps.map(counted)).to.deep.equal([0, 100, 0, 100]);
    });

    it('of a wildcard that is empty while another is not answered is that of all clients of the view', () => {
      /** How often members were looked at for one update. */
      const looked = (clients: number): number => {
        const bench = new Bench();
        const parameters = ['full', 'empty', 'unanswered'].map((env) => internParameters([['env', env]]));
        const selection = Selection.of(
          parameters.map((one) => ({
            ...{ selector: WILDCARD, requestedName: '*', locator: true },
            ...{ parameters: one, locatorParameters: one },
          })),
        );
        const opened = Array.from({ length: clients }, () =>
          bench.views.open(cds, delta, selection, ALLOW_ALL, subscriber),
        );
        const answered = bench.interests.slice(0, 2);
        const constraints = when({ env: 'full' });
        const says = (version: string): void => {
          const puts = Object.keys(state(100)).map((name) => put(cds, name, '1', { constraints }));
          const changed = put(cds, 'changed', version, { constraints, version });
          bench.says({ puts: version === '1' ? [...puts, changed] : [changed], resolved: answered });
        };
        says('1');
        for (const one of opened) one.take(defersNothing);
        const collectionsOver = selection.collectionsOver.bind(selection);
        let count = 0;
        selection.collectionsOver = (name) => {
          count++;
          return collectionsOver(name);
        };
        says('2');
        for (const one of opened) expect(one.take(defersNothing)?.changed).to.have.length(1);
        return count;
      };
      expect(looked(10)).to.equal(looked(1));
    });
  });

  describe('interest', () => {
    it('goes upstream once, however many want it, and lingers when nobody does', () => {
      const bench = new Bench();
      const all = [bench.open(named('a')), bench.open(named('a', 'b')), bench.open(named('a'))];
      expect(bench.journal).to.deep.equal(['+a', '+b']);
      for (const one of all) one.close();
      bench.clock.advance(999);
      expect(bench.journal).to.deep.equal(['+a', '+b']);
      bench.clock.advance(1);
      expect(bench.journal.slice(2).toSorted()).to.deep.equal(['-a', '-b']);
    });

    it('stays of a wildcard that others have when a client leaves that has added a name and read nothing since', () => {
      const bench = new Bench();
      const stays = bench.open();
      const subscriber = { wake: () => undefined, payer: undefined };
      const leaves = bench.views.open(cds, sotw, named('*'), otherTenant, subscriber);
      bench.full({ a: '1' });
      for (const one of [stays, leaves]) one.take(defersNothing);
      leaves.select(named('*', 'x'), otherTenant, new Set(), []);
      leaves.close();
      bench.clock.advance(5000);
      expect(bench.journal).to.deep.equal(['+*', '+x', '-x']);
    });

    it('stays of a large request though somebody else has come and gone before it is handled', () => {
      const bench = new Bench();
      const selection = named('a', 'b');
      const giveUp = atOnce(bench.views.prepare(cds, selection, ALLOW_ALL));
      bench.open(selection).close();
      bench.open(selection);
      giveUp();
      bench.clock.advance(5000);
      expect(bench.journal).to.deep.equal(['+a', '+b']);
    });

    it('commits reach who subscribed while a large request of the type was prepared, and the others had left', () => {
      const bench = new Bench();
      const large = named('a', 'b');
      const preparing = bench.views.prepare(cds, large, ALLOW_ALL);
      expect(preparing.next().done, 'it waits for its turn').to.equal(false);
      bench.open(named('x')).close();
      const small = bench.open(named('x'));
      const giveUp = atOnce(preparing);
      const first = bench.open(large);
      giveUp();
      bench.full({ a: '1', b: '1', x: '1' });
      const received = [small, first].map((one) => contents(one.take(defersNothing)));
      expect(received).to.deep.equal([{ x: '1' }, { a: '1', b: '1' }]);
    });

    it('who comes back in time finds it', () => {
      const bench = new Bench();
      const first = bench.open(named('a'));
      bench.full({ a: '1' });
      first.close();
      bench.clock.advance(500);
      expect(contents(bench.open(named('a')).take(defersNothing))).to.deep.equal({ a: '1' });
      bench.clock.advance(5000);
      expect(bench.journal).to.deep.equal(['+a']);
    });

    it('a removal is seen by those who are there', () => {
      const bench = new Bench();
      const one = bench.open(named('a'));
      bench.full({ a: '1' });
      one.take(defersNothing);
      bench.says({ removals: [{ name: resourceName('a'), constraints: UNCONSTRAINED }] });
      expect(contents(one.take(defersNothing))).to.deep.equal({});
    });
  });
});
