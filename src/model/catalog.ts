import type { Access } from './access.ts';
import type { ResourceName, Revision, TypeUrl } from './brand.ts';
import type { Constraints } from './constraints.ts';
import type { Parameters } from './parameters.ts';
import type { Variant } from './resource.ts';
import type { Interest, ResourceFault, Selector } from './transaction.ts';

/** What a subscriber sees under a name. Nothing that deletes may be concluded from `unknown` (protocol §3.9). */
export type Value = Variant | 'absent' | 'unknown';

export function isVariant(value: Value | undefined): value is Variant {
  return typeof value === 'object';
}

/** The cache as its readers see it. */
export interface Catalog {
  readonly revision: Revision;
  /**
   * What `access` does not admit is as if it did not exist; left out: it admits everything. `collected`: as the
   * wildcard shows it, which has nothing of what was only delivered to names (protocol §5b).
   */
  resolve(
    type: TypeUrl,
    name: ResourceName,
    parameters: Parameters,
    access?: Pick<Access, 'admits'>,
    collected?: boolean,
  ): Value;
  /** The names that a wildcard or glob shows with these parameters, or lacks for a reason that upstream gave. */
  members(type: TypeUrl, selector: Selector, parameters: Parameters): Iterable<ResourceName>;
  isMember(type: TypeUrl, selector: Selector, name: ResourceName, parameters: Parameters): boolean;
  /** Whether upstream gave a wildcard or glob a reason for the state of this name (resource_errors, protocol §8). */
  fails(type: TypeUrl, selector: Selector, name: ResourceName, parameters: Parameters): boolean;
  /** Upstream has answered: what is not there is absent. */
  settled(interest: Interest): boolean;
  /** version_info of the last response of the holder that answers this; may be empty. */
  version(interest: Interest): string;
  faults(type: TypeUrl, name: ResourceName, parameters: Parameters): readonly Fault[];
}

export interface Fault extends ResourceFault {
  readonly revision: Revision;
  /** Said to the wildcard: who has that hears of it. What was only said to a name is no business of others. */
  readonly collected: boolean;
}

/** What one transaction changed. */
export interface Commit {
  readonly revision: Revision;
  readonly type: TypeUrl;
  /** The response's version_info or system_version_info; undefined: upstream has said nothing new. */
  readonly version: string | undefined;
  /** By `performance.now()`. */
  readonly receivedAt: number;
  /** Which names (aliases too), and the constraints of the variants that came, went or changed. */
  readonly changed: ReadonlyMap<ResourceName, readonly Constraints[]>;
  /** Interests that were unknown and are answered now. */
  readonly settled: readonly Interest[];
}

export function isEmpty(commit: Commit): boolean {
  return commit.changed.size === 0 && commit.settled.length === 0;
}
