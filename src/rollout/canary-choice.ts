import { hash } from 'node:crypto';
import type { Parameters } from '../model/parameters.ts';

/** As configured (`rollout.canary`). */
export interface CanaryRules {
  /** 0: nobody by the hash. */
  readonly percent: number;
  readonly match: readonly { readonly key: string; readonly value: string }[];
}

/**
 * Where a node stands among all: 0 or more, less than 1. The same node always stands at the same place, so a larger
 * `percent` only adds canaries.
 */
export function placeOf(nodeId: string): number {
  return Number.parseInt(hash('sha256', nodeId, 'hex').slice(0, 12), 16) / 2 ** 48;
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

/** Whether the rules alone make a client a canary. `parameters`: what the relay derives for it. */
export function isCanaryByRule(
  { percent, match }: CanaryRules,
  nodeId: string,
  parameters: Parameters,
): boolean {
  if (match.some(({ key, value }) => parameters.entries.get(key) === value)) return true;
  return percent > 0 && placeOf(nodeId) * 100 < percent;
}
