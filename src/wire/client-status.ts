import { create, type DescMessage, fromBinary, type MessageShape } from '@bufbuild/protobuf';
import { BinaryReader } from '@bufbuild/protobuf/wire';
import {
  type ClientConfig,
  ClientConfigSchema,
  type ClientStatusResponse,
  ClientStatusResponseSchema,
} from '../gen/envoy/service/status/v3/csds_pb.ts';
import { fail, ok, type Result } from '../model/result.ts';
import type { Payer, TimeSlices } from '../model/time-slices.ts';
import {
  encode,
  encoded,
  type Field,
  headOf,
  message,
  nested,
  sizeOf as sizeOfFields,
  text,
  varint,
} from '../protobuf/field-writer.ts';
import { bytesTag, MessageReader } from '../protobuf/message-reader.ts';
import { Code, type GrpcStatus } from './grpc-status.ts';
import { type JsonForm, JsonInTurns, JsonText, writtenWithin } from './json-in-turns.ts';

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

/** An encoded ClientStatusResponse in pieces. */
export type EncodedStatus = readonly Uint8Array[];

/** In bytes. What is shorter is copied into one piece with its neighbours; what is longer is a piece as it is. */
const largeBody = 16 << 10;
const pieceBytes = 64 << 10;

/** Bytes one after the other, in pieces of a size that sockets like. */
class Chunks {
  #pieces: Uint8Array[] = [];
  /** What is to be the next piece. */
  #open: Field[] = [];
  #openBytes = 0;
  length = 0;

  fields(fields: readonly Field[]): void {
    const size = sizeOfFields(fields);
    if (this.#openBytes + size > pieceBytes) this.#flush();
    this.#open.push(...fields);
    this.#openBytes += size;
    this.length += size;
  }

  bytes(bytes: Uint8Array): void {
    if (bytes.length < largeBody) {
      this.fields([encoded(bytes)]);
      return;
    }
    this.#flush();
    this.#pieces.push(bytes);
    this.length += bytes.length;
  }

  /** All of it; after that it is empty. */
  take(): readonly Uint8Array[] {
    this.#flush();
    const pieces = this.#pieces;
    this.#pieces = [];
    this.length = 0;
    return pieces;
  }

  #flush(): void {
    if (this.#openBytes > 0) this.#pieces.push(encode(this.#open));
    this.#open = [];
    this.#openBytes = 0;
  }
}

/** ClientStatusResponse.config, ClientConfig.generic_xds_configs and GenericXdsConfig.xds_config; all have a length. */
const configTag = bytesTag(1);
const entryTag = bytesTag(3);
const bodyTag = bytesTag(4);

/**
 * Writes a ClientStatusResponse entry by entry, up to a size. Large bodies are not copied: a response of tens of megabytes
 * made of protobuf messages would block the process for seconds.
 */
export class ClientStatusWriter {
  readonly #maxBytes: number;
  readonly #clients = new Chunks();
  /** Of the client that is not ended yet. */
  #entries = new Chunks();

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  /** An entry of the client that is ended next. False: that is too much, and the answer cannot be used. */
  entry(entry: StatusEntry): boolean {
    const { body } = entry;
    const fields = entryFields(entry);
    if (body === undefined) {
      this.#entries.fields([message(3, fields)]);
    } else {
      fields.push(encoded(headOf(bodyTag, body.length)));
      const head = headOf(entryTag, sizeOfFields(fields) + body.length);
      this.#entries.fields([encoded(head), ...fields]);
      this.#entries.bytes(body);
    }
    return this.#fits();
  }

  /** Ends a client. False: that is too much. */
  client({ nodeId, cluster, scope }: Readonly<Record<'nodeId' | 'cluster' | 'scope', string>>): boolean {
    const node: Field[] = [];
    text(node, 1, nodeId);
    text(node, 2, cluster);
    const rest: Field[] = [message(1, node)];
    text(rest, 4, scope);
    this.#entries.fields(rest);
    this.#clients.fields([encoded(headOf(configTag, this.#entries.length))]);
    for (const piece of this.#entries.take()) this.#clients.bytes(piece);
    return this.#fits();
  }

  /** Forgets the entries of a client that will not be ended. */
  drop(): void {
    this.#entries = new Chunks();
  }

  /** The answer. */
  take(): EncodedStatus {
    return this.#clients.take();
  }

  #fits(): boolean {
    return this.#clients.length + this.#entries.length <= this.#maxBytes;
  }
}

function entryFields(entry: StatusEntry): Field[] {
  const { typeUrl, name, version = '', lastUpdated, configStatus = 0, clientStatus = 0, error } = entry;
  const fields: Field[] = [];
  text(fields, 1, typeUrl);
  text(fields, 2, name);
  text(fields, 3, version);
  if (lastUpdated !== undefined) fields.push(message(5, timestamp(lastUpdated)));
  if (configStatus !== 0) fields.push(varint(6, configStatus));
  if (clientStatus !== 0) fields.push(varint(7, clientStatus));
  if (error !== undefined) {
    const state: Field[] = [message(2, timestamp(error.at))];
    text(state, 3, error.details);
    text(state, 4, error.version);
    nested(fields, 8, state);
  }
  return fields;
}

/** google.protobuf.Timestamp. */
function timestamp(milliseconds: number): Field[] {
  const seconds = Math.floor(milliseconds / 1000);
  const nanos = Math.floor(milliseconds - seconds * 1000) * 1e6;
  return nanos === 0 ? [varint(1, seconds)] : [varint(1, seconds), varint(2, nanos)];
}

/** For connect-node, which encodes it: protobuf writes fields that it does not know as they came. */
export function undecoded<Desc extends DescMessage>(desc: Desc, bytes: Uint8Array): MessageShape<Desc> {
  const response = create(desc);
  if (bytes.length === 0) return response;
  const reader = new BinaryReader(bytes);
  const [no, wireType] = reader.tag();
  response.$unknown = [{ no, wireType, data: bytes.subarray(reader.pos) }];
  return response;
}

export const encodedResponse = (pieces: EncodedStatus): ClientStatusResponse =>
  undecoded(ClientStatusResponseSchema, Buffer.concat(pieces));

/**
 * The clients of an answer one by one, for who looks into them: to decode all of it at once takes long. Their entries are
 * encoded GenericXdsConfigs.
 */
export function* statusClients(
  pieces: EncodedStatus,
): Generator<{ readonly entries: readonly Uint8Array[]; readonly rest: ClientConfig }> {
  for (const reader = new MessageReader(Buffer.concat(pieces)); reader.next(); ) {
    const entries: Uint8Array[] = [];
    const rest: Uint8Array[] = [];
    const client = reader.view();
    for (const field = new MessageReader(client); field.next(); ) {
      if (field.tag === entryTag) entries.push(field.view());
      else rest.push(client.subarray(field.fieldStart, field.end));
    }
    yield { entries, rest: fromBinary(ClientConfigSchema, Buffer.concat(rest)) };
  }
}

/**
 * An answer as JSON, made in slices. RESOURCE_EXHAUSTED: it has more bytes than that, as JSON, where a control character
 * of a name has six.
 */
export function statusJson(
  pieces: EncodedStatus,
  maxBytes: number,
  slices: TimeSlices,
  payer?: Payer,
  form: JsonForm = {},
): Promise<Result<readonly Buffer[], GrpcStatus>> {
  return slices.run(async (pace) => {
    const text = new JsonText();
    const turns = new JsonInTurns(text, form).message(ClientStatusResponseSchema, Buffer.concat(pieces));
    return (await writtenWithin(maxBytes, text, turns, pace)) ? ok(text.parts) : fail(jsonTooLarge(maxBytes));
  }, payer);
}

function jsonTooLarge(maxBytes: number): GrpcStatus {
  const message = `the answer has more than ${maxBytes} bytes as JSON, the maximum of an answer: exclude_resource_contents and node_matchers make it smaller, and gRPC on the xDS port answers more (limits.max_response_bytes)`;
  return { code: Code.RESOURCE_EXHAUSTED, message };
}

export const sizeOf = (pieces: EncodedStatus): number => pieces.reduce((sum, { length }) => sum + length, 0);
