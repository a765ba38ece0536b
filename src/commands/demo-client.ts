import { create, fromBinary, type MessageInitShape, toBinary } from '@bufbuild/protobuf';
import { Client, type ClientDuplexStream, credentials } from '@grpc/grpc-js';
import {
  type DeltaDiscoveryRequest,
  DeltaDiscoveryRequestSchema,
  type DeltaDiscoveryResponse,
  DeltaDiscoveryResponseSchema,
} from '../gen/envoy/service/discovery/v3/discovery_pb.ts';
import { ADS_SERVICE, typeByName } from '../model/types.ts';
import { Code } from '../wire/grpc-status.ts';

/** What the sample clients ask for: everything of these types, in the order in which Envoy would. */
export const demoTypes = ['cds', 'eds', 'lds', 'rds'] as const;

export interface DemoClientOptions {
  /** HOST:PORT of the relay's xDS listener. */
  readonly address: string;
  /** What it tells in node.metadata. */
  readonly metadata: Readonly<Record<string, string>>;
  readonly id: string;
  readonly received: (response: DeltaDiscoveryResponse) => void;
  /** It has rejected a response, for this reason. */
  readonly rejected: (response: DeltaDiscoveryResponse, reason: string) => void;
  /** The stream ended, with gRPC's reason; not called after `close`. */
  readonly ended: (reason: string) => void;
}

/** The filter of deploy/demo/broken: no Envoy has it. */
const brokenFilter = 'no.such.filter';

/** A client as Envoy is one: delta ADS, plain names, a node with metadata. It rejects what is in deploy/demo/broken. */
export class DemoClient {
  readonly #client: Client;
  readonly #stream: ClientDuplexStream<DeltaDiscoveryRequest, DeltaDiscoveryResponse>;
  #closed = false;

  constructor(options: DemoClientOptions) {
    this.#client = new Client(options.address, credentials.createInsecure());
    this.#stream = this.#client.makeBidiStreamRequest(
      `/${ADS_SERVICE}/DeltaAggregatedResources`,
      (request: DeltaDiscoveryRequest) => Buffer.from(toBinary(DeltaDiscoveryRequestSchema, request)),
      (bytes) => fromBinary(DeltaDiscoveryResponseSchema, bytes),
    );
    this.#stream.on('data', (response: DeltaDiscoveryResponse) => {
      const { typeUrl, nonce: responseNonce } = response;
      const reason = rejectionOf(response);
      if (reason === undefined) {
        this.#send({ typeUrl, responseNonce });
        options.received(response);
        return;
      }
      this.#send({ typeUrl, responseNonce, errorDetail: { code: Code.INVALID_ARGUMENT, message: reason } });
      options.rejected(response, reason);
    });
    this.#stream.on('error', (error) => {
      if (!this.#closed) options.ended(error.message);
    });
    this.#stream.on('end', () => {
      if (!this.#closed) options.ended('the relay ended the stream');
    });
    for (const short of demoTypes) {
      // The node is needed on the first message only (protocol §3.1).
      const node =
        short === demoTypes[0]
          ? { node: { id: options.id, cluster: 'demo', metadata: options.metadata } }
          : {};
      this.#send({ ...node, typeUrl: typeByName(short) ?? '', resourceNamesSubscribe: ['*'] });
    }
  }

  close(): void {
    this.#closed = true;
    this.#stream.cancel();
    this.#client.close();
  }

  #send(request: MessageInitShape<typeof DeltaDiscoveryRequestSchema>): void {
    this.#stream.write(create(DeltaDiscoveryRequestSchema, request));
  }
}

/** In Envoy's words. */
function rejectionOf({ resources }: DeltaDiscoveryResponse): string | undefined {
  const broken = resources.find(
    ({ resource }) => resource !== undefined && Buffer.from(resource.value).includes(brokenFilter),
  );
  if (broken === undefined) return undefined;
  return `Error adding/updating listener(s) ${broken.name}: Didn't find a registered implementation for '${brokenFilter}'`;
}
