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
  /** Isolated streams with nothing else that ended. */
  strikes: number;
  suspected: { readonly since: number; reason: string } | undefined;
}

/** Whether these are unknown types. Known and unknown ones are never on one stream. */
export function haveUnknown(groups: readonly SubscriptionGroup[]): boolean {
  return groups.some(({ home }) => isForUnknownTypes(home));
}

/** The groups without a response when the stream ended. `doubtful`: if all had one, those that are still unproven. */
export function suspectsAmong(
  groups: readonly SubscriptionGroup[],
  doubtful: boolean,
): readonly SubscriptionGroup[] {
  const silent = groups.filter(({ unproven }) => unproven?.answered === false);
  if (silent.length > 0 || !doubtful) return silent;
  return groups.filter(({ unproven }) => unproven !== undefined);
}

/** The half that was requested later, at least one. */
export function newerHalf(groups: readonly SubscriptionGroup[]): readonly SubscriptionGroup[] {
  const sorted = groups.toSorted((a, b) => (a.unproven?.at ?? 0) - (b.unproven?.at ?? 0));
  return sorted.slice(Math.floor(groups.length / 2));
}
