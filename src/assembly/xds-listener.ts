import { fetchRoutes } from '../downstream/polls/polls.ts';
import { routes } from '../downstream/xds-server.ts';
import { ClientStatusDiscoveryService } from '../gen/envoy/service/status/v3/csds_pb.ts';
import { type ClientStatusQuery, csds } from '../inspect/csds.ts';
import { systemClock } from '../model/clock.ts';
import { ok, type Result } from '../model/result.ts';
import { TimeSlices } from '../model/time-slices.ts';
import { ADS_SERVICE, knownTypes } from '../model/types.ts';
import { formatHostPort } from '../wire/address.ts';
import type { EncodedStatus } from '../wire/client-status.ts';
import { ConnectPaths } from '../wire/connect.ts';
import type { GrpcStatus } from '../wire/grpc-status.ts';
import { health } from '../wire/health.ts';
import { type GrpcServer, listenGrpc } from '../wire/http2-server.ts';
import { reflection, reflectionAliases } from '../wire/reflection.ts';
import { lazyEnvoyRegistry } from '../wire/registry.ts';
import { connectionOptions } from './connection-options.ts';
import type { Core } from './core.ts';
import { watchTls } from './watched-tls.ts';

const services = [ADS_SERVICE, ...knownTypes.flatMap(({ service }) => service ?? [])];

/** What the listener says of more than its own streams. */
export interface XdsListenerCallbacks {
  /** For the health service. */
  readonly serving: () => boolean;
  readonly clientStatus: (
    query: ClientStatusQuery,
  ) => Promise<Result<EncodedStatus, GrpcStatus>> | Result<EncodedStatus, GrpcStatus>;
}

/** The listener for clients: ADS, the per-type services, and beside them health, reflection and CSDS. */
export class XdsListener {
  readonly #server: GrpcServer;
  readonly #close: () => void;

  private constructor(server: GrpcServer, close: () => void) {
    this.#server = server;
    this.#close = close;
  }

  /** By the core's configuration. The error says which address could not be listened on, and why. */
  static async open(core: Core, answers: XdsListenerCallbacks): Promise<Result<XdsListener>> {
    const { address, tls: files } = core.config.xds;
    const { maxRequestBytes } = core.config.limits;
    const opened: { server?: GrpcServer } = {};
    const tls = await watchTls(files, () => opened.server, core, 'xds');
    if (!tls.ok) return tls;
    const { material } = tls.value;
    const listening = await listenGrpc({
      address: address.kind === 'unix' ? `unix:${address.path}` : formatHostPort(address.host, address.port),
      tls: material,
      accept: (path) => {
        const fetched = fetchRoutes.get(path);
        if (fetched !== undefined) return (stream) => core.relay.fetch(stream, fetched);
        const route = routes.get(path);
        if (route === undefined) return undefined;
        return (stream) => {
          if (core.siblings.isFor(stream)) {
            const refusal = core.siblings.accept(stream, route);
            if (refusal !== undefined) stream.end(refusal);
            return;
          }
          const loop = core.loops.refusal(stream);
          if (loop !== undefined) core.refuseLoop(stream.peer, loop);
          const refusal = loop ?? core.relay.server.accept(stream, route);
          if (refusal === undefined) core.loops.streamAccepted(stream);
          else stream.end(refusal);
        };
      },
      auxiliary: auxiliaryPaths(core, answers),
      maxRequestBytes,
      messageTimeout: () => core.config.limits.stalledTimeoutMs,
      ...connectionOptions(core, 'xds'),
      connectionFailed: (peer, reason) => core.log.debug('a connection failed', { peer, reason }),
    });
    if (!listening.ok) {
      tls.value.close();
      return listening;
    }
    opened.server = listening.value;
    return ok(new XdsListener(opened.server, () => tls.value.close()));
  }

  get address(): string {
    return this.#server.address;
  }

  /** GOAWAY, and the end of all streams, spread over the time; then it is closed. */
  async drain(milliseconds: number): Promise<void> {
    await this.#server.drain(milliseconds);
    this.#close();
  }
}

function auxiliaryPaths(core: Core, answers: XdsListenerCallbacks): ConnectPaths {
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
