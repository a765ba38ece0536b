import type { TypeUrl } from '../model/brand.ts';
import type { Gate, PendingName } from '../model/rollout.ts';
import { typeInfo } from '../model/types.ts';

/** As configured of an upstream. */
export interface RemovalLimit {
  readonly upstream: string;
  /** Of the resources of a type that are released. */
  readonly maxRemovalPercent: number;
  /** After so many milliseconds it is no objection any more. */
  readonly maxRemovalHoldMs: number;
}

/** What of an upstream's removals waits. */
export interface WaitingRemovals {
  readonly type: TypeUrl;
  readonly count: number;
  /** Milliseconds since the epoch. */
  readonly since: number;
}

/** A change that waits since then. Milliseconds since the epoch. */
export interface RemovingChange {
  readonly names: readonly PendingName[];
  readonly since: number;
}

interface Excess extends WaitingRemovals {
  readonly released: number;
  readonly limit: RemovalLimit;
}

/** Holds a change that removes more than `max_removal_percent` of what its upstream has of a type. */
export class RemovalLimits {
  readonly #gate: Gate;
  readonly #limits: () => readonly RemovalLimit[];
  #excesses: readonly Excess[] = [];
  /** What an operator has let through, until nothing waits. */
  readonly #waived = new Set<string>();

  constructor(gate: Gate, limits: () => readonly RemovalLimit[]) {
    this.#gate = gate;
    this.#limits = limits;
  }

  /** Of each change, why it removes too much; undefined: it does not. */
  objections(changes: readonly RemovingChange[], now: number): readonly (string | undefined)[] {
    const limits = this.#limits();
    this.#excesses = [];
    if (limits.length === 0) return changes.map(() => undefined);
    return changes.map((change) => this.#objection(change, limits, now));
  }

  held(upstream: string): readonly WaitingRemovals[] {
    return this.#excesses.filter(({ limit }) => limit.upstream === upstream);
  }

  /** Whether that many are removed is for the canaries to judge now. How many. */
  waive(upstream: string, type: TypeUrl | undefined): number {
    const waived = this.#excesses.filter(
      (one) => one.limit.upstream === upstream && (type === undefined || one.type === type),
    );
    for (const one of waived) this.#waived.add(keyOf(one.limit.upstream, one.type));
    this.#excesses = this.#excesses.filter((one) => !waived.includes(one));
    return waived.reduce((sum, { count }) => sum + count, 0);
  }

  /** Nothing waits any more. */
  over(): void {
    this.#excesses = [];
    this.#waived.clear();
  }

  #objection(
    { names, since }: RemovingChange,
    limits: readonly RemovalLimit[],
    now: number,
  ): string | undefined {
    const removed = names.filter((one) => one.removed);
    if (removed.length === 0) return undefined;
    const excesses = limits
      .filter(({ maxRemovalHoldMs }) => now < since + maxRemovalHoldMs)
      .flatMap((limit) => {
        const own = removed.filter(({ upstream }) => upstream === limit.upstream);
        return [...new Set(own.map(({ type }) => type))].flatMap((type) =>
          this.#excessOf(limit, type, since),
        );
      });
    const [first] = excesses;
    if (first === undefined) return undefined;
    const isKnown = (one: Excess): boolean =>
      this.#excesses.some(({ limit, type }) => limit.upstream === one.limit.upstream && type === one.type);
    this.#excesses = [...this.#excesses, ...excesses.filter((one) => !isKnown(one))];
    const { count, released, type, limit } = first;
    return `${count} of ${released} ${typeInfo(type).short} of ${limit.upstream} would be removed: max_removal_percent is ${limit.maxRemovalPercent}`;
  }

  #excessOf(limit: RemovalLimit, type: TypeUrl, since: number): readonly Excess[] {
    const { upstream, maxRemovalPercent } = limit;
    if (this.#waived.has(keyOf(upstream, type))) return [];
    const { removed, released } = this.#gate.removals({ upstream, type });
    const isTooMuch = removed > 0 && removed * 100 > maxRemovalPercent * released;
    return isTooMuch ? [{ type, count: removed, since, released, limit }] : [];
  }
}

const keyOf = (upstream: string, type: TypeUrl): string => JSON.stringify([upstream, type]);
