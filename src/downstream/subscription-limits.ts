import type { TypeUrl } from '../model/brand.ts';
import type { Selection } from '../model/selection.ts';
import { countSelectors, countVersions, type SelectorFields } from '../wire/requests.ts';
import type { ClientContext, StreamLimits, Subscribed } from './services.ts';

/** ADS clients use about ten. Each costs a subscription upstream, and a look at each response. */
const maxTypes = 100;
/** Wildcards and globs of one type may have so many parameter sets: each set shows all resources that match it. */
const maxParameterSets = 16;
/** With its digest an entry has 40 bytes or more: no request that is at most 4 MiB long has so many. */
const maxVersions = 100_000;

/** Why a stream cannot be subscribed to one type more; undefined: it can. */
export function excessOfTypes(types: number): string | undefined {
  if (types <= maxTypes) return undefined;
  return `${types} types on one stream: at most ${maxTypes} are accepted`;
}

/**
 * Why the names of a request are not read: they are more than the limit, so they are only counted. Duplicates count
 * too.
 */
export function excessOfNames(
  range: Buffer | undefined,
  fields: SelectorFields,
  { maxSubscriptions }: StreamLimits,
): string | undefined {
  // A name takes two bytes or more.
  if (range === undefined || range.length <= 2 * maxSubscriptions) return undefined;
  const count = countSelectors(range, fields);
  if (count <= maxSubscriptions) return undefined;
  return `${count} names and locators in one request: at most ${maxSubscriptions} are accepted (limits.max_subscriptions_per_stream)`;
}

/** The same of initial_resource_versions. */
export function excessOfVersions(range: Buffer | undefined): string | undefined {
  if (range === undefined || range.length <= 2 * maxVersions) return undefined;
  const count = countVersions(range);
  if (count <= maxVersions) return undefined;
  return `${count} initial_resource_versions in one request: at most ${maxVersions} are accepted`;
}

/** Why a stream that has `others` cannot be subscribed to this, too; undefined: it can. */
export function excessOf(
  own: Subscribed,
  others: Iterable<Subscribed>,
  { maxSubscriptions, maxNamesLength = Number.POSITIVE_INFINITY }: StreamLimits,
): string | undefined {
  const sets = new Set(own.selection.collections.map(({ parameters }) => parameters));
  if (sets.size > maxParameterSets) {
    return `wildcards and globs with ${sets.size} sets of dynamic parameters in one type: at most ${maxParameterSets} are accepted`;
  }
  let [count, length] = [0, 0];
  for (const { url, selection } of [own, ...others]) {
    // A type without names is one subscription, too.
    count += Math.max(1, selection.size);
    // By delta requests a client could add to what it names without end.
    length += url.length + selection.length;
  }
  if (count > maxSubscriptions) {
    return `${count} subscriptions on one stream: at most ${maxSubscriptions} are accepted (limits.max_subscriptions_per_stream)`;
  }
  if (length > maxNamesLength) {
    return `a stream that is subscribed to ${length} characters of types and names: at most ${maxNamesLength} are accepted, as in one request (limits.max_request_bytes)`;
  }
  return undefined;
}

/** Whether a client may have nothing of what it names. */
export function deniesAll({ access }: ClientContext, type: TypeUrl, selection: Selection): boolean {
  if (selection.size === 0 || selection.hasCollection) return false;
  return !selection.entries.values().some(({ selector }) => access.allows(type, selector));
}
