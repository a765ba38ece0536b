import type { TypeUrl } from '../../model/brand.ts';
import type { Holder, Interest, Transaction } from '../../model/transaction.ts';
import type { OutgoingRequest } from '../../wire/request-writer.ts';
import type { Stamp } from './stamp.ts';

/** What is to be done about what happens to a stream. */
export type ProtocolEffect =
  | { readonly kind: 'send'; readonly request: OutgoingRequest }
  | { readonly kind: 'apply'; readonly transaction: Transaction }
  /** Starts the timer, or starts it anew; undefined: cancels it. All timers end with the stream. */
  | { readonly kind: 'timer'; readonly timer: string; readonly milliseconds: number | undefined }
  /** A subscription of this type is sent that was never sent before. */
  | { readonly kind: 'asked'; readonly type: TypeUrl }
  /** By a response. `refused`: why that is not accepted. */
  | { readonly kind: 'answered'; readonly type: TypeUrl; readonly refused: string | undefined }
  | Readonly<{ kind: 'log'; level: 'info' | 'warn'; message: string; type: TypeUrl }>
  /** A wildcard has had no answer within resource_timeout. Nothing is concluded from it here. */
  | { readonly kind: 'overdue' }
  /** Only a new stream can tell which request a response answers: end this one, and open another at once. */
  | { readonly kind: 'renew'; readonly reason: string }
  /** The stream is beyond use: end it. */
  | { readonly kind: 'fail'; readonly reason: string };

/**
 * What has no answer yet. The later, the more silence says: `names` may not exist, `held` are names that are held from an
 * earlier stream or from before a restart, and every control plane that works answers a wildcard.
 */
const awaited = ['nothing', 'names', 'held', 'wildcard'] as const;
export type Awaited = (typeof awaited)[number];

/** That of which silence says most. */
export function mostAwaited(all: Iterable<Awaited>): Awaited {
  const found = new Set(all);
  return awaited.findLast((one) => found.has(one)) ?? 'nothing';
}

/** Of what arrives by the wildcard, and by name. */
export type Holders = Readonly<Record<Holder['role'], Holder>>;

export interface MachineOptions {
  readonly protocol: 'DELTA' | 'SOTW';
  readonly holders: Holders;
  /** NATIVE: parameters are sent, in resource_locators. */
  readonly locators: boolean;
  readonly stamp: Stamp;
  readonly maxConstraintDepth: number;
  /** How many entries of a response are read in one turn. */
  readonly entriesPerTurn: number;
  /** Protocol §3.9. Undefined: a relay of ours answers. Silence says nothing, and what is not subscribed has no answer. */
  readonly resourceTimeoutMs: number | undefined;
  /** The cache has its answer from before a restart, or from elsewhere, and this session has not confirmed it (ADR 16). */
  readonly isRestored: (interest: Interest) => boolean;
}

/** One stream as its types see it: what is to be done about them, in order, and the timers that run. */
export class StreamEffects {
  readonly options: MachineOptions;
  #responded = false;
  /** Types were on this stream that are not known here any more: for upstream an empty request may not be their first. */
  hasForgotten = false;
  #effects: ProtocolEffect[] = [];
  /** What each running timer does. */
  readonly #timers = new Map<string, () => void>();
  /** Those of them that start anew with the first response, and how long they run. */
  readonly #inSilence = new Map<string, number>();

  constructor(options: MachineOptions) {
    this.options = options;
  }

  /**
   * A response has come on this stream, or on another one of the session. From then on, silence means that a name
   * does not exist.
   */
  get controlPlaneResponded(): boolean {
    return this.#responded;
  }

  /** The first one, or another; or another stream of the session has had one: the control plane works and accepts this node. */
  responded(): void {
    this.#responded = true;
    for (const [timer, milliseconds] of this.#inSilence) this.add({ kind: 'timer', timer, milliseconds });
    this.#inSilence.clear();
  }

  /** A new stream is open. */
  startOver(): void {
    this.#responded = false;
    this.hasForgotten = false;
    this.forgetTimers();
  }

  add(effect: ProtocolEffect): void {
    this.#effects.push(effect);
  }

  send(requests: readonly OutgoingRequest[]): void {
    for (const request of requests) this.add({ kind: 'send', request });
  }

  arm(timer: string, milliseconds: number, run: () => void): void {
    this.#timers.set(timer, run);
    this.add({ kind: 'timer', timer, milliseconds });
  }

  /** Arms it, unless it runs already. */
  armOnce(timer: string, milliseconds: number, run: () => void): void {
    if (!this.#timers.has(timer)) this.arm(timer, milliseconds, run);
  }

  /** The control plane has said nothing yet: once it does, the timer starts anew. */
  armInSilence(timer: string, milliseconds: number, run: () => void): void {
    this.arm(timer, milliseconds, run);
    if (!this.#responded) this.#inSilence.set(timer, milliseconds);
  }

  cancel(timer: string): void {
    if (this.#timers.delete(timer)) this.add({ kind: 'timer', timer, milliseconds: undefined });
  }

  fire(timer: string): void {
    const run = this.#timers.get(timer);
    this.#timers.delete(timer);
    this.#inSilence.delete(timer);
    run?.();
  }

  /** The stream has ended, and its timers with it. */
  forgetTimers(): void {
    this.#timers.clear();
    this.#inSilence.clear();
  }

  /** What is to be done about all that has happened since the last time, in this order. */
  ready(): readonly ProtocolEffect[] {
    const effects = this.#effects;
    this.#effects = [];
    return effects;
  }
}
