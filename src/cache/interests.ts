import { type ConstraintsKey, type ResourceName, resourceName } from '../model/brand.ts';
import type { Content } from '../model/change.ts';
import type { Constraints } from '../model/constraints.ts';
import { deleteIn, getOrMake } from '../model/maps.ts';
import { ParameterIndex } from '../model/parameter-index.ts';
import type { Parameters } from '../model/parameters.ts';
import type { Variant } from '../model/resource.ts';
import { type HeldVariant, isHeldByWildcard } from '../model/rollout.ts';
import { type Holder, type Interest, type Selector, WILDCARD } from '../model/transaction.ts';
import { parentGlob } from '../model/xdstp.ts';

/** What is known of one interest. */
export interface InterestState {
  readonly interest: Interest;
  /**
   * Upstream has answered it: what is not cached is absent (protocol §3.9). `restored`: before a restart, or an upstream
   * that was replaced, or another relay has; its present upstream has not confirmed it.
   */
  answer: 'restored' | 'confirmed' | undefined;
  /** The holder that answered it; undefined: none has yet. */
  holder: Holder | undefined;
}

type Seen = Pick<Variant, 'name' | 'constraints' | 'aliases'>;

/** All interests in one type, found by name and by what a variant's constraints match. */
export class Interests {
  readonly #bySelector = new Map<Selector, ParameterIndex<InterestState>>();

  get empty(): boolean {
    return this.#bySelector.size === 0;
  }

  get(selector: Selector, parameters: Parameters): InterestState | undefined {
    return this.#bySelector.get(selector)?.get(parameters);
  }

  add(interest: Interest): InterestState {
    const index = getOrMake(this.#bySelector, interest.selector, () => new ParameterIndex());
    const state: InterestState = { interest, answer: undefined, holder: undefined };
    index.set(interest.parameters, state);
    return state;
  }

  /** Another session will answer it: until then it is unknown. */
  forgetAnswer({ selector, parameters }: Interest): void {
    const state = this.get(selector, parameters);
    if (state === undefined) return;
    state.answer = undefined;
    state.holder = undefined;
  }

  /** False if it was not there. */
  delete(interest: Interest): boolean {
    return deleteIn(this.#bySelector, interest.selector, interest.parameters);
  }

  *all(): Iterable<InterestState> {
    for (const index of this.#bySelector.values()) yield* index.values();
  }

  /** Whether one with these parameters sees the name. */
  sees(name: ResourceName, parameters: Parameters): boolean {
    return selectorsOver(name).some((selector) => this.get(selector, parameters) !== undefined);
  }

  /** The interests that name it exactly. */
  named(name: ResourceName): ParameterIndex<InterestState> | undefined {
    return this.#bySelector.get(name);
  }

  /** Whether a wildcard would show a variant with these constraints. */
  hasWildcard(constraints: Constraints): boolean {
    return this.#wildcards(constraints).some(() => true);
  }

  /** Every interest that sees a variant of this name: by name, wildcard or glob. */
  *seeing(name: ResourceName, constraints: Constraints): Iterable<InterestState> {
    for (const selector of selectorsOver(name)) yield* this.named(selector)?.matching(constraints) ?? [];
  }

  /** Every interest that sees a variant: by its name, an alias, a wildcard or a glob. */
  *seeingVariant(variant: Seen): IteratorObject<InterestState, undefined> {
    yield* this.seeing(variant.name, variant.constraints);
    for (const alias of variant.aliases)
      yield* this.named(resourceName(alias))?.matching(variant.constraints) ?? [];
  }

  /** The same without wildcards. */
  *#naming({ name, aliases, constraints }: Seen): IteratorObject<InterestState, undefined> {
    for (const selector of [...selectorsOver(name), ...aliases.map(resourceName)])
      if (selector !== WILDCARD) yield* this.named(selector)?.matching(constraints) ?? [];
  }

  *#wildcards(constraints: Constraints): IteratorObject<InterestState, undefined> {
    yield* this.named(WILDCARD)?.matching(constraints) ?? [];
  }

  /**
   * Of one commit: whether it says a variant first, to those whom nothing had been answered, and who had nothing in `before`
   * of its name. `answered`: interests that were answered with it. A wildcard over delta is answered later.
   */
  saidFirst(answered: ReadonlySet<Interest>): (held: HeldVariant, before: Content) => boolean {
    const wasAnswered = ({ interest, answer }: InterestState): boolean =>
      answer !== undefined && !answered.has(interest);
    // Looked at once: 40,000 names may have the same constraints, which a thousand wildcards match.
    const wildcards = new Map<ConstraintsKey, boolean>();
    const wasShown = (constraints: Constraints): boolean =>
      getOrMake(wildcards, constraints.key, () => this.#wildcards(constraints).some(wasAnswered));
    return (held, before) => {
      const { variant } = held;
      const isMember = isHeldByWildcard(held);
      if (isMember && wasShown(variant.constraints)) return false;
      if (this.#naming(variant).some(wasAnswered)) return false;
      const hadNothing = ({ interest: { parameters } }: InterestState): boolean =>
        !before.some((one) => one.variant.constraints.matches(parameters));
      return (
        this.#naming(variant).some(hadNothing) ||
        (isMember && this.#wildcards(variant.constraints).some(hadNothing))
      );
    };
  }

  /** Whether any interest sees a variant, by its name or an alias. */
  anySees({ name, constraints, aliases }: Seen): boolean {
    for (const _ of this.seeing(name, constraints)) return true;
    return aliases.some((alias) => this.named(resourceName(alias)) !== undefined);
  }
}

function selectorsOver(name: ResourceName): readonly Selector[] {
  const glob = parentGlob(name);
  return glob === undefined ? [name, WILDCARD] : [name, WILDCARD, glob];
}
