import type { TypeUrl } from '../model/brand.ts';
import { includes } from '../model/holds.ts';
import { getOrMake } from '../model/maps.ts';
import type { Gate, PendingName, RemovalCount } from '../model/rollout.ts';
import { typeInfo } from '../model/types.ts';
import type { HeldRemovals } from '../model/upstream.ts';
import type { Change } from './changes.ts';
import { type HeardChange, type Opinion, objection, type VerdictSource } from './sources.ts';

/** As configured of an upstream. */
export interface RemovalLimit {
  /** The upstream's. */
  readonly name: string;
  /** Of the resources of a type that are released; undefined: there is no limit. */
  readonly maxRemovalPercent?: number | undefined;
  /** After so many milliseconds it is no objection any more. */
  readonly maxRemovalHoldMs: number;
}

interface Excess extends HeldRemovals {
  readonly released: number;
  readonly limit: RemovalLimit;
  readonly names: readonly PendingName[];
}

/** A removal that is judged. */
interface JudgedRemoval {
  readonly since: number;
  /** An operator has let it through. */
  isWaived: boolean;
}

/** All that waits of an upstream and a type. `unjudged`: what of it no operator has let through. */
interface Removals extends RemovalCount {
  readonly unjudged: readonly PendingName[];
}

/** Holds a change that removes more than `max_removal_percent` of what its upstream has of a type. */
export class RemovalLimits implements VerdictSource {
  readonly #gate: Gate;
  readonly #limits: () => readonly RemovalLimit[];
  /** Of what waits now, by upstream and type. */
  readonly #excesses = new Map<string, Excess>();
  /** By `nameKey`. What is frozen or queued waits for something else, and is judged anew after that. */
  #judged: ReadonlyMap<string, JudgedRemoval> = new Map();

  constructor(gate: Gate, limits: () => readonly RemovalLimit[]) {
    this.#gate = gate;
    this.#limits = limits;
  }

  look(changes: readonly HeardChange[], _frozen: unknown, now: number): readonly (Opinion | undefined)[] {
    this.#excesses.clear();
    const removed = changes.flatMap(({ change }) => change.names.filter((one) => one.removed));
    const judgedOf = ({ key, since }: PendingName): JudgedRemoval => {
      const known = this.#judged.get(key);
      // Upstream may have taken it back since the last look, and removed it again.
      return known !== undefined && known.since >= since ? known : { since: now, isWaived: false };
    };
    this.#judged = new Map(removed.map((one) => [one.key, judgedOf(one)]));
    const known = new Map<string, Removals>();
    const removals = (upstream: string, type: TypeUrl): Removals =>
      getOrMake(known, keyOf(upstream, type), () => {
        const own = removed.filter((one) => one.upstream === upstream && one.type === type);
        const unjudged = own.filter((one) => this.#isUnjudged(one));
        return { ...this.#gate.removals({ upstream, type }), unjudged };
      });
    return changes.map(({ change }) => {
      const all = [...this.#excessesOf(change, now, removals)];
      for (const one of all) {
        const key = keyOf(one.limit.name, one.type);
        if (!this.#excesses.has(key)) this.#excesses.set(key, one);
      }
      const [first] = all;
      return objection(first && { cause: 'removals', reason: textOf(first), names: change.keys });
    });
  }

  /** What a change removes too much of. What has waited for long enough is no reason any more. */
  *#excessesOf(
    { names }: Change,
    now: number,
    removals: (upstream: string, type: TypeUrl) => Removals,
  ): Iterable<Excess> {
    for (const limit of this.#limits()) {
      const { name: upstream, maxRemovalPercent, maxRemovalHoldMs } = limit;
      if (maxRemovalPercent === undefined) continue;
      const sinceOf = ({ key, since }: PendingName): number => this.#judged.get(key)?.since ?? since;
      const isRecent = (one: PendingName): boolean => now < sinceOf(one) + maxRemovalHoldMs;
      const own = names.filter((one) => this.#isUnjudged(one) && one.upstream === upstream && isRecent(one));
      for (const type of new Set(own.map((one) => one.type))) {
        const { removed, released, unjudged } = removals(upstream, type);
        const recent = unjudged.filter(isRecent);
        if (Math.min(removed, recent.length) * 100 <= maxRemovalPercent * released) continue;
        const since = recent.reduce((first, one) => Math.min(first, sinceOf(one)), now);
        yield { type, count: Math.min(removed, unjudged.length), since, released, limit, names: unjudged };
      }
    }
  }

  #isUnjudged({ removed, key }: PendingName): boolean {
    return removed && this.#judged.get(key)?.isWaived !== true;
  }

  held(upstream: string): readonly HeldRemovals[] {
    return [...this.#excesses.values()].filter(({ limit }) => limit.name === upstream);
  }

  /** Whether that many are removed is for the canaries to judge now. How many. */
  waive(upstream: string, type: TypeUrl | undefined): number {
    let count = 0;
    for (const [key, one] of this.#excesses) {
      if (!includes({ upstream, type }, { upstream: one.limit.name, type: one.type })) continue;
      for (const name of one.names) {
        const judged = this.#judged.get(name.key);
        if (judged !== undefined) judged.isWaived = true;
      }
      this.#excesses.delete(key);
      count += one.count;
    }
    return count;
  }
}

const textOf = ({ count, released, type, limit: { name, maxRemovalPercent } }: Excess): string =>
  `${count} of ${released} ${typeInfo(type).short} of ${name} would be removed: max_removal_percent is ${maxRemovalPercent}`;

const keyOf = (upstream: string, type: TypeUrl): string => JSON.stringify([upstream, type]);
