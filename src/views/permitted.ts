import type { Access } from '../model/access.ts';
import type { ResourceName, TypeUrl } from '../model/brand.ts';
import { type Catalog, isVariant, type StoredResourceError, type Value } from '../model/catalog.ts';
import type { Parameters } from '../model/parameters.ts';
import type { Variant } from '../model/resource.ts';

type NamedResource = { readonly name: ResourceName; readonly parameters: Parameters };

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
    this.#restriction = access.unrestricted ? undefined : access;
  }

  allows(name: ResourceName): boolean {
    return this.#restriction?.allows(this.#type, name) ?? true;
  }

  admits(variant: Variant, parameters: Parameters): boolean {
    return this.#restriction?.admits(variant, parameters) ?? true;
  }

  /** By its own name or by an alias. */
  named({ name, parameters }: NamedResource): Value {
    return this.#catalog.resolve(this.#type, name, parameters, this.#restriction);
  }

  /** As a wildcard (`fromWildcard`) or glob shows it that has a member of this name. */
  member({ name, parameters }: NamedResource, fromWildcard: boolean): Value {
    const value = this.#catalog.resolve(this.#type, name, parameters, this.#restriction, fromWildcard);
    if (this.#restriction === undefined) return value;
    // Found by an alias it is another resource, and a member by its own name.
    return isVariant(value) && value.name === name ? value : 'absent';
  }

  /** The errors of a resource that exists, but not for these clients, are not for them either. */
  resourceErrors(resource: NamedResource): readonly StoredResourceError[] {
    if (!this.allows(resource.name)) return none;
    const resourceErrors = this.#catalog.resourceErrors(this.#type, resource.name, resource.parameters);
    return resourceErrors.length > 0 && this.#isHidden(resource) ? none : resourceErrors;
  }

  #isHidden(resource: NamedResource): boolean {
    if (this.#restriction === undefined || isVariant(this.named(resource))) return false;
    return isVariant(this.#catalog.resolve(this.#type, resource.name, resource.parameters));
  }
}
