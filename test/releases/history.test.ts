import { expect } from 'chai';
import { Store } from '../../src/cache/store.ts';
import {
  type ConstraintsKey,
  type ResourceName,
  resourceName,
  revision,
  typeUrl,
} from '../../src/model/brand.ts';
import type { Commit, ContentChange, Snapshot } from '../../src/model/catalog.ts';
import { type Change, type Content, NO_CONTENT } from '../../src/model/change.ts';
import { stampConstraints, UNCONSTRAINED } from '../../src/model/constraints.ts';
import { nameKey } from '../../src/model/holds.ts';
import { internParameters, NO_PARAMETERS, type Parameters } from '../../src/model/parameters.ts';
import type { PendingName } from '../../src/model/rollout.ts';
import {
  type Holder,
  type Interest,
  type Transaction,
  transaction,
  WILDCARD,
} from '../../src/model/transaction.ts';
import { backTo, History, reachable, releasedAt, verdictOf } from '../../src/releases/history.ts';
import { Recorder } from '../../src/releases/recorder.ts';
import { put, when } from '../support/in-memory-relay.ts';
import { VirtualClock } from '../support/virtual-clock.ts';

const type = typeUrl('type.googleapis.com/envoy.config.cluster.v3.Cluster');
const shop = resourceName('shop');
const cart = resourceName('cart');
const interest: Interest = { type, selector: shop, parameters: NO_PARAMETERS };

function content(text: string): Content {
  const bytes = Buffer.from(text);
  const variant = {
    type,
    name: shop,
    constraints: UNCONSTRAINED,
    version: '1',
    deltaVersion: `1@${text}`,
    payload: { bytes, hash: text },
    aliases: [],
    ttl: undefined,
    doNotCache: false,
    metadata: undefined,
    responseVersion: '1',
    upstream: 'central',
    cachedSince: 0,
    revision: revision(1),
  };
  return [{ variant, holders: [] }];
}

const pending = (name: ResourceName): PendingName => ({
  type,
  name,
  key: nameKey(type, name),
  upstream: 'central',
  since: 0,
  removed: false,
  masked: undefined,
  seen: true,
  queued: false,
});

/** A cache whose two sides are set by hand. */
function world(limits?: { maxBytes: number; maxAgeMs: number }) {
  const released = new Map<ResourceName, Content>();
  const said = new Map<ResourceName, Content>();
  const discarded = new Set<ResourceName>();
  /** What canaries have where that is not what upstream says. */
  const judged = new Map<ResourceName, Content>();
  const clock = new VirtualClock();
  const history = new History(
    clock,
    () => limits,
    () => {},
  );
  const recorder = new Recorder(history, clock, () => true);
  const seen = new Map<ResourceName, Snapshot>();
  const look = (name: ResourceName, saidFirst: ReadonlySet<ConstraintsKey>): ContentChange => {
    const before = seen.get(name) ?? { said: NO_CONTENT, released: NO_CONTENT, canary: NO_CONTENT };
    const cohort = { said: said.get(name) ?? NO_CONTENT, released: released.get(name) ?? NO_CONTENT };
    const after = {
      ...cohort,
      canary: judged.get(name) ?? (discarded.has(name) ? cohort.released : cohort.said),
    };
    seen.set(name, after);
    return { before, after, saidFirst };
  };
  const commit = (
    names: readonly ResourceName[],
    resolved: readonly Interest[] = [],
    operation?: Commit['operation'],
    first = new Set(resolved.length > 0 ? [UNCONSTRAINED.key] : []),
  ): void => {
    recorder.committed({
      revision: revision(1),
      type,
      version: '',
      receivedAt: clock.monotonic(),
      changed: new Map(names.map((name) => [name, []])),
      contents: new Map(names.map((name) => [name, look(name, first)])),
      resolved,
      operation,
    });
  };
  const put = (name: ResourceName, text: string, cohorts: 'both' | 'said' = 'both'): void => {
    const now = text === '' ? NO_CONTENT : content(text);
    said.set(name, now);
    if (cohorts === 'both') released.set(name, now);
  };
  return { released, said, discarded, judged, clock, history, recorder, commit, put };
}

const large = { maxBytes: 1_000_000, maxAgeMs: 1000 };

describe('history', () => {
  it('gives each change a revision, and none to what changes nothing', () => {
    const { history, commit, put } = world(large);
    put(shop, 'a');
    commit([shop]);
    commit([shop]);
    put(shop, 'b');
    commit([shop]);
    put(shop, '');
    commit([shop]);
    const shown = [...history.changes()].map((change) => [change.revision, change.names[0]?.change]);
    expect(shown).to.deep.equal([
      [1, 'ADDED'],
      [2, 'CHANGED'],
      [3, 'REMOVED'],
    ]);
  });

  it('tells what there was at each revision', () => {
    const { history, commit, put } = world(large);
    for (const text of ['a', 'b', 'c']) {
      put(shop, text);
      commit([shop]);
    }
    put(cart, 'x');
    commit([cart]);
    const at = (number: number, name: ResourceName): unknown =>
      releasedAt(history, number)
        .get(type)
        ?.get(name)
        ?.map(({ variant }) => variant.payload?.hash);
    expect(at(1, shop)).to.deep.equal(['a']);
    expect(at(2, shop)).to.deep.equal(['b']);
    expect(at(2, cart), 'it was not there').to.deep.equal([]);
    expect(at(3, shop), 'as it is now').to.equal(undefined);
  });

  it('first answers of one upstream share a revision, and later additions do not', () => {
    const { history, commit, put } = world(large);
    put(shop, 'a');
    commit([shop], [interest]);
    put(cart, 'a');
    commit([cart], [interest]);
    expect(history.lastRevision).to.equal(1);
    put(resourceName('new'), 'a');
    commit([resourceName('new')]);
    expect(history.lastRevision).to.equal(2);
    const before = backTo(history, 0, type, new Map());
    expect(before.get(cart), 'unknown is not absent').to.have.length(1);
    expect(before.get(resourceName('new'))).to.deep.equal([]);
    const compared = releasedAt(history, 0).get(type);
    expect(compared?.get(cart), 'new to somebody who compares').to.deep.equal([]);
  });

  it('what a type had before anything was said of it is unknown; after an empty answer it is nothing', () => {
    const unknown = world(large);
    unknown.put(shop, 'a');
    unknown.commit([shop]);
    expect(backTo(unknown.history, 0, type, new Map()).get(shop)).to.have.length(1);
    const empty = world(large);
    empty.commit([], [interest]);
    empty.put(shop, 'a');
    empty.commit([shop]);
    expect(backTo(empty.history, 0, type, new Map()).get(shop)).to.deep.equal([]);
  });

  it('what waits is not what was said first, though nothing of the type is left but what a rollback keeps away', () => {
    const { history, commit, put, released, said } = world(large);
    put(shop, 'a', 'said');
    commit([shop]);
    const back = () => backTo(history, 0, type, new Map()).get(shop);
    expect([verdictOf(history.last() ?? { names: [] }), back()]).to.deep.equal(['PENDING', []]);
    released.set(shop, said.get(shop) ?? NO_CONTENT);
    commit([shop]);
    expect([verdictOf(history.last() ?? { names: [] }), back()]).to.deep.equal(['RELEASED', []]);
  });

  for (const protocol of ['SotW', 'delta'])
    describe(`a rollback takes nothing from clients that have come since, over ${protocol}`, () => {
      const inEnv = (env: string): Parameters => internParameters([['env', env]]);
      const holderOf = (env: string): Holder => ({
        key: env,
        upstream: 'central',
        role: 'wildcard',
        exactParameters: inEnv(env),
      });
      /** Each class of clients has a session, which says all that its control plane has for it. */
      const sessions = () => {
        const clock = new VirtualClock();
        const history = new History(
          clock,
          () => large,
          () => {},
        );
        const recorder = new Recorder(history, clock, () => true);
        const store = new Store({
          clock: new VirtualClock(),
          ambiguous: () => {},
          expiring: () => {},
          publish: (commit) => recorder.committed(commit),
          recorded: true,
        });
        store.held.gatedTypes(new Set([type]));
        const apply = (part: Partial<Transaction> & Pick<Transaction, 'holder'>): void =>
          recorder.committed(store.apply(transaction({ type, ...part })));
        const asking = new Map<string, Interest>();
        const comes = (env: string): void => {
          const interest = { type, selector: WILDCARD, parameters: inEnv(env) };
          asking.set(env, interest);
          store.addInterest(interest);
        };
        const leaves = (env: string): void => {
          const interest = asking.get(env);
          const commit = interest && store.removeInterest(interest);
          if (commit !== undefined) recorder.committed(commit);
        };
        const says = (
          env: string,
          contents: Readonly<Record<string, string>>,
          constraints = when({ env }),
        ): void => {
          const puts = Object.entries(contents).map(([name, text]) =>
            put(type, name, `${env} ${text}`, { constraints }),
          );
          const interest = asking.get(env);
          const resolved = interest === undefined ? [] : [interest];
          const holder = holderOf(env);
          if (protocol === 'SotW') apply({ holder, puts, complete: true, resolved });
          else {
            const removals = [...store.heldBy(type, holder)].filter(({ name }) => !(name in contents));
            apply({ holder, puts, removals });
            apply({ holder, resolved });
          }
        };
        /** What everybody would have of each name after a rollback to a revision. */
        const back = (to: number): unknown =>
          Object.fromEntries(
            [...backTo(history, to, type, store.releasedContents(type))].map(([name, content]) => [
              name,
              content.map(({ variant }) => variant.version).toSorted(),
            ]),
          );
        return { store, comes, leaves, says, back, history };
      };
      const prodAndBatch = () => {
        const all = sessions();
        all.comes('prod');
        all.says('prod', { shop: '1' });
        all.says('prod', { shop: '2' });
        all.store.held.release();
        all.comes('batch');
        all.says('batch', { shop: '2', cart: '2' });
        expect(all.history.lastRevision, 'of prod two, and one of batch').to.equal(3);
        return all;
      };

      it('they keep what came first, and the others go back', () => {
        const { back, says, store } = prodAndBatch();
        const first = { shop: ['v-batch 2', 'v-prod 1'], cart: ['v-batch 2'] };
        expect(back(1)).to.deep.equal(first);
        expect(back(2)).to.deep.equal({ shop: ['v-batch 2', 'v-prod 2'], cart: ['v-batch 2'] });
        says('batch', { shop: '3' });
        store.held.release();
        expect(back(1)).to.deep.equal(first);
      });

      it('what is added for clients that were there goes, theirs too', () => {
        const { back, says, comes } = prodAndBatch();
        says('batch', { shop: '2', cart: '2', pay: '3' });
        expect(back(3)).to.deep.include({ cart: ['v-batch 2'], pay: [] });
        comes('idle');
        says('idle', {});
        says('idle', { shop: '4' });
        expect(back(4)).to.deep.include({ shop: ['v-batch 2', 'v-prod 2'], pay: ['v-batch 3'] });
      });

      it('what came for them in the place of what they had goes', () => {
        const { back, says, comes } = sessions();
        comes('prod');
        says('prod', { shop: '1' }, UNCONSTRAINED);
        comes('batch');
        says('batch', { shop: '2' });
        expect(back(1)).to.deep.equal({ shop: ['v-prod 1'] });
      });

      it('nor while a change waits for the others, and nobody gets what waits', () => {
        const { back, says, comes, store } = prodAndBatch();
        says('prod', { shop: '3' });
        comes('late');
        says('late', { shop: '3' });
        expect(back(2)).to.deep.include({ shop: ['v-batch 2', 'v-late 3', 'v-prod 2'] });
        store.held.discard();
        expect(back(1)).to.deep.include({ shop: ['v-batch 2', 'v-late 3', 'v-prod 1'] });
      });

      it('nor from those that come back', () => {
        const { back, says, comes, leaves } = prodAndBatch();
        leaves('batch');
        comes('batch');
        says('batch', { shop: '5' });
        expect(back(2)).to.deep.include({ shop: ['v-batch 2', 'v-prod 2'] });
        leaves('prod');
        comes('prod');
        says('prod', { shop: '6', pay: '6' });
        expect(back(4)).to.deep.include({ pay: ['v-prod 6'] });
      });
    });

  it('answers from other processes count for the change that brought the variant, or took it', () => {
    const { history, recorder, commit, said, released } = world(large);
    const says = (...variants: readonly string[]): void => {
      const now = variants.flatMap((one) => {
        const [env = ''] = one.split(' ');
        return content(one).map(({ variant, holders }) => {
          const constraints = stampConstraints(['env'], internParameters([['env', env]]));
          return { variant: { ...variant, constraints }, holders };
        });
      });
      said.set(shop, now);
      released.set(shop, now);
      commit([shop]);
    };
    const answer = (text: string, gone: boolean) =>
      recorder.reported({ type, name: shop, content: text, gone, accepted: 1, rejected: 0, tookMs: 1 });
    says('prod 1', 'test 1');
    says('prod 2', 'test 1');
    says('prod 2', 'test 2');
    says('test 2');
    says();
    for (const text of ['prod 2', 'test 2']) for (const gone of [false, true]) answer(text, gone);
    expect([...history.changes()].map(({ answers }) => answers?.accepted)).to.deep.equal([
      undefined,
      1,
      1,
      1,
      1,
    ]);
  });

  it('drops the oldest bodies past max_bytes and max_age, and says which revisions it reaches', () => {
    const limits = { maxBytes: 5000, maxAgeMs: 1000 };
    const { history, commit, put, clock } = world(limits);
    for (const text of ['a', 'b', 'c', 'd'].map((letter) => letter.repeat(1000))) {
      put(shop, text);
      commit([shop]);
    }
    expect(history.bytes).to.be.at.most(limits.maxBytes);
    const expired = reachable(history, 1);
    expect(expired.ok ? '' : expired.error.message).to.match(/revision 1 has expired/);
    expect(reachable(history, 3).ok).to.equal(true);
    clock.advance(2000);
    expect(reachable(history, 3).ok).to.equal(false);
    expect(reachable(history, 4).ok, 'nothing has changed since').to.equal(true);
    expect(reachable(history, 5).ok).to.equal(false);
    expect(history.bytes).to.equal(0);
  });

  it('reaches back to where clients had other parameters no more, and what comes then is kept', () => {
    const { history, commit, put } = world(large);
    for (const text of ['a', 'b']) {
      put(shop, text);
      commit([shop]);
    }
    history.strip();
    put(shop, 'c');
    commit([shop]);
    expect([1, 2].map((revision) => reachable(history, revision).ok)).to.deep.equal([false, true]);
  });

  for (const hours of [-48, 48])
    it(`the wall clock is set by ${hours} h: max_age goes by the time that has passed`, () => {
      const { history, commit, put, clock } = world({ maxBytes: 5000, maxAgeMs: 1000 });
      for (const text of ['a', 'b']) {
        put(shop, text);
        commit([shop]);
      }
      clock.step(hours * 3_600_000);
      clock.advance(900);
      expect(reachable(history, 1).ok).to.equal(true);
      clock.advance(200);
      expect(reachable(history, 1).ok).to.equal(false);
    });

  it('counts constraints too: a control plane may make them as large as a body', () => {
    const limits = { maxBytes: 20_000, maxAgeMs: 1000 };
    const { said, released, history, commit } = world(limits);
    for (const text of ['a', 'b', 'c', 'd']) {
      const long = content(text).map(({ variant, holders }) => {
        const constraints = { ...variant.constraints, bytes: new Uint8Array(2000) };
        return { variant: { ...variant, constraints }, holders };
      });
      said.set(shop, long);
      released.set(shop, long);
      commit([shop]);
      expect(history.bytes).to.be.within(8000, limits.maxBytes);
    }
    expect(reachable(history, 1).ok).to.equal(false);
  });

  it('keeps 100 changes without bodies where there are no limits', () => {
    const { history, commit, put } = world();
    for (let index = 0; index < 150; index++) {
      put(shop, String(index));
      commit([shop]);
    }
    const revisions = [...history.changes()].map((change) => change.revision);
    expect([revisions.length, revisions[0], revisions.at(-1)]).to.deep.equal([100, 51, 150]);
  });

  it('a change of nothing is dropped with those around it, and written once', () => {
    const clock = new VirtualClock();
    const written: number[] = [];
    const limits = () => ({ maxBytes: 5000, maxAgeMs: 1000 });
    const history = new History(clock, limits, ({ revision }) => written.push(revision));
    const counts = { added: 0, changed: 0, removed: 0 };
    const nothing = { at: 0, upstream: '', type, ...counts, names: [], first: false, reason: 'a rollback' };
    history.add({ ...nothing, releasedAt: 0 });
    clock.advance(2000);
    for (let look = 0; look < 3; look++) history.get(1);
    expect(written).to.deep.equal([1]);
    for (let more = 0; more < 150; more++) history.add({ ...nothing, releasedAt: 0 });
    expect([...history.changes()]).to.have.length(100);
  });

  it('a change waits for canaries, and is released, replaced or discarded', () => {
    const { history, commit, put, released, said, discarded } = world(large);
    const verdicts = (): unknown => [...history.changes()].map(({ names }) => names[0]?.verdict);
    put(shop, 'a');
    commit([shop]);
    put(shop, 'bad', 'said');
    commit([shop]);
    expect(verdicts()).to.deep.equal(['RELEASED', 'PENDING']);
    put(shop, 'good', 'said');
    commit([shop]);
    expect(verdicts()).to.deep.equal(['RELEASED', 'REPLACED', 'PENDING']);
    released.set(shop, said.get(shop) ?? NO_CONTENT);
    commit([shop]);
    expect(verdicts()).to.deep.equal(['RELEASED', 'REPLACED', 'RELEASED']);
    put(shop, 'worse', 'said');
    commit([shop]);
    discarded.add(shop);
    commit([shop], [], { verb: 'discard', reason: 'bad listener' });
    expect(verdicts()).to.deep.equal(['RELEASED', 'REPLACED', 'RELEASED', 'DISCARDED']);
    expect([...history.changes()].map(({ reason }) => reason)).to.deep.equal(['', '', '', 'bad listener']);
    expect(history.releasedRevision).to.equal(3);
    const before = backTo(history, 2, type, new Map()).get(shop)?.[0]?.variant.payload?.hash;
    expect(before, 'everybody had the first one until the third was released').to.equal('a');
  });

  it('a change of which a part was discarded is DISCARDED, though everybody has what was new in it', () => {
    const { history, commit, put, discarded } = world(large);
    put(shop, 'a');
    commit([shop]);
    put(shop, 'b', 'said');
    put(cart, 'new');
    commit([shop, cart]);
    const last = () => history.last() ?? expect.fail('nothing has changed');
    expect(verdictOf(last())).to.equal('PENDING');
    discarded.add(shop);
    commit([shop], [], { verb: 'discard', reason: 'bad' });
    expect([verdictOf(last()), last().releasedAt]).to.deep.equal(['DISCARDED', undefined]);
    expect(history.releasedRevision, 'a rollback to it gives what was new').to.equal(2);
    discarded.clear();
    put(shop, 'c');
    commit([shop]);
    expect([...history.changes()].map(verdictOf)).to.deep.equal(['RELEASED', 'DISCARDED', 'RELEASED']);
  });

  it('what is queued replaces what was queued before, and the change that is judged goes on', () => {
    /** 1: everybody has a; 2: canaries have b; 3 and 4: c and d are queued. */
    const queueing = () => {
      const one = world(large);
      const { commit, put, judged } = one;
      put(shop, 'a');
      commit([shop]);
      put(shop, 'b', 'said');
      commit([shop]);
      judged.set(shop, content('b'));
      for (const text of ['c', 'd']) {
        put(shop, text, 'said');
        commit([shop]);
      }
      const verdicts = () => [...one.history.changes()].map(verdictOf).join(' ');
      expect(verdicts()).to.equal('RELEASED PENDING REPLACED PENDING');
      return { ...one, verdicts };
    };
    const release = queueing();
    release.recorder.isAt([{ ...pending(shop), queued: true }], { wave: 2, waves: 3 });
    expect([...release.history.changes()].map(({ course }) => course?.wave)).to.deep.equal([
      ...[undefined, 2, undefined, undefined],
    ]);
    release.released.set(shop, content('b'));
    release.commit([shop]);
    expect(release.verdicts()).to.equal('RELEASED RELEASED REPLACED PENDING');
    release.judged.clear();
    release.commit([shop]);
    release.put(shop, 'd');
    release.commit([shop]);
    expect(release.verdicts()).to.equal('RELEASED RELEASED REPLACED RELEASED');
    const at = (revision: number) =>
      backTo(release.history, revision, type, new Map())
        .get(shop)
        ?.map(({ variant }) => variant.payload?.hash);
    expect([1, 2].map(at), 'for a rollback').to.deep.equal([['a'], ['b']]);

    const discard = queueing();
    discard.judged.set(shop, content('a'));
    discard.commit([shop], [], { verb: 'discard', reason: 'bad' });
    expect(discard.verdicts()).to.equal('RELEASED DISCARDED REPLACED PENDING');
    expect([...discard.history.changes()].map(({ reason }) => reason)).to.deep.equal(['', 'bad', '', '']);

    const opened = queueing();
    opened.judged.clear();
    opened.commit([shop]);
    expect(opened.verdicts()).to.equal('RELEASED REPLACED REPLACED PENDING');

    const back = queueing();
    back.put(shop, 'b', 'said');
    back.judged.clear();
    back.commit([shop]);
    expect(back.verdicts(), 'to what is judged').to.equal('RELEASED PENDING REPLACED REPLACED');

    const before = queueing();
    before.put(shop, 'a', 'said');
    before.commit([shop]);
    expect(before.verdicts(), 'to what everybody has').to.equal('RELEASED PENDING REPLACED REPLACED');
  });

  it('tells how far a change has come, why it was held, and why operators promoted it', () => {
    const { history, recorder, commit, put } = world(large);
    put(shop, 'a');
    commit([shop]);
    put(shop, 'b', 'said');
    commit([shop]);
    recorder.isAt([pending(cart)], { wave: 9, waves: 9 });
    expect(history.last()?.course).to.equal(undefined);
    recorder.isAt([pending(shop)], { wave: 1, waves: 3 });
    for (const reason of ['looks good', 'still']) recorder.decided([pending(shop)], reason);
    recorder.isAt([pending(shop)], { wave: 2, waves: 3 });
    recorder.isAt([pending(shop)], { cause: 'check' });
    const { course, reason } = history.last() ?? {};
    expect([course, reason]).to.deep.equal([{ wave: 2, waves: 3, cause: 'check' }, 'looks good; still']);
  });

  it('what is said of one of many names that wait costs nothing by the others', () => {
    const { history, recorder, commit, put } = world(large);
    const names = Array.from({ length: 500 }, (_, at) => resourceName(`c${at}`));
    for (const name of names) put(name, 'a', 'said');
    commit(names);
    let looks = 0;
    for (const one of history.last()?.names ?? []) {
      const { verdict } = one;
      const get = (): typeof verdict => {
        looks++;
        return verdict;
      };
      Object.defineProperty(one, 'verdict', { get });
    }
    for (const name of names) recorder.isAt([pending(name)], { wave: 2, waves: 2 });
    expect([looks, history.last()?.course]).to.deep.equal([0, undefined]);
    recorder.isAt(names.map(pending), { wave: 1, waves: 2 });
    expect(history.last()?.course).to.deep.equal({ wave: 1, waves: 2 });
  });

  it('tells how long the canaries and the others took, and what everybody has', () => {
    const { history, recorder, commit, put, released, said, clock } = world(large);
    const all = { accepted: 1, rejected: 0, areAll: true };
    const changes = history.changes.bind(history);
    const seen = (): unknown => [
      [history.releasedRevision, history.lastRevision],
      ...[...history.changes()].map(({ canariesMs, clientsMs }) => [canariesMs, clientsMs]),
    ];
    put(shop, 'a');
    commit([shop]);
    clock.advance(10);
    put(shop, 'b', 'said');
    commit([shop]);
    recorder.canariesSaid([pending(cart)], all);
    clock.advance(30);
    clock.step(-3_600_000); // somebody sets the wall clock
    // Only the changes that wait are looked at: there may be 40,000 others.
    history.changes = () => expect.fail('all changes are read');
    recorder.canariesSaid([pending(shop)], all);
    clock.advance(1000);
    const [again, waitingOf] = [pending(shop), history.waitingOf.bind(history)];
    recorder.canariesSaid([again], all);
    history.waitingOf = () => expect.fail('what is said again is no news');
    recorder.canariesSaid([again], all);
    history.waitingOf = waitingOf;
    history.changes = changes;
    expect(seen()).to.deep.equal([
      [1, 2],
      [undefined, undefined],
      [30, undefined],
    ]);
    const releasedAt = clock.monotonic();
    released.set(shop, said.get(shop) ?? NO_CONTENT);
    commit([shop]);
    for (const wait of [40, 60]) {
      clock.advance(wait);
      recorder.answered(releasedAt, true);
    }
    recorder.answered(releasedAt - 1, true);
    clock.advance(1000);
    expect(seen()).to.deep.equal([
      [2, 2],
      [undefined, undefined],
      [30, 100],
    ]);
  });

  it('a rollback is what everybody has, though something waited before', () => {
    const { history, commit, put, released } = world(large);
    const revisions = (): unknown => [history.releasedRevision, history.lastRevision];
    put(shop, 'a');
    commit([shop]);
    put(shop, 'b');
    commit([shop]);
    put(shop, 'c', 'said');
    commit([shop]);
    expect(revisions()).to.deep.equal([2, 3]);
    released.set(shop, content('a'));
    commit([shop], [], { verb: 'rollback', reason: 'rollback to revision 1' });
    expect(revisions()).to.deep.equal([4, 4]);
    put(shop, 'd', 'said');
    commit([shop]);
    expect(revisions()).to.deep.equal([4, 5]);
  });

  it('goes on with the last revision of before a restart', () => {
    const { history, commit, put } = world(large);
    history.restore({ changes: [], lastRevision: 41 });
    put(shop, 'a');
    commit([shop]);
    expect(history.lastRevision).to.equal(42);
  });
});

it('a later change costs nothing by the names of the oldest one', () => {
  const limits = { maxBytes: 2 ** 30, maxAgeMs: 3_600_000 };
  const history = new History(
    new VirtualClock(),
    () => limits,
    () => {},
  );
  const change = (count: number): Omit<Change, 'revision'> => ({
    at: 0,
    upstream: 'central',
    type,
    added: count,
    changed: 0,
    removed: 0,
    names: Array.from({ length: count }, (_, at) => ({
      name: resourceName(`c${at}`),
      change: 'ADDED',
      bytes: 1,
      verdict: 'RELEASED',
      content: { before: NO_CONTENT, after: NO_CONTENT },
    })),
    first: false,
    releasedAt: undefined,
    reason: '',
  });
  const { names } = history.add(change(1000));
  let looks = 0;
  for (const one of names) {
    const { content } = one;
    const get = (): typeof content => {
      looks++;
      return content;
    };
    Object.defineProperty(one, 'content', { get });
  }
  history.add(change(1));
  const once = looks;
  for (let each = 0; each < 100; each++) history.add(change(1));
  expect(looks).to.equal(once);
});
