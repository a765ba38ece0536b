import type { ResourceName, TypeUrl } from './brand.ts';
import type { Variant } from './resource.ts';
import type { HeldVariant } from './rollout.ts';

/** One variant of a name. */
export interface ChangedVariant extends HeldVariant {
  /**
   * After a change: it was said first (`ContentChange.saidFirst`, or nothing of the type had been said), so what those whom
   * it is for had before is unknown. To who compares that is nothing; a rollback leaves it.
   */
  readonly first?: boolean;
}

/** All variants of a name; none: it is not there. */
export type Content = readonly ChangedVariant[];

export const NO_CONTENT: Content = [];

/**
 * RELEASED: everybody has it. PENDING: only canaries, or nobody yet. REPLACED: upstream has said something newer before it was released.
 * DISCARDED: an operator has dropped it.
 */
export type ChangeVerdict = 'RELEASED' | 'PENDING' | 'REPLACED' | 'DISCARDED';

export interface ChangedName {
  readonly name: ResourceName;
  readonly change: 'ADDED' | 'CHANGED' | 'REMOVED';
  /** Of its variants after the change. */
  readonly bytes: number;
  readonly verdict: ChangeVerdict;
  /** What everybody had before, and what upstream says since; undefined: the bodies are not kept. */
  readonly content: { readonly before: Content; readonly after: Content } | undefined;
}

/** What one response of an upstream, or an operator, changed. */
export interface Change {
  /** Grows by one with each change, over restarts too. */
  readonly revision: number;
  /** Milliseconds since the epoch. */
  readonly at: number;
  /** Empty: an operator made it. */
  readonly upstream: string;
  readonly type: TypeUrl;
  readonly added: number;
  readonly changed: number;
  readonly removed: number;
  /** All with bodies; else the first 1000. */
  readonly names: readonly ChangedName[];
  /** It adds names, and all of them were said first (`ChangedVariant.first`): nothing may have changed upstream. */
  readonly first: boolean;
  /** When everybody got it, in milliseconds since the epoch; undefined: not yet, or never. */
  readonly releasedAt: number | undefined;
  /** How long all canaries took to accept it, in milliseconds; left out: they have not, or it went straight through. */
  readonly canariesMs?: number | undefined;
  /** From when everybody was given it to the last ACK of a client, in milliseconds; left out: there was none. */
  readonly clientsMs?: number | undefined;
  /** What canaries said while it waited. */
  readonly canaries?: Answers | undefined;
  /** Where it is or was in its rollout; left out: it was not judged. */
  readonly course?: ChangeCourse | undefined;
  /** What streams said that got it when everybody got it. */
  readonly answers?: Answers | undefined;
  /** An operator's, who has made it or discarded it. */
  readonly reason: string;
}

/** How far a change has come through its waves. */
export interface ChangeCourse {
  /** The last that it has come to, from 1. */
  readonly wave: number;
  /** How many there were. */
  readonly waves: number;
  /** Why it was held last; left out: it was not. */
  readonly cause?: string | undefined;
}

/** How many streams have accepted it, or rejected something with it. */
export type Answers = Readonly<Record<'accepted' | 'rejected', number>>;

/** What was recorded before a restart. */
export interface RecordedChanges {
  /** The oldest first. */
  readonly changes: readonly Change[];
  /** Of the last change, though it may not be kept any more. */
  readonly lastRevision: number;
}

/** Whether clients would see a difference: bytes decide, versions do not. */
export function sameContents(a: Content, b: Content): boolean {
  if (a === b) return true;
  if (a.length !== b.length) return false;
  // Nearly always they are in the same order, and a name may have 10,000 variants.
  if (a.every(({ variant }, index) => sameVariant(variant, b[index]?.variant))) return true;
  const others = new Map(b.map(({ variant }) => [variant.constraints.key, variant]));
  return a.every(({ variant }) => sameVariant(variant, others.get(variant.constraints.key)));
}

function sameVariant(a: Variant, b: Variant | undefined): boolean {
  if (a === b) return true;
  return b !== undefined && a.constraints.key === b.constraints.key && contentHash(a) === contentHash(b);
}

/** Of payload, constraints, aliases and metadata (protocol §4.1). */
export function contentHash({ deltaVersion }: Pick<Variant, 'deltaVersion'>): string {
  return deltaVersion.slice(deltaVersion.lastIndexOf('@') + 1);
}

/** Without the hash that the relay above, or a worker's primary, has added to it. */
export function controlPlaneVersion({
  version,
  deltaVersion,
}: Pick<Variant, 'version' | 'deltaVersion'>): string {
  return version === deltaVersion ? version.slice(0, version.lastIndexOf('@')) : version;
}
