import type { ListedClient, ListedType } from '../downstream/services.ts';
import { ClientResourceStatus } from '../gen/envoy/admin/v3/config_dump_shared_pb.ts';
import { type ClientStatusRequest, ConfigStatus } from '../gen/envoy/service/status/v3/csds_pb.ts';
import type { Access } from '../model/access.ts';
import type { TypeUrl } from '../model/brand.ts';
import { isVariant, type Value } from '../model/catalog.ts';
import { fail, ok, type Result } from '../model/result.ts';
import type { Holding, SyncState } from '../model/subscription.ts';
import type { Pace, Payer, TimeSlices } from '../model/time-slices.ts';
import { typeInfo } from '../model/types.ts';
import type { Relay } from '../relay.ts';
import { ClientStatusWriter, type EncodedStatus, type StatusEntry } from '../wire/client-status.ts';
import { Code, type GrpcStatus } from '../wire/grpc-status.ts';
import { redactedBody } from '../wire/redaction.ts';
import { isInScope, type StatusScope } from './client-status-scope.ts';
import { compileNodeMatchers } from './node-matchers.ts';

export interface ClientStatusQuery {
  readonly scope: StatusScope;
  readonly request: ClientStatusRequest;
  /** Of what is answered. */
  readonly maxBytes: number;
  /** What this process compares is whole; left out: keys are. */
  readonly whole?: boolean;
  /** Left out: whoever may ask for everything. */
  readonly payer?: Payer;
}

/** A Connect response is written at once, so on the xDS port it has a smaller bound. */
export const maxConnectBytes = 1 << 20;

/** How a body is shown; undefined: it is not. */
type BodyOf = (bytes: Uint8Array) => Uint8Array | undefined;

type ClientStatusResult = Result<EncodedStatus, GrpcStatus>;

/** CSDS (protocol §9) of the clients of this process: what each was sent, and its answer. Only who sees all sees those that poll. */
export function clientConfigs(
  relay: Relay,
  query: ClientStatusQuery,
  slices: TimeSlices,
): Promise<ClientStatusResult> {
  const { scope } = query;
  const bodyOf = bodiesOf(query);
  return answer(query, slices, async (writer, matches, pace) => {
    const seesAll = scope.kind === 'all';
    const clients: readonly ListedClient[] = seesAll
      ? [...relay.clients()]
      : [...relay.server.streams()].filter(({ transport }) => isInScope(scope, transport.peer));
    for (const stream of clients) {
      await pace.yieldIfDue();
      if (!matches(stream.client?.nodeId ?? '')) continue;
      if (!(await writeEntries(writer, stream, seesAll, bodyOf, pace))) return false;
      if (relay.client(stream.id) !== stream) {
        writer.drop(); // it has ended meanwhile, and its state is gone
        continue;
      }
      const { nodeId = '', cluster = '' } = stream.client ?? {};
      if (!writer.client({ nodeId, cluster, scope: stream.id })) return false;
    }
    return true;
  });
}

/** What the relay itself got from its control planes, as one more client. */
export function ownConfig(
  relay: Relay,
  query: ClientStatusQuery,
  slices: TimeSlices,
): Promise<ClientStatusResult> {
  return answer(query, slices, async (writer, matches, pace) => {
    if (!matches(relay.nodeId)) return true;
    for (const entry of ownEntries(relay, bodiesOf(query))) {
      await pace.yieldIfDue();
      if (!writer.entry(entry)) return false;
    }
    return writer.client({ nodeId: relay.nodeId, cluster: '', scope: 'upstream' });
  });
}

/** `write` returns false if the answer is too large. */
function answer(
  { request, maxBytes, payer }: ClientStatusQuery,
  slices: TimeSlices,
  write: (writer: ClientStatusWriter, matches: (nodeId: string) => boolean, pace: Pace) => Promise<boolean>,
): Promise<ClientStatusResult> {
  return slices.run(async (pace) => {
    const matches = compileNodeMatchers(request.nodeMatchers);
    if (!matches.ok) return matches;
    const writer = new ClientStatusWriter(maxBytes);
    return (await write(writer, matches.value, pace)) ? ok(writer.take()) : fail(answerTooLarge(maxBytes));
  }, payer);
}

function bodiesOf({ request, whole = false }: ClientStatusQuery): BodyOf {
  if (request.excludeResourceContents) return () => undefined;
  return whole ? (bytes) => bytes : redactedBody;
}

export function answerTooLarge(maxBytes: number): GrpcStatus {
  const message = `the answer is larger than ${maxBytes} bytes, the maximum (limits.max_response_bytes; by Connect on the xDS port ${maxConnectBytes}): exclude_resource_contents and node_matchers make it smaller`;
  return { code: Code.RESOURCE_EXHAUSTED, message };
}

/** False: the answer is too large. */
async function writeEntries(
  writer: ClientStatusWriter,
  stream: ListedClient,
  seesAll: boolean,
  bodyOf: BodyOf,
  pace: Pace,
): Promise<boolean> {
  for (const type of stream.types) {
    for (const holding of type.subscription?.holdings() ?? []) {
      await pace.yieldIfDue();
      if (!seesAll && !mayBeTold(stream.client?.access, type.info.url, holding)) continue;
      if (!writer.entry(entryOf(type, holding, bodyOf))) return false;
    }
  }
  return true;
}

/** By the rules and parameters of now: they may no longer allow what was sent before. */
function mayBeTold(access: Access | undefined, type: TypeUrl, holding: Holding): boolean {
  const { canonical, parameters, value, current } = holding;
  if (access?.allows(type, canonical) !== true) return false;
  if (current || !isVariant(value)) return true;
  return access.admits(value, parameters) && value.constraints.matches(parameters);
}

function entryOf(type: ListedType, holding: Holding, bodyOf: BodyOf): StatusEntry {
  const { name, value, state, missing, rejection } = holding;
  const error = rejection && { at: rejection.at, details: rejection.message, version: rejection.version };
  return {
    typeUrl: type.info.url,
    name,
    configStatus: configStatuses[state],
    ...contentOf(value, bodyOf),
    // What a removal left behind at the client is still shown.
    ...(missing && !isVariant(value) ? { clientStatus: ClientResourceStatus.DOES_NOT_EXIST } : {}),
    ...(error === undefined ? {} : { error }),
  };
}

function* ownEntries(relay: Relay, bodyOf: BodyOf): Iterable<StatusEntry> {
  for (const [type, table] of relay.store.tables) {
    for (const [name, cached] of table.resources) {
      for (const { variant } of cached.variants.values()) {
        const content = contentOf(variant, bodyOf);
        yield { typeUrl: type, name, clientStatus: ClientResourceStatus.ACKED, ...content };
      }
    }
    for (const { interest, answer } of table.interests.all()) {
      const { selector } = interest;
      if (selector === '*' || (table.resources.get(selector)?.variants.size ?? 0) > 0) continue;
      const clientStatus =
        answer === undefined ? ClientResourceStatus.REQUESTED : ClientResourceStatus.DOES_NOT_EXIST;
      yield { typeUrl: type, name: selector, clientStatus };
    }
  }
}

const configStatuses: Readonly<Record<SyncState, ConfigStatus>> = {
  SYNCED: ConfigStatus.SYNCED,
  NOT_SENT: ConfigStatus.NOT_SENT,
  STALE: ConfigStatus.STALE,
  ERROR: ConfigStatus.ERROR,
};

function contentOf(
  value: Value | undefined,
  bodyOf: BodyOf,
): Pick<StatusEntry, 'version' | 'lastUpdated' | 'body'> {
  if (!isVariant(value)) return {};
  const content = { version: value.version, lastUpdated: value.cachedSince };
  // A private key is for its subscribers, not for whoever asks for their status.
  if (value.payload === undefined || typeInfo(value.type).short === 'sds') return content;
  const body = bodyOf(value.payload.bytes);
  return body === undefined ? content : { ...content, body };
}
