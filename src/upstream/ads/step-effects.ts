import type { TypeUrl } from '../../model/brand.ts';
import { type Transaction, transaction } from '../../model/transaction.ts';
import type { OutgoingRequest } from '../../wire/request-writer.ts';
import type { ProtocolEffect, TypeState } from './stream-protocol.ts';

/** How long the relay waits for a response that shows that it answers a later wildcard or glob. */
const attributionWaitMs = 2000;

/** Collects the effects of one input, and knows what each running timer does. */
export class StepEffects {
  #effects: ProtocolEffect[] = [];
  readonly #timers = new Map<string, () => void>();

  /** All since the last time. */
  take(): readonly ProtocolEffect[] {
    const effects = this.#effects;
    this.#effects = [];
    return effects;
  }

  add(effect: Exclude<ProtocolEffect, { kind: 'arm' | 'cancel' }>): void {
    this.#effects.push(effect);
  }

  send(requests: readonly OutgoingRequest[]): void {
    for (const request of requests) this.add({ kind: 'send', request });
  }

  /** Applies a transaction that does not come from a response. */
  applyPart({ holder, type, version }: TypeState, part: Partial<Transaction>): void {
    this.add({ kind: 'apply', transaction: transaction({ holder, type, version, ...part }) });
  }

  arm(timer: string, milliseconds: number, run: () => void): void {
    this.#timers.set(timer, run);
    this.#effects.push({ kind: 'arm', timer, milliseconds });
  }

  isArmed(timer: string): boolean {
    return this.#timers.has(timer);
  }

  cancel(timer: string): void {
    if (this.#timers.delete(timer)) this.#effects.push({ kind: 'cancel', timer });
  }

  fire(timer: string): void {
    const run = this.#timers.get(timer);
    this.#timers.delete(timer);
    run?.();
  }

  /**
   * Opens a new stream if responses have not shown for so long which subscription they answer. There, all of them are in
   * the first request. `doubt`: each has its own time.
   */
  renewIfDoubtful(type: TypeUrl, doubt: string, isDoubtful: () => boolean): void {
    const timer = `answers ${doubt}`;
    if (this.isArmed(timer) || !isDoubtful()) return;
    this.arm(timer, attributionWaitMs, () => {
      const reason = `responses of ${type} do not show which subscription they answer: a new stream will`;
      if (isDoubtful()) this.add({ kind: 'renew', reason });
    });
  }

  /** Runs once responses have not shown for so long whether a request has been seen. */
  stopDoubting(request: string, run: () => void): void {
    const timer = `doubt ${request}`;
    if (!this.isArmed(timer)) this.arm(timer, attributionWaitMs, run);
  }

  /** The stream has ended, and its timers with it. */
  forgetTimers(): void {
    this.#timers.clear();
  }
}
