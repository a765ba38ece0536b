import type { Charged } from '../../model/brand.ts';
import type { Timer } from '../../model/clock.ts';
import { knownTypes, type TypeInfo } from '../../model/types.ts';
import { Code, type GrpcStatus } from '../../wire/grpc-status.ts';
import type { FaultReason, ServerStream, StreamHandler } from '../../wire/server-stream.ts';
import { malformed, noFirstRequest, type Refusal } from '../admission.ts';
import type { DownstreamServices } from '../services.ts';
import type { Polls } from './polls.ts';

/** FetchX of each service (protocol §2), by path. ADS has none. */
export const fetchRoutes: ReadonlyMap<string, TypeInfo> = new Map(
  knownTypes.flatMap((info): [string, TypeInfo][] =>
    info.fetchMethod === undefined ? [] : [[`/${info.service}/${info.fetchMethod}`, info]],
  ),
);

export interface FetchServices extends Pick<DownstreamServices, 'clock' | 'events' | 'limits'> {
  /** How long a call waits for what is unknown, in milliseconds. */
  readonly fetchMilliseconds: () => number;
}

const missing = malformed('a Fetch call takes one DiscoveryRequest: none came');

/** One unary Fetch: one request, one response with what is known (protocol §7.5). */
export class FetchCall implements StreamHandler {
  readonly #info: TypeInfo;
  readonly #stream: ServerStream;
  readonly #polls: Polls;
  readonly #services: FetchServices;
  #cancel: (() => void) | undefined;
  /** Bytes of the answer that its client has not taken at once. */
  #unread = 0;
  /** For the request, and then for a client that does not read. */
  #timer: Timer;

  constructor(info: TypeInfo, stream: ServerStream, polls: Polls, services: FetchServices) {
    this.#info = info;
    this.#stream = stream;
    this.#polls = polls;
    this.#services = services;
    const { firstRequestMilliseconds } = services.limits();
    this.#timer = this.#waitForRequest(firstRequestMilliseconds, noFirstRequest(firstRequestMilliseconds));
  }

  /** The call may have been kept waiting for its peer's turn, for so long already: that does not count. */
  #waitForRequest(milliseconds: number, refusal: Refusal, waited = 0): Timer {
    return this.#services.clock.after(milliseconds, () => {
      const { waitedMilliseconds } = this.#stream;
      const more = waitedMilliseconds - waited;
      if (more > 0) this.#timer = this.#waitForRequest(more, refusal, waitedMilliseconds);
      else this.#refuse(refusal.reason, refusal.status);
    });
  }

  message(bytes: Charged): void {
    if (this.#cancel !== undefined) {
      this.#refuse('malformed', malformed('a Fetch call takes one DiscoveryRequest: another one came'));
      return;
    }
    this.#timer.cancel();
    const { peer } = this.#stream;
    const read = this.#polls.read(this.#info, bytes, peer, 'fetch');
    if (!read.ok) {
      this.#stream.end(read.error);
      return;
    }
    const patience = {
      milliseconds: this.#services.fetchMilliseconds(),
      unchanged: false,
      whenUnknown: 'EMPTY',
    } as const;
    this.#cancel = () => {};
    this.#cancel = this.#polls.ask(read.value, peer, patience, (outcome) => {
      if (outcome.kind !== 'response') {
        this.#stream.end(outcome.kind === 'refused' ? outcome.status : ended);
        return;
      }
      const { bytes } = outcome.response;
      this.#polls.sent(read.value, outcome, bytes);
      if (this.#stream.write(bytes)) this.#stream.end(ended);
      else this.#waitForReader(bytes.length);
    });
  }

  ended(): void {
    if (this.#cancel === undefined) this.#refuse('malformed', missing);
  }

  drained(): void {
    this.#stream.end(ended);
  }

  faulted(status: GrpcStatus, why?: FaultReason): void {
    this.#refuse(why ?? (status.code === Code.RESOURCE_EXHAUSTED ? 'request_bytes' : 'malformed'), status);
  }

  closed(): void {
    this.#timer.cancel();
    this.#stream.peer.account.keeps(-this.#unread);
    this.#unread = 0;
    this.#cancel?.();
  }

  #waitForReader(unread: number): void {
    this.#unread = unread;
    this.#stream.peer.account.keeps(unread);
    const { clock, limits } = this.#services;
    const { stalledMilliseconds } = limits();
    const message = `the client has not read for ${stalledMilliseconds} ms (limits.stalled_timeout)`;
    this.#timer = clock.after(stalledMilliseconds, () =>
      this.#refuse('stalled', { code: Code.RESOURCE_EXHAUSTED, message }),
    );
  }

  #refuse(reason: string, status: GrpcStatus): void {
    this.#services.events.rejected(reason);
    this.#stream.end(status);
  }
}

const ended: GrpcStatus = { code: Code.OK, message: '' };
