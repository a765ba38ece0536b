import type { Item } from './item.ts';

/** A client that never acknowledges must not make us remember for ever. */
const most = 32;

/**
 * Responses that were neither accepted nor rejected yet, and what was new in them. Two arrays instead of objects: this
 * changes twice with every update of every client.
 */
export class Outstanding {
  readonly #serials: number[] = [];
  readonly #items: (readonly Item[])[] = [];

  /** A response was sent; `only`: it makes those before it pointless (SotW). */
  sent(serial: number, items: readonly Item[], only: boolean): void {
    const { length } = this.#serials;
    if (only && length > 0) this.#drop(0, length);
    else if (length >= most) this.#drop(0, 1);
    this.#serials.push(serial);
    this.#items.push(items);
  }

  /** The client has answered it: what was new in it; undefined if it is not outstanding. */
  answered(serial: number): readonly Item[] | undefined {
    const at = this.#serials[0] === serial ? 0 : this.#serials.indexOf(serial);
    if (at < 0) return undefined;
    const items = this.#items[at];
    this.#drop(at, 1);
    return items;
  }

  #drop(at: number, count: number): void {
    if (count === 1 && this.#serials.length === 1) {
      this.#serials.pop();
      this.#items.pop();
      return;
    }
    this.#serials.splice(at, count);
    this.#items.splice(at, count);
  }
}
