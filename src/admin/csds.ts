import { create } from '@bufbuild/protobuf';
import type { ConnectRouter, HandlerContext } from '@connectrpc/connect';
import type { Config } from '../config/config.ts';
import type { ListedClient, ListedType } from '../downstream/services.ts';
import { ClientResourceStatus } from '../gen/envoy/admin/v3/config_dump_shared_pb.ts';
import {
  ClientStatusDiscoveryService,
  type ClientStatusRequest,
  type ClientStatusResponse,
  ClientStatusResponseSchema,
  ConfigStatus,
} from '../gen/envoy/service/status/v3/csds_pb.ts';
import type { NodeMatcher } from '../gen/envoy/type/matcher/v3/node_pb.ts';
import type { StringMatcher } from '../gen/envoy/type/matcher/v3/string_pb.ts';
import type { Access } from '../model/access.ts';
import type { TypeUrl } from '../model/brand.ts';
import { isVariant, type Value } from '../model/catalog.ts';
import { controlPlaneVersion } from '../model/change.ts';
import { systemClock } from '../model/clock.ts';
import { fail, ok, type Result } from '../model/result.ts';
import { isCollection } from '../model/selection.ts';
import type { Holding, SyncState } from '../model/subscription.ts';
import { type Pace, type Payer, TimeSlices } from '../model/time-slices.ts';
import { typeInfo } from '../model/types.ts';
import type { Relay } from '../relay.ts';
import { compileBounded, compilePrincipals } from '../security/pattern.ts';
import {
  ClientStatusWriter,
  type EncodedStatus,
  encodedResponse,
  type StatusEntry,
  sizeOf,
  statusJson,
} from '../wire/client-status.ts';
import { type AuxiliaryCall, type AuxiliaryService, type CallKind, callKey } from '../wire/connect.ts';
import { Code, type GrpcStatus } from '../wire/grpc-status.ts';
import { verifiedIdentity } from '../wire/peer.ts';
import { redactedBody } from '../wire/redaction.ts';
import type { Peer } from '../wire/server-stream.ts';
import { valueOf } from './requests.ts';

/** A request may hold a node, 61 KB of Envoy's, which is not read. */
const maxRequestBytes = 128 << 10;

/** On all listeners together. */
export const csdsCalls: CallKind = { name: 'CSDS calls', max: 16, maxPerPeer: 4, whenExceeded: 'REFUSED' };

/** CSDS on the xDS port: request and response, not a watch (protocol §9). */
export function csds(
  scopeOf: (peer: Peer) => Result<StatusScope, GrpcStatus>,
  answerOf: (query: ClientStatusQuery) => ClientStatusResult | Promise<ClientStatusResult>,
  maxResponseBytes: () => number,
): AuxiliaryService {
  const slices = new TimeSlices(systemClock);
  return {
    maxRequestBytes,
    kindOf: () => csdsCalls,
    refusal: (peer) => {
      const scope = scopeOf(peer);
      return scope.ok ? undefined : scope.error;
    },
    routes: (router: ConnectRouter) => {
      router.service(ClientStatusDiscoveryService, {
        fetchClientStatus: answerTo,
        async *streamClientStatus(requests, context) {
          for await (const request of requests) yield await answerTo(request, context);
        },
      });
    },
  };

  /** The caller's scope is checked for each request, because the rules may have changed since the stream began. */
  async function answerTo(
    request: ClientStatusRequest,
    { values, requestHeader, signal: gone }: HandlerContext,
  ): Promise<ClientStatusResponse> {
    const call = values.get(callKey);
    if (call === undefined) throw new Error('a call without a caller');
    const scope = valueOf(scopeOf(call.peer));
    const contentType = requestHeader.get('content-type') ?? '';
    const grpc = contentType.startsWith('application/grpc');
    const maxBytes = Math.min(maxResponseBytes(), grpc ? Infinity : maxConnectBytes);
    const release = call.hold();
    try {
      const { account: payer } = call.peer;
      const pieces = valueOf(kept(await answerOf({ scope, request, maxBytes, payer, gone }), scope, call));
      if (grpc) {
        call.answerWith(pieces);
        return create(ClientStatusResponseSchema);
      }
      if (!contentType.includes('json')) return encodedResponse(pieces);
      const json = valueOf(await statusJson(pieces, maxBytes, slices, payer));
      call.answerWith(json, contentType.startsWith('application/connect'));
      return create(ClientStatusResponseSchema);
    } finally {
      release();
    }
  }
}

/** A slow reader keeps its answer in memory. */
function kept(answered: ClientStatusResult, scope: StatusScope, call: AuxiliaryCall): ClientStatusResult {
  if (!answered.ok || scope.kind === 'all') return answered;
  const excess = call.keepAnswer(sizeOf(answered.value));
  return excess === undefined ? answered : fail({ code: Code.RESOURCE_EXHAUSTED, message: excess });
}

export interface ClientStatusQuery {
  readonly scope: StatusScope;
  readonly request: ClientStatusRequest;
  /** Of what is answered. */
  readonly maxBytes: number;
  /** What this process compares is whole; left out: keys are. */
  readonly whole?: boolean;
  /** Left out: whoever may ask for everything. */
  readonly payer?: Payer;
  /** Who asks waits no longer. */
  readonly gone?: AbortSignal;
}

/** A Connect response is written at once, so on the xDS port it has a smaller bound. */
export const maxConnectBytes = 1 << 20;

/** How a body is shown; undefined: it is not. */
type BodyOf = (bytes: Uint8Array) => Uint8Array | undefined;

export type ClientStatusResult = Result<EncodedStatus, GrpcStatus>;

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
      : [...relay.server.values()].filter(({ transport }) => isInScope(scope, transport.peer));
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
      if (isCollection(selector) || table.hasContent(interest)) continue;
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
  const content = { version: controlPlaneVersion(value), lastUpdated: value.cachedSince };
  // A private key is for its subscribers, not for whoever asks for their status.
  if (value.payload === undefined || typeInfo(value.type).short === 'sds') return content;
  const body = bodyOf(value.payload.bytes);
  return body === undefined ? content : { ...content, body };
}

/** Whose streams a CSDS answer tells of (docs/adr/0065). */
export type StatusScope =
  /** All clients', and the relay's own view. */
  | { readonly kind: 'all' }
  /** Those of the clients that a certificate gives this identity. */
  | { readonly kind: 'identity'; readonly identity: string }
  | { readonly kind: 'connection'; readonly peer: Peer };

export const ALL_CLIENTS: StatusScope = { kind: 'all' };

export type StatusScopes = ReturnType<typeof statusScopes>;

/** What a peer of the xDS port may be told by CSDS, by the configuration in force (xds.client_status). */
export function statusScopes({ xds: { clientStatus } }: Config, accessOf: (peer: Peer) => Access) {
  const { enabled, principals } = clientStatus;
  const seesAll = compilePrincipals(principals);
  return {
    enabled,
    of(peer: Peer): Result<StatusScope, GrpcStatus> {
      if (!enabled) {
        const message = 'CSDS is disabled here (xds.client_status)';
        return fail({ code: Code.UNIMPLEMENTED, message });
      }
      if (seesAll(peer)) return ok(ALL_CLIENTS);
      if (accessOf(peer).deniesEverything(undefined)) {
        const message = 'this client may not subscribe to anything, so there is nothing to show';
        return fail({ code: Code.PERMISSION_DENIED, message });
      }
      const identity = verifiedIdentity(peer);
      return ok(identity === undefined ? { kind: 'connection', peer } : { kind: 'identity', identity });
    },
  };
}

/** Whether a stream of this peer is within the scope. */
function isInScope(scope: StatusScope, peer: Peer): boolean {
  switch (scope.kind) {
    case 'all':
      return true;
    case 'identity':
      return verifiedIdentity(peer) === scope.identity;
    case 'connection':
      return peer === scope.peer;
    default:
      return scope satisfies never;
  }
}

/** In one request: each may be a pattern, and every client is compared with each. */
const maxMatchers = 8;

/**
 * Matches if one of the matchers does, or if there are none. Only the id of a node is kept, so nothing else can be
 * matched.
 */
function compileNodeMatchers(
  matchers: readonly NodeMatcher[],
): Result<(nodeId: string) => boolean, GrpcStatus> {
  if (matchers.length > maxMatchers) {
    return refused(`expected at most ${maxMatchers}, got ${matchers.length}`);
  }
  const compiled: ((nodeId: string) => boolean)[] = [];
  for (const { nodeId, nodeMetadatas } of matchers) {
    if (nodeMetadatas.length > 0) {
      return refused('only node_id can be matched: the relay does not keep the metadata of nodes');
    }
    const matcher = nodeId === undefined ? ok(() => true) : compileStringMatcher(nodeId);
    if (!matcher.ok) return refused(matcher.error);
    compiled.push(matcher.value);
  }
  return ok((nodeId) => compiled.length === 0 || compiled.some((matches) => matches(nodeId)));
}

function refused(reason: string): Result<never, GrpcStatus> {
  return fail({ code: Code.INVALID_ARGUMENT, message: `node_matchers: ${reason}` });
}

/** envoy.type.matcher.v3.StringMatcher as a function. The error says which part is not accepted. */
function compileStringMatcher(matcher: StringMatcher): Result<(text: string) => boolean> {
  const fold = (text: string): string => (matcher.ignoreCase ? text.toLowerCase() : text);
  const { matchPattern } = matcher;
  switch (matchPattern.case) {
    case 'exact':
      return ok((text) => fold(text) === fold(matchPattern.value));
    case 'prefix':
      return ok((text) => fold(text).startsWith(fold(matchPattern.value)));
    case 'suffix':
      return ok((text) => fold(text).endsWith(fold(matchPattern.value)));
    case 'contains':
      return ok((text) => fold(text).includes(fold(matchPattern.value)));
    case 'safeRegex': {
      const pattern = compileBounded(matchPattern.value.regex);
      return pattern.ok ? pattern : fail(`safe_regex: ${pattern.error}`);
    }
    case 'custom':
    case undefined:
      return fail('expected exact, prefix, suffix, contains or safe_regex');
    default:
      return matchPattern satisfies never;
  }
}
