import type { Delivery, TapQuery, WaitQuery } from '../admin/delivery-ports.ts';
import type { Plain } from '../admin/ports.ts';
import type { WaitResponse } from '../gen/distributary/admin/v1/delivery_pb.ts';
import type { Clock } from '../model/clock.ts';
import { ok, type Result } from '../model/result.ts';
import { TimeSlices } from '../model/time-slices.ts';
import type { Relay } from '../relay.ts';
import type { GrpcStatus } from '../wire/grpc-status.ts';
import type { ClientsView, TapMessages } from './clients-view.ts';
import { type Acceptance, type AcceptanceQuery, acceptanceOf, waitResponse } from './missing-clients.ts';

/** How often clients are looked at, in milliseconds: at first, and at last. */
const firstPauseMs = 50;
const longestPauseMs = 1000;

export interface DeliveryOptions {
  readonly relay: Relay;
  readonly clients: () => ClientsView;
  readonly clock: Clock;
}

/** What clients were sent and have accepted. */
export class DeliveryInspection implements Delivery {
  readonly #options: DeliveryOptions;
  readonly #slices: TimeSlices;

  constructor(options: DeliveryOptions) {
    this.#options = options;
    this.#slices = new TimeSlices(options.clock);
  }

  async wait(query: WaitQuery, signal: AbortSignal): Promise<Result<Plain<WaitResponse>, GrpcStatus>> {
    const { clock } = this.#options;
    const deadline = clock.now() + query.timeoutMs;
    for (let pause = firstPauseMs; ; pause = Math.min(2 * pause, longestPauseMs)) {
      const found = await this.#acceptance(query);
      const left = deadline - clock.now();
      if (found.missing === 0 || left <= 0 || signal.aborted) return ok(waitResponse(found));
      await this.#pause(Math.min(pause, left), signal);
    }
  }

  tap(query: TapQuery, signal: AbortSignal): Result<TapMessages, GrpcStatus> {
    return this.#options.clients().tap(query, signal);
  }

  async #acceptance(query: AcceptanceQuery): Promise<Acceptance> {
    const clients = this.#options.clients();
    if (!clients.inWorkers) return clients.acceptance(query);
    // First those that feed the workers: what a worker does not have yet, its clients cannot miss.
    const feeds = await acceptanceOf(this.#options.relay, query, this.#slices);
    const found = await clients.acceptance(query);
    if (feeds.missing === 0 || found.missing > 0) return found;
    const listed = feeds.listed.map((row) => ({ ...row, client: '', node: '', why: `a worker: ${row.why}` }));
    return { clients: found.clients, missing: feeds.missing, listed };
  }

  #pause(milliseconds: number, signal: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      const timer = this.#options.clock.after(milliseconds, done);
      signal.addEventListener('abort', done);
      function done(): void {
        timer.cancel();
        signal.removeEventListener('abort', done);
        resolve();
      }
    });
  }
}
