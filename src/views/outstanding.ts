import type { Told } from './frame.ts';

/** A client that never acknowledges must not make us remember for ever. */
const most = 32;

/**
 * Responses that were neither accepted nor rejected yet, and what they said. Two arrays instead of objects: this
 * changes twice with every update of every client.
 */
export class Outstanding {
  readonly #serials: number[] = [];
  readonly #told: Told[] = [];

  /** A response was sent; `only`: it makes those before it pointless (SotW). */
  sent(serial: number, told: Told, only: boolean): void {
    const { length } = this.#serials;
    if (only && length > 0) this.#drop(0, length);
    else if (length >= most) this.#drop(0, 1);
    this.#serials.push(serial);
    this.#told.push(told);
  }

  /** The client has answered it: what it said; undefined if it is not outstanding. */
  answered(serial: number): Told | undefined {
    const at = this.#serials[0] === serial ? 0 : this.#serials.indexOf(serial);
    if (at < 0) return undefined;
    const told = this.#told[at];
    this.#drop(at, 1);
    return told;
  }

  #drop(at: number, count: number): void {
    if (count === 1 && this.#serials.length === 1) {
      this.#serials.pop();
      this.#told.pop();
      return;
    }
    this.#serials.splice(at, count);
    this.#told.splice(at, count);
  }
}
