import { create, type DescMessage, fromBinary, type MessageShape } from '@bufbuild/protobuf';
import { BinaryReader } from '@bufbuild/protobuf/wire';
import {
  type ClientConfig,
  ClientConfigSchema,
  type ClientStatusResponse,
  ClientStatusResponseSchema,
} from '../gen/envoy/service/status/v3/csds_pb.ts';
import { fail, ok, type Result } from '../model/result.ts';
import type { Pace } from '../model/time-slices.ts';
import {
  type Field,
  lengthDelimited,
  message,
  nested,
  sizeOf as sizeOfFields,
  text,
  varint,
  varintSize,
  write,
  writeVarint,
} from '../protobuf/field-writer.ts';
import { MessageReader } from '../protobuf/message-reader.ts';
import { Code, type GrpcStatus } from './grpc-status.ts';
import { JsonInTurns, JsonText, writtenWithin } from './json-in-turns.ts';

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

/** What is shorter is copied next to what came before it, in bytes; longer bodies are taken as they are. */
const largeBody = 16 << 10;
const slabSize = 64 << 10;

/** Bytes one after the other, in pieces of a size that sockets like. */
class Chunks {
  #list: Uint8Array[] = [];
  #slab = Buffer.allocUnsafeSlow(slabSize);
  #start = 0;
  #end = 0;
  length = 0;

  fields(fields: readonly Field[]): void {
    const size = sizeOfFields(fields);
    const at = this.#room(size);
    write(this.#slab, at, fields);
  }

  bytes(bytes: Uint8Array): void {
    if (bytes.length < largeBody) {
      const at = this.#room(bytes.length); // may be in another slab than before
      this.#slab.set(bytes, at);
      return;
    }
    this.#flush();
    this.#list.push(bytes);
    this.length += bytes.length;
  }

  /** The beginning of a field of which so many bytes follow. */
  head(tag: number, length: number): void {
    const at = this.#room(1 + varintSize(length));
    this.#slab[at] = tag;
    writeVarint(this.#slab, at + 1, length);
  }

  /** All of it; after that it is empty. */
  take(): Uint8Array[] {
    this.#flush();
    const list = this.#list;
    this.#list = [];
    this.length = 0;
    return list;
  }

  /** Where so many bytes may be written. */
  #room(size: number): number {
    if (this.#end + size > this.#slab.length) {
      this.#flush();
      this.#slab = Buffer.allocUnsafeSlow(Math.max(slabSize, size));
      this.#start = 0;
      this.#end = 0;
    }
    const at = this.#end;
    this.#end += size;
    this.length += size;
    return at;
  }

  #flush(): void {
    if (this.#end > this.#start) this.#list.push(this.#slab.subarray(this.#start, this.#end));
    this.#start = this.#end;
  }
}

/** ClientStatusResponse.config, ClientConfig.generic_xds_configs and GenericXdsConfig.xds_config; all have a length. */
const configTag = lengthDelimited(1);
const entryTag = lengthDelimited(3);
const bodyTag = lengthDelimited(4);

/**
 * Writes a ClientStatusResponse entry by entry, up to a size. Bodies are not copied: a response of tens of megabytes made
 * of protobuf messages would block the process for seconds.
 */
export class ClientStatusWriter {
  readonly #maxBytes: number;
  readonly #clients = new Chunks();
  /** Of the client that is not ended yet. */
  readonly #entries = new Chunks();

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  /** An entry of the client that is ended next. False: that is too much, and the answer cannot be used. */
  entry(entry: StatusEntry): boolean {
    const fields = entryFields(entry);
    if (entry.body === undefined) {
      this.#entries.fields([message(3, fields)]);
    } else {
      const { length } = entry.body;
      this.#entries.head(entryTag, sizeOfFields(fields) + 1 + varintSize(length) + length);
      this.#entries.fields(fields);
      this.#entries.head(bodyTag, length);
      this.#entries.bytes(entry.body);
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
    this.#clients.head(configTag, this.#entries.length);
    for (const piece of this.#entries.take()) this.#clients.bytes(piece);
    return this.#fits();
  }

  /** Forgets the entries of a client that will not be ended. */
  drop(): void {
    this.#entries.take();
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
export async function statusJson(
  pieces: EncodedStatus,
  { useProtoFieldName, maxBytes }: { readonly useProtoFieldName: boolean; readonly maxBytes: number },
  pace: Pace,
): Promise<Result<readonly Buffer[], GrpcStatus>> {
  const text = new JsonText();
  const json = new JsonInTurns(text, { useProtoFieldName });
  const turns = json.message(ClientStatusResponseSchema, Buffer.concat(pieces));
  return (await writtenWithin(maxBytes, text, turns, pace)) ? ok(text.parts) : fail(jsonTooLarge(maxBytes));
}

function jsonTooLarge(maxBytes: number): GrpcStatus {
  const message = `the answer has more than ${maxBytes} bytes as JSON, the maximum of an answer: exclude_resource_contents and node_matchers make it smaller, and gRPC on the xDS port answers more (limits.max_response_bytes)`;
  return { code: Code.RESOURCE_EXHAUSTED, message };
}

export const sizeOf = (pieces: EncodedStatus): number => pieces.reduce((sum, { length }) => sum + length, 0);
