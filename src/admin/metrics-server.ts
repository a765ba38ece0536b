import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Result } from '../model/result.ts';
import { type HttpListener, type HttpListenerOptions, startHttpListener } from './http-listener.ts';
import { problem, respond } from './respond.ts';
import { answerByRoute, pathOf, probeRoutes } from './routes.ts';
import type { Inspector } from './service.ts';

export interface MetricsServerOptions extends HttpListenerOptions {
  readonly inspector: Inspector;
}

/** What scrapers and probes ask, and nothing else: everybody who can reach this listener may read it. */
export function startMetricsServer(options: MetricsServerOptions): Promise<Result<HttpListener>> {
  const routes = probeRoutes(options.inspector);
  const answer = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    request.resume();
    const found = await answerByRoute(request.method ?? '', pathOf(request), routes);
    respond(response, found, request.method === 'HEAD');
  };
  return startHttpListener('metrics', options, (request, response) => {
    answer(request, response).catch((error: unknown) => {
      options.log.error('metrics: a request failed', { error });
      respond(response, problem(500, 'internal', 'this is a bug: see the log'), request.method === 'HEAD');
    });
  });
}
