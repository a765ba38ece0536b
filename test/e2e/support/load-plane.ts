import { create, fromBinary, type MessageInitShape, toBinary } from '@bufbuild/protobuf';
import {
  Client,
  type ClientDuplexStream,
  credentials,
  Server,
  ServerCredentials,
  type ServerDuplexStream,
  status,
} from '@grpc/grpc-js';
import {
  type LoadStatsRequest,
  LoadStatsRequestSchema,
  type LoadStatsResponse,
  LoadStatsResponseSchema,
} from '../../../src/gen/envoy/service/load_stats/v3/lrs_pb.ts';
import { LOAD_PATH } from '../../../src/model/load.ts';
import { ownPort } from '../../support/ports.ts';

type Call = ServerDuplexStream<Buffer, Buffer>;
type Asked = MessageInitShape<typeof LoadStatsResponseSchema>;

const bytes = (value: Buffer): Buffer => value;
const bidirectional = (path: string) =>
  ({
    path,
    requestStream: true,
    responseStream: true,
    requestSerialize: bytes,
    requestDeserialize: bytes,
    responseSerialize: bytes,
    responseDeserialize: bytes,
  }) as const;

/** What a control plane is told by one stream. */
export interface LoadStreamHeard {
  readonly call: Call;
  readonly requests: LoadStatsRequest[];
  isOpen: boolean;
}

/** A control plane that takes load reports, and answers nothing else. */
export class LoadPlane implements AsyncDisposable {
  readonly streams: LoadStreamHeard[] = [];
  #server = new Server();
  /** Its own also while it is away. */
  #port = 0;
  #asked: Asked | undefined;
  /** Streams end with UNIMPLEMENTED. */
  isWithout = false;

  constructor(asked?: Asked) {
    this.#asked = asked;
  }

  get address(): string {
    return `127.0.0.1:${this.#port}`;
  }

  get open(): readonly LoadStreamHeard[] {
    return this.streams.filter(({ isOpen }) => isOpen);
  }

  async listen(): Promise<this> {
    this.#port ||= await ownPort();
    this.#server = new Server();
    this.#server.addService(
      { load: bidirectional(LOAD_PATH), ads: bidirectional(adsPath) },
      { load: (call: Call) => this.#take(call), ads: (call: Call) => void call.on('data', () => {}) },
    );
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const credential = ServerCredentials.createInsecure();
    this.#server.bindAsync(`127.0.0.1:${this.#port}`, credential, (error) =>
      error === null ? resolve() : reject(error),
    );
    await promise;
    return this;
  }

  /** Of all streams, now and later. */
  ask(asked: Asked): void {
    this.#asked = asked;
    for (const { call } of this.open) call.write(instruction(asked));
  }

  kill(): void {
    this.#server.forceShutdown();
  }

  /** Requests by cluster: of everything that was heard, each request once. */
  issued(cluster: string): number {
    return this.streams
      .flatMap(({ requests }) => requests)
      .flatMap(({ clusterStats }) => clusterStats)
      .filter(({ clusterName }) => clusterName === cluster)
      .flatMap(({ upstreamLocalityStats }) => upstreamLocalityStats)
      .reduce((sum, { totalIssuedRequests }) => sum + Number(totalIssuedRequests), 0);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.kill();
  }

  #take(call: Call): void {
    if (this.isWithout) {
      call.emit('error', { code: status.UNIMPLEMENTED, details: 'no such service' });
      return;
    }
    const heard: LoadStreamHeard = { call, requests: [], isOpen: true };
    this.streams.push(heard);
    call.on('data', (request: Buffer) => {
      heard.requests.push(fromBinary(LoadStatsRequestSchema, request));
      if (heard.requests.length === 1 && this.#asked !== undefined) call.write(instruction(this.#asked));
    });
    for (const event of ['end', 'cancelled', 'error'])
      call.on(event, () => {
        heard.isOpen = false;
        if (event === 'end') call.end();
      });
  }
}

const adsPath = '/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources';
const instruction = (asked: Asked): Buffer =>
  Buffer.from(toBinary(LoadStatsResponseSchema, create(LoadStatsResponseSchema, asked)));

/** A client that reports what it is told to. */
export class LoadReporter implements Disposable {
  readonly told: LoadStatsResponse[] = [];
  status: number | undefined;
  readonly #client: Client;
  readonly #call: ClientDuplexStream<Buffer, Buffer>;

  /** On a connection of its own. */
  constructor(address: string, id: string, metadata: Record<string, string> = {}) {
    this.#client = new Client(address, credentials.createInsecure(), { 'grpc.use_local_subchannel_pool': 1 });
    this.#call = this.#client.makeBidiStreamRequest(LOAD_PATH, bytes, bytes);
    this.#call.on('data', (response: Buffer) =>
      this.told.push(fromBinary(LoadStatsResponseSchema, response)),
    );
    this.#call.on('error', () => {});
    this.#call.on('status', ({ code }: { readonly code: number }) => {
      this.status = code;
    });
    this.send({ node: { id, metadata } });
  }

  send(request: MessageInitShape<typeof LoadStatsRequestSchema>): void {
    this.#call.write(Buffer.from(toBinary(LoadStatsRequestSchema, create(LoadStatsRequestSchema, request))));
  }

  /** So many requests to a cluster, so many in progress, and so many of the first that failed. */
  report(cluster: string, issued: number, active = 0, failed = 0): void {
    const stats = {
      totalIssuedRequests: BigInt(issued),
      totalSuccessfulRequests: BigInt(issued - failed),
      totalErrorRequests: BigInt(failed),
      totalRequestsInProgress: BigInt(active),
    };
    this.send({ clusterStats: [{ clusterName: cluster, upstreamLocalityStats: [stats] }] });
  }

  [Symbol.dispose](): void {
    this.#call.cancel();
    this.#client.close();
  }
}
