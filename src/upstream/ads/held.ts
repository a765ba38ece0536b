import type { ConstraintsKey, ResourceName } from '../../model/brand.ts';
import type { Constraints } from '../../model/constraints.ts';
import { GlobIndex } from '../../model/glob-index.ts';
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
}

/** A variant in a set: its name and its constraints. */
export type VariantKey = string;

export function variantKey({ name, constraints }: Pick<HeldVariant, 'name' | 'constraints'>): VariantKey {
  return JSON.stringify([name, constraints.key]);
}

/** What the store has under one (holder, type), mirrored without the content: names, variants, versions. */
export class Held {
  /** Nearly always a name has one variant only, so no Map for each. */
  readonly #names = new Map<ResourceName, HeldVariant | Map<ConstraintsKey, HeldVariant>>();
  readonly #globs = new GlobIndex();
  #size = 0;

  /** Variants. */
  get size(): number {
    return this.#size;
  }

  has(name: ResourceName): boolean {
    return this.#names.has(name);
  }

  /** Whether its name has no other variant. */
  isOnly(held: HeldVariant): boolean {
    return this.#names.get(held.name) === held;
  }

  get(name: ResourceName, key: ConstraintsKey): HeldVariant | undefined {
    const held = this.#names.get(name);
    if (held instanceof Map) return held.get(key);
    return held?.constraints.key === key ? held : undefined;
  }

  /** Of one name, the newest first; it may change while this is read. */
  of(name: ResourceName): HeldVariant[] {
    const held = this.#names.get(name);
    if (held === undefined) return [];
    return held instanceof Map ? [...held.values()].toReversed() : [held];
  }

  /** Of all names that a glob selects. */
  under(glob: ResourceName): HeldVariant[] {
    return [...this.#globs.under(glob)].flatMap((name) => this.of(name));
  }

  *all(): Iterable<HeldVariant> {
    for (const held of this.#names.values()) {
      if (held instanceof Map) yield* held.values();
      else yield held;
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
    this.#size++;
    const created: HeldVariant = { name, constraints, version, mark, aliased };
    const others = this.#names.get(name);
    if (others instanceof Map) others.set(constraints.key, created);
    else if (others === undefined) {
      this.#names.set(name, created);
      this.#globs.add(name);
    } else {
      this.#names.set(
        name,
        new Map([
          [others.constraints.key, others],
          [constraints.key, created],
        ]),
      );
    }
  }

  delete({ name, constraints }: HeldVariant): void {
    const held = this.#names.get(name);
    if (held === undefined) return;
    if (held instanceof Map) {
      if (!held.delete(constraints.key)) return;
      const [last] = held.values();
      if (held.size === 1 && last !== undefined) this.#names.set(name, last);
    } else if (held.constraints.key === constraints.key) {
      this.#names.delete(name);
      this.#globs.delete(name);
    } else return;
    this.#size--;
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
    this.#names.clear();
    this.#globs.clear();
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
