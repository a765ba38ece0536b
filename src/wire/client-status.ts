import { create, type DescMessage, fromBinary, type MessageShape, toBinary } from '@bufbuild/protobuf';
import { BinaryReader } from '@bufbuild/protobuf/wire';
import {
  type ClientConfig,
  type ClientConfig_GenericXdsConfig,
  ClientConfig_GenericXdsConfigSchema,
  ClientConfigSchema,
  type ClientStatusResponse,
  ClientStatusResponseSchema,
} from '../gen/envoy/service/status/v3/csds_pb.ts';
import { fail, ok, type Result } from '../model/result.ts';
import type { Pace } from '../model/time-slices.ts';
import {
  bytes,
  encode,
  encoded,
  type Field,
  headOf,
  sizeOf as sizeOfFields,
} from '../protobuf/field-writer.ts';
import { bytesTag, MessageReader } from '../protobuf/message-reader.ts';
import { Code, type GrpcStatus } from './grpc-status.ts';
import { JsonInTurns, JsonText, writtenWithin } from './json-in-turns.ts';

/** An encoded ClientStatusResponse in pieces. */
export type EncodedStatus = readonly Uint8Array[];

/** As many fields are one piece as have so many bytes together, or one that has more. */
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

/** ClientStatusResponse.config and ClientConfig.generic_xds_configs; both have a length. */
const configTag = bytesTag(1);
const entryTag = bytesTag(3);

/**
 * Writes a ClientStatusResponse entry by entry, up to a size: a response of tens of megabytes made of protobuf messages
 * would block the process for seconds.
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
  entry(entry: ClientConfig_GenericXdsConfig): boolean {
    this.#entries.fields([bytes(3, toBinary(ClientConfig_GenericXdsConfigSchema, entry))]);
    return this.#fits();
  }

  /** Ends a client. False: that is too much. */
  client({ nodeId, cluster, scope }: Readonly<Record<'nodeId' | 'cluster' | 'scope', string>>): boolean {
    const rest = create(ClientConfigSchema, { node: { id: nodeId, cluster }, clientScope: scope });
    this.#entries.fields([encoded(toBinary(ClientConfigSchema, rest))]);
    this.#clients.fields([encoded(headOf(configTag, this.#entries.length))]);
    for (const piece of this.#entries.take()) this.#clients.fields([encoded(piece)]);
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

/** For who encodes it: protobuf writes fields that it does not know as they came. */
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
