import { fail, ok, type Result } from '../model/result.ts';
import { longestTypeUrl } from '../model/types.ts';
import { contentOf, fieldsOf, lengthAt, skipField, strictTextOf, textOf } from './fields.ts';
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
  /** The same of what it unsubscribes. */
  readonly unsubscribe: Buffer | undefined;
  /** From the first to the last of initial_resource_versions. */
  readonly initialVersions: Buffer | undefined;
}

const lengthDelimited = 2;
const longestOneByte = 0x7f;

/** What the fields of a request are, by number. Of those before `lists` the last one counts. */
const part = {
  unknown: 0,
  node: 1,
  typeUrl: 2,
  version: 3,
  nonce: 4,
  error: 5,
  subscribe: 6,
  unsubscribe: 7,
  versions: 8,
} as const;
const lists = part.subscribe;
const parts = 9;
type Part = (typeof part)[keyof typeof part];

const layout = (...fields: readonly Part[]): Uint8Array => {
  const byNumber = new Uint8Array(32);
  byNumber.set(fields, 1);
  return byNumber;
};
const sotwLayout = layout(
  part.version,
  part.node,
  part.subscribe,
  part.typeUrl,
  part.nonce,
  part.error,
  part.subscribe,
);
const deltaLayout = layout(
  part.node,
  part.typeUrl,
  part.subscribe,
  part.unsubscribe,
  part.versions,
  part.nonce,
  part.error,
  part.subscribe,
  part.unsubscribe,
);

/**
 * Where the parts of the message that is being read begin and end. One for all: it is filled and read without a break,
 * for every ACK of every client, and nothing is allocated.
 */
const starts = new Int32Array(parts);
const ends = new Int32Array(parts);

/** Throws where the message is malformed. */
function scan(bytes: Buffer, byNumber: Uint8Array): void {
  for (let which = 0; which < parts; which++) starts[which] = -1;
  let position = 0;
  while (position < bytes.length) {
    const start = position;
    const tag = bytes[position] ?? 0;
    const known = (tag & 0x87) === lengthDelimited ? (byNumber[tag >>> 3] ?? part.unknown) : part.unknown;
    if (known === part.unknown) {
      position = skipField(bytes, position, bytes.length);
      continue;
    }
    // A list's entries follow each other: of hundreds only the first and the last matter. Of the rest each is looked at.
    const again = known < lists ? -1 : tag;
    let content: number;
    let next: number;
    do {
      const first = bytes[++position] ?? 0;
      const short = first <= longestOneByte;
      content = short ? position + 1 : contentOf(bytes, position);
      position = content + (short ? first : lengthAt(bytes, position));
      next = bytes[position] ?? 0;
    } while (next === again);
    if (position > bytes.length) throw new RangeError('premature EOF');
    if (known < lists) starts[known] = content;
    else if ((starts[known] ?? -1) < 0) starts[known] = start;
    ends[known] = position;
  }
}

function rangeOf(bytes: Buffer, which: Part): Buffer | undefined {
  const start = starts[which] ?? -1;
  return start < 0 ? undefined : bytes.subarray(start, ends[which]);
}

function scannedText(bytes: Buffer, which: Part): string {
  const start = starts[which] ?? -1;
  return start < 0 ? '' : strictTextOf(bytes, start, ends[which] ?? 0);
}

function scannedType(bytes: Buffer): string {
  const start = starts[part.typeUrl] ?? -1;
  if (start < 0) return '';
  const end = ends[part.typeUrl] ?? 0;
  if (end - start > longestTypeUrl) {
    throw new RangeError(`type_url has ${end - start} bytes: at most ${longestTypeUrl} are accepted`);
  }
  return typeUrlOf(bytes, start, end);
}

function scannedError(bytes: Buffer): ErrorDetail | undefined {
  const start = starts[part.error] ?? -1;
  return start < 0 ? undefined : readStatus(bytes, start, ends[part.error] ?? 0);
}

/** Reads a DiscoveryRequest. The error says what is malformed. */
export function readSotwRequest(bytes: Buffer): Result<SotwRequest> {
  try {
    scan(bytes, sotwLayout);
    return ok({
      kind: 'sotw',
      node: rangeOf(bytes, part.node),
      typeUrl: scannedType(bytes),
      version: scannedText(bytes, part.version),
      nonce: scannedText(bytes, part.nonce),
      error: scannedError(bytes),
      selectors: rangeOf(bytes, part.subscribe),
    });
  } catch (cause) {
    return fail(malformed('DiscoveryRequest', cause));
  }
}

/** Reads a DeltaDiscoveryRequest. The error says what is malformed. */
export function readDeltaRequest(bytes: Buffer): Result<DeltaRequest> {
  try {
    scan(bytes, deltaLayout);
    return ok({
      kind: 'delta',
      node: rangeOf(bytes, part.node),
      typeUrl: scannedType(bytes),
      nonce: scannedText(bytes, part.nonce),
      error: scannedError(bytes),
      subscribe: rangeOf(bytes, part.subscribe),
      unsubscribe: rangeOf(bytes, part.unsubscribe),
      initialVersions: rangeOf(bytes, part.versions),
    });
  } catch (cause) {
    return fail(malformed('DeltaDiscoveryRequest', cause));
  }
}

interface Selectors {
  readonly names: readonly string[];
  readonly locators: readonly Locator[];
}

/** The numbers of the fields that hold names and locators. */
export interface SelectorFields {
  readonly names: number;
  readonly locators: number;
}

export const sotwSelectors: SelectorFields = { names: 3, locators: 7 };
export const subscribed: SelectorFields = { names: 3, locators: 8 };
export const unsubscribed: SelectorFields = { names: 4, locators: 9 };

const nothing: Selectors = { names: [], locators: [] };

/** The names and locators in a range of a request. */
export function readSelectors(range: Buffer | undefined, fields: SelectorFields): Result<Selectors> {
  if (range === undefined) return ok(nothing);
  const names: string[] = [];
  const locators: Locator[] = [];
  try {
    fieldsOf(range, 0, range.length, (field, start, end) => {
      if (field === fields.names) names.push(strictTextOf(range, start, end));
      else if (field === fields.locators) locators.push(readLocator(range, start, end));
    });
  } catch (cause) {
    return fail(malformed('discovery request', cause));
  }
  return ok({ names, locators });
}

/** How many names and locators there are in a range, without reading them; it was scanned before. */
export function countSelectors(range: Buffer | undefined, fields: SelectorFields): number {
  return range === undefined
    ? 0
    : countOf(range, (field) => field === fields.names || field === fields.locators);
}

const versionsField = 5;

/** Name → version of initial_resource_versions. */
export function readVersions(range: Buffer): Result<ReadonlyMap<string, string>> {
  const versions = new Map<string, string>();
  try {
    fieldsOf(range, 0, range.length, (field, start, end) => {
      if (field !== versionsField) return;
      const [name, version] = readMapEntry(range, start, end);
      versions.set(name, version);
    });
  } catch (cause) {
    return fail(malformed('discovery request', cause));
  }
  return ok(versions);
}

export const countVersions = (range: Buffer): number => countOf(range, (field) => field === versionsField);

function countOf(range: Buffer, counts: (field: number) => boolean): number {
  let count = 0;
  fieldsOf(range, 0, range.length, (field) => {
    if (counts(field)) count++;
  });
  return count;
}

function readLocator(bytes: Buffer, from: number, to: number): Locator {
  let name = '';
  const parameters: (readonly [string, string])[] = [];
  fieldsOf(bytes, from, to, (field, start, end) => {
    if (field === 1) name = strictTextOf(bytes, start, end);
    else if (field === 2) parameters.push(readMapEntry(bytes, start, end));
  });
  return { name, parameters };
}

function readMapEntry(bytes: Buffer, from: number, to: number): readonly [string, string] {
  let key = '';
  let value = '';
  fieldsOf(bytes, from, to, (field, start, end) => {
    if (field === 1) key = strictTextOf(bytes, start, end);
    else if (field === 2) value = strictTextOf(bytes, start, end);
  });
  return [key, value];
}

/** google.rpc.Status; its code is an int32. */
function readStatus(bytes: Buffer, from: number, to: number): ErrorDetail {
  let code = 0;
  let messageStart = 0;
  let messageEnd = 0;
  let position = from;
  while (position < to) {
    const tag = bytes[position] ?? 0;
    if (tag === 0x12) {
      const length = lengthAt(bytes, position + 1);
      messageStart = contentOf(bytes, position + 1);
      messageEnd = messageStart + length;
      if (messageEnd > to) throw new RangeError('premature EOF');
      position = messageEnd;
    } else {
      const next = skipField(bytes, position, to);
      if (tag === 0x08) code = smallVarint(bytes, position + 1);
      position = next;
    }
  }
  return { code, message: textOf(bytes, messageStart, messageEnd) };
}

/** The low 32 bits of a varint. */
function smallVarint(bytes: Buffer, start: number): number {
  let value = 0;
  for (let at = start, shift = 0; shift < 32; at++, shift += 7) {
    const byte = bytes[at] ?? 0;
    value |= (byte & 0x7f) << shift;
    if (byte <= 0x7f) break;
  }
  return value;
}

function malformed(message: string, cause: unknown): string {
  return `malformed ${message}: ${cause instanceof Error ? cause.message : String(cause)}`;
}
