import { create, fromBinary, type MessageInitShape, toBinary } from '@bufbuild/protobuf';
import { AnySchema } from '@bufbuild/protobuf/wkt';
import { type ChannelCredentials, type Client, credentials } from '@grpc/grpc-js';
import type { NodeSchema } from '../../../src/gen/envoy/config/core/v3/base_pb.ts';
import {
  DeltaDiscoveryRequestSchema,
  DiscoveryRequestSchema,
  ResourceSchema,
} from '../../../src/gen/envoy/service/discovery/v3/discovery_pb.ts';
import { ADS_SERVICE, typeByName } from '../../../src/model/types.ts';
import { MessageReader } from '../../../src/protobuf/message-reader.ts';
import {
  type ByteRanges,
  type IncomingResponse,
  readError,
  readResponse,
} from '../../../src/wire/response-reader.ts';
import { openCall, type RawCall, rawClient } from '../../support/grpc-calls.ts';
import { eventually } from './eventually.ts';

type Protocol = 'sotw' | 'delta';
/** The fields, not a message: they are merged with others. */
type Fields<Init> = Exclude<Init, { readonly $typeName: string }>;
type SotwRequest = Fields<MessageInitShape<typeof DiscoveryRequestSchema>>;
type DeltaRequest = Fields<MessageInitShape<typeof DeltaDiscoveryRequestSchema>>;
export type NodeInit = MessageInitShape<typeof NodeSchema>;

export interface XdsClientOptions {
  readonly node?: NodeInit;
  /** In every request, as Envoy does by default; else in the first. */
  readonly nodeAlways?: boolean;
  readonly secure?: ChannelCredentials;
  /** That its certificate must have. */
  readonly serverName?: string;
  /** Of the method; else ADS. */
  readonly path?: string;
}

/** What was received, without the resources' bytes: a test may have thousands of large ones. */
export interface Received {
  readonly type: string;
  readonly version: string;
  readonly nonce: string;
  readonly resources: number;
  /** The encoded resources; only while few. */
  readonly first: readonly Buffer[];
  readonly removed: readonly string[];
  /** resource_errors: each name, and its code; only while few. */
  readonly errors: readonly string[];
}

/** grpc-status and grpc-message. */
export interface Ending {
  readonly code: number;
  readonly details: string;
}

const defaultNode: NodeInit = { id: 'client', cluster: 'clients' };
const methods = { sotw: 'StreamAggregatedResources', delta: 'DeltaAggregatedResources' } as const;
const mostKept = 100;

/** A client of a connection and a stream of its own, over real sockets. It accepts whatever it is sent. */
export class XdsClient implements AsyncDisposable {
  readonly received: Received[] = [];
  /** How the stream ended. */
  status: Ending | undefined;
  readonly #protocol: Protocol;
  readonly #client: Client;
  readonly #call: RawCall;
  readonly #options: XdsClientOptions;
  /** SotW: an ACK repeats what is subscribed. */
  readonly #names = new Map<string, readonly string[]>();
  #greeted = false;

  constructor(address: string, protocol: Protocol, options: XdsClientOptions = {}) {
    this.#protocol = protocol;
    this.#options = options;
    this.#client = rawClient(address, options.secure ?? credentials.createInsecure(), {
      'grpc.max_receive_message_length': -1,
      'grpc.max_send_message_length': -1,
      ...(options.serverName === undefined
        ? {}
        : {
            'grpc.ssl_target_name_override': options.serverName,
            'grpc.default_authority': options.serverName,
          }),
    });
    this.#call = openCall(this.#client, options.path ?? `/${ADS_SERVICE}/${methods[protocol]}`);
    this.#call.on('status', (status) => {
      this.status = status;
    });
    this.#call.on('data', (bytes: Buffer) => this.#take(bytes));
  }

  /** For other calls on the same connection. */
  get connection(): Client {
    return this.#client;
  }

  /** Subscribes to these names of a type (a short name or a URL), or without any to all of it. */
  subscribe(type: string, names: readonly string[] = []): void {
    if (this.#protocol === 'delta') {
      this.delta(type, { resourceNamesSubscribe: [...names] });
      return;
    }
    this.#names.set(urlOf(type), names);
    this.sotw(type, { resourceNames: [...names] });
  }

  sotw(type: string, request: SotwRequest = {}): void {
    const message = { typeUrl: urlOf(type), ...this.#greeting(), ...request };
    this.raw(Buffer.from(toBinary(DiscoveryRequestSchema, create(DiscoveryRequestSchema, message))));
  }

  delta(type: string, request: DeltaRequest = {}): void {
    const message = { typeUrl: urlOf(type), ...this.#greeting(), ...request };
    this.raw(
      Buffer.from(toBinary(DeltaDiscoveryRequestSchema, create(DeltaDiscoveryRequestSchema, message))),
    );
  }

  /** A message, whatever is in it. */
  raw(bytes: Buffer): void {
    this.#call.write(bytes);
  }

  /** The responses of a type so far. */
  of(type: string): readonly Received[] {
    const url = urlOf(type);
    return this.received.filter((response) => response.type === url);
  }

  /** Waits for as many responses of a type; the last of them. */
  async gets(type: string, count = 1): Promise<Received> {
    const tooFew = (): Error =>
      new Error(`${this.of(type).length} of ${count} ${type} responses; the stream's end: ${this.#end()}`);
    const last = await eventually(() => {
      const all = this.of(type);
      if (all.length < count && this.status === undefined) throw tooFew();
      return all.length < count ? undefined : all.at(-1);
    });
    if (last === undefined) throw tooFew();
    return last;
  }

  /** Waits for the end of the stream: its status code and message. */
  async ends(): Promise<Ending> {
    return eventually(() => {
      if (this.status === undefined) throw new Error('the stream is open');
      return this.status;
    });
  }

  [Symbol.asyncDispose](): Promise<void> {
    this.#call.cancel();
    this.#client.close();
    return Promise.resolve();
  }

  #end(): string {
    return this.status === undefined ? 'none' : `${this.status.code} ${this.status.details}`;
  }

  #greeting(): { node?: NodeInit } {
    if (this.#greeted && this.#options.nodeAlways !== true) return {};
    this.#greeted = true;
    return { node: this.#options.node ?? defaultNode };
  }

  #take(bytes: Buffer): void {
    const read = readResponse(bytes, this.#protocol);
    if (!read.ok) throw new Error(read.error.reason);
    const { typeUrl, version, nonce, resources, errors } = read.value;
    const few = resources.length <= mostKept ? resources.length : 0;
    this.received.push({
      type: typeUrl,
      version,
      nonce,
      resources: resources.length,
      first: Array.from({ length: few }, (_, index) => Buffer.from(resources.at(index))),
      removed: removedOf(read.value),
      errors: errors.length <= mostKept ? errorsOf(errors) : [],
    });
    if (this.#protocol === 'delta') this.delta(typeUrl, { responseNonce: nonce });
    else {
      const names = this.#names.get(typeUrl) ?? [];
      this.sotw(typeUrl, { versionInfo: version, responseNonce: nonce, resourceNames: [...names] });
    }
  }
}

/** The names in a delta response's resources. */
export function deltaNames({ first }: Received): readonly string[] {
  return first.map((bytes) => fromBinary(ResourceSchema, bytes).name);
}

/** The contents of a SotW response's resources, each without its Any. */
export function sotwBodies({ first }: Received): readonly Uint8Array[] {
  return first.map((bytes) => fromBinary(AnySchema, bytes).value);
}

function removedOf(response: object): readonly string[] {
  const { removed } = response as IncomingResponse;
  return Array.from({ length: removed.length }, (_, index) => removed.at(index).toString());
}

const errorsOf = (errors: ByteRanges): readonly string[] =>
  Array.from({ length: errors.length }, (_, index) => {
    const { name, code } = readError(new MessageReader(errors.at(index)));
    return `${name}: ${code}`;
  });

function urlOf(type: string): string {
  return typeByName(type) ?? type;
}
