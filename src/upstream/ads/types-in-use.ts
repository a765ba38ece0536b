import type { TypeUrl } from '../../model/brand.ts';

const leastRoom = 256;

/** Something for each type. A client may invent types, so those that are not used any more go when there are many. */
export class TypesInUse<Value> extends Map<TypeUrl, Value> {
  #room = leastRoom;

  /** Costs little each time: it looks through all only when they have doubled. True: some are dropped. */
  dropUnused(isUnused: (value: Value) => boolean): boolean {
    const { size } = this;
    if (size <= this.#room) return false;
    for (const [type, value] of this) if (isUnused(value)) this.delete(type);
    this.#room = Math.max(leastRoom, 2 * this.size);
    return this.size < size;
  }
}
