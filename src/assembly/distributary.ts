import { type AdminServer, startAdminServer } from '../admin/server.ts';
import type { Config } from '../config/config.ts';
import { routes } from '../downstream/server.ts';
import { systemClock } from '../model/clock.ts';
import { fail, ok, type Result } from '../model/result.ts';
import { ADS_SERVICE, knownTypes, typeInfo } from '../model/types.ts';
import { Conditions } from '../observe/conditions.ts';
import type { Log } from '../observe/log.ts';
import { Metrics } from '../observe/metrics.ts';
import { Relay } from '../relay.ts';
import { readTlsFiles, watchTlsFiles } from '../security/tls-files.ts';
import { formatHostPort } from '../wire/address.ts';
import { ConnectPaths } from '../wire/connect.ts';
import { healthRoutes } from '../wire/health.ts';
import { type GrpcServer, type ListenerTls, listenGrpc } from '../wire/http2-server.ts';
import { reflectionAliases, reflectionRoutes } from '../wire/reflection.ts';
import { Code, type GrpcStatus } from '../wire/status.ts';
import { clientStatus } from './client-status.ts';
import { ClientRules } from './clients.ts';
import { csdsRoutes } from './csds.ts';
import { Inspection } from './inspection.ts';
import { StreamMetrics } from './stream-metrics.ts';
import { makeUpstream } from './upstreams.ts';

export interface Surroundings {
  readonly log: Log;
  /** The product's. */
  readonly version: string;
  /** Also measure the process and its event loop; once in a process. */
  readonly processMetrics: boolean;
}

const services = [ADS_SERVICE, ...knownTypes.flatMap(({ service }) => service ?? [])];
/** Calls of health, reflection and CSDS that may be open at once. */
const maxColdCalls = 1000;
const draining: GrpcStatus = { code: Code.UNAVAILABLE, message: 'draining: connect to another replica' };

/** The relay with its listeners: what `run` and `demo` start. */
export class Distributary {
  readonly relay: Relay;
  readonly inspection: Inspection;
  readonly #log: Log;
  readonly #metrics: Metrics;
  readonly #conditions: Conditions;
  readonly #readinessListeners = new Set<() => void>();
  readonly #closers: (() => void)[] = [];
  #config: Config;
  #rules: ClientRules;
  #draining = false;
  #xds: GrpcServer | undefined;
  #admin: AdminServer | undefined;

  private constructor(config: Config, { log, version, processMetrics }: Surroundings) {
    this.#config = config;
    this.#log = log;
    this.#metrics = new Metrics({ process: processMetrics });
    this.#conditions = new Conditions(log);
    this.#rules = new ClientRules(config);
    const streamMetrics = new StreamMetrics(this.#metrics, this.#conditions);
    this.relay = new Relay({
      clock: systemClock,
      controlPlane: config.node.id,
      idleMilliseconds: config.cache.idleTtlMs,
      maxCacheBytes: () => this.#config.cache.maxBytes,
      refuses: (streams) => this.#refusal(streams),
      defer: (run) => setImmediate(run),
      downstream: {
        events: streamMetrics,
        limits: () => ({
          maxSubscriptions: this.#config.limits.maxSubscriptionsPerStream,
          changesPerSecond: this.#config.limits.subscriptionChangesPerSecond,
          stalledMilliseconds: this.#config.limits.stalledTimeoutMs,
        }),
        constrained: () => this.#config.xds.plainClients === 'WITH_CONSTRAINTS',
        contentVersions: () => this.#config.xds.sotwVersions === 'CONTENT',
        legacyWildcard: (type) =>
          this.#config.xds.legacyWildcard?.includes(type) ?? typeInfo(type).legacyWildcard,
        context: (node, peer) => this.#rules.context(node, peer),
        renew: (client, peer) => this.#rules.renew(client, peer),
      },
      events: {
        ambiguous: (type, name, parameters, choices) => {
          this.#metrics.ambiguous(type).inc();
          const { short } = typeInfo(type);
          const versions = choices.map(({ constraints, version: of }) => ({
            constraints: constraints.key,
            version: of,
          }));
          this.#conditions.set(
            `ambiguous ${short} ${name} ${JSON.stringify([...parameters])}`,
            versions.map((one) => one.constraints).join(),
            'warn',
            `several variants of ${short} ${name} match the same parameters`,
            { parameters: Object.fromEntries(parameters), variants: versions },
          );
        },
        looked: (type, hits, misses) => {
          if (hits > 0) this.#metrics.lookups(type, 'hit').inc(hits);
          if (misses > 0) this.#metrics.lookups(type, 'miss').inc(misses);
        },
        evicted: (reason) => this.#metrics.evictions(reason).inc(),
        upstreamChanged: () => this.#readinessChanged(),
      },
    });
    this.inspection = new Inspection({
      relay: this.relay,
      version,
      startedAt: Date.now(),
      unready: () => (this.#draining ? 'draining' : undefined),
      configDump: () => this.#config.source.dump,
      metricsText: () => {
        streamMetrics.flush();
        return this.#metrics.text();
      },
    });
    this.#metrics.sampleFrom(() => this.inspection.sample());
  }

  /** Starts upstreams and listeners. The error says which listener could not be opened, and why. */
  static async start(config: Config, around: Surroundings): Promise<Result<Distributary>> {
    const started = new Distributary(config, around);
    const listening = await started.#listen();
    if (!listening.ok) {
      await started.#close();
      return listening;
    }
    started.relay.start(
      config.upstreams.map((upstream) =>
        makeUpstream(config, upstream, started.relay, {
          clock: systemClock,
          log: around.log,
          metrics: started.#metrics,
          version: around.version,
          via: () => config.node.id,
        }),
      ),
    );
    return ok(started);
  }

  /** Where it listens, for the lines on stdout. */
  get listeners(): readonly { readonly name: string; readonly address: string }[] {
    const list = [];
    if (this.#xds !== undefined) list.push({ name: 'xds', address: this.#xds.address });
    if (this.#admin !== undefined) list.push({ name: 'admin', address: this.#admin.address });
    return list;
  }

  /** A new version of the configuration. What needs a restart is said and left as it is. */
  reload(config: Config): void {
    const fixed = needsRestart(this.#config, config);
    if (fixed.length > 0) {
      this.#log.warn('some changes of the configuration take effect with the next start', { keys: fixed });
    }
    this.#config = config;
    this.#rules = new ClientRules(config, this.#rules);
    this.relay.server.reidentify();
    this.#metrics.reloads('accepted').inc();
    this.#log.info('configuration reloaded');
  }

  /** A new version that must be refused: the one in force stays. */
  refused(): void {
    this.#metrics.reloads('rejected').inc();
  }

  /** Not ready first, then GOAWAY and the end of all streams, spread over drain_timeout. */
  async drain(): Promise<void> {
    this.#draining = true;
    this.#readinessChanged();
    await this.#xds?.drain(this.#config.drainTimeoutMs, (stream) => stream.end(draining));
    await this.#close();
  }

  async #close(): Promise<void> {
    for (const close of this.#closers) close();
    await this.relay.stop();
    await this.#admin?.close();
  }

  async #listen(): Promise<Result<undefined>> {
    const { admin, xds, limits } = this.#config;
    const adminTls = await this.#tls(admin.tls, () => this.#admin);
    if (!adminTls.ok) return adminTls;
    const startedAdmin = await startAdminServer({
      host: admin.address.host,
      port: admin.address.port,
      tls: adminTls.value,
      log: this.#log,
      inspector: this.#inspector(),
    });
    if (!startedAdmin.ok) return startedAdmin;
    this.#admin = startedAdmin.value;
    const xdsTls = await this.#tls(xds.tls, () => this.#xds);
    if (!xdsTls.ok) return xdsTls;
    const cold = new ConnectPaths({
      routes: [
        healthRoutes(services, {
          serving: () => this.inspection.ready().ready,
          subscribe: (changed) => {
            this.#readinessListeners.add(changed);
            return () => this.#readinessListeners.delete(changed);
          },
        }),
        reflectionRoutes(services),
        csdsRoutes((request) => clientStatus(this.relay, request)),
      ],
      aliases: reflectionAliases,
      maxRequestBytes: limits.maxRequestBytes,
      maxCalls: maxColdCalls,
      threw: (error, path) => this.#log.error('a handler failed', { path, error }),
    });
    const { address } = xds;
    const listening = await listenGrpc({
      address: address.kind === 'unix' ? `unix:${address.path}` : formatHostPort(address.host, address.port),
      ...(xdsTls.value === undefined ? {} : { tls: xdsTls.value }),
      accept: (path) => {
        const route = routes.get(path);
        if (route === undefined) return undefined;
        const refusal = this.#refusal(this.relay.server.size);
        return refusal ?? ((stream) => this.relay.server.accept(stream, route));
      },
      cold,
      maxRequestBytes: limits.maxRequestBytes,
      report: (message, error) =>
        this.#conditions.set('xds listener', `${message}: ${String(error)}`, 'warn', message, { error }),
    });
    if (!listening.ok) return listening;
    this.#xds = listening.value;
    return ok(undefined);
  }

  #inspector(): Parameters<typeof startAdminServer>[0]['inspector'] {
    const { inspection, relay } = this;
    return {
      ready: () => inspection.ready(),
      status: () => inspection.status(),
      explain: (query) => inspection.explain(query),
      listResources: (query) => inspection.listResources(query),
      listClients: (limit) => inspection.listClients(limit),
      configDump: () => inspection.configDump(),
      metricsText: () => inspection.metricsText(),
      clientStatus: (request) => clientStatus(relay, request),
    };
  }

  /** A listener's certificate, watched: a new version is taken without a restart. */
  async #tls(
    files: Config['xds']['tls'],
    server: () => { setTls(material: ListenerTls): Result<undefined> } | undefined,
  ): Promise<Result<ListenerTls | undefined>> {
    if (files === undefined) return ok(undefined);
    const { certificate, privateKey, ca, requireClientCertificate } = files;
    const paths = { certificate, privateKey, ...(ca === undefined ? {} : { ca }) };
    const material = await readTlsFiles(paths);
    if (!material.ok) return fail(material.error);
    const stop = watchTlsFiles(paths, {
      clock: systemClock,
      current: material.value,
      changed: (next) => {
        const set = server()?.setTls({ ...next, requireClientCertificate });
        if (set?.ok === false)
          this.#log.error('a new certificate is refused', { certificate, error: set.error });
        else this.#log.info('certificate reloaded', { certificate });
      },
      refused: (reason) => this.#log.error('a new certificate is refused', { certificate, error: reason }),
    });
    this.#closers.push(stop);
    return ok({ ...material.value, requireClientCertificate });
  }

  #refusal(streams: number): GrpcStatus | undefined {
    if (this.#draining) return draining;
    const { maxStreams } = this.#config.limits;
    if (streams < maxStreams) return undefined;
    const message = `${streams} streams are open, the most that this relay takes (limits.max_streams)`;
    return { code: Code.RESOURCE_EXHAUSTED, message };
  }

  #readinessChanged(): void {
    for (const listener of this.#readinessListeners) listener();
  }
}

/** The keys of the configuration that only a restart can change. */
function needsRestart(before: Config, after: Config): string[] {
  const same = (a: unknown, b: unknown): boolean => JSON.stringify(a) === JSON.stringify(b);
  const keys: string[] = [];
  if (!same(before.node, after.node)) keys.push('node');
  if (!same(before.upstreams, after.upstreams)) keys.push('upstreams');
  if (!same([before.xds.address, before.xds.tls], [after.xds.address, after.xds.tls])) keys.push('xds');
  if (!same(before.admin, after.admin)) keys.push('admin');
  if (before.workers !== after.workers) keys.push('workers');
  if (before.cache.idleTtlMs !== after.cache.idleTtlMs) keys.push('cache.idle_ttl');
  return keys;
}
