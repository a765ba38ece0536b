import { type Transaction, transaction } from '../../model/transaction.ts';
import type { OutgoingRequest } from '../../wire/request-writer.ts';
import type { ProtocolEffect, TypeState } from './stream-protocol.ts';

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

  /** The stream has ended, and its timers with it. */
  forgetTimers(): void {
    this.#timers.clear();
  }
}
