import type { Access } from '../model/access.ts';
import type { TypeUrl } from '../model/brand.ts';
import type { Parameters } from '../model/parameters.ts';
import type { Variant } from '../model/resource.ts';

const remembered = new WeakMap<Access, Access>();

/** The same access for canaries: they share no view with the others. */
export function canaryAccess(access: Access): Access {
  const known = remembered.get(access);
  if (known !== undefined) return known;
  const created = new CanaryAccess(access);
  remembered.set(access, created);
  return created;
}

class CanaryAccess implements Access {
  readonly key: string;
  readonly unrestricted: boolean;
  readonly side = 'canary';
  readonly #access: Access;

  constructor(access: Access) {
    this.key = `canary:${access.key}`;
    this.unrestricted = access.unrestricted;
    this.#access = access;
  }

  allows(type: TypeUrl, name: string): boolean {
    return this.#access.allows(type, name);
  }

  admits(resource: Variant, parameters: Parameters): boolean {
    return this.#access.admits(resource, parameters);
  }

  deniesEverything(type: TypeUrl | undefined): boolean {
    return this.#access.deniesEverything(type);
  }
}
