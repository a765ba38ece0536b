import type { TypeUrl } from '../model/brand.ts';
import type { Clock } from '../model/clock.ts';
import { getOrMake } from '../model/maps.ts';
import type { RequestKind, Response } from '../model/subscription.ts';
import { keptError, shorten } from '../model/text.ts';
import { isKnownType, typeInfo } from '../model/types.ts';
import type { Conditions } from '../observe/conditions.ts';
import { longestText } from '../observe/format.ts';
import type { Fields, Log } from '../observe/log.ts';
import type { LogLevels } from '../observe/log-levels.ts';
import type { Metrics } from '../observe/metrics.ts';
import type { Distribution } from '../observe/series.ts';
import type { UpdateTraces } from '../observe/update-traces.ts';
import type { GrpcStatus } from '../wire/grpc-status.ts';
import type { ErrorDetail } from '../wire/requests.ts';
import type { Peer } from '../wire/server-stream.ts';

/** What waits no longer, though what it waited for has not come: a removal, or routes to clusters. */
const overdues = ['removal', 'warming', 'missing'] as const;
export type Overdue = (typeof overdues)[number];

/** How a response reaches its client. */
export type ClientTransport = 'sotw' | 'delta' | 'rest' | 'fetch';

/** A stream, or a client that polls, as the log names it. */
export interface LoggedStream {
  readonly id: string;
  readonly route: { readonly service: string; readonly protocol: string };
  readonly transport: { readonly peer: Pick<Peer, 'address'> };
  /** Undefined: it has not said yet who it is. */
  readonly client: { readonly nodeId: string } | undefined;
}

/** Who is refused something: a peer, where no stream was opened. */
type Refused = LoggedStream | Pick<Peer, 'address'>;

const overdueText: Readonly<Record<Overdue, string>> = {
  removal: 'a client lost a resource that it still refers to: nothing replaced it within xds.removal_grace',
  missing: 'a client got routes to clusters that have not arrived',
  warming: 'a client got routes before it had accepted their clusters',
};

/** Where a process counts and logs. */
interface Observing {
  readonly metrics: Metrics;
  readonly conditions: Conditions;
  readonly log: Log;
  readonly logLevels: LogLevels;
  /** Undefined: nothing is traced. */
  readonly traces: UpdateTraces | undefined;
}

/**
 * Counts what streams and polls do, on the hot path: a lookup and additions. Of streams it has a log at the level debug, and
 * a line is made only if it is written.
 */
export class StreamMetrics {
  readonly #around: Observing;
  readonly #clock: Clock;
  /** A stream has said something in the cohort of canaries, subscribes to something else, or is somebody else. By its id. */
  readonly touched: (stream: string, isOfCanary: boolean) => void;
  /** By the type's label, which an unknown type may get when it is served. */
  readonly #series = new Map<string, TypeSeries>();
  readonly #propagation: Distribution;

  constructor(around: Observing, clock: Clock, touched: StreamMetrics['touched']) {
    this.#around = around;
    this.#clock = clock;
    this.#propagation = around.metrics.observe.propagation();
    this.touched = touched;
  }

  /** Its node is not known yet. */
  opened(stream: LoggedStream): void {
    const { protocol, service } = stream.route;
    this.#debug('a stream opens', stream, { protocol, service });
  }

  ended(stream: LoggedStream): void {
    this.#debug('a stream ends', stream);
  }

  #debug(message: string, stream: LoggedStream, more?: Fields): void {
    const { log, logLevels } = this.#around;
    if (logLevels.enables('debug', stream.client?.nodeId)) log.debug(message, { ...whoIs(stream), ...more });
  }

  /** `stream`: undefined of a poll. */
  request(type: TypeUrl, kind: RequestKind, stream?: LoggedStream): void {
    this.#of(type).requests[kind].inc();
    if (kind !== 'subscribe' || stream === undefined) return;
    this.#debug('a client subscribes', stream, { type: shorten(typeInfo(type).short, longestText) });
  }

  response(
    type: TypeUrl,
    transport: ClientTransport,
    { bytes, receivedAt }: Pick<Response, 'bytes' | 'receivedAt'>,
  ): void {
    const series = this.#of(type);
    const polled = transport === 'rest' || transport === 'fetch';
    // Most relays have no polls, and need no series for them.
    const responses = polled
      ? this.#around.metrics.count.responses(type, transport)
      : series.responses[transport];
    responses.inc();
    series.bytes.inc(bytes.length);
    if (receivedAt === undefined) return;
    this.#propagation.observe(this.#secondsSince(receivedAt));
    this.#around.traces?.handedOver(receivedAt);
  }

  /** A client has accepted an update that arrived then. */
  acknowledged(type: TypeUrl, receivedAt: number): void {
    this.#of(type).acknowledged.observe(this.#secondsSince(receivedAt));
  }

  coalesced(type: TypeUrl, count: number): void {
    this.#of(type).coalesced.inc(count);
  }

  /** Something was sent though what it waited for has not come (protocol §8). `names`: of what is concerned. */
  overdue(type: TypeUrl, what: Overdue, names: readonly string[], stream: LoggedStream): void {
    this.#around.metrics.count.overdue(type, what).inc();
    const short = this.#around.metrics.typeLabel(type);
    const some = names.slice(0, 5).map((name) => shorten(name, longestText));
    this.#around.conditions.set(`overdue ${what} ${short}`, some.join(' '), 'warn', overdueText[what], {
      ...whoIs(stream),
      type: short,
      names: some,
    });
  }

  /** A subscription joined a view: how many of its resources were known, how many were not. */
  lookedUp(type: TypeUrl, hits: number, misses: number): void {
    const series = this.#of(type);
    series.hits.inc(hits);
    series.misses.inc(misses);
  }

  /** `message`: for the log, where an operator has to do something. */
  rejected(reason: string, message?: string, refused?: Refused, status?: GrpcStatus): void {
    this.#around.metrics.count.rejected(reason).inc();
    if (refused !== undefined) this.#refused(reason, refused, status);
    if (message === undefined) return;
    const who = refused === undefined ? {} : whoIs(refused);
    this.#around.conditions.set(`rejected ${reason}`, message, 'warn', message, who);
  }

  /** Logs a NACK, which `request` has counted. A fleet that rejects the same thing is one line. */
  nack(type: TypeUrl, node: string, version: string, error: ErrorDetail, peer: Peer): void {
    const { code } = error;
    const message = keptError(error.message);
    const what = JSON.stringify([version, message]);
    const short = this.#around.metrics.typeLabel(type);
    this.#around.conditions.set(`nack ${short}`, what, 'warn', `a client rejected ${short}`, {
      node: shorten(node, longestText),
      peer: peer.address,
      version: shorten(version, longestText),
      code,
      error: message,
    });
  }

  /** Before its node is known too: who follows a node wants to see that. */
  #refused(reason: string, refused: Refused, { code, message = '' }: Partial<GrpcStatus> = {}): void {
    const { log, logLevels } = this.#around;
    const node = ('client' in refused ? refused.client?.nodeId : undefined) ?? null;
    if (!logLevels.enables('debug', node)) return;
    const said = keptError(message);
    log.debug('a stream is refused', { node, ...whoIs(refused), reason, code, error: said });
  }

  #secondsSince(moment: number): number {
    return (this.#clock.monotonic() - moment) / 1000;
  }

  #of(type: TypeUrl): TypeSeries {
    const metrics = this.#around.metrics;
    const label = metrics.typeLabel(type);
    return getOrMake(this.#series, label, () => seriesOf(metrics, type));
  }
}

/** The series that one type's streams count, found once. */
function seriesOf(metrics: Metrics, type: TypeUrl) {
  const { count } = metrics;
  count.ambiguous(type); // begins at 0
  // No order holds for types that only clients know.
  if (isKnownType(type)) for (const what of overdues) count.overdue(type, what);
  return {
    requests: {
      subscribe: count.requests(type, 'subscribe'),
      ack: count.requests(type, 'ack'),
      nack: count.requests(type, 'nack'),
      stale: count.requests(type, 'stale'),
    },
    responses: { sotw: count.responses(type, 'sotw'), delta: count.responses(type, 'delta') },
    bytes: count.responseBytes(type),
    coalesced: count.coalesced(type),
    hits: count.lookups(type, 'hit'),
    misses: count.lookups(type, 'miss'),
    acknowledged: metrics.acknowledged(type),
  };
}

type TypeSeries = ReturnType<typeof seriesOf>;

/** The fields of a line about somebody. */
function whoIs(who: Refused): Fields {
  if ('address' in who) return { peer: who.address };
  const { id, transport, client } = who;
  const { address } = transport.peer;
  return client === undefined
    ? { stream: id, peer: address }
    : { stream: id, peer: address, node: shorten(client.nodeId, longestText) };
}
