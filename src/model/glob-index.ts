import type { ResourceName } from './brand.ts';
import { parentGlob } from './xdstp.ts';

/** Names by the one glob that selects each: no glob has to be held against all names. Plain names are in none. */
export class GlobIndex {
  readonly #names = new Map<ResourceName, Set<ResourceName>>();

  add(name: ResourceName): void {
    const glob = parentGlob(name);
    if (glob === undefined) return;
    const names = this.#names.get(glob);
    if (names === undefined) this.#names.set(glob, new Set([name]));
    else names.add(name);
  }

  delete(name: ResourceName): void {
    const glob = parentGlob(name);
    if (glob === undefined) return;
    const names = this.#names.get(glob);
    if (names?.delete(name) === true && names.size === 0) this.#names.delete(glob);
  }

  clear(): void {
    this.#names.clear();
  }

  under(glob: ResourceName): Iterable<ResourceName> {
    return this.#names.get(glob) ?? [];
  }
}
