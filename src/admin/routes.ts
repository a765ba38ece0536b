import type { IncomingMessage } from 'node:http';
import { create } from '@bufbuild/protobuf';
import {
  ListClientsRequestSchema,
  ListClientsResponseSchema,
} from '../gen/distributary/admin/v1/admin_pb.ts';
import type { Problem } from '../gen/distributary/admin/v1/problems_pb.ts';
import { anyOf } from '../model/text.ts';
import { problemKinds, wrongOnes } from '../observe/problems.ts';
import { packageFile } from '../package/files.ts';
import { type HttpAnswer, problem } from '../wire/http-answer.ts';
import { collected, maxAnswerBytes } from './answers.ts';
import { json } from './http-listener.ts';
import { clientsShown, fallback, shell } from './page/html-page.ts';
import type { LivePage } from './page/live-page.ts';
import type { Awaitable, Inspector, Plain, ReadinessReport } from './service.ts';

export type HttpRoutes = ReadonlyMap<string, () => Awaitable<HttpAnswer>>;

/** The plain HTTP routes by their paths: all of them GET (and HEAD). */
export function httpRoutes(inspector: Inspector, live: LivePage): HttpRoutes {
  return new Map([
    ['/', shared(() => page(inspector, live))],
    ...[...runbooks].map((name) => [`/runbooks/${name}`, () => runbook(name)] as const),
    ...probeRoutes(inspector, 'ADMIN'),
    ['/config_dump', shared(() => configDump(inspector.configDump()))],
  ]);
}

/**
 * What probes and scrapers ask. On the listener for metrics it names no client and no resource, but in the words of a
 * control plane (`reason` of an upstream, `last_error`).
 */
export function probeRoutes(inspector: Inspector, listener: 'ADMIN' | 'METRICS'): HttpRoutes {
  return new Map<string, () => Awaitable<HttpAnswer>>([
    ['/healthz', () => ({ status: 200, type: 'text/plain; charset=utf-8', body: 'ok\n' })],
    ['/ready', async () => readiness(inspector.ready(), await inspector.problems(), listener)],
    [
      '/metrics',
      shared(async () => ({ status: 200, type: metricsType, body: await inspector.metricsText() })),
    ],
  ]);
}

const metricsType = 'text/plain; version=0.0.4; charset=utf-8';

/** Whoever asks in the same turn of the event loop gets the same answer: one packet has room for a thousand requests. */
function shared(answer: () => Awaitable<HttpAnswer>): () => Promise<HttpAnswer> {
  let current: Promise<HttpAnswer> | undefined;
  const begin = async (): Promise<HttpAnswer> => {
    try {
      return await answer();
    } finally {
      setImmediate(() => {
        current = undefined;
      });
    }
  };
  return () => {
    current ??= begin();
    return current;
  };
}

/** `alsoServed`: what the listener serves beside the routes, for the answer to an unknown path. */
export function answerByRoute(
  method: string,
  path: string,
  routes: HttpRoutes,
  alsoServed: readonly string[] = [],
): Awaitable<HttpAnswer> {
  const route = routes.get(path);
  if (route === undefined) {
    const served = [...routes.keys().map((known) => `GET ${known}`), ...alsoServed];
    return problem(404, 'not_found', `there is no ${path} here: expected ${anyOf(served)}`);
  }
  if (method === 'GET' || method === 'HEAD') return route();
  return problem(405, 'unimplemented', `${path} takes GET and HEAD, not ${method}`, { allow: 'GET, HEAD' });
}

/** Without the query. */
export function pathOf({ url = '/' }: IncomingMessage): string {
  const target = url.startsWith('/') ? url : (URL.parse(url)?.pathname ?? url);
  const query = target.indexOf('?');
  return query < 0 ? target : target.slice(0, query);
}

function configDump(dump: unknown): HttpAnswer {
  const answer = json(dump);
  const { length } = answer.body;
  if (length <= maxAnswerBytes) return answer;
  const message = `the configuration has ${length} characters as JSON: the maximum is ${maxAnswerBytes}`;
  return problem(429, 'resource_exhausted', message);
}

async function page(inspector: Inspector, live: LivePage): Promise<HttpAnswer> {
  const status = await inspector.status();
  const list = await inspector.listClients(create(ListClientsRequestSchema, { limit: clientsShown }));
  const clients = await collected(ListClientsResponseSchema, list);
  return shell({
    relay: status,
    model: await live.modelText(),
    figures: live.figures,
    fallback: fallback(status, clients, Date.now()),
  });
}

function readiness(
  { ready, reason, upstreams, rollout }: ReadinessReport,
  problems: readonly Plain<Problem>[] | undefined,
  listener: 'ADMIN' | 'METRICS',
): HttpAnswer {
  const shown = upstreams.map(
    ({ name, required, connected, stale, refusedStreams, suspectTypes, ...said }) => ({
      name,
      ...(required ? {} : { required }),
      connected,
      stale,
      since: stale ? said.staleSince : null,
      ...(stale ? { reason: said.staleReason } : {}),
      ...(said.fromSiblingsSince === '' ? {} : { from_siblings_since: said.fromSiblingsSince }),
      ...(refusedStreams === 0 ? {} : { refused_streams: refusedStreams, last_error: said.lastError }),
      ...(said.warning === '' ? {} : { warning: said.warning }),
      ...(suspectTypes.length === 0 ? {} : { suspect_types: suspectTypes.map(({ type }) => type) }),
    }),
  );
  const why = ready ? staleText(upstreams) : reason;
  const wrong = problems === undefined ? null : wrongOnes(problems).map(problemJson);
  const answer = { ready, reason: why, problems: wrong, upstreams: shown, ...rolloutJson(rollout, listener) };
  return json(answer, ready ? 200 : 503);
}

const titles = new Map<string, string>(
  Object.entries(problemKinds).map(([kind, { means }]) => [kind, means]),
);

/** Whoever reaches this listener may read it: it has no names of clients or resources, so its title is that of the kind. */
function problemJson({ kind, severity, since, clients, upstream, runbook: page }: Plain<Problem>): object {
  return {
    kind,
    title: titles.get(kind) ?? kind,
    severity,
    since: since === '' ? null : since,
    ...(clients === 0 ? {} : { clients }),
    ...(upstream === '' ? {} : { upstream }),
    runbook: `docs/runbooks/${page}.md`,
  };
}

/** A relay that serves what may be out of date is ready, and says so. */
function staleText(upstreams: ReadinessReport['upstreams']): string {
  return upstreams
    .filter(({ stale }) => stale)
    .map(({ name, staleReason }) => `stale: ${name} (${staleReason})`)
    .join(', ');
}

function rolloutJson(rollout: ReadinessReport['rollout'], listener: 'ADMIN' | 'METRICS'): object {
  if (rollout === undefined) return {};
  const { state, since, cause, reason } = rollout;
  const why = reason === '' || listener === 'METRICS' ? {} : { reason };
  return { rollout: { state, since, cause, ...why } };
}

/** What a relay cannot say of itself: it is gone, or was. */
const ofOtherSources = ['relay-down', 'standstill'];

/** They are part of the package: they must be there when nothing else is. */
const runbooks: ReadonlySet<string> = new Set([
  ...Object.values(problemKinds).map(({ runbook }) => runbook),
  ...ofOtherSources,
]);

function runbook(name: string): HttpAnswer {
  try {
    const body = packageFile(`docs/runbooks/${name}.md`).toString();
    return { status: 200, type: 'text/plain; charset=utf-8', body };
  } catch {
    return problem(404, 'not_found', `docs/runbooks/${name}.md is not installed with this relay`);
  }
}
