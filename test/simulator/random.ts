/** Randomness that a seed decides. Nothing in the simulator draws from anywhere else. */
export class Random {
  #state: number;

  constructor(...seed: readonly (number | string)[]) {
    this.#state = digest(seed);
  }

  /** 0 ≤ x < 1. */
  next(): number {
    this.#state = (this.#state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(this.#state ^ (this.#state >>> 15), 1 | this.#state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  }

  /** 0 … below. */
  below(limit: number): number {
    return Math.floor(this.next() * limit);
  }

  between(least: number, most: number): number {
    return least + this.below(most - least + 1);
  }

  chance(probability: number): boolean {
    return this.next() < probability;
  }

  pick<T>(list: readonly T[]): T {
    const picked = list[this.below(list.length)];
    if (picked === undefined) throw new Error('nothing to pick from');
    return picked;
  }

  /** Each kept with this probability, in order. */
  some<T>(list: readonly T[], probability: number): T[] {
    return list.filter(() => this.chance(probability));
  }
}

/** FNV-1a over the parts: the same decision whatever was decided before. */
function digest(parts: readonly (number | string)[]): number {
  let value = 0x811c9dc5;
  for (const character of parts.join('|')) {
    value = Math.imul(value ^ (character.codePointAt(0) ?? 0), 0x01000193);
  }
  return value >>> 0;
}
