import { resourceName } from '../model/brand.ts';
import { isVariant } from '../model/catalog.ts';
import { NO_PARAMETERS } from '../model/parameters.ts';
import { itemId } from '../model/selection.ts';
import { WILDCARD } from '../model/transaction.ts';
import { canonicalName } from '../model/xdstp.ts';
import type { RetainedResource } from './frame.ts';
import type { View } from './view.ts';
import { viewDigest } from './view-digest.ts';
import { withoutBody } from './without-body.ts';

/**
 * Names from initial_resource_versions that were removed while the client was away: a wildcard or glob of the view
 * covers them, and the view does not show them (protocol §4.1).
 */
export function removedWhileAway(view: View, claimed: Iterable<string>): readonly string[] {
  if (!view.selection.hasCollection) return [];
  const shown = new Set<string>();
  for (const { spelling } of view.items.values()) shown.add(spelling);
  return [...claimed].filter((name) => !shown.has(name) && collects(view, name));
}

/** initial_resource_versions is a hint and no subscription. A name that no wildcard or glob covers is ignored. */
function collects(view: View, name: string): boolean {
  const { type, selection } = view;
  if (selection.hasCollectionSelector(WILDCARD)) return true;
  const canonical = canonicalName(name, type);
  return canonical.ok && selection.collectionsOver(canonical.value).length > 0;
}

/** A resource that a client has from an earlier stream and that is gone. Its body is not known. */
export function goneWhileAway({ type, head, items }: View, spelling: string): RetainedResource {
  const id = itemId(false, NO_PARAMETERS, spelling);
  const canonical = canonicalName(spelling, type);
  const name = canonical.ok ? canonical.value : resourceName(spelling);
  const item = items.get(id) ?? {
    id,
    name,
    spelling,
    locator: false,
    parameters: NO_PARAMETERS,
    named: false,
    last: { revision: head, value: 'absent', older: undefined },
  };
  return { item, variant: withoutBody(type, name) };
}

/** Whether a SotW client's version (CONTENT) says that it has exactly this, and nothing with a time to live (§3.10). */
export function hasEverything(view: View, version: string): boolean {
  if (!view.collectionsResolved || view.unresolvedNames.size > 0) return false;
  for (const { last } of view.items.values()) {
    if (isVariant(last.value) && last.value.ttl !== undefined) return false;
  }
  return version.endsWith(`@${viewDigest(view)}`);
}
