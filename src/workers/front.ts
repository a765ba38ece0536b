import { createServer } from 'node:net';
import { ALONE, type Core } from '../assembly/core.ts';
import type { Front, FrontKind } from '../assembly/front.ts';
import type { XdsAnswers } from '../assembly/xds-listener.ts';
import type { Config } from '../config/config.ts';
import { fail, ok, type Result } from '../model/result.ts';
import type { LogLevel } from '../observe/log.ts';
import { formatSum } from '../observe/series.ts';
import { formatHostPort } from '../wire/address.ts';
import { explainError } from '../wire/node-error.ts';
import { Crew } from './crew.ts';
import { Feed, feedConfig } from './feed.ts';
import type { News } from './messages.ts';
import { answerWorker } from './questions.ts';
import { primarySeries } from './relay-series.ts';

/** Clients are served by workers; this process is the primary that feeds them. */
export function workersFront(count: number, level: LogLevel): FrontKind {
  return {
    configOf: feedConfig,
    place: () => ({
      ...ALONE,
      // A worker's stream stands for many clients: which of them have nothing to hope for, the worker decides.
      hopeless: () => false,
      refusal: () => undefined,
    }),
    async open(core, config, answers) {
      const feed = await Feed.open(core);
      if (!feed.ok) return feed;
      const crew = await startCrew(count, level, core, config, answers, feed.value);
      if (crew.ok) return ok(new WorkersFront(core, answers, feed.value, crew.value));
      await feed.value.close();
      return crew;
    },
  };
}

async function startCrew(
  count: number,
  level: LogLevel,
  core: Core,
  config: Config,
  answers: XdsAnswers,
  feed: Feed,
): Promise<Result<Crew>> {
  const port = await choosePort(config);
  if (!port.ok) return port;
  const { text, file } = config.source;
  return Crew.start(count, {
    log: core.log,
    conditions: core.conditions,
    start: {
      kind: 'start',
      text,
      startedText: text,
      file,
      ...(port.value === undefined ? {} : { port: port.value }),
      feed: feed.socket,
      relayId: core.loops.own,
      level,
      version: core.version,
    },
    answer: (what, body) => answerWorker(what, body, answers.clientStatus),
    changed: () => core.changed(),
    restarted: () => core.metrics.workerRestarts().inc(),
  });
}

class WorkersFront implements Front {
  readonly address: string;
  readonly clients: Crew;
  readonly #core: Core;
  readonly #answers: XdsAnswers;
  readonly #feed: Feed;
  readonly #unsubscribe: () => void;

  constructor(core: Core, answers: XdsAnswers, feed: Feed, crew: Crew) {
    this.#core = core;
    this.#answers = answers;
    this.#feed = feed;
    this.clients = crew;
    this.address = crew.address;
    this.#unsubscribe = core.onChange(() => crew.tell(this.#news()));
    crew.tell(this.#news());
  }

  unready(): string | undefined {
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

  #news(): News {
    const { upstreams } = this.#core.relay;
    const down = upstreams.filter((upstream) => upstream.state().down).map(({ name }) => name);
    const refused = upstreams.flatMap((upstream) => {
      const refusals = upstream.refusals();
      if (refusals === undefined) return [];
      return { upstream: upstream.name, message: refusals.message, parameters: [...refusals.parameters] };
    });
    return { kind: 'news', ready: this.#answers.serving(), down, refused };
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
