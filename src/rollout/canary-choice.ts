import type { Parameters } from '../model/parameters.ts';
import type { SidedClient } from '../model/rollout.ts';

/** As configured (`rollout.canary`). */
export interface CanaryRules {
  /** 0: nobody by the hash. */
  readonly percent: number;
  readonly match: readonly { readonly key: string; readonly value: string }[];
}

/** The entries of `match` that meet none of these clients, each told for the operator. */
export function unmetMatches({ match }: CanaryRules, clients: ReadonlySet<Parameters>): readonly string[] {
  return [...match.entries()]
    .filter(([, { key, value }]) => clients.values().every(({ entries }) => entries.get(key) !== value))
    .map(
      ([index, { key, value }]) =>
        `rollout.canary.match[${index}]: no connected client has ${key}=${JSON.stringify(value)}, so it makes nobody a canary`,
    );
}

/** Whether the rules alone make a client a canary. */
export function isCanaryByRule(
  { percent, match }: CanaryRules,
  { place, parameters }: Pick<SidedClient, 'place' | 'parameters'>,
): boolean {
  if (match.some(({ key, value }) => parameters.entries.get(key) === value)) return true;
  return place * 100 < percent;
}
