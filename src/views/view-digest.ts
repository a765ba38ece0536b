import { hash } from 'node:crypto';
import { isVariant } from '../model/catalog.ts';
import type { Variant } from '../model/resource.ts';
import { suffix } from './change.ts';
import type { View } from './view.ts';

const digests = new WeakMap<View, { readonly generation: number; readonly digest: string }>();

/** Digest of everything that a view shows: 16 hex digits. */
export function viewDigest(view: View): string {
  const known = digests.get(view);
  if (known?.generation === view.generation) return known.digest;
  const digest = digestOf(shownIn(view));
  digests.set(view, { generation: view.generation, digest });
  return digest;
}

interface Shown {
  readonly name: string;
  readonly variant: Variant;
}

export function digestOf(shown: Iterable<Shown>): string {
  const lines = Array.from(shown, ({ name, variant }) =>
    JSON.stringify([name, variant.constraints.key, suffix(variant.deltaVersion)]),
  );
  return hash('sha256', lines.toSorted().join('\n'), 'hex').slice(0, 16);
}

function* shownIn(view: View): Iterable<Shown> {
  for (const { name, last } of view.items.values()) {
    if (isVariant(last.value)) yield { name, variant: last.value };
  }
}
