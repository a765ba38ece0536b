import { create, toBinary } from '@bufbuild/protobuf';
import type { ChannelCredentials, Client } from '@grpc/grpc-js';
import {
  DeltaDiscoveryRequestSchema,
  DiscoveryRequestSchema,
} from '../../src/gen/envoy/service/discovery/v3/discovery_pb.ts';
import { openCall, type RawCall, rawClient } from '../support/grpc-calls.ts';
import { type } from '../support/in-memory-relay.ts';
import type { Stream } from './ground.ts';
import type { Type } from './policy.ts';

/** As before each message of gRPC. */
const noPrefix = Buffer.alloc(5);

/** A stream over mutual TLS, on a connection of its own. */
export class RealStream implements Stream {
  readonly path: string;
  readonly inbox: Buffer[] = [];
  readonly connection: Client;
  status: Stream['status'];
  readonly #protocol: 'sotw' | 'delta';
  readonly #call: RawCall;

  constructor(
    address: string,
    secure: ChannelCredentials,
    serverName: string,
    path: string,
    protocol: 'sotw' | 'delta',
  ) {
    this.path = path;
    this.#protocol = protocol;
    this.connection = rawClient(address, secure, {
      'grpc.ssl_target_name_override': serverName,
      'grpc.default_authority': serverName,
    });
    this.#call = openCall(this.connection, path);
    this.#call.on('data', (bytes: Buffer) => this.inbox.push(Buffer.concat([noPrefix, bytes])));
    this.#call.on('status', ({ code, details }) => {
      this.status = { code, message: details };
    });
  }

  get blocked(): boolean {
    return this.#call.isPaused();
  }

  set blocked(blocked: boolean) {
    if (blocked) this.#call.pause();
  }

  send(short: Type, request: object): void {
    const message = { typeUrl: type(short), ...request };
    const bytes =
      this.#protocol === 'delta'
        ? toBinary(DeltaDiscoveryRequestSchema, create(DeltaDiscoveryRequestSchema, message))
        : toBinary(DiscoveryRequestSchema, create(DiscoveryRequestSchema, message));
    this.#call.write(Buffer.from(bytes));
  }

  unblock(): void {
    this.#call.resume();
  }

  disconnect(): void {
    this.#call.cancel();
    this.connection.close();
  }
}
