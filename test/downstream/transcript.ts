import { create, type MessageInitShape, toBinary } from '@bufbuild/protobuf';
import { anyUnpack } from '@bufbuild/protobuf/wkt';
import { NodeSchema } from '../../src/gen/envoy/config/core/v3/base_pb.ts';
import {
  type DeltaDiscoveryResponse,
  type DiscoveryResponse,
  ResourceSchema,
} from '../../src/gen/envoy/service/discovery/v3/discovery_pb.ts';
import { resourceName } from '../../src/model/brand.ts';
import { UNCONSTRAINED } from '../../src/model/constraints.ts';
import type { Heartbeat, Interest, Put, Removal, ResourceFault } from '../../src/model/transaction.ts';
import { typeInfo } from '../../src/model/types.ts';
import { encodeStatus } from '../../src/wire/responses.ts';
import {
  cluster,
  contentOf,
  type DeltaClient,
  Lab,
  nameOf,
  namedHolder,
  node,
  put,
  type SotwClient,
  type,
  when,
  wildcardHolder,
} from '../support/lab.ts';

/**
 * Runs a conversation of clients with the relay, written as text:
 *
 *     client NAME sotw|delta [TYPE] [key=value…] [+feature…]   a stream on ADS, or on TYPE's own service; node metadata;
 *                                                    features: `ttl`, `wrapped`
 *     < NAME TYPE [names] WORD…                      a SotW request; words: `ack`, `nack` (of the type's last response,
 *                                                    or `ack n1`), `version V`, `node key=value` (sent again)
 *     < NAME TYPE +name -name WORD…                  a delta request; also `initial name` (the version last sent)
 *     NAME stops reading | reads again | leaves
 *     upstream TYPE vVERSION [full|named] ITEM…      a transaction: `a:1` content, `a(s):1` with a service name,
 *                                                    `a{env=prod}:1` constraints, `a:1~5s` a TTL, `~a:5s` a heartbeat,
 *                                                    `-a` removal, `!a:14` a resource error; `full`: nothing else
 *                                                    exists; `named`: not what the wildcard shows. It answers all
 *                                                    interests, unless `silent a b` says for which it does not
 *     upstream down | up
 *     wait 15s
 *
 * and answers with what the relay does: `>` is a response, `!` the end of a stream, `^` interest going upstream.
 * Nonces are counted per stream: n1, n2, …
 */
class Conversation {
  readonly #lab: Lab;
  readonly #clients = new Map<string, Client>();
  #journal = 0;

  constructor(keys: readonly string[]) {
    this.#lab = new Lab({
      rules: keys.map((key) => ({
        key,
        from: `node.metadata.${key}`,
        authorities: [],
        pattern: undefined,
        default: undefined,
        trusted: false,
      })),
    });
  }

  /** What comes of one line. */
  say(line: string): string[] {
    const [verb = '', ...words] = line.split(/\s+/);
    if (verb === 'client') this.#client(words);
    else if (verb === '<') this.#named(words[0]).request(words.slice(1));
    else if (verb === 'upstream') this.#upstream(words);
    else if (verb === 'wait') this.#lab.clock.advance(milliseconds(words[0] ?? ''));
    else this.#named(verb).act(words.join(' '));
    this.#lab.settle();
    return [...this.#interest(), ...[...this.#clients.values()].flatMap((client) => client.heard())];
  }

  #client([name = '', protocol, ...words]: readonly string[]): void {
    const pairs = words.filter((word) => word.includes('='));
    const features = words.filter((word) => word.startsWith('+')).map((word) => featureNames[word] ?? word);
    const service = words.find((word) => /^[a-z]+$/.test(word));
    this.#clients.set(
      name,
      protocol === 'delta'
        ? new DeltaConversant(name, this.#lab, pairs, features, service)
        : new SotwConversant(name, this.#lab, pairs, features, service),
    );
  }

  #named(name = ''): Client {
    const client = this.#clients.get(name);
    if (client === undefined) throw new Error(`no client ${name}`);
    return client;
  }

  #interest(): string[] {
    const { journal } = this.#lab.upstream;
    const news = journal.slice(this.#journal);
    this.#journal = journal.length;
    return news.map((entry) => `^ ${entry}`);
  }

  #upstream([first = '', version = '', ...words]: readonly string[]): void {
    if (first === 'down' || first === 'up') {
      this.#lab.upstream.down = first === 'down';
      this.#lab.relay.changed();
      return;
    }
    const url = type(first);
    const silentAt = words.indexOf('silent');
    const silent = silentAt < 0 ? [] : words.slice(silentAt + 1);
    const items = silentAt < 0 ? words : words.slice(0, silentAt);
    const puts: Put[] = [];
    const removals: Removal[] = [];
    const heartbeats: Heartbeat[] = [];
    const faults: ResourceFault[] = [];
    for (const item of items.filter((word) => word !== 'full' && word !== 'named')) {
      const name = resourceName(item.slice(1).split(':')[0] ?? '');
      const value = item.split(':')[1] ?? '';
      if (item.startsWith('-')) removals.push({ ...variantOf(item.slice(1)) });
      else if (item.startsWith('!')) {
        const code = Number(value);
        const status = encodeStatus(code, 'upstream says so');
        faults.push({ name, constraints: UNCONSTRAINED, code, message: 'upstream says so', status });
      } else if (item.startsWith('~')) {
        heartbeats.push({ name, constraints: UNCONSTRAINED, ttlMilliseconds: milliseconds(value) });
      } else puts.push(parsePut(first, item, version.slice(1)));
    }
    const answered = ({ type: of, selector }: Interest): boolean => of === url && !silent.includes(selector);
    this.#lab.says({
      type: url,
      version: version.slice(1),
      holder: items.includes('named') ? namedHolder : wildcardHolder,
      puts,
      removals,
      heartbeats,
      faults,
      complete: items.includes('full'),
      settled: [...this.#lab.upstream.interests].filter(answered),
    });
  }
}

const featureNames: Readonly<Record<string, string>> = {
  '+ttl': 'xds.config.supports-resource-ttl',
  '+wrapped': 'xds.config.resource-in-sotw',
};

function variantOf(text: string): Removal {
  const [, name = '', pairs] = /^([^{]*)(?:\{(.*)\})?$/.exec(text) ?? [];
  return {
    name: resourceName(name),
    constraints: pairs === undefined ? UNCONSTRAINED : when(pairsOf(pairs.split('&'))),
  };
}

function parsePut(short: string, item: string, version: string): Put {
  const match = /^([^({:]+)(?:\(([^)]*)\))?(\{[^}]*\})?:([^~]*)(?:~(.*))?$/.exec(item);
  const [, name = '', service, constraints = '', content = '', ttl] = match ?? [];
  if (match === null) throw new Error(`cannot read the resource ${item}`);
  const made = service === undefined ? put(type(short), name, content) : cluster(name, content, service);
  return {
    ...made,
    version,
    constraints: variantOf(`${name}${constraints}`).constraints,
    ttlMilliseconds: ttl === undefined ? undefined : milliseconds(ttl),
  };
}

const pairsOf = (words: readonly string[]): Record<string, string> =>
  Object.fromEntries(words.map((word) => [word.split('=')[0] ?? '', word.split('=')[1] ?? '']));

function milliseconds(text: string): number {
  const [, number, unit] = /^(\d+)(ms|s)$/.exec(text) ?? [];
  if (number === undefined) throw new Error(`no duration: ${text}`);
  return Number(number) * (unit === 's' ? 1000 : 1);
}

/** One client, as far as the protocol does not matter. */
abstract class Client {
  readonly name: string;
  readonly stream: SotwClient | DeltaClient;
  readonly #pairs: readonly string[];
  readonly #features: readonly string[];
  /** The relay's nonces in the order of their arrival. */
  readonly #nonces: string[] = [];
  readonly #last = new Map<string, string>();
  #ended = false;

  constructor(
    name: string,
    stream: SotwClient | DeltaClient,
    pairs: readonly string[],
    features: readonly string[],
  ) {
    this.name = name;
    this.stream = stream;
    this.#pairs = pairs;
    this.#features = features;
  }

  abstract request(words: readonly string[]): void;
  protected abstract describe(): string[];

  act(what: string): void {
    if (what === 'stops reading') this.stream.blocked = true;
    else if (what === 'reads again') this.stream.unblock();
    else if (what === 'leaves') this.stream.disconnect();
    else throw new Error(`cannot read: ${what}`);
  }

  heard(): string[] {
    const lines = this.describe();
    const { status } = this.stream;
    if (status === undefined || this.#ended) return lines;
    this.#ended = true;
    return status.code === 1 ? lines : [...lines, `! ${this.name} ends ${status.code}: ${status.message}`];
  }

  protected node(pairs = this.#pairs) {
    return create(NodeSchema, node(pairsOf(pairs), this.#features));
  }

  /** A response's nonce, as the transcript counts it. */
  protected received(short: string, nonce: string): string {
    this.#nonces.push(nonce);
    this.#last.set(short, nonce);
    return `n${this.#nonces.length}`;
  }

  /** Of `ack` or `nack`, followed by `n1` or by nothing: the type's last response. */
  protected answered(short: string, words: readonly string[]): string | undefined {
    const at = words.findIndex((word) => word === 'ack' || word === 'nack');
    if (at < 0) return undefined;
    const [, index] = /^n(\d+)$/.exec(words[at + 1] ?? '') ?? [];
    return index === undefined ? this.#last.get(short) : this.#nonces[Number(index) - 1];
  }
}

const valueAfter = (words: readonly string[], word: string): string | undefined =>
  words.includes(word) ? words[words.indexOf(word) + 1] : undefined;

const rejection = (words: readonly string[]) =>
  words.includes('nack') ? { errorDetail: { code: 13, message: 'rejected' } } : {};

class SotwConversant extends Client {
  declare readonly stream: SotwClient;
  readonly #versions = new Map<string, string>();

  constructor(name: string, lab: Lab, pairs: readonly string[], features: readonly string[], service = '') {
    super(name, service === '' ? lab.sotw() : lab.sotw(servicePath(service, 'sotw')), pairs, features);
  }

  request([short = '', ...words]: readonly string[]): void {
    const rest = words.join(' ');
    const names = (/\[(.*)\]/.exec(rest)?.[1] ?? '').split(' ').filter((name) => name !== '');
    const nonce = this.answered(short, words);
    const version = valueAfter(words, 'version') ?? (words.includes('ack') ? this.#versions.get(short) : '');
    const renewed = valueAfter(words, 'node');
    this.stream.send(short, {
      ...this.#firstNode(),
      ...(renewed === undefined ? {} : { node: this.node([renewed]) }),
      resourceNames: names,
      responseNonce: nonce ?? '',
      versionInfo: version ?? '',
      ...rejection(words),
    });
  }

  #sent = false;
  #firstNode(): MessageInitShape<typeof NodeSchema> | object {
    if (this.#sent) return {};
    this.#sent = true;
    return { node: this.node() };
  }

  protected describe(): string[] {
    return this.stream.received().map((response) => {
      const { short } = typeInfo(type(response.typeUrl));
      this.#versions.set(short, response.versionInfo);
      const version = response.versionInfo === '' ? '' : ` v${response.versionInfo}`;
      const words = [`> ${this.name} ${short} ${this.received(short, response.nonce)}${version}`];
      words.push(`{${sotwContents(response).join(', ')}}`);
      return [...words, ...errors(response)].join(' ');
    });
  }
}

function sotwContents(response: DiscoveryResponse): string[] {
  return response.resources
    .map((resource) => {
      const wrapper = anyUnpack(resource, registryOfOne());
      if (wrapper?.$typeName !== 'envoy.service.discovery.v3.Resource') {
        return `${nameOf(resource)}: ${contentOf(resource)}`;
      }
      return describeResource(anyUnpack(resource, ResourceSchema));
    })
    .toSorted();
}

class DeltaConversant extends Client {
  declare readonly stream: DeltaClient;
  readonly #versions = new Map<string, string>();
  #sent = false;

  constructor(name: string, lab: Lab, pairs: readonly string[], features: readonly string[], service = '') {
    super(name, service === '' ? lab.delta() : lab.delta(servicePath(service, 'delta')), pairs, features);
  }

  request([short = '', ...words]: readonly string[]): void {
    const listed = (sign: string): string[] =>
      words.filter((word) => word.startsWith(sign)).map((word) => word.slice(1));
    const claimed = words.includes('initial') ? words.slice(words.indexOf('initial') + 1) : [];
    this.stream.send(short, {
      ...(this.#sent ? {} : { node: this.node() }),
      resourceNamesSubscribe: listed('+'),
      resourceNamesUnsubscribe: listed('-'),
      responseNonce: this.answered(short, words) ?? '',
      initialResourceVersions: Object.fromEntries(
        claimed.map((name) => [name, this.#versions.get(`${short} ${name}`) ?? 'x@y']),
      ),
      ...rejection(words),
    });
    this.#sent = true;
  }

  protected describe(): string[] {
    return this.stream.received().map((response) => {
      const { short } = typeInfo(type(response.typeUrl));
      for (const { name, version } of response.resources) this.#versions.set(`${short} ${name}`, version);
      const words = [`> ${this.name} ${short} ${this.received(short, response.nonce)}`];
      words.push(`{${response.resources.map(describeResource).toSorted().join(', ')}}`);
      if (response.removedResources.length > 0)
        words.push(`removed [${response.removedResources.toSorted().join(' ')}]`);
      return [...words, ...errors(response)].join(' ');
    });
  }
}
