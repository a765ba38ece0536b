import type { TypeUrl } from '../../model/brand.ts';
import { isForUnknownTypes, type StreamId } from './stream-id.ts';

export type Role = 'wildcard' | 'named';

/** A type's wildcard or names. */
export interface SubscriptionGroup {
  readonly type: TypeUrl;
  readonly role: Role;
  /** One of the usual streams. */
  readonly home: StreamId;
  streamId: StreamId;
  /** Interests. */
  interests: number;
  /** It was requested for the first time, and no stream has lasted long enough with it yet. */
  unproven: { readonly at: number; answered: boolean } | undefined;
  /** Streams of its own that ended. */
  strikes: number;
  suspected: { readonly since: number; reason: string } | undefined;
}

/** What is on one stream is of one kind. */
export function haveUnknown(groups: readonly SubscriptionGroup[]): boolean {
  return groups.some(({ home }) => isForUnknownTypes(home));
}

/** What had no answer yet when the stream ended. `doubtful`: where all had one, whatever has not proved harmless. */
export function suspectsAmong(
  groups: readonly SubscriptionGroup[],
  doubtful: boolean,
): readonly SubscriptionGroup[] {
  const silent = groups.filter(({ unproven }) => unproven?.answered === false);
  if (silent.length > 0 || !doubtful) return silent;
  return groups.filter(({ unproven }) => unproven !== undefined);
}

/** At least one; of what was asked together, the later. */
export function newerHalf(groups: readonly SubscriptionGroup[]): readonly SubscriptionGroup[] {
  const sorted = groups.toSorted((a, b) => (a.unproven?.at ?? 0) - (b.unproven?.at ?? 0));
  return sorted.slice(Math.floor(groups.length / 2));
}
