import { promisify } from 'node:util';
import { gzip } from 'node:zlib';
import { fromBinary, toJson } from '@bufbuild/protobuf';
import {
  type DiscoveryResponse,
  DiscoveryResponseSchema,
} from '../../gen/envoy/service/discovery/v3/discovery_pb.ts';
import type { Response } from '../../model/subscription.ts';
import type { Pace, TimeSlices } from '../../model/time-slices.ts';
import { prefixLength } from '../../wire/grpc-frames.ts';
import { lazyEnvoyRegistry } from '../../wire/json-registry.ts';
import { anyToJson } from '../../wire/readable-any.ts';

const compress = promisify(gzip);

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
