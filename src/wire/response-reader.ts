import { isUtf8 } from 'node:buffer';
import { BinaryReader, WireType } from '@bufbuild/protobuf/wire';
import { fail, ok, type Result } from '../model/result.ts';

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

  push(start: number, end: number): void {
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

export interface IncomingError extends IncomingName {
  readonly code: number;
  readonly message: string;
  /** The encoded google.rpc.Status. */
  readonly status: Uint8Array;
}

/** A DiscoveryResponse; each resource is an encoded Any. Views into the response. */
export interface IncomingSotw {
  readonly version: string;
  readonly typeUrl: string;
  readonly nonce: string;
  readonly resources: ByteRanges;
  /** For `readError`. */
  readonly errors: ByteRanges;
}

/** A DeltaDiscoveryResponse; each resource is an encoded Resource. Views into the response. */
export interface IncomingDelta extends IncomingSotw {
  /** `removed_resources`, for `readString`. */
  readonly removed: ByteRanges;
  /** `removed_resource_names`, for `readName`. */
  readonly removedNames: ByteRanges;
}

/** Why a response could not be read, and what was read of it before: enough to refuse it, if it is there. */
export interface UnreadableResponse {
  readonly reason: string;
  readonly typeUrl: string;
  readonly nonce: string;
}

/** One resource of a response (protocol §1). Byte fields are views. */
export interface IncomingResource {
  readonly name: string;
  readonly constraints: Uint8Array;
  /** Empty in SotW, unless a Resource around it gives one. */
  readonly version: string;
  /** The encoded Any; undefined if the Resource has no body. */
  readonly any: Uint8Array | undefined;
  /** The Any's type_url; empty without a body. */
  readonly anyType: string;
  readonly aliases: readonly string[];
  readonly ttlMilliseconds: number | undefined;
  readonly doNotCache: boolean;
  readonly metadata: Uint8Array | undefined;
}

const none: readonly never[] = [];
const noBytes = new Uint8Array(0);
const RESOURCE_URL = 'type.googleapis.com/envoy.service.discovery.v3.Resource';

export function readSotwResponse(bytes: Buffer): Result<IncomingSotw, UnreadableResponse> {
  return readResponse(bytes, 7);
}

export function readDeltaResponse(bytes: Buffer): Result<IncomingDelta, UnreadableResponse> {
  return readResponse(bytes, 9);
}

/** The two messages differ in the fields after 5 only. */
function readResponse(bytes: Buffer, errorField: 7 | 9): Result<IncomingDelta, UnreadableResponse> {
  let version = '';
  let typeUrl = '';
  let nonce = '';
  try {
    const resources = new ByteRanges(bytes);
    const errors = new ByteRanges(bytes);
    const removed = new ByteRanges(bytes);
    const removedNames = new ByteRanges(bytes);
    const reader = new BinaryReader(bytes);
    while (reader.pos < reader.len) {
      // The tag of `resources`, nearly always: no need to take it apart.
      if (bytes[reader.pos] === 0x12) {
        reader.pos++;
        addRange(resources, reader);
        continue;
      }
      const [field, wire] = reader.tag();
      if (wire !== WireType.LengthDelimited) {
        reader.skip(wire, field);
        continue;
      }
      if (field === 1) version = text(reader);
      else if (field === 4) typeUrl = text(reader);
      else if (field === 5) nonce = text(reader);
      else if (field === errorField) addRange(errors, reader);
      else if (field === 6 && errorField === 9) addRange(removed, reader);
      else if (field === 8 && errorField === 9) addRange(removedNames, reader);
      else reader.skip(wire, field);
    }
    return ok({
      version,
      typeUrl,
      nonce,
      resources,
      errors,
      removed,
      removedNames,
    });
  } catch (error) {
    return fail({ reason: `undecodable response: ${explain(error)}`, typeUrl, nonce });
  }
}

function addRange(ranges: ByteRanges, reader: BinaryReader): void {
  const length = reader.uint32();
  const start = reader.pos;
  if (start + length > reader.len) throw new RangeError('premature EOF');
  reader.pos = start + length;
  ranges.push(start, reader.pos);
}

/** An entry of a SotW response: a resource's Any, or a Resource inside an Any (xds.config.resource-in-sotw). */
export function readSotwResource(entry: Buffer): Result<IncomingResource> {
  try {
    const any = readAny(entry);
    if (any.typeUrl === RESOURCE_URL) {
      const wrapped = readWrapper(any.value);
      if (!wrapped.ok || wrapped.value.name !== '' || wrapped.value.any === undefined) return named(wrapped);
      return named(ok({ ...wrapped.value, name: ownName(readAny(asBuffer(wrapped.value.any)).value) }));
    }
    return named(ok({ ...plain, name: ownName(any.value), any: entry, anyType: any.typeUrl }));
  } catch (error) {
    return fail(explain(error));
  }
}

/** An entry of a delta response. The error names the resource if that much could be read. */
export function readDeltaResource(entry: Buffer): Result<IncomingResource> {
  try {
    return named(readWrapper(entry));
  } catch (error) {
    return fail(explain(error));
  }
}

const plain: IncomingResource = {
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

function named(resource: Result<IncomingResource>): Result<IncomingResource> {
  if (!resource.ok || resource.value.name !== '') return resource;
  const type = resource.value.anyType;
  return fail(`a resource has no name${type === '' ? '' : ` (its type is ${type})`}`);
}

function readWrapper(bytes: Buffer): Result<IncomingResource> {
  const reader = new BinaryReader(bytes);
  let version = '';
  let any: Buffer | undefined;
  let name = '';
  let resourceName: IncomingName | undefined;
  let aliases: string[] | undefined;
  let ttlMilliseconds: number | undefined;
  let doNotCache = false;
  let metadata: Uint8Array | undefined;
  while (reader.pos < reader.len) {
    const [field, wire] = reader.tag();
    if (wire !== WireType.LengthDelimited) reader.skip(wire, field);
    else if (field === 1) version = text(reader);
    else if (field === 2) any = view(bytes, reader);
    else if (field === 3) name = text(reader);
    else if (field === 4) (aliases ??= []).push(text(reader));
    else if (field === 6) ttlMilliseconds = readDuration(view(bytes, reader));
    else if (field === 7) doNotCache = readFlag(view(bytes, reader));
    else if (field === 8) resourceName = resourceNameOf(view(bytes, reader));
    else if (field === 9) metadata = view(bytes, reader);
    else reader.skip(wire, field);
  }
  if (name !== '' && resourceName !== undefined) {
    return fail(`resource ${JSON.stringify(name)} has both name and resource_name`);
  }
  return ok({
    name: resourceName?.name ?? name,
    constraints: resourceName?.constraints ?? noBytes,
    version,
    any,
    anyType: any === undefined ? '' : readAny(any).typeUrl,
    aliases: aliases ?? none,
    ttlMilliseconds,
    doNotCache,
    metadata,
  });
}

function readAny(bytes: Buffer): { readonly typeUrl: string; readonly value: Buffer } {
  const reader = new BinaryReader(bytes);
  let typeUrl = '';
  let value: Buffer = empty;
  while (reader.pos < reader.len) {
    const [field, wire] = reader.tag();
    if (wire === WireType.LengthDelimited && field === 1) typeUrl = text(reader);
    else if (wire === WireType.LengthDelimited && field === 2) value = view(bytes, reader);
    else reader.skip(wire, field);
  }
  return { typeUrl, value };
}

const empty = Buffer.alloc(0);

/** Field 1 of every type of protocol §2 is its name; it is taken to be so for unknown types too. */
function ownName(message: Buffer): string {
  const reader = new BinaryReader(message);
  while (reader.pos < reader.len) {
    const [field, wire] = reader.tag();
    if (field === 1 && wire === WireType.LengthDelimited) return text(reader);
    reader.skip(wire, field);
  }
  return '';
}

/** An entry of `removed_resources`. */
export function readString(bytes: Buffer): Result<string> {
  return attempt(() => strict(bytes));
}

/** An entry of `removed_resource_names`. */
export function readName(bytes: Buffer): Result<IncomingName> {
  return attempt(() => resourceNameOf(bytes));
}

/** An entry of `resource_errors`. */
export function readError(bytes: Buffer): Result<IncomingError> {
  return attempt(() => resourceErrorOf(bytes));
}

function attempt<T>(read: () => T): Result<T> {
  try {
    return ok(read());
  } catch (thrown) {
    return fail(`undecodable response: ${explain(thrown)}`);
  }
}

function resourceNameOf(bytes: Buffer): IncomingName {
  const reader = new BinaryReader(bytes);
  let name = '';
  let constraints: Uint8Array = noBytes;
  while (reader.pos < reader.len) {
    const [field, wire] = reader.tag();
    if (wire === WireType.LengthDelimited && field === 1) name = text(reader);
    else if (wire === WireType.LengthDelimited && field === 2) constraints = view(bytes, reader);
    else reader.skip(wire, field);
  }
  return { name, constraints };
}

function resourceErrorOf(bytes: Buffer): IncomingError {
  const reader = new BinaryReader(bytes);
  let name: IncomingName = { name: '', constraints: noBytes };
  let status: Buffer = empty;
  while (reader.pos < reader.len) {
    const [field, wire] = reader.tag();
    if (wire === WireType.LengthDelimited && field === 1) name = resourceNameOf(view(bytes, reader));
    else if (wire === WireType.LengthDelimited && field === 2) status = view(bytes, reader);
    else reader.skip(wire, field);
  }
  let code = 0;
  let message = '';
  const inner = new BinaryReader(status);
  while (inner.pos < inner.len) {
    const [field, wire] = inner.tag();
    if (wire === WireType.Varint && field === 1) code = inner.int32();
    else if (wire === WireType.LengthDelimited && field === 2) message = text(inner);
    else inner.skip(wire, field);
  }
  return { ...name, code, message, status };
}

/** google.protobuf.Duration, in milliseconds; never negative. */
function readDuration(bytes: Buffer): number {
  const reader = new BinaryReader(bytes);
  let milliseconds = 0;
  while (reader.pos < reader.len) {
    const [field, wire] = reader.tag();
    if (wire === WireType.Varint && field === 1) milliseconds += Number(reader.int64()) * 1000;
    else if (wire === WireType.Varint && field === 2) milliseconds += reader.int32() / 1e6;
    else reader.skip(wire, field);
  }
  return Math.max(0, milliseconds);
}

/** CacheControl.do_not_cache. */
function readFlag(bytes: Buffer): boolean {
  const reader = new BinaryReader(bytes);
  let flag = false;
  while (reader.pos < reader.len) {
    const [field, wire] = reader.tag();
    if (wire === WireType.Varint && field === 1) flag = reader.bool();
    else reader.skip(wire, field);
  }
  return flag;
}

function view(bytes: Buffer, reader: BinaryReader): Buffer {
  const length = reader.uint32();
  const start = reader.pos;
  if (start + length > reader.len) throw new RangeError('premature EOF');
  reader.pos = start + length;
  return bytes.subarray(start, start + length);
}

/** A proto3 string: bytes that are not UTF-8 are an error, or two names could become one. */
function text(reader: BinaryReader): string {
  return strict(asBuffer(reader.bytes()));
}

function strict(bytes: Buffer): string {
  const value = bytes.toString('utf8');
  if (value.includes('�') && !isUtf8(bytes)) throw new Error('a string is not valid UTF-8');
  return value;
}

function asBuffer(bytes: Uint8Array): Buffer {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

function explain(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
