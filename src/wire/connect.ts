import {
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
import { refuse } from './grpc-requests.ts';
import type { ColdPaths } from './http2-server.ts';
import { Code as GrpcCode } from './status.ts';
import type { Peer } from './transport.ts';

export interface ConnectPathsOptions {
  /** Each adds its services. */
  readonly routes: readonly ((router: ConnectRouter) => void)[];
  /** Paths that are answered by the handler of another one. */
  readonly aliases?: ReadonlyMap<string, string>;
  readonly maxRequestBytes: number;
  /** For Connect's clients that want JSON. */
  readonly jsonOptions?: Partial<JsonWriteOptions>;
  /** Calls open at once; health watches may stay for ever. */
  readonly maxCalls: number;
  /** A bug: a handler failed with something other than an RPC error. */
  readonly threw?: (error: unknown, path: string) => void;
}

/** Who calls, for handlers: `context.values.get(callerKey)`. */
export const callerKey = createContextKey<Peer | undefined>(undefined, { description: 'peer' });

type Handler = ConnectRouter['handlers'][number];

/**
 * The services where an update costs what it may, by connect-node on the hot server's own streams: gRPC, gRPC-Web and
 * Connect. Its adapter is not used, because it prints to the console and answers unknown paths without a grpc-status.
 */
export class ConnectPaths implements ColdPaths {
  readonly #handlers = new Map<string, Handler>();
  readonly #options: ConnectPathsOptions;
  readonly #shutDown = new AbortController();
  #calls = 0;

  constructor(options: ConnectPathsOptions) {
    this.#options = options;
    const router = createConnectRouter({
      acceptCompression: [compressionGzip],
      readMaxBytes: options.maxRequestBytes,
      shutdownSignal: this.#shutDown.signal,
      jsonOptions: options.jsonOptions ?? {},
    });
    for (const route of options.routes) route(router);
    for (const handler of router.handlers) this.#handlers.set(handler.requestPath, handler);
    for (const [alias, path] of options.aliases ?? []) {
      const handler = this.#handlers.get(path);
      if (handler !== undefined) this.#handlers.set(alias, handler);
    }
  }

  serves(path: string): boolean {
    return this.#handlers.has(withoutQuery(path));
  }

  handle(stream: ServerHttp2Stream, headers: IncomingHttpHeaders, raw: readonly string[], peer: Peer): void {
    const path = withoutQuery(headers[':path'] ?? '');
    const handler = this.#handlers.get(path);
    if (handler === undefined) return;
    if (this.#calls >= this.#options.maxCalls) {
      const message = `${this.#calls} such calls are open: that is the limit`;
      refuse(stream, { code: GrpcCode.RESOURCE_EXHAUSTED, message });
      return;
    }
    this.#calls++;
    stream.once('close', () => {
      this.#calls--;
    });
    // connect builds a URL of it, which throws for some of what gRPC clients put there for a Unix socket.
    const request = new Http2ServerRequest(stream, { ...headers, ':authority': 'localhost' }, {}, raw);
    const response = new Http2ServerResponse(stream);
    const values = createContextValues().set(callerKey, peer);
    this.#run(handler, request, response, values).catch((error: unknown) => {
      if (ConnectError.from(error).code !== Code.Aborted) this.#options.threw?.(error, path);
      stream.destroy();
    });
  }

  shutDown(): void {
    this.#shutDown.abort(new ConnectError('draining', Code.Unavailable));
  }

  async #run(
    handler: Handler,
    request: Http2ServerRequest,
    response: Http2ServerResponse,
    values: ReturnType<typeof createContextValues>,
  ): Promise<void> {
    const answer = await handler(universalRequestFromNodeRequest(request, response, undefined, values));
    await universalResponseToNodeResponse(answer, response);
  }
}

function withoutQuery(path: string): string {
  const at = path.indexOf('?');
  return at < 0 ? path : path.slice(0, at);
}
