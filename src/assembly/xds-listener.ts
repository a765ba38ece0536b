import { fetchRoutes } from '../downstream/polls/polls.ts';
import { routes } from '../downstream/xds-server.ts';
import { LoadReportingService } from '../gen/envoy/service/load_stats/v3/lrs_pb.ts';
import { ClientStatusDiscoveryService } from '../gen/envoy/service/status/v3/csds_pb.ts';
import { csds } from '../inspect/csds.ts';
import { systemClock } from '../model/clock.ts';
import { LOAD_PATH } from '../model/load.ts';
import type { Result } from '../model/result.ts';
import { TimeSlices } from '../model/time-slices.ts';
import { ADS_SERVICE, knownTypes } from '../model/types.ts';
import { formatHostPort } from '../wire/address.ts';
import { ConnectPaths } from '../wire/connect.ts';
import type { GrpcStatus } from '../wire/grpc-status.ts';
import { health } from '../wire/health.ts';
import { listenGrpc } from '../wire/http2-server.ts';
import { reflection, reflectionAliases } from '../wire/reflection.ts';
import { lazyEnvoyRegistry } from '../wire/registry.ts';
import type { ServerStream } from '../wire/server-stream.ts';
import { type ClientAnswers, type ClientListener, openListener } from './client-listener.ts';
import type { Core } from './core.ts';
import { takesLoadReports } from './load-reports.ts';

const services = [
  ADS_SERVICE,
  ...knownTypes.flatMap(({ service }) => service ?? []),
  LoadReportingService.typeName,
];

/** The listener for clients: ADS, the per-type services, and beside them health, reflection and CSDS. */
export function openXdsListener(core: Core, answers: ClientAnswers): Promise<Result<ClientListener>> {
  const { address, unixMode, tls } = core.config.xds;
  const reports = (stream: ServerStream) => core.acceptReports(stream);
  return openListener(core, 'xds', tls, (connections) =>
    listenGrpc({
      ...connections,
      address: address.kind === 'unix' ? `unix:${address.path}` : formatHostPort(address.host, address.port),
      unixMode,
      accept: (path) => {
        const fetched = fetchRoutes.get(path);
        if (fetched !== undefined) return (stream) => core.relay.fetch(stream, fetched);
        if (path === LOAD_PATH)
          return takesLoadReports(core) ? (stream) => void taken(core, stream, reports) : undefined;
        const route = routes.get(path);
        if (route === undefined) return undefined;
        return (stream) => {
          if (core.siblings.isFor(stream)) {
            const refusal = core.siblings.accept(stream, route);
            if (refusal !== undefined) stream.end(refusal);
            return;
          }
          if (taken(core, stream, (one) => core.relay.server.accept(one, route)))
            core.loops.streamAccepted(stream);
        };
      },
      auxiliary: auxiliaryPaths(core, answers),
      maxRequestBytes: core.config.limits.maxRequestBytes,
      messageTimeout: () => core.config.limits.stalledTimeoutMs,
      connectionFailed: (peer, reason) => core.log.debug('a connection failed', { peer, reason }),
    }),
  );
}

/** Takes a stream unless it leads to a loop of relays. False: it has ended. */
function taken(
  core: Core,
  stream: ServerStream,
  accept: (stream: ServerStream) => GrpcStatus | undefined,
): boolean {
  const loop = core.loops.refusal(stream);
  if (loop !== undefined) core.refuseLoop(stream.peer, loop);
  const refusal = loop ?? accept(stream);
  if (refusal !== undefined) stream.end(refusal);
  return refusal === undefined;
}

function auxiliaryPaths(core: Core, answers: ClientAnswers): ConnectPaths {
  const { serving, clientStatus } = answers;
  const csdsService = ClientStatusDiscoveryService.typeName;
  return new ConnectPaths({
    clock: systemClock,
    stalledMilliseconds: () => core.config.limits.stalledTimeoutMs,
    services: [
      health(services, { serving, subscribe: (changed) => core.onChange(changed) }),
      reflection(() => (core.statusScopes.enabled ? [...services, csdsService] : services)),
      csds({
        scopeOf: (peer) => core.statusScopes.of(peer),
        answer: clientStatus,
        maxResponseBytes: () => core.config.limits.maxResponseBytes,
        slices: new TimeSlices(systemClock),
      }),
    ],
    aliases: reflectionAliases,
    jsonOptions: { useProtoFieldName: true, registry: lazyEnvoyRegistry },
    refused: (reason) => core.metrics.rejected(reason).inc(),
    threw: (error, path) => core.log.error('a handler failed', { path, error }),
  });
}
