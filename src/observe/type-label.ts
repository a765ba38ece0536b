import type { TypeUrl } from '../model/brand.ts';
import { printable } from '../model/printable.ts';
import { longestTypeUrl, typeInfo } from '../model/types.ts';

/**
 * Only so many unknown types get a label of their own, because each label is a series for ever. Clients can name any
 * type, so only those of which an upstream has a resource.
 */
const mostUnknown = 32;
/** The label of the rest. */
export const OTHER_TYPES = 'other';

/**
 * A name for a type as a label: the short name, an unknown type's URL, `other` past the first unknown ones and where the
 * type cannot be told. A type keeps its URL once it has it.
 */
export class TypeLabels {
  readonly #unknown = new Set<TypeUrl>();
  readonly #isServed: (type: TypeUrl) => boolean;

  /** `isServed`: there is a resource of this type. */
  constructor(isServed: (type: TypeUrl) => boolean) {
    this.#isServed = isServed;
  }

  of(type: TypeUrl): string {
    const { short } = typeInfo(type);
    if (short !== type) return short;
    if (this.#unknown.has(type)) return printable(short);
    const isTooMany = this.#unknown.size >= mostUnknown;
    if (isTooMany || type === '' || type.length > longestTypeUrl || !this.#isServed(type)) return OTHER_TYPES;
    this.#unknown.add(type);
    return printable(short);
  }
}
