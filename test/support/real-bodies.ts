import { create, toBinary } from '@bufbuild/protobuf';
import { AnySchema } from '@bufbuild/protobuf/wkt';
import type { Put } from '../../src/model/transaction.ts';
import { jsonToBytes, messageName } from '../../src/wire/registry.ts';
import { put, type } from './in-memory-relay.ts';

/** The encoded Any of a message of Envoy's API, given as JSON. */
export function anyOf(url: string, fields: object): Uint8Array {
  const bytes = jsonToBytes(messageName(url), fields);
  if (!bytes.ok) throw new Error(bytes.error[0]?.message);
  return toBinary(AnySchema, create(AnySchema, { typeUrl: url, value: bytes.value }));
}

/** A resource as control planes have it. */
export function realPut(short: string, name: string, fields: object): Put {
  const any = anyOf(type(short), { ...(short === 'eds' ? { clusterName: name } : { name }), ...fields });
  return put(type(short), name, JSON.stringify(fields), { any });
}
