import type { Ground, Snapshot } from './ground.ts';
import type { Selector, Type } from './policy.ts';
import { concerns, identityOf, isCollection, type Reference } from './reference.ts';

/** What a client holds of a type, against what it may see of what it asks for. */
export class Judgement {
  readonly #ground: Ground;
  readonly #reference: Reference;
  readonly #selectors: readonly Selector[];
  /** What the control plane has of the type. */
  readonly #current: readonly Snapshot[];

  constructor(ground: Ground, reference: Reference, type: Type, selectors: readonly Selector[]) {
    this.#ground = ground;
    this.#reference = reference;
    this.#selectors = selectors;
    this.#current = [...ground.current.values()].filter((one) => one.type === type);
  }

  /** `held`: the numbers of snapshots. `complete`: the client would be told if one of them went. */
  of(held: ReadonlySet<number>, complete: boolean): void {
    const shown = this.#shownBy(this.#selectors);
    this.#count(shown);
    for (const selector of this.#selectors) this.#hasAll(selector, held);
    for (const number of complete ? held : []) {
      if (shown.some((one) => one.number === number) || this.#isShared(number)) continue;
      throw new Error(`it still holds c${number}: ${JSON.stringify(this.#ground.snapshots[number])}`);
    }
  }

  /** It has an alias that is asked for, and that another resource has too: only one of them is told by it. */
  #isShared(number: number): boolean {
    const held = this.#ground.snapshots[number];
    if (held === undefined) return false;
    return this.#selectors.some((selector) => {
      if (isCollection(selector.name) || identityOf(selector.name) === identityOf(held.name)) return false;
      const others = this.#ground.snapshots.filter(
        (one) => one.type === held.type && identityOf(one.name) !== identityOf(held.name),
      );
      return concerns(selector, held) && others.some((one) => concerns(selector, one));
    });
  }

  #shownBy(selectors: readonly Selector[]): readonly Snapshot[] {
    return this.#current.filter((one) => selectors.some((selector) => this.#reference.shows(selector, one)));
  }

  /** Of variants that match alike any one will do: TP2 leaves it open. */
  #hasAll(selector: Selector, held: ReadonlySet<number>): void {
    const shown = this.#shownBy([selector]).filter((one) => !this.#isGoverned(selector, one));
    const groups = isCollection(selector.name)
      ? [...Map.groupBy(shown, ({ name }) => identityOf(name)).values()]
      : [shown].filter(({ length }) => length > 0);
    for (const group of groups) {
      const names = new Set(group.map(({ name }) => identityOf(name)));
      const alike = this.#shownBy(this.#selectors.filter((other) => this.#sharesWith(selector, other)));
      if (alike.some(({ name, number }) => names.has(identityOf(name)) && held.has(number))) continue;
      if (selector.parameters === undefined && this.#isAmbiguous(selector, names)) continue;
      throw new Error(`it lacks ${JSON.stringify(selector)}: ${JSON.stringify(group)}`);
    }
  }

  /** A plain name that is asked for says itself what is there, by the parameters of its authority. */
  #isGoverned({ name: by, parameters }: Selector, { name }: Snapshot): boolean {
    if (parameters !== undefined || !isCollection(by)) return false;
    return this.#selectors.some(
      (other) => other.parameters === undefined && identityOf(other.name) === identityOf(name),
    );
  }

  /** Under a plain name there is room for one variant, and so under a locator for its parameters. */
  #sharesWith(selector: Selector, other: Selector): boolean {
    if (selector.parameters === undefined) return other.parameters === undefined;
    return other.parameters !== undefined && this.#reference.asks(other) === this.#reference.asks(selector);
  }

  /** Where two match, one of them asked for by name and the other by an alias, a client has only the one. */
  #isAmbiguous(selector: Selector, names: ReadonlySet<string>): boolean {
    const matching = this.#current.filter(
      (one) => names.has(identityOf(one.name)) && this.#reference.matches(selector, one),
    );
    return matching.length > names.size;
  }

  #count(shown: readonly Snapshot[]): void {
    const { tally } = this.#ground;
    for (const one of this.#current) {
      const about = this.#selectors.filter((selector) => concerns(selector, one));
      if (about.length === 0) continue;
      const isShown = shown.includes(one);
      if (isShown) tally.count('resource that a subscription shows');
      else if (!this.#reference.allowsResource(one)) tally.count('resource that the rules hide');
      else if (!this.#reference.mayHave(one)) tally.count('resource that trusted parameters hide');
      else tally.count('resource of other parameters');
      if (about.every(({ name }) => isCollection(name) || identityOf(name) === identityOf(one.name)))
        continue;
      tally.count(isShown ? 'alias that leads to a resource' : 'alias that leads nowhere');
    }
  }
}
