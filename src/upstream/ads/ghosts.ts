import type { Selector } from '../../model/transaction.ts';
import type { Ask } from './wants.ts';

const none: readonly never[] = [];

/** Names that were taken back before they were answered: their answers are on the way, and in order. */
export class Ghosts {
  readonly #bySelector = new Map<Selector, Set<Ask>>();

  add(ask: Ask): void {
    const asks = this.#bySelector.get(ask.selector);
    if (asks === undefined) this.#bySelector.set(ask.selector, new Set([ask]));
    else asks.add(ask);
  }

  /** Those that name it; it may change while this is read. */
  of(name: Selector): readonly Ask[] {
    const asks = this.#bySelector.get(name);
    return asks === undefined ? none : [...asks];
  }

  /** False: it is none of them. */
  delete(ask: Ask): boolean {
    const asks = this.#bySelector.get(ask.selector);
    if (asks?.delete(ask) !== true) return false;
    if (asks.size === 0) this.#bySelector.delete(ask.selector);
    return true;
  }

  clear(): void {
    this.#bySelector.clear();
  }
}
