import type { TypeUrl } from '../model/brand.ts';
import type { Selection } from '../model/selection.ts';

const maxEntries = 32;
/** Of all entries; they stay when their clients have left. Requests of a fleet that names more are read each time. */
const maxBytes = 4 << 20;

interface KnownSelection {
  readonly selectionGroup: object;
  readonly type: TypeUrl;
  readonly bytes: Buffer;
  /** A selection that no stream has any more may go. */
  readonly selection: WeakRef<Selection>;
}

/**
 * Selections by the bytes that they were read from. When a fleet reconnects, its clients send the same names: they are
 * read once, and all clients share one selection.
 */
export class KnownSelections {
  /** The last used last. */
  readonly #known: KnownSelection[] = [];
  #bytes = 0;

  /** `selectionGroup`: for clients of one group, the same bytes select the same. */
  find(selectionGroup: object, type: TypeUrl, bytes: Buffer): Selection | undefined {
    for (let index = this.#known.length - 1; index >= 0; index--) {
      const known = this.#known[index];
      if (known === undefined || known.selectionGroup !== selectionGroup || known.type !== type) continue;
      if (known.bytes.length !== bytes.length || !known.bytes.equals(bytes)) continue;
      if (index < this.#known.length - 1) {
        this.#known.splice(index, 1);
        this.#known.push(known);
      }
      return known.selection.deref();
    }
    return undefined;
  }

  /** `bytes` may be used again by others afterwards: they are copied. */
  add(selectionGroup: object, type: TypeUrl, bytes: Buffer, selection: Selection): void {
    if (bytes.length > maxBytes) return;
    this.#known.push({ selectionGroup, type, bytes: Buffer.from(bytes), selection: new WeakRef(selection) });
    this.#bytes += bytes.length;
    while (this.#known.length > maxEntries || this.#bytes > maxBytes) {
      this.#bytes -= this.#known.shift()?.bytes.length ?? 0;
    }
  }
}
