import { promisify } from 'node:util';
import { gzip } from 'node:zlib';
import { fromBinary, fromJson, type JsonValue, toBinary, toJson } from '@bufbuild/protobuf';
import {
  DiscoveryRequestSchema,
  type DiscoveryResponse,
  DiscoveryResponseSchema,
} from '../../gen/envoy/service/discovery/v3/discovery_pb.ts';
import { errorMessage, fail, ok, type Result } from '../../model/result.ts';
import type { Response } from '../../model/subscription.ts';
import type { Pace, TimeSlices } from '../../model/time-slices.ts';
import { prefixLength } from '../../wire/grpc-frames.ts';
import { isJsonValue } from '../../wire/json-fault.ts';
import { lazyEnvoyRegistry } from '../../wire/json-registry.ts';
import { anyToJson } from '../../wire/readable-any.ts';

const compress = promisify(gzip);

/**
 * A DiscoveryRequest in JSON as an encoded one (protocol §7.1). Envoy names each of its extensions in its node: nobody
 * reads them, and to decode them would be nearly all of the work.
 */
export function requestFromJson(body: Buffer): Result<Buffer> {
  if (isDeep(body)) return fail('the body is nested too deeply');
  let json: unknown;
  try {
    json = JSON.parse(body.toString('utf8'));
  } catch (error) {
    return fail(`the body is not JSON: ${errorMessage(error)}`);
  }
  if (!isJsonValue(json)) return fail('the body is nested too deeply');
  if (typeof json !== 'object' || json === null || Array.isArray(json)) {
    return fail('the body is not a JSON object: a DiscoveryRequest is');
  }
  try {
    const message = fromJson(DiscoveryRequestSchema, withoutExtensions(json), { ignoreUnknownFields: true });
    return ok(Buffer.from(toBinary(DiscoveryRequestSchema, message)));
  } catch (error) {
    return fail(`the body is not a DiscoveryRequest: ${errorMessage(error)}`);
  }
}

/** Before it is parsed: to build a million objects inside each other takes half a second. */
function isDeep(body: Buffer): boolean {
  let depth = 0;
  for (let index = 0; index < body.length; index++) {
    const byte = body[index];
    if (byte === quote) index = endOfString(body, index);
    else if (byte === openBrace || byte === openBracket) {
      if (++depth > maxDepth) return true;
    } else if (byte === closeBrace || byte === closeBracket) depth--;
  }
  return false;
}

function endOfString(body: Buffer, start: number): number {
  let end = body.indexOf(quote, start + 1);
  while (end > 0 && isEscaped(body, end)) end = body.indexOf(quote, end + 1);
  return end < 0 ? body.length : end;
}

function isEscaped(body: Buffer, at: number): boolean {
  let start = at;
  while (body[start - 1] === backslash) start--;
  return (at - start) % 2 === 1;
}

/** More than any request has, and less than what the reader of protobuf's JSON refuses. */
const maxDepth = 400;
const quote = 0x22;
const backslash = 0x5c;
const openBrace = 0x7b;
const closeBrace = 0x7d;
const openBracket = 0x5b;
const closeBracket = 0x5d;

type JsonObject = Readonly<Record<string, JsonValue>>;

function withoutExtensions(request: JsonObject): JsonObject {
  const { node } = request;
  if (typeof node !== 'object' || node === null || Array.isArray(node)) return request;
  const { extensions: _extensions, ...rest } = node;
  return { ...request, node: rest };
}

/** A response's body, and the same compressed, if somebody has asked for it. */
export class JsonBody {
  readonly plain: Buffer;
  #compressed: Promise<Buffer> | undefined;

  constructor(plain: Buffer) {
    this.plain = plain;
  }

  compressed(): Promise<Buffer> {
    this.#compressed ??= compress(this.plain);
    return this.#compressed;
  }
}

/** The bodies of responses. Each is made once: all clients of a class share the response. */
export class JsonBodies {
  readonly #slices: TimeSlices;
  readonly #unreadable: (typeUrl: string) => void;
  readonly #bodies = new WeakMap<Response, Promise<JsonBody>>();

  /** `unreadable`: a type inside a resource that this build does not know. */
  constructor(slices: TimeSlices, unreadable: (typeUrl: string) => void) {
    this.#slices = slices;
    this.#unreadable = unreadable;
  }

  of(response: Response): Promise<JsonBody> {
    const known = this.#bodies.get(response);
    if (known !== undefined) return known;
    const made = this.#slices.run((pace) => this.#make(response, pace));
    this.#bodies.set(response, made);
    return made;
  }

  async #make({ bytes }: Response, pace: Pace): Promise<JsonBody> {
    const message = fromBinary(DiscoveryResponseSchema, bytes.subarray(prefixLength));
    const resources: string[] = [];
    for (const resource of message.resources) {
      await pace.yieldIfDue();
      resources.push(JSON.stringify(anyToJson(resource, this.#unreadable)));
    }
    const rest = JSON.stringify(envelope(message));
    const list = resources.length === 0 ? '' : `,"resources":[${resources.join(',')}]`;
    return new JsonBody(Buffer.from(`${rest.slice(0, -1)}${list}}`));
  }
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
