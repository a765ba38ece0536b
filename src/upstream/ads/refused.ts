import type { ParametersKey, TypeUrl } from '../../model/brand.ts';
import type { Parameters } from '../../model/parameters.ts';
import type { Interest, Selector } from '../../model/transaction.ts';

/** Those with the same parameters. */
interface Alike {
  /** The parameter set that they need a session for. */
  readonly set: ParametersKey;
  readonly interests: Map<TypeUrl, Map<Selector, Interest>>;
}

/**
 * Interests that have no session, as all are in use. Clients can make them many, so each is found by a look, and so are
 * those that wait for the same session.
 */
export class Refused {
  readonly #alike = new Map<Parameters, Alike>();
  /** By the parameter set that they need a session for: who has waited for longest first. */
  readonly #waiting = new Map<ParametersKey, Set<Parameters>>();

  get empty(): boolean {
    return this.#alike.size === 0;
  }

  /** The parameter set that has waited for longest. */
  get first(): ParametersKey | undefined {
    return this.#waiting.keys().next().value;
  }

  /** Some wait for a session for this parameter set. */
  waits(set: ParametersKey): boolean {
    return this.#waiting.has(set);
  }

  /** `set`: what it needs a session for. */
  add(interest: Interest, set: ParametersKey): void {
    const { type, selector, parameters } = interest;
    const alike = this.#alike.get(parameters) ?? this.#create(parameters, set);
    const selectors = alike.interests.get(type) ?? new Map<Selector, Interest>();
    alike.interests.set(type, selectors);
    selectors.set(selector, interest);
  }

  has({ type, selector, parameters }: Interest): boolean {
    return this.#alike.get(parameters)?.interests.get(type)?.has(selector) === true;
  }

  /** False if it was not refused. */
  delete({ type, selector, parameters }: Interest): boolean {
    const alike = this.#alike.get(parameters);
    const selectors = alike?.interests.get(type);
    if (alike === undefined || selectors?.delete(selector) !== true) return false;
    if (selectors.size === 0) alike.interests.delete(type);
    if (alike.interests.size === 0) this.#drop(parameters, alike);
    return true;
  }

  /** At most so many of those that wait for this parameter set, which are not refused any more. */
  take(set: ParametersKey, most: number): readonly Interest[] {
    const taken = this.#of(set).take(most).toArray();
    for (const interest of taken) this.delete(interest);
    return taken;
  }

  /** All of them, which are not refused any more. */
  takeAll(): readonly Interest[] {
    const all = this.#waiting
      .keys()
      .flatMap((set) => this.#of(set))
      .toArray();
    this.#alike.clear();
    this.#waiting.clear();
    return all;
  }

  /** The distinct parameters, at most so many. */
  parameters(most: number): readonly ParametersKey[] {
    return this.#alike
      .keys()
      .map(({ key }) => key)
      .take(most)
      .toArray();
  }

  #create(parameters: Parameters, set: ParametersKey): Alike {
    const alike: Alike = { set, interests: new Map() };
    this.#alike.set(parameters, alike);
    const waiting = this.#waiting.get(set) ?? new Set<Parameters>();
    this.#waiting.set(set, waiting);
    waiting.add(parameters);
    return alike;
  }

  #drop(parameters: Parameters, { set }: Alike): void {
    this.#alike.delete(parameters);
    const waiting = this.#waiting.get(set);
    waiting?.delete(parameters);
    if (waiting?.size === 0) this.#waiting.delete(set);
  }

  *#of(set: ParametersKey): Generator<Interest, undefined> {
    for (const parameters of this.#waiting.get(set) ?? []) {
      for (const selectors of this.#alike.get(parameters)?.interests.values() ?? [])
        yield* selectors.values();
    }
  }
}
