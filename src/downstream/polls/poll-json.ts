import { createHash } from 'node:crypto';
import { promisify } from 'node:util';
import { gzip } from 'node:zlib';
import { fromBinary, toJson } from '@bufbuild/protobuf';
import type { Any } from '@bufbuild/protobuf/wkt';
import { LRUCache } from 'lru-cache';
import {
  type DiscoveryResponse,
  DiscoveryResponseSchema,
} from '../../gen/envoy/service/discovery/v3/discovery_pb.ts';
import type { Clock } from '../../model/clock.ts';
import { fail, ok, type Result } from '../../model/result.ts';
import type { Response } from '../../model/subscription.ts';
import { type Pace, TimeSlices } from '../../model/time-slices.ts';
import type { Account } from '../../wire/accounts.ts';
import { prefixLength } from '../../wire/grpc-frames.ts';
import { Code } from '../../wire/grpc-status.ts';
import { bytesAtOnce, JsonInTurns, JsonText, writtenWithin } from '../../wire/json-in-turns.ts';
import { anyToJson } from '../../wire/readable-any.ts';
import { lazyEnvoyRegistry } from '../../wire/registry.ts';
import { heldBytes, type Refusal } from '../admission.ts';

const compress = promisify(gzip);

/** Larger responses are made beside the others, so that nobody waits for them who asks for little. */
const largeBytes = 1 << 20;
/** The JSON of large resources is kept for so long, and so much of it: any response may hold them. */
const keptMs = 60_000;
const keptBytes = 128 << 20;
const hashedAtOnce = 1 << 20;

/** A response's body, and the same compressed, if somebody has asked for it. */
class JsonBody {
  readonly #parts: readonly Buffer[];
  readonly #large: TimeSlices;
  /** While somebody is sent it: the parts are shared with other bodies, and it would have all of them once more. */
  #plain: WeakRef<Buffer>;
  #compressed: Promise<Buffer> | undefined;

  constructor(parts: readonly Buffer[], large: TimeSlices) {
    this.#parts = parts;
    this.#large = large;
    this.#plain = new WeakRef(Buffer.concat(parts));
  }

  get plain(): Buffer {
    const known = this.#plain.deref();
    if (known !== undefined) return known;
    const made = Buffer.concat(this.#parts);
    this.#plain = new WeakRef(made);
    return made;
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

/** The JSON of a resource; undefined: it is larger than any body may be. */
interface KeptText {
  readonly parts: readonly Buffer[] | undefined;
}

export interface JsonBodiesOptions {
  readonly clock: Clock;
  readonly slices: TimeSlices;
  /** Of one body (limits.max_response_bytes). */
  readonly maxBytes: () => number;
  /** A type inside a resource is not known to this build. */
  readonly unreadable: (typeUrl: string) => void;
}

/** The bodies of responses. Each is made once: all clients of a class share the response. */
export class JsonBodies {
  readonly #options: JsonBodiesOptions;
  readonly #large: TimeSlices;
  readonly #bodies = new WeakMap<Response, Promise<MadeBody>>();
  /** By the hash of the resource. */
  readonly #texts: LRUCache<string, KeptText>;

  constructor(options: JsonBodiesOptions) {
    const { clock } = options;
    this.#options = options;
    this.#large = new TimeSlices(clock);
    this.#texts = new LRUCache<string, KeptText>({
      maxSize: keptBytes,
      sizeCalculation: ({ parts = [] }) => parts.reduce((sum, { length }) => sum + length, 1),
      ttl: keptMs,
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
    const made = slices
      .run((pace) => this.#make(response, pace, payer, compressed), payer)
      .finally(() => payer.keeps(-length));
    this.#bodies.set(response, made);
    return made;
  }

  async #make(response: Response, pace: Pace, payer: Account, compressed: boolean): Promise<MadeBody> {
    const maxBytes = this.#options.maxBytes();
    const message = fromBinary(DiscoveryResponseSchema, response.bytes.subarray(prefixLength));
    const text = new JsonText();
    text.add(JSON.stringify(envelope(message)).slice(0, -1));
    let before = ',"resources":[';
    for (const resource of message.resources) {
      await pace.yieldIfDue();
      text.add(before);
      before = ',';
      if (resource.value.length <= bytesAtOnce) {
        text.add(JSON.stringify(anyToJson(resource, this.#options)));
      } else {
        const parts = await this.#textOf(resource, maxBytes, pace);
        if (parts === undefined) return this.#refused(response, tooLarge(maxBytes));
        text.addParts(parts);
      }
      if (text.bytes > maxBytes) return this.#refused(response, tooLarge(maxBytes));
    }
    text.add(before === ',' ? ']}' : '}');
    // What was made for it before and is not read yet.
    const excess = payer.excess;
    if (excess !== undefined) return this.#refused(response, heldBytes(excess));
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

function tooLarge(maxBytes: number): Refusal {
  const message = `the response has more than ${maxBytes} bytes as JSON, the most that is sent (limits.max_response_bytes): over gRPC it has fewer`;
  return { reason: 'response_bytes', status: { code: Code.RESOURCE_EXHAUSTED, message } };
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
