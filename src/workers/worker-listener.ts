import type { Server } from 'node:http';
import type { Awaitable } from '../admin/plain.ts';
import { type HttpAnswer, json } from '../admin/respond.ts';
import { adminRoutes } from '../admin/rpc.ts';
import type { Core } from '../assembly/core.ts';
import { NO_PAGE } from '../assembly/page-source.ts';
import { NO_CHANGES } from '../inspect/changes.ts';
import { Inspection } from '../inspect/inspection.ts';
import type { LocalClients } from '../inspect/local-clients.ts';
import type { Result } from '../model/result.ts';
import { clientStatusRoutes } from './client-status-rpc.ts';
import { listenPrivately } from './private-socket.ts';
import { countersPath, metricsPath } from './worker-client.ts';

/**
 * What the primary can ask a worker: AdminService, as any relay has it, and CSDS and metrics of this worker's clients and
 * process only.
 */
export function listenForPrimary(path: string, core: Core, clients: LocalClients): Promise<Result<Server>> {
  const inspection = new Inspection({
    relay: core.relay,
    staleness: core.staleness,
    clients: () => clients,
    changes: NO_CHANGES,
    version: core.version,
    startedAt: Date.now(),
    notReadyReason: () => undefined,
    isRequired: () => true,
    compareConfiguration: (text) => clients.reloadEffect(text),
    configDump: () => core.config.source.dump,
    warnings: () => [],
    found: () => {}, // the primary knows what is wrong of all workers together
    metricsText: () => core.metricsText(),
    maxResponseBytes: () => core.config.limits.maxResponseBytes,
    heldRemovals: () => [],
    releaseRemovals: () => undefined,
    rollout: core.rollout.rollout,
    log: core.log,
    logLevels: core.logLevels,
    page: NO_PAGE,
  });
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
      adminRoutes(inspection, failed)(router);
      clientStatusRoutes((query) => clients.configs(query))(router);
    },
  });
}
