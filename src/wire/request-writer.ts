import { onceFor } from '../model/maps.ts';
import { bytes, encode, encoded, type Field, nested, text, utf8 } from '../protobuf/field-writer.ts';
import type { ErrorDetail, Locator } from './requests.ts';
import { statusFields } from './responses.ts';

/** A DiscoveryRequest to send. `node` is encoded already. */
export interface OutgoingSotw {
  readonly kind: 'sotw';
  readonly typeUrl: string;
  readonly version: string;
  readonly nonce: string;
  readonly names: readonly string[];
  readonly locators: readonly Locator[];
  readonly error: ErrorDetail | undefined;
}

/** A DeltaDiscoveryRequest to send. */
export interface OutgoingDelta {
  readonly kind: 'delta';
  readonly typeUrl: string;
  readonly nonce: string;
  readonly subscribe: readonly string[];
  readonly unsubscribe: readonly string[];
  readonly subscribeLocators: readonly Locator[];
  readonly unsubscribeLocators: readonly Locator[];
  /** Name → version. */
  readonly initialVersions: ReadonlyMap<string, string>;
  readonly error: ErrorDetail | undefined;
}

export type OutgoingRequest = OutgoingSotw | OutgoingDelta;

/** Encodes it. `node` only belongs into the first request of a stream (protocol §3.1). */
export function encodeRequest(request: OutgoingRequest, node: Uint8Array): Buffer {
  return request.kind === 'sotw' ? encodeSotw(request, node) : encodeDelta(request, node);
}

function encodeSotw(request: OutgoingSotw, node: Uint8Array): Buffer {
  const fields: Field[] = [];
  text(fields, 1, request.version);
  fields.push(bytes(2, node), encoded(namesOf(request.names)));
  text(fields, 4, request.typeUrl);
  text(fields, 5, request.nonce);
  if (request.error !== undefined) nested(fields, 6, statusFields(request.error));
  for (const locator of request.locators) nested(fields, 7, locatorFields(locator));
  return encode(fields);
}

function encodeDelta(request: OutgoingDelta, node: Uint8Array): Buffer {
  const fields: Field[] = [bytes(1, node)];
  text(fields, 2, request.typeUrl);
  for (const name of request.subscribe) fields.push(utf8(3, name));
  for (const name of request.unsubscribe) fields.push(utf8(4, name));
  for (const entry of request.initialVersions) nested(fields, 5, entryFields(entry));
  text(fields, 6, request.nonce);
  if (request.error !== undefined) nested(fields, 7, statusFields(request.error));
  for (const locator of request.subscribeLocators) nested(fields, 8, locatorFields(locator));
  for (const locator of request.unsubscribeLocators) nested(fields, 9, locatorFields(locator));
  return encode(fields);
}

/** Every ACK repeats all names of its type: the same list is encoded once. */
const namesOf = onceFor((names: readonly string[]) => encode(names.map((name) => utf8(3, name))));

function locatorFields({ name, parameters }: Locator): Field[] {
  const fields: Field[] = [];
  text(fields, 1, name);
  for (const entry of parameters) nested(fields, 2, entryFields(entry));
  return fields;
}

function entryFields([key, value]: readonly [string, string]): Field[] {
  const fields: Field[] = [];
  text(fields, 1, key);
  text(fields, 2, value);
  return fields;
}
