import type { Cohort } from './access.ts';
import type { ResourceName, TypeUrl } from './brand.ts';
import type { Decision, Freeze, Holds, Scope, TypedName } from './holds.ts';
import type { Parameters } from './parameters.ts';
import type { Variant } from './resource.ts';
import type { Result } from './result.ts';
import type { Holder, Transaction } from './transaction.ts';

/** What of a client decides in which cohort it is. */
export interface CohortClient {
  /**
   * `nodeKeyOf` it (wire/peer.ts): its id, and its verified identity. By its id alone, a tenant could choose
   * canaries among the nodes of another.
   */
  readonly nodeKey: string;
  /** `placeOf` its node id. */
  readonly place: number;
  /** One set of derived parameters, and one access. */
  readonly classKey: string;
  /** Of names without an authority. */
  readonly parameters: Parameters;
  readonly address: string;
}

/** All streams and polls of a node are in one cohort. */
export type CohortOf = (client: CohortClient) => Cohort;

/** As configured (`rollout.waves`, or `rollout.canary`, which is a single one). It adds clients to those of the waves before. */
export interface Wave {
  /** Where the configuration has it. */
  readonly path: string;
  /** 0: nobody by the hash. */
  readonly percent: number;
  readonly match: readonly { readonly key: string; readonly value: string }[];
  /** It has at least one client of each class. */
  readonly elects: boolean;
  /** Undefined: that of the rollout. */
  readonly bakeMs: number | undefined;
}

/** What servers are told of a change (`rollout.notify`). */
export const notifiedEvents = ['HELD', 'DISCARDED', 'RELEASED', 'RESOLVED'] as const;

/** What a check says. UNKNOWN passes nothing and fails nothing. */
export const checkStates = ['GOOD', 'BAD', 'UNKNOWN'] as const;

/**
 * Why canaries do not see what upstream says under a name. `queued`: a change before it is still judged, or what is
 * discarded or frozen needs what upstream removes.
 */
export type MaskReason = 'discarded' | 'frozen' | 'rolledBack' | 'queued';

/** A name whose released state is not what upstream says. */
export interface PendingName extends TypedName {
  /** Its `nameKey`. */
  readonly key: string;
  /** The upstream whose change waits. */
  readonly upstream: string;
  /** When it last became pending, by `Clock.monotonic()`. */
  readonly since: number;
  /** Upstream has removed it. */
  readonly removed: boolean;
  /** Undefined: canaries see the change. */
  readonly masked: MaskReason | undefined;
  /** Canaries see something else than the others: where it is masked, too, that may be what they saw before. */
  readonly seen: boolean;
  /** What upstream says nobody has: it waits until the change before it has ended, of this name or of others. */
  readonly queued: boolean;
}

/** One commit has changed what is pending of a type. */
export interface PendingChange {
  /** When the commit arrived, as `Clock.monotonic()` says it. */
  readonly receivedAt: number;
  readonly type: TypeUrl;
  /** The names that have become pending, or whose pending content is another. Canaries see them. */
  readonly joined: readonly ResourceName[];
  /** The names that are not pending any more, or are masked now. */
  readonly left: readonly ResourceName[];
}

/** How much of what is released is missing in what is pending. */
export type RemovalCount = Readonly<Record<'removed' | 'released', number>>;

/** What everybody has of a type from one holder: names, and bytes of the bodies. */
export type ReleasedSize = Readonly<Record<'names' | 'bytes', number>>;

/** A variant with its holders: whether wildcards show it is said by them. */
export interface HeldVariant {
  readonly variant: Variant;
  readonly holders: readonly Holder[];
}

/** Whether wildcards show it. */
export const isHeldByWildcard = ({ holders }: Pick<HeldVariant, 'holders'>): boolean =>
  holders.some(({ role }) => role === 'wildcard');

/** Whether some of `wanted` is not there, or only wildcards do not show it any more. */
export function isLacking(there: readonly HeldVariant[], wanted: readonly HeldVariant[]): boolean {
  const known = new Map(there.map((one) => [one.variant.constraints.key, isHeldByWildcard(one)]));
  return wanted.some((one) => {
    const isShown = known.get(one.variant.constraints.key);
    return isShown === undefined || (isHeldByWildcard(one) && !isShown);
  });
}

/** `isRemoved`: if upstream removes something of it. */
export type IsQueued = (name: TypedName, isRemoved: boolean) => boolean;

/** Of what upstream says, before it is applied: whether it waits, though its type is not gated. */
export type IsStopped = (transaction: Transaction) => boolean;

/** The content of names, for a rollback. A name without variants is absent. */
export type Contents = ReadonlyMap<ResourceName, readonly HeldVariant[]>;

/**
 * What the judge and operators do to changes that wait. Each call is one commit for each type, and clients get types in
 * the order of ADS.
 */
export interface Gate {
  /** The same list until something of it changes, and the same value for a name until something of that changes. */
  readonly pending: readonly PendingName[];
  /** Of the last commit, as that of the store. */
  readonly revision: number;
  /** How many names canaries see that the others do not see yet. */
  readonly size: number;
  /** From now on changes of these types wait. What is pending of other types is released, but for what is masked or frozen. */
  gatedTypes(types: ReadonlySet<TypeUrl>): void;
  /** What is stopped waits too. */
  guarding(isStopped: IsStopped): void;
  /** What upstream says anew under these names canaries do not see until `unqueue`. */
  queueing(isQueued: IsQueued): void;
  /**
   * What upstream says of these names goes to nobody else until `unqueue`. Canaries keep what they have, but for what
   * `goesBack` means: of that they have again what is released.
   */
  queue(isMeant: (name: TypedName) => boolean, goesBack: (name: TypedName) => boolean): void;
  /** Canaries see what was queued of these names. */
  unqueue(isMeant: (name: TypedName) => boolean): void;
  /** Everybody sees what canaries see. What is masked or frozen stays. `keys`: only of these names, by `nameKey`. */
  release(filter?: Scope, keys?: ReadonlySet<string>): void;
  /**
   * Canaries go back to what is released. When upstream says something else under a name, that is pending anew. `keys`:
   * only of these names. `reason`: of its commit.
   */
  discard(filter?: Scope, reason?: string, keys?: ReadonlySet<string>): void;
  /** What operators keep from everybody. */
  readonly holds: Holds;
  /** Nothing that is known changes, whatever its type. New names come through. The error: it is frozen already. */
  freeze(scope?: Scope, decision?: Decision): Result<undefined>;
  /**
   * Ends the freeze of this scope; without one, all. What has changed meanwhile is pending now, or comes through if its
   * type is neither gated nor guarded. The error: it is not frozen.
   */
  unfreeze(scope?: Scope): Result<readonly Freeze[]>;
  /**
   * Everybody sees these contents of a type. The other names that the filter matches are absent. It stays so until
   * `unfreeze`, also when upstream says something new. `reason`: of its commit.
   */
  replace(type: TypeUrl, contents: Contents, filter?: Scope, reason?: string): void;
  /** How much of a type each holder has that is released, by its key. */
  releasedByHolder(type: TypeUrl): ReadonlyMap<string, ReleasedSize>;
  /** Whether somebody subscribes to it: what those had who have left is kept for when they come back. */
  isSeen(variant: Variant): boolean;
  /** Of the names that canaries see. */
  removals(filter?: Scope): RemovalCount;
  /** What a cohort has under a name, or what upstream says. */
  contentOf(type: TypeUrl, name: ResourceName, column: Cohort | 'said'): readonly HeldVariant[];
  /** The same (left out: of canaries) with what those had who have left, and as wildcards show it that are there. */
  judgedContent(type: TypeUrl, name: ResourceName, column?: Cohort | 'said'): readonly HeldVariant[];
  /** Called after both cohorts have seen the commit. The function returned ends it. */
  onChanged(listener: (change: PendingChange) => void): () => void;
}
