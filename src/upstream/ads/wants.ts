import { type ParametersKey, type ResourceName, resourceName } from '../../model/brand.ts';
import type { Constraints } from '../../model/constraints.ts';
import { ParameterIndex } from '../../model/parameter-index.ts';
import { NO_PARAMETERS, type Parameters } from '../../model/parameters.ts';
import { type Interest, type Selector, WILDCARD } from '../../model/transaction.ts';
import { globOver, isGlob } from '../../model/xdstp.ts';
import type { VariantKey } from './held.ts';

/**
 * One subscription as upstream sees it: a name, or in a NATIVE session with parameters a locator. Several interests
 * may share it, where a session shows fewer parameters than the clients have.
 */
export interface Ask {
  readonly selector: Selector;
  /** Sent with it; empty: subscribed by its plain name (protocol §5b). */
  readonly parameters: Parameters;
  readonly kind: 'name' | 'wildcard' | 'glob';
  readonly interests: Map<ParametersKey, Interest>;
  /** It was asked on some stream. */
  tried: boolean;
  /** Not asked on this stream, as nobody subscribes to it. */
  rests: boolean;
  /** Which subscription request of this stream named it, from 1; 0: none yet. */
  askedIn: number;
  /** Upstream answered it on this stream. */
  answered: boolean;
  /** Upstream answered it at some time: the store has been told. */
  known: boolean;
  /** What may be its answer has come since it was asked: a wildcard or glob is settled once that ends. */
  responded: boolean;
  /** A wildcard or glob: what must be in its answer, as upstream has sent it before, and has not come yet. */
  expected: Set<VariantKey>;
}

/** What is wanted of one type on one stream. */
export class Wants {
  readonly #bySelector = new Map<Selector, ParameterIndex<Ask>>();
  readonly #globs = new Set<Selector>();
  readonly #locators: boolean;
  /** What the store has not been told an answer for; usually little or nothing. */
  readonly unknown = new Set<Ask>();
  #size = 0;

  /** `locators`: parameters are sent (NATIVE). */
  constructor(locators: boolean) {
    this.#locators = locators;
  }

  /** Asks. */
  get size(): number {
    return this.#size;
  }

  get hasGlobs(): boolean {
    return this.#globs.size > 0;
  }

  get hasCollection(): boolean {
    return this.hasGlobs || this.#bySelector.has(WILDCARD);
  }

  /** The ask that covers this interest from now on, whether it is a new one, and whether it covered it before. */
  add(interest: Interest): { readonly ask: Ask; readonly created: boolean; readonly again: boolean } {
    const { selector } = interest;
    const parameters = this.#locators ? interest.parameters : NO_PARAMETERS;
    const asks = this.#bySelector.get(selector) ?? new ParameterIndex<Ask>();
    this.#bySelector.set(selector, asks);
    const known = asks.get(parameters);
    if (known !== undefined) {
      const again = known.interests.has(interest.parameters.key);
      known.interests.set(interest.parameters.key, interest);
      return { ask: known, created: false, again };
    }
    const glob = isGlob(selector);
    const ask: Ask = {
      selector,
      parameters,
      kind: selector === WILDCARD ? 'wildcard' : glob ? 'glob' : 'name',
      interests: new Map([[interest.parameters.key, interest]]),
      tried: false,
      rests: false,
      askedIn: 0,
      answered: false,
      known: false,
      responded: false,
      expected: new Set(),
    };
    asks.set(parameters, ask);
    if (glob) this.#globs.add(selector);
    this.unknown.add(ask);
    this.#size++;
    return { ask, created: true, again: false };
  }

  /** The ask that nobody is interested in any more; undefined if others are. */
  delete(interest: Interest): Ask | undefined {
    const { selector } = interest;
    const parameters = this.#locators ? interest.parameters : NO_PARAMETERS;
    const asks = this.#bySelector.get(selector);
    const ask = asks?.get(parameters);
    if (asks === undefined || ask === undefined) return undefined;
    ask.interests.delete(interest.parameters.key);
    if (ask.interests.size > 0) return undefined;
    asks.delete(parameters);
    if (asks.size === 0) {
      this.#bySelector.delete(selector);
      this.#globs.delete(selector);
    }
    this.unknown.delete(ask);
    this.#size--;
    return ask;
  }

  *all(): IteratorObject<Ask, undefined> {
    for (const asks of this.#bySelector.values()) yield* asks.values();
  }

  /** The ask that covers this interest. */
  covering({ selector, parameters }: Interest): Ask | undefined {
    return this.#bySelector.get(selector)?.get(this.#locators ? parameters : NO_PARAMETERS);
  }

  has(ask: Ask): boolean {
    return this.#bySelector.get(ask.selector)?.get(ask.parameters) === ask;
  }

  /** The asks that name it, with whatever parameters. */
  named(name: string): readonly Ask[] {
    const asks = this.#bySelector.get(resourceName(name));
    return asks === undefined ? [] : [...asks.values()];
  }

  /** The asks that select this variant by its name or an alias, a glob or the wildcard. */
  selecting(name: ResourceName, aliases: readonly string[], constraints: Constraints): Ask[] {
    const found: Ask[] = [];
    for (const selector of [name, ...aliases]) this.#collect(found, resourceName(selector), constraints);
    if (name !== WILDCARD) this.#collect(found, WILDCARD, constraints);
    const glob = this.hasGlobs ? globOver(name) : undefined;
    if (glob !== undefined) this.#collect(found, glob, constraints);
    return found;
  }

  /** Whether anybody asked for something of this name. Variants of it are wanted whatever they match. */
  wants(name: ResourceName, aliases: readonly string[]): boolean {
    if (this.#bySelector.has(WILDCARD) || this.#bySelector.has(name)) return true;
    if (aliases.some((alias) => this.#bySelector.has(resourceName(alias)))) return true;
    const glob = this.hasGlobs ? globOver(name) : undefined;
    return glob !== undefined && this.#globs.has(glob);
  }

  /** The wildcards and globs over a name, with whatever parameters. */
  collecting(name: ResourceName): readonly Ask[] {
    const glob = this.hasGlobs ? globOver(name) : undefined;
    const all = this.named(WILDCARD);
    return glob === undefined ? all : [...all, ...this.named(glob)];
  }

  /** The asks that name it, and are for a variant with these constraints. */
  naming(name: ResourceName, constraints: Constraints): Ask[] {
    const found: Ask[] = [];
    this.#collect(found, name, constraints);
    return found;
  }

  /** Whether locators with parameters are among what names it. */
  locates(name: ResourceName): boolean {
    return this.named(name).some((ask) => ask.parameters !== NO_PARAMETERS);
  }

  #collect(found: Ask[], selector: Selector, constraints: Constraints): void {
    const asks = this.#bySelector.get(selector);
    if (asks === undefined) return;
    for (const ask of this.#locators ? asks.matching(constraints) : asks.values()) found.push(ask);
  }
}

/** Asked again, as somebody subscribes to it again. */
export function awaken(state: { readonly fresh: Set<Ask> }, ask: Ask): void {
  ask.rests = false;
  state.fresh.add(ask);
}

/** Once more for a name that is asked for already. It is taken back first: not all servers answer otherwise. */
export function askAgain(state: { readonly fresh: Set<Ask>; readonly dropped: Ask[] }, ask: Ask): void {
  if (ask.kind !== 'name' || ask.askedIn === 0 || state.fresh.has(ask)) return;
  state.fresh.add(ask);
  state.dropped.push(ask);
}

/** Who waits for an answer about one of these names still. */
export function pendingOf(wants: Wants, names: Iterable<{ readonly name: ResourceName }>): Interest[] {
  if (wants.unknown.size === 0) return [];
  const pending = new Set<Interest>();
  for (const name of new Set(Iterator.from(names).map((one) => one.name))) {
    for (const ask of wants.named(name)) {
      if (!ask.known) for (const interest of ask.interests.values()) pending.add(interest);
    }
  }
  return [...pending];
}

/** Tells the store: these interests, where they are news. */
export function settle(wants: Wants, ask: Ask, settled: Interest[]): void {
  ask.answered = true;
  if (ask.known) return;
  ask.known = true;
  wants.unknown.delete(ask);
  settled.push(...ask.interests.values());
}
