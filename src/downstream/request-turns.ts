import type { Clock, Timer } from '../model/clock.ts';
import { atOnce, type InTurns } from '../model/turns.ts';
import type { DeltaRequest, SotwRequest } from '../wire/requests.ts';
import type { ServerStream } from '../wire/server-stream.ts';

/** With fewer bytes of names, locators and versions a request is handled at once. */
const largeBytes = 32 * 1024;

/** `bytes`: of the whole message. Nearly every request is an ACK: it is told by that alone. */
export function isLarge(request: SotwRequest | DeltaRequest, bytes: number, from = largeBytes): boolean {
  return bytes >= from && bytesOf(request) >= from;
}

/** The buffer of a request is used again when `message` returns, so what is read later is copied. */
export function copyOf<R extends SotwRequest | DeltaRequest>(request: R): R {
  if (request.kind === 'sotw') return { ...request, selectors: copied(request.selectors) };
  const { subscribe, unsubscribe, initialVersions } = request;
  return {
    ...request,
    subscribe: copied(subscribe),
    unsubscribe: copied(unsubscribe),
    initialVersions: copied(initialVersions),
  };
}

const listsOf = (request: SotwRequest | DeltaRequest): readonly (Buffer | undefined)[] =>
  request.kind === 'sotw'
    ? [request.selectors]
    : [request.subscribe, request.unsubscribe, request.initialVersions];

const bytesOf = (request: SotwRequest | DeltaRequest): number =>
  listsOf(request).reduce((sum, list) => sum + (list?.length ?? 0), 0);

const copied = (range: Buffer | undefined): Buffer | undefined => range && Buffer.from(range);

/**
 * A large request is handled over several turns of the event loop, so that it does not hold up other clients. Nothing
 * more is read from its own client meanwhile.
 */
export class RequestTurns {
  readonly #transport: ServerStream;
  readonly #clock: Clock;
  /** Others may let the transport pause for longer. */
  readonly #mayResume: () => boolean;
  #turns: InTurns<void> | undefined;
  #timer: Timer | undefined;
  #heldBytes = 0;
  #isRunning = false;

  constructor(transport: ServerStream, clock: Clock, mayResume: () => boolean) {
    this.#transport = transport;
    this.#clock = clock;
    this.#mayResume = mayResume;
  }

  /** A text says why it is not: its peer's account has no room for a copy of the request. */
  start(request: SotwRequest | DeltaRequest, turns: () => InTurns<void>): string | undefined {
    const bytes = bytesOf(request);
    const excess = this.#transport.peer.account.hold(bytes);
    if (excess !== undefined) return excess;
    this.#heldBytes = bytes;
    this.#transport.pause();
    this.#turns = turns();
    this.#next();
    return undefined;
  }

  /** Does the rest in this turn: what comes next must find the request handled. */
  finish(): void {
    const turns = this.#turns;
    if (turns === undefined) return;
    this.#turns = undefined;
    this.close();
    atOnce(turns);
    this.#resume();
  }

  /** What is not done yet is given up. */
  close(): void {
    if (!this.#isRunning) this.#turns?.return();
    this.#turns = undefined;
    this.#timer?.cancel();
    this.#transport.peer.account.hold(-this.#heldBytes);
    this.#heldBytes = 0;
  }

  #next(): void {
    const turns = this.#turns;
    if (turns === undefined) return;
    const { account } = this.#transport.peer;
    const { done } = account.work(() => this.#run(turns));
    if (this.#turns === undefined) {
      // Closed meanwhile.
      turns.return();
      return;
    }
    if (done !== true) {
      this.#timer = this.#clock.after(0, () => {
        // Its peer may have had its turn, or all peers together.
        if (account.mustWait) account.wait(() => this.#next());
        else this.#next();
      });
      return;
    }
    this.close();
    this.#resume();
  }

  #run(turns: InTurns<void>): IteratorResult<undefined, void> {
    this.#isRunning = true;
    try {
      return turns.next();
    } finally {
      this.#isRunning = false;
    }
  }

  #resume(): void {
    if (this.#mayResume()) this.#transport.resume();
  }
}
