import type { Selection } from '../model/selection.ts';
import type { Subscriber } from '../model/subscription.ts';
import type { Payer } from '../model/time-slices.ts';

/** In bytes, measured. A name: with its interest here and upstream (SECURITY.md). A member: a resource of a wildcard or glob. */
const costs = { view: 4096, name: 2600, character: 8, member: 280 } as const;
/** A change by a smaller share of what is paid does not count. */
const leastShare = 0.1;
const fewUsers = 8;

/** `isUnused`: a view that nobody has. */
type User = Pick<Subscriber, 'payer'> & { readonly isUnused?: boolean };

/** Whose account a view's memory goes to: that of the only peer that uses it. What several share counts for none of them. */
export class Payment {
  readonly #selection: Selection;
  #payer: Payer | undefined;
  /** Bytes. */
  #paid = 0;

  /** `selection`: of the view. */
  constructor(selection: Selection) {
    this.#selection = selection;
  }

  get payer(): Payer | undefined {
    return this.#payer;
  }

  /**
   * The users have changed, and `payer` is that of one of them. Of many not all are looked at: others have nearly always a
   * part. `members`: resources that are shown by wildcards and globs. True: another one pays now.
   */
  usedBy(payer: Payer | undefined, users: readonly ReadonlySet<User>[], members: number): boolean {
    const count = users.reduce((sum, some) => sum + some.size, 0);
    const shared = payer === this.#payer ? payer : undefined;
    const next = count <= fewUsers ? onlyPayer(users) : shared;
    if (next === this.#payer) return false;
    this.#payer?.keeps(-this.#paid);
    this.#payer = next;
    this.#paid = this.#costOf(members);
    next?.keeps(this.#paid);
    return true;
  }

  /** It shows more or fewer members. */
  renew(members: number): void {
    if (this.#payer === undefined) return;
    const more = this.#costOf(members) - this.#paid;
    if (Math.abs(more) <= leastShare * this.#paid) return;
    this.#payer.keeps(more);
    this.#paid += more;
  }

  #costOf(members: number): number {
    const { size, length } = this.#selection;
    return costs.view + size * costs.name + length * costs.character + members * costs.member;
  }
}

function onlyPayer(users: readonly ReadonlySet<User>[]): Payer | undefined {
  const all = users.flatMap((some) => [...some]).filter(({ isUnused }) => isUnused !== true);
  const payers = new Set(all.map(({ payer }) => payer));
  const [only] = payers;
  return payers.size === 1 ? only : undefined;
}
