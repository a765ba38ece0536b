import type { Clock, Timer } from '../model/clock.ts';
import { atOnce, type InTurns } from '../model/time-slices.ts';
import type { ServerStream } from './server-stream.ts';

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

  /** `bytes`: of a copy of the request. A text says why it is not done: its peer's account has no room for them. */
  start(bytes: number, turns: () => InTurns<void>): string | undefined {
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
    if (turns === undefined || this.#isRunning) return;
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
