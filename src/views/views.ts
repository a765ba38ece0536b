import type { Access, Cohort } from '../model/access.ts';
import type { TypeUrl } from '../model/brand.ts';
import { type Commit, isEmpty } from '../model/catalog.ts';
import { getOrMake } from '../model/maps.ts';
import type { Selection } from '../model/selection.ts';
import type { OpenSubscription } from '../model/subscription.ts';
import type { InTurns } from '../model/time-slices.ts';
import { Cursor } from './cursor.ts';
import { InterestRegistry } from './interest-registry.ts';
import { KeptForOthers } from './shared-responses.ts';
import type { View, ViewSubscriber } from './view.ts';
import { type Affected, ViewPool, type ViewsOptions } from './view-pool.ts';

/** All views: who subscribes to what, and who must hear of a commit. */
export class Views {
  readonly #options: ViewsOptions;
  readonly interests: InterestRegistry;
  readonly #pools = new Map<TypeUrl, ViewPool>();
  readonly #fanOut: FanOut;
  readonly #kept: KeptForOthers;

  constructor(options: ViewsOptions) {
    this.#options = options;
    this.#kept = new KeptForOthers(() => options.maxCacheBytes() / 4);
    this.interests = new InterestRegistry(options);
    this.#fanOut = new FanOut(options.defer);
  }

  /** Subscribes a client to a selection. */
  readonly open: OpenSubscription = (type, ...of) => new Cursor(this.#pool(type), ...of);

  /** Makes what a large selection sees in turns, before a client is subscribed to it. What is returned gives it up. */
  prepare(type: TypeUrl, selection: Selection, access: Access): InTurns<() => void> {
    return this.#pool(type).prepare(selection, access);
  }

  /** Shows a transaction to the views that can see it: each sees all of it at once. */
  publish(commit: Commit): void {
    if (commit.cohorts === undefined) this.#publish(commit);
    else for (const cohort of ['released', 'canary'] as const) this.#publish(commit.cohorts[cohort], cohort);
  }

  /** `cohort`: only to the views of this cohort. */
  #publish(commit: Commit, cohort?: Cohort): void {
    if (isEmpty(commit)) return;
    const pool = this.#pools.get(commit.type);
    if (pool === undefined) return;
    const { traces } = this.#options;
    const isTraced = traces?.isOpen(commit) === true;
    for (const [view, { names, collectionResolved }] of basesFirst(pool.watchers.affected(commit))) {
      if (cohort !== undefined && view.access.cohort !== cohort) continue;
      if (!view.apply(commit, names, collectionResolved)) continue;
      if (view.subscribers.size === 0) continue;
      for (const subscriber of view.subscribers) subscriber.invalidated();
      this.#fanOut.add(view);
      if (isTraced) traces?.reaches(commit, updatable(view));
    }
  }

  /** The views that clients have. */
  *all(): Iterable<View> {
    for (const pool of this.#pools.values()) {
      for (const view of pool.views()) if (view.hasClients) yield view;
    }
  }

  #pool(type: TypeUrl): ViewPool {
    const unused = (): boolean => this.#pools.delete(type);
    const make = (): ViewPool => new ViewPool(type, this.#options, this.interests, this.#kept, unused);
    return getOrMake(this.#pools, type, make);
  }
}

/** What a base has taken in is what the views over it show. */
function* basesFirst(affected: ReadonlyMap<View, Affected>): Iterable<readonly [View, Affected]> {
  for (const entry of affected) if (entry[0].base === undefined) yield entry;
  for (const entry of affected) if (entry[0].base !== undefined) yield entry;
}

/** How many of its subscribers get a change as an update: a newcomer gets a first state, and polls are not told. */
const updatable = (view: View): number =>
  view.subscribers
    .values()
    .filter((one) => one.polls === undefined && one.positionIn(view) !== undefined)
    .reduce((count) => count + 1, 0);

/** A slice of work must not hold up ACKs, health checks and new streams for longer, in milliseconds. */
const sliceMs = 5;
/** Looking at the clock costs something too. */
const wakesPerClockRead = 16;

/** Wakes the subscribers of changed views, a slice at a time: other events get their turn in between. */
export class FanOut {
  readonly #defer: (run: () => void) => void;
  /** Changed views that wait, and the subscribers of the one whose turn it is, and of those. */
  readonly #waiting = new Set<View>();
  #subscribers: Iterator<ViewSubscriber> | undefined;
  #scheduled = false;

  constructor(defer: (run: () => void) => void) {
    this.#defer = defer;
  }

  add(view: View): void {
    this.#waiting.add(view);
    this.#schedule();
  }

  #schedule(): void {
    if (this.#scheduled) return;
    this.#scheduled = true;
    this.#defer(() => {
      this.#scheduled = false;
      this.#run();
    });
  }

  #run(): void {
    const end = performance.now() + sliceMs;
    try {
      for (let count = 1; ; count++) {
        this.#subscribers ??= this.#all();
        const next = this.#subscribers.next();
        if (next.done === true) {
          this.#subscribers = undefined;
          return;
        }
        next.value.wake();
        if (count % wakesPerClockRead === 0 && performance.now() > end) break;
      }
    } finally {
      // Whatever one of them did: the others must hear of the change.
      if (this.#subscribers !== undefined) this.#schedule();
    }
  }

  /** Those of views that are added meanwhile, too. */
  *#all(): Generator<ViewSubscriber, undefined> {
    for (const view of this.#waiting) {
      this.#waiting.delete(view);
      yield* view.subscribers;
    }
  }
}
