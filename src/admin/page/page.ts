import { createHash } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { create } from '@bufbuild/protobuf';
import type { StatusResponse } from '../../gen/distributary/admin/v1/admin_pb.ts';
import { HistoryRequestSchema, HistoryResponseSchema } from '../../gen/distributary/admin/v1/changes_pb.ts';
import { fallbackStyle, script, style } from '../../gen/page.ts';
import { type Clock, Paced, type Timer } from '../../model/clock.ts';
import { printable, shorten } from '../../model/text.ts';
import type { Figure } from '../../observe/figures.ts';
import type { View } from '../../observe/text-table.ts';
import { problem } from '../../wire/http-answer.ts';
import { collected } from '../answers.ts';
import { respond } from '../http-listener.ts';
import type { Inspector, Plain } from '../service.ts';
import { statusText } from '../status-text.ts';
import { type PageModel, pageModel } from './page-model.ts';

/** What browsers without scripts show: as `status` prints it. `now` is milliseconds since the epoch. */
export function fallback(status: Plain<StatusResponse>, now: number): string {
  const view: View = { paint: (_, text) => text, wide: true, columns: Number.POSITIVE_INFINITY };
  return `<header><h1>${escaped(shorten(status.nodeId, 200))}</h1>
<nav><a href="/ready">ready</a><a href="/metrics">metrics</a><a href="/config_dump">configuration</a></nav></header>
<pre>${linesOf(statusText(status, now, view))}</pre>`;
}

/** Escaped one by one: a line end is no text of a peer's. */
const linesOf = (text: string): string =>
  text
    .split('\n')
    .map((line) =>
      escaped(line).replace(/(?<=^ +see )docs\/runbooks\/([\w-]+)\.md$/, '<a href="runbooks/$1">$&</a>'),
    )
    .join('\n');

/** The id of the element with the first model; page/main.tsx reads it. */
const firstState = 'first-state';

const hash = (text: string): string => `'sha256-${createHash('sha256').update(text).digest('base64')}'`;

/** Nothing but the page's own style and script runs, and it talks to its own origin only. */
const policy = [
  "default-src 'none'",
  `style-src ${hash(style)} ${hash(fallbackStyle)}`,
  `script-src ${hash(script)}`,
  "connect-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
].join('; ');

/**
 * The page with the state to begin with, so that its first paint waits for nothing else. `model`: as JSON. `fallback`:
 * what browsers without scripts show.
 */
export function shell(
  relay: Pick<PageModel['relay'], 'nodeId' | 'ready'>,
  model: string,
  figures: readonly Figure[],
  fallback: string,
) {
  // A block of data never runs; "<" would end it.
  const state = `{"model":${model},"figures":${JSON.stringify(figures)}}`.replaceAll('<', '\\u003c');
  const body = `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>${escaped(shorten(relay.nodeId, 60))}: ${relay.ready ? 'ready' : 'not ready'} (distributary)</title><style>${style}</style>
<noscript><meta http-equiv="refresh" content="5"><style>${fallbackStyle}</style></noscript></head>
<body><div id="app"></div><noscript><main>${fallback}</main></noscript>
<script type="application/json" id="${firstState}">${state}</script><script>${script}</script></body></html>
`;
  const headers = { 'content-security-policy': policy, 'referrer-policy': 'no-referrer' };
  return { status: 200, type: 'text/html; charset=utf-8', body, headers };
}

const escapes: ReadonlyMap<string, string> = new Map([
  ['&', '&amp;'],
  ['<', '&lt;'],
  ['>', '&gt;'],
  ['"', '&quot;'],
  ["'", '&#39;'],
]);

/**
 * Every text that is not the page's own, because names and errors come from peers; control characters and marks of direction
 * are escaped too. Attributes must be in quotes.
 */
export const escaped = (text: string): string =>
  printable(text).replaceAll(/[&<>"']/g, (character) => escapes.get(character) ?? '');

/* The page, live: what those that are open are sent. */

/** More pages than this are not for people. */
const mostWatchers = 100;

/** To a page that is open. `message`: of the event stream, whole. False: it is not read, so later ones are left out. */
export type Watcher = (message: string) => boolean;

export type LivePage = ReturnType<typeof livePage>;

/**
 * The model that all open pages share: it is made once for all of them, and not at all while nobody watches. `failed`: it
 * could not be made, which is a bug.
 */
export function livePage(
  clock: Clock,
  makeModel: () => Promise<PageModel>,
  figures: () => readonly Figure[],
  failed: (error: unknown) => void,
) {
  /** What each of them was sent last. */
  const watchers = new Map<Watcher, { model: string; figures: number }>();
  /** As JSON. */
  const model = new Paced(clock, async () => jsonOf(await makeModel()));
  let timer: Timer | undefined;

  return {
    /** As JSON; for a page that opens. */
    modelText: () => model.current(),
    figures,
    /** False: too many watch already. */
    watch(watcher: Watcher): boolean {
      if (watchers.size >= mostWatchers) return false;
      watchers.set(watcher, { model: '', figures: 0 });
      void tick();
      return true;
    },
    leave(watcher: Watcher): void {
      watchers.delete(watcher);
      if (watchers.size === 0) timer?.cancel();
    },
  };

  async function tick(): Promise<void> {
    timer?.cancel();
    try {
      const text = await model.current();
      for (const [watcher, sent] of watchers) send(watcher, sent, text);
    } catch (error) {
      failed(error);
    }
    if (watchers.size === 0) return;
    timer?.cancel(); // another page may have come meanwhile
    timer = clock.after(model.freshMs, () => void tick());
  }

  function send(watcher: Watcher, sent: { model: string; figures: number }, text: string): void {
    const points = figures().filter(({ at }) => at > sent.figures);
    const parts: string[] = [];
    if (text !== sent.model) parts.push(`event: model\ndata: ${text}\n\n`);
    if (points.length > 0) parts.push(`event: figures\ndata: ${JSON.stringify(points)}\n\n`);
    // A comment, so that a page sees that the relay is there.
    const message = parts.length === 0 ? ':\n\n' : parts.join('');
    if (!watcher(message)) return;
    sent.model = text;
    sent.figures = points.at(-1)?.at ?? sent.figures;
  }
}

const jsonOf = (model: PageModel): string =>
  JSON.stringify(model, (_key, value: unknown) => (typeof value === 'string' ? printable(value) : value));

/** Server-sent events for a page that is open, until it closes. */
export function streamEvents(live: LivePage, request: IncomingMessage, response: ServerResponse): void {
  request.resume();
  if (request.method !== 'GET') {
    const message = `/events takes GET, not ${request.method ?? ''}`;
    respond(response, problem(405, 'unimplemented', message, { allow: 'GET' }));
    return;
  }
  const watcher: Watcher = (message) => {
    // A page that does not read gets the newest state when it does.
    if (response.writableNeedDrain || response.destroyed) return false;
    response.write(message);
    return true;
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

/** What is shown of the history. */
const eventsKept = 50;

/** Asks the relay for what the page shows. */
export function modelMaker(inspector: Inspector): () => Promise<PageModel> {
  const { page } = inspector;
  return async () => {
    const [status, classes] = [await inspector.status(), await inspector.listClasses()];
    const listed = await inspector.history(create(HistoryRequestSchema, { limit: eventsKept }));
    const { changes } = await collected(HistoryResponseSchema, listed);
    return pageModel({
      status,
      classes,
      facts: page.facts(),
      changes,
      lines: page.lines(),
      upstreamOf: (type, selector) => page.upstreamOf(type, selector),
    });
  };
}
