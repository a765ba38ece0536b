import {
  constants,
  Http2ServerRequest,
  Http2ServerResponse,
  type IncomingHttpHeaders,
  type ServerHttp2Stream,
} from 'node:http2';
import type { JsonWriteOptions } from '@bufbuild/protobuf';
import {
  Code,
  ConnectError,
  type ConnectRouter,
  createConnectRouter,
  createContextKey,
  createContextValues,
} from '@connectrpc/connect';
import {
  compressionGzip,
  universalRequestFromNodeRequest,
  universalResponseToNodeResponse,
} from '@connectrpc/connect-node';
import { type Clock, Sweep } from '../model/clock.ts';
import { getOrMake } from '../model/maps.ts';
import { fail, ok, type Result } from '../model/result.ts';
import { Deframer, prefixOf } from './grpc-frames.ts';
import { beginAnswer, endAnswer, refusalOf, refuse } from './grpc-requests.ts';
import { Code as GrpcCode, type GrpcStatus } from './grpc-status.ts';
import { httpStatusOf } from './http-answer.ts';
import { pathOf } from './http-server.ts';
import { draining } from './refusal.ts';
import type { Peer } from './server-stream.ts';

/** Calls that are counted together. One object for each kind. */
export interface CallKind {
  /** For messages: "health watches". */
  readonly name: string;
  /** Open at once, of all peers and of one (wire/peer.ts). */
  readonly max: number;
  readonly maxPerPeer: number;
  /** What happens to one too many: it is refused, or the oldest of the peer with most ends so that it can be answered. */
  readonly whenExceeded: 'REFUSED' | 'ENDS_OLDEST';
}

/** One call of an auxiliary service, as its handler sees it. */
export class AuxiliaryCall {
  readonly peer: Peer;
  readonly kind: CallKind;
  readonly #stream: ServerHttp2Stream;
  readonly #released: (call: AuxiliaryCall) => void;
  /** The stream, and work that goes on though the client may have left. */
  #holds = 1;
  #waitingSince: number | undefined;
  #answer: readonly Uint8Array[] | undefined;
  /** Bytes of answers that the client has not taken yet. */
  #kept = 0;
  #ended = false;

  constructor(
    stream: ServerHttp2Stream,
    peer: Peer,
    kind: CallKind,
    released: (call: AuxiliaryCall) => void,
  ) {
    this.peer = peer;
    this.kind = kind;
    this.#stream = stream;
    this.#released = released;
    stream.once('close', () => {
      this.answerTaken();
      this.#release();
    });
  }

  /** It was ended here: what its handler says now reaches nobody. */
  get ended(): boolean {
    return this.#ended;
  }

  /** Work for it goes on until the function returned is called: until then it counts, whether or not the client stays. */
  hold(): () => void {
    this.#holds++;
    return () => this.#release();
  }

  /**
   * Sent instead of the empty message that the handler answers with next. It is encoded already. `framed`: behind a
   * length, as in gRPC and in Connect's streams.
   */
  answerWith(pieces: readonly Uint8Array[], framed = true): void {
    const size = pieces.reduce((sum, { length }) => sum + length, 0);
    this.#answer = framed ? [prefixOf(size), ...pieces] : pieces;
  }

  /** So many bytes are held for the peer until it has taken its answer. A text says why they may not be. */
  keepAnswer(bytes: number): string | undefined {
    if (this.#stream.closed || this.#stream.destroyed) return undefined;
    const excess = this.peer.account.hold(bytes);
    if (excess === undefined) this.#kept += bytes;
    return excess;
  }

  answerTaken(): void {
    this.peer.account.keeps(-this.#kept);
    this.#kept = 0;
  }

  takeAnswer(): readonly Uint8Array[] | undefined {
    const answer = this.#answer;
    this.#answer = undefined;
    return answer;
  }

  /** A request was complete, and something was answered, or the client has taken a piece of an answer. */
  progressed(): void {
    this.#waitingSince = undefined;
  }

  /** Whether the relay has waited for the client for so long. */
  isStalled(now: number, milliseconds: number): boolean {
    if (this.#stream.readableEnded && this.#stream.writableLength === 0) {
      this.#waitingSince = undefined;
      return false;
    }
    this.#waitingSince ??= now;
    return now - this.#waitingSince >= milliseconds;
  }

  end(status: GrpcStatus): void {
    if (this.#ended) return;
    this.#ended = true;
    const stream = this.#stream;
    if (!stream.headersSent) {
      refuse(stream, status);
      return;
    }
    // Trailers cannot overtake what the client does not read. gRPC takes this code for RESOURCE_EXHAUSTED.
    stream.close(constants.NGHTTP2_ENHANCE_YOUR_CALM);
    stream.destroy();
  }

  #release(): void {
    if (--this.#holds === 0) this.#released(this);
  }
}

/** Services with bounds of their own. */
export interface AuxiliaryService {
  /** Adds them to the router. */
  readonly routes: (router: ConnectRouter) => void;
  readonly maxRequestBytes: number;
  readonly kindOf: (path: string) => CallKind;
  /** By path: plain gRPC is answered by these, without connect and without waiting for the turn of its peer. */
  readonly atOnce?: ReadonlyMap<string, AnswerAtOnce>;
  /** Asked before anything of the request is read: why this peer may not call. */
  readonly refusal?: (peer: Peer) => GrpcStatus | undefined;
}

interface ConnectPathsOptions {
  readonly clock: Clock;
  /** How long a client may take to finish a request, or to read an answer. */
  readonly stalledMilliseconds: () => number;
  /** For metrics: a call too many, or one that was ended because its client did nothing. */
  readonly refused: (reason: 'calls' | 'stalled') => void;
  readonly services: readonly AuxiliaryService[];
  /** Paths that are answered by the handler of another one. */
  readonly aliases?: ReadonlyMap<string, string>;
  /** For Connect's clients that want JSON. */
  readonly jsonOptions?: Partial<JsonWriteOptions>;
  /** A bug: a handler failed with something other than an RPC error. */
  readonly threw?: (error: unknown, path: string) => void;
}

/** Who calls, for handlers: `context.values.get(callKey)`. */
export const callKey = createContextKey<AuxiliaryCall | undefined>(undefined, { description: 'call' });

type Handler = ConnectRouter['handlers'][number];

/** How often calls are looked at whose clients do nothing, in milliseconds. */
const stalledCheckMs = 1000;

/** Answers are written as they are: compressing megabytes for whoever asks costs more than sending them. */
const compressNothing = 2 ** 32 - 1;

/**
 * The services where an update costs what it may, by connect-node on the hot server's own streams: gRPC, gRPC-Web and
 * Connect. Its adapter is not used, because it prints to the console and answers unknown paths without a grpc-status.
 */
export class ConnectPaths {
  readonly #paths = new Map<string, { readonly handler: Handler; readonly service: AuxiliaryService }>();
  readonly #options: ConnectPathsOptions;
  readonly #shutDown = new AbortController();
  #isShutDown = false;
  /** Those that are open, in the order in which they came. */
  readonly #calls = new Map<CallKind, Set<AuxiliaryCall>>();
  readonly #stalled: Sweep;

  constructor(options: ConnectPathsOptions) {
    this.#options = options;
    const { clock, stalledMilliseconds } = options;
    this.#stalled = new Sweep(clock, stalledCheckMs, () => {
      const [now, milliseconds] = [clock.monotonic(), stalledMilliseconds()];
      for (const calls of this.#calls.values())
        for (const call of calls) this.#endIfStalled(call, now, milliseconds);
      return this.#calls.values().some(({ size }) => size > 0);
    });
    for (const service of options.services) {
      const router = createConnectRouter({
        acceptCompression: [compressionGzip],
        compressMinBytes: compressNothing,
        readMaxBytes: service.maxRequestBytes,
        shutdownSignal: this.#shutDown.signal,
        jsonOptions: options.jsonOptions ?? {},
      });
      service.routes(router);
      for (const handler of router.handlers) this.#paths.set(handler.requestPath, { handler, service });
    }
    for (const [alias, path] of options.aliases ?? []) {
      const known = this.#paths.get(path);
      if (known !== undefined) this.#paths.set(alias, known);
    }
  }

  serves(path: string): boolean {
    return this.#paths.has(pathOf(path));
  }

  /** It costs less to answer than to have it wait for the turn of its peer. */
  isAtOnce(headers: IncomingHttpHeaders): boolean {
    return this.#answerAtOnceOf(headers) !== undefined;
  }

  #answerAtOnceOf(headers: IncomingHttpHeaders): AnswerAtOnce | undefined {
    const path = headers[':path'] ?? '';
    const answer = this.#paths.get(path)?.service.atOnce?.get(path);
    return answer !== undefined && isPlainGrpc(headers) ? answer : undefined;
  }

  handle(stream: ServerHttp2Stream, headers: IncomingHttpHeaders, raw: readonly string[], peer: Peer): void {
    const path = pathOf(headers[':path'] ?? '');
    const known = this.#paths.get(path);
    if (known === undefined) return;
    const { handler, service } = known;
    const refusal = service.refusal?.(peer);
    const opened = refusal === undefined ? this.#open(stream, peer, service.kindOf(path)) : fail(refusal);
    if (!opened.ok) {
      // gRPC's clients look for the grpc-status of a 200 (gRPC over HTTP/2, Responses); others go by the HTTP status.
      const isGrpc = headers['content-type']?.startsWith('application/grpc') === true;
      refuse(stream, opened.error, isGrpc ? 200 : httpStatusOf(opened.error.code));
      return;
    }
    const call = opened.value;
    const atOnce = this.#answerAtOnceOf(headers);
    if (atOnce !== undefined) {
      answerAtOnce(stream, call, service.maxRequestBytes, atOnce);
      return;
    }
    // Thousands of calls may arrive in one packet: those that are over when it is their turn do not begin.
    const start = (): void => void this.#start(handler, stream, headers, raw, call);
    peer.account.wait(() => peer.account.work(start));
  }

  #open(stream: ServerHttp2Stream, peer: Peer, kind: CallKind): Result<AuxiliaryCall, GrpcStatus> {
    const { name, max, maxPerPeer, whenExceeded } = kind;
    const { account } = peer;
    const calls = getOrMake(this.#calls, kind, () => new Set());
    const isFull = account.count(name) >= maxPerPeer;
    if (isFull || calls.size >= max) {
      this.#options.refused('calls');
      const message = isFull
        ? `this peer has ${maxPerPeer} ${name} open, which is the maximum`
        : `${max} ${name} are open, which is the maximum`;
      const status: GrpcStatus = { code: GrpcCode.RESOURCE_EXHAUSTED, message };
      if (whenExceeded === 'REFUSED') return fail(status);
      const accounts = [...calls].map((call) => call.peer.account);
      const largest = isFull ? account : accounts.reduce((a, b) => (b.count(name) > a.count(name) ? b : a));
      const oldest = calls.values().find((call) => call.peer.account === largest);
      if (oldest === undefined) return fail(status);
      this.#remove(oldest);
      oldest.end(status);
    }
    const call = new AuxiliaryCall(stream, peer, kind, (released) => this.#remove(released));
    calls.add(call);
    account.enter(name);
    this.#stalled.start();
    return ok(call);
  }

  #remove(call: AuxiliaryCall): void {
    if (this.#calls.get(call.kind)?.delete(call) === true) call.peer.account.leave(call.kind.name);
  }

  #endIfStalled(call: AuxiliaryCall, now: number, milliseconds: number): void {
    if (call.ended || !call.isStalled(now, milliseconds)) return;
    this.#options.refused('stalled');
    const message = `the client has not finished its request, or not read its answer, for ${milliseconds} ms (limits.stalled_timeout)`;
    call.end({ code: GrpcCode.RESOURCE_EXHAUSTED, message });
  }

  /** Ends what is open there, such as health watches. */
  shutDown(): void {
    this.#isShutDown = true;
    // For its headers a ConnectError has Node load fetch: a relay that ends has no use for that.
    if (this.#calls.values().every(({ size }) => size === 0)) return;
    this.#shutDown.abort(new ConnectError(draining.status.message, Code.Unavailable));
  }

  async #start(
    handler: Handler,
    stream: ServerHttp2Stream,
    headers: IncomingHttpHeaders,
    raw: readonly string[],
    call: AuxiliaryCall,
  ): Promise<void> {
    if (call.ended || stream.destroyed || stream.closed) return;
    if (this.#isShutDown) {
      call.end(draining.status);
      return;
    }
    try {
      // connect builds a URL of it, which throws for some of what gRPC clients put there for a Unix socket.
      const request = new Http2ServerRequest(stream, { ...headers, ':authority': 'localhost' }, {}, raw);
      const response = new Http2ServerResponse(stream);
      const values = createContextValues().set(callKey, call);
      const answer = await handler(universalRequestFromNodeRequest(request, response, undefined, values));
      const body = answer.body && withProgress(answer.body, call, answer.header);
      await universalResponseToNodeResponse({ ...answer, ...(body && { body }) }, response);
    } catch (error) {
      const expected = call.ended || ConnectError.from(error).code === Code.Aborted;
      if (!expected) this.#options.threw?.(error, handler.requestPath);
      stream.destroy();
    }
  }
}

/**
 * What connect-node answers, a message at a time; the call hears of each. Where its handler has an encoded answer, the
 * message is empty and that goes out in its place: in pieces, each when the client has taken the one before. As one
 * message it would be copied three times, and block the process for as long.
 */
async function* withProgress(
  body: AsyncIterable<Uint8Array>,
  call: AuxiliaryCall,
  header: Headers | undefined,
): AsyncIterable<Uint8Array> {
  for await (const part of body) {
    call.progressed();
    const made = call.takeAnswer();
    if (made === undefined) yield part;
    else {
      header?.delete('content-length'); // of the empty message
      for (const piece of made) {
        yield piece;
        call.progressed();
      }
    }
    call.answerTaken();
  }
}

/** From the message of a unary call to the frame of its answer. It costs less than to have the call wait. */
type AnswerAtOnce = (request: Buffer) => Result<Buffer, GrpcStatus>;

const protobuf = /^application\/grpc(?:\+proto)?(?:;|$)/i;
const done: GrpcStatus = { code: GrpcCode.OK, message: '' };
const missing: GrpcStatus = {
  code: GrpcCode.UNIMPLEMENTED,
  message: 'a unary call takes one message, but none came',
};
const another: GrpcStatus = {
  code: GrpcCode.UNIMPLEMENTED,
  message: 'a unary call takes one message, but another one came',
};

/** Protobuf that is not compressed, as every gRPC client sends it that was not told otherwise. */
function isPlainGrpc(headers: IncomingHttpHeaders): boolean {
  const encoding = headers['grpc-encoding'] ?? 'identity';
  const type = headers['content-type'] ?? '';
  return encoding === 'identity' && protobuf.test(type) && refusalOf(headers) === undefined;
}

/** Answers when the request has arrived whole, and does not ask whether it is its peer's turn. */
function answerAtOnce(
  stream: ServerHttp2Stream,
  call: AuxiliaryCall,
  maxRequestBytes: number,
  answer: AnswerAtOnce,
): void {
  const { account } = call.peer;
  let outcome: Result<Buffer, GrpcStatus> | undefined;
  const sink = {
    message: (bytes: Buffer): void => {
      outcome = outcome === undefined ? answer(bytes) : fail(another);
    },
  };
  const deframer = new Deframer(sink, maxRequestBytes, 'a fixed limit');
  stream.once('close', () => deframer.stop());
  const finish = (result: Result<Buffer, GrpcStatus>): void => {
    deframer.stop();
    if (call.ended || stream.destroyed || stream.closed || stream.headersSent) return;
    if (!result.ok) {
      refuse(stream, result.error);
      return;
    }
    beginAnswer(stream);
    endAnswer(stream, done, result.value);
  };
  stream.on('data', (chunk: Buffer) =>
    account.work(() => {
      const fault = deframer.push(chunk);
      if (fault !== undefined) finish(fail(fault));
    }),
  );
  stream.on('end', () =>
    account.work(() => {
      const fault = deframer.end();
      finish(fault === undefined ? (outcome ?? fail(missing)) : fail(fault));
    }),
  );
}

/** Connect's codes are gRPC's, so the number is the same. */
const isCode = (code: number): code is Code => code in Code;

/** A refusal of ours as connect-node wants it thrown. */
export function rpcError({ code, message }: GrpcStatus): ConnectError {
  return new ConnectError(message, isCode(code) ? code : Code.Unknown);
}

/** No more is made for somebody who has left. */
export const ASKER_GONE: GrpcStatus = { code: GrpcCode.CANCELLED, message: 'who asked waits no longer' };

/** What a request must not say. */
export const invalid = (message: string): ConnectError =>
  rpcError({ code: GrpcCode.INVALID_ARGUMENT, message });
