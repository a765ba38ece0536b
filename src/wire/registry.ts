import { zstdDecompressSync } from 'node:zlib';
import {
  createFileRegistry,
  type DescMessage,
  type FileRegistry,
  fromBinary,
  fromJson,
  type JsonValue,
  type Registry,
  toBinary,
} from '@bufbuild/protobuf';
import { fromText } from '@bufbuild/protobuf/txtpb';
import { FileDescriptorSetSchema } from '@bufbuild/protobuf/wkt';
import { attempt, errorMessage, fail, type Result } from '../model/result.ts';
import { packageFile } from '../package/files.ts';
import { isJsonValue, type JsonFaultPlace, jsonFaults } from './json-fault.ts';

let registry: FileRegistry | undefined;

/**
 * The whole Envoy API as descriptors: what JSON and text need for the messages inside Any. Loaded when it is first
 * asked for, in about 0.1 s and 13 MB, because gRPC never needs it.
 */
export function envoyRegistry(): FileRegistry {
  registry ??= createFileRegistry(
    fromBinary(FileDescriptorSetSchema, zstdDecompressSync(packageFile('proto/envoy-api.binpb.zst'))),
  );
  return registry;
}

/**
 * Canonical proto3 JSON (snake_case is accepted too) to the encoded message of this full name. An unknown field is a fault.
 * The error: every fault that was found, at least one.
 */
export function jsonToBytes(typeName: string, json: unknown): Result<Uint8Array, readonly JsonFaultPlace[]> {
  const registry = envoyRegistry();
  const desc = registry.getMessage(typeName);
  if (desc === undefined) return fail([{ path: [], message: unknownType(typeName) }]);
  if (!isJsonValue(json)) return fail([{ path: [], message: 'it is not JSON, or nested too deeply' }]);
  const read = (part: DescMessage, value: JsonValue) => fromJson(part, value, { registry });
  const encoded = attempt(() => toBinary(desc, read(desc, json)), errorMessage);
  return encoded.ok ? encoded : fail(jsonFaults(desc, json, registry, read, encoded.error));
}

/** Protobuf's text format (.pb_text) to the encoded message of this full name. */
export function textToBytes(typeName: string, text: string): Result<Uint8Array> {
  const known = envoyRegistry();
  const desc = known.getMessage(typeName);
  if (desc === undefined) return fail(unknownType(typeName));
  return attempt(() => toBinary(desc, fromText(desc, text, { registry: known })), errorMessage);
}

/** The full name of a message in a type URL: what follows the last slash. */
export function messageName(typeUrl: string): string {
  return typeUrl.slice(typeUrl.lastIndexOf('/') + 1);
}

export function unknownType(typeName: string): string {
  return `the type ${JSON.stringify(typeName)} is not part of the Envoy API that this build knows`;
}

/** The Envoy API for what is inside Any in JSON; loaded once the first Any is written, not with the server. */
export const lazyEnvoyRegistry: Registry = {
  kind: 'registry',
  [Symbol.iterator]: () => envoyRegistry()[Symbol.iterator](),
  get: (name) => envoyRegistry().get(name),
  getMessage: (name) => envoyRegistry().getMessage(name),
  getEnum: (name) => envoyRegistry().getEnum(name),
  getExtension: (name) => envoyRegistry().getExtension(name),
  getExtensionFor: (extendee, no) => envoyRegistry().getExtensionFor(extendee, no),
  getService: (name) => envoyRegistry().getService(name),
};
