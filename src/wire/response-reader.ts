import { isUtf8 } from 'node:buffer';
import { MetadataSchema } from '../gen/envoy/config/core/v3/base_pb.ts';
import { StatusSchema } from '../gen/google/rpc/status_pb.ts';
import { errorMessage, fail, ok, type Result } from '../model/result.ts';
import type { Put, ResourceError } from '../model/transaction.ts';
import { isKnownType } from '../model/types.ts';
import { bytesTag, checkMessage, MessageReader, varintTag } from '../protobuf/message-reader.ts';
import { readStatus, typeUrlAt } from './requests.ts';

/** Ranges of one buffer, without an object for each: a response may have 50,000 resources. */
export class ByteRanges {
  readonly bytes: Buffer;
  readonly #bounds: number[] = [];

  constructor(bytes: Buffer) {
    this.bytes = bytes;
  }

  get length(): number {
    return this.#bounds.length / 2;
  }

  add({ start, end }: MessageReader): void {
    this.#bounds.push(start, end);
  }

  start(index: number): number {
    return this.#bounds[2 * index] ?? 0;
  }

  end(index: number): number {
    return this.#bounds[2 * index + 1] ?? 0;
  }

  /** A view, valid as long as the buffer. */
  at(index: number): Buffer {
    return this.bytes.subarray(this.start(index), this.end(index));
  }
}

/** A ResourceName (TP2): constraints are the encoded DynamicParameterConstraints, empty for none. */
export interface IncomingName {
  readonly name: string;
  readonly constraints: Uint8Array;
}

export type IncomingError = IncomingName & Pick<ResourceError, 'code' | 'message' | 'status'>;

/** A DiscoveryResponse, whose resources are encoded Anys, or a DeltaDiscoveryResponse, of Resources. Views into it. */
export interface IncomingResponse {
  readonly version: string;
  readonly typeUrl: string;
  readonly nonce: string;
  readonly resources: ByteRanges;
  /** For `readError`. */
  readonly errors: ByteRanges;
  /** `removed_resources`: texts. SotW has none. */
  readonly removed: ByteRanges;
  /** `removed_resource_names`, for `readName`. SotW has none. */
  readonly removedNames: ByteRanges;
}

/** Why a response could not be read, and what was read of it before: enough to refuse it, if it is there. */
type UnreadableResponse = Pick<IncomingResponse, 'typeUrl' | 'nonce'> & { readonly reason: string };

/** One resource of a response (protocol §1). Byte fields are views. */
export interface IncomingResource
  extends IncomingName,
    Pick<Put, 'aliases' | 'ttlMilliseconds' | 'doNotCache' | 'metadata'> {
  /** Empty in SotW, unless a Resource around it gives one. */
  readonly version: string;
  /** The encoded Any; undefined if the Resource has no body. */
  readonly any: Buffer | undefined;
  /** The Any's type_url; empty without a body. */
  readonly anyType: string;
}

const none: readonly never[] = [];
const noBytes = new Uint8Array(0);
const RESOURCE_URL = 'type.googleapis.com/envoy.service.discovery.v3.Resource';

/** In all lists of a response together, and aliases of a resource: two bytes may be an entry. */
const mostEntries = 1_000_000;

/** The two messages differ in the fields after 5 only. */
export function readResponse(
  bytes: Buffer,
  kind: 'sotw' | 'delta',
): Result<IncomingResponse, UnreadableResponse> {
  const errorField = kind === 'sotw' ? 7 : 9;
  let version = '';
  let typeUrl = '';
  let nonce = '';
  try {
    const resources = new ByteRanges(bytes);
    const errors = new ByteRanges(bytes);
    const removed = new ByteRanges(bytes);
    const removedNames = new ByteRanges(bytes);
    const listOf = (tag: number): ByteRanges | undefined => {
      if (tag === bytesTag(2)) return resources;
      if (tag === bytesTag(errorField)) return errors;
      if (errorField === 7) return undefined;
      if (tag === bytesTag(6)) return removed;
      return tag === bytesTag(8) ? removedNames : undefined;
    };
    let entries = 0;
    for (const reader = new MessageReader(bytes); reader.next(); ) {
      if (reader.tag === bytesTag(1)) version = reader.text();
      else if (reader.tag === bytesTag(4)) typeUrl = reader.text();
      else if (reader.tag === bytesTag(5)) nonce = reader.text();
      else {
        const list = listOf(reader.tag);
        // The rest is counted, not kept: the nonce, which the NACK needs, comes last.
        if (list !== undefined && ++entries <= mostEntries) list.add(reader);
      }
    }
    if (entries > mostEntries) {
      const reason = `a response of ${entries} entries: at most ${mostEntries} are accepted`;
      return fail({ reason, typeUrl, nonce });
    }
    return ok({ version, typeUrl, nonce, resources, errors, removed, removedNames });
  } catch (error) {
    return fail({ reason: `undecodable response: ${errorMessage(error)}`, typeUrl, nonce });
  }
}

/**
 * An entry of a SotW response: a resource's Any, or a Resource inside an Any (xds.config.resource-in-sotw). Like the
 * other readers of entries it throws what is wrong.
 */
export function readSotwResource(entry: Buffer): IncomingResource {
  const any = readAny(entry);
  if (any.typeUrl !== RESOURCE_URL) return { ...plain, name: ownName(any), any: entry, anyType: any.typeUrl };
  const wrapped = readDeltaResource(any.value);
  if (wrapped.name !== '' || wrapped.any === undefined) return wrapped;
  return { ...wrapped, name: ownName(readAny(wrapped.any)) };
}

/** Of one that has no Resource around it. */
export const plain: IncomingResource = {
  name: '',
  constraints: noBytes,
  version: '',
  any: undefined,
  anyType: '',
  aliases: none,
  ttlMilliseconds: undefined,
  doNotCache: false,
  metadata: undefined,
};

/** An entry of a delta response. The error names the resource if that much could be read. */
export function readDeltaResource(entry: Buffer): IncomingResource {
  const read: { -readonly [Key in keyof IncomingResource]: IncomingResource[Key] } = { ...plain };
  let resourceName: IncomingName | undefined;
  const aliases: string[] = [];
  for (const reader = new MessageReader(entry); reader.next(); ) {
    if (reader.tag === bytesTag(1)) read.version = reader.text();
    else if (reader.tag === bytesTag(2)) read.any = reader.view();
    else if (reader.tag === bytesTag(3)) read.name = reader.text();
    else if (reader.tag === bytesTag(4)) {
      if (aliases.push(reader.text()) > mostEntries)
        throw new Error(`a resource has more than ${mostEntries} aliases`);
    } else if (reader.tag === bytesTag(6)) read.ttlMilliseconds = readDuration(reader.message());
    else if (reader.tag === bytesTag(7)) read.doNotCache = readFlag(reader.message());
    else if (reader.tag === bytesTag(8)) resourceName = readName(reader.message());
    else if (reader.tag === bytesTag(9)) {
      read.metadata = reader.view();
      checkMessage(MetadataSchema, read.metadata, partLevel);
    }
  }
  if (read.name !== '' && resourceName !== undefined) {
    throw new Error(`resource ${JSON.stringify(read.name)} has both name and resource_name`);
  }
  Object.assign(read, resourceName);
  if (aliases.length > 0) read.aliases = aliases;
  if (read.any !== undefined) read.anyType = readAny(read.any).typeUrl;
  return read;
}

export function readAny(bytes: Buffer): { readonly typeUrl: string; readonly value: Buffer } {
  let typeUrl = '';
  let value: Buffer = empty;
  for (const reader = new MessageReader(bytes); reader.next(); ) {
    if (reader.tag === bytesTag(1)) typeUrl = typeUrlAt(bytes, reader.start, reader.end);
    else if (reader.tag === bytesTag(2)) value = reader.view();
  }
  return { typeUrl, value };
}

const empty = Buffer.alloc(0);
/** Of what a Resource or a ResourceError of a DeltaDiscoveryResponse has in it. */
const partLevel = 2;

/**
 * Field 1 of every type of protocol §2 is its name. It is taken to be so for unknown types, too, if it can be one: it
 * is there once, and is text. Else the resource is a singleton of its type with the empty name, as Istio's NameTable
 * is, whose field 1 is a map.
 */
export function ownName({ typeUrl, value }: ReturnType<typeof readAny>): string {
  const reader = new MessageReader(value);
  if (isKnownType(typeUrl)) {
    let last = '';
    while (reader.next()) if (reader.tag === bytesTag(1)) last = reader.text();
    return last;
  }
  let name: Buffer | undefined;
  while (reader.next()) {
    if (reader.field !== 1) continue;
    if (name !== undefined || reader.tag !== bytesTag(1)) return '';
    name = reader.view();
  }
  return name !== undefined && isName(name) ? name.toString() : '';
}

/** No name has control characters. An encoded message, such as the entry of a map, begins with one. */
function isName(bytes: Buffer): boolean {
  return isUtf8(bytes) && bytes.every((byte) => byte >= 0x20 && byte !== 0x7f);
}

/** An entry of `removed_resource_names`. */
export function readName(reader: MessageReader): IncomingName {
  let name = '';
  let constraints: Uint8Array = noBytes;
  while (reader.next()) {
    if (reader.tag === bytesTag(1)) name = reader.text();
    else if (reader.tag === bytesTag(2)) constraints = reader.view();
  }
  return { name, constraints };
}

/** An entry of `resource_errors`. */
export function readError(reader: MessageReader): IncomingError {
  let name: IncomingName = { name: '', constraints: noBytes };
  let status: Buffer = empty;
  while (reader.next()) {
    if (reader.tag === bytesTag(1)) name = readName(reader.message());
    else if (reader.tag === bytesTag(2)) status = reader.view();
  }
  checkMessage(StatusSchema, status, partLevel);
  return { ...name, ...readStatus(new MessageReader(status)), status };
}

/** As long as a google.protobuf.Duration may be: some 10,000 years, in milliseconds. */
const longestDuration = 315_576_000_000_000;

/** google.protobuf.Duration, in milliseconds. What is none that an encoder takes becomes the nearest that is one. */
export function readDuration(reader: MessageReader): number {
  let [seconds, nanos] = [0, 0];
  while (reader.next()) {
    if (reader.tag === varintTag(1)) seconds = reader.int64();
    else if (reader.tag === varintTag(2)) nanos = reader.int32();
  }
  return Math.min(Math.max(0, seconds * 1000 + nanos / 1e6), longestDuration);
}

/** CacheControl.do_not_cache. */
function readFlag(reader: MessageReader): boolean {
  let flag = false;
  while (reader.next()) if (reader.tag === varintTag(1)) flag = reader.bool();
  return flag;
}
