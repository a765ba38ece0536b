import type { ConstraintsKey, ResourceName } from '../../model/brand.ts';
import type { Constraints } from '../../model/constraints.ts';
import type { Move } from '../../model/transaction.ts';

/** One variant that a holder has. */
export interface HeldVariant {
  readonly name: ResourceName;
  readonly constraints: Constraints;
  /** The upstream's own version of it; empty where there is none. */
  version: string;
  /** When it was last confirmed; what that counts is its owner's. */
  mark: number;
  /** Selected by an alias: what it is known by upstream and what was asked for differ. */
  aliased: boolean;
  /** The next variant of this name: nearly always there is one only, so no Map for each name. */
  next: HeldVariant | undefined;
}

/** A variant in a set: its name and its constraints. */
export type VariantKey = string;

export function variantKey({ name, constraints }: Pick<HeldVariant, 'name' | 'constraints'>): VariantKey {
  return JSON.stringify([name, constraints.key]);
}

/** What the store has under one (holder, type), mirrored without the content: names, variants, versions. */
export class Held {
  readonly #first = new Map<ResourceName, HeldVariant>();
  #size = 0;

  /** Variants. */
  get size(): number {
    return this.#size;
  }

  has(name: ResourceName): boolean {
    return this.#first.has(name);
  }

  first(name: ResourceName): HeldVariant | undefined {
    return this.#first.get(name);
  }

  get(name: ResourceName, key: ConstraintsKey): HeldVariant | undefined {
    for (let held = this.#first.get(name); held !== undefined; held = held.next) {
      if (held.constraints.key === key) return held;
    }
    return undefined;
  }

  /** Of one name; it may change while this is read. */
  of(name: ResourceName): HeldVariant[] {
    const variants: HeldVariant[] = [];
    for (let held = this.#first.get(name); held !== undefined; held = held.next) variants.push(held);
    return variants;
  }

  *all(): Iterable<HeldVariant> {
    for (const first of this.#first.values()) {
      for (let held: HeldVariant | undefined = first; held !== undefined; held = held.next) yield held;
    }
  }

  put(name: ResourceName, constraints: Constraints, version: string, mark: number, aliased: boolean): void {
    const known = this.get(name, constraints.key);
    if (known !== undefined) {
      known.version = version;
      known.mark = mark;
      known.aliased = aliased;
      return;
    }
    this.#first.set(name, { name, constraints, version, mark, aliased, next: this.#first.get(name) });
    this.#size++;
  }

  delete(held: HeldVariant): void {
    const first = this.#first.get(held.name);
    if (first === held) {
      if (held.next === undefined) this.#first.delete(held.name);
      else this.#first.set(held.name, held.next);
      this.#size--;
      return;
    }
    for (let before = first; before !== undefined; before = before.next) {
      if (before.next !== held) continue;
      before.next = held.next;
      this.#size--;
      return;
    }
  }

  /** Puts everything under other constraints; what has none any more (undefined) is let go. */
  restamp(anew: (constraints: Constraints) => Constraints | undefined): Omit<Move, 'holder'>[] {
    const all = [...this.all()];
    this.clear();
    return all.map(({ name, constraints: from, version, mark, aliased }) => {
      const to = anew(from);
      if (to !== undefined) this.put(name, to, version, mark, aliased);
      return { name, from, to };
    });
  }

  clear(): void {
    this.#first.clear();
    this.#size = 0;
  }
}

/** The identities (name, constraints) seen so far in one response: none may come twice (protocol §4.9). */
export class Seen {
  readonly #keys = new Map<ResourceName, ConstraintsKey | Set<ConstraintsKey>>();

  /** False if it was there already. */
  add(name: ResourceName, key: ConstraintsKey): boolean {
    const known = this.#keys.get(name);
    if (known === undefined) this.#keys.set(name, key);
    else if (typeof known === 'string') {
      if (known === key) return false;
      this.#keys.set(name, new Set([known, key]));
    } else {
      if (known.has(key)) return false;
      known.add(key);
    }
    return true;
  }

  has(name: ResourceName, key: ConstraintsKey): boolean {
    const known = this.#keys.get(name);
    return typeof known === 'object' ? known.has(key) : known === key;
  }
}
