import type { Load } from '../assembly/admission.ts';
import { Core } from '../assembly/core.ts';
import { LocalClients } from '../assembly/local-clients.ts';
import { inForce } from '../assembly/needs-restart.ts';
import { XdsListener } from '../assembly/xds-listener.ts';
import type { Config } from '../config/config.ts';
import { parseConfig } from '../config/load.ts';
import { problemLine } from '../config/source.ts';
import { systemClock } from '../model/clock.ts';
import { fail, ok, type Result } from '../model/result.ts';
import type { Log } from '../observe/log.ts';
import { workerConfig } from './feed.ts';
import { feedUpstream } from './feed-upstream.ts';
import { Line } from './line.ts';
import type { News, Start, ToPrimary, ToWorker } from './messages.ts';
import { Outlook } from './outlook.ts';
import { answerQuestion, askClientStatus } from './questions.ts';

/** How long the primary may take to ask all workers, in milliseconds. */
const patience = 10_000;

/** So many more streams and connections cannot come within `leisure` milliseconds. */
const farAway = 5000;
const leisure = 50;

export interface WorkerOptions {
  /** Unlike the number, never used again. */
  readonly id: number;
  readonly start: Start;
  readonly log: Log;
  readonly environment: Readonly<Record<string, string | undefined>>;
  readonly send: (message: ToPrimary) => void;
}

/** A serving process: a relay with one upstream, the primary. */
export class Worker {
  readonly #options: WorkerOptions;
  readonly #core: Core;
  readonly #clients: LocalClients;
  readonly #line: Line;
  readonly #outlook: Outlook;
  #news: Pick<News, 'ready'> = { ready: false };
  #elsewhere: Load = { streams: 0, connections: 0 };
  #reporting = false;
  #listener: XdsListener | undefined;

  private constructor(config: Config, options: WorkerOptions) {
    this.#options = options;
    const { id, log, start, send } = options;
    this.#outlook = new Outlook(config.upstreams, systemClock, () => this.#core.relay.changed());
    this.#core = new Core(
      workerConfig(config, start),
      { log, version: start.version, processMetrics: true },
      {
        streamPrefix: `${id}-`,
        elsewhere: () => this.#elsewhere,
        loadChanged: () => this.#report(),
        hopeless: (type, selector) => this.#outlook.hopeless(type, selector),
        refusal: (interest) => this.#outlook.refusal(interest),
        relayId: start.relayId,
        choosesElsewhere: true,
        wanted: ({ type, selector }) => this.#outlook.asked(type, selector),
        changed: () => {},
      },
    );
    this.#clients = new LocalClients(this.#core.relay);
    const clients = this.#clients;
    this.#line = new Line({
      clock: systemClock,
      patience,
      send,
      answer: (what, body) => answerQuestion(what, body, { clients, series: () => this.#core.series() }),
    });
  }

  /** Resolves with the worker when it listens, and has said so. */
  static async start(options: WorkerOptions): Promise<Result<Worker>> {
    const config = readConfig(options);
    if (!config.ok) return config;
    const worker = new Worker(config.value, options);
    const listening = await worker.#open();
    return listening.ok ? ok(worker) : listening;
  }

  receive(message: Exclude<ToWorker, Start>): void {
    switch (message.kind) {
      case 'reload':
        this.#reload(message.text);
        return;
      case 'news':
        this.#news = message;
        this.#outlook.news(message);
        this.#core.changed();
        if (message.refused.length > 0) this.#core.relay.server.refusalsChanged();
        return;
      case 'elsewhere':
        this.#elsewhere = message.load;
        return;
      case 'drain':
        return;
      case 'ask':
      case 'answer':
        this.#line.receive(message);
        return;
      default:
        message satisfies never;
    }
  }

  /** Ends the streams over the time given; then everything is closed. */
  async drain(milliseconds: number): Promise<void> {
    this.#core.beginDrain();
    await this.#listener?.drain(milliseconds);
    await this.#core.relay.stop();
    this.#line.close();
  }

  async #open(): Promise<Result<undefined>> {
    const { start, send } = this.#options;
    const { relay, loops } = this.#core;
    const feed = feedUpstream(this.#core, start.feed, relay);
    loops.onGrowth(() => feed.reannounce());
    relay.start([feed]);
    const listener = await XdsListener.open(this.#core, {
      serving: () => this.#news.ready && !this.#core.isDraining,
      clientStatus: (question) =>
        question.scope.kind === 'connection'
          ? this.#clients.configs(question)
          : askClientStatus(this.#line, question),
    });
    if (!listener.ok) return listener;
    this.#listener = listener.value;
    send({ kind: 'listening', address: listener.value.address });
    return ok(undefined);
  }

  #reload(text: string): void {
    const config = readConfig({ ...this.#options, start: { ...this.#options.start, text } });
    if (!config.ok) {
      // The primary has read the same text.
      this.#options.log.error('a worker cannot read the new configuration', { error: config.error });
      return;
    }
    this.#outlook.reload(config.value.upstreams);
    this.#core.reload(workerConfig(config.value, this.#options.start));
  }

  /** Once for all that happens meanwhile: at leisure while the limit is far, else soon. */
  #report(): void {
    if (this.#reporting) return;
    this.#reporting = true;
    const { limits } = this.#core.config;
    const { streams, connections } = this.#load;
    const room = Math.min(
      limits.maxStreams - streams - this.#elsewhere.streams,
      limits.maxConnections - connections - this.#elsewhere.connections,
    );
    systemClock.after(room > farAway ? leisure : 0, () => {
      this.#reporting = false;
      this.#options.send({ kind: 'here', load: this.#load });
    });
  }

  get #load(): Load {
    const { relay, admission } = this.#core;
    return { streams: relay.server.size, connections: admission.connections };
  }
}

function readConfig({ start, environment }: Pick<WorkerOptions, 'start' | 'environment'>): Result<Config> {
  const read = parseConfig(start.text, start.file, environment);
  const started = parseConfig(start.startedText, start.file, environment);
  if (read.ok) return ok(started.ok ? inForce(started.value, read.value) : read.value);
  return fail(read.error.map((problem) => problemLine(start.file, problem)).join('; '));
}
