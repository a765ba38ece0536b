import { createHash, hash } from 'node:crypto';
import { promisify } from 'node:util';
import { gzip } from 'node:zlib';
import { fromBinary, toJson } from '@bufbuild/protobuf';
import type { Any } from '@bufbuild/protobuf/wkt';
import { LRUCache } from 'lru-cache';
import {
  type DiscoveryResponse,
  DiscoveryResponseSchema,
} from '../../gen/envoy/service/discovery/v3/discovery_pb.ts';
import type { Charged } from '../../model/brand.ts';
import { type Clock, Sweep } from '../../model/clock.ts';
import { numbering } from '../../model/maps.ts';
import { fail, ok, type Result } from '../../model/result.ts';
import type { Response } from '../../model/subscription.ts';
import { atOnce, type InTurns, inSlices, type Pace, TimeSlices } from '../../model/time-slices.ts';
import { knownTypes, type TypeInfo } from '../../model/types.ts';
import type { Account } from '../../wire/accounts.ts';
import { prefixLength } from '../../wire/grpc-frames.ts';
import { type HttpAnswer, jsonAnswer, problem, refusal } from '../../wire/http-answer.ts';
import type { HttpHandler, HttpHead } from '../../wire/http-server.ts';
import { bytesAtOnce, JsonInTurns, JsonText, writtenWithin } from '../../wire/json-in-turns.ts';
import { requestFromJson } from '../../wire/json-request.ts';
import { exhausted, heldBytes, malformed, type Refusal } from '../../wire/refusal.ts';
import { lazyEnvoyRegistry } from '../../wire/registry.ts';
import type { Peer } from '../../wire/server-stream.ts';
import { keptBytes, lingerMs } from './polling-clients.ts';
import { type PollOutcome, type Polls, type ReadPoll, tooFast } from './polls.ts';

/** `POST /v3/discovery:<x>` (protocol §2). */
const types: ReadonlyMap<string, TypeInfo> = new Map(
  knownTypes.flatMap((info): [string, TypeInfo][] =>
    info.rest === undefined ? [] : [[`/v3/discovery:${info.rest}`, info]],
  ),
);

/** Shorter than Envoy's request_timeout, 1 s by default: it takes a poll without an answer for a failure. */
const longestMs = 500;

/** Polls that were read before: a client repeats its poll, byte by byte, until something changes. */
const maxKnownBytes = 64 << 20;
/** How often polls that nobody repeats any more are looked for. */
const forgetMs = 5000;
/** Without its names it has up to 61 KB, as Envoy sends it. */
const largeRequest = 128 << 10;
/** To read so many bytes counts as one change of a subscription, and fewer as a part of one. */
const bytesPerChange = 512 << 10;

type Answered = (answer: HttpAnswer) => void;

interface RestPollsOptions {
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
  /** Large ones: their clients wait a second at most, so not for the responses of others. */
  readonly #requests: TimeSlices;
  /** Of a connection. */
  readonly #numberOf = numbering();
  readonly #known: LRUCache<string, ReadPoll>;
  readonly #sweep: Sweep;

  constructor(options: RestPollsOptions) {
    const { clock } = options;
    this.#options = options;
    this.#known = new LRUCache<string, ReadPoll>({
      maxSize: maxKnownBytes,
      sizeCalculation: keptBytes,
      // A poll holds its client and its connection: no longer than its class lasts.
      ttl: lingerMs,
      ttlResolution: 0,
      updateAgeOnGet: true,
      perf: { now: () => clock.monotonic() },
    });
    this.#sweep = new Sweep(clock, forgetMs, () => {
      this.#known.purgeStale();
      return this.#known.size > 0;
    });
    this.#requests = new TimeSlices(clock);
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

  /** The function returned gives the poll up. */
  #poll(info: TypeInfo, head: HttpHead, body: Charged, answered: Answered): () => void {
    const poll = { isOpen: true, giveUp: nothing };
    const turns = this.#ask(info, head, body, answered, poll);
    if (body.length < largeRequest) atOnce(turns);
    else void this.#takeTurns(turns, body.length, head, answered);
    return () => {
      poll.isOpen = false;
      turns.return();
      poll.giveUp();
    };
  }

  async #takeTurns(turns: InTurns<void>, bytes: number, head: HttpHead, answered: Answered): Promise<void> {
    const { account } = head.peer;
    const excess = account.hold(bytes);
    if (excess !== undefined) {
      answered(refusal(this.#options.polls.rejected(heldBytes(excess), head.peer)));
      return;
    }
    try {
      await this.#requests.run((pace) => inSlices(turns, pace), account);
    } catch (error) {
      this.#threw(error, head, answered);
    } finally {
      account.keeps(-bytes);
    }
  }

  *#ask(
    info: TypeInfo,
    head: HttpHead,
    body: Charged,
    answered: Answered,
    poll: { readonly isOpen: boolean; giveUp: () => void },
  ): InTurns<void> {
    const { polls } = this.#options;
    const read = yield* this.#read(info, head.peer, body);
    if (!read.ok) {
      answered(refusal(polls.rejected(read.error, head.peer)));
      return;
    }
    const { value } = read;
    poll.giveUp = yield* polls.ask(value, head.peer, longestMs, (outcome) => {
      if (outcome.kind === 'refused') answered(refusal(outcome.status));
      else if (outcome.kind === 'unchanged') answered(unchanged);
      else
        this.#answer(value, outcome, head, poll).then(answered, (error: unknown) =>
          this.#threw(error, head, answered),
        );
    });
  }

  #threw(error: unknown, { path }: HttpHead, answered: Answered): void {
    this.#options.threw(error, path);
    answered(problem(500, 'internal', 'this is a bug: see the log'));
  }

  /** The same bytes on the same connection are the same poll: nothing is read again. */
  *#read(info: TypeInfo, peer: Peer, body: Charged): InTurns<Result<ReadPoll, Refusal>> {
    const { polls } = this.#options;
    const key = `${this.#numberOf(peer)} ${info.short} ${hash('sha256', body, 'base64')}`;
    const known = this.#known.get(key);
    if (known !== undefined && polls.isCurrent(known)) return ok(known);
    // Before anything of it is read.
    if (!peer.account.change(body.length / bytesPerChange)) return fail(tooFast);
    const bytes = yield* requestFromJson(body, polls.wantedMetadata);
    if (!bytes.ok) return fail(malformed(bytes.error));
    const read = yield* polls.read(info, bytes.value, peer, 'rest');
    if (!read.ok) return read;
    this.#known.set(key, read.value);
    this.#sweep.start();
    return read;
  }

  async #answer(
    asked: ReadPoll,
    outcome: Extract<PollOutcome, { kind: 'response' }>,
    { headers, peer }: HttpHead,
    poll: { readonly isOpen: boolean },
  ): Promise<HttpAnswer> {
    const compressed = takesGzip(headers['accept-encoding']);
    const made = await this.#bodies.of(outcome.response, peer.account, compressed);
    if (!made.ok) return refusal(this.#options.polls.rejected(made.error, peer));
    const bytes = compressed ? await made.value.compressed(peer.account) : made.value.plain;
    // The client may have gone while it was made.
    if (poll.isOpen) this.#options.polls.sent(asked, outcome, bytes);
    return jsonAnswer(bytes, compressed ? { 'content-encoding': 'gzip', vary } : { vary });
  }
}

const nothing = (): void => {};
const vary = 'accept-encoding';
const unchanged: HttpAnswer = { status: 304, type: '', body: '' };

/** Whether gzip is listed, and not refused with q=0. */
function takesGzip(accepted: string | string[] | undefined): boolean {
  return /\bgzip\b(?!\s*;\s*q=0(?:\.0*)?\s*(?:,|$))/i.test(String(accepted ?? ''));
}

const compress = promisify(gzip);

/** Larger responses are made beside the others, so that nobody waits for them who asks for little. */
const largeBytes = 1 << 20;
/** The JSON of large resources is kept for so long, and so much of it: any response may hold them. */
const textMs = 60_000;
const textBytes = 128 << 20;
const hashedAtOnce = 1 << 20;

/** A response's body, and the same compressed, if somebody has asked for it. */
class JsonBody {
  readonly plain: Buffer;
  readonly #large: TimeSlices;
  #compressed: Promise<Buffer> | undefined;

  constructor(parts: readonly Buffer[], large: TimeSlices) {
    this.plain = Buffer.concat(parts);
    this.#large = large;
  }

  /** Large ones one at a time: the threads that do it are needed for other things too. */
  compressed(payer: Account): Promise<Buffer> {
    if (this.#compressed !== undefined || this.plain.length <= largeBytes) return this.compress();
    return this.#large.run(() => this.compress(), payer);
  }

  compress(): Promise<Buffer> {
    this.#compressed ??= compress(this.plain);
    return this.#compressed;
  }
}

type MadeBody = Result<JsonBody, Refusal>;

/** The bodies of responses. Each is made once: all clients of a class share the response. */
class JsonBodies {
  readonly #options: RestPollsOptions;
  readonly #large: TimeSlices;
  readonly #bodies = new WeakMap<Response, Promise<MadeBody>>();
  /** The JSON of resources, by their hash; without parts it is larger than any body may be. */
  readonly #texts: LRUCache<string, { readonly parts: readonly Buffer[] | undefined }>;

  constructor(options: RestPollsOptions) {
    this.#options = options;
    this.#large = new TimeSlices(options.clock);
    this.#texts = new LRUCache({
      maxSize: textBytes,
      sizeCalculation: ({ parts = [] }) => parts.reduce((sum, { length }) => sum + length, 1),
      ttl: textMs,
      ttlAutopurge: true,
    });
  }

  /** Whoever asks first pays, and holds the response until it is made. `compressed`: that is what it asks for. */
  of(response: Response, payer: Account, compressed: boolean): Promise<MadeBody> {
    const known = this.#bodies.get(response);
    if (known !== undefined) return known;
    const { length } = response.bytes;
    const excess = payer.hold(length);
    if (excess !== undefined) return Promise.resolve(fail(heldBytes(excess)));
    const slices = length > largeBytes ? this.#large : this.#options.slices;
    const made = slices.run((pace) => this.#make(response, pace, compressed), payer);
    this.#bodies.set(response, made);
    // What was made for it before and is not read yet. The others who wait for the body hold nothing of that.
    const own = made.then((body) => (payer.excess === undefined ? body : fail(heldBytes(payer.excess))));
    return own.finally(() => payer.keeps(-length));
  }

  async #make(response: Response, pace: Pace, compressed: boolean): Promise<MadeBody> {
    const maxBytes = this.#options.maxBytes();
    const message = fromBinary(DiscoveryResponseSchema, response.bytes.subarray(prefixLength));
    const text = new JsonText();
    const json = new JsonInTurns(text, this.#options);
    text.add(JSON.stringify(envelope(message)).slice(0, -1));
    let before = ',"resources":[';
    for (const resource of message.resources) {
      await pace.yieldIfDue();
      text.add(before);
      before = ',';
      if (resource.value.length <= bytesAtOnce) {
        atOnce(json.any(resource));
      } else {
        const parts = await this.#textOf(resource, maxBytes, pace);
        if (parts === undefined) return this.#refused(response, tooLargeAsJson(maxBytes));
        text.addParts(parts);
      }
      if (text.bytes > maxBytes) return this.#refused(response, tooLargeAsJson(maxBytes));
    }
    text.add(before === ',' ? ']}' : '}');
    const body = new JsonBody(text.parts, this.#large);
    // Before the next one is made: many that wait for it would fill the memory.
    if (compressed) await body.compress();
    return ok(body);
  }

  #refused(response: Response, refusal: Refusal): MadeBody {
    this.#bodies.delete(response);
    return fail(refusal);
  }

  /** Of a large one, in turns. Undefined: there is more than so many bytes. */
  async #textOf(resource: Any, maxBytes: number, pace: Pace): Promise<readonly Buffer[] | undefined> {
    const hash = createHash('sha256').update(`${maxBytes} ${resource.typeUrl}\n`);
    for (let at = 0; at < resource.value.length; at += hashedAtOnce) {
      hash.update(resource.value.subarray(at, at + hashedAtOnce));
      await pace.yieldIfDue();
    }
    const key = hash.digest('base64');
    const known = this.#texts.get(key);
    if (known !== undefined) return known.parts;
    const text = new JsonText();
    const turns = new JsonInTurns(text, this.#options).any(resource);
    const parts = (await writtenWithin(maxBytes, text, turns, pace)) ? text.parts : undefined;
    this.#texts.set(key, { parts });
    return parts;
  }
}

function tooLargeAsJson(maxBytes: number): Refusal {
  const message = `the response has more than ${maxBytes} bytes as JSON, the most that is sent (limits.max_response_bytes): over gRPC it has fewer`;
  return exhausted('response_bytes', message);
}

/** All but the resources. There are no nonces over REST (§7.1). */
function envelope(message: DiscoveryResponse): object {
  const shown = { ...message, resources: [], nonce: '' };
  try {
    return asObject(toJson(DiscoveryResponseSchema, shown, { registry: lazyEnvoyRegistry }));
  } catch {
    // The details of a resource error may be of any type. No client needs them.
    return asObject(toJson(DiscoveryResponseSchema, { ...shown, resourceErrors: [] }));
  }
}

const asObject = (json: unknown): object => (typeof json === 'object' && json !== null ? json : {});
