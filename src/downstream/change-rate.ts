import type { Timer } from '../model/clock.ts';
import { Rate } from '../model/rate.ts';
import type { ServerStream } from '../wire/server-stream.ts';
import type { DownstreamServices } from './services.ts';
import type { TypeStream } from './type-stream.ts';

/** A change counts once, or once for each new parameter set; and once more for each so many resources that it shows. */
const shownPerChange = 500;
const muchShown = 250;
/** A change that opens so many sessions upstream is a large one. */
const manySessions = 50;

/**
 * How often a client may change its subscriptions. Above the rate, the relay stops reading from this client. HTTP/2
 * flow control slows it down, and no request is dropped. A change of a subscription with many resources costs as much as
 * many small changes; the first request of a type does not. Each new parameter set costs as much as a change, because a
 * session may be opened for it.
 */
export class ChangeRate {
  readonly #transport: ServerStream;
  readonly #services: DownstreamServices;
  #rate: Rate | undefined;
  #paused: Timer | undefined;

  constructor(transport: ServerStream, services: DownstreamServices) {
    this.#transport = transport;
    this.#services = services;
  }

  /** `changed`: subscriptions that the client had before. */
  spend(changes: number, changed: readonly TypeStream[], newSessions: number): void {
    const { clock, events, limits } = this.#services;
    const shown = changed.reduce((sum, { subscription }) => sum + (subscription?.size ?? 0), 0);
    this.#rate ??= new Rate(limits().changesPerSecond, clock.now());
    const cost = Math.max(changes, newSessions) + Math.floor(shown / shownPerChange);
    const wait = this.#rate.spend(clock.now(), cost);
    if (this.#paused !== undefined) return;
    if (wait > 0) events.rejected('rate');
    else if (shown < muchShown && newSessions < manySessions) return;
    // After a large one at least until others have had their turn: one read may have brought many.
    this.#transport.pause();
    this.#paused = clock.after(Math.max(0, wait), () => {
      this.#paused = undefined;
      this.#transport.resume();
    });
  }

  /** It reads again later. */
  get isPaused(): boolean {
    return this.#paused !== undefined;
  }

  close(): void {
    this.#paused?.cancel();
  }
}
