import type { Access } from '../model/access.ts';
import type { ConstraintsKey, ParametersKey, ResourceName } from '../model/brand.ts';
import type { Fault } from '../model/catalog.ts';
import { type Constraints, UNCONSTRAINED } from '../model/constraints.ts';
import type { Parameters } from '../model/parameters.ts';
import type { Variant } from '../model/resource.ts';
import type { Holder } from '../model/transaction.ts';
import { VariantIndex } from '../model/variant-index.ts';

/**
 * Who had it before a restart, or before its upstream was replaced: nobody has said since that it is still so. It has
 * the key of the holder that it stands for, who takes its place by delivering the variant again.
 */
export interface RestoredHolder extends Holder {
  readonly restored: true;
}

export function isRestored(holder: Holder): holder is RestoredHolder {
  return 'restored' in holder;
}

/** A variant and who has it. */
export interface Held {
  readonly constraints: Constraints;
  variant: Variant;
  readonly holders: Holder[];
  /** The last revision in which a holder confirmed it: what a full state does not confirm is gone. */
  seen: number;
}

/** This holder has it, too, or again; false if that is no news. */
export function addHolder(held: Held, holder: Holder): boolean {
  const at = held.holders.findIndex((known) => known.key === holder.key);
  if (at < 0) held.holders.push(holder);
  else held.holders[at] = holder;
  return at < 0;
}

export type Admitting = Pick<Access, 'admits'>;

/** Which variants may be chosen. */
export interface Among {
  /** Undefined: all are admitted. */
  readonly access: Admitting | undefined;
  /** Of those that the wildcard has, if there are any. */
  readonly collected: boolean;
  /** Of those that have this alias. */
  readonly alias?: ResourceName;
}

/** Every variant. */
export const ALL: Among = { access: undefined, collected: false };

/** All that is cached under one name. */
export class Cell {
  readonly variants = new VariantIndex<Held>();
  faults: Map<ConstraintsKey, Fault> | undefined;
  /**
   * Which of several matching variants a parameter set gets (protocol §5, Ambiguity): sticky while it matches. Only
   * what is ambiguous is recorded.
   */
  #bindings: Map<ParametersKey, ConstraintsKey> | undefined;

  get empty(): boolean {
    return this.variants.size === 0 && this.faults === undefined;
  }

  get ambiguous(): number {
    return this.#bindings?.size ?? 0;
  }

  get bindings(): ReadonlyMap<ParametersKey, ConstraintsKey> | undefined {
    return this.#bindings;
  }

  restoreBindings(bindings: Iterable<readonly [ParametersKey, ConstraintsKey]>): void {
    const known = [...bindings].filter(([, variant]) => this.variants.get(variant) !== undefined);
    if (known.length > 0) this.#bindings = new Map(known);
  }

  bind(parameters: Parameters, variant: Held): void {
    this.#bindings ??= new Map();
    this.#bindings.set(parameters.key, variant.constraints.key);
  }

  /** Nobody has these parameters any more. */
  unbind(parameters: Parameters): void {
    this.#bindings?.delete(parameters.key);
    if (this.#bindings?.size === 0) this.#bindings = undefined;
  }

  /** What `pick` would give; nothing is recorded. */
  peek(parameters: Parameters, among: Among = ALL): Held | undefined {
    const matches = this.#match(parameters, among);
    const bound = this.#bindings?.get(parameters.key);
    return matches.find((held) => held.constraints.key === bound) ?? matches[0];
  }

  /** The variant for these parameters; `ambiguous` hears of a choice that was not recorded yet. */
  pick(
    parameters: Parameters,
    ambiguous: (matches: readonly Held[]) => void,
    among: Among = ALL,
  ): Held | undefined {
    const all = this.#match(parameters, among);
    if (all.length <= 1) return all[0];
    const matches = among.collected && all.some(heldByWildcard) ? all.filter(heldByWildcard) : all;
    const bound = this.#bindings?.get(parameters.key);
    const known = bound === undefined ? undefined : all.find((held) => held.constraints.key === bound);
    if (known !== undefined) return matches.includes(known) ? known : matches[0];
    const [lowest] = matches;
    if (lowest === undefined || matches.length === 1) return lowest;
    // Others have these parameters, too: what they were given stays, though it is not to be chosen from here.
    if (bound !== undefined && this.#isExcluded(bound, parameters, among)) return lowest;
    this.bind(parameters, lowest);
    ambiguous(matches);
    return lowest;
  }

  #isExcluded(key: ConstraintsKey, parameters: Parameters, among: Among): boolean {
    const held = this.variants.get(key);
    return held?.constraints.matches(parameters) === true && !isAmong(held, parameters, among);
  }

  #match(parameters: Parameters, among: Among = ALL): readonly Held[] {
    const all = this.variants.match(parameters);
    const matches = among === ALL ? all : all.filter((held) => isAmong(held, parameters, among));
    if (matches.length <= 1) return matches;
    const chosen = matches.filter((held) => held.holders.some((holder) => holder.parameters === parameters));
    return chosen.length === 0 ? matches : chosen;
  }

  remove(held: Held): void {
    this.variants.delete(held.constraints.key);
    if (this.#bindings === undefined) return;
    for (const [parameters, variant] of this.#bindings) {
      if (variant === held.constraints.key || this.variants.size < 2) this.#bindings.delete(parameters);
    }
    if (this.#bindings.size === 0) this.#bindings = undefined;
  }

  clearFaults(constraints: Constraints): void {
    if (this.faults === undefined) return;
    this.faults.delete(constraints.key);
    this.faults.delete(UNCONSTRAINED.key);
    if (this.faults.size === 0) this.faults = undefined;
  }
}

export function heldByWildcard(held: Held): boolean {
  return held.holders.some((holder) => holder.role === 'wildcard');
}

/** Where a variant of the wildcard is hidden, no other takes its place there. */
const isAmong = (held: Held, parameters: Parameters, { access, alias, collected }: Among): boolean =>
  (alias === undefined || held.variant.aliases.includes(alias)) &&
  (access === undefined || ((!collected || heldByWildcard(held)) && access.admits(held.variant, parameters)));
