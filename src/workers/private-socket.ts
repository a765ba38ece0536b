import { chmodSync, mkdtempSync, rmSync } from 'node:fs';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import {
  Code as ConnectCode,
  ConnectError,
  type ConnectRouter,
  createConnectRouter,
  type Transport,
} from '@connectrpc/connect';
import {
  createConnectTransport,
  universalRequestFromNodeRequest,
  universalResponseToNodeResponse,
} from '@connectrpc/connect-node';
import { respond } from '../admin/http-listener.ts';
import type { Failed } from '../admin/rpc.ts';
import { attempt, fail, ok, type Result } from '../model/result.ts';
import { codeOf, Code as GrpcCode, type GrpcStatus } from '../wire/grpc-status.ts';
import { problem } from '../wire/http-answer.ts';
import { errorCode, explainError, isDisconnect } from '../wire/node-error.ts';

/** Of a socket that only this user can connect to. */
export const socketMode = 0o600;

/** For the sockets between the primary and its workers. Its mode is 0700. */
export function makePrivateDirectory(): Result<string> {
  const above = tmpdir();
  const explain = (error: unknown): string =>
    `workers need a directory for their sockets, and none can be made in ${above} (TMPDIR): ${explainError(error)}`;
  return attempt(() => mkdtempSync(join(above, 'distributary-feed-')), explain);
}

/** With everything in it. Several workers may do so at once, when the primary was killed. */
export function removePrivateDirectory(directory: string): void {
  try {
    rmSync(directory, { recursive: true, force: true });
  } catch {
    // another worker was faster
  }
}

/** The primary's, for xDS. What canaries see comes from the second one. */
export const feedSocket = (directory: string): string => join(directory, 'feed');
export const canaryFeedSocket = (directory: string): string => join(directory, 'feed-canary');

/** The primary's, for what workers ask. */
export const primarySocket = (directory: string): string => join(directory, 'primary');

/** For what the primary asks the worker in this slot. */
export const workerSocket = (directory: string, slot: number): string => join(directory, `worker-${slot}`);

/** Connect over HTTP/1.1 on a Unix socket: how the primary and its workers ask each other. `failed`: an answer has, because of a bug. */
export function listenPrivately(
  path: string,
  routes: (router: ConnectRouter) => void,
  failed: Failed,
): Promise<Result<Server>> {
  const server = createServer(listener(routes, failed));
  rmSync(path, { force: true }); // of a worker that was killed
  return new Promise((resolve) => {
    const refused = (error: unknown): void =>
      resolve(fail(`cannot listen on ${path}: ${explainError(error)}`));
    server.once('error', refused);
    // Exclusive: node:cluster would have the primary listen in the worker's place.
    server.listen({ path, exclusive: true }, () => {
      server.off('error', refused);
      server.on('error', failed); // what is not accepted
      try {
        chmodSync(path, socketMode);
        resolve(ok(server));
      } catch (error) {
        server.close();
        refused(error);
      }
    });
  });
}

function listener(routes: (router: ConnectRouter) => void, failed: Failed) {
  const router = createConnectRouter();
  routes(router);
  const handlers = new Map(router.handlers.map((handler) => [handler.requestPath, handler]));

  return (request: IncomingMessage, response: ServerResponse): void => {
    answer(request, response).catch((error: unknown) => {
      // The other end has stopped waiting.
      if (!isDisconnect(error) && ConnectError.from(error).code !== ConnectCode.Aborted) failed(error);
      response.destroy();
    });
  };

  async function answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { url = '/' } = request;
    const handler = handlers.get(url);
    if (handler === undefined) {
      respond(response, problem(404, 'not_found', `there is no ${url} here`));
      return;
    }
    const answered = await handler(universalRequestFromNodeRequest(request, response, undefined, undefined));
    await universalResponseToNodeResponse(answered, response);
  }
}

/**
 * For Connect's clients. `timeoutMs`: of each call. Each has its own connection, because a connection that is used again
 * could just end.
 */
export function privateTransport(socketPath: string, timeoutMs: number): Transport {
  return createConnectTransport({
    baseUrl: 'http://localhost',
    httpVersion: '1.1',
    acceptCompression: [],
    defaultTimeoutMs: timeoutMs,
    nodeOptions: { socketPath, agent: false },
  });
}

/**
 * The answer of another process as a value. UNAVAILABLE: the process is gone; DEADLINE_EXCEEDED: it is silent; else as
 * it was refused.
 */
export async function answerOf<T>(call: Promise<T>): Promise<Result<T, GrpcStatus>> {
  try {
    return ok(await call);
  } catch (error) {
    return fail(statusOf(error));
  }
}

const processEnded: GrpcStatus = { code: GrpcCode.UNAVAILABLE, message: 'the process has exited' };
const noAnswer: GrpcStatus = { code: GrpcCode.DEADLINE_EXCEEDED, message: 'no answer in time' };

function statusOf(reason: unknown): GrpcStatus {
  const { code, rawMessage: message, cause } = ConnectError.from(reason, ConnectCode.Internal);
  // Canceled: the other process has seen the deadline first, or who asked has left and reads no answer.
  if (code === ConnectCode.Canceled || code === ConnectCode.DeadlineExceeded) return noAnswer;
  // Aborted: the connection has ended before the answer.
  if (code === ConnectCode.Aborted || errorCode(cause) !== undefined) return processEnded;
  return { code: codeOf(code), message };
}
