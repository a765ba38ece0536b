import { once } from 'node:events';
import { type ClientRequest, request as http, type IncomingMessage } from 'node:http';
import { request as https } from 'node:https';
import type { Socket } from 'node:net';
import { text } from 'node:stream/consumers';
import { knownTypes } from '../../../src/model/types.ts';
import type { Arena } from './attack.ts';
import { connectTo, type Identity, type Target, tlsOptions } from './target.ts';

/** Of every service that is served over REST. */
export const restPaths: readonly string[] = [
  ...knownTypes.flatMap(({ rest }) => (rest === undefined ? [] : [`/v3/discovery:${rest}`])),
  '/v3/discovery:client_status',
];

export const clusters = '/v3/discovery:clusters';

export interface RestAnswer {
  readonly status: number;
  readonly body: string;
}

export interface RestCall {
  readonly path?: string;
  readonly method?: string;
  readonly body?: string | Buffer;
  readonly headers?: Readonly<Record<string, string>>;
  /** Instead of the attacker's own certificate. */
  readonly identity?: Identity;
}

/** The REST listener of the same relay. */
export function restOf(target: Target): Target {
  if (target.rest === undefined) throw new Error('the target has no REST listener');
  return { ...target, port: target.rest };
}

/** One request on a connection of its own, over HTTP/1.1. */
export async function callRest(arena: Arena, call: RestCall): Promise<RestAnswer> {
  const { body = '{"node":{"id":"attacker"}}' } = call;
  const request = openRest(arena, call, { 'content-length': String(Buffer.byteLength(body)) });
  const answered = responseTo(request);
  request.end(body);
  const response = await answered;
  return { status: response.statusCode ?? 0, body: await text(response) };
}

/** The same with a body that is sent by the caller, in chunks. */
export function openRest(
  arena: Arena,
  call: RestCall,
  more: Readonly<Record<string, string>> = {},
): ClientRequest {
  const { path = clusters, method = 'POST', headers = {}, identity } = call;
  const target = restOf(arena.target);
  const keys = identity === undefined ? {} : { cert: identity.certificate, key: identity.privateKey };
  const options = {
    ...tlsOptions(target, { ALPNProtocols: ['http/1.1'], ...keys }),
    path,
    method,
    agent: false,
    headers: { 'content-type': 'application/json', ...more, ...headers },
  };
  const request = target.tls === undefined ? http(options) : https(options);
  request.on('error', () => undefined);
  arena.use({ [Symbol.dispose]: () => request.destroy() });
  return request;
}

export async function responseTo(request: ClientRequest): Promise<IncomingMessage> {
  const { promise, resolve, reject } = Promise.withResolvers<IncomingMessage>();
  request.once('response', resolve).once('error', reject);
  return promise;
}

/** A connection of which every byte is the attack's own. */
export async function restSocket(arena: Arena): Promise<Socket> {
  const socket = await connectTo(restOf(arena.target), ['http/1.1']);
  arena.use({ [Symbol.dispose]: () => socket.destroy() });
  return socket;
}

/** The whole answer to bytes that need not be HTTP. */
export async function answerTo(arena: Arena, bytes: string): Promise<string> {
  const socket = await restSocket(arena);
  const answer = text(socket).catch(() => '');
  socket.end(bytes, 'latin1');
  return answer;
}

/** The head of a poll whose body has so many bytes. */
export const headOf = (bytes: number, path = clusters): string =>
  `POST ${path} HTTP/1.1\r\nhost: relay\r\ncontent-type: application/json\r\ncontent-length: ${bytes}\r\n\r\n`;

export const closed = (socket: Socket): Promise<unknown> =>
  socket.destroyed ? Promise.resolve() : once(socket, 'close');
