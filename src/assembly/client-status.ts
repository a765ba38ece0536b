import { create, fromBinary } from '@bufbuild/protobuf';
import { type Any, AnySchema, timestampFromMs } from '@bufbuild/protobuf/wkt';
import type { XdsStream } from '../downstream/stream.ts';
import type { TypeStream } from '../downstream/type-stream.ts';
import {
  ClientResourceStatus,
  UpdateFailureStateSchema,
} from '../gen/envoy/admin/v3/config_dump_shared_pb.ts';
import { NodeSchema } from '../gen/envoy/config/core/v3/base_pb.ts';
import {
  type ClientConfig,
  type ClientConfig_GenericXdsConfig,
  ClientConfig_GenericXdsConfigSchema,
  ClientConfigSchema,
  type ClientStatusRequest,
  type ClientStatusResponse,
  ClientStatusResponseSchema,
  ConfigStatus,
} from '../gen/envoy/service/status/v3/csds_pb.ts';
import type { NodeMatcher } from '../gen/envoy/type/matcher/v3/node_pb.ts';
import { isVariant, type Value } from '../model/catalog.ts';
import { fail, ok, type Result } from '../model/result.ts';
import { typeInfo } from '../model/types.ts';
import type { Relay } from '../relay.ts';
import { Code, type GrpcStatus } from '../wire/status.ts';
import type { ClientsView } from './clients-view.ts';
import { compileStringMatcher } from './string-matcher.ts';

/** CSDS (protocol §9): what each client was told, and what it made of it; and the relay's own view of its upstreams. */
export async function clientStatus(
  relay: Relay,
  clients: ClientsView,
  request: ClientStatusRequest,
): Promise<Result<ClientStatusResponse, GrpcStatus>> {
  const configs = await clients.configs(request);
  if (!configs.ok) return configs;
  const matcher = compileMatchers(request.nodeMatchers);
  if (!matcher.ok) return matcher;
  const own = matcher.value(relay.nodeId) ? [ownConfig(relay, request.excludeResourceContents)] : [];
  const config = [...configs.value, ...own];
  return ok(create(ClientStatusResponseSchema, { config }));
}

/** Of the clients whose streams end in this process. */
export function clientConfigs(
  relay: Relay,
  request: ClientStatusRequest,
): Result<readonly ClientConfig[], GrpcStatus> {
  const matcher = compileMatchers(request.nodeMatchers);
  if (!matcher.ok) return matcher;
  const config: ClientConfig[] = [];
  for (const stream of relay.server.streams()) {
    if (matcher.value(stream.client?.nodeId ?? '')) {
      config.push(clientConfig(stream, request.excludeResourceContents));
    }
  }
  return ok(config);
}

function clientConfig(stream: XdsStream, bare: boolean): ClientConfig {
  return create(ClientConfigSchema, {
    node: create(NodeSchema, { id: stream.client?.nodeId ?? '', cluster: stream.client?.cluster ?? '' }),
    clientScope: stream.id,
    genericXdsConfigs: stream.types.flatMap((type) => typeConfigs(type, bare)),
  });
}

function typeConfigs(type: TypeStream, bare: boolean): ClientConfig_GenericXdsConfig[] {
  const configs: ClientConfig_GenericXdsConfig[] = [];
  for (const { name, value } of type.subscription?.held() ?? []) {
    const config = create(ClientConfig_GenericXdsConfigSchema, {
      typeUrl: type.info.url,
      name,
      configStatus: isVariant(value) ? statusOf(type) : ConfigStatus.NOT_SENT,
      ...contentOf(value, bare),
    });
    if (type.lastNack !== undefined && type.state === 'ERROR') {
      config.errorState = create(UpdateFailureStateSchema, {
        details: type.lastNack.message,
        versionInfo: type.version,
        lastUpdateAttempt: timestampFromMs(type.lastNack.at),
      });
    }
    configs.push(config);
  }
  return configs;
}

/** What the relay itself got from its control planes. */
function ownConfig(relay: Relay, bare: boolean): ClientConfig {
  const genericXdsConfigs: ClientConfig_GenericXdsConfig[] = [];
  for (const [type, table] of relay.store.tables()) {
    for (const [name, cell] of table.cells) {
      for (const { variant } of cell.variants.values()) {
        genericXdsConfigs.push(
          create(ClientConfig_GenericXdsConfigSchema, {
            typeUrl: type,
            name,
            clientStatus: ClientResourceStatus.ACKED,
            ...contentOf(variant, bare),
          }),
        );
      }
    }
    for (const { interest, answered } of table.interests.all()) {
      const { selector } = interest;
      if (selector === '*' || (table.cells.get(selector)?.variants.size ?? 0) > 0) continue;
      const status = answered ? ClientResourceStatus.DOES_NOT_EXIST : ClientResourceStatus.REQUESTED;
      genericXdsConfigs.push(
        create(ClientConfig_GenericXdsConfigSchema, {
          typeUrl: type,
          name: selector,
          clientStatus: status,
        }),
      );
    }
  }
  const node = create(NodeSchema, { id: relay.nodeId });
  return create(ClientConfigSchema, { node, clientScope: 'upstream', genericXdsConfigs });
}

function statusOf(type: TypeStream): ConfigStatus {
  switch (type.state) {
    case 'SYNCED':
      return ConfigStatus.SYNCED;
    case 'NOT_SENT':
      return ConfigStatus.NOT_SENT;
    case 'STALE':
      return ConfigStatus.STALE;
    case 'ERROR':
      return ConfigStatus.ERROR;
    default:
      return type.state satisfies never;
  }
}

function contentOf(
  value: Value | undefined,
  bare: boolean,
): { versionInfo?: string; xdsConfig?: Any; lastUpdated?: ReturnType<typeof timestampFromMs> } {
  if (!isVariant(value)) return {};
  const content = { versionInfo: value.version, lastUpdated: timestampFromMs(value.since) };
  // A private key is for those that subscribe to it, not for whoever asks how they are.
  if (bare || value.payload === undefined || typeInfo(value.type).short === 'sds') return content;
  return { ...content, xdsConfig: fromBinary(AnySchema, value.payload.bytes) };
}

/** Any of the matchers; none match all. Of the node only its id is kept, so nothing else can be matched. */
function compileMatchers(matchers: readonly NodeMatcher[]): Result<(nodeId: string) => boolean, GrpcStatus> {
  const compiled: ((nodeId: string) => boolean)[] = [];
  for (const { nodeId, nodeMetadatas } of matchers) {
    if (nodeMetadatas.length > 0) {
      const message =
        'node_matchers: only node_id can be matched: the relay does not keep the metadata of nodes';
      return fail({ code: Code.INVALID_ARGUMENT, message });
    }
    if (nodeId === undefined) continue;
    const matcher = compileStringMatcher(nodeId);
    if (!matcher.ok) return fail({ code: Code.INVALID_ARGUMENT, message: `node_matchers: ${matcher.error}` });
    compiled.push(matcher.value);
  }
  return ok((nodeId) => compiled.length === 0 || compiled.some((matches) => matches(nodeId)));
}
