import type { TypeUrl } from '../model/brand.ts';
import { type Catalog, isVariant } from '../model/catalog.ts';
import type { Selection } from '../model/selection.ts';
import type { Items } from './layered-items.ts';

interface NewView {
  readonly type: TypeUrl;
  readonly selection: Selection;
  readonly items: Items;
}

/** version_info of the upstream response that brought what a new view shows; may be empty. */
export function firstVersion({ type, selection, items }: NewView, catalog: Catalog): string {
  const collection = selection.collections[0];
  if (collection !== undefined)
    return catalog.version({ type, selector: collection.selector, parameters: collection.parameters });
  let newest: { revision: number; responseVersion: string } | undefined;
  for (const { last } of items.values()) {
    if (isVariant(last.value) && last.value.revision > (newest?.revision ?? -1)) newest = last.value;
  }
  if (newest !== undefined) return newest.responseVersion;
  // Nothing is there: then the response that said so.
  for (const { selector, parameters } of selection.entries.values()) {
    const version = catalog.version({ type, selector, parameters });
    if (version !== '') return version;
  }
  return '';
}
