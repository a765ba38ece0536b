import { create, fromBinary } from '@bufbuild/protobuf';
import { NodeSchema } from '../../src/gen/envoy/config/core/v3/base_pb.ts';
import {
  DeltaDiscoveryResponseSchema,
  DiscoveryResponseSchema,
} from '../../src/gen/envoy/service/discovery/v3/discovery_pb.ts';
import { type } from '../support/in-memory-relay.ts';
import { allNames, type ClientPlan } from './arbitrary.ts';
import { type Entry, entriesOfDelta, entriesOfSotw } from './entries.ts';
import type { Ground, Stream } from './ground.ts';
import { Judgement } from './judgement.ts';
import { Leaks } from './leaks.ts';
import { type Identity, type Selector, type Type, types } from './policy.ts';
import { isCollection, Reference } from './reference.ts';

const paths: Readonly<Record<Type, readonly [service: string, method: string]>> = {
  cds: ['cluster.v3.ClusterDiscoveryService', 'Clusters'],
  eds: ['endpoint.v3.EndpointDiscoveryService', 'Endpoints'],
  vhds: ['route.v3.VirtualHostDiscoveryService', 'VirtualHosts'],
};

/** One type of a client. */
interface Topic {
  readonly selectors: Map<string, Selector>;
  /** By what it is known by on the wire. */
  readonly held: Map<string, Entry>;
  nonce: string;
  named: boolean;
}

/** A client with a certificate: it keeps what it is sent, and every message to it is looked through. */
export class Tenant {
  readonly #world: Ground;
  readonly #plan: ClientPlan;
  #identity: Identity;
  #streams = new Map<string, Stream>();
  readonly #topics = new Map<Type, Topic>();
  readonly #leaks: Leaks;
  #blocked = false;
  #rejects = false;
  readonly #greeted = new Set<Stream>();

  constructor(world: Ground, plan: ClientPlan) {
    this.#world = world;
    this.#plan = plan;
    this.#identity = plan.identity;
    this.#leaks = new Leaks(world);
  }

  /** By the rules in force, and those before where nobody knows yet which are. */
  get #references(): readonly Reference[] {
    const { policy, before } = this.#world;
    return [policy, ...(before === undefined ? [] : [before])].map(
      (one) => new Reference(one, this.#identity),
    );
  }

  get reference(): Reference {
    return new Reference(this.#world.policy, this.#identity);
  }

  subscribe(short: Type, add: readonly Selector[], drop: number): void {
    // There is no such service.
    if (short === 'vhds' && this.#plan.protocol === 'sotw' && !this.#plan.ads) return;
    const topic = this.#topic(short);
    const added = add.map((one) => this.#inForm(one)).filter((one) => !topic.selectors.has(keyOf(one)));
    // Trusted parameters may make one of two locators: they go together.
    const [first] = [...topic.selectors.values()].slice(drop);
    const dropped =
      first === undefined ? [] : [...topic.selectors.values()].filter((one) => alike(one, first));
    if (!topic.named && added.length === 0) return;
    if (added.length + dropped.length === 0) return;
    for (const one of dropped) topic.selectors.delete(keyOf(one));
    const kept = added.filter((one) => !dropped.some((other) => alike(one, other)));
    for (const one of kept) topic.selectors.set(keyOf(one), one);
    if (!topic.named && kept.length === 0) return;
    this.#leaks.asks(short, [...kept, ...dropped]);
    this.#forget(topic);
    this.#send(short, kept, topic.named ? dropped : []);
  }

  /** Where both forms look alike on the wire, a client uses one of them (xds.plain_clients). */
  #inForm({ name, parameters }: Selector): Selector {
    if (!this.#world.constrained) return parameters === undefined ? { name } : { name, parameters };
    return this.#plan.wrapped ? { name, parameters: parameters ?? {} } : { name };
  }

  become(metadata: Identity['metadata']): void {
    this.#identity = { ...this.#identity, metadata };
    for (const stream of this.#streams.values()) this.#greeted.delete(stream);
    for (const [short, { named }] of this.#topics) if (named) this.#send(short, [], []);
  }

  stop(): void {
    this.#blocked = true;
    for (const stream of this.#streams.values()) stream.blocked = true;
  }

  readOn(): void {
    this.#blocked = false;
    for (const stream of this.#streams.values()) stream.unblock();
  }

  rejectNext(): void {
    this.#rejects = true;
  }

  reconnect(): void {
    for (const stream of this.#streams.values()) stream.disconnect();
    this.#restart();
  }

  /** Reads and judges what has come. */
  read(): void {
    for (let again = true; again; ) {
      again = false;
      for (const stream of [...this.#streams.values()]) {
        for (const frame of stream.inbox.splice(0)) {
          again = true;
          this.#take(stream, frame.subarray(5));
        }
        if (stream.status !== undefined) this.#ended(stream);
      }
    }
  }

  /** Once everything has been answered: what it holds is what it may see of what it asks for. */
  check(): void {
    if (this.#blocked) return;
    for (const [short, topic] of this.#topics) {
      if (!topic.named) continue;
      const selectors = [...topic.selectors.values()];
      const held = new Set([...topic.held.values()].map(({ number }) => number));
      const complete =
        this.#plan.protocol === 'delta' ||
        short === 'cds' ||
        selectors.some(({ name }) => isCollection(name));
      new Judgement(this.#world, this.reference, short, selectors).of(held, complete);
    }
  }

  #take(stream: Stream, bytes: Buffer): void {
    this.#world.tally.count(`message to a ${this.#plan.protocol} client`);
    const delta = this.#plan.protocol === 'delta';
    const response = delta
      ? fromBinary(DeltaDiscoveryResponseSchema, bytes)
      : fromBinary(DiscoveryResponseSchema, bytes);
    const short = types.find((one) => type(one) === response.typeUrl);
    if (short === undefined) throw new Error(`a response of ${response.typeUrl}`);
    const topic = this.#topic(short);
    const { entries, removed } =
      response.$typeName === 'envoy.service.discovery.v3.DeltaDiscoveryResponse'
        ? entriesOfDelta(response, this.#world.constrained)
        : { entries: entriesOfSotw(response, this.#world.constrained), removed: [] };
    const before = new Set([...topic.held.values()].map(({ number }) => number));
    this.#leaks.look(short, bytes, this.#references, before);
    const whole = short === 'cds' || topic.selectors.values().some(({ name }) => isCollection(name));
    if (!delta && whole) topic.held.clear();
    for (const key of removed) topic.held.delete(key);
    for (const entry of entries) topic.held.set(entry.key, entry);
    topic.nonce = response.nonce;
    const rejected = this.#rejects ? { errorDetail: { code: 3, message: 'no' } } : {};
    this.#rejects = false;
    this.#request(stream, short, { responseNonce: response.nonce, ...rejected });
  }

  #ended(stream: Stream): void {
    const { code, message } = stream.status ?? { code: 0, message: '' };
    this.#leaks.lookAtText(message, this.#references);
    this.#world.tally.count(code === 7 ? 'stream refused' : 'stream ended for other rules');
    if (code === 7) {
      this.#judgeRefusal(stream);
      for (const [path, one] of this.#streams) if (one === stream) this.#drop(path);
      return;
    }
    if (code !== 14 || !message.startsWith('the rules')) throw new Error(`it ended with ${code}: ${message}`);
    this.#restart();
  }

  /** PERMISSION_DENIED: nothing that the stream could ask for is allowed; on a service of one type, that it does. */
  #judgeRefusal(stream: Stream): void {
    if (this.#world.before !== undefined) return;
    const { reference } = this;
    const { ads } = this.#plan;
    for (const short of types) {
      if (!ads && stream.path !== this.#path(short)) continue;
      if (reference.allowsNone(short, allNames.get(short) ?? [])) continue;
      const selectors = [...this.#topic(short).selectors.values()];
      const named = selectors.every(({ name }) => !isCollection(name) && !reference.allows(short, name));
      if (ads || !named || selectors.length === 0)
        throw new Error(`it is refused, though ${short} is allowed`);
    }
  }

  #drop(path: string): void {
    this.#streams.delete(path);
    for (const short of types) if (this.#path(short) === path) this.#topics.delete(short);
  }

  /** On new streams, with nothing in hand. */
  #restart(): void {
    this.#streams = new Map();
    this.#blocked = false;
    for (const [short, topic] of this.#topics) {
      topic.held.clear();
      topic.nonce = '';
      topic.named = false;
      if (topic.selectors.size > 0) this.#send(short, [...topic.selectors.values()], []);
    }
  }

  #send(short: Type, add: readonly Selector[], drop: readonly Selector[]): void {
    const topic = this.#topic(short);
    topic.named = true;
    const stream = this.#stream(short);
    if (this.#plan.protocol === 'sotw') {
      this.#request(stream, short, { responseNonce: topic.nonce });
      return;
    }
    this.#request(stream, short, {
      resourceNamesSubscribe: plainOf(add),
      resourceLocatorsSubscribe: locatorsOf(add),
      resourceNamesUnsubscribe: plainOf(drop),
      resourceLocatorsUnsubscribe: locatorsOf(drop),
    });
  }

  #request(stream: Stream, short: Type, request: object): void {
    if (stream.status !== undefined) return;
    const { id, metadata } = this.#identity;
    const clientFeatures = this.#plan.wrapped ? ['xds.config.resource-in-sotw'] : [];
    const node = this.#greeted.has(stream)
      ? {}
      : { node: create(NodeSchema, { id, metadata: { ...metadata }, clientFeatures }) };
    this.#greeted.add(stream);
    const selectors = [...this.#topic(short).selectors.values()];
    const selection =
      this.#plan.protocol === 'sotw'
        ? { resourceNames: plainOf(selectors), resourceLocators: locatorsOf(selectors) }
        : {};
    stream.send(short, { ...selection, ...node, ...request });
  }

  #stream(short: Type): Stream {
    const path = this.#path(short);
    const known = this.#streams.get(path);
    if (known !== undefined) return known;
    const stream = this.#world.open(path, this.#plan.protocol, this.#identity);
    stream.blocked = this.#blocked;
    this.#streams.set(path, stream);
    return stream;
  }

  #path(short: Type): string {
    const kind = this.#plan.protocol === 'delta' ? 'Delta' : 'Stream';
    if (this.#plan.ads) {
      return `/envoy.service.discovery.v3.AggregatedDiscoveryService/${kind}AggregatedResources`;
    }
    const [service, method] = paths[short];
    return `/envoy.service.${service}/${kind}${method}`;
  }

  /** What no subscription is about any more. */
  #forget(topic: Topic): void {
    const { reference } = this;
    for (const [key, { number, form }] of topic.held) {
      const snapshot = this.#world.snapshots[number];
      const covered = topic.selectors
        .values()
        .some(
          (selector) =>
            (form === 'any' || (form === 'locator') === (selector.parameters !== undefined)) &&
            snapshot !== undefined &&
            reference.covers(selector, snapshot),
        );
      if (!covered) topic.held.delete(key);
    }
  }

  #topic(short: Type): Topic {
    const known = this.#topics.get(short);
    if (known !== undefined) return known;
    const created: Topic = { selectors: new Map(), held: new Map(), nonce: '', named: false };
    this.#topics.set(short, created);
    return created;
  }
}

/** Of one name, in one form. */
const alike = (one: Selector, other: Selector): boolean =>
  one.name === other.name && (one.parameters === undefined) === (other.parameters === undefined);

const keyOf = ({ name, parameters }: Selector): string => JSON.stringify([name, parameters]);

const plainOf = (selectors: readonly Selector[]): string[] =>
  selectors.filter(({ parameters }) => parameters === undefined).map(({ name }) => name);

const locatorsOf = (selectors: readonly Selector[]): object[] =>
  selectors.flatMap(({ name, parameters }) =>
    parameters === undefined ? [] : [{ name, dynamicParameters: { ...parameters } }],
  );
