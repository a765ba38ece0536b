import type { Access, Cohort } from './access.ts';
import type { ConstraintsKey, ResourceName, Revision, TypeUrl } from './brand.ts';
import type { Content } from './change.ts';
import type { Constraints } from './constraints.ts';
import type { Parameters } from './parameters.ts';
import type { Variant } from './resource.ts';
import type { Interest, ResourceError, Selector } from './transaction.ts';

/** What a subscriber sees under a name. Nothing that deletes may be concluded from `unknown` (protocol §3.9). */
export type Value = Variant | 'absent' | 'unknown';

export function isVariant(value: Value | undefined): value is Variant {
  return typeof value === 'object';
}

/** The cache as its readers see it. */
export interface Catalog {
  readonly revision: Revision;
  /**
   * What `access` does not admit does not exist for the caller. Without `access` everything is admitted. `fromWildcard`:
   * the answer of a wildcard. It leaves out what upstream delivered only to names (protocol §5b).
   */
  resolve(
    type: TypeUrl,
    name: ResourceName,
    parameters: Parameters,
    access?: Pick<Access, 'admits'>,
    fromWildcard?: boolean,
  ): Value;
  /**
   * The names that a wildcard or glob covers with these parameters: those with a matching variant, and those with a
   * resource error. Its own name if the error is about all of it.
   */
  members(type: TypeUrl, selector: Selector, parameters: Parameters): Iterable<ResourceName>;
  isMember(type: TypeUrl, selector: Selector, name: ResourceName, parameters: Parameters): boolean;
  /** Upstream has answered this interest. What is not cached is absent then, and unknown before. */
  isResolved(interest: Interest): boolean;
  /** version_info of the last response of the holder that answers this; may be empty. */
  version(interest: Interest): string;
  resourceErrors(type: TypeUrl, name: ResourceName, parameters: Parameters): readonly StoredResourceError[];
}

export interface StoredResourceError extends ResourceError {
  /** In which each cohort has heard of it. */
  readonly revision: Readonly<Record<Cohort, Revision>>;
  /**
   * Upstream sent it on the stream of the wildcard: subscribers of the wildcard get it. Otherwise only subscribers of
   * the name get it.
   */
  readonly fromWildcard: boolean;
}

/** What is under a name at one moment: what upstream says, and what each cohort sees. Where nothing is held all are one. */
export type Snapshot = Readonly<Record<Cohort | 'said', Content>>;

/** What was and what is under a name. */
export interface ContentChange {
  readonly before: Snapshot;
  readonly after: Snapshot;
  /**
   * Variants that everybody has since, for those whom nothing had been answered and who had nothing of the name: what they
   * had before is unknown.
   */
  readonly saidFirst: ReadonlySet<ConstraintsKey>;
}

/** What one transaction changed. */
export interface Commit {
  readonly revision: Revision;
  readonly type: TypeUrl;
  /** The response's version_info or system_version_info; undefined: upstream has said nothing new. */
  readonly version: string | undefined;
  /** When the response arrived, before it was judged; else when this was applied. By `Clock.monotonic()`. */
  readonly receivedAt: number;
  /** Which names (aliases too), and the constraints of the variants that came, went or changed. */
  readonly changed: ReadonlyMap<ResourceName, readonly Constraints[]>;
  /** Interests that were unresolved before this transaction and are resolved now. */
  readonly resolved: readonly Interest[];
  /** Undefined: nobody records it, or no content changed. */
  readonly contents?: ReadonlyMap<ResourceName, ContentChange> | undefined;
  /** Of an operator, who has made it; left out: nobody has. */
  readonly operation?: { readonly verb: 'rollback' | 'discard'; readonly reason: string } | undefined;
  /** What each cohort sees as changed, where changes wait. Undefined: both see all of this. */
  readonly cohorts?: Readonly<Record<Cohort, Commit>> | undefined;
}

export function isEmpty(commit: Commit): boolean {
  return commit.changed.size === 0 && commit.resolved.length === 0;
}
