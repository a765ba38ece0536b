import type { Access } from '../model/access.ts';
import type { TypeUrl } from '../model/brand.ts';
import type { Parameters } from '../model/parameters.ts';
import type { Variant } from '../model/resource.ts';
import { authorityOf } from '../model/xdstp.ts';
import type { DerivedParameters } from './derive-parameters.ts';

/**
 * Access where trusted rules are for single authorities. A wildcard or an alias can show resources of other authorities
 * than its own, so each resource must also match the parameters that are trusted for its authority.
 */
export function guarded(access: Access, derived: DerivedParameters): Access {
  const { trustedKey } = derived;
  return trustedKey === '' ? access : new GuardedAccess(access, derived, trustedKey);
}

class GuardedAccess implements Access {
  readonly key: string;
  readonly unrestricted = false;
  readonly side = 'released';
  readonly #access: Access;
  readonly #derived: DerivedParameters;

  constructor(access: Access, derived: DerivedParameters, trustedKey: string) {
    this.key = `${access.key} ${trustedKey}`;
    this.#access = access;
    this.#derived = derived;
  }

  allows(type: TypeUrl, name: string): boolean {
    return this.#access.allows(type, name);
  }

  admits(resource: Variant, parameters: Parameters): boolean {
    if (!this.#access.admits(resource, parameters)) return false;
    const trusted = this.#derived.enforce(parameters, authorityOf(resource.name));
    return trusted === parameters || resource.constraints.matches(trusted);
  }

  deniesEverything(type: TypeUrl | undefined): boolean {
    return this.#access.deniesEverything(type);
  }
}
