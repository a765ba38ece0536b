import { X509Certificate } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import type { MessageShape } from '@bufbuild/protobuf';
import { createContextKey } from '@connectrpc/connect';
import type { AdminService } from '../gen/distributary/admin/v1/admin_pb.ts';
import type { ResourceName, TypeUrl } from '../model/brand.ts';
import { internParameters } from '../model/parameters.ts';
import type { Result } from '../model/result.ts';
import { type ClientState, clientStates } from '../model/subscription.ts';
import { expectedText, unknownWord } from '../model/text.ts';
import { typeByName, unknownType } from '../model/types.ts';
import { canonicalName } from '../model/xdstp.ts';
import { type LogLevel, levels } from '../observe/log-levels.ts';
import { invalid, rpcError } from '../wire/connect.ts';
import type { GrpcStatus } from '../wire/grpc-status.ts';
import { addressText, parseSubjectAltNames, verifiedCertificate, verifiedIdentity } from '../wire/peer.ts';

/* What requests of AdminService mean. What they must not say is thrown, as INVALID_ARGUMENT. */

export type Methods = typeof AdminService.method;
export type Method = keyof Methods;

export type Request<M extends Method> = MessageShape<Methods[M]['input']>;

const longestPage = 1000;
const longestWaitSeconds = 3600;
const usualLevelSeconds = 600;
const longestLevelSeconds = 86_400;
/** What a page has unless told, and at most. */
const names = { usual: 50, most: 200 };
const holdings = { usual: 500, most: 10_000 };
const explained = { usual: 20, most: 500 };

/** By a short name or a type URL. */
function typeNamed(text: string): TypeUrl {
  const url = typeByName(text);
  if (url !== undefined) return url;
  throw invalid(text === '' ? 'type is missing' : unknownType(text));
}

/** Empty: every type. */
export function optionalType(text: string): TypeUrl | undefined {
  return text === '' ? undefined : typeNamed(text);
}

/** Refusals are thrown where a method answers. */
export function valueOf<T>(result: Result<T, GrpcStatus>): T {
  if (result.ok) return result.value;
  throw rpcError(result.error);
}

function nameGiven(name: string): string {
  if (name === '') throw invalid('name is missing');
  return name;
}

/** A name in the spelling of the cache. Undefined: whatever type. */
export function canonicalGiven(name: string, type: TypeUrl | undefined): ResourceName {
  const canonical = canonicalName(name, type);
  if (canonical.ok) return canonical.value;
  throw invalid(canonical.error);
}

export type ExplainQuery = ReturnType<typeof explainQuery>;

/** Parameters that are undefined: the client's. */
export function explainQuery({ type, name, parameters, client }: Request<'explain'>) {
  const url = typeNamed(type);
  const entries = Object.entries(parameters);
  return {
    type: url,
    name: nameGiven(name),
    parameters: entries.length === 0 && client !== '' ? undefined : internParameters(entries),
    client: client === '' ? undefined : client,
  };
}

export type ResourcesQuery = ReturnType<typeof resourcesQuery>;

export function resourcesQuery({ type, namePrefix, pageSize, pageToken }: Request<'listResources'>) {
  const size = pageSize === 0 ? longestPage : Math.min(pageSize, longestPage);
  if (!/^\d{0,15}$/.test(pageToken))
    throw invalid(`page_token: ${expectedText('the next_page_token of an answer', pageToken)}`);
  return { type: optionalType(type), namePrefix, pageSize: size, offset: Number(pageToken) };
}

export type ResourceQuery = ReturnType<typeof resourceQuery>;

/** The name is as the operator wrote it. */
export function resourceQuery({ type, name, offset }: Request<'getResource'>) {
  return { type: typeNamed(type), name: nameGiven(name), offset };
}

export type ClientsQuery = ReturnType<typeof clientsQuery>;

/** Undefined, or an empty text: all of them. */
export function clientsQuery({ limit, pageSize, type, state, ...rest }: Request<'listClients'>) {
  return {
    ...rest,
    limit: limit === 0 ? undefined : limit,
    pageSize: pageSize === 0 ? undefined : pageSize,
    type: optionalType(type),
    state: stateNamed(state),
  };
}

function stateNamed(text: string): ClientState | undefined {
  const state = clientStates.find((known) => known === text);
  if (state !== undefined || text === '') return state;
  throw invalid(unknownWord('state', text, clientStates));
}

export type ClientQuery = ReturnType<typeof clientQuery>;

/** Undefined, or an empty text: all of them. */
export function clientQuery({ id, limit, offset, type, name }: Request<'getClient'>) {
  if (id === '') throw invalid('id is missing');
  return { id, limit: bounded(limit, holdings), offset, type: optionalType(type), name };
}

export function explainClientQuery({ client, limit, type, name }: Request<'explainClient'>) {
  if (client === '') throw invalid('client is missing');
  return { id: client, limit: bounded(limit, explained), offset: 0, type, name };
}

export type MatchesQuery = ReturnType<typeof matchesQuery>;

export function matchesQuery({ type, name, pageSize, offset }: Request<'listMatches'>) {
  return { type: typeNamed(type), name, pageSize: bounded(pageSize, names), offset };
}

function bounded(given: number, { usual, most }: { readonly usual: number; readonly most: number }): number {
  return given === 0 ? usual : Math.min(given, most);
}

export type WaitQuery = ReturnType<typeof waitQuery>;

/** No names: everything of the type. */
export function waitQuery(request: Request<'wait'>) {
  const { type, name, names: all, revision, timeoutSeconds, allowStale, minClients = 1, wave } = request;
  if (!(timeoutSeconds >= 0 && timeoutSeconds <= longestWaitSeconds)) {
    throw invalid(`timeout_seconds: ${expectedText(`0 to ${longestWaitSeconds}`, timeoutSeconds)}`);
  }
  const url = optionalType(type);
  const names = name === '' ? all : [name, ...all];
  return {
    type: url,
    names: new Set<string>(names.map((one) => canonicalGiven(one, url))),
    revision: revision === 0 ? undefined : revision,
    timeoutMs: timeoutSeconds * 1000,
    allowStale,
    minClients,
    wave: wave === 0 ? undefined : wave,
  };
}

/** No level: that of the start again. No node: all lines. */
export function logLevelChange({ level, node, forSeconds }: Request<'setLogLevel'>) {
  if (!(forSeconds >= 0 && forSeconds <= longestLevelSeconds)) {
    throw invalid(`for_seconds: ${expectedText(`0 to ${longestLevelSeconds}`, forSeconds)}`);
  }
  const milliseconds = (forSeconds === 0 ? usualLevelSeconds : forSeconds) * 1000;
  return { level: levelOf(level), node: node === '' ? undefined : node, milliseconds };
}

function levelOf(text: string): LogLevel | undefined {
  const level = levels.find((known) => known === text);
  if (level !== undefined || text === '') return level;
  throw invalid(unknownWord('level', text, levels));
}

/** Who asks, for the log: the identity of the certificate, else the address. */
export const operatorKey = createContextKey<string>('unknown', { description: 'operator' });

export function operatorOf({ socket }: IncomingMessage): string {
  const address = addressText(socket.remoteAddress ?? 'unknown', socket.remotePort);
  const shown = verifiedCertificate(socket);
  const { subjectAltName = '', subject = '' } = shown === undefined ? {} : new X509Certificate(shown.raw);
  const identity = verifiedIdentity(parseSubjectAltNames(subjectAltName)) ?? subject.replaceAll('\n', ', ');
  return identity === '' ? address : `${identity} (${address})`;
}

export const verbs = ['freeze', 'unfreeze', 'release', 'promote', 'discard'] as const;

/** What an operator does to changes: of a type and an upstream, or (undefined) of all. */
export type Operation = ReturnType<typeof operationOf>;

/** Throws INVALID_ARGUMENT without a reason: the log must say why. */
export function operationOf(
  verb: (typeof verbs)[number],
  request: Pick<Request<'freeze'>, 'upstream' | 'type' | 'reason'> &
    Partial<Pick<Request<'promote'>, 'wave'>>,
  operator: string,
) {
  const { upstream, type, reason, wave = 0 } = request;
  if (reason.trim() === '') throw invalid('reason is missing: say why, for the log');
  return {
    verb,
    type: optionalType(type),
    upstream: upstream === '' ? undefined : upstream,
    reason,
    /** To promote from; undefined: from whichever it is. */
    wave: wave === 0 ? undefined : wave,
    /** Who. */
    operator,
  };
}
