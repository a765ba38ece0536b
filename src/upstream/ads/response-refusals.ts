import type { TypeUrl } from '../../model/brand.ts';
import { Code } from '../../wire/grpc-status.ts';
import type { IncomingSotw } from '../../wire/response-reader.ts';
import { unsolicitedType } from './accept-resource.ts';
import type { ProtocolStrategy } from './protocol-strategy.ts';
import type { StepEffects } from './step-effects.ts';
import type { TypeState } from './stream-protocol.ts';

/** The second rejection in a row waits so long, each further one twice as long: some servers send again at once. */
const nackDelayMs = { first: 1000, longest: 30_000 };
const reasonLimit = 2000;
/** So many types that were never subscribed are refused on one stream; others are ignored. */
const maxUnsolicited = 100;

/** The responses that a stream refuses. */
export class ResponseRefusals<S extends TypeState, R extends IncomingSotw> {
  readonly #strategy: ProtocolStrategy<S, R>;
  readonly #effects: StepEffects;
  /** Types that came on this stream and were never subscribed. */
  readonly #unsolicited = new Set<TypeUrl>();

  constructor(strategy: ProtocolStrategy<S, R>, effects: StepEffects) {
    this.#strategy = strategy;
    this.#effects = effects;
  }

  /** A new stream. */
  clear(): void {
    this.#unsolicited.clear();
  }

  /** A response is accepted. */
  over(state: TypeState): void {
    const { type, lastNack } = state;
    if (lastNack !== undefined) {
      this.#effects.cancel(`nack ${type}`);
      this.#effects.add({ kind: 'log', level: 'info', message: 'responses are accepted again', type });
    }
    state.lastNack = undefined;
    state.nacksInARow = 0;
  }

  reject(state: S, nonce: string, reason: string): void {
    const { type } = state;
    const message = reason.slice(0, reasonLimit);
    if (state.lastNack?.message !== message) {
      this.#effects.add({ kind: 'log', level: 'warn', message: `response rejected: ${message}`, type });
    }
    state.nonce = nonce;
    state.lastNack = { code: Code.INVALID_ARGUMENT, message };
    state.nacksInARow++;
    this.#effects.add({ kind: 'count', type, result: 'rejected' });
    if (state.nacksInARow === 1) {
      this.#effects.send([this.#strategy.reply(state)]);
      return;
    }
    const delay = Math.min(nackDelayMs.first * 2 ** (state.nacksInARow - 2), nackDelayMs.longest);
    this.#effects.arm(`nack ${type}`, delay, () => this.#effects.send([this.#strategy.reply(state)]));
  }

  unsolicited(response: R): void {
    const { type, known, message } = unsolicitedType(response.typeUrl);
    this.#effects.add({ kind: 'count', type: known, result: 'rejected' });
    if (this.#unsolicited.has(known) || this.#unsolicited.size >= maxUnsolicited) return;
    this.#unsolicited.add(known);
    this.#effects.add({ kind: 'log', level: 'warn', message: `response rejected: ${message}`, type: known });
    const refusal = this.#strategy.refusal(type, response.nonce, { code: Code.INVALID_ARGUMENT, message });
    if (refusal !== undefined) this.#effects.send([refusal]);
  }
}
