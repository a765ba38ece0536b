import type {
  ClientConfig,
  ClientConfig_GenericXdsConfig,
  ClientStatusResponse,
} from '../gen/envoy/service/status/v3/csds_pb.ts';
import type { Pace } from '../model/time-slices.ts';
import { readableAny } from '../wire/readable-any.ts';
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
        entry.xdsConfig === undefined ? entry : { ...entry, xdsConfig: readableAny(entry.xdsConfig) },
      );
    }
    config.push({ ...client, genericXdsConfigs });
  }
  return { ...response, config };
}
