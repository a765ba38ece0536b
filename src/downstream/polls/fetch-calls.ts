import type { TypeInfo } from '../../model/types.ts';
import type { Peer, ServerStream } from '../../wire/server-stream.ts';
import { noPlace } from '../admission.ts';
import type { DownstreamServices } from '../services.ts';
import { FetchCall, type Polls, type RefusesPolls } from './polls.ts';

/** Who may open a Fetch call, and what hears of it: as long as it is open it is a stream, as any other. */
export interface FetchAdmission {
  readonly refuses: RefusesPolls;
  readonly opened: (peer: Peer) => void;
  readonly closed: (peer: Peer) => void;
}

/** The calls of the unary Fetch that are open (protocol §7.5). */
export class FetchCalls {
  readonly #polls: Polls;
  readonly #services: DownstreamServices;
  readonly #admission: FetchAdmission;
  readonly #calls = new Set<FetchCall>();

  constructor(polls: Polls, services: DownstreamServices, admission: FetchAdmission) {
    this.#polls = polls;
    this.#services = services;
    this.#admission = admission;
  }

  get size(): number {
    return this.#calls.size;
  }

  /** Takes a call of a path in `fetchRoutes`, or ends it. `milliseconds`: how long it waits for what is unknown. */
  accept(stream: ServerStream, info: TypeInfo, milliseconds: number): void {
    const { peer } = stream;
    const refusal = this.#admission.refuses(peer, info);
    if (refusal !== undefined) {
      this.#services.events.rejected(refusal.reason, refusal.logged, { peer });
      stream.end(refusal.status);
      return;
    }
    const call = new FetchCall(info, stream, this.#polls, this.#services, milliseconds, () => {
      this.#calls.delete(call);
      this.#admission.closed(peer);
    });
    this.#calls.add(call);
    this.#admission.opened(peer);
    stream.handle(call);
  }

  /** Ends the newest: they took more than there are places (limits.max_streams). */
  keepOldest(count: number): void {
    for (const call of [...this.#calls].slice(count)) call.failFor(noPlace);
  }
}
