import type { Server } from 'node:http';
import { adminRoutes } from '../admin/rpc.ts';
import type { Core } from '../assembly/core.ts';
import { Inspection } from '../inspect/inspection.ts';
import type { LocalClients } from '../inspect/local-clients.ts';
import type { Result } from '../model/result.ts';
import { clientStatusRoutes } from './client-status-rpc.ts';
import { listenPrivately } from './private-listener.ts';
import { metricsPath } from './worker-client.ts';

/**
 * What a worker tells the primary: it is a relay, so by the same AdminService as any relay's. CSDS and metrics are of
 * its clients and its process only.
 */
export function listenForPrimary(path: string, core: Core, clients: LocalClients): Promise<Result<Server>> {
  const inspection = new Inspection({
    relay: core.relay,
    staleness: core.staleness,
    clients: () => clients,
    version: core.version,
    startedAt: Date.now(),
    notReadyReason: () => undefined,
    configDump: () => core.config.source.dump,
    warnings: () => [],
    metricsText: () => core.metricsText(),
    maxResponseBytes: () => core.config.limits.maxResponseBytes,
    heldRemovals: () => [],
    releaseRemovals: () => undefined,
  });
  const failed = (error: unknown): void => core.log.error('what the primary asked failed', { error });
  const metrics = async () => ({
    status: 200,
    type: 'application/json',
    body: JSON.stringify(await core.series()),
  });
  return listenPrivately(path, {
    failed,
    pages: new Map([[metricsPath, metrics]]),
    routes: (router) => {
      adminRoutes(inspection, failed)(router);
      clientStatusRoutes((query) => clients.configs(query))(router);
    },
  });
}
