import { hash } from 'node:crypto';
import { LRUCache } from 'lru-cache';
import type { Charged } from '../../model/brand.ts';
import type { Clock } from '../../model/clock.ts';
import { fail, ok, type Result } from '../../model/result.ts';
import type { TimeSlices } from '../../model/time-slices.ts';
import { knownTypes, type TypeInfo } from '../../model/types.ts';
import type { GrpcStatus } from '../../wire/grpc-status.ts';
import { type HttpAnswer, jsonAnswer, problem, refusal } from '../../wire/http-answer.ts';
import type { HttpHandler, HttpHead } from '../../wire/http-exchange.ts';
import { requestFromJson } from '../../wire/json-request.ts';
import type { Peer } from '../../wire/server-stream.ts';
import { malformed } from '../admission.ts';
import { keptBytes, type Patience, type PollOutcome } from './poll-class.ts';
import { JsonBodies } from './poll-json.ts';
import { lingerMs } from './polling-clients.ts';
import { type Polls, type ReadPoll, tooFast } from './polls.ts';

/** `POST /v3/discovery:<x>` (protocol §2). */
const types: ReadonlyMap<string, TypeInfo> = new Map(
  knownTypes.flatMap((info): [string, TypeInfo][] =>
    info.rest === undefined ? [] : [[`/v3/discovery:${info.rest}`, info]],
  ),
);

/** Shorter than Envoy's request_timeout, 1 s by default: it takes a poll without an answer for a failure. */
const patience: Patience = { milliseconds: 500, unchanged: true, whenUnknown: 'REFUSED' };

/** Polls that were read before: a client repeats its poll, byte by byte, until something changes. */
const maxKnownBytes = 64 << 20;
/** How often polls that nobody repeats any more are looked for. */
const forgetMs = 5000;
/** To read so many bytes counts as one change of a subscription, and fewer as a part of one. */
const bytesPerChange = 512 << 10;

type Answered = (answer: HttpAnswer) => void;

export interface RestPollsOptions {
  readonly polls: Polls;
  readonly clock: Clock;
  readonly slices: TimeSlices;
  /** Of one body (limits.max_response_bytes). */
  readonly maxBytes: () => number;
  /** A type inside a resource is not known, and is sent as bytes. */
  readonly unreadable: (typeUrl: string) => void;
  /** Returns what to answer with, which may be `answered` itself. Undefined: polls are not traced. */
  readonly traced?: ((head: HttpHead, info: TypeInfo, answered: Answered) => Answered) | undefined;
  /** A bug: an answer could not be made. */
  readonly threw: (error: unknown, path: string) => void;
}

/** REST-JSON: each poll is one request over HTTP (protocol §7). */
export class RestPolls {
  readonly #options: RestPollsOptions;
  readonly #bodies: JsonBodies;
  readonly #peers = new WeakMap<Peer, number>();
  #lastPeer = 0;
  readonly #known: LRUCache<string, ReadPoll>;
  #forgetting = false;

  constructor(options: RestPollsOptions) {
    const { clock } = options;
    this.#options = options;
    this.#known = new LRUCache<string, ReadPoll>({
      maxSize: maxKnownBytes,
      sizeCalculation: ({ poll }) => keptBytes(poll),
      // A poll holds its client and its connection: no longer than its class lasts.
      ttl: lingerMs,
      ttlResolution: 0,
      updateAgeOnGet: true,
      perf: { now: () => clock.monotonic() },
    });
    this.#bodies = new JsonBodies(options);
  }

  /** The paths that are served. */
  get paths(): readonly string[] {
    return [...types.keys()];
  }

  /** Undefined: another path. */
  route(head: HttpHead): HttpHandler | HttpAnswer | undefined {
    const info = types.get(head.path);
    if (info === undefined) return undefined;
    const refused = this.#options.polls.refusal(head.peer, info);
    if (refused !== undefined) return refusal(refused);
    const { traced } = this.#options;
    return (body, answered) => this.#poll(info, head, body, traced?.(head, info, answered) ?? answered);
  }

  #poll(info: TypeInfo, head: HttpHead, body: Charged, answered: Answered): () => void {
    const { polls } = this.#options;
    const read = this.#read(info, head.peer, body);
    if (!read.ok) {
      answered(refusal(read.error));
      return () => {};
    }
    const { value } = read;
    return polls.ask(value, head.peer, patience, (outcome) => {
      const answer = this.#answer(value, outcome, head);
      if (!(answer instanceof Promise)) {
        answered(answer);
        return;
      }
      answer.then(answered, (error: unknown) => {
        this.#options.threw(error, head.path);
        answered(problem(500, 'internal', 'this is a bug: see the log'));
      });
    });
  }

  /** The same bytes on the same connection are the same poll: nothing is read again. */
  #read(info: TypeInfo, peer: Peer, body: Charged): Result<ReadPoll, GrpcStatus> {
    const { polls } = this.#options;
    const key = `${this.#numberOf(peer)} ${info.short} ${hash('sha256', body, 'base64')}`;
    const known = this.#known.get(key);
    if (known !== undefined && polls.isCurrent(known)) return ok(known);
    // Before anything of it is read.
    if (!polls.admitsWork(peer, body.length / bytesPerChange)) return fail(tooFast);
    const bytes = requestFromJson(body, polls.wantedMetadata);
    if (!bytes.ok) {
      polls.malformed();
      return fail(malformed(bytes.error));
    }
    const read = polls.read(info, bytes.value, peer, 'rest');
    if (!read.ok) return read;
    this.#known.set(key, read.value);
    this.#forgetLater();
    return read;
  }

  #forgetLater(): void {
    if (this.#forgetting) return;
    this.#forgetting = true;
    this.#options.clock.after(forgetMs, () => {
      this.#forgetting = false;
      this.#known.purgeStale();
      if (this.#known.size > 0) this.#forgetLater();
    });
  }

  #numberOf(peer: Peer): number {
    const known = this.#peers.get(peer);
    if (known !== undefined) return known;
    this.#peers.set(peer, ++this.#lastPeer);
    return this.#lastPeer;
  }

  #answer(
    read: ReadPoll,
    outcome: PollOutcome,
    { headers, peer }: HttpHead,
  ): HttpAnswer | Promise<HttpAnswer> {
    switch (outcome.kind) {
      case 'refused':
        return refusal(outcome.status);
      case 'unchanged':
        return unchanged;
      case 'response': {
        const compressed = takesGzip(headers['accept-encoding']);
        return this.#bodies.of(outcome.response, peer.account, compressed).then(async (made) => {
          if (!made.ok) return refusal(this.#options.polls.rejected(made.error));
          const bytes = compressed ? await made.value.compressed(peer.account) : made.value.plain;
          this.#options.polls.sent(read, outcome, bytes);
          return jsonAnswer(bytes, compressed ? { 'content-encoding': 'gzip', vary } : { vary });
        });
      }
      default:
        return outcome satisfies never;
    }
  }
}

const vary = 'accept-encoding';
const unchanged: HttpAnswer = { status: 304, type: '', body: '' };

/** Whether gzip is listed, and not refused with q=0. */
function takesGzip(accepted: string | string[] | undefined): boolean {
  return /\bgzip\b(?!\s*;\s*q=0(?:\.0*)?\s*(?:,|$))/i.test(String(accepted ?? ''));
}
