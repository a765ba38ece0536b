import { isDeepStrictEqual } from 'node:util';
import { create } from '@bufbuild/protobuf';
import { Listed, nextOffset } from '../admin/answers.ts';
import { answerTooLarge, type ClientStatusQuery } from '../admin/csds.ts';
import { mergeClasses, mergedRows } from '../admin/fleet-survey.ts';
import {
  type ClientsStatus,
  type ClientsView,
  mergeLoads,
  mergeStatus,
  noSuchClient,
} from '../admin/local-clients.ts';
import { mergeAcceptances, NOBODY_MISSING, noAnswer, noAnswerOf } from '../admin/missing.ts';
import { clientQuery, clientsQuery, optionalType, type Request, valueOf } from '../admin/requests.ts';
import type { Answer, Call } from '../admin/service.ts';
import type { ClientListeners, ClientServing } from '../client-serving.ts';
import type { Config } from '../config/config.ts';
import type { Core, Load } from '../core.ts';
import { type Client, StatusResponseSchema } from '../gen/distributary/admin/v1/admin_pb.ts';
import { type TapMessage, WaitResponseSchema } from '../gen/distributary/admin/v1/delivery_pb.ts';
import type { ClientHolding } from '../gen/distributary/admin/v1/fleet_pb.ts';
import type { NodeSubscriptions } from '../gen/distributary/workers/v1/workers_pb.ts';
import { systemClock } from '../model/clock.ts';
import { systemRandom } from '../model/random.ts';
import { fail, ok, type Result } from '../model/result.ts';
import { Turns } from '../model/time-slices.ts';
import type { CountersOrPid } from '../observe/figures.ts';
import { formatSum, type Series, sumSeries } from '../observe/series.ts';
import { tickOf } from '../observe/watchdog.ts';
import { mergeEffects } from '../reload-effect.ts';
import type { SessionKeeper } from '../session-keeper.ts';
import { type EncodedStatus, sizeOf } from '../wire/client-status.ts';
import { ASKER_GONE, rpcError } from '../wire/connect.ts';
import { Code, type GrpcStatus } from '../wire/grpc-status.ts';
import type { Message, ToWorker } from './ipc-messages.ts';
import { workerSocket } from './private-socket.ts';
import type { WorkersFleet } from './reporters.ts';
import type { WorkerClient } from './worker-client.ts';
import { forkWorker, WorkerSlot } from './worker-slot.ts';

/** Rows that a worker is asked for at once: they are decoded in about 2 ms. */
const pageRows = 500;
/** A limit, so that those that reject something come first, that leaves nobody out. */
const wholeList = 0xff_ff_ff_ff;

/** How much longer than its drain timeout a worker may take before it is killed, in milliseconds. */
const drainGraceMs = 2000;

const nobodyListens = 'no worker listens';
const tapAgain = 'a worker does not listen yet: tap again to see all clients';

type Directions = Pick<Message<'start'>, 'ports' | 'directory' | 'logFormat'>;

/** The workers of a primary: they serve its clients, and what it says of clients is theirs. */
export class WorkerPool implements ClientServing, ClientsView {
  readonly inWorkers = true;
  readonly #core: Core;
  readonly #directions: Directions;
  readonly #fleet: WorkersFleet;
  readonly #sessions: SessionKeeper;
  /** For clients' health checks: whether the relay is ready. */
  readonly #serving: () => boolean;
  /** What workers connect to. */
  readonly #sockets: AsyncDisposableStack;
  /** The ports, from other relays. */
  readonly #reserved: AsyncDisposableStack;
  readonly #slots: WorkerSlot[] = [];
  #config: Config;
  /** What the workers were asked last about what waits. */
  #question: Message<'waiting'> | undefined;
  /** As the workers know it; undefined: they have just been started. */
  #primaryState: Message<'primary_state'> | undefined;
  /** The counters of workers that have ended. */
  #endedSeries: Promise<readonly Series[]> = Promise.resolve([]);
  readonly #loads: WorkerLoads;
  /** By identity; undefined: who may ask for all clients. */
  readonly #statusTurns = new Turns<string | undefined>();
  #wasListening = false;
  /** Called for each change while the first workers start. */
  #onStartup: (() => void) | undefined;
  #unsubscribe = (): unknown => undefined;

  constructor(
    core: Core,
    config: Config,
    directions: Directions,
    fleet: WorkersFleet,
    sessions: SessionKeeper,
    serving: () => boolean,
    sockets: AsyncDisposableStack,
    reserved: AsyncDisposableStack,
  ) {
    this.#core = core;
    this.#config = config;
    this.#directions = directions;
    this.#fleet = fleet;
    this.#sessions = sessions;
    this.#serving = serving;
    this.#sockets = sockets;
    this.#reserved = reserved;
    for (let number = 1; number <= config.workers; number++) this.#slots.push(this.#slot(number));
    this.#loads = new WorkerLoads(this.#slots, config.limits);
    core.logLevels.onChange(() => this.#send(this.#logLevels()));
    sessions.onChange(() => this.#send({ kind: 'tls_sessions', sessions: sessions.shared() }));
  }

  /** Resolves when all of them listen; the error is the first reason why one cannot. */
  async start(): Promise<Result<this>> {
    const failure = await this.#listening();
    if (failure !== undefined) {
      await this.#end(0);
      return fail(failure);
    }
    this.#fleet.workersStarted(this);
    this.#unsubscribe = this.#core.onChange(() => this.#tellState());
    this.#tellState();
    return ok(this);
  }

  /** The addresses on which the workers listen; none while no worker does. */
  get addresses(): ClientListeners['addresses'] {
    return this.#slots.find(({ listening }) => listening)?.addresses ?? [];
  }

  get clients(): this {
    return this;
  }

  /** Some worker listens: that is enough to serve clients. */
  notReadyReason(): string | undefined {
    return this.#slots.some(({ listening }) => listening) ? undefined : nobodyListens;
  }

  tell(message: Message<'waiting' | 'canaries'>): void {
    if (message.kind === 'waiting') this.#question = message;
    this.#send(message);
  }

  reports(): readonly (Message<'canary_report'> | undefined)[] {
    return this.#slots.filter(({ listening }) => listening).map(({ report }) => report);
  }

  reload(config: Config): void {
    this.#loads.limits = config.limits;
    this.#config = config;
    this.#send({ kind: 'reload', config: withoutText(config) });
    this.#fleet.moved();
  }

  /** Ends the clients' streams over the time given, and then the workers. */
  async drain(milliseconds: number): Promise<void> {
    this.#fleet.stop();
    this.#send({ kind: 'drain', milliseconds });
    // They listen no more, so the next relay may begin while their clients leave.
    await this.#reserved.disposeAsync();
    await this.#end(milliseconds + drainGraceMs);
    this.#unsubscribe();
    await this.#sockets.disposeAsync();
  }

  async status(): Promise<ClientsStatus> {
    const all = await this.#asked((client) => client.ask((admin) => admin.status({})));
    return mergeStatus(all.map(({ slot, said }) => statusOf(slot.status, said)));
  }

  /** Page by page from each worker, as the answer is written: nobody holds all of it. */
  async listClients(request: Request<'listClients'>): Promise<Answer<'listClients'>> {
    const { limit, offset, pageSize = Infinity } = clientsQuery(request);
    const silent = new Set<number>();
    const first = { ...request, offset: 0, pageSize: 1 };
    const answers = await this.#asked((one) => one.askInTurn((admin) => admin.listClients(first)), silent);
    const none = { total: 0, matching: 0, rejecting: 0 };
    const heads = answers.map(({ slot, said = none }) => ({ slot, said }));
    const sum = (key: 'total' | 'matching' | 'rejecting'): number =>
      heads.reduce((all, { said }) => all + said[key], 0);
    const matching = sum('matching');
    const parts =
      limit === undefined
        ? heads.map(({ slot, said }) => ({ slot, from: 0, to: said.matching }))
        : [
            ...heads.map(({ slot, said }) => ({ slot, from: 0, to: said.rejecting })),
            ...heads.map(({ slot, said }) => ({ slot, from: said.rejecting, to: said.matching })),
          ];
    const wanted = Math.min(matching, offset + (limit ?? Infinity));
    const rows = this.#rows(request, parts, Math.min(wanted, offset + pageSize));
    return new Listed({}, { field: 'clients', rows }, (written) => ({
      total: sum('total'),
      matching,
      rejecting: sum('rejecting'),
      nextOffset: nextOffset(offset, written, wanted),
      ...noAnswer(silent),
    }));
  }

  /** `end`: where the list ends over all parts. */
  async *#rows(
    request: Request<'listClients'>,
    parts: readonly { readonly slot: WorkerSlot; readonly from: number; readonly to: number }[],
    end: number,
  ): AsyncIterable<readonly Client[]> {
    let before = 0;
    for (const { slot, from, to } of parts) {
      const last = from + Math.min(to - from, end - before);
      for (let at = from + Math.max(0, request.offset - before); at < last; ) {
        const limit = request.limit === 0 ? 0 : wholeList;
        const asked = { ...request, limit, offset: at, pageSize: Math.min(pageRows, last - at) };
        const page = this.#heard(slot, await slot.client?.askInTurn((admin) => admin.listClients(asked)));
        if (page === undefined || page.clients.length === 0) break;
        yield page.clients;
        at += page.clients.length;
      }
      before += to - from;
    }
  }

  listClasses(): Promise<Answer<'listClasses'>> {
    return this.#merged((client) => client.ask((admin) => admin.listClasses({})), mergeClasses);
  }

  load(request: Request<'load'>): Promise<Answer<'load'>> {
    // What is among the first in one worker may be far down in another.
    const all = { ...request, limit: 0 };
    return this.#merged((client) => client.ask((admin) => admin.load(all)), mergeLoads(request));
  }

  /** Page by page too. */
  async getClient(request: Request<'getClient'>): Promise<Answer<'getClient'>> {
    const { id, limit, offset } = clientQuery(request);
    const { type, name } = request;
    const server = this.#serverOf(id);
    const page = (from: number, most: number) => {
      const asked = { id, type, name, offset: from, limit: Math.min(most, pageRows) };
      return server.askInTurn((admin) => admin.getClient(asked));
    };
    const first = valueOf(await page(offset, limit));
    const { holdings, total } = first;
    async function* rows(): AsyncIterable<readonly ClientHolding[]> {
      yield holdings;
      for (let at = holdings.length; at < limit && offset + at < total; ) {
        const next = await page(offset + at, limit - at);
        if (!next.ok || next.value.holdings.length === 0) return;
        yield next.value.holdings;
        at += next.value.holdings.length;
      }
    }
    return new Listed({ ...first, holdings: [] }, { field: 'holdings', rows: rows() }, (written) => ({
      nextOffset: nextOffset(offset, written, total),
    }));
  }

  /** What this process has counted, and the workers since their start. */
  async counters(): Promise<readonly CountersOrPid[]> {
    // The streams of this process feed the workers.
    const counters = this.#core.counters();
    const happened = counters.happened.filter(([, what]) =>
      ['turned away', 'refused', 'restarts'].includes(what),
    );
    const own = { ...counters, happened, streams: 0, connections: 0 };
    const workers = await this.#asked((client) => client.counters());
    return [own, ...workers.map(({ slot, said }) => said ?? slot.status.pid)];
  }

  /** Of which upstreams these nodes have subscriptions, in whatever worker. */
  async subscribed(nodes: string[]): Promise<NodeSubscriptions[]> {
    const answers = await this.#asked((client) => client.subscribed(nodes));
    return mergedRows(
      answers.flatMap(({ said }) => said ?? []),
      ({ node }) => node,
      (a, b) => ({ ...a, upstreams: [...new Set([...a.upstreams, ...b.upstreams])] }),
    );
  }

  async explain(request: Request<'explain'>): Promise<Answer<'explain'>> {
    return valueOf(await this.#serverOf(request.client).ask((admin) => admin.explain(request)));
  }

  async getResource(request: Request<'getResource'>): Promise<Answer<'getResource'>> {
    const server = this.#serverOf(request.client);
    const { variants, nextOffset, truncated } = valueOf(
      await server.ask((admin) => admin.getResource(request)),
    );
    return new Listed({ truncated }, { field: 'variants', rows: variants }, (written) => ({
      nextOffset: written < variants.length ? request.offset + written : nextOffset,
    }));
  }

  async compareConfiguration(
    request: Request<'compareConfiguration'>,
    { signal }: Call,
  ): Promise<Answer<'compareConfiguration'>> {
    const silent = new Set<number>();
    const effects: Answer<'compareConfiguration'>[] = [];
    for (const slot of this.#slots) {
      const answered = await slot.client?.ask((admin) => admin.compareConfiguration(request, { signal }));
      if (signal.aborted) throw rpcError(ASKER_GONE);
      if (answered?.ok === false && answered.error.code === Code.INVALID_ARGUMENT) valueOf(answered);
      const effect = this.#heard(slot, answered, silent);
      if (effect !== undefined) effects.push(effect);
    }
    return { ...mergeEffects(effects), ...noAnswer(silent) };
  }

  /** A worker that does not answer has clients that may not have accepted anything. */
  async wait(request: Request<'wait'>): Promise<Answer<'wait'>> {
    const silent = new Set<number>();
    const all = await this.#asked((client) => client.ask((admin) => admin.wait(request)), silent);
    const unheard = ({ number }: WorkerSlot) => (silent.has(number) ? noAnswerOf(number) : NOBODY_MISSING);
    return create(WaitResponseSchema, mergeAcceptances(all.map(({ slot, said }) => said ?? unheard(slot))));
  }

  tap(request: Request<'tap'>, call: Call): AsyncIterable<TapMessage> {
    const { client, type } = request;
    optionalType(type);
    const slots = client === '' ? this.#slots : this.#slots.filter((slot) => slot.owns(client));
    if (slots.length === 0 && client !== '') noSuchClient(client);
    const sources = slots.flatMap((slot) => slot.client?.tap(request, call) ?? []);
    // Nothing would add the clients of a worker that listens later.
    if (sources.length < slots.length) throw rpcError({ code: Code.UNAVAILABLE, message: tapAgain });
    return merged(sources);
  }

  /** One answer at a time, as in one process: each holds up to maxBytes until all workers have answered. */
  async configs({ gone, ...query }: ClientStatusQuery): Promise<Result<EncodedStatus, GrpcStatus>> {
    const who = query.scope.kind === 'identity' ? query.scope.identity : undefined;
    if (!(await this.#statusTurns.begin(who, gone))) return fail(ASKER_GONE);
    try {
      return await this.#gathered(query);
    } finally {
      this.#statusTurns.end();
    }
  }

  /** Workers are asked one after the other: what is left of maxBytes is the bound of the next one. */
  async #gathered(query: ClientStatusQuery): Promise<Result<EncodedStatus, GrpcStatus>> {
    const pieces: Uint8Array[] = [];
    for (const slot of this.#slots) {
      const answered = await slot.client?.configs({ ...query, maxBytes: query.maxBytes - sizeOf(pieces) });
      if (answered?.ok === false) {
        const { error } = answered;
        if (error.code === Code.RESOURCE_EXHAUSTED) return fail(answerTooLarge(query.maxBytes));
        if (error.code === Code.INVALID_ARGUMENT) return fail(error);
      }
      pieces.push(...(this.#heard(slot, answered) ?? []));
    }
    return ok(pieces);
  }

  /** With the series of all workers, also of those that have ended. */
  async metricsText(): Promise<string> {
    const [own] = await Promise.all([
      this.#core.metrics.series(),
      ...this.#slots.map(async (slot) => {
        const { pid } = slot.status;
        const series = this.#heard(slot, await slot.client?.series());
        // A worker that does not answer is counted with its last values, because sums must not shrink. The counts of one
        // that has ended meanwhile are not its successor's.
        if (series !== undefined && slot.status.pid === pid) slot.series = series;
      }),
    ]);
    // Before anything is awaited: the counts of a worker that ends meanwhile would be in neither of the two.
    const known = this.#slots.map(({ series, number }) => workerSeries(series, number));
    return formatSum([primarySeries(own), await this.#endedSeries, ...known]);
  }

  /** The worker that has this client's stream. */
  #serverOf(client: string): WorkerClient {
    return this.#slots.find((slot) => slot.owns(client))?.client ?? noSuchClient(client);
  }

  /** What those say that answer, and who does not. */
  async #merged<T, Merged extends object>(
    question: (client: WorkerClient) => Promise<Result<T, GrpcStatus>>,
    merge: (answers: readonly T[]) => Merged,
  ): Promise<Merged & ReturnType<typeof noAnswer>> {
    const silent = new Set<number>();
    const answers = await this.#asked(question, silent);
    const said = answers.map((one) => one.said).filter((one) => one !== undefined);
    return { ...merge(said), ...noAnswer(silent) };
  }

  /** What each of them says; undefined: it does not listen, or does not answer. */
  #asked<T>(question: (client: WorkerClient) => Promise<Result<T, GrpcStatus>>, silent?: Set<number>) {
    return Promise.all(
      this.#slots.map(async (slot) => {
        const answered = await (slot.client && question(slot.client));
        return { slot, said: this.#heard(slot, answered, silent) };
      }),
    );
  }

  /** The answer of a worker; undefined: it is left out. That is logged, unless its process has ended; `silent` gets its number. */
  #heard<T>(
    { number }: WorkerSlot,
    answered: Result<T, GrpcStatus> | undefined,
    silent?: Set<number>,
  ): T | undefined {
    if (answered === undefined) return undefined;
    const { conditions } = this.#core;
    const condition = `worker ${number}`;
    if (answered.ok) {
      conditions.forget(condition);
      return answered.value;
    }
    silent?.add(number);
    const { code, message } = answered.error;
    if (code !== Code.UNAVAILABLE) {
      const said = 'a worker does not answer: what is shown about clients is incomplete';
      conditions.set(condition, message, 'warn', said, { number, reason: message });
    }
    return undefined;
  }

  #slot(number: number): WorkerSlot {
    const { log, metrics } = this.#core;
    return new WorkerSlot({
      number,
      socket: workerSocket(this.#directions.directory, number),
      clock: systemClock,
      tickMs: tickOf(this.#config.watchdog),
      log,
      random: systemRandom,
      fork: forkWorker,
      opening: () => this.#opening(number),
      restarted: () => metrics.count.workerRestarts().inc(),
      heard: (message) => {
        const { recorder, traffic } = this.#core;
        if (message.kind === 'answers') recorder?.reported(message);
        if (message.kind === 'canary_report') this.#fleet.reported(message);
        if (message.kind === 'intermediate') this.#sessions.shown(message.listener, message.certificate);
        if (message.kind !== 'traffic') return;
        for (const report of message.reports) traffic.add(report);
        for (const stream of message.left) traffic.left(stream);
      },
      changed: () => this.#changed(),
      ended: (series, listened, report) => {
        const left = countersOfEnded(series);
        this.#endedSeries = this.#endedSeries.then((sum) => sumSeries([sum, left]));
        if (listened) this.#fleet.workerEnded(report);
      },
    });
  }

  #send(message: ToWorker): void {
    for (const slot of this.#slots) slot.send(message);
  }

  #logLevels(): ToWorker {
    return { kind: 'log_levels', overrides: this.#core.logLevels.overrides() };
  }

  #opening(slot: number): readonly ToWorker[] {
    const { loops, logLevels, version } = this.#core;
    const start: ToWorker = {
      kind: 'start',
      ...this.#directions,
      config: withoutText(this.#config),
      slot,
      relayId: loops.relayId,
      level: logLevels.initial,
      version,
      sessions: this.#sessions.shared(),
      canaries: this.#fleet.told,
    };
    const told = [this.#primaryState, this.#question].filter((one) => one !== undefined);
    return [start, this.#logLevels(), ...told];
  }

  /** Sends the primary's state to the workers, if it has changed. */
  #tellState(): void {
    const { relay, servedTypes } = this.#core;
    const down = relay.upstreams.filter((upstream) => upstream.state().down).map(({ name }) => name);
    const refused = new Map(
      relay.upstreams.flatMap((upstream) => {
        const { message, parameters } = upstream.refusals?.() ?? {};
        return message === undefined
          ? []
          : [[upstream.name, { message, parameters: new Set(parameters) }] as const];
      }),
    );
    const state = { down, refused, ready: this.#serving(), served: new Set(servedTypes) };
    const message: Message<'primary_state'> = { kind: 'primary_state', ...state };
    if (isDeepStrictEqual(message, this.#primaryState)) return;
    this.#primaryState = message;
    this.#send(message);
  }

  #changed(): void {
    this.#onStartup?.();
    const isListening = this.notReadyReason() === undefined;
    if (isListening !== this.#wasListening) {
      this.#wasListening = isListening;
      this.#core.changed();
    }
    this.#loads.changed();
  }

  /** Why not all of them could start; undefined when all listen. */
  #listening(): Promise<string | undefined> {
    return new Promise((resolve) => {
      this.#onStartup = () => {
        const failed = this.#slots.find(({ lastError }) => lastError !== '');
        const waits = this.#slots.some(({ listening }) => !listening);
        if (failed === undefined && waits) return;
        this.#onStartup = undefined;
        resolve(failed?.lastError);
      };
    });
  }

  async #end(milliseconds: number): Promise<void> {
    await Promise.all(this.#slots.map((slot) => slot.end(milliseconds)));
  }
}

/** What a worker says, and what is known of it. */
function statusOf(worker: WorkerSlot['status'], said: Answer<'status'> | undefined): ClientsStatus {
  const heard = said ?? create(StatusResponseSchema);
  // The primary itself reports types that are only cached.
  const types = heard.types.filter(({ subscriptions }) => subscriptions > 0);
  return { ...heard, types, workers: [{ ...worker, clients: said?.clients ?? worker.clients }] };
}

/** What several sources give, as it comes: one item of each waits, so that a slow reader holds back all of them. */
async function* merged<T>(sources: readonly AsyncIterable<T>[]): AsyncIterable<T> {
  const iterators = sources.map((source) => source[Symbol.asyncIterator]());
  const pending = new Map(iterators.map((iterator) => [iterator, next(iterator)]));
  try {
    while (pending.size > 0) {
      const { iterator, result } = await Promise.race(pending.values());
      if (result.done === true) {
        pending.delete(iterator);
        continue;
      }
      pending.set(iterator, next(iterator));
      yield result.value;
    }
  } finally {
    for (const iterator of pending.keys()) void iterator.return?.();
  }
}

async function next<T>(iterator: AsyncIterator<T>) {
  return { iterator, result: await iterator.next() };
}

/** A worker asks for no text of it, which has all secrets and is dear to describe. */
const withoutText = (config: Config): Config => ({
  ...config,
  source: { ...nowhere, file: config.source.file, digest: config.source.digest },
});

const nowhere = { text: '', value: undefined, dump: undefined, places: new Map<never, never>() };

/** The metrics of clients. */
const ofClients =
  /^distributary_(?:downstream|load|peer|classes|propagation|acknowledged|cache_lookups)(?:_|$)/;
/** Those of certificates too: of xds and rest in a worker, of admin and upstreams in the primary. */
const isOfWorkers = ({ name }: Series): boolean =>
  ofClients.test(name) || name.startsWith('distributary_certificate_');
const feedHistogram = 'distributary_worker_feed_seconds';

/**
 * The primary's series as the relay shows them. The primary's streams are those of its workers, which are no clients: its
 * gauges of clients say 0. How long an update takes to a worker is a histogram of its own.
 */
export function primarySeries(list: readonly Series[]): readonly Series[] {
  return list.flatMap((series) => {
    if (series.name === 'distributary_propagation_seconds') return asFeedHistogram(series);
    // Upstream sessions that were refused are the clients', too. Of load reports each process counts its own part.
    if (/^distributary_(?:downstream_rejected_total$|load_)/.test(series.name)) return series;
    if (!ofClients.test(series.name)) return series;
    // Of a type or service that no worker has.
    return series.type === 'gauge' ? withValues(series, (one) => ({ ...one, value: 0 })) : [];
  });
}

/**
 * A worker's series as the relay shows them: those of clients and of certificates, to be merged over all
 * workers, and those of the process with the worker's number as a label. Those of the worker's cache and upstream would repeat the primary's.
 */
export function workerSeries(list: readonly Series[], number: number): readonly Series[] {
  return list.flatMap((series) => {
    if (isOfWorkers(series)) return series;
    if (series.name.startsWith('distributary_')) return [];
    return withValues(series, (one) => ({ ...one, labels: { ...one.labels, worker: number } }));
  });
}

/** The counters of a worker that has ended. Sums must not shrink, or they would look like a restart. */
export function countersOfEnded(list: readonly Series[]): readonly Series[] {
  return list.filter((series) => series.type !== 'gauge' && isOfWorkers(series));
}

type Value = Series['values'][number];

const withValues = (series: Series, changed: (one: Value) => Value): Series => ({
  ...series,
  values: series.values.map(changed),
});

function asFeedHistogram(series: Series): Series {
  const renamed = withValues(series, ({ metricName = series.name, ...value }) => ({
    ...value,
    metricName: metricName.replace(series.name, feedHistogram),
  }));
  const help = "From the receipt of an update to its handover to a worker's stream";
  return { ...renamed, name: feedHistogram, help };
}

/** A worker, as far as its clients count. */
type LoadedWorker = Pick<WorkerSlot, 'load' | 'send'>;
type Limits = Pick<Config['limits'], 'maxStreams' | 'maxConnections'>;

/** What the clients of all workers have open. Each worker hears what the others have, and takes no more than is left. */
export class WorkerLoads {
  limits: Limits;
  readonly #workers: readonly LoadedWorker[];
  /** How many streams and connections of each worker have a place within the limits. */
  readonly #places: Record<keyof Load, readonly number[]> = { streams: [], connections: [] };
  #announcing = false;

  constructor(workers: readonly LoadedWorker[], limits: Limits) {
    this.#workers = workers;
    this.limits = limits;
  }

  /** One message to each worker for all that happens meanwhile. */
  changed(): void {
    if (this.#announcing) return;
    this.#announcing = true;
    setImmediate(() => {
      this.#announcing = false;
      this.#announce();
    });
  }

  #announce(): void {
    const streams = this.#give('streams', this.limits.maxStreams);
    const connections = this.#give('connections', this.limits.maxConnections);
    for (const [at, worker] of this.#workers.entries()) {
      const load = { streams: streams[at]?.others ?? 0, connections: connections[at]?.others ?? 0 };
      worker.send({ kind: 'load_elsewhere', load, most: { ...streams[at]?.most, ...connections[at]?.most } });
    }
  }

  /**
   * What each worker hears: what the others have, and how many it keeps, if not all that it has have a place. Two workers can
   * take the last place at the same time: neither has heard of the other's then. Who has a place keeps it, also if the limit
   * is lower now.
   */
  #give(what: keyof Load, limit: number) {
    const loads = this.#workers.map(({ load }) => load[what]);
    const kept = loads.map((load, at) => Math.min(load, this.#places[what][at] ?? 0));
    let free = limit - sum(kept);
    this.#places[what] = kept.map((places, at) => {
      const more = Math.max(0, Math.min((loads[at] ?? 0) - places, free));
      free -= more;
      return places + more;
    });
    return loads.map((load, at) => {
      const places = this.#places[what][at] ?? 0;
      const most: Partial<Load> = places < load ? { [what]: places } : {};
      return { others: sum(loads) - load, most };
    });
  }
}

const sum = (counts: readonly number[]): number => counts.reduce((all, count) => all + count, 0);
