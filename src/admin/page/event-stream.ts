import type { IncomingMessage, ServerResponse } from 'node:http';
import { problem, respond } from '../respond.ts';
import type { LivePage, Watcher } from './live-page.ts';

/** Server-sent events for a page that is open, until it closes. */
export function streamEvents(live: LivePage, request: IncomingMessage, response: ServerResponse): void {
  request.resume();
  if (request.method !== 'GET') {
    const message = `/events takes GET, not ${request.method ?? ''}`;
    respond(response, problem(405, 'unimplemented', message, { allow: 'GET' }), request.method === 'HEAD');
    return;
  }
  const watcher: Watcher = {
    send(message) {
      // A page that does not read gets the newest state when it does.
      if (response.writableNeedDrain || response.destroyed) return false;
      response.write(message);
      return true;
    },
  };
  response.once('close', () => live.leave(watcher));
  response.writeHead(200, {
    'content-type': 'text/event-stream',
    'cache-control': 'no-store',
    'x-content-type-options': 'nosniff',
  });
  response.flushHeaders();
  if (!live.watch(watcher)) response.end('event: full\ndata: too many pages are open\n\n');
}
