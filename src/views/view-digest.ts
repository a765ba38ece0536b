import { hash } from 'node:crypto';
import { isVariant } from '../model/catalog.ts';
import type { Variant } from '../model/resource.ts';
import { suffix } from './change.ts';
import type { View } from './view.ts';

const digests = new WeakMap<View, { readonly generation: number; readonly digest: string }>();

/** Digest of everything that a view shows, resource errors included: 16 hex digits. */
export function viewDigest(view: View): string {
  const { shown } = view;
  if (shown !== view) return viewDigest(shown);
  const known = digests.get(view);
  if (known?.generation === view.generation) return known.digest;
  const digest = hashOf([...linesOf(shownIn(view)), ...errorLines(view)]);
  digests.set(view, { generation: view.generation, digest });
  return digest;
}

interface Shown {
  readonly name: string;
  readonly variant: Variant;
}

export function digestOf(shown: Iterable<Shown>): string {
  return hashOf(linesOf(shown));
}

function hashOf(lines: readonly string[]): string {
  return hash('sha256', lines.toSorted().join('\n'), 'hex').slice(0, 16);
}

function linesOf(shown: Iterable<Shown>): string[] {
  return Array.from(shown, ({ name, variant }) =>
    JSON.stringify([name, variant.constraints.key, suffix(variant.deltaVersion)]),
  );
}

/** Another error is news, or it would hide behind a 304 (protocol §7.3). */
function* errorLines(view: View): Iterable<string> {
  for (const item of view.items.values()) {
    for (const { constraints, status } of view.resourceErrors(item)) {
      yield JSON.stringify([item.name, constraints.key, 'error', Buffer.from(status).toString('base64')]);
    }
  }
}

function* shownIn(view: View): Iterable<Shown> {
  for (const { name, last } of view.items.values()) {
    if (isVariant(last.value)) yield { name, variant: last.value };
  }
}
