import type { TypeUrl } from '../model/brand.ts';
import { includes } from '../model/holds.ts';
import type { Gate, PendingName } from '../model/rollout.ts';
import { typeInfo } from '../model/types.ts';
import type { Change } from './changes.ts';
import { type HeardChange, noObjection, type Opinion, type VerdictSource } from './sources.ts';

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

interface Excess extends WaitingRemovals {
  readonly released: number;
  readonly limit: RemovalLimit;
}

/** Holds a change that removes more than `max_removal_percent` of what its upstream has of a type. */
export class RemovalLimits implements VerdictSource {
  readonly #gate: Gate;
  readonly #limits: () => readonly RemovalLimit[];
  /** Of what waits now, by upstream and type. */
  readonly #excesses = new Map<string, Excess>();
  /** What an operator has let through, until nothing waits. */
  readonly #waived = new Set<string>();

  constructor(gate: Gate, limits: () => readonly RemovalLimit[]) {
    this.#gate = gate;
    this.#limits = limits;
  }

  look(changes: readonly HeardChange[], now: number): ReadonlyMap<Change, Opinion> {
    this.#excesses.clear();
    const opinions = new Map<Change, Opinion>();
    for (const { change } of changes) {
      const reason = this.#objection(change.names, Math.min(change.judge.startedAt, now), now);
      if (reason !== undefined)
        opinions.set(change, { ...noObjection, verdict: { cause: 'removals', reason, names: change.keys } });
    }
    return opinions;
  }

  /** Why a change that waits since then removes too much; undefined: it does not. Milliseconds since the epoch. */
  #objection(names: readonly PendingName[], since: number, now: number): string | undefined {
    const limits = this.#limits().filter(({ maxRemovalHoldMs }) => now < since + maxRemovalHoldMs);
    if (limits.length === 0) return undefined;
    const removed = names.filter((one) => one.removed);
    let objection: string | undefined;
    for (const limit of limits) {
      const own = removed.filter(({ upstream }) => upstream === limit.upstream);
      for (const type of new Set(own.map((one) => one.type))) {
        const excess = this.#excessOf(limit, type, since);
        if (excess === undefined) continue;
        objection ??= textOf(excess);
        const key = keyOf(limit.upstream, type);
        if (!this.#excesses.has(key)) this.#excesses.set(key, excess);
      }
    }
    return objection;
  }

  held(upstream: string): readonly WaitingRemovals[] {
    return [...this.#excesses.values()].filter(({ limit }) => limit.upstream === upstream);
  }

  /** Whether that many are removed is for the canaries to judge now. How many. */
  waive(upstream: string, type: TypeUrl | undefined): number {
    let count = 0;
    for (const [key, one] of this.#excesses) {
      if (!includes({ upstream, type }, { upstream: one.limit.upstream, type: one.type })) continue;
      this.#waived.add(key);
      this.#excesses.delete(key);
      count += one.count;
    }
    return count;
  }

  /** Nothing waits any more. */
  over(): void {
    this.#excesses.clear();
    this.#waived.clear();
  }

  #excessOf(limit: RemovalLimit, type: TypeUrl, since: number): Excess | undefined {
    const { upstream, maxRemovalPercent } = limit;
    if (this.#waived.has(keyOf(upstream, type))) return undefined;
    const { removed, released } = this.#gate.removals({ upstream, type });
    const isTooMuch = removed > 0 && removed * 100 > maxRemovalPercent * released;
    return isTooMuch ? { type, count: removed, since, released, limit } : undefined;
  }
}

const textOf = ({ count, released, type, limit: { upstream, maxRemovalPercent } }: Excess): string =>
  `${count} of ${released} ${typeInfo(type).short} of ${upstream} would be removed: max_removal_percent is ${maxRemovalPercent}`;

const keyOf = (upstream: string, type: TypeUrl): string => JSON.stringify([upstream, type]);
