import { allNames } from './arbitrary.ts';
import type { Ground } from './ground.ts';
import { type Selector, type Type, types } from './policy.ts';
import { identityOf, type Reference } from './reference.ts';
import { stringsIn } from './strings.ts';

/** Looks through everything that one client is sent for what it may not see. */
export class Leaks {
  readonly #world: Ground;
  /** What it named itself, and what it has rightly been told of. */
  readonly #known = new Map<Type, Set<string>>(types.map((one) => [one, new Set()]));

  constructor(world: Ground) {
    this.#world = world;
  }

  asks(short: Type, selectors: readonly Selector[]): void {
    for (const { name } of selectors) this.#of(short).add(identityOf(name));
  }

  /** By any of the references. `held`: the numbers of the snapshots that it has already. */
  look(short: Type, bytes: Buffer, references: readonly Reference[], held: ReadonlySet<number>): void {
    const text = bytes.toString('latin1');
    for (const [found, digits] of text.matchAll(/[cv](\d+);/g)) {
      const snapshot = this.#world.snapshots[Number(digits)];
      if (snapshot === undefined) throw new Error(`${found} is nobody's`);
      // Its parameters may have changed: until it is removed it may be repeated, but not if the rules deny it now.
      const repeated = held.has(snapshot.number) && references.some((one) => one.allowsResource(snapshot));
      if (snapshot.type !== short || (!references.some((one) => one.mayHave(snapshot)) && !repeated)) {
        throw new Error(`leak: ${found} of ${JSON.stringify(snapshot)} in a message of ${short}`);
      }
      for (const name of [snapshot.name, ...snapshot.aliases]) this.#of(short).add(identityOf(name));
    }
    this.lookAtText(text, references);
    this.#lookAtNames(short, bytes, references);
  }

  lookAtText(text: string, references: readonly Reference[]): void {
    for (const [found, digits] of text.matchAll(/f(\d+);/g)) {
      const error = this.#world.errors[Number(digits)];
      if (error === undefined || !references.some((one) => one.allows(error.type, error.name))) {
        throw new Error(`leak: ${found}, an error about ${JSON.stringify(error)}`);
      }
      this.#world.tally.count('error told');
      this.#of(error.type).add(identityOf(error.name));
    }
  }

  #lookAtNames(short: Type, bytes: Buffer, references: readonly Reference[]): void {
    for (const found of stringsIn(bytes)) {
      const name = identityOf(found);
      if (!namesOf(short).has(name) || this.#of(short).has(name)) continue;
      const visible = [...this.#world.current.values()].some(
        (one) =>
          one.type === short &&
          [one.name, ...one.aliases].some((own) => identityOf(own) === name) &&
          references.some((reference) => reference.mayHave(one)),
      );
      if (!visible) throw new Error(`leak: the name ${found} of ${short}`);
    }
  }

  #of(short: Type): Set<string> {
    const known = this.#known.get(short);
    if (known === undefined) throw new Error(short);
    return known;
  }
}

const namesOf = (short: Type): ReadonlySet<string> => identities.get(short) ?? new Set();

const identities = new Map(types.map((one) => [one, new Set(allNames.get(one)?.map(identityOf))]));
