import type { TypeUrl } from '../../model/brand.ts';
import type { Interest, Move, Restamp } from '../../model/transaction.ts';

/** Gathers the changes of stamps, so that the store gets one for each type. */
export class Restamps {
  readonly #byType = new Map<TypeUrl, { readonly moves: Move[]; readonly unresolved: Interest[] }>();

  move(moves: Iterable<readonly [TypeUrl, Move]>): void {
    for (const [type, move] of moves) this.#of(type).moves.push(move);
  }

  addUnresolved(interest: Interest): void {
    this.#of(interest.type).unresolved.push(interest);
  }

  *all(): Iterable<Restamp> {
    for (const [type, change] of this.#byType) yield { type, ...change };
  }

  #of(type: TypeUrl): { readonly moves: Move[]; readonly unresolved: Interest[] } {
    const known = this.#byType.get(type);
    if (known !== undefined) return known;
    const created = { moves: [], unresolved: [] };
    this.#byType.set(type, created);
    return created;
  }
}
