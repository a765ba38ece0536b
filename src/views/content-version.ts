import { hash } from 'node:crypto';
import { isVariant } from '../model/catalog.ts';
import { contentHash } from '../model/change.ts';
import { getOrMake } from '../model/maps.ts';
import type { Encoding } from '../model/subscription.ts';
import type { OutgoingResource } from '../wire/responses.ts';
import type { View } from './view.ts';

type Shown = Pick<OutgoingResource, 'name' | 'variant'>;

/**
 * The version_info of a SotW response: the upstream's, verbatim; where it gives none, a digest of what is visible (protocol
 * §3.10). `union`: what is in it, if that is more than what is visible.
 */
export function sotwVersion(view: View, encoding: Encoding, union: Iterable<Shown> | undefined): string {
  if (!encoding.contentVersions && view.version !== '') return view.version;
  // A union with deferred removals must not have the version of what is visible.
  const digest = union === undefined ? viewDigest(view) : digestOf(Array.from(union, lineOf));
  return encoding.contentVersions ? `${view.version}@${digest}` : digest;
}

/** `<upstream's>@<hash of the view>`: equal versions, equal content. */
export function contentVersionOf({ shown }: View): string {
  return `${shown.version}@${viewDigest(shown)}`;
}

/** Whether a version (CONTENT) says that a client has exactly what a view shows, and nothing with a time to live. */
export function showsAll(view: View, version: string): boolean {
  if (!view.collectionsResolved || view.unresolvedNames.size > 0) return false;
  for (const { last } of view.items.values()) {
    if (isVariant(last.value) && last.value.ttl !== undefined) return false;
  }
  return version.endsWith(`@${viewDigest(view)}`);
}

/** By `atHead`. */
const digests = new WeakMap<object, string>();

/** Digest of everything that a view shows, resource errors included. */
function viewDigest({ shown }: View): string {
  return getOrMake(digests, shown.atHead, () => {
    const lines: string[] = [];
    for (const item of shown.items.values()) {
      const { name, last } = item;
      if (isVariant(last.value)) lines.push(lineOf({ name, variant: last.value }));
      // Another error is news, or it would hide behind a 304 (protocol §7.3).
      for (const { constraints, status } of shown.resourceErrors(item))
        lines.push(JSON.stringify([name, constraints.key, 'error', Buffer.from(status).toString('base64')]));
    }
    return digestOf(lines);
  });
}

const lineOf = ({ name, variant }: Shown): string =>
  JSON.stringify([name, variant.constraints.key, contentHash(variant)]);

/** 16 hex digits. */
const digestOf = (lines: readonly string[]): string =>
  hash('sha256', lines.toSorted().join('\n'), 'hex').slice(0, 16);
