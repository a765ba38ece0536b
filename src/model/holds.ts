import type { ResourceName, TypeUrl } from './brand.ts';
import { deleteIn, getOrMake } from './maps.ts';
import type { Variant } from './resource.ts';
import { fail, ok, type Result } from './result.ts';
import { typeInfo } from './types.ts';

/** Which of the held names. What is left out matches all. */
export interface Scope {
  readonly type?: TypeUrl | undefined;
  readonly upstream?: string | undefined;
}

export type TypedName = Pick<Variant, 'type' | 'name'>;

/** One name of one type, as the key of sets. */
export const nameKey = (type: TypeUrl, name: ResourceName): string => `${type} ${name}`;

/** Of an operator: who, as far as that is known, and why. */
export type Decision = Readonly<Record<'operator' | 'reason', string>>;

/** What an operator has frozen. */
export interface Freeze extends Scope, Decision {
  /** Milliseconds since the epoch. */
  readonly since: number;
}

/** What operators keep from everybody, whatever upstream says: what is frozen, and names of which a rollback has removed all or some variants. */
export class Holds {
  #freezes: readonly Freeze[] = [];
  readonly #withheld = new Map<TypeUrl, Set<ResourceName>>();

  get freezes(): readonly Freeze[] {
    return this.#freezes;
  }

  isFrozen(type: TypeUrl, upstream: string | undefined): boolean {
    return this.#freezes.some((freeze) => includes(freeze, { type, upstream }));
  }

  /** From before a restart. */
  restore(freezes: readonly Freeze[], withheld: Iterable<TypedName>): void {
    this.#freezes = freezes;
    for (const one of withheld) this.setWithheld(one, true);
  }

  /** The error: it is frozen already. */
  freeze({ type, upstream }: Scope, { operator, reason }: Decision, since: number): Result<undefined> {
    const known = this.#freezes.find((other) => includes(other, { type, upstream }));
    if (known !== undefined) {
      const at = new Date(known.since).toISOString();
      return fail(
        `${scopeText(known)} is already frozen, since ${at}, by ${known.operator} (${known.reason})`,
      );
    }
    this.#freezes = [...this.#freezes, { type, upstream, operator, reason, since }];
    return ok(undefined);
  }

  /** What one upstream serves another one does from now on: what is frozen of that is frozen of this, too. */
  follow(upstream: string, successor: string, type: TypeUrl): void {
    const own = this.#freezes.filter(
      (freeze) => freeze.upstream === upstream && includes(freeze, { type, upstream }),
    );
    const isNew = ({ type }: Freeze): boolean =>
      !this.#freezes.some((other) => includes(other, { type, upstream: successor }));
    const added = own
      .filter(isNew)
      .map(({ type, operator, reason, since }) => ({ type, upstream: successor, operator, reason, since }));
    if (added.length > 0) this.#freezes = [...this.#freezes, ...added];
  }

  /** Ends the freeze of this scope; without one, all. The error: there is none. */
  unfreeze(scope: Scope): Result<readonly Freeze[]> {
    const removed = this.#freezes.filter((freeze) => isEverything(scope) || isSame(freeze, scope));
    if (removed.length === 0) {
      const frozen = this.#freezes.map(scopeText).join(', ');
      return fail(
        frozen === ''
          ? 'nothing is frozen'
          : `${scopeText(scope)} is not frozen: what is frozen is ${frozen}`,
      );
    }
    this.#freezes = this.#freezes.filter((freeze) => !removed.includes(freeze));
    return ok(removed);
  }

  /**
   * Names of which a rollback has removed all or some variants. Some clients have nothing of them, but what is removed is
   * not new: it stays away until the gate opens, also when upstream removes it and says it again, and after a restart.
   */
  *withheld(): Iterable<TypedName> {
    for (const [type, names] of this.#withheld) for (const name of names) yield { type, name };
  }

  isWithheld(type: TypeUrl, name: ResourceName): boolean {
    return this.#withheld.get(type)?.has(name) === true;
  }

  setWithheld({ type, name }: TypedName, withheld: boolean): void {
    if (withheld) getOrMake(this.#withheld, type, () => new Set()).add(name);
    else deleteIn(this.#withheld, type, name);
  }
}

/** `cds of central`, `everything`. */
export function scopeText({ type, upstream }: Scope): string {
  const what = type === undefined ? 'everything' : typeInfo(type).short;
  return upstream === undefined ? what : `${what} of ${upstream}`;
}

/** Whether all that `inner` names is in `outer`. */
export function includes(outer: Scope, inner: Scope): boolean {
  const type = outer.type === undefined || outer.type === inner.type;
  return type && (outer.upstream === undefined || outer.upstream === inner.upstream);
}

export const isEverything = ({ type, upstream }: Scope): boolean =>
  type === undefined && upstream === undefined;

const isSame = (a: Scope, b: Scope): boolean => a.type === b.type && a.upstream === b.upstream;
