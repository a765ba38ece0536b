import {
  type ConstraintsKey,
  type ResourceName,
  type Revision,
  resourceName,
  type TypeUrl,
} from '../model/brand.ts';
import type { Parameters } from '../model/parameters.ts';
import type { Variant } from '../model/resource.ts';
import type { HeldVariant } from '../model/rollout.ts';
import { type Holder, WILDCARD } from '../model/transaction.ts';
import type { CacheEntry } from './cached-resource.ts';
import type { InterestState } from './interests.ts';
import type { TypeTable } from './type-table.ts';

export interface RestoredResource {
  readonly type: TypeUrl;
  readonly name: ResourceName;
  /** With restored holders. The bytes of payloads may be views: the store copies them. */
  readonly variants: readonly HeldVariant[];
  /** Which of several matching variants a parameter set had (protocol §5, Ambiguity). */
  readonly bindings: readonly (readonly [Parameters, ConstraintsKey])[];
}

export interface RestoredVersion {
  readonly type: TypeUrl;
  readonly holder: string;
  readonly version: string;
}

/** The content of a store at the end of one revision. */
export interface Restored {
  readonly resources: readonly RestoredResource[];
  /** Their answers are restored ones from then on. */
  readonly interests: readonly InterestState[];
  readonly versions: readonly RestoredVersion[];
}

/**
 * Whether a restored holder still keeps a variant: an interest of its role sees it and has no answer yet from its present
 * upstream. So what is not delivered again goes when upstream has answered, and not before.
 */
export function isNeeded(table: TypeTable, entry: CacheEntry, holder: Holder): boolean {
  const { name, aliases } = entry.variant;
  for (const state of table.interests.seeing(name, entry.constraints)) {
    const isOfRole = (state.interest.selector === WILDCARD) === (holder.role === 'wildcard');
    if (isOfRole && state.answer === 'restored') return true;
  }
  if (holder.role === 'wildcard') return false;
  for (const alias of aliases) {
    const states = table.interests.named(resourceName(alias))?.matching(entry.constraints) ?? [];
    for (const state of states) if (state.answer === 'restored') return true;
  }
  return false;
}

/** Puts a restored resource into an empty place of the table. */
export function restoreResource(
  table: TypeTable,
  { name, variants, bindings }: RestoredResource,
  revision: Revision,
): void {
  const cached = table.place(name);
  for (const { holders, variant: persisted } of variants) {
    const { constraints, payload } = persisted;
    const adopted = payload && table.payloads.adopt(payload.bytes, payload.hash);
    const variant: Variant = { ...persisted, payload: adopted, revision };
    table.add(cached, { constraints, variant, holders, confirmedIn: revision });
    table.expiring(variant);
  }
  cached.restoreBindings(bindings);
}

/** Makes the holders of an upstream restored ones, and so its answers. */
export function disown(table: TypeTable, upstream: string): void {
  for (const cached of table.resources.values()) {
    for (const entry of cached.variants.values()) {
      if (!entry.holders.some((holder) => holder.upstream === upstream)) continue;
      entry.holders = entry.holders.map((one) =>
        one.upstream === upstream ? { ...one, restored: true } : one,
      );
      table.restored.add(entry);
    }
  }
  for (const state of table.interests.all()) {
    if (state.answer !== undefined && state.holder?.upstream === upstream) state.answer = 'restored';
  }
}
