import type { Access } from '../model/access.ts';
import type { ResourceName, TypeUrl } from '../model/brand.ts';
import { type Catalog, type Fault, isVariant, type Value } from '../model/catalog.ts';
import type { Parameters } from '../model/parameters.ts';
import type { Variant } from '../model/resource.ts';

type Asked = { readonly name: ResourceName; readonly parameters: Parameters };

const none: readonly never[] = [];

/** The resources of one type as one class of clients may see them: what they may not see does not exist. */
export class Permitted {
  readonly #catalog: Catalog;
  readonly #type: TypeUrl;
  /** Undefined: everything is allowed. */
  readonly #restriction: Access | undefined;

  constructor(catalog: Catalog, type: TypeUrl, access: Access) {
    this.#catalog = catalog;
    this.#type = type;
    this.#restriction = access.key === '' ? undefined : access;
  }

  allows(name: ResourceName): boolean {
    return this.#restriction?.allows(this.#type, name) ?? true;
  }

  admits(variant: Variant, parameters: Parameters): boolean {
    return this.#restriction?.admits(variant, parameters) ?? true;
  }

  /** By its own name or by an alias. */
  named({ name, parameters }: Asked): Value {
    return this.#catalog.resolve(this.#type, name, parameters, this.#restriction);
  }

  /** As a wildcard (`collected`) or glob shows it that has a member of this name. */
  member({ name, parameters }: Asked, collected: boolean): Value {
    const value = this.#catalog.resolve(this.#type, name, parameters, this.#restriction, collected);
    if (this.#restriction === undefined) return value;
    // Found by an alias it is another resource, and a member by its own name.
    return isVariant(value) && value.name === name ? value : 'absent';
  }

  /** What is said of something that is there, but not for these clients, is not for them either. */
  faults(asked: Asked): readonly Fault[] {
    if (!this.allows(asked.name)) return none;
    const faults = this.#catalog.faults(this.#type, asked.name, asked.parameters);
    return faults.length > 0 && this.#isHidden(asked) ? none : faults;
  }

  #isHidden(asked: Asked): boolean {
    if (this.#restriction === undefined || isVariant(this.named(asked))) return false;
    return isVariant(this.#catalog.resolve(this.#type, asked.name, asked.parameters));
  }
}
