import { create } from '@bufbuild/protobuf';
import { type Any, anyIs, anyUnpack } from '@bufbuild/protobuf/wkt';
import { NodeSchema } from '../../src/gen/envoy/config/core/v3/base_pb.ts';
import {
  type DeltaDiscoveryResponse,
  type DiscoveryResponse,
  type Resource,
  ResourceSchema,
} from '../../src/gen/envoy/service/discovery/v3/discovery_pb.ts';
import { typeUrl } from '../../src/model/brand.ts';
import { typeInfo } from '../../src/model/types.ts';
import type { ServerStream } from '../../src/wire/server-stream.ts';
import { contentOf, type DeltaClient, nameOf, node, type SotwClient } from '../support/in-memory-relay.ts';

/** Who takes part in a transcript. */
export interface ClientIdentity {
  readonly name: string;
  /** Node metadata, `key=value`. */
  readonly pairs: readonly string[];
  readonly features: readonly string[];
  /** Of each resource, `TYPE NAME`, as it was last sent to anybody. */
  readonly versions: Map<string, string>;
}

/** One client of a transcript: words into requests, responses into words. See transcript.ts for the notation. */
export abstract class ScriptedClient {
  protected readonly who: ClientIdentity;
  /** The relay's nonces in the order of their arrival. */
  readonly #nonces: string[] = [];
  /** The last nonce of each type. */
  readonly #last = new Map<string, string>();
  #nodeSent = false;
  #ended = false;

  constructor(who: ClientIdentity) {
    this.who = who;
  }

  abstract request(words: readonly string[]): void;
  protected abstract readonly stream: SotwClient | DeltaClient;
  protected abstract responses(): string[];

  uses(transport: ServerStream): boolean {
    return transport === this.stream;
  }

  act(what: string): void {
    if (what === 'stops reading') this.stream.blocked = true;
    else if (what === 'reads again') this.stream.unblock();
    else if (what === 'leaves') this.stream.disconnect();
    else throw new Error(`cannot read: ${what}`);
  }

  /** What it was told since the last time. */
  heard(): string[] {
    const lines = this.responses();
    const { status } = this.stream;
    if (status === undefined || this.#ended) return lines;
    this.#ended = true;
    return status.code === 1
      ? lines
      : [...lines, `! ${this.who.name} ends with ${status.code}: ${status.message}`];
  }

  /** The node: with the first request, and when it has changed. */
  protected node(words: readonly string[]) {
    const changed = valueAfter(words, 'node');
    if (this.#nodeSent && changed === undefined) return {};
    this.#nodeSent = true;
    const pairs = changed === undefined ? this.who.pairs : [changed];
    return { node: create(NodeSchema, node(pairsOf(pairs), this.who.features)) };
  }

  /** `ack` or `nack`, followed by `n1` or by nothing: of the type's last response. */
  protected answer(short: string, words: readonly string[]) {
    const at = words.findIndex((word) => word === 'ack' || word === 'nack');
    if (at < 0) return {};
    const [, index] = /^n(\d+)$/.exec(words[at + 1] ?? '') ?? [];
    const nonce = index === undefined ? this.#last.get(short) : this.#nonces[Number(index) - 1];
    const error = words[at] === 'nack' ? { errorDetail: { code: 13, message: 'rejected' } } : {};
    return { responseNonce: nonce ?? '', ...error };
  }

  /** How the line of a response begins. */
  protected begin(short: string, nonce: string, version: string): string {
    this.#nonces.push(nonce);
    this.#last.set(short, nonce);
    const said = version === '' ? '' : ` version ${version}`;
    return `> ${this.who.name} ${short} n${this.#nonces.length}${said}`;
  }
}

export class ScriptedSotwClient extends ScriptedClient {
  protected readonly stream: SotwClient;
  /** The version that it accepted last. */
  readonly #accepted = new Map<string, string>();
  readonly #sent = new Map<string, string>();

  constructor(who: ClientIdentity, stream: SotwClient) {
    super(who);
    this.stream = stream;
  }

  request([short = '', ...words]: readonly string[]): void {
    const names = (/\[(.*)\]/.exec(words.join(' '))?.[1] ?? '').split(' ').filter((name) => name !== '');
    if (words.includes('ack')) this.#accepted.set(short, this.#sent.get(short) ?? '');
    this.stream.send(short, {
      ...this.node(words),
      ...this.answer(short, words),
      resourceNames: names,
      versionInfo: valueAfter(words, 'version') ?? this.#accepted.get(short) ?? '',
    });
  }

  protected responses(): string[] {
    return this.stream.received().map((response) => {
      const { short } = typeInfo(typeUrl(response.typeUrl));
      this.#sent.set(short, response.versionInfo);
      const resources = response.resources.map(describeAny).toSorted().join(', ');
      const begin = this.begin(short, response.nonce, response.versionInfo);
      return [begin, `{${resources}}`, ...errors(response)].join(' ');
    });
  }
}

export class ScriptedDeltaClient extends ScriptedClient {
  protected readonly stream: DeltaClient;

  constructor(who: ClientIdentity, stream: DeltaClient) {
    super(who);
    this.stream = stream;
  }

  request([short = '', ...words]: readonly string[]): void {
    const listed = (sign: string): string[] =>
      words.filter((word) => word.startsWith(sign)).map((word) => word.slice(1));
    const claimed = words.includes('initial') ? words.slice(words.indexOf('initial') + 1) : [];
    this.stream.send(short, {
      ...this.node(words),
      ...this.answer(short, words),
      resourceNamesSubscribe: listed('+'),
      resourceNamesUnsubscribe: listed('-'),
      initialResourceVersions: Object.fromEntries(
        claimed.map((name) => [name, this.who.versions.get(`${short} ${name}`) ?? 'old@0123456789abcdef']),
      ),
    });
  }

  protected responses(): string[] {
    return this.stream.received().map((response) => {
      const { short } = typeInfo(typeUrl(response.typeUrl));
      for (const { name, version } of response.resources) this.who.versions.set(`${short} ${name}`, version);
      const resources = response.resources.map(describeResource).toSorted().join(', ');
      const removed = response.removedResources.toSorted().join(' ');
      const begin = this.begin(short, response.nonce, response.systemVersionInfo);
      const words = [begin, `{${resources}}`, ...(removed === '' ? [] : [`removed [${removed}]`])];
      return [...words, ...errors(response)].join(' ');
    });
  }
}

export const pairsOf = (words: readonly string[]): Record<string, string> =>
  Object.fromEntries(words.map((word) => [word.split('=')[0] ?? '', word.split('=')[1] ?? '']));

function valueAfter(words: readonly string[], word: string): string | undefined {
  const at = words.indexOf(word);
  return at < 0 ? undefined : words[at + 1];
}

function describeAny(any: Any): string {
  const wrapped = anyIs(any, ResourceSchema) ? anyUnpack(any, ResourceSchema) : undefined;
  return wrapped === undefined ? `${nameOf(any)}: ${contentOf(any)}` : describeResource(wrapped);
}

function describeResource({ name, resource, ttl }: Resource): string {
  const body = resource === undefined ? '-' : contentOf(resource);
  const seconds = ttl === undefined ? '' : ` ~${Number(ttl.seconds) + ttl.nanos / 1e9}s`;
  return `${name}: ${body}${seconds}`;
}

function errors(response: DiscoveryResponse | DeltaDiscoveryResponse): string[] {
  return response.resourceErrors.map(
    ({ resourceName, errorDetail }) => `error ${resourceName?.name}:${errorDetail?.code}`,
  );
}
