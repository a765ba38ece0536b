import type { Holder } from './transaction.ts';

/**
 * A holder from before a restart, of a replaced upstream, or of another relay. Upstream has not confirmed its variants
 * since. In the first two cases it has the key of the original holder, which replaces it by delivering the variant
 * again.
 */
export interface RestoredHolder extends Holder {
  readonly restored: true;
}

export function isRestored(holder: Holder): holder is RestoredHolder {
  return 'restored' in holder;
}

/** The holder as one that upstream has not confirmed. */
export function asRestored(holder: Holder): RestoredHolder {
  return { ...holder, restored: true };
}
