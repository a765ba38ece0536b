import { isVariant } from '../model/catalog.ts';
import { WILDCARD } from '../model/transaction.ts';
import { canonicalName } from '../model/xdstp.ts';
import { viewDigest } from './compose.ts';
import type { View } from './view.ts';

/**
 * Of names that a delta client claims to have (initial_resource_versions), those that a wildcard or glob of the view
 * would show, and does not: gone while the client was away (protocol §4.1).
 */
export function goneIn(view: View, claimed: Iterable<string>): readonly string[] {
  if (!view.selection.hasCollection) return [];
  const shown = new Set<string>();
  for (const { spelling } of view.items.values()) shown.add(spelling);
  return [...claimed].filter((name) => !shown.has(name) && collects(view, name));
}

/** A claim is a hint and no subscription: a glob has nothing to say of what it does not select. */
function collects(view: View, name: string): boolean {
  const { type, selection } = view;
  if (selection.collects(WILDCARD)) return true;
  const canonical = canonicalName(name, type);
  return canonical.ok && selection.collecting(canonical.value).length > 0;
}

/** Whether a SotW client's version (CONTENT) says that it has exactly this, and nothing with a time to live (§3.10). */
export function showsAll(view: View, version: string): boolean {
  if (!view.settled || view.unknown.size > 0) return false;
  for (const { last } of view.items.values()) {
    if (isVariant(last.value) && last.value.ttl !== undefined) return false;
  }
  return version.endsWith(`@${viewDigest(view)}`);
}
