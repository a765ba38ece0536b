import type { ResourceName, TypeUrl } from '../model/brand.ts';
import { includes, type Scope, scopeText } from '../model/holds.ts';
import { fail, ok, type Result } from '../model/result.ts';
import type { PendingName } from '../model/rollout.ts';
import { typeInfo } from '../model/types.ts';
import type { Waiting } from './fleet.ts';

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
  if (reasons.has('discarded')) return 'what upstream says was discarded, until it says something else';
  return 'it was released or discarded before, or upstream has taken it back';
}

/** One name of one type, as the key of sets. */
export const nameKey = (type: TypeUrl, name: ResourceName): string => `${type} ${name}`;

/** Names that wait, as lists of all kinds: made once for each change. */
export class WaitingNames {
  readonly names: readonly PendingName[];
  /** By `nameKey`. */
  readonly keys: ReadonlySet<string>;
  readonly byType: Waiting;

  constructor(names: readonly PendingName[]) {
    this.names = names;
    this.keys = keysOf(names);
    this.byType = byType(names);
  }
}

export const keysOf = (names: readonly PendingName[]): ReadonlySet<string> =>
  new Set(names.map(({ type, name }) => nameKey(type, name)));

function byType(names: Iterable<PendingName>): Waiting {
  const waiting = new Map<TypeUrl, Set<ResourceName>>();
  for (const { type, name } of names) {
    const known = waiting.get(type);
    if (known === undefined) waiting.set(type, new Set([name]));
    else known.add(name);
  }
  return waiting;
}

/** Filters that match these names and, of what is pending, nothing of another type or upstream. In the order of ADS. */
export function filtersOf(names: readonly PendingName[]): readonly Pick<PendingName, 'type' | 'upstream'>[] {
  const filters = new Map<string, Pick<PendingName, 'type' | 'upstream'>>();
  for (const { type, upstream } of names) filters.set(JSON.stringify([type, upstream]), { type, upstream });
  return [...filters.values()].toSorted((a, b) => typeInfo(a.type).order - typeInfo(b.type).order);
}
