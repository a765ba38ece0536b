import { create } from '@bufbuild/protobuf';
import { type Any, anyPack, StructSchema } from '@bufbuild/protobuf/wkt';
import type {
  ClientConfig,
  ClientConfig_GenericXdsConfig,
  ClientStatusResponse,
} from '../gen/envoy/service/status/v3/csds_pb.ts';
import type { Pace } from '../model/time-slices.ts';
import { bytesToJson, messageName } from '../wire/registry.ts';
import type { Plain } from './ports.ts';

/**
 * JSON needs the descriptor of every Any, also of those inside others. A type that this build does not know would make
 * the whole answer fail, so such a resource becomes a Struct that says so, with its bytes in base64.
 */
export async function withKnownTypes(
  response: Plain<ClientStatusResponse>,
  pace: Pace,
): Promise<Plain<ClientStatusResponse>> {
  const config: Plain<ClientConfig>[] = [];
  for (const client of response.config) {
    const genericXdsConfigs: Plain<ClientConfig_GenericXdsConfig>[] = [];
    for (const entry of client.genericXdsConfigs) {
      await pace.yieldIfDue();
      genericXdsConfigs.push(
        entry.xdsConfig === undefined ? entry : { ...entry, xdsConfig: readable(entry.xdsConfig) },
      );
    }
    config.push({ ...client, genericXdsConfigs });
  }
  return { ...response, config };
}

function readable(any: Plain<Any>): Plain<Any> {
  const json = bytesToJson(messageName(any.typeUrl), any.value);
  if (json.ok) return any;
  const text = (value: string) => ({ kind: { case: 'stringValue' as const, value } });
  return anyPack(
    StructSchema,
    create(StructSchema, {
      fields: {
        unreadable: text(json.error),
        type_url: text(any.typeUrl),
        value_base64: text(Buffer.from(any.value).toString('base64')),
      },
    }),
  );
}
