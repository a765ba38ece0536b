import { type ClientHttp2Session, type ClientHttp2Stream, connect } from 'node:http2';
import { create, toBinary } from '@bufbuild/protobuf';
import { DiscoveryRequestSchema } from '../../../src/gen/envoy/service/discovery/v3/discovery_pb.ts';
import { ADS_SERVICE } from '../../../src/model/types.ts';
import { Deframer, frameOf } from '../../../src/wire/grpc-frames.ts';
import { readResponse } from '../../../src/wire/response-reader.ts';
import { type } from '../../support/in-memory-relay.ts';

/** A SotW client of CDS on a connection of its own, which can stop reading. Cheap enough for a thousand. */
export class Reader {
  /** version_info of each response, in order. */
  readonly versions: string[] = [];
  closed = false;
  readonly #session: ClientHttp2Session;
  readonly #stream: ClientHttp2Stream;

  constructor(address: string, id: string, window: number) {
    this.#session = connect(`http://${address}`, { settings: { initialWindowSize: window } });
    this.#session.on('error', () => undefined);
    const path = `/${ADS_SERVICE}/StreamAggregatedResources`;
    const headers = { ':method': 'POST', ':path': path, 'content-type': 'application/grpc', te: 'trailers' };
    this.#stream = this.#session.request(headers);
    const deframer = new Deframer({ message: (bytes) => this.#take(bytes) }, 64 << 20, '');
    this.#stream.on('data', (chunk: Buffer) => deframer.push(chunk));
    this.#stream.on('close', () => {
      this.closed = true;
    });
    this.#stream.on('error', () => undefined);
    this.#send({ node: { id, cluster: 'fleet' } });
  }

  /** Takes nothing from the stream any more: the relay's windows fill. */
  stall(): void {
    this.#stream.pause();
  }

  read(): void {
    this.#stream.resume();
  }

  close(): void {
    this.#session.destroy();
  }

  #take(bytes: Buffer): void {
    const response = readResponse(bytes, 'sotw');
    if (!response.ok) throw new Error(response.error.reason);
    this.versions.push(response.value.version);
    this.#send({ versionInfo: response.value.version, responseNonce: response.value.nonce });
  }

  #send(request: object): void {
    const message = create(DiscoveryRequestSchema, { typeUrl: type('cds'), ...request });
    this.#stream.write(frameOf(toBinary(DiscoveryRequestSchema, message)));
  }
}
