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

/** Whether the rules alone make a client a canary. `parameters`: what the relay derives for it. */
export function isCanaryByRule(
  { percent, match }: CanaryRules,
  nodeId: string,
  parameters: Parameters,
): boolean {
  if (match.some(({ key, value }) => parameters.entries.get(key) === value)) return true;
  return percent > 0 && placeOf(nodeId) * 100 < percent;
}
