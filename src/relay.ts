import { type CatalogReader, cohortStores, type Restored, type Store } from './cache/store.ts';
import type { StoreOptions } from './cache/type-table.ts';
import { Polls } from './downstream/polls/polls.ts';
import type { DownstreamServices, ListedClient } from './downstream/services.ts';
import { Taps } from './downstream/taps.ts';
import { type StreamListener, XdsServer } from './downstream/xds-server.ts';
import type { Cohort } from './model/access.ts';
import type { ResourceName, TypeUrl } from './model/brand.ts';
import { type Commit, isVariant } from './model/catalog.ts';
import { type Timer, within } from './model/clock.ts';
import { getOrMake } from './model/maps.ts';
import type { VariantKey } from './model/resource.ts';
import type { Gate, HeldVariant } from './model/rollout.ts';
import { isCollection } from './model/selection.ts';
import type { Holder, Interest, Put, Restamp, Transaction } from './model/transaction.ts';
import { isKnownType, type TypeInfo } from './model/types.ts';
import type { Upstream, UpstreamSink } from './model/upstream.ts';
import { unclaimed } from './upstream/claims.ts';
import type { EndReason } from './views/interest-registry.ts';
import type { ViewsOptions } from './views/view-pool.ts';
import { Views } from './views/views.ts';
import type { ServerStream } from './wire/server-stream.ts';

export interface RelayOptions
  extends Omit<ViewsOptions, 'catalogs' | 'interests' | 'lookedUp' | 'answered'>,
    Pick<StoreOptions, 'journal' | 'recorded' | 'leavesBehind'> {
  readonly downstream: Omit<
    DownstreamServices,
    'clock' | 'taps' | 'open' | 'prepare' | 'isUnavailable' | 'refusal'
  >;
  /** How long a Fetch call waits for what is unknown, in milliseconds; left out: not at all. */
  readonly fetchMilliseconds?: () => number;
  readonly streams: StreamListener;
  /** For metrics and logs. */
  readonly events: Pick<StoreOptions, 'ambiguous'> &
    Pick<ViewsOptions, 'lookedUp' | 'answered'> & {
      /** So many variants left the cache: for room, as nobody wanted them for long, as their time to live was over. */
      evicted(reason: 'size' | 'idle' | 'ttl', count: number): void;
      upstreamChanged(): void;
      /** Somebody wants this now, and nobody did. */
      subscribed?(interest: Interest): void;
    };
  /** Before the numbers that are the ids of streams, where several processes serve. */
  readonly streamPrefix?: string | undefined;
  /** See DownstreamServices; left out: by this relay's own upstreams. */
  readonly isUnavailable?: DownstreamServices['isUnavailable'] | undefined;
  readonly refusal?: DownstreamServices['refusal'] | undefined;
  /** Left out: by this relay's own cache. */
  readonly isServed?: ((type: TypeUrl) => boolean) | undefined;
  /** Called for every change of what is in the cache, after clients were told. */
  readonly published?: ((commit: Commit) => void) | undefined;
  /** What canaries see comes from an upstream of its own, to `canarySink` (docs/adr/0130). */
  readonly upstreamPerCohort?: boolean | undefined;
}

/** So many interests end in one turn for room: some 70 µs each. */
const endsPerTurn = 1000;
/** So many variants end in one turn as their time to live is over: some 20 µs each. */
const expiriesPerTurn = 2000;

/** So long files have to be read before other upstreams are asked: the file system may not answer. */
const filesMs = 2000;

/**
 * The data path. Responses flow right: an upstream applies a transaction to the store, the views that can see it take
 * it in, and wake the streams of their subscribers. Interest flows left: a stream selects, its view acquires interest,
 * and the upstream that claims it subscribes.
 */
export class Relay implements UpstreamSink {
  /** Where each cohort has an upstream: what canaries see is delivered here. */
  readonly canarySink: UpstreamSink = {
    apply: (transaction) => this.#apply(transaction, this.#stores.canary),
    restamp: (restamp) => this.#publish(this.#stores.canary.restamp(restamp)),
    changed: () => this.changed(),
    endIfIdle: (interest) => this.endIfIdle(interest),
  };
  /** The same for both cohorts, if they share one. */
  readonly #stores: Readonly<Record<Cohort, Store>>;
  readonly #eachStore: ReadonlySet<Store>;
  readonly views: Views;
  readonly server: XdsServer;
  readonly polls: Polls;
  readonly taps: Taps;
  readonly #options: RelayOptions;
  /** By deadline: what came together has one timer, and ends together. */
  readonly #expiries = new Map<
    number,
    { readonly timer: Timer; readonly variants: Map<string, VariantKey> }
  >();
  /** Where each variant is among them. */
  readonly #deadlines = new Map<string, number>();
  /** Whose timers have run out. */
  readonly #due: VariantKey[] = [];
  #upstreams: readonly Upstream[] = [];
  #hasStopped = false;
  /** Room is made, or an interest ends, after which it is: what either leads to makes none by itself. */
  #isMakingRoom = false;
  /** Since it was last looked for: an interest has ended, or names of an earlier time are shown. */
  #mayHoldUnwanted = false;
  /** What makes room goes on in a later turn. */
  #isRoomDue = false;

  constructor(options: RelayOptions) {
    const { clock, events } = options;
    this.#options = options;
    this.#stores = cohortStores(
      {
        ...options,
        ambiguous: events.ambiguous,
        expiring: (deadline, variant) => this.#expireAt(deadline, variant),
        publish: (commit) => this.#show(commit),
        publishedAs: (type, name) => this.#upstreamOf(type, name)?.publishesAs,
      },
      options.upstreamPerCohort === true,
    );
    this.#eachStore = new Set(Object.values(this.#stores));
    this.views = new Views({
      ...options,
      lookedUp: events.lookedUp,
      answered: events.answered,
      catalogs: { released: this.catalogOf('released'), canary: this.catalogOf('canary') },
      interests: {
        subscribe: (interest) => this.#subscribe(interest),
        resubscribe: (interest) => this.#each(interest, (upstream) => upstream.resubscribe?.(interest)),
        unsubscribe: (interest, why) => this.#unsubscribe(interest, why),
        markIdle: (interest) => this.#each(interest, (upstream) => upstream.markIdle?.(interest)),
        contentOf: (interest) => this.#contentOf(interest),
        markActive: (interest) => this.#each(interest, (upstream) => upstream.markActive?.(interest)),
      },
    });
    this.taps = new Taps(clock);
    const services: DownstreamServices = {
      ...options.downstream,
      clock,
      taps: this.taps,
      open: this.views.open,
      prepare: (...of) => this.views.prepare(...of),
      isUnavailable:
        options.isUnavailable ??
        ((interest) => {
          const upstream = this.#upstreamOf(interest.type, interest.selector);
          return upstream?.isUnavailable?.(interest) ?? upstream?.state().down === true;
        }),
      refusal:
        options.refusal ??
        ((interest) => this.#upstreamOf(interest.type, interest.selector)?.refusal?.(interest)),
    };
    const { streamPrefix = '' } = options;
    this.server = new XdsServer(services, options.streams, streamPrefix);
    this.polls = new Polls(services, streamPrefix);
  }

  /** The cache; where each cohort has an upstream, what is released. */
  get store(): Store {
    return this.#stores.released;
  }

  /** What the clients of a cohort see. */
  catalogOf(cohort: Cohort): CatalogReader {
    return this.#stores[cohort].cohorts[cohort];
  }

  /** What a cohort has under a name. */
  variantsOf(type: TypeUrl, name: ResourceName, cohort: Cohort): readonly HeldVariant[] {
    return this.#stores[cohort].held.contentOf(type, name, cohort);
  }

  /** What holds changes back from the clients that are no canaries. */
  get gate(): Gate {
    return this.store.held;
  }

  /** What control planes know this relay by. */
  get nodeId(): string {
    return this.#options.controlPlane;
  }

  get upstreams(): readonly Upstream[] {
    return this.#upstreams;
  }

  /**
   * Before the first stream. In order: the first that claims a name serves it. What was `restored` is subscribed again,
   * and ends like anything else that nobody wants.
   */
  start(upstreams: readonly Upstream[], restored?: Restored): void {
    this.#upstreams = upstreams;
    if (restored !== undefined) {
      this.store.restore(restored);
      for (const { interest } of restored.interests) {
        this.views.interests.acquire(interest);
        this.views.interests.release(interest);
      }
      this.makeRoom();
    }
    const { files = [], others = [] } = Object.groupBy(upstreams, ({ publishesAs }) =>
      publishesAs === undefined ? 'others' : 'files',
    );
    const begin = (): void => {
      for (const upstream of others)
        if (!this.#hasStopped && this.#upstreams.includes(upstream)) upstream.start();
    };
    for (const one of files) one.start();
    const looks = files.flatMap(({ looking }) => looking ?? []);
    // What files have is in the wildcards of others too, from their first answer on.
    if (looks.length === 0) begin();
    else void within(this.#options.clock, filesMs, Promise.all(looks)).then(begin);
  }

  /**
   * Others from now on. What came from one that is gone stays until whoever serves it now has answered. What is absent as
   * another one has said, or as nobody served it, is unknown until then.
   */
  replace(upstreams: readonly Upstream[]): void {
    const before = this.#upstreams;
    this.#upstreams = upstreams;
    for (const upstream of before) {
      if (upstreams.includes(upstream)) continue;
      void upstream.stop();
      this.store.markRestored(upstream.name, (...of) => this.servedBy(...of));
    }
    const registry = this.views.interests;
    const moved = [...registry.all()]
      .map((interest) => ({
        interest,
        was: this.#upstreamOf(interest.type, interest.selector, before),
        now: this.#upstreamOf(interest.type, interest.selector),
      }))
      .filter(({ was, now }) => was !== now);
    const toOthers = moved.filter(({ was, now }) => now !== undefined && now.name !== was?.name);
    this.#forgetAbsent(toOthers.map(({ interest }) => interest));
    for (const { interest, now } of moved) {
      if (now === undefined) this.apply(unclaimed(interest));
      else now.subscribe(interest);
      if (registry.isIdle(interest)) now?.markIdle?.(interest);
    }
    for (const upstream of upstreams) if (!before.includes(upstream)) upstream.start();
    this.changed();
  }

  /** The relay above has other upstreams for these: what it did not have is asked once more, if somebody wants it. */
  askAgain(moved: (interest: Interest) => boolean): void {
    const registry = this.views.interests;
    const absent = this.#forgetAbsent([...registry.all()].filter(moved));
    const { idle = [], wanted = [] } = Object.groupBy(absent, (one) =>
      registry.isIdle(one) ? 'idle' : 'wanted',
    );
    for (const interest of idle) registry.endIfIdle(interest);
    for (const interest of wanted) this.#each(interest, (upstream) => upstream.unsubscribe(interest));
    for (const interest of wanted) this.#each(interest, (upstream) => upstream.subscribe(interest));
  }

  apply(transaction: Transaction): void {
    this.#apply(this.#withoutOthers(transaction), this.store);
  }

  restamp(restamp: Restamp): void {
    this.#publish(this.store.restamp(restamp));
  }

  changed(): void {
    this.server.failUnavailableStreams();
    this.polls.failHopeless();
    this.#options.events.upstreamChanged();
  }

  /** For inspection: those with streams, and those that poll. */
  *clients(): Iterable<ListedClient> {
    yield* this.server.values();
    yield* this.polls.clients.all();
  }

  /** By its id, as `clients` gives it. */
  client(id: string): ListedClient | undefined {
    return this.server.get(id) ?? this.polls.clients.find(id);
  }

  /** Takes a call of a path in `fetchRoutes`. */
  fetch(stream: ServerStream, info: TypeInfo): void {
    this.polls.fetch(stream, info, this.#options.fetchMilliseconds?.() ?? 0);
  }

  endIfIdle(interest: Interest): void {
    this.views.interests.endIfIdle(interest);
  }

  isRestored(interest: Interest): boolean {
    return this.store.isRestored(interest);
  }

  restoredOf(holder: Holder): Iterable<TypeUrl> {
    return this.store.restoredOf(holder);
  }

  /** The cache has an answer to it, of whatever age. */
  isAnswered(interest: Interest): boolean {
    const { type, selector, parameters } = interest;
    return this.store.isResolved(interest) || isVariant(this.store.peek(type, selector, parameters));
  }

  /** Subscribes to this for clients that may come. It ends like anything that is there and nobody wants. */
  prefetch(interest: Interest): void {
    this.views.interests.prefetch(interest);
  }

  /** The name of the upstream that serves a name, a glob or the wildcard. */
  servedBy(type: TypeUrl, selector: string): string | undefined {
    return this.#upstreamOf(type, selector)?.name;
  }

  /** There is a resource of the type, for whomever: so a wildcard that shows nothing lacks something. */
  isServed(type: TypeUrl): boolean {
    return this.#options.isServed?.(type) ?? this.store.variants(type) > 0;
  }

  async stop(): Promise<void> {
    this.views.interests.stop();
    this.taps.end();
    this.#hasStopped = true;
    await Promise.all(this.#upstreams.map((upstream) => upstream.stop()));
  }

  /** Of a type of the xDS protocol nothing has the empty name; of others a singleton has (protocol §5b.8). */
  #upstreamOf(type: TypeUrl, selector: string, among = this.#upstreams): Upstream | undefined {
    if (selector === '' && isKnownType(type)) return undefined;
    return among.find((upstream) => upstream.claims(type, selector));
  }

  /**
   * What an upstream says of names that another one serves counts for nothing (protocol §6.6): files publish all that they
   * have, and a wildcard brings every name.
   */
  #withoutOthers(said: Transaction): Transaction {
    if (this.#upstreams.length < 2 || this.#options.upstreamPerCohort === true) return said;
    const { type, holder } = said;
    const isOwn = (name: string): boolean => {
      const upstream = this.#upstreamOf(type, name);
      return upstream === undefined || upstream.name === holder.upstream;
    };
    const own = <T extends { readonly name: ResourceName }>(all: readonly T[]): readonly T[] =>
      all.filter(({ name }) => isOwn(name));
    const withOwnAliases = (put: Put): Put =>
      put.aliases.every(isOwn) ? put : { ...put, aliases: put.aliases.filter(isOwn) };
    return {
      ...said,
      puts: own(said.puts).map(withOwnAliases),
      removals: own(said.removals),
      heartbeats: own(said.heartbeats),
      resourceErrors: own(said.resourceErrors),
    };
  }

  /** Another one answers these from now on: of what is not cached nothing is known until then. Returns that. */
  #forgetAbsent(interests: readonly Interest[]): readonly Interest[] {
    const absent = interests.filter((one) => !this.#eachStore.values().some((store) => store.holds(one)));
    for (const [type, unresolved] of Map.groupBy(absent, (interest) => interest.type))
      for (const store of this.#eachStore) this.#publish(store.restamp({ type, moves: [], unresolved }));
    return absent;
  }

  /** The upstream that serves this; where each cohort has one, both have every interest. False: nobody serves it. */
  #each({ type, selector }: Interest, act: (upstream: Upstream) => void): boolean {
    const first = this.#upstreamOf(type, selector);
    if (first === undefined) return false;
    for (const upstream of this.#options.upstreamPerCohort === true ? this.#upstreams : [first])
      act(upstream);
    return true;
  }

  /** What would end with an interest. Bodies that both stores have are the same: they are counted for what is released. */
  #contentOf(interest: Interest): ReturnType<Store['contentOf']> {
    const { released, canary } = this.#stores;
    const content = released.contentOf(interest);
    return content.hasContent || canary === released ? content : canary.contentOf(interest);
  }

  /** `store`: of the cohort whose upstream says it, where each has one. */
  #apply(transaction: Transaction, store: Store): void {
    const { traces, clock } = this.#options;
    const judgedAt = traces === undefined ? 0 : clock.monotonic();
    const commit = store.apply(transaction);
    traces?.applied(transaction, commit, judgedAt);
    this.#publish(commit);
    traces?.published(commit);
    this.#askForLapsed(transaction, store);
    this.makeRoom();
  }

  /** Upstream prolongs what has expired here: it would not send the body before the content changes. */
  #askForLapsed({ type, heartbeats }: Transaction, store: Store): void {
    for (const { name, constraints } of heartbeats) {
      if (store.has({ type, name, constraints })) continue;
      for (const interest of this.store.naming(type, name, constraints))
        this.#each(interest, (upstream) => upstream.resubscribe?.(interest));
    }
  }

  #subscribe(interest: Interest): void {
    for (const store of this.#eachStore) store.addInterest(interest);
    this.makeRoom();
    this.#options.events.subscribed?.(interest);
    if (this.#each(interest, (upstream) => upstream.subscribe(interest))) return;
    for (const store of this.#eachStore) this.#apply(unclaimed(interest), store);
  }

  #unsubscribe(interest: Interest, why: EndReason): void {
    const before = this.store.variants(interest.type);
    const isOutermost = !this.#isMakingRoom;
    this.#isMakingRoom = true;
    this.#mayHoldUnwanted = true;
    try {
      // First: that nobody subscribes to it is nothing that upstream has said of it.
      const commits = [...this.#eachStore].flatMap((store) => store.removeInterest(interest) ?? []);
      this.#each(interest, (upstream) => upstream.unsubscribe(interest));
      const left = before - this.store.variants(interest.type);
      if (left > 0 && why !== 'uncached') this.#options.events.evicted(why, left);
      for (const commit of commits) this.#publish(commit);
    } finally {
      if (isOutermost) this.#isMakingRoom = false;
    }
    this.makeRoom();
  }

  /** Protocol §8, TTL: the relay runs the upstream's timers. A variant has one, which must not keep an old body. */
  #expireAt(deadline: number, { type, name, constraints }: VariantKey): void {
    const key = JSON.stringify([type, name, constraints.key]);
    const known = this.#deadlines.get(key) ?? Number.POSITIVE_INFINITY;
    if (known <= deadline) return;
    const before = this.#expiries.get(known);
    if (before?.variants.delete(key) === true && before.variants.size === 0) {
      before.timer.cancel();
      this.#expiries.delete(known);
    }
    this.#deadlines.set(key, deadline);
    const { variants } = getOrMake(this.#expiries, deadline, () => this.#timerAt(deadline));
    variants.set(key, { type, name, constraints });
  }

  #timerAt(deadline: number) {
    const { clock, defer } = this.#options;
    const variants = new Map<string, VariantKey>();
    const timer = clock.after(deadline - clock.monotonic(), () => {
      this.#expiries.delete(deadline);
      const isFirst = this.#due.length === 0;
      for (const [key, variant] of variants) {
        this.#deadlines.delete(key);
        this.#due.push(variant);
      }
      if (isFirst) defer(this.#expireDue);
    });
    return { timer, variants };
  }

  /** In one commit of a type. Of many the rest ends in later turns. */
  readonly #expireDue = (): void => {
    const variants = this.#due.splice(0, expiriesPerTurn);
    if (this.#due.length > 0) this.#options.defer(this.#expireDue);
    for (const store of this.#eachStore)
      for (const { commit, count } of store.expire(variants)) {
        this.#options.events.evicted('ttl', count);
        this.#publish(commit);
      }
    for (const variant of variants) {
      // It was prolonged. Or the timer was early by a rounding, or as none is longer than 24 days.
      const next = Math.min(...this.#eachStore.values().map((store) => store.deadline(variant)));
      if (next < Number.POSITIVE_INFINITY) this.#expireAt(next, variant);
    }
  };

  /** Who records it hears of it before anybody judges it. */
  #publish(commit: Commit): void {
    this.#show(commit);
    this.store.held.notify();
  }

  #show(commit: Commit): void {
    if (commit.operation !== undefined) this.#mayHoldUnwanted = true;
    this.views.publish(commit);
    this.#options.published?.(commit);
  }

  /**
   * What nobody subscribes to ends, the least recently used first, as long as the cache has more than it may. Of many the
   * rest ends in later turns. So does what is held of names that nobody subscribes to: all that is held is looked at, once
   * in a turn, however many interests end or begin in it.
   */
  makeRoom(): void {
    this.#endIdle(() => this.#makeRoomLater());
  }

  #makeRoomLater(): void {
    if (this.#isRoomDue) return;
    this.#isRoomDue = true;
    this.#options.defer(() => {
      this.#isRoomDue = false;
      this.#endIdle((isEnough) => {
        this.store.held.dropUnwanted(isEnough);
        this.#mayHoldUnwanted = isEnough();
      });
    });
  }

  /** `noneLeft`: called where that was not enough, and something may be held that nobody subscribes to. */
  #endIdle(noneLeft: (isEnough: () => boolean) => void): void {
    if (this.#isMakingRoom) return;
    this.#isMakingRoom = true;
    try {
      const isEnough = (): boolean => this.store.bytes <= this.#options.maxCacheBytes();
      for (let left = endsPerTurn; !isEnough(); left--) {
        const ended = left > 0 ? this.views.interests.evict() : undefined;
        if (ended === undefined) {
          if (left === 0) this.#makeRoomLater();
          else if (this.#mayHoldUnwanted) noneLeft(isEnough);
          return;
        }
        // All names are looked through for the end of a wildcard or glob.
        if (isCollection(ended.selector)) left = 1;
      }
    } finally {
      this.#isMakingRoom = false;
    }
  }
}
