import type { ResourceName, TypeUrl } from '../model/brand.ts';
import type { Answers } from '../model/change.ts';
import { includes, type Scope, scopeText } from '../model/holds.ts';
import { areSame, isEqual } from '../model/maps.ts';
import { fail, ok, type Result } from '../model/result.ts';
import type { Gate, PendingName } from '../model/rollout.ts';
import type { Member, Moved } from './canaries.ts';
import type { Verdict } from './judge.ts';

/** The names that wait and that canaries see, by type. */
export type Waiting = ReadonlyMap<TypeUrl, ReadonlySet<ResourceName>>;

/** What the stream of a canary says to what waits. */
export type Standing =
  | { readonly kind: 'accepted' }
  | { readonly kind: 'waiting' }
  | {
      readonly kind: 'rejected';
      /** Which resource, and the client's words. */
      readonly reason: string;
      /** Of what waits, by `nameKey`: any of these may be at fault. */
      readonly names: ReadonlySet<string>;
      /** It has been sent all that waits. If not, it may reject what upstream has mended since. */
      readonly isFinal: boolean;
    };

/** The stream of a canary that subscribes to something that waits. */
export interface CanaryStream {
  /** Its id. */
  readonly stream: string;
  /** Its node, with the identity that its certificate vouches for. */
  readonly node: string;
  readonly classKey: string;
  readonly standing: Standing;
  /** What it subscribes to of it, by `nameKey`: streams with equal subscriptions share the sets. */
  readonly names: readonly ReadonlySet<string>[];
}

/** To all of these names. */
export const subscribesTo = (stream: CanaryStream, names: ReadonlySet<string>): boolean =>
  names.values().every((name) => stream.names.some((subscribed) => subscribed.has(name)));

/** Who has rejected something, and unsubscribed it, says nothing to the other changes of its class. */
export const isAbout = ({ standing }: CanaryStream, names: ReadonlySet<string>): boolean =>
  standing.kind !== 'rejected' || !standing.names.isDisjointFrom(names);

/** How many of them have answered, and what. */
export function answersOf(canaries: readonly CanaryStream[]): Answers {
  const count = (kind: Standing['kind']): number =>
    canaries.filter(({ standing }) => standing.kind === kind).length;
  return { accepted: count('accepted'), rejected: count('rejected') };
}

/** The first that they say. `orBefore`: it may be the change before that one rejects. */
export function rejectionBy(
  canaries: readonly CanaryStream[],
  orBefore: boolean,
): Pick<Verdict, 'cause' | 'reason'> | undefined {
  for (const { standing } of canaries)
    if (standing.kind === 'rejected' && (standing.isFinal || orBefore))
      return { cause: 'rejected', reason: standing.reason };
  return undefined;
}

/** `complete`: all of the clients have been asked. `members`: the nodes that subscribe to something of it. */
export type Survey = ReturnType<Fleet['survey']>;

/** There may be canaries, of which nothing is known yet. */
export const unknownCanary: CanaryStream = {
  stream: '',
  node: '',
  classKey: '',
  standing: { kind: 'waiting' },
  names: [],
};

/** Who rejected something is still there, and may say something else to what waits now. */
export function outdated(stream: CanaryStream): CanaryStream {
  const { standing } = stream;
  return {
    ...stream,
    standing: standing.kind === 'rejected' ? { ...standing, isFinal: false } : { kind: 'waiting' },
  };
}

/** The clients, as a rollout sees them. */
export interface Fleet {
  survey(waiting: Waiting): Readonly<{
    complete: boolean;
    members: readonly Member[];
    canaries: readonly CanaryStream[];
  }>;
  /** Something else waits now: what was remembered of subscriptions does not hold any more. */
  waitingChanged(): void;
  /** Other nodes are canaries now: these clients may be in another cohort. */
  moved(isMoved: (client: Moved) => boolean): void;
  /** Some clients have yet to take their cohort. */
  readonly isMoving: boolean;
}

/** Of those that canaries see, the ones that an operator means. The error: there are none, and why. */
export function matching(all: readonly PendingName[], scope: Scope): Result<readonly PendingName[]> {
  const meant = all.filter((one) => includes(scope, one));
  const names = meant.filter(({ masked }) => masked === undefined);
  if (names.length > 0) return ok(names);
  const isSeen = all.some(({ masked }) => masked === undefined);
  const what = isSeen ? `nothing of ${scopeText(scope)} waits` : 'nothing waits';
  return fail(`${what}: ${whyNothing(meant)}`);
}

function whyNothing(masked: readonly PendingName[]): string {
  const reasons = new Set(masked.map((one) => one.masked));
  if (reasons.has('frozen') || reasons.has('rolledBack'))
    return 'what upstream says is frozen: unfreeze it first';
  if (reasons.has('queued')) return 'what upstream says waits until the change before it has ended';
  if (reasons.has('discarded')) return 'what upstream says was discarded, until it says something else';
  return 'it was released or discarded before, or upstream has taken it back';
}

/** Names that wait, as lists of all kinds: made once for each change. */
export type WaitingNames = Readonly<ReturnType<typeof waitingNames>>;

/** `keys`: by `nameKey`. */
export function waitingNames(names: readonly PendingName[]) {
  const types = Map.groupBy(names, ({ type }) => type).entries();
  const byType: Waiting = new Map(types.map(([type, own]) => [type, new Set(own.map(({ name }) => name))]));
  return { names, keys: keysOf(names), byType };
}

/** What waits for a verdict: canaries see it, and it is not frozen. */
export class Judged {
  readonly #gate: Pick<Gate, 'pending' | 'holds'>;
  /** What it was found in. */
  #of: readonly unknown[] = [];
  #names: WaitingNames = waitingNames([]);
  #frozen: ReadonlySet<string> = new Set();

  constructor(gate: Pick<Gate, 'pending' | 'holds'>) {
    this.#gate = gate;
  }

  /** The same value until something of it changes. */
  get waiting(): WaitingNames {
    this.#read();
    return this.#names;
  }

  /** What is frozen while canaries have something else than the others, by `nameKey`. The same value until it changes. */
  get frozen(): ReadonlySet<string> {
    this.#read();
    return this.#frozen;
  }

  #read(): void {
    const { pending, holds } = this.#gate;
    const of = [pending, holds.freezes];
    if (areSame(this.#of, of)) return;
    this.#of = of;
    const names = this.seen.filter((one) => !this.isFrozen(one));
    if (!areSame(this.#names.names, names)) this.#names = waitingNames(names);
    const frozen = keysOf(pending.filter((one) => one.seen && this.isFrozen(one)));
    if (!isEqual(frozen, this.#frozen)) this.#frozen = frozen;
  }

  /** What canaries see, be it frozen or not. */
  get seen(): readonly PendingName[] {
    return this.#gate.pending.filter(({ masked }) => masked === undefined);
  }

  /** What nobody has, as a change before it is still judged, or something needs what is removed. */
  get queued(): readonly PendingName[] {
    return this.#gate.pending.filter(({ masked }) => masked === 'queued');
  }

  isFrozen({ type, upstream }: PendingName): boolean {
    return this.#gate.holds.isFrozen(type, upstream);
  }
}

export const keysOf = (names: readonly PendingName[]): ReadonlySet<string> =>
  new Set(names.map(({ key }) => key));

/** No names: who is asked about them has taken its cohort before the answer. */
export const nothingOf = (types: Iterable<TypeUrl>): Waiting =>
  new Map(Iterator.from(types).map((type) => [type, new Set()]));
