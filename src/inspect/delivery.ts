import type { Changes } from '../admin/changes-ports.ts';
import type { Delivery, TapQuery, WaitQuery } from '../admin/delivery-ports.ts';
import type { Plain } from '../admin/ports.ts';
import type { WaitResponse } from '../gen/distributary/admin/v1/delivery_pb.ts';
import type { Clock } from '../model/clock.ts';
import { fail, ok, type Result } from '../model/result.ts';
import { TimeSlices } from '../model/time-slices.ts';
import { typeInfo } from '../model/types.ts';
import type { Relay } from '../relay.ts';
import { Code, type GrpcStatus } from '../wire/grpc-status.ts';
import type { ClientsView, TapMessages } from './clients-view.ts';
import { type HeldBackQuery, heldBack } from './held-back.ts';
import {
  type Acceptance,
  type AcceptanceQuery,
  acceptanceOf,
  mergeAcceptances,
  waitResponse,
} from './missing-clients.ts';

/** How often clients are looked at, in milliseconds: at first, and at last. */
const firstPauseMs = 50;
const longestPauseMs = 1000;
/** Each of them looks at all clients again and again. */
const mostWaits = 100;

export interface DeliveryOptions {
  readonly relay: Relay;
  readonly clients: () => ClientsView;
  readonly clock: Clock;
  readonly changes: Pick<Changes, 'change'>;
}

/** What clients were sent and have accepted. */
export class DeliveryInspection implements Delivery {
  readonly #options: DeliveryOptions;
  readonly #slices: TimeSlices;
  #waits = 0;

  constructor(options: DeliveryOptions) {
    this.#options = options;
    this.#slices = new TimeSlices(options.clock);
  }

  async wait(query: WaitQuery, signal: AbortSignal): Promise<Result<Plain<WaitResponse>, GrpcStatus>> {
    if (this.#waits >= mostWaits) {
      const message = `${this.#waits} calls of Wait are open, and at most ${mostWaits} are: try again later`;
      return fail({ code: Code.RESOURCE_EXHAUSTED, message });
    }
    this.#waits++;
    try {
      return await this.#waitFor(query, signal);
    } finally {
      this.#waits--;
    }
  }

  async #waitFor(query: WaitQuery, signal: AbortSignal): Promise<Result<Plain<WaitResponse>, GrpcStatus>> {
    const { clock } = this.#options;
    const deadline = clock.now() + query.timeoutMs;
    for (let pause = firstPauseMs; ; pause = Math.min(2 * pause, longestPauseMs)) {
      const what = this.#wanted(query);
      if (!what.ok) return what;
      const held = heldBack(this.#options.relay, what.value);
      const found = mergeAcceptances([held, await this.#acceptance(what.value)]);
      const left = deadline - clock.now();
      if (found.missing === 0 || left <= 0 || signal.aborted) return ok(waitResponse(found));
      await this.#pause(Math.min(pause, left), signal);
    }
  }

  tap(query: TapQuery, signal: AbortSignal): Result<TapMessages, GrpcStatus> {
    return this.#options.clients().tap(query, signal);
  }

  /** What the revision changed, if there is one. Looked up again each time: an operator may discard it meanwhile. */
  #wanted({ type, names, revision }: WaitQuery): Result<HeldBackQuery, GrpcStatus> {
    if (revision === undefined) return ok({ type, names, released: new Set() });
    const { changes } = this.#options;
    const change = changes.change(revision);
    if (!change.ok) return change;
    const changed = new Set<string>(change.value.names.map(({ name }) => name));
    const given = change.value.names.filter(({ verdict }) => verdict === 'RELEASED');
    const asked = names.size === 0 ? changed : changed.intersection(names);
    if ((type !== undefined && type !== change.value.type) || asked.size === 0) {
      const message = `revision ${revision} did not change that: it is of ${typeInfo(change.value.type).short}`;
      return fail({ code: Code.INVALID_ARGUMENT, message });
    }
    const released = new Set<string>(given.map(({ name }) => name));
    return ok({ type: change.value.type, names: asked, released });
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
