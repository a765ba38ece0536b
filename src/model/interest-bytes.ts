import type { Interest } from './transaction.ts';

/**
 * What one interest takes in the registry, in the cache and in the state of the upstream stream, beside the text of its
 * name and parameters. Measured, and rounded up: docs/adr/0007.
 */
const overhead = 1536;

/** The memory that one interest takes without any resource, as it counts in `cache.max_bytes`. */
export function interestBytes({ selector, parameters }: Interest): number {
  return overhead + selector.length + parameters.key.length;
}
