import { createServer } from 'node:net';
import type { ClientServing, ListenerAddress, ServingMode } from '../assembly/client-serving.ts';
import type { Core } from '../assembly/core.ts';
import { SINGLE_PROCESS } from '../assembly/process-role.ts';
import type { XdsListenerCallbacks } from '../assembly/xds-listener.ts';
import type { Config } from '../config/config.ts';
import { resourceName, typeUrl } from '../model/brand.ts';
import { fail, ok, type Result } from '../model/result.ts';
import type { Side } from '../model/side.ts';
import type { Counters } from '../observe/counters.ts';
import type { LogFormat } from '../observe/log-levels.ts';
import { formatSum } from '../observe/series.ts';
import { tickOf } from '../observe/watchdog.ts';
import { formatHostPort } from '../wire/address.ts';
import { explainError } from '../wire/node-error.ts';
import { clientStatusRoutes } from './client-status-rpc.ts';
import { feedConfig, openFeed } from './feed.ts';
import type { PrimaryState } from './ipc-messages.ts';
import { primarySeries } from './merged-series.ts';
import {
  canaryFeedSocket,
  feedSocket,
  listenPrivately,
  makePrivateDirectory,
  primarySocket,
  removePrivateDirectory,
} from './private-socket.ts';
import { WorkerPool } from './worker-pool.ts';
import { type JudgingProcess, WorkersFleet } from './workers-fleet.ts';

/** Clients are served by workers; this process is the primary that feeds them. */
export function serveByWorkers(count: number, logFormat: LogFormat): ServingMode {
  const fleet = new WorkersFleet();
  let canaryFeed: string | undefined;
  return {
    configOf: feedConfig,
    role: () => ({
      ...SINGLE_PROCESS,
      // A worker's stream serves many clients. The worker decides which of their streams fail.
      isUnavailable: () => false,
      refusal: () => undefined,
      rollout: {
        fleet,
        sideOf: ({ address }) => (address === canaryFeed ? 'canary' : 'released'),
        canaryAnswered: () => fleet.reported(),
        canaryEnded: () => {},
      },
    }),
    async open(core, config, answers) {
      const sockets = new AsyncDisposableStack();
      fleet.serve(judgingProcess(core));
      const directory = await openSockets(core, answers.clientStatus, sockets);
      if (directory.ok) canaryFeed = canaryFeedSocket(directory.value);
      const pool = directory.ok
        ? await startPool(count, logFormat, core, config, directory.value, fleet)
        : directory;
      if (pool.ok) {
        fleet.workersStarted(pool.value);
        return ok(new WorkerPoolServing(core, answers, pool.value, sockets, fleet));
      }
      await sockets.disposeAsync();
      return pool;
    },
  };
}

/** Opens the primary's sockets for its workers: the feed, and CSDS over all workers. Returns their directory. */
async function openSockets(
  core: Core,
  clientStatus: XdsListenerCallbacks['clientStatus'],
  sockets: AsyncDisposableStack,
): Promise<Result<string>> {
  const directory = openDirectory(sockets);
  const feed = await openFeed(core, feedSocket(directory));
  if (!feed.ok) return feed;
  sockets.defer(() => feed.value.drain(0));
  if (core.config.rollout !== undefined) {
    const canaries = await openFeed(core, canaryFeedSocket(directory));
    if (!canaries.ok) return canaries;
    sockets.defer(() => canaries.value.drain(0));
  }
  const questions = await listenPrivately(primarySocket(directory), {
    routes: clientStatusRoutes(clientStatus),
    failed: (error) => core.log.error('a request of a worker failed', { error }),
  });
  if (!questions.ok) return questions;
  sockets.use(questions.value);
  return ok(directory);
}

/** The directory is removed when the process ends, unless it is killed. */
function openDirectory(sockets: AsyncDisposableStack): string {
  const directory = makePrivateDirectory();
  const remove = (): void => removePrivateDirectory(directory);
  process.once('exit', remove);
  sockets.defer(() => {
    process.off('exit', remove);
    remove();
  });
  return directory;
}

async function startPool(
  count: number,
  logFormat: LogFormat,
  core: Core,
  config: Config,
  directory: string,
  fleet: WorkersFleet,
): Promise<Result<WorkerPool>> {
  const { xds, rest } = config;
  const port = await choosePort(xds.address.kind === 'tcp' ? xds.address : undefined);
  if (!port.ok) return port;
  const restPort = await choosePort(rest?.address);
  if (!restPort.ok) return restPort;
  const { text, file } = config.source;
  return WorkerPool.start(count, {
    log: core.log,
    tickMs: tickOf(config.watchdog),
    logLevels: core.logLevels,
    conditions: core.conditions,
    start: {
      kind: 'start',
      text,
      startedText: text,
      file,
      ...(port.value === undefined ? {} : { port: port.value }),
      ...(restPort.value === undefined ? {} : { restPort: restPort.value }),
      directory,
      relayId: core.loops.relayId,
      level: core.logLevels.initial,
      logFormat,
      version: core.version,
    },
    maxStreams: config.limits.maxStreams,
    canaries: fleet,
    answered: ({ type, name, ...said }) =>
      core.recorder?.reported({ tookMs: undefined, ...said, type: typeUrl(type), name: resourceName(name) }),
    changed: () => core.changed(),
    restarted: () => core.metrics.workerRestarts().inc(),
  });
}

class WorkerPoolServing implements ClientServing {
  readonly addresses: readonly ListenerAddress[];
  readonly clients: WorkerPool;
  readonly #core: Core;
  readonly #answers: XdsListenerCallbacks;
  readonly #sockets: AsyncDisposableStack;
  readonly #fleet: WorkersFleet;
  readonly #unsubscribe: () => void;

  constructor(
    core: Core,
    answers: XdsListenerCallbacks,
    pool: WorkerPool,
    sockets: AsyncDisposableStack,
    fleet: WorkersFleet,
  ) {
    this.#fleet = fleet;
    this.#core = core;
    this.#answers = answers;
    this.#sockets = sockets;
    this.clients = pool;
    this.addresses = pool.addresses;
    this.#unsubscribe = core.onChange(() => pool.setPrimaryState(this.#primaryState()));
    pool.setPrimaryState(this.#primaryState());
  }

  notReadyReason(): string | undefined {
    return this.clients.listening ? undefined : 'no worker listens';
  }

  async metricsText(): Promise<string> {
    const [own, workers] = await Promise.all([this.#core.series(), this.clients.series()]);
    return formatSum([primarySeries(own), ...workers]);
  }

  async counters(): Promise<readonly Counters[]> {
    // The streams of this process feed the workers.
    const nothing = { responses: 0, acknowledged: [], rejections: 0, streams: 0, connections: 0 };
    const own = { ...this.#core.counters(), ...nothing };
    return [own, ...(await this.clients.counters())];
  }

  reload(config: Config): void {
    this.clients.reload(config.source.text, config.limits.maxStreams);
    this.#fleet.moved();
  }

  async drain(milliseconds: number): Promise<void> {
    this.#fleet.stop();
    await this.clients.drain(milliseconds);
    this.#unsubscribe();
    await this.#sockets.disposeAsync();
  }

  #primaryState(): PrimaryState {
    const { upstreams } = this.#core.relay;
    const down = upstreams.filter((upstream) => upstream.state().down).map(({ name }) => name);
    const refused = upstreams.flatMap((upstream) => {
      const refusals = upstream.refusals?.();
      if (refusals === undefined) return [];
      return { upstream: upstream.name, message: refusals.message, parameters: [...refusals.parameters] };
    });
    const served = [...this.#core.servedTypes];
    return { kind: 'primary_state', ready: this.#answers.serving(), down, served, refused };
  }
}

/**
 * The port for all workers, now and later, where the configuration has port 0; else undefined. node:cluster would choose
 * another port after all workers have ended.
 */
async function choosePort(
  address: { readonly host: string; readonly port: number } | undefined,
): Promise<Result<number | undefined>> {
  if (address?.port !== 0) return ok(undefined);
  const server = createServer();
  return new Promise((resolve) => {
    server.once('error', (error) => {
      resolve(fail(`cannot listen on ${formatHostPort(address.host, 0)}: ${explainError(error)}`));
    });
    server.listen({ host: address.host, port: 0 }, () => {
      const bound = server.address();
      const port = typeof bound === 'object' && bound !== null ? bound.port : undefined;
      server.close(() => resolve(ok(port)));
    });
  });
}

/** The primary's judge, and how far its feeds are. */
function judgingProcess(core: Core): JudgingProcess {
  const { relay } = core;
  const { rollout } = core.rollout;
  return {
    canaryRules: () => rollout.canaries.rules,
    namedCanaries: () => rollout.canaries.named,
    hasDelivered: (side) => hasDelivered(core, side),
    waits: () => relay.gate.size > 0,
    canaryAnswered: () => rollout.canaryAnswered(),
    openClasses: () => rollout.canaries.open,
    canaryEnded: (stream) => rollout.canaryEnded(stream),
  };
}

/** Of other types something is always on its way, and nobody waits for it. */
function hasDelivered({ relay, config }: Core, side: Side): boolean {
  const gated = new Set(config.rollout?.types);
  for (const { client, types } of relay.server.streams()) {
    if (client?.access.side !== side) continue;
    for (const { info, subscription } of types) {
      if (!gated.has(info.url) || subscription === undefined) continue;
      if (subscription.due || subscription.responses.awaitsAnswer) return false;
    }
  }
  return true;
}
