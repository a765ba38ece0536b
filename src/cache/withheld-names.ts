import type { ResourceName, TypeUrl } from '../model/brand.ts';
import type { TypedName, Withheld } from '../model/rollout.ts';

/**
 * Names that a rollback has removed. Nobody has anything of them, but they are not new: they stay away until the gate
 * opens, also when upstream removes them and says them again, and after a restart.
 */
export class WithheldNames implements Withheld {
  readonly #types = new Map<TypeUrl, Set<ResourceName>>();

  *[Symbol.iterator](): Iterator<TypedName> {
    for (const [type, names] of this.#types) for (const name of names) yield { type, name };
  }

  has(type: TypeUrl, name: ResourceName): boolean {
    return this.#types.get(type)?.has(name) === true;
  }

  /** What does not wait behind the gate of a type (undefined: of all) needs no gate. */
  opened(type: TypeUrl | undefined, waits: (one: TypedName) => boolean): void {
    for (const one of [...this]) if ((type ?? one.type) === one.type && !waits(one)) this.set(one, false);
  }

  set({ type, name }: TypedName, withheld: boolean): void {
    const names = this.#types.get(type) ?? new Set();
    if (withheld) this.#types.set(type, names.add(name));
    else if (names.delete(name) && names.size === 0) this.#types.delete(type);
  }
}
