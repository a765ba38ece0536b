import type { ResponseChanges } from './frame.ts';

/** A client that never acknowledges must not make us remember for ever. */
const maxOutstanding = 32;

/**
 * Responses that were neither accepted nor rejected yet, and what they said. Nearly always it is one or none, and it
 * changes twice with every update of every client: the last is kept without a list, the ones before it in a short one.
 */
export class Outstanding {
  #serial = 0;
  #changes: ResponseChanges | undefined;
  #before: { readonly serial: number; readonly told: ResponseChanges }[] | undefined;

  /** A response was sent; `only`: it makes those before it pointless (SotW). */
  sent(serial: number, changes: ResponseChanges, only: boolean): void {
    if (only) this.#before = undefined;
    else if (this.#changes !== undefined) this.#remember(this.#serial, this.#changes);
    this.#serial = serial;
    this.#changes = changes;
  }

  /** The client has answered it: what it said; undefined if it is not outstanding. */
  answered(serial: number): ResponseChanges | undefined {
    if (this.#changes !== undefined && this.#serial === serial) {
      const changes = this.#changes;
      this.#changes = undefined;
      return changes;
    }
    const at = this.#before?.findIndex((one) => one.serial === serial) ?? -1;
    if (at < 0) return undefined;
    const [found] = this.#before?.splice(at, 1) ?? [];
    if (this.#before?.length === 0) this.#before = undefined;
    return found?.told;
  }

  #remember(serial: number, changes: ResponseChanges): void {
    this.#before ??= [];
    if (this.#before.length >= maxOutstanding - 1) this.#before.shift();
    this.#before.push({ serial, told: changes });
  }
}
