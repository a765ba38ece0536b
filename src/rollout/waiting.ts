import type { ResourceName, TypeUrl } from '../model/brand.ts';
import { includes, type Scope, scopeText, type TypedName } from '../model/holds.ts';
import { fail, ok, type Result } from '../model/result.ts';
import type { PendingName } from '../model/rollout.ts';
import { typeInfo } from '../model/types.ts';
import type { Member, Moved } from './canaries.ts';

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

/** How many of them have answered, and what. */
export function answersOf(canaries: readonly CanaryStream[]): {
  readonly accepted: number;
  readonly rejected: number;
} {
  const count = (kind: Standing['kind']): number =>
    canaries.filter(({ standing }) => standing.kind === kind).length;
  return { accepted: count('accepted'), rejected: count('rejected') };
}

export interface Survey {
  /** False: some of the clients have not been asked yet. */
  readonly complete: boolean;
  /** The nodes that subscribe to something of it. */
  readonly members: readonly Member[];
  readonly canaries: readonly CanaryStream[];
}

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
  survey(waiting: Waiting): Survey;
  /** Something else waits now: what was remembered of subscriptions does not hold any more. */
  waitingChanged(): void;
  /** Other nodes are canaries now: these clients may be on another side. */
  moved(isMoved: (client: Moved) => boolean): void;
  /** Some clients have yet to take their side. */
  readonly isMoving: boolean;
}

/** Of those that canaries see, the ones that an operator means. The error: there are none, and why. */
export function matching(pending: Iterable<PendingName>, scope: Scope): Result<readonly PendingName[]> {
  const all = [...pending];
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

/** One name of one type, as the key of sets. */
export const nameKey = (type: TypeUrl, name: ResourceName): string => `${type} ${name}`;

/** Names that wait, as lists of all kinds: made once for each change. */
export interface WaitingNames {
  readonly names: readonly PendingName[];
  /** By `nameKey`. */
  readonly keys: ReadonlySet<string>;
  readonly byType: Waiting;
}

export function waitingNames(names: readonly PendingName[]): WaitingNames {
  const byType = Map.groupBy(names, ({ type }) => type).entries();
  return {
    names,
    keys: keysOf(names),
    byType: new Map(byType.map(([type, own]) => [type, new Set(own.map(({ name }) => name))])),
  };
}

export const keysOf = (names: readonly TypedName[]): ReadonlySet<string> =>
  new Set(names.map(({ type, name }) => nameKey(type, name)));

/** Filters that match these names and, of what is pending, nothing of another type or upstream. In the order of ADS. */
function filtersOf(names: readonly PendingName[]): readonly Pick<PendingName, 'type' | 'upstream'>[] {
  const filters = new Map<string, Pick<PendingName, 'type' | 'upstream'>>();
  for (const { type, upstream } of names) filters.set(JSON.stringify([type, upstream]), { type, upstream });
  return [...filters.values()].toSorted((a, b) => typeInfo(a.type).order - typeInfo(b.type).order);
}

/** What matches these names, and nothing else. */
export function byFilter(names: readonly PendingName[]) {
  const byType = Map.groupBy(names, ({ type }) => type);
  return filtersOf(names).map((filter) => {
    const own = byType.get(filter.type) ?? [];
    return [filter, new Set(own.map(({ name }) => name))] as const;
  });
}

export const isEqual = (a: ReadonlySet<string>, b: ReadonlySet<string>): boolean =>
  a.size === b.size && a.isSubsetOf(b);

/** No names: who is asked about them has taken its side before the answer. */
export const nothingOf = (types: Iterable<TypeUrl>): Waiting =>
  new Map(Iterator.from(types).map((type) => [type, new Set()]));
