import type { Charged } from '../../model/brand.ts';
import type { Timer } from '../../model/clock.ts';
import { knownTypes, type TypeInfo } from '../../model/types.ts';
import { Code, type GrpcStatus } from '../../wire/grpc-status.ts';
import type { FaultReason, ServerStream, StreamHandler } from '../../wire/server-stream.ts';
import { faulty, malformed, noFirstRequest, type Refusal, stalled } from '../admission.ts';
import type { DownstreamServices } from '../services.ts';
import type { Polls } from './polls.ts';

/** FetchX of each service (protocol §2), by path. ADS has none. */
export const fetchRoutes: ReadonlyMap<string, TypeInfo> = new Map(
  knownTypes.flatMap((info): [string, TypeInfo][] =>
    info.fetchMethod === undefined ? [] : [[`/${info.service}/${info.fetchMethod}`, info]],
  ),
);

const missing = malformed('a Fetch call takes one DiscoveryRequest: none came');

/** One unary Fetch: one request, one response with what is known (protocol §7.5). */
export class FetchCall implements StreamHandler {
  readonly #info: TypeInfo;
  readonly #stream: ServerStream;
  readonly #polls: Polls;
  readonly #services: DownstreamServices;
  /** How long it waits for what is unknown. */
  readonly #milliseconds: number;
  #cancel: (() => void) | undefined;
  /** Bytes of the answer that its client has not taken at once. */
  #unread = 0;
  /** For the request, and then for a client that does not read. */
  #timer: Timer;

  constructor(
    info: TypeInfo,
    stream: ServerStream,
    polls: Polls,
    services: DownstreamServices,
    milliseconds: number,
  ) {
    this.#milliseconds = milliseconds;
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
      else this.#refuse(refusal);
    });
  }

  message(bytes: Charged): void {
    if (this.#cancel !== undefined) {
      this.#refuse(malformed('a Fetch call takes one DiscoveryRequest: another one came'));
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
      milliseconds: this.#milliseconds,
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
    if (this.#cancel === undefined) this.#refuse(missing);
  }

  drained(): void {
    this.#stream.end(ended);
  }

  faulted(status: GrpcStatus, why?: FaultReason): void {
    this.#refuse(faulty(status, why));
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
    this.#timer = clock.after(stalledMilliseconds, () => this.#refuse(stalled(stalledMilliseconds)));
  }

  #refuse({ reason, status }: Refusal): void {
    this.#services.events.rejected(reason);
    this.#stream.end(status);
  }
}

const ended: GrpcStatus = { code: Code.OK, message: '' };
