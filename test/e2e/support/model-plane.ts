import { createHash } from 'node:crypto';
import { create, toBinary } from '@bufbuild/protobuf';
import { type Any, AnySchema } from '@bufbuild/protobuf/wkt';
import { z } from 'zod';
import {
  type DeltaDiscoveryRequest,
  DeltaDiscoveryResponseSchema,
  type DiscoveryRequest,
  DiscoveryResponseSchema,
} from '../../../src/gen/envoy/service/discovery/v3/discovery_pb.ts';
import { type TypeUrl, typeUrl } from '../../../src/model/brand.ts';
import { typeInfo } from '../../../src/model/types.ts';
import { Code } from '../../../src/wire/grpc-status.ts';
import { jsonToBytes, messageName } from '../../../src/wire/registry.ts';
import { any, type } from '../../support/in-memory-relay.ts';
import { type AdsStream, ControlPlane, type Request } from '../../upstream/ads/control-plane.ts';

/** What a stream was told of one type. */
interface Told {
  wildcard: boolean;
  readonly names: Set<string>;
  /** Delta: name → content; a name that was told to be absent has undefined. */
  readonly has: Map<string, string | undefined>;
  nonce: string;
}

/** Short, as those of control planes are. */
const versionOf = (content: string): string =>
  content.length < 40 ? `v${content}` : createHash('sha256').update(content).digest('hex').slice(0, 8);

type Contents = ReadonlyMap<string, string>;
type Body = (url: TypeUrl, name: string, content: string) => Any;

const resource = z.looseObject({ '@type': z.string() });

/** For clients that read what they get: the content is JSON of the resource, its `@type` included. */
export const realBody: Body = (url, name, content) => {
  const { '@type': _, ...fields } = resource.parse(JSON.parse(content));
  const bytes = jsonToBytes(messageName(url), fields);
  if (!bytes.ok) throw new Error(`${name}: ${bytes.error[0]?.message}`);
  return create(AnySchema, { typeUrl: url, value: bytes.value });
};

/**
 * A control plane that answers as the protocol says, with what the test puts in: name → content of each type. It is
 * killed and started again on its port; what it has outlives that, as a database would.
 */
export class ModelPlane implements AsyncDisposable {
  readonly #plane = new ControlPlane();
  readonly #types = new Map<string, Contents>();
  #streams = new Map<AdsStream, Map<string, Told>>();
  #version = 0;
  #nonce = 0;
  readonly #body: Body;
  /** Takes streams and answers nothing. */
  mute = false;
  /** Types of which it takes note of what is asked, and says nothing. */
  readonly silentOn = new Set<string>();

  /** Types for which it ends a stream. */
  readonly refuses = new Set<string>();

  private constructor(body: Body) {
    this.#body = body;
  }

  /** `body`: what a content is on the wire. */
  static async start(body: Body = any): Promise<ModelPlane> {
    const created = new ModelPlane(body);
    created.#plane.answer = (stream, request) => created.#answer(stream, request);
    await created.#plane.listen();
    return created;
  }

  get address(): string {
    return `127.0.0.1:${this.#plane.port}`;
  }

  get requests(): readonly Request[] {
    return this.#plane.requests;
  }

  get openStreams(): number {
    return this.#plane.openStreams.length;
  }

  /** What it has of a type from now on, and tells at once. */
  set(short: string, contents: Readonly<Record<string, string>> | Contents): void {
    const url = type(short);
    this.#types.set(url, contents instanceof Map ? contents : new Map(Object.entries(contents)));
    this.#version++;
    for (const stream of this.#plane.openStreams) {
      const told = this.#streams.get(stream)?.get(url);
      if (told !== undefined) this.#tell(stream, url, told, false);
    }
  }

  kill(): void {
    this.#plane.kill();
    this.#streams = new Map();
  }

  async again(): Promise<void> {
    await this.#plane.listen();
  }

  [Symbol.asyncDispose](): Promise<void> {
    this.#plane.kill();
    return Promise.resolve();
  }

  #answer(stream: AdsStream, request: Request): void {
    if (this.mute) return;
    const { short } = typeInfo(typeUrl(request.typeUrl));
    if (this.refuses.has(short)) {
      stream.fail(Code.PERMISSION_DENIED, `${short} is not served here`);
      return;
    }
    const types = this.#streams.get(stream) ?? new Map<string, Told>();
    this.#streams.set(stream, types);
    const known = types.get(request.typeUrl);
    const told = known ?? { wildcard: false, names: new Set<string>(), has: new Map(), nonce: '' };
    types.set(request.typeUrl, told);
    if (request.$typeName.endsWith('.DiscoveryRequest'))
      this.#sotw(stream, request, told, known === undefined);
    else this.#delta(stream, request, told, known === undefined);
  }

  #sotw(stream: AdsStream, request: Request, told: Told, first: boolean): void {
    if (!('resourceNames' in request)) return;
    const { resourceNames, responseNonce } = request satisfies DiscoveryRequest;
    if (responseNonce !== '' && responseNonce !== told.nonce) return;
    const before = [...told.names];
    told.names.clear();
    for (const name of resourceNames) told.names.add(name);
    if (first && resourceNames.length === 0) told.wildcard = true;
    if (told.names.delete('*')) told.wildcard = true;
    if (first || before.join() !== [...told.names].join()) this.#tell(stream, request.typeUrl, told, true);
  }

  #delta(stream: AdsStream, request: Request, told: Told, first: boolean): void {
    if (!('resourceNamesSubscribe' in request)) return;
    const delta: DeltaDiscoveryRequest = request;
    for (const [name] of Object.entries(delta.initialResourceVersions)) {
      told.has.set(name, delta.initialResourceVersions[name]?.slice(1));
    }
    const { resourceNamesSubscribe: more, resourceNamesUnsubscribe: less } = delta;
    const wildcard = (first && more.length === 0) || more.includes('*');
    if (wildcard) told.wildcard = true;
    for (const name of more) if (name !== '*') told.names.add(name);
    for (const name of less) {
      told.names.delete(name);
      if (name === '*') told.wildcard = false;
      if (!told.wildcard) told.has.delete(name);
    }
    if (wildcard || more.length > 0) this.#tell(stream, request.typeUrl, told, wildcard);
  }

  /** `always`: an answer is due even if there is nothing in it. */
  #tell(stream: AdsStream, url: string, told: Told, always: boolean): void {
    if (this.silentOn.has(typeInfo(typeUrl(url)).short)) return;
    const all = this.#types.get(url) ?? new Map<string, string>();
    const nonce = String(++this.#nonce);
    const body = (name: string, content: string) => this.#body(typeUrl(url), name, content);
    const globs = [...told.names].filter((name) => name.endsWith('/*'));
    const isMember = (name: string, glob: string): boolean => name.startsWith(glob.slice(0, -1));
    const isWanted = (name: string): boolean =>
      told.wildcard || told.names.has(name) || globs.some((glob) => isMember(name, glob));
    const wanted = [...all].filter(([name]) => isWanted(name));
    if (stream.first?.$typeName.endsWith('.DiscoveryRequest') === true) {
      told.nonce = nonce;
      const resources = wanted.map(([name, content]) => body(name, content));
      const response = { typeUrl: url, versionInfo: String(this.#version), nonce, resources };
      stream.sendRaw(
        Buffer.from(toBinary(DiscoveryResponseSchema, create(DiscoveryResponseSchema, response))),
      );
      return;
    }
    const changed = wanted.filter(([name, content]) => told.has.get(name) !== content);
    const gone = [...told.has].flatMap(([name, has]) => (has !== undefined && !all.has(name) ? [name] : []));
    const isThere = (name: string): boolean =>
      globs.includes(name) ? wanted.some(([one]) => isMember(one, name)) : all.has(name);
    const lacking = [...told.names].filter((name) => !isThere(name) && !told.has.has(name));
    for (const [name, content] of changed) told.has.set(name, content);
    for (const name of [...gone, ...lacking]) told.has.set(name, undefined);
    if (!always && changed.length + gone.length + lacking.length === 0) return;
    const response = {
      typeUrl: url,
      systemVersionInfo: String(this.#version),
      nonce,
      resources: changed.map(([name, content]) => ({
        name,
        version: versionOf(content),
        resource: body(name, content),
      })),
      removedResources: [...gone, ...lacking],
    };
    stream.sendRaw(
      Buffer.from(toBinary(DeltaDiscoveryResponseSchema, create(DeltaDiscoveryResponseSchema, response))),
    );
  }
}
