import { randomInt } from 'node:crypto';
import type { ExplainQuery, Plain } from '../admin/ports.ts';
import { type StatusQuestion, tooLarge } from '../assembly/client-status.ts';
import {
  type Census,
  type ClientPart,
  type ClientsView,
  mergeCensuses,
  mergeLists,
} from '../assembly/clients-view.ts';
import { noSuchClient } from '../assembly/local-clients.ts';
import type { ListClientsResponse } from '../gen/distributary/admin/v1/admin_pb.ts';
import { systemClock } from '../model/clock.ts';
import { fail, ok, type Result } from '../model/result.ts';
import type { Conditions } from '../observe/conditions.ts';
import type { Log } from '../observe/log.ts';
import { type Series, sumSeries } from '../observe/series.ts';
import { type EncodedStatus, sizeOf } from '../wire/client-status.ts';
import { Code, type GrpcStatus } from '../wire/status.ts';
import type { Answered, Line } from './line.ts';
import { Member } from './member.ts';
import type { News, Start } from './messages.ts';
import { forkWorker } from './process.ts';
import { askCensus, askConfigs, askFind, askList, askSeries } from './questions.ts';
import { remains, workerSeries } from './relay-series.ts';

export interface CrewOptions {
  readonly log: Log;
  readonly conditions: Conditions;
  readonly start: Start;
  readonly answer: (what: string, body: unknown) => Promise<Answered>;
  /** Whether a client can be served may have changed. */
  readonly changed: () => void;
  readonly restarted: () => void;
}

/** What a worker may take longer for its drain than it was told, in milliseconds. */
const grace = 2000;

/** The workers of a primary. */
export class Crew implements ClientsView {
  readonly #options: CrewOptions;
  readonly #members: readonly Member[];
  #start: Start;
  #news: News = { kind: 'news', ready: false, down: [], refused: [] };
  /** What processes have counted that are no more. */
  #remains: readonly (readonly Series[])[] = [];
  #telling = false;
  #listened = false;
  /** While the first ones start: told of each change. */
  #watching: (() => void) | undefined;

  private constructor(count: number, options: CrewOptions) {
    this.#options = options;
    this.#start = options.start;
    this.#members = Array.from({ length: count }, (_, index) => this.#member(index + 1));
  }

  /** Resolves when all of them listen; the error is the first reason why one cannot. */
  static async start(count: number, options: CrewOptions): Promise<Result<Crew>> {
    const crew = new Crew(count, options);
    const failure = await crew.#listening();
    if (failure === undefined) return ok(crew);
    await crew.#end(0);
    return fail(failure);
  }

  /** Where all of them listen. */
  get address(): string {
    return this.#members.find(({ address }) => address !== undefined)?.address ?? '';
  }

  /** One that listens is enough to serve. */
  get listening(): boolean {
    return this.#members.some(({ address }) => address !== undefined);
  }

  /** What the workers have to know of the primary. */
  tell(news: News): void {
    if (JSON.stringify(news) === JSON.stringify(this.#news)) return;
    this.#news = news;
    for (const member of this.#members) member.send(news);
  }

  reload(text: string): void {
    this.#start = { ...this.#start, text };
    for (const member of this.#members) member.send({ kind: 'reload', text });
  }

  /** Ends the clients' streams over the time given, and then the workers. */
  async drain(milliseconds: number): Promise<void> {
    for (const member of this.#members) member.send({ kind: 'drain', milliseconds });
    await this.#end(milliseconds + grace);
  }

  async census(): Promise<Census> {
    const censuses = await Promise.all(
      this.#members.map(async (member) => {
        const census = await this.#askOne(member, askCensus);
        const { status } = member;
        return census === undefined
          ? { streams: 0, subscriptions: new Map<string, number>(), nacks: [], workers: [status] }
          : { ...census, workers: [{ ...status, clients: census.streams }] };
      }),
    );
    return mergeCensuses(censuses);
  }

  async list(limit: number | undefined): Promise<Plain<ListClientsResponse>> {
    return mergeLists(await this.#ask((line) => askList(line, limit)), limit);
  }

  async find(
    client: string,
    { type, name }: Pick<ExplainQuery, 'type' | 'name'>,
  ): Promise<Result<ClientPart, GrpcStatus>> {
    const line = this.#members.find((member) => member.owns(client))?.line;
    return line === undefined ? noSuchClient(client) : askFind(line, client, type, name);
  }

  /** One after the other: what is answered already bounds the rest. */
  async configs(question: StatusQuestion): Promise<Result<EncodedStatus, GrpcStatus>> {
    const pieces: Uint8Array[] = [];
    let left = question.maxBytes;
    for (const member of this.#members) {
      let refusal: GrpcStatus | undefined;
      const answered = await this.#askOne(member, async (line) => {
        const answer = await askConfigs(line, { ...question, maxBytes: left });
        if (!answer.ok && isAboutTheQuestion(answer.error)) refusal = answer.error;
        return refusal === undefined ? answer : ok([]);
      });
      if (refusal?.code === Code.RESOURCE_EXHAUSTED) return fail(tooLarge(question.maxBytes));
      if (refusal !== undefined) return fail(refusal);
      pieces.push(...(answered ?? []));
      left = question.maxBytes - sizeOf(pieces);
    }
    return ok(pieces);
  }

  /** What all of them have counted, also those that are no more. */
  async series(): Promise<readonly (readonly Series[])[]> {
    await Promise.all(
      this.#members.map(async (member) => {
        const series = await this.#askOne(member, askSeries);
        // What was told last stands for one that does not answer: sums must not shrink.
        if (series !== undefined) member.series = series;
      }),
    );
    const known = this.#members.map(({ series, number }) => workerSeries(series, number));
    const lists = [...this.#remains, ...known];
    const before = this.#remains;
    if (before.length > 1) {
      const sum = await sumSeries(before);
      // Unless somebody else who asked meanwhile was faster.
      if (this.#remains[0] === before[0]) this.#remains = [sum, ...this.#remains.slice(before.length)];
    }
    return lists;
  }

  /** The answers of those that have one. */
  async #ask<T>(question: (line: Line) => Promise<Result<T, GrpcStatus>>): Promise<readonly T[]> {
    const answers = await Promise.all(this.#members.map((member) => this.#askOne(member, question)));
    return answers.filter((answer) => answer !== undefined);
  }

  async #askOne<T>(
    { line, number }: Member,
    question: (line: Line) => Promise<Result<T, GrpcStatus>>,
  ): Promise<T | undefined> {
    if (line === undefined) return undefined;
    const answered = await question(line);
    const condition = `worker ${number}`;
    if (answered.ok) {
      this.#options.conditions.forget(condition);
      return answered.value;
    }
    const { code, message } = answered.error;
    if (code !== Code.INVALID_ARGUMENT && code !== Code.UNAVAILABLE) {
      const said = 'a worker does not answer: what is shown of clients is incomplete';
      this.#options.conditions.set(condition, message, 'warn', said, { number, reason: message });
    }
    return undefined;
  }

  #member(number: number): Member {
    const { log, answer, restarted } = this.#options;
    return new Member({
      number,
      clock: systemClock,
      log,
      random: () => randomInt(2 ** 32) / 2 ** 32,
      fork: forkWorker,
      opening: () => [this.#start, this.#news],
      answer,
      restarted,
      changed: () => this.#changed(),
      left: (series) => {
        const left = remains(series);
        if (left.length > 0) this.#remains = [...this.#remains, left];
      },
    });
  }

  #changed(): void {
    this.#watching?.();
    if (this.listening !== this.#listened) {
      this.#listened = this.listening;
      this.#options.changed();
    }
    // One message for all that happened meanwhile.
    if (this.#telling) return;
    this.#telling = true;
    setImmediate(() => {
      this.#telling = false;
      let [streams, connections] = [0, 0];
      for (const { load } of this.#members) {
        streams += load.streams;
        connections += load.connections;
      }
      for (const member of this.#members) {
        const { load } = member;
        const others = { streams: streams - load.streams, connections: connections - load.connections };
        member.send({ kind: 'elsewhere', load: others });
      }
    });
  }

  /** Why not all of them could start; undefined when all listen. */
  #listening(): Promise<string | undefined> {
    return new Promise((resolve) => {
      this.#watching = () => {
        const failed = this.#members.find(({ lastError }) => lastError !== '');
        const waits = this.#members.some(({ address }) => address === undefined);
        if (failed === undefined && waits) return;
        this.#watching = undefined;
        resolve(failed?.lastError);
      };
    });
  }

  async #end(milliseconds: number): Promise<void> {
    await Promise.all(this.#members.map((member) => member.end(milliseconds)));
  }
}

/** Of a worker that is well. */
function isAboutTheQuestion({ code }: GrpcStatus): boolean {
  return code === Code.INVALID_ARGUMENT || code === Code.RESOURCE_EXHAUSTED;
}
