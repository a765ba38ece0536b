import type { ResourceName, TypeUrl } from '../model/brand.ts';
import type { Interest } from '../model/transaction.ts';

/** Is called for every change in the store that persistence has to write. */
export interface Journal {
  /** Variants of this name, who has them, or which of them a parameter set is bound to. */
  resource(type: TypeUrl, name: ResourceName): void;
  /** It was added, removed or answered. */
  interest(interest: Interest): void;
  /** The version of a holder's last response. */
  version(type: TypeUrl, holder: string): void;
}

/** Nothing is written. */
export const NO_JOURNAL: Journal = { resource: () => {}, interest: () => {}, version: () => {} };
