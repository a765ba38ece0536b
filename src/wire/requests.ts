import { BinaryReader, WireType } from '@bufbuild/protobuf/wire';
import { fail, ok, type Result } from '../model/result.ts';
import { contentOf, lengthAt, strictTextOf } from './fields.ts';
import { typeUrlOf } from './type-urls.ts';

/** A TP2 locator as a client sent it. */
export interface Locator {
  readonly name: string;
  readonly parameters: readonly (readonly [string, string])[];
}

export interface ErrorDetail {
  readonly code: number;
  readonly message: string;
}

/**
 * A request with only its cheap parts read. Most requests are ACKs, and Envoy repeats its node and all names in each of
 * them: what equals the last request's bytes is never decoded again (protocol §3.1). The byte ranges are views, valid
 * as long as the request's buffer.
 */
export interface SotwRequest {
  readonly kind: 'sotw';
  readonly node: Buffer | undefined;
  readonly typeUrl: string;
  readonly version: string;
  readonly nonce: string;
  readonly error: ErrorDetail | undefined;
  /** From the first to the last of resource_names and resource_locators; undefined if there are none. */
  readonly selectors: Buffer | undefined;
}

export interface DeltaRequest {
  readonly kind: 'delta';
  readonly node: Buffer | undefined;
  readonly typeUrl: string;
  readonly nonce: string;
  readonly error: ErrorDetail | undefined;
  /** From the first to the last of resource_names_subscribe and resource_locators_subscribe; undefined: none. */
  readonly subscribe: Buffer | undefined;
  readonly unsubscribe: readonly string[];
  readonly unsubscribeLocators: readonly Locator[];
  /** Name → version; empty if none were sent. */
  readonly initialVersions: ReadonlyMap<string, string>;
}

const lengthDelimited: number = WireType.LengthDelimited;
const none: readonly never[] = [];
const noVersions: ReadonlyMap<string, string> = new Map();

/** Reads a DiscoveryRequest. The error says what is malformed. */
export function readSotwRequest(bytes: Buffer): Result<SotwRequest> {
  // By hand, without a reader object: this runs for every ACK of every client.
  let node: Buffer | undefined;
  let error: ErrorDetail | undefined;
  let typeUrl = '';
  let version = '';
  let nonce = '';
  let first = -1;
  let last = -1;
  let position = 0;
  try {
    while (position < bytes.length) {
      const start = position;
      const tag = bytes[position] ?? 0;
      // All its fields are length-delimited with numbers below 16; what is not is unknown, and skipped.
      if (tag > 0x3a || (tag & 7) !== lengthDelimited) {
        position = skipUnknown(bytes, position);
        continue;
      }
      const length = lengthAt(bytes, ++position);
      position = contentOf(bytes, position);
      const end = position + length;
      if (end > bytes.length) throw new RangeError('premature EOF');
      const field = tag >>> 3;
      if (field === 2) {
        node = bytes.subarray(position, end);
      } else if (field === 3 || field === 7) {
        if (first < 0) first = start;
        last = end;
      } else if (field === 6) {
        error = readStatus(bytes.subarray(position, end));
      } else if (field === 4) {
        typeUrl = typeUrlOf(bytes, position, end);
      } else if (field !== 0) {
        const text = strictTextOf(bytes, position, end);
        if (field === 1) version = text;
        else nonce = text;
      }
      position = end;
    }
  } catch (cause) {
    return fail(malformed('DiscoveryRequest', cause));
  }
  const selectors = first < 0 ? undefined : bytes.subarray(first, last);
  return ok({ kind: 'sotw', node, typeUrl, version, nonce, error, selectors });
}

interface Selectors {
  readonly names: readonly string[];
  readonly locators: readonly Locator[];
}

/** The names and locators of a SotW request's `selectors`. */
export const readSelectors = (selectors: Buffer): Result<Selectors> => readRange(selectors, 3, 7);

/** The names and locators of a delta request's `subscribe`. */
export const readSubscribe = (subscribe: Buffer): Result<Selectors> => readRange(subscribe, 3, 8);

function readRange(selectors: Buffer, nameField: number, locatorField: number): Result<Selectors> {
  const names: string[] = [];
  const locators: Locator[] = [];
  try {
    const reader = new BinaryReader(selectors);
    while (reader.pos < reader.len) {
      const [field, wire] = reader.tag();
      if (field === nameField && wire === WireType.LengthDelimited) names.push(reader.string(true));
      else if (field === locatorField && wire === WireType.LengthDelimited)
        locators.push(readLocator(reader.bytes()));
      else reader.skip(wire, field); // other fields may lie between them
    }
  } catch (cause) {
    return fail(malformed('discovery request', cause));
  }
  return ok({ names, locators });
}

/** Reads a DeltaDiscoveryRequest. The error says what is malformed. */
export function readDeltaRequest(bytes: Buffer): Result<DeltaRequest> {
  try {
    const reader = new BinaryReader(bytes);
    let node: Buffer | undefined;
    let error: ErrorDetail | undefined;
    let typeUrl = '';
    let nonce = '';
    let unsubscribe: string[] | undefined;
    let first = -1;
    let last = -1;
    let unsubscribeLocators: Locator[] | undefined;
    let initialVersions: Map<string, string> | undefined;
    while (reader.pos < reader.len) {
      const start = reader.pos;
      const [field, wire] = reader.tag();
      if (wire !== WireType.LengthDelimited) {
        reader.skip(wire, field);
        continue;
      }
      switch (field) {
        case 1:
          node = range(bytes, reader);
          break;
        case 2: {
          const end = endOf(reader);
          typeUrl = typeUrlOf(bytes, reader.pos, end);
          reader.pos = end;
          break;
        }
        case 3:
        case 8:
          if (first < 0) first = start;
          reader.skip(wire, field);
          last = reader.pos;
          break;
        case 4:
          (unsubscribe ??= []).push(reader.string(true));
          break;
        case 5: {
          const [name, version] = readMapEntry(reader.bytes());
          (initialVersions ??= new Map()).set(name, version);
          break;
        }
        case 6:
          nonce = reader.string(true);
          break;
        case 7:
          error = readStatus(reader.bytes());
          break;
        case 9:
          (unsubscribeLocators ??= []).push(readLocator(reader.bytes()));
          break;
        default:
          reader.skip(wire, field);
      }
    }
    return ok({
      kind: 'delta',
      node,
      typeUrl,
      nonce,
      error,
      subscribe: first < 0 ? undefined : bytes.subarray(first, last),
      unsubscribe: unsubscribe ?? none,
      unsubscribeLocators: unsubscribeLocators ?? none,
      initialVersions: initialVersions ?? noVersions,
    });
  } catch (cause) {
    return fail(malformed('DeltaDiscoveryRequest', cause));
  }
}

/** The position behind a field that is none of ours. */
function skipUnknown(bytes: Buffer, position: number): number {
  const reader = new BinaryReader(bytes);
  reader.pos = position;
  const [field, wire] = reader.tag();
  reader.skip(wire, field);
  return reader.pos;
}

/** Reads the length of a field, and says where its content ends. */
function endOf(reader: BinaryReader): number {
  const end = reader.uint32() + reader.pos;
  if (end > reader.len) throw new RangeError('premature EOF');
  return end;
}

function range(bytes: Buffer, reader: BinaryReader): Buffer {
  const end = endOf(reader);
  const start = reader.pos;
  reader.pos = end;
  return bytes.subarray(start, end);
}

function readLocator(bytes: Uint8Array): Locator {
  const reader = new BinaryReader(bytes);
  let name = '';
  const parameters: (readonly [string, string])[] = [];
  while (reader.pos < reader.len) {
    const [field, wire] = reader.tag();
    if (field === 1 && wire === WireType.LengthDelimited) name = reader.string(true);
    else if (field === 2 && wire === WireType.LengthDelimited) parameters.push(readMapEntry(reader.bytes()));
    else reader.skip(wire, field);
  }
  return { name, parameters };
}

function readMapEntry(bytes: Uint8Array): readonly [string, string] {
  const reader = new BinaryReader(bytes);
  let key = '';
  let value = '';
  while (reader.pos < reader.len) {
    const [field, wire] = reader.tag();
    if (field === 1 && wire === WireType.LengthDelimited) key = reader.string(true);
    else if (field === 2 && wire === WireType.LengthDelimited) value = reader.string(true);
    else reader.skip(wire, field);
  }
  return [key, value];
}

function readStatus(bytes: Uint8Array): ErrorDetail {
  const reader = new BinaryReader(bytes);
  let code = 0;
  let message = '';
  while (reader.pos < reader.len) {
    const [field, wire] = reader.tag();
    if (field === 1 && wire === WireType.Varint) code = reader.int32();
    else if (field === 2 && wire === WireType.LengthDelimited) message = reader.string();
    else reader.skip(wire, field);
  }
  return { code, message };
}

function malformed(message: string, cause: unknown): string {
  return `malformed ${message}: ${cause instanceof Error ? cause.message : String(cause)}`;
}
