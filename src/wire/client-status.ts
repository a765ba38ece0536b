import { create, fromBinary } from '@bufbuild/protobuf';
import { BinaryWriter, WireType } from '@bufbuild/protobuf/wire';
import {
  type ClientStatusResponse,
  ClientStatusResponseSchema,
} from '../gen/envoy/service/status/v3/csds_pb.ts';

/** One GenericXdsConfig (protocol §9). What is undefined, empty or 0 is left out. */
export interface StatusEntry {
  readonly typeUrl: string;
  readonly name: string;
  readonly version?: string;
  /** An encoded Any. */
  readonly body?: Uint8Array;
  /** Milliseconds since the epoch. */
  readonly lastUpdated?: number;
  readonly configStatus?: number;
  readonly clientStatus?: number;
  readonly error?: { readonly at: number; readonly details: string; readonly version: string };
}

interface StatusClient {
  readonly nodeId: string;
  readonly cluster: string;
  readonly scope: string;
}

/** An encoded ClientStatusResponse in pieces, each of them some of its `config`. */
export type EncodedStatus = readonly Uint8Array[];

/** A ClientStatusResponse.config and GenericXdsConfig.xds_config; both have a length. */
const configTag = (1 << 3) | WireType.LengthDelimited;
const bodyTag = (4 << 3) | WireType.LengthDelimited;

/**
 * Writes a ClientStatusResponse entry by entry, up to a size. Bodies are taken over as they are: a response of tens of
 * megabytes as protobuf messages would block the process for seconds.
 */
export class ClientStatusWriter {
  readonly #maxBytes: number;
  readonly #pieces: Uint8Array[] = [];
  #entries: Uint8Array[] = [];
  #entryBytes = 0;
  #bytes = 0;

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  get pieces(): EncodedStatus {
    return this.#pieces;
  }

  /** An entry of the client that is ended next. False: that is too much, and the answer cannot be used. */
  entry(entry: StatusEntry): boolean {
    const fields = entryFields(entry);
    const { body } = entry;
    const head = new BinaryWriter().tag(3, WireType.LengthDelimited);
    if (body === undefined) {
      head.uint32(fields.length).raw(fields);
    } else {
      const bodyHead = new BinaryWriter().uint32(bodyTag).uint32(body.length).finish();
      head
        .uint32(fields.length + bodyHead.length + body.length)
        .raw(fields)
        .raw(bodyHead);
    }
    this.#push(head.finish());
    if (body !== undefined) this.#push(body);
    return this.#bytes <= this.#maxBytes;
  }

  /** Ends a client. False: that is too much. */
  client({ nodeId, cluster, scope }: StatusClient): boolean {
    const node = new BinaryWriter();
    text(node, 1, nodeId);
    text(node, 2, cluster);
    const rest = new BinaryWriter();
    rest.tag(1, WireType.LengthDelimited).bytes(node.finish());
    text(rest, 4, scope);
    this.#push(rest.finish());
    const head = new BinaryWriter().uint32(configTag).uint32(this.#entryBytes).finish();
    this.#bytes += head.length;
    if (this.#bytes > this.#maxBytes) return false;
    this.#pieces.push(Buffer.concat([head, ...this.#entries]));
    this.#entries = [];
    this.#entryBytes = 0;
    return true;
  }

  /** Forgets the entries of a client that will not be ended. */
  drop(): void {
    this.#bytes -= this.#entryBytes;
    this.#entries = [];
    this.#entryBytes = 0;
  }

  #push(bytes: Uint8Array): void {
    this.#entries.push(bytes);
    this.#entryBytes += bytes.length;
    this.#bytes += bytes.length;
  }
}

function entryFields(entry: StatusEntry): Uint8Array {
  const { typeUrl, name, version = '', lastUpdated, configStatus = 0, clientStatus = 0, error } = entry;
  const writer = new BinaryWriter();
  text(writer, 1, typeUrl);
  text(writer, 2, name);
  text(writer, 3, version);
  if (lastUpdated !== undefined) writer.tag(5, WireType.LengthDelimited).bytes(timestamp(lastUpdated));
  if (configStatus !== 0) writer.tag(6, WireType.Varint).uint32(configStatus);
  if (clientStatus !== 0) writer.tag(7, WireType.Varint).uint32(clientStatus);
  if (error !== undefined) {
    const state = new BinaryWriter().tag(2, WireType.LengthDelimited).bytes(timestamp(error.at));
    text(state, 3, error.details);
    text(state, 4, error.version);
    writer.tag(8, WireType.LengthDelimited).bytes(state.finish());
  }
  return writer.finish();
}

/** google.protobuf.Timestamp. */
function timestamp(milliseconds: number): Uint8Array {
  const seconds = Math.floor(milliseconds / 1000);
  const nanos = Math.floor(milliseconds - seconds * 1000) * 1e6;
  const writer = new BinaryWriter().tag(1, WireType.Varint).int64(seconds);
  if (nanos > 0) writer.tag(2, WireType.Varint).int32(nanos);
  return writer.finish();
}

function text(writer: BinaryWriter, field: number, value: string): void {
  if (value !== '') writer.tag(field, WireType.LengthDelimited).string(value);
}

/**
 * For whoever encodes it: protobuf writes fields that it does not know as they came, so the pieces, each with the first
 * tag taken off, pass for such fields.
 */
export function encodedResponse(pieces: EncodedStatus): ClientStatusResponse {
  const response = create(ClientStatusResponseSchema);
  response.$unknown = pieces
    .filter(({ length }) => length > 0)
    .map((piece) => ({ no: 1, wireType: WireType.LengthDelimited, data: piece.subarray(1) }));
  return response;
}

/** For JSON, which needs all of it as messages. */
export function decodedResponse(pieces: EncodedStatus): ClientStatusResponse {
  return fromBinary(ClientStatusResponseSchema, Buffer.concat(pieces));
}

export const sizeOf = (pieces: EncodedStatus): number => pieces.reduce((sum, { length }) => sum + length, 0);
