import type { IncomingMessage, ServerResponse } from 'node:http';
import { create } from '@bufbuild/protobuf';
import {
  type Change,
  HistoryRequestSchema,
  HistoryResponseSchema,
} from '../../gen/distributary/admin/v1/changes_pb.ts';
import { type Clock, Paced, type Timer } from '../../model/clock.ts';
import { printable } from '../../model/text.ts';
import type { Figure } from '../../observe/figures.ts';
import { problem } from '../../wire/http-answer.ts';
import { collected } from '../answers.ts';
import { respond } from '../http-listener.ts';
import type { Inspector, Plain } from '../service.ts';
import { type PageModel, pageModel } from './page-model.ts';

/** More pages than this are not for people. */
const mostWatchers = 100;

/** A page that is open. */
export interface Watcher {
  /** `message`: of the event stream, whole. False: it is not read, so later ones are left out. */
  send(message: string): boolean;
}

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
    if (!watcher.send(message)) return;
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

/** What is kept of the history, and for how long it is not looked at again, in milliseconds. */
const eventsKept = 50;
const settlesWithinMs = 10_000;

/** Asks the relay for what the page shows. */
export function modelMaker(inspector: Inspector, clock: Clock): () => Promise<PageModel> {
  const { page } = inspector;
  let known: readonly Plain<Change>[] = [];
  let [knownAt, knownRevision] = [-Infinity, 0];
  /** A change may have a thousand names: they are listed again when one is new, or an old one may have settled. */
  const history = async (): Promise<readonly Plain<Change>[]> => {
    const now = clock.monotonic();
    const revision = inspector.revision();
    if (revision === knownRevision && now - knownAt < settlesWithinMs) return known;
    const listed = await inspector.history(create(HistoryRequestSchema, { limit: eventsKept }));
    known = (await collected(HistoryResponseSchema, listed)).changes;
    [knownAt, knownRevision] = [now, revision];
    return known;
  };
  return async () => {
    const [status, classes] = [await inspector.status(), await inspector.listClasses()];
    return pageModel({
      status,
      classes,
      facts: page.facts(),
      changes: await history(),
      lines: page.lines(),
      upstreamOf: (type, selector) => page.upstreamOf(type, selector),
    });
  };
}
