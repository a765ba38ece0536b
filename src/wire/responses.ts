import type { TypeUrl } from '../model/brand.ts';
import type { Variant } from '../model/resource.ts';
import {
  bytes,
  encode,
  type Field,
  message,
  nested,
  sizeOf,
  text,
  utf8,
  varint,
  write,
} from '../protobuf/field-writer.ts';
import { prefixLength } from './grpc-frames.ts';
import type { ErrorDetail } from './requests.ts';
import type { IncomingError, IncomingName } from './response-reader.ts';

/** A resource of a response, and the form that the subscriber gets it in. */
export interface OutgoingResource {
  readonly variant: Variant;
  /** In the subscriber's spelling (protocol §6). */
  readonly name: string;
  /** With its constraints: resource_name instead of name, in SotW inside a Resource (TP2). */
  readonly constrained: boolean;
  /** SotW: inside a Resource (xds.config.resource-in-sotw). */
  readonly wrapped: boolean;
  /** Remaining time to live in milliseconds, for clients that support it. */
  readonly ttl: number | undefined;
  /** Without its body: the client has it (protocol §4.11), or there is none (§4.8). */
  readonly bodiless: boolean;
}

/** What a locator client is told of a variant that it loses; empty bytes are no constraints. */
export type RemovedName = IncomingName;

/** A resource_errors entry. */
export type OutgoingError = Pick<IncomingError, 'name' | 'constraints' | 'status'>;

interface SotwResponse {
  readonly type: TypeUrl;
  readonly version: string;
  readonly nonce: string;
  readonly resources: readonly OutgoingResource[];
  readonly errors: readonly OutgoingError[];
  readonly controlPlane: string;
  /** Resources as their bodies alone, before those of `resources`. */
  readonly plain?: readonly Uint8Array[] | undefined;
}

const RESOURCE_URL = Buffer.from('type.googleapis.com/envoy.service.discovery.v3.Resource');

/** A DiscoveryResponse as a gRPC message, prefix included: ready to be written to every stream (protocol §1). */
export function encodeSotwResponse(response: SotwResponse): Buffer {
  const fields: Field[] = [];
  text(fields, 1, response.version);
  for (const body of response.plain ?? []) fields.push(bytes(2, body));
  for (const resource of response.resources) {
    if (resource.constrained || resource.wrapped) {
      nested(fields, 2, [bytes(1, RESOURCE_URL), message(2, resourceFields(resource))]);
    } else if (resource.variant.payload !== undefined) {
      fields.push(bytes(2, resource.variant.payload.bytes));
    }
  }
  text(fields, 4, response.type);
  text(fields, 5, response.nonce);
  if (response.controlPlane !== '') nested(fields, 6, [utf8(1, response.controlPlane)]);
  for (const error of response.errors) nested(fields, 7, errorFields(error));
  return framed(fields);
}

/** A DeltaDiscoveryResponse as a gRPC message, prefix included. */
export function encodeDeltaResponse(
  response: Omit<SotwResponse, 'plain'> & {
    readonly removed: readonly string[];
    readonly removedNames: readonly RemovedName[];
  },
): Buffer {
  const fields: Field[] = [];
  text(fields, 1, response.version);
  for (const resource of response.resources) nested(fields, 2, resourceFields(resource));
  text(fields, 4, response.type);
  text(fields, 5, response.nonce);
  for (const name of response.removed) fields.push(utf8(6, name));
  if (response.controlPlane !== '') nested(fields, 7, [utf8(1, response.controlPlane)]);
  for (const { name, constraints } of response.removedNames) nested(fields, 8, nameFields(name, constraints));
  for (const error of response.errors) nested(fields, 9, errorFields(error));
  return framed(fields);
}

/** A google.rpc.Status. */
export function statusFields({ code, message }: ErrorDetail): Field[] {
  const fields = [varint(1, code)];
  text(fields, 2, message);
  return fields;
}

export const encodeStatus = (code: number, message: string): Uint8Array =>
  encode(statusFields({ code, message }));

function resourceFields(resource: OutgoingResource): Field[] {
  const { variant } = resource;
  const fields: Field[] = [];
  text(fields, 1, variant.deltaVersion);
  if (!resource.bodiless && variant.payload !== undefined) fields.push(bytes(2, variant.payload.bytes));
  if (!resource.constrained) text(fields, 3, resource.name);
  for (const alias of variant.aliases) fields.push(utf8(4, alias));
  if (resource.ttl !== undefined) nested(fields, 6, durationFields(resource.ttl));
  if (variant.doNotCache) nested(fields, 7, [varint(1, 1)]);
  if (resource.constrained) nested(fields, 8, nameFields(resource.name, variant.constraints.bytes));
  if (variant.metadata !== undefined) fields.push(bytes(9, variant.metadata));
  return fields;
}

function nameFields(name: string, constraints: Uint8Array): Field[] {
  const fields: Field[] = [];
  text(fields, 1, name);
  if (constraints.length > 0) fields.push(bytes(2, constraints));
  return fields;
}

function errorFields(error: OutgoingError): Field[] {
  return [message(1, nameFields(error.name, error.constraints)), bytes(2, error.status)];
}

/** google.protobuf.Duration. */
export function durationFields(milliseconds: number): Field[] {
  const whole = Math.max(0, Math.ceil(milliseconds));
  const fields: Field[] = [];
  const seconds = Math.floor(whole / 1000);
  const nanos = (whole % 1000) * 1e6;
  if (seconds > 0) fields.push(varint(1, seconds));
  if (nanos > 0) fields.push(varint(2, nanos));
  return fields;
}

/** gRPC's prefix (uncompressed, length) and the fields. */
function framed(fields: readonly Field[]): Buffer {
  const size = sizeOf(fields);
  // Not from the shared pool: a frame may live long in a slow client's socket, and would pin the pool's slab.
  const frame = Buffer.allocUnsafeSlow(prefixLength + size);
  frame[0] = 0;
  frame.writeUInt32BE(size, 1);
  write(frame, prefixLength, fields);
  return frame;
}
