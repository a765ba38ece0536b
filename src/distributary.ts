import { hash } from 'node:crypto';
import { resolve } from 'node:path';
import { setTimeout } from 'node:timers/promises';
import { isDeepStrictEqual } from 'node:util';
import { create } from '@bufbuild/protobuf';
import { startAdminServer, startMetricsServer } from './admin/admin-server.ts';
import type { HttpListener } from './admin/http-listener.ts';
import { inspection, problemLog } from './admin/inspection.ts';
import { type ClientsView, localClients } from './admin/local-clients.ts';
import { diskText } from './admin/problems.ts';
import type { Request } from './admin/requests.ts';
import { discardedFacts } from './admin/rollout-status.ts';
import type { Answer, Call, Inspector, PageFacts } from './admin/service.ts';
import { WorkerDisk } from './cache/persistence/disk.ts';
import { Persistence, type UpstreamIdentity } from './cache/persistence/persistence.ts';
import { DiskProblem, diskError, lockedText } from './cache/persistence/records.ts';
import { type ClientServing, IN_PROCESS, type ServingMode } from './client-serving.ts';
import type { Config, UpstreamConfig } from './config/config.ts';
import { parseConfig } from './config/load.ts';
import { Core, type CoreDependencies, openTraces } from './core.ts';
import { CompareConfigurationRequestSchema } from './gen/distributary/admin/v1/configuration_pb.ts';
import { typeUrl } from './model/brand.ts';
import { Sweep, systemClock, within } from './model/clock.ts';
import { errorMessage, fail, ok, type Result } from './model/result.ts';
import { checkStates } from './model/rollout.ts';
import { knownTypes, typeByName, typeInfo } from './model/types.ts';
import { takeFigures } from './observe/figures.ts';
import { type RecentLine, withRecentLines } from './observe/log.ts';
import { type RelayFacts, rolloutStates } from './observe/metrics.ts';
import type { Reading } from './observe/series.ts';
import { History } from './releases/history.ts';
import { Recorder } from './releases/recorder.ts';
import { RolloutFile } from './releases/rollout-file.ts';
import { parametersObjection } from './releases/seams.ts';
import { dumpInForce, effectSummary, inForce, needsRestart, reloadPreview } from './reload-effect.ts';
import { SessionKeeper } from './session-keeper.ts';
import { claimant } from './upstream/claims.ts';
import { UpstreamSet, upstreamChanges } from './upstream-set.ts';
import { readListenerTls } from './watched-tls.ts';
import { formatAddress } from './wire/address.ts';

/** How long a reload waits until it is known what it changes, in milliseconds. */
const longestComparisonMs = 2000;
/** How long an operator's answer, and the end of the process, wait for the last write, in milliseconds. */
const lastWriteTimeoutMs = 5000;
/** How often problems are looked for, in milliseconds. */
const problemsMs = 5000;

/** The relay with its listeners: what `run` and `demo` start. */
export class Distributary {
  readonly #core: Core;
  /** The clients of this process: none where workers serve them. */
  readonly #own: ClientsView;
  readonly #mode: ServingMode;
  readonly #inspection: Inspector;
  readonly #upstreams: UpstreamSet;
  readonly #recorder: Recorder;
  readonly #persistence: Persistence | undefined;
  readonly #rolloutFile: RolloutFile | undefined;
  /** The persisted cache was opened: only then it is known whether another relay has its directory. */
  readonly #loaded = Promise.withResolvers<void>();
  readonly #sessions: SessionKeeper;
  readonly #started: Config;
  /** In force: the newest one, but for what needs a restart. */
  #config: Config;
  #serving: ClientServing | undefined;
  /** For operators. */
  readonly #listeners: { readonly name: string; readonly listener: HttpListener }[] = [];
  readonly #startedAt = Date.now();
  #configuredAt = this.#startedAt;
  /** Undefined: the last new version of the configuration was taken. */
  #refusedConfiguration: PageFacts['refusedConfiguration'];
  readonly #figures = takeFigures(systemClock, async () => (await this.#serving?.counters()) ?? []);
  #closeAdminTls = (): void => {};
  /** The log says what is wrong though nobody asks for it. The inspection bounds what that costs. */
  readonly #problemsWatch = new Sweep(systemClock, problemsMs, () => {
    void this.#inspection.problems();
    return true;
  });

  /** `lines`: those of the log. */
  private constructor(
    config: Config,
    dependencies: CoreDependencies,
    mode: ServingMode,
    lines: () => readonly RecentLine[],
  ) {
    this.#started = config;
    this.#config = config;
    this.#mode = mode;
    const { log } = dependencies;
    this.#sessions = new SessionKeeper(config, systemClock, log);
    const kept = config.cache.persistence;
    this.#persistence =
      kept &&
      new Persistence({
        disk: new WorkerDisk(kept.path),
        path: kept.path,
        leaveOut: kept.secrets ? kept.leaveOut : [...kept.leaveOut, ...secrets],
        upstreams: () => identities(this.#config),
        serves: (type, selector) => claimant(this.#config.upstreams, type, selector)?.name,
        sessions: () => this.#sessions.sealed(),
        clock: systemClock,
        log,
        failed: (reason) => this.#core.metrics.count.persistenceErrors(reason).inc(),
        staleSince: (upstream) => this.#core.staleness.sinceOf(upstream),
      });
    this.#rolloutFile =
      kept &&
      new RolloutFile(
        kept.path,
        systemClock,
        log,
        (error) => this.#core.metrics.count.persistenceErrors(diskError(error).kind).inc(),
        // Another relay has the directory: what its operators have closed must not be replaced.
        async () => {
          await this.#loaded.promise;
          return this.#persistence?.failure?.reason === 'locked'
            ? new DiskProblem('locked', lockedText)
            : undefined;
        },
      );
    const history = new History(
      systemClock,
      () => this.#config.history,
      ({ type, revision }) => this.#persistence?.journal.change(type, revision),
    );
    const recorder = new Recorder(history, systemClock, () => this.#config.workers === 0);
    this.#recorder = recorder;
    const core = new Core(
      mode.configOf(config),
      {
        ...dependencies,
        recorder,
        journal: this.#persistence?.journal,
        rolloutFile: this.#rolloutFile,
      },
      mode.role,
    );
    this.#core = core;
    this.#own = localClients(core, reloadPreview(core), () => core.rollout.canaries);
    this.#upstreams = new UpstreamSet(core, config);
    core.loops.onNewRelaysBelow(() => this.#upstreams.reannounce());
    core.metrics.relay(dependencies.version, () => this.#facts());
    const { relay, staleness, rollout, checks, logLevels, version } = core;
    this.#inspection = inspection({
      ...{ relay, staleness, rollout, checks, log, logLevels, version },
      clients: () => this.#clients,
      history: recorder.history,
      isPersisted: (type) => this.#persistence?.keeps(type) === true,
      config: () => this.#config,
      notReadyReason: () => (this.#core.isLeaving ? 'draining' : this.#serving?.notReadyReason()),
      found: problemLog(log, systemClock, this.#startedAt, () => this.#core.isLeaving),
      heldRemovals: (upstream) => this.#heldRemovals(upstream),
      releaseRemovals: (upstream, type) => {
        const removed = this.#upstreams.releaseRemovals(upstream, type);
        return removed === undefined ? undefined : removed + rollout.releaseRemovals(upstream, type);
      },
      own: {
        compareConfiguration: (request, call) => this.#compare(request, call),
        configDump: () => dumpInForce(this.#started, this.#config),
        metricsText: async () => (await this.#serving?.metricsText()) ?? '',
        notKept: () => this.#notKept(),
        page: {
          facts: () => this.#pageFacts(),
          figures: () => this.#figures.points,
          lines,
          upstreamOf: (type, selector) => relay.servedBy(typeByName(type) ?? typeUrl(type), selector),
        },
      },
    });
  }

  /** Starts listeners and upstreams. The error says which listener could not be opened, and why. */
  static async start(
    config: Config,
    dependencies: CoreDependencies,
    mode: ServingMode = IN_PROCESS,
  ): Promise<Result<Distributary>> {
    const { version } = dependencies;
    const { log, lines } = withRecentLines(dependencies.log, () => systemClock.now());
    const spans = await openTraces(config, log, version);
    const started = new Distributary(config, { ...dependencies, log, spans }, mode, lines);
    await started.#begin();
    const listening = await started.#listen();
    if (!listening.ok) {
      await started.#close(0);
      return listening;
    }
    return ok(started);
  }

  /** Loads the persisted cache before the first client can connect. */
  async #begin(): Promise<void> {
    const { relay, staleness, metrics } = this.#core;
    const persistence = this.#persistence;
    const loaded = await persistence?.load();
    this.#loaded.resolve();
    if (loaded !== undefined) staleness.restore(loaded.staleSince);
    this.#sessions.start(persistence?.restored.sessions);
    relay.start(this.#upstreams.make(), loaded?.restored);
    const known = Iterator.from(relay.store.tables).filter(([, table]) => table.resources.size > 0);
    this.#recorder.start(
      known.map(([type]) => type),
      persistence?.restored,
    );
    if (persistence === undefined) return;
    persistence.attach(relay.store, this.#recorder.history);
    metrics.persistence(() => ({
      persistence_lag_seconds: [[persistence.lagSeconds]],
      persistence_last_write_timestamp_seconds: [[(persistence.lastWrite ?? 0) / 1000]],
    }));
  }

  /** Where it listens, for the lines on stdout. */
  get listeners(): readonly { readonly name: string; readonly address: string }[] {
    const own = this.#listeners.map(({ name, listener: { address } }) => ({ name, address }));
    return [...(this.#serving?.addresses ?? []), ...own];
  }

  /**
   * Takes a new version of the configuration. It logs which changes need a restart, and leaves those keys as they are.
   * The error says why the version in force stays.
   */
  reload(read: Config): Result<undefined> {
    // It would start upstreams again.
    if (this.#core.isLeaving) return fail('the relay is draining');
    const { log, metrics, rollout } = this.#core;
    const config = inForce(this.#started, read);
    const { pending } = this.#core.relay.store.held;
    const isMoved = movesClasses(this.#config, config);
    const objection =
      (isMoved ? parametersObjection(pending) : undefined) ?? rollout.objectionTo(config.rollout);
    if (objection !== undefined) return fail(objection);
    if (isMoved) this.#recorder.history.strip();
    const fixed = needsRestart(this.#started, read);
    if (fixed.length > 0) {
      log.warn('some changes of the configuration take effect after a restart', { keys: fixed });
    }
    this.#config = config;
    this.#configuredAt = Date.now();
    this.#refusedConfiguration = undefined;
    // Upstreams first: when the clients' rules are applied again, variants must have the stamps of the new rules.
    this.#upstreams.reload(config);
    this.#core.reload(this.#mode.configOf(config));
    this.#serving?.reload(config);
    metrics.count.reloads('accepted').inc();
    log.info('configuration reloaded', { configuration: config.source.digest });
    return ok(undefined);
  }

  /** Logs what a reload with this configuration would change. References to the environment must be replaced. */
  async announce(text: string): Promise<void> {
    const { log } = this.#core;
    const request = create(CompareConfigurationRequestSchema, { text });
    const waiting = new AbortController();
    const call = { operator: '', signal: waiting.signal };
    try {
      const comparison = Promise.resolve(this.#inspection.compareConfiguration(request, call));
      // The reload waits for it, and must not wait long.
      if (!(await within(systemClock, longestComparisonMs, comparison))) {
        log.info('what the new configuration changes was not computed in time');
        return;
      }
      const effect = await comparison;
      log[effect.reconnecting > 0 ? 'warn' : 'info'](
        'what the new configuration changes',
        effectSummary(effect),
      );
    } catch (error) {
      log.warn('what the new configuration changes is unknown', { reason: errorMessage(error) });
    } finally {
      waiting.abort();
    }
  }

  async #compare(
    request: Request<'compareConfiguration'>,
    call: Call,
  ): Promise<Answer<'compareConfiguration'>> {
    const effect = await this.#clients.compareConfiguration(request, call);
    const next = parseConfig(request.text, 'configuration', {});
    if (!next.ok) return effect;
    const fixed = needsRestart(this.#started, next.value);
    const upstreams = upstreamChanges(this.#config, next.value);
    return { ...effect, needsRestart: fixed, upstreams };
  }

  /** Of gated types the rollout holds them, of others the shrink guard. */
  #heldRemovals(upstream: string) {
    return [...this.#upstreams.heldRemovals(upstream), ...this.#core.rollout.heldRemovals(upstream)];
  }

  /** Counts a new version that was refused; the one in force stays. */
  refused(problems: readonly string[]): void {
    this.#core.metrics.count.reloads('rejected').inc();
    const { file } = this.#config.source;
    this.#refusedConfiguration = { file, problems, since: this.#refusedConfiguration?.since ?? Date.now() };
  }

  #pageFacts(): PageFacts {
    const figures = this.#figures;
    const { source, admin, limits, rollout, upstreams } = this.#config;
    return {
      file: source.file,
      configuration: source.digest,
      configuredAt: this.#configuredAt,
      startedAt: this.#startedAt,
      readOnly: admin.readOnly,
      usage: this.#usage(),
      workPerPeerMs: limits.maxWorkPerPeerMs,
      certificates: figures.counters.flatMap(({ certificates }) => certificates),
      refusedConfiguration: this.#refusedConfiguration,
      disk: this.#disk(),
      discarded: discardedFacts(this.#core.rollout.report()),
      recent: figures.recent(),
      rollout,
      controlPlanes: new Map(
        upstreams.filter((one) => one.kind === 'ads').map((one) => [one.name, one] as const),
      ),
    };
  }

  #usage(): PageFacts['usage'] {
    const { relay } = this.#core;
    const { limits, cache } = this.#config;
    const { counters } = this.#figures;
    const streams = counters.reduce((sum, one) => sum + one.streams, 0);
    const connections = counters.reduce((sum, one) => sum + one.connections, 0);
    const sessions = Math.max(0, ...relay.upstreams.map((upstream) => upstream.state().sessions));
    // What lingers fills the cache by and by, and goes where there is no room.
    const inUse = relay.store.bytes - relay.views.interests.idleBytes;
    return [
      { name: 'limits.max_streams', used: streams, limit: limits.maxStreams },
      { name: 'limits.max_connections', used: connections, limit: limits.maxConnections },
      { name: 'limits.max_upstream_sessions', used: sessions, limit: limits.maxUpstreamSessions },
      { name: 'cache.max_bytes', used: inUse, limit: cache.maxBytes },
    ];
  }

  #disk(): PageFacts['disk'] {
    const { persistence } = this.#config.cache;
    if (this.#persistence === undefined || persistence === undefined) return undefined;
    const { failure, lagSeconds } = this.#persistence;
    const { failure: rollout, unread } = this.#rolloutFile ?? {};
    const failing = [
      failure && { what: 'cache' as const, ...failure },
      rollout && { what: 'rollout' as const, ...rollout },
      unread && { what: 'unread' as const, ...unread },
    ].filter((one) => one !== undefined);
    return { path: persistence.path, failing, lagSeconds };
  }

  /** What operators close is in a file of its own, and what it was closed at is in the cache: a restart needs both. */
  async #notKept(): Promise<string | undefined> {
    const [hasRollout, hasCache] = await Promise.all([
      inTime(this.#rolloutFile?.settled),
      inTime(this.#persistence?.settled()),
    ]);
    if (!hasRollout)
      return 'this may not survive a restart: rollout.json is not written yet (the disk does not answer)';
    if (!hasCache) return 'this may not survive a restart: the cache is not written yet (the disk is late)';
    const failing = this.#disk()?.failing.find(({ what }) => what !== 'unread');
    if (failing === undefined) return undefined;
    const { what, reason } = failing;
    const lacking = what === 'cache' ? 'the cache' : 'rollout.json';
    return `this does not survive a restart: ${lacking} cannot be written (${diskText.get(reason) ?? reason})`;
  }

  /** Not ready first, for drain_delay; then GOAWAY and the end of all streams, spread over drain_timeout. */
  async drain(): Promise<void> {
    this.#core.isLeaving = true;
    this.#core.changed();
    await setTimeout(this.#config.drainDelayMs);
    this.#core.beginDrain();
    await this.#close(this.#config.drainTimeoutMs);
  }

  get #clients(): ClientsView {
    return this.#serving?.clients ?? this.#own;
  }

  async #facts(): Promise<RelayFacts> {
    const { checks, relay, rollout } = this.#core;
    const report = rollout.report();
    return {
      ready: [[Number(this.#inspection.ready().ready)]],
      held_removals: relay.upstreams.map(({ name }) => [
        this.#heldRemovals(name).reduce((sum, { count }) => sum + count, 0),
        name,
      ]),
      discarded_names: [[discardedFacts(report)?.names ?? 0]],
      rollout_state: rolloutStates.map((one): Reading => [Number(one === report.state.kind), one]),
      rollout_wave: [[report.wave]],
      frozen: [[Number(report.freezes.length > 0)]],
      rollout_check_state: checks
        .states()
        .flatMap(({ name, state }) => checkStates.map((one): Reading => [Number(one === state), name, one])),
      limit: boundsOf(this.#config),
      ...(await this.#missing()),
      config_last_reload_timestamp_seconds: [[this.#configuredAt / 1000]],
      config_last_reload_successful: [[Number(this.#refusedConfiguration === undefined)]],
    };
  }

  /** By the labels of all types that are cached or asked for. */
  async #missing(): Promise<RelayFacts> {
    const { metrics, relay } = this.#core;
    const { missing, problems } = await this.#inspection.listClasses();
    const label = (type: string): string => metrics.typeLabel(typeByName(type) ?? typeUrl(type));
    const cached = [...relay.store.tables].map(([type]) => typeInfo(type).short);
    const all = Object.entries(missing).map(([type, count]): Reading => [count, label(type)]);
    const elsewhere = problems
      .filter((one) => one.kind === 'MISSING' && one.elsewhere)
      .map(({ clients, type }): Reading => [clients, label(type)]);
    const none = [...cached.map(label), ...[...all, ...elsewhere].map(([, type]) => type)];
    const zeros = none.map((type): Reading => [0, type]);
    return {
      missing_subscriptions: [...zeros, ...all],
      unmatched_subscriptions: [...zeros, ...elsewhere],
    };
  }

  async #close(milliseconds: number): Promise<void> {
    this.#figures.stop();
    this.#problemsWatch.stop();
    await this.#serving?.drain(milliseconds);
    await this.#core.loadReports.drain();
    this.#core.loops.stop();
    this.#core.siblings.stop();
    await this.#core.relay.stop();
    this.#upstreams.close();
    await this.#core.traces?.stop();
    this.#sessions.stop();
    await inTime(this.#rolloutFile?.settled);
    await this.#persistence?.close(lastWriteTimeoutMs);
    this.#closeAdminTls();
    await Promise.all(this.#listeners.map(({ listener }) => listener.close()));
  }

  async #listen(): Promise<Result<undefined>> {
    const serving = await this.#mode.open(
      this.#core,
      this.#config,
      {
        serving: () => this.#inspection.ready().ready,
        clientStatus: (query) => this.#inspection.clientStatus(query),
      },
      this.#own,
      this.#sessions,
    );
    if (!serving.ok) return serving;
    this.#serving = serving.value;
    this.#figures.start();
    this.#problemsWatch.start();
    return this.#listenForOperators();
  }

  async #listenForOperators(): Promise<Result<undefined>> {
    const { admin, metrics } = this.#config;
    const { accounts, log } = this.#core;
    const around = { accounts, log, inspector: this.#inspection };
    const tls = await readListenerTls(admin.tls, this.#core, 'admin');
    if (!tls.ok) return tls;
    const { material, follow, close } = tls.value;
    this.#closeAdminTls = close;
    const access = (): Config['admin'] => this.#config.admin;
    const listening = await startAdminServer({ ...admin.address, ...around, tls: material, access });
    if (!listening.ok) return listening;
    this.#listeners.push({ name: 'admin', listener: listening.value });
    follow(listening.value);
    if (metrics === undefined) return ok(undefined);
    const read = await startMetricsServer({ ...metrics.address, ...around, tls: undefined });
    if (!read.ok) return read;
    this.#listeners.push({ name: 'metrics', listener: read.value });
    return ok(undefined);
  }
}

/** False: it may be written, or may not be; a disk can fail to answer. */
const inTime = (written = Promise.resolve()): Promise<boolean> =>
  within(systemClock, lastWriteTimeoutMs, written);

/** By the keys of the configuration: counts, bytes and seconds. */
function boundsOf({ limits, cache }: Config): readonly Reading[] {
  return Object.entries({ ...limits, cacheMaxBytes: cache.maxBytes }).flatMap(([key, value]): Reading[] => {
    if (typeof value !== 'number') return [];
    const name = key.replace(/Ms$/, '').replaceAll(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
    return [[key.endsWith('Ms') ? value / 1000 : value, name]];
  });
}

/** Clients get other parameters, and variants are those of sessions that have parameters. */
function movesClasses(before: Config, after: Config): boolean {
  const isMoved = !isDeepStrictEqual(before.parameters, after.parameters);
  const upstreams = [...before.upstreams, ...after.upstreams];
  return isMoved && upstreams.some((one) => one.kind === 'ads' && one.variants !== 'NATIVE');
}

const secrets = knownTypes.filter(({ short }) => short === 'sds').map(({ url }) => url);

/**
 * What decides the content of an upstream: its kind, its claims and those of the upstreams before it, and the node that
 * it is shown. Not node.id: replicas often take it from their host.
 */
export function identities(config: Config): readonly UpstreamIdentity[] {
  return config.upstreams.map((upstream, index) => {
    const claimed = config.upstreams.slice(0, index + 1).map((one) => one.claims);
    const parts = [upstream.kind, claimed, ...requestedAs(upstream, config)];
    return {
      name: upstream.name,
      text: hash('sha256', JSON.stringify(parts), 'hex'),
      places: places(upstream),
    };
  });
}

/** PER_PARAMETERS stamps variants with the rules' keys, and shows them to the control plane where the rules say. */
function requestedAs(upstream: UpstreamConfig, { parameters, node }: Config): readonly unknown[] {
  if (upstream.kind === 'filesystem') return [];
  const { cluster, metadata, locality } = node;
  const rules = upstream.variants === 'NATIVE' ? [] : parameters;
  const shown = rules.map(({ key, to }) => JSON.stringify([key, to])).toSorted();
  return [upstream.variants, shown, cluster, metadata, locality];
}

function places(upstream: UpstreamConfig): readonly string[] {
  if (upstream.kind === 'filesystem') return [resolve(upstream.path)];
  return upstream.endpoints.map(formatAddress);
}
