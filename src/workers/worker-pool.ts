import { create } from '@bufbuild/protobuf';
import { Listed } from '../admin/answers.ts';
import type { Plain } from '../admin/plain.ts';
import { clientQuery, clientsQuery, optionalType, type Request, valueOf } from '../admin/requests.ts';
import type { Answer, Call } from '../admin/service.ts';
import type { Load } from '../assembly/admission.ts';
import type { ListenerAddress } from '../assembly/client-serving.ts';
import { mergeEffects } from '../assembly/reload-effect.ts';
import { type Client, StatusResponseSchema } from '../gen/distributary/admin/v1/admin_pb.ts';
import { type TapMessage, WaitResponseSchema } from '../gen/distributary/admin/v1/delivery_pb.ts';
import type { ClientHolding } from '../gen/distributary/admin/v1/fleet_pb.ts';
import { answerTooLarge, type ClientStatusQuery } from '../inspect/csds.ts';
import { mergeClasses } from '../inspect/fleet-survey.ts';
import { type ClientsStatus, type ClientsView, mergeStatus, noSuchClient } from '../inspect/local-clients.ts';
import { mergeAcceptances, NOBODY_MISSING, noAnswer, noAnswerOf } from '../inspect/missing-clients.ts';
import { systemClock } from '../model/clock.ts';
import { systemRandom } from '../model/random.ts';
import { fail, ok, type Result } from '../model/result.ts';
import type { Conditions } from '../observe/conditions.ts';
import type { Counters } from '../observe/counters.ts';
import type { Log } from '../observe/log.ts';
import type { LogLevels } from '../observe/log-levels.ts';
import { type Series, sumSeries } from '../observe/series.ts';
import { type EncodedStatus, sizeOf } from '../wire/client-status.ts';
import { Code, type GrpcStatus } from '../wire/grpc-status.ts';
import type {
  AnswersMessage,
  CanariesMessage,
  CanaryReport,
  PrimaryState,
  Start,
  ToWorker,
  WaitingMessage,
} from './ipc-messages.ts';
import { countersOfEnded, workerSeries } from './merged-series.ts';
import { workerSocket } from './private-socket.ts';
import type { WorkerClient } from './worker-client.ts';
import { forkWorker } from './worker-process.ts';
import { type CanaryListener, WorkerSlot } from './worker-slot.ts';
import type { ReportingWorkers } from './workers-fleet.ts';

export interface WorkerPoolOptions {
  readonly log: Log;
  /** Of the watchdog, in milliseconds; undefined: nobody watches. */
  readonly tickMs: number | undefined;
  /** Workers have the same. */
  readonly logLevels: LogLevels;
  readonly conditions: Conditions;
  /** The first message to each worker. */
  readonly start: Omit<Start, 'slot' | 'canaries'>;
  /** Of clients, over all workers. */
  readonly maxStreams: number;
  readonly canaries: CanaryListener & {
    /** For a worker that starts; undefined: there is no rollout. */
    canaries(): CanariesMessage | undefined;
  };
  /** The clients of a worker have answered a change. */
  readonly answered: (message: AnswersMessage) => void;
  /** Whether a client can be served may have changed. */
  readonly changed: () => void;
  readonly restarted: () => void;
}

/** Rows that a worker is asked for at once: they are decoded in about 2 ms. */
const pageRows = 500;
/** A limit, so that those that reject something come first, that leaves nobody out. */
const wholeList = 0xff_ff_ff_ff;

/** A part of a worker's list. */
interface ListPart {
  readonly slot: WorkerSlot;
  readonly from: number;
  readonly to: number;
}

/** How much longer than its drain timeout a worker may take before it is killed, in milliseconds. */
const drainGraceMs = 2000;

/** The workers of a primary. */
export class WorkerPool implements ClientsView, ReportingWorkers {
  readonly inWorkers = true;
  readonly #options: WorkerPoolOptions;
  readonly #slots: readonly WorkerSlot[];
  #start: Omit<Start, 'slot' | 'canaries'>;
  /** What the workers were asked last about what waits. */
  #question: WaitingMessage | undefined;
  #primaryState: PrimaryState = { kind: 'primary_state', ready: false, down: [], served: [], refused: [] };
  /** The counters of workers that have ended. */
  #endedSeries: Promise<readonly Series[]> = Promise.resolve([]);
  readonly #loads: WorkerLoads;
  #wasListening = false;
  /** Called for each change while the first workers start. */
  #onStartup: (() => void) | undefined;

  private constructor(count: number, options: WorkerPoolOptions) {
    this.#options = options;
    this.#start = options.start;
    this.#slots = Array.from({ length: count }, (_, index) => this.#slot(index + 1));
    this.#loads = new WorkerLoads(this.#slots, options.maxStreams);
    options.logLevels.onChange(() => {
      for (const slot of this.#slots) slot.send(this.#logLevels());
    });
  }

  /** Resolves when all of them listen; the error is the first reason why one cannot. */
  static async start(count: number, options: WorkerPoolOptions): Promise<Result<WorkerPool>> {
    const pool = new WorkerPool(count, options);
    const failure = await pool.#listening();
    if (failure === undefined) return ok(pool);
    await pool.#end(0);
    return fail(failure);
  }

  /** The addresses on which the workers listen; none while no worker does. */
  get addresses(): readonly ListenerAddress[] {
    return this.#slots.find(({ listening }) => listening)?.addresses ?? [];
  }

  /** Some worker listens: that is enough to serve clients. */
  get listening(): boolean {
    return this.#slots.some(({ listening }) => listening);
  }

  /** Sends the primary's state to the workers, if it has changed. */
  setPrimaryState(state: PrimaryState): void {
    if (JSON.stringify(state) === JSON.stringify(this.#primaryState)) return;
    this.#primaryState = state;
    for (const slot of this.#slots) slot.send(state);
  }

  tell(message: WaitingMessage | CanariesMessage): void {
    if (message.kind === 'waiting') this.#question = message;
    for (const slot of this.#slots) slot.send(message);
  }

  reports(): readonly (CanaryReport | undefined)[] {
    return this.#slots.filter(({ listening }) => listening).map(({ report }) => report);
  }

  reload(text: string, maxStreams: number): void {
    this.#loads.maxStreams = maxStreams;
    this.#start = { ...this.#start, text };
    for (const slot of this.#slots) slot.send({ kind: 'reload', text });
  }

  /** Ends the clients' streams over the time given, and then the workers. */
  async drain(milliseconds: number): Promise<void> {
    for (const slot of this.#slots) slot.send({ kind: 'drain', milliseconds });
    await this.#end(milliseconds + drainGraceMs);
  }

  async status(): Promise<ClientsStatus> {
    const all = await Promise.all(
      this.#slots.map(async (slot) => {
        const heard = this.#heard(slot, await slot.client?.ask((admin) => admin.status({})));
        const { status } = slot;
        if (heard === undefined) return { ...create(StatusResponseSchema), workers: [status] };
        // The primary itself reports types that are only cached.
        const types = heard.types.filter(({ subscriptions }) => subscriptions > 0);
        return { ...heard, types, workers: [{ ...status, clients: heard.clients }] };
      }),
    );
    return mergeStatus(all);
  }

  /** Page by page from each worker, as the answer is written: nobody holds all of it. */
  async listClients(request: Request<'listClients'>): Promise<Answer<'listClients'>> {
    const { limit, offset, pageSize = Infinity } = clientsQuery(request);
    const silent = new Set<number>();
    const heads = await Promise.all(
      this.#slots.map(async (slot) => {
        const first = { ...request, offset: 0, pageSize: 1 };
        const answered = await slot.client?.askInTurn((admin) => admin.listClients(first));
        const head = this.#heard(slot, answered, silent);
        return {
          slot,
          total: head?.total ?? 0,
          matching: head?.matching ?? 0,
          rejecting: head?.rejecting ?? 0,
        };
      }),
    );
    const sum = (key: 'total' | 'matching' | 'rejecting'): number =>
      heads.reduce((all, head) => all + head[key], 0);
    const matching = sum('matching');
    const parts: readonly ListPart[] =
      limit === undefined
        ? heads.map(({ slot, matching: to }) => ({ slot, from: 0, to }))
        : [
            ...heads.map(({ slot, rejecting }) => ({ slot, from: 0, to: rejecting })),
            ...heads.map(({ slot, rejecting: from, matching: to }) => ({ slot, from, to })),
          ];
    const wanted = Math.min(matching, offset + (limit ?? Infinity));
    const rows = this.#rows(request, parts, Math.min(wanted, offset + pageSize));
    return new Listed({}, { field: 'clients', rows }, (written) => ({
      total: sum('total'),
      matching,
      rejecting: sum('rejecting'),
      nextOffset: written > 0 && offset + written < wanted ? offset + written : 0,
      ...noAnswer(silent),
    }));
  }

  /** `end`: where the list ends over all parts. */
  async *#rows(
    request: Request<'listClients'>,
    parts: readonly ListPart[],
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

  async listClasses(): Promise<Answer<'listClasses'>> {
    const silent = new Set<number>();
    const answers = await this.#ask((client) => client.ask((admin) => admin.listClasses({})), silent);
    return { ...mergeClasses(answers), ...noAnswer(silent) };
  }

  /** Page by page too. */
  async getClient(request: Request<'getClient'>): Promise<Answer<'getClient'>> {
    const { id, limit, offset } = clientQuery(request);
    const server = this.#serverOf(id);
    const page = (from: number, most: number) => {
      const asked = { id, offset: from, limit: Math.min(most, pageRows) };
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
      nextOffset: written > 0 && offset + written < total ? offset + written : 0,
    }));
  }

  /** What the workers have counted since their start, those that answer. */
  counters(): Promise<readonly Counters[]> {
    return this.#ask((client) => client.counters());
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
  ): Promise<Answer<'compareConfiguration'>> {
    const silent = new Set<number>();
    const effects: Answer<'compareConfiguration'>[] = [];
    for (const slot of this.#slots) {
      const answered = await slot.client?.ask((admin) => admin.compareConfiguration(request));
      if (answered?.ok === false && answered.error.code === Code.INVALID_ARGUMENT) valueOf(answered);
      const effect = this.#heard(slot, answered, silent);
      if (effect !== undefined) effects.push(effect);
    }
    return { ...mergeEffects(effects), ...noAnswer(silent) };
  }

  /** A worker that does not answer has clients that may not have accepted anything. */
  async wait(request: Request<'wait'>): Promise<Answer<'wait'>> {
    const all = await Promise.all(
      this.#slots.map(async (slot) => {
        if (slot.client === undefined) return NOBODY_MISSING;
        const answered = await slot.client.ask((admin) => admin.wait(request));
        return this.#heard(slot, answered) ?? noAnswerOf(slot.number);
      }),
    );
    return create(WaitResponseSchema, mergeAcceptances(all));
  }

  tap(request: Request<'tap'>, call: Call): AsyncIterable<Plain<TapMessage>> {
    const { client, type } = request;
    optionalType(type);
    const slots = client === '' ? this.#slots : this.#slots.filter((slot) => slot.owns(client));
    if (slots.length === 0 && client !== '') noSuchClient(client);
    return merged(slots.flatMap((slot) => slot.client?.tap(request, call) ?? []));
  }

  /** Workers are asked one after the other: what is left of maxBytes is the bound of the next one. */
  async configs(query: ClientStatusQuery): Promise<Result<EncodedStatus, GrpcStatus>> {
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

  /** The series of all workers, also of those that have ended. */
  async series(): Promise<readonly (readonly Series[])[]> {
    await Promise.all(
      this.#slots.map(async (slot) => {
        const { pid } = slot.status;
        const series = this.#heard(slot, await slot.client?.series());
        // A worker that does not answer is counted with its last values, because sums must not shrink. The counts of one
        // that has ended meanwhile are not its successor's.
        if (series !== undefined && slot.status.pid === pid) slot.series = series;
      }),
    );
    // Before anything is awaited: the counts of a worker that ends meanwhile would be in neither of the two.
    const known = this.#slots.map(({ series, number }) => workerSeries(series, number));
    return [await this.#endedSeries, ...known];
  }

  /** The worker that has this client's stream. */
  #serverOf(client: string): WorkerClient {
    return this.#slots.find((slot) => slot.owns(client))?.client ?? noSuchClient(client);
  }

  /** The answers of those that answer. */
  async #ask<T>(
    question: (client: WorkerClient) => Promise<Result<T, GrpcStatus>>,
    silent?: Set<number>,
  ): Promise<readonly T[]> {
    const answers = await Promise.all(
      this.#slots.map(async (slot) =>
        this.#heard(slot, await (slot.client && question(slot.client)), silent),
      ),
    );
    return answers.filter((answer) => answer !== undefined);
  }

  /** The answer of a worker; undefined: it is left out. That is logged, unless its process has ended; `silent` gets its number. */
  #heard<T>(
    { number }: WorkerSlot,
    answered: Result<T, GrpcStatus> | undefined,
    silent?: Set<number>,
  ): T | undefined {
    if (answered === undefined) return undefined;
    const { conditions } = this.#options;
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
    const { log, restarted, start } = this.#options;
    return new WorkerSlot({
      number,
      socket: workerSocket(start.directory, number),
      clock: systemClock,
      tickMs: this.#options.tickMs,
      log,
      random: systemRandom,
      fork: forkWorker,
      opening: () => this.#opening(number),
      restarted,
      canaries: this.#options.canaries,
      answered: this.#options.answered,
      changed: () => this.#changed(),
      ended: (series) => {
        const left = countersOfEnded(series);
        this.#endedSeries = this.#endedSeries.then((sum) => sumSeries([sum, left]));
      },
    });
  }

  #logLevels(): ToWorker {
    return { kind: 'log_levels', overrides: [...this.#options.logLevels.overrides()] };
  }

  #opening(slot: number): readonly ToWorker[] {
    const canaries = this.#options.canaries.canaries();
    const start = { ...this.#start, slot, ...(canaries === undefined ? {} : { canaries }) };
    const question = this.#question === undefined ? [] : [this.#question];
    return [start, this.#primaryState, this.#logLevels(), ...question];
  }

  #changed(): void {
    this.#onStartup?.();
    if (this.listening !== this.#wasListening) {
      this.#wasListening = this.listening;
      this.#options.changed();
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

/** A worker, as far as its clients count. */
export interface LoadedWorker {
  /** What its clients have open. */
  readonly load: Load;
  send(message: ToWorker): void;
}

/** What the clients of all workers have open. Each worker hears what the others have, and takes no more than is left. */
export class WorkerLoads {
  maxStreams: number;
  readonly #workers: readonly LoadedWorker[];
  /** How many streams of each worker have a place in `limits.max_streams`. */
  readonly #places = new Map<LoadedWorker, number>();
  #announcing = false;

  constructor(workers: readonly LoadedWorker[], maxStreams: number) {
    this.#workers = workers;
    this.maxStreams = maxStreams;
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
    this.#givePlaces();
    let [streams, connections] = [0, 0];
    for (const { load } of this.#workers) {
      streams += load.streams;
      connections += load.connections;
    }
    for (const worker of this.#workers) {
      const { load } = worker;
      const others = { streams: streams - load.streams, connections: connections - load.connections };
      const places = this.#placesOf(worker);
      const surplus = places < load.streams ? { mostStreams: places } : {};
      worker.send({ kind: 'load_elsewhere', load: others, ...surplus });
    }
  }

  /**
   * Two workers can take the last place at the same time: neither has heard of the other's stream then. Who has a place
   * keeps it, also if the limit is lower now.
   */
  #givePlaces(): void {
    for (const worker of this.#workers)
      this.#places.set(worker, Math.min(this.#placesOf(worker), worker.load.streams));
    let free = this.maxStreams - this.#places.values().reduce((sum, places) => sum + places, 0);
    for (const worker of this.#workers) {
      const places = this.#placesOf(worker);
      const more = Math.max(0, Math.min(worker.load.streams - places, free));
      this.#places.set(worker, places + more);
      free -= more;
    }
  }

  #placesOf(worker: LoadedWorker): number {
    return this.#places.get(worker) ?? 0;
  }
}
