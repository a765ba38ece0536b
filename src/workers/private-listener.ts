import { chmodSync, rmSync } from 'node:fs';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { Code, ConnectError, type ConnectRouter, createConnectRouter } from '@connectrpc/connect';
import { universalRequestFromNodeRequest, universalResponseToNodeResponse } from '@connectrpc/connect-node';
import type { Awaitable } from '../admin/ports.ts';
import { type HttpAnswer, problem, respond } from '../admin/respond.ts';
import type { Failed } from '../admin/rpc.ts';
import { fail, ok, type Result } from '../model/result.ts';
import { explainError, isDisconnect } from '../wire/node-error.ts';
import { socketMode } from './private-directory.ts';

export interface PrivateService {
  readonly routes: (router: ConnectRouter) => void;
  /** Answers to GET, by path. */
  readonly pages?: ReadonlyMap<string, () => Awaitable<HttpAnswer>>;
  /** Called when an answer fails because of a bug. */
  readonly failed: Failed;
}

/** An identity of a client's certificate may be in a header (client-status-rpc.ts). */
const maxHeaderSize = 1 << 20;

/** Connect over HTTP/1.1 on a Unix socket: how the primary and its workers ask each other. */
export function listenPrivately(path: string, service: PrivateService): Promise<Result<Server>> {
  const server = createServer({ maxHeaderSize }, listener(service));
  rmSync(path, { force: true }); // of a worker that was killed
  return new Promise((resolve) => {
    server.once('error', (error) => resolve(fail(`cannot listen on ${path}: ${explainError(error)}`)));
    // Exclusive: node:cluster would have the primary listen in the worker's place.
    server.listen({ path, exclusive: true }, () => {
      chmodSync(path, socketMode);
      resolve(ok(server));
    });
  });
}

function listener({
  routes,
  pages,
  failed,
}: PrivateService): (request: IncomingMessage, response: ServerResponse) => void {
  const router = createConnectRouter();
  routes(router);
  const handlers = new Map(router.handlers.map((handler) => [handler.requestPath, handler]));

  return (request, response) => {
    answer(request, response).catch((error: unknown) => {
      // The other end has stopped waiting.
      if (!isDisconnect(error) && ConnectError.from(error).code !== Code.Aborted) failed(error);
      response.destroy();
    });
  };

  async function answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { url = '/' } = request;
    const handler = handlers.get(url);
    if (handler === undefined) {
      request.resume();
      const page = pages?.get(url);
      const unknown = problem(404, 'not_found', `there is no ${url} here`);
      respond(response, page === undefined ? unknown : await page(), false);
      return;
    }
    const answered = await handler(universalRequestFromNodeRequest(request, response, undefined, undefined));
    await universalResponseToNodeResponse(answered, response);
  }
}
