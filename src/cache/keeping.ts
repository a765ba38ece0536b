import { type ResourceName, resourceName } from '../model/brand.ts';
import { type Interest, type Selector, WILDCARD } from '../model/transaction.ts';
import { type Cell, type Held, heldByWildcard } from './cell.ts';
import type { Table } from './table.ts';

/** What would end with an interest. */
export interface Kept {
  /** There is a resource for it, or upstream has answered a wildcard. */
  readonly present: boolean;
  /**
   * Of the bodies that no other interest sees. What several keep counts for none of them, so the sum over all interests
   * is never more than what there is.
   */
  readonly bytes: number;
}

export function keeps(table: Table, interest: Interest): Kept {
  const { selector, parameters } = interest;
  const isWildcard = selector === WILDCARD;
  let present = isWildcard && table.interests.get(selector, parameters)?.answered === true;
  let bytes = 0;
  for (const name of namesOf(table, selector)) {
    for (const held of table.cells.get(name)?.variants.match(parameters) ?? []) {
      if (isWildcard && !heldByWildcard(held)) continue;
      present = true;
      if (!isWanted(table, name, held, interest)) bytes += held.variant.payload?.bytes.length ?? 0;
    }
  }
  return { present, bytes };
}

/** Whether an interest other than `except` sees a variant. */
export function isWanted(table: Table, name: ResourceName, held: Held, except?: Interest): boolean {
  for (const { interest } of table.interests.seeing(name, held.constraints)) {
    if (interest === except) continue;
    if (interest.selector !== WILDCARD || heldByWildcard(held)) return true;
  }
  return held.variant.aliases.some((alias) => table.interests.named(resourceName(alias)) !== undefined);
}

/** Whether somebody is there to be told of its faults. */
export function isTold({ interests }: Table, name: ResourceName, { faults }: Cell): boolean {
  for (const { constraints, collected } of faults?.values() ?? []) {
    for (const { interest } of interests.seeing(name, constraints)) {
      if (collected || interest.selector !== WILDCARD) return true;
    }
  }
  return false;
}

/** The names of which a selector may show something. */
export function namesOf(table: Table, selector: Selector): ResourceName[] {
  if (selector === WILDCARD) return [...table.cells.keys()];
  return [selector, ...table.aliased(selector), ...table.cells.under(selector)];
}
