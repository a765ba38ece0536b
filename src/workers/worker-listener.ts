import type { Server } from 'node:http';
import type { Awaitable } from '../admin/plain.ts';
import { type HttpAnswer, json } from '../admin/respond.ts';
import { clientRoutes } from '../admin/rpc.ts';
import type { Core } from '../assembly/core.ts';
import type { LocalClients } from '../inspect/local-clients.ts';
import type { Result } from '../model/result.ts';
import { clientStatusRoutes } from './client-status-rpc.ts';
import { listenPrivately } from './private-socket.ts';
import { countersPath, metricsPath } from './worker-client.ts';

/** What the primary can ask a worker: what AdminService and CSDS say of clients, and metrics, of this process only. */
export function listenForPrimary(path: string, core: Core, clients: LocalClients): Promise<Result<Server>> {
  const failed = (error: unknown): void => core.log.error('a request of the primary failed', { error });
  const metrics = async () => ({
    status: 200,
    type: 'application/json',
    body: JSON.stringify(await core.series()),
  });
  return listenPrivately(path, {
    failed,
    pages: new Map<string, () => Awaitable<HttpAnswer>>([
      [metricsPath, metrics],
      [countersPath, () => json(core.counters())],
    ]),
    routes: (router) => {
      clientRoutes(clients, () => clients.status(), failed)(router);
      clientStatusRoutes((query) => clients.configs(query))(router);
    },
  });
}
