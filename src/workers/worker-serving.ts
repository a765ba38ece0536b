import { createServer } from 'node:net';
import type { ClientServing, ServingMode } from '../assembly/client-serving.ts';
import { type Core, SINGLE_PROCESS } from '../assembly/core.ts';
import type { XdsListenerCallbacks } from '../assembly/xds-listener.ts';
import type { Config } from '../config/config.ts';
import { fail, ok, type Result } from '../model/result.ts';
import type { LogLevel } from '../observe/log.ts';
import { formatSum } from '../observe/series.ts';
import { formatHostPort } from '../wire/address.ts';
import { explainError } from '../wire/node-error.ts';
import { Feed, feedConfig } from './feed.ts';
import { answerWorker } from './ipc-calls.ts';
import type { PrimaryState } from './ipc-messages.ts';
import { primarySeries } from './merged-series.ts';
import { WorkerPool } from './worker-pool.ts';

/** Clients are served by workers; this process is the primary that feeds them. */
export function serveByWorkers(count: number, level: LogLevel): ServingMode {
  return {
    configOf: feedConfig,
    role: () => ({
      ...SINGLE_PROCESS,
      // A worker's stream stands for many clients: which of them have nothing to hope for, the worker decides.
      isUnavailable: () => false,
      refusal: () => undefined,
    }),
    async open(core, config, answers) {
      const feed = await Feed.open(core);
      if (!feed.ok) return feed;
      const pool = await startPool(count, level, core, config, answers, feed.value);
      if (pool.ok) return ok(new WorkerPoolServing(core, answers, feed.value, pool.value));
      await feed.value.close();
      return pool;
    },
  };
}

async function startPool(
  count: number,
  level: LogLevel,
  core: Core,
  config: Config,
  answers: XdsListenerCallbacks,
  feed: Feed,
): Promise<Result<WorkerPool>> {
  const port = await choosePort(config);
  if (!port.ok) return port;
  const { text, file } = config.source;
  return WorkerPool.start(count, {
    log: core.log,
    conditions: core.conditions,
    start: {
      kind: 'start',
      text,
      startedText: text,
      file,
      ...(port.value === undefined ? {} : { port: port.value }),
      feed: feed.socket,
      relayId: core.loops.relayId,
      level,
      version: core.version,
    },
    answer: (what, body) => answerWorker(what, body, answers.clientStatus),
    changed: () => core.changed(),
    restarted: () => core.metrics.workerRestarts().inc(),
  });
}

class WorkerPoolServing implements ClientServing {
  readonly address: string;
  readonly clients: WorkerPool;
  readonly #core: Core;
  readonly #answers: XdsListenerCallbacks;
  readonly #feed: Feed;
  readonly #unsubscribe: () => void;

  constructor(core: Core, answers: XdsListenerCallbacks, feed: Feed, pool: WorkerPool) {
    this.#core = core;
    this.#answers = answers;
    this.#feed = feed;
    this.clients = pool;
    this.address = pool.address;
    this.#unsubscribe = core.onChange(() => pool.setPrimaryState(this.#primaryState()));
    pool.setPrimaryState(this.#primaryState());
  }

  notReadyReason(): string | undefined {
    return this.clients.listening ? undefined : 'no worker listens';
  }

  async metricsText(): Promise<string> {
    const own = primarySeries(await this.#core.series());
    return formatSum([own, ...(await this.clients.series())]);
  }

  reload(config: Config): void {
    this.clients.reload(config.source.text);
  }

  async drain(milliseconds: number): Promise<void> {
    await this.clients.drain(milliseconds);
    this.#unsubscribe();
    await this.#feed.close();
  }

  #primaryState(): PrimaryState {
    const { upstreams } = this.#core.relay;
    const down = upstreams.filter((upstream) => upstream.state().down).map(({ name }) => name);
    const refused = upstreams.flatMap((upstream) => {
      const refusals = upstream.refusals();
      if (refusals === undefined) return [];
      return { upstream: upstream.name, message: refusals.message, parameters: [...refusals.parameters] };
    });
    return { kind: 'primary_state', ready: this.#answers.serving(), down, refused };
  }
}

/**
 * Port 0 is decided once, for all workers that there will ever be; undefined where the configuration decides.
 * node:cluster would choose one too, but another one when all workers have ended and start again.
 */
async function choosePort({ xds: { address } }: Config): Promise<Result<number | undefined>> {
  if (address.kind !== 'tcp' || address.port !== 0) return ok(undefined);
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
