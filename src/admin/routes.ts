import { create } from '@bufbuild/protobuf';
import { ListClientsResponseSchema, StatusResponseSchema } from '../gen/distributary/admin/v1/admin_pb.ts';
import { clientsShown, statusPage } from './page.ts';
import type { Awaitable, Inspector, ReadinessReport } from './ports.ts';
import { type HttpAnswer, json } from './respond.ts';

/** The plain HTTP routes by their paths: all of them GET (and HEAD). */
export function httpRoutes(inspector: Inspector): ReadonlyMap<string, () => Awaitable<HttpAnswer>> {
  return new Map<string, () => Awaitable<HttpAnswer>>([
    ['/', () => page(inspector)],
    ['/healthz', () => ({ status: 200, type: 'text/plain; charset=utf-8', body: 'ok\n' })],
    ['/ready', () => readiness(inspector.ready())],
    ['/metrics', () => metrics(inspector)],
    ['/config_dump', () => json(inspector.configDump())],
  ]);
}

async function page(inspector: Inspector): Promise<HttpAnswer> {
  const status = create(StatusResponseSchema, await inspector.status());
  const clients = create(ListClientsResponseSchema, await inspector.listClients(clientsShown));
  return statusPage(status, clients, Date.now());
}

function readiness({ ready, reason, upstreams }: ReadinessReport): HttpAnswer {
  const shown = upstreams.map(
    ({ name, connected, stale, since, lastError, refusedStreams, suspectTypes }) => ({
      name,
      connected,
      stale,
      since: since === undefined ? null : new Date(since).toISOString(),
      ...(refusedStreams === 0 ? {} : { refused_streams: refusedStreams, last_error: lastError }),
      ...(suspectTypes.length === 0 ? {} : { suspect_types: suspectTypes }),
    }),
  );
  return json({ ready, reason, upstreams: shown }, ready ? 200 : 503);
}

async function metrics(inspector: Inspector): Promise<HttpAnswer> {
  const type = 'text/plain; version=0.0.4; charset=utf-8';
  return { status: 200, type, body: await inspector.metricsText() };
}
