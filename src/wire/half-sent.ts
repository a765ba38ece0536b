import { type Clock, Sweep } from '../model/clock.ts';
import { Code, type GrpcStatus } from './grpc-status.ts';
import type { FaultReason, Peer } from './server-stream.ts';

/** The stream of a message that has arrived in part. */
export interface Gatherer {
  readonly peer: Peer;
  /** Gives up the message, and the call with it. */
  abandon(status: GrpcStatus, why: FaultReason): void;
}

/**
 * The bytes that messages in part may hold: room for 16 of the largest at the default of
 * limits.max_request_bytes, and always for four. A fleet's requests of 61 KB that are on their way fit a thousand times.
 */
export function halfSentBudget(maxRequestBytes: number): number {
  return Math.max(64 << 20, 4 * maxRequestBytes);
}

/** Making room ends at this part of the budget: it looks at all messages, so it must be rare. */
const targetShare = 0.75;
const lateCheckMs = 1000;

/** The messages of all connections of which a part has arrived, and the memory that they hold. */
export class HalfSent {
  readonly #clock: Clock;
  readonly #budget: number;
  /** The oldest first. */
  readonly #messages = new Map<Gatherer, { readonly since: number; readonly bytes: number }>();
  #bytes = 0;
  readonly #late: Sweep | undefined;

  /**
   * `budget`: bytes that all of them may hold together. `timeout`: milliseconds in which a message must have arrived once
   * it has begun; undefined: any.
   */
  constructor(clock: Clock, budget: number, timeout?: () => number) {
    this.#clock = clock;
    this.#budget = budget;
    this.#late = timeout && new Sweep(clock, lateCheckMs, () => this.#abandonLate(timeout()));
  }

  /** So many bytes are held for the message that this one gathers; 0: it has arrived, or was given up. */
  resize(gatherer: Gatherer, bytes: number): void {
    const known = this.#messages.get(gatherer);
    const more = bytes - (known?.bytes ?? 0);
    const excess = gatherer.peer.account.hold(more);
    if (excess !== undefined) {
      gatherer.abandon({ code: Code.RESOURCE_EXHAUSTED, message: excess }, 'held_bytes');
      return;
    }
    this.#bytes += more;
    if (bytes === 0) this.#messages.delete(gatherer);
    else this.#messages.set(gatherer, { since: known?.since ?? this.#clock.monotonic(), bytes });
    if (bytes > 0) this.#late?.start();
    if (this.#bytes > this.#budget) this.#makeRoom();
  }

  stop(): void {
    this.#late?.stop();
  }

  /** The peer that holds most loses first, and of it the largest message, then the oldest. */
  #makeRoom(): void {
    const budget = this.#budget;
    const message = `unfinished messages of clients hold more than ${budget} bytes together, and this one is among the largest: send it again, all at once`;
    const victims = [...this.#messages]
      .map(([victim, { bytes }]) => ({ victim, bytes, held: victim.peer.account.held }))
      .toSorted((a, b) => b.held - a.held || b.bytes - a.bytes);
    for (const { victim } of victims) {
      if (this.#bytes <= budget * targetShare) return;
      victim.abandon({ code: Code.RESOURCE_EXHAUSTED, message }, 'half_sent');
    }
  }

  /** False: none is left. */
  #abandonLate(milliseconds: number): boolean {
    const latest = this.#clock.monotonic() - milliseconds;
    const message = `a request did not arrive within ${milliseconds} ms of its first bytes (limits.stalled_timeout)`;
    for (const [gatherer, { since }] of this.#messages) {
      if (since > latest) break;
      gatherer.abandon({ code: Code.DEADLINE_EXCEEDED, message }, 'half_sent');
    }
    return this.#messages.size > 0;
  }
}
