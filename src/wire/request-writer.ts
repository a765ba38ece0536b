import { BinaryWriter, WireType } from '@bufbuild/protobuf/wire';
import type { ErrorDetail, Locator } from './requests.ts';

/** A DiscoveryRequest to send. `node` is encoded already. */
interface OutgoingSotw {
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
export function encodeRequest(request: OutgoingRequest, node: Uint8Array): Uint8Array {
  return request.kind === 'sotw' ? encodeSotw(request, node) : encodeDelta(request, node);
}

function encodeSotw(request: OutgoingSotw, node: Uint8Array): Uint8Array {
  const writer = new BinaryWriter();
  text(writer, 1, request.version);
  writer.tag(2, WireType.LengthDelimited).bytes(node);
  writer.raw(namesOf(request.names));
  text(writer, 4, request.typeUrl);
  text(writer, 5, request.nonce);
  if (request.error !== undefined) status(writer, 6, request.error);
  for (const locator of request.locators) locate(writer, 7, locator);
  return writer.finish();
}

function encodeDelta(request: OutgoingDelta, node: Uint8Array): Uint8Array {
  const writer = new BinaryWriter();
  writer.tag(1, WireType.LengthDelimited).bytes(node);
  text(writer, 2, request.typeUrl);
  for (const name of request.subscribe) writer.tag(3, WireType.LengthDelimited).string(name);
  for (const name of request.unsubscribe) writer.tag(4, WireType.LengthDelimited).string(name);
  for (const entry of request.initialVersions) mapEntry(writer, 5, entry);
  text(writer, 6, request.nonce);
  if (request.error !== undefined) status(writer, 7, request.error);
  for (const locator of request.subscribeLocators) locate(writer, 8, locator);
  for (const locator of request.unsubscribeLocators) locate(writer, 9, locator);
  return writer.finish();
}

/** Every ACK repeats all names of its type: the same list is encoded once. */
const encodedNames = new WeakMap<readonly string[], Uint8Array>();

function namesOf(names: readonly string[]): Uint8Array {
  const known = encodedNames.get(names);
  if (known !== undefined) return known;
  const writer = new BinaryWriter();
  for (const name of names) writer.tag(3, WireType.LengthDelimited).string(name);
  const encoded = writer.finish();
  encodedNames.set(names, encoded);
  return encoded;
}

function text(writer: BinaryWriter, field: number, value: string): void {
  if (value !== '') writer.tag(field, WireType.LengthDelimited).string(value);
}

function status(writer: BinaryWriter, field: number, error: ErrorDetail): void {
  writer.tag(field, WireType.LengthDelimited).fork();
  writer.tag(1, WireType.Varint).int32(error.code);
  text(writer, 2, error.message);
  writer.join();
}

function locate(writer: BinaryWriter, field: number, locator: Locator): void {
  writer.tag(field, WireType.LengthDelimited).fork();
  text(writer, 1, locator.name);
  for (const entry of locator.parameters) mapEntry(writer, 2, entry);
  writer.join();
}

function mapEntry(writer: BinaryWriter, field: number, [key, value]: readonly [string, string]): void {
  writer.tag(field, WireType.LengthDelimited).fork();
  text(writer, 1, key);
  text(writer, 2, value);
  writer.join();
}
