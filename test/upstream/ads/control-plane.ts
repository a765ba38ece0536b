import { fromBinary } from '@bufbuild/protobuf';
import {
  type Metadata,
  Server,
  ServerCredentials,
  type ServerDuplexStream,
  type ServerOptions,
} from '@grpc/grpc-js';
import {
  type DeltaDiscoveryRequest,
  DeltaDiscoveryRequestSchema,
  type DiscoveryRequest,
  DiscoveryRequestSchema,
} from '../../../src/gen/envoy/service/discovery/v3/discovery_pb.ts';
import type { TypeUrl } from '../../../src/model/brand.ts';
import { ADS_SERVICE } from '../../../src/model/types.ts';
import { ownPort } from '../../support/ports.ts';
import { deltaResponse, parseItem, sotwResponse } from './responses.ts';

export type Request = DiscoveryRequest | DeltaDiscoveryRequest;

/** One ADS stream, seen from the server. */
export class AdsStream {
  readonly requests: Request[] = [];
  readonly metadata: Metadata;
  readonly #call: ServerDuplexStream<Buffer, Buffer>;
  readonly #delta: boolean;
  #nonce = 0;
  open = true;

  constructor(call: ServerDuplexStream<Buffer, Buffer>, delta: boolean) {
    this.#call = call;
    this.#delta = delta;
    this.metadata = call.metadata;
  }

  get first(): Request | undefined {
    return this.requests[0];
  }

  /** Sends items in the notation of responses.ts. */
  send(type: TypeUrl, version: string, ...items: readonly string[]): void {
    const nonce = String(++this.#nonce);
    const encode = this.#delta ? deltaResponse : sotwResponse;
    this.sendRaw(encode(type, version, nonce, items.map(parseItem)));
  }

  sendRaw(bytes: Buffer): void {
    this.#call.write(bytes);
  }

  fail(code: number, details: string): void {
    this.#call.emit('error', { code, details });
  }

  end(): void {
    this.#call.end();
  }
}

/** A control plane whose answers are a test's script. */
export class ControlPlane {
  readonly streams: AdsStream[] = [];
  /** Called for each request. */
  answer: (stream: AdsStream, request: Request) => void = () => {};
  readonly #options: ServerOptions;
  #server = new Server();
  port = 0;

  constructor(options: ServerOptions = {}) {
    this.#options = options;
  }

  /** Where it has listened before, if it has: the port is its own until the test's process ends. */
  async listen(port = this.port, credentials = ServerCredentials.createInsecure()): Promise<this> {
    this.#server = new Server(this.#options);
    const same = (bytes: Buffer): Buffer => bytes;
    const method = (name: string) => ({
      path: `/${ADS_SERVICE}/${name}`,
      requestStream: true as const,
      responseStream: true as const,
      requestSerialize: same,
      requestDeserialize: same,
      responseSerialize: same,
      responseDeserialize: same,
    });
    this.#server.addService(
      {
        StreamAggregatedResources: method('StreamAggregatedResources'),
        DeltaAggregatedResources: method('DeltaAggregatedResources'),
      },
      {
        StreamAggregatedResources: (call: ServerDuplexStream<Buffer, Buffer>) => this.#serve(call, false),
        DeltaAggregatedResources: (call: ServerDuplexStream<Buffer, Buffer>) => this.#serve(call, true),
      },
    );
    const address = `127.0.0.1:${port === 0 ? await ownPort() : port}`;
    this.port = await new Promise<number>((resolve, reject) => {
      this.#server.bindAsync(address, credentials, (error, bound) =>
        error === null ? resolve(bound) : reject(error),
      );
    });
    return this;
  }

  /** All requests of all streams. */
  get requests(): Request[] {
    return this.streams.flatMap((stream) => stream.requests);
  }

  get openStreams(): AdsStream[] {
    return this.streams.filter((stream) => stream.open);
  }

  kill(): void {
    this.#server.forceShutdown();
  }

  #serve(call: ServerDuplexStream<Buffer, Buffer>, delta: boolean): void {
    const stream = new AdsStream(call, delta);
    this.streams.push(stream);
    call.on('data', (bytes: Buffer) => {
      const request = delta
        ? fromBinary(DeltaDiscoveryRequestSchema, bytes)
        : fromBinary(DiscoveryRequestSchema, bytes);
      stream.requests.push(request);
      this.answer(stream, request);
    });
    call.on('cancelled', () => {
      stream.open = false;
    });
    call.on('end', () => {
      stream.open = false;
      call.end();
    });
    call.on('error', () => {
      stream.open = false;
    });
  }
}
