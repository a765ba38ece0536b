import {
  type ConstraintsKey,
  type ParametersKey,
  type ResourceName,
  resourceName,
  type TypeUrl,
} from '../model/brand.ts';
import type { Payload, Variant } from '../model/resource.ts';
import { type Holder, type Interest, WILDCARD } from '../model/transaction.ts';
import type { CacheEntry, RestoredHolder } from './cached-resource.ts';
import type { TypeTable } from './type-table.ts';

/** A variant as it was kept, and who had it. The payload's bytes may be a view: the store copies them. */
export interface RestoredVariant extends Omit<Variant, 'deltaVersion' | 'revision' | 'payload'> {
  readonly payload: Payload | undefined;
  readonly holders: readonly RestoredHolder[];
}

export interface RestoredResource {
  readonly type: TypeUrl;
  readonly name: ResourceName;
  readonly variants: readonly RestoredVariant[];
  /** Which of several matching variants a parameter set had (protocol §5, Ambiguity). */
  readonly bindings: readonly (readonly [ParametersKey, ConstraintsKey])[];
}

export interface RestoredInterest {
  readonly interest: Interest;
  readonly resolved: boolean;
  readonly holder: Holder | undefined;
}

export interface RestoredVersion {
  readonly type: TypeUrl;
  readonly holder: string;
  readonly version: string;
}

/** What a store held at the end of one revision. */
export interface Restored {
  readonly resources: readonly RestoredResource[];
  readonly interests: readonly RestoredInterest[];
  readonly versions: readonly RestoredVersion[];
}

/**
 * Whether a restored holder still keeps a variant: as long as an interest of its role sees it that has no answer yet
 * from whoever serves it now. So what is not delivered again goes exactly when upstream has answered, never before.
 */
export function isNeeded(table: TypeTable, entry: CacheEntry, holder: RestoredHolder): boolean {
  const { name, aliases } = entry.variant;
  for (const state of table.interests.seeing(name, entry.constraints)) {
    if (state.restored && (state.interest.selector === WILDCARD) === (holder.role === 'wildcard'))
      return true;
  }
  if (holder.role === 'wildcard') return false;
  for (const alias of aliases) {
    const states = table.interests.named(resourceName(alias))?.matching(entry.constraints) ?? [];
    for (const state of states) if (state.restored) return true;
  }
  return false;
}
