import { create, fromBinary, type MessageInitShape, toBinary } from '@bufbuild/protobuf';
import type { ChannelCredentials, Client, StatusObject } from '@grpc/grpc-js';
import {
  DeltaDiscoveryRequestSchema,
  DeltaDiscoveryResponseSchema,
  DiscoveryRequestSchema,
  DiscoveryResponseSchema,
} from '../../../src/gen/envoy/service/discovery/v3/discovery_pb.ts';
import { ADS_SERVICE } from '../../../src/model/types.ts';
import { openCall, type RawCall, rawClient } from '../../support/grpc-calls.ts';
import { contentOf, nameOf, type } from '../../support/in-memory-relay.ts';
import { eventually } from './eventually.ts';

/** One response as a client had it. */
export interface RecordedResponse {
  readonly type: string;
  /** By `performance.now()`. */
  readonly at: number;
  readonly version: string;
  readonly nonce: string;
  /** Name → content. */
  readonly resources: ReadonlyMap<string, string>;
  readonly removed: readonly string[];
}

/** The fields, not a message: they are merged with others. */
type Fields<Init> = Exclude<Init, { readonly $typeName: string }>;
type Sotw = Fields<MessageInitShape<typeof DiscoveryRequestSchema>>;
type Delta = Fields<MessageInitShape<typeof DeltaDiscoveryRequestSchema>>;

/** Connections that many streams share. */
export class ClientPool implements Disposable {
  readonly #clients: readonly Client[];
  readonly #open: RecordingClient[] = [];
  #next = 0;

  /** `secure`: for a relay with a certificate for `relay.test`. */
  constructor(address: string, connections = 4, secure?: ChannelCredentials) {
    this.#clients = Array.from({ length: connections }, () =>
      secure === undefined
        ? rawClient(address)
        : rawClient(address, secure, { 'grpc.ssl_target_name_override': 'relay.test' }),
    );
  }

  open(protocol: 'sotw' | 'delta', id = 'client', userAgentName = ''): RecordingClient {
    const client = this.#clients[this.#next++ % this.#clients.length];
    if (client === undefined) throw new Error('no connection');
    const opened = new RecordingClient(client, protocol, id, userAgentName);
    this.#open.push(opened);
    return opened;
  }

  /** The connection of the first client that was opened, for other calls. */
  get connection(): Client {
    const [first] = this.#clients;
    if (first === undefined) throw new Error('no connection');
    return first;
  }

  [Symbol.dispose](): void {
    for (const opened of this.#open) opened[Symbol.dispose]();
    for (const client of this.#clients) client.close();
  }
}

/** What a client has from an earlier stream. */
type Earlier = Pick<RecordingClient, 'said' | 'holds' | 'versions'>;

/**
 * Waits until the relay has all of cds: a wildcard's first answer is whole when nothing more has come for a while
 * (protocol §5b). Only then is a client told that something it had is gone.
 */
export async function wildcardAnswered(pool: ClientPool): Promise<void> {
  using probe = pool.open('delta', 'probe');
  probe.subscribe('cds', [], { said: [], holds: new Map(), versions: new Map([['cds', { gone: '1' }]]) });
  await eventually(() => {
    if (!probe.said.some(({ removed }) => removed.includes('gone'))) throw new Error('not answered yet');
  });
}

/** A stream that remembers all it was told and what that adds up to, of types by their short names. */
export class RecordingClient implements Disposable {
  readonly said: RecordedResponse[] = [];
  /** Name → content, of each type. */
  readonly holds = new Map<string, Map<string, string>>();
  /** Delta: name → version, of each type. */
  readonly versions = new Map<string, Record<string, string>>();
  status: StatusObject | undefined;
  endedAt = 0;
  /** Rejects what this says. */
  rejects: (said: RecordedResponse) => string | undefined = () => undefined;
  /** Otherwise it leaves responses unanswered. */
  answers = true;
  readonly protocol: 'sotw' | 'delta';
  readonly #call: RawCall;
  readonly #id: string;
  readonly #userAgentName: string;
  readonly #names = new Map<string, readonly string[]>();
  readonly #accepted = new Map<string, string>();
  #greeted = false;

  constructor(client: Client, protocol: 'sotw' | 'delta', id: string, userAgentName = '') {
    this.protocol = protocol;
    this.#id = id;
    this.#userAgentName = userAgentName;
    const method = protocol === 'delta' ? 'DeltaAggregatedResources' : 'StreamAggregatedResources';
    this.#call = openCall(client, `/${ADS_SERVICE}/${method}`);
    this.#call.on('data', (bytes: Buffer) => this.#take(bytes));
    this.#call.on('status', (status) => {
      this.status = status;
      this.endedAt = performance.now();
    });
  }

  /** `from`: what it has from an earlier stream: versions (delta), or the last version_info (SotW). */
  subscribe(short: string, names: readonly string[] = [], from?: Earlier): void {
    if (this.protocol === 'delta') {
      const initialResourceVersions = from?.versions.get(short) ?? {};
      for (const [name, content] of from?.holds.get(short) ?? []) this.#of(short).set(name, content);
      this.#delta(short, { resourceNamesSubscribe: [...names], initialResourceVersions });
      return;
    }
    this.#names.set(short, names);
    const versionInfo = from?.said.findLast((said) => said.type === short)?.version ?? '';
    this.#sotw(short, { versionInfo });
  }

  /** From now on it does not ask for these names, of those that it asked for. */
  unsubscribe(short: string, names: readonly string[]): void {
    this.#leave(short, names);
    if (this.protocol === 'delta') {
      this.#delta(short, { resourceNamesUnsubscribe: [...names] });
      return;
    }
    const responseNonce = this.said.findLast((said) => said.type === short)?.nonce ?? '';
    this.#sotw(short, { versionInfo: this.#accepted.get(short) ?? '', responseNonce });
  }

  #leave(short: string, names: readonly string[]): void {
    for (const name of names) this.#of(short).delete(name);
    const before = this.#names.get(short) ?? [];
    if (names.length > 0)
      this.#names.set(
        short,
        before.filter((name) => !names.includes(name)),
      );
  }

  of(short: string): readonly RecordedResponse[] {
    return this.said.filter((said) => said.type === short);
  }

  has(short: string): Record<string, string> {
    return Object.fromEntries([...(this.holds.get(short) ?? [])].toSorted(([a], [b]) => (a < b ? -1 : 1)));
  }

  /** Waits until it holds exactly this. */
  async gets(short: string, expected: Readonly<Record<string, string>>): Promise<void> {
    const sorted = JSON.stringify(
      Object.fromEntries(Object.entries(expected).toSorted(([a], [b]) => (a < b ? -1 : 1))),
    );
    await eventually(() => {
      const has = JSON.stringify(this.has(short));
      if (has !== sorted) {
        const end = this.status === undefined ? 'open' : `ended: ${this.status.details}`;
        throw new Error(`it holds ${has} instead of ${sorted}; the stream is ${end}`);
      }
    });
  }

  async ends(): Promise<StatusObject> {
    return eventually(() => {
      if (this.status === undefined) throw new Error('the stream is open');
      return this.status;
    });
  }

  [Symbol.dispose](): void {
    this.#call.cancel();
  }

  #take(bytes: Buffer): void {
    const said = this.protocol === 'delta' ? this.#readDelta(bytes) : this.#readSotw(bytes);
    this.said.push(said);
    const message = this.rejects(said);
    if (message === undefined) this.#hold(said);
    if (message === undefined) this.#accepted.set(said.type, said.version);
    if (this.answers) this.answer(said.type, said.nonce, message);
  }

  /** An ACK of the response with this nonce; with a message a NACK. `left`: names that it unsubscribes with that. */
  answer(short: string, nonce: string, message?: string, left: readonly string[] = []): void {
    const answer = {
      responseNonce: nonce,
      ...(message === undefined ? {} : { errorDetail: { code: 13, message } }),
    };
    this.#leave(short, left);
    if (this.protocol === 'delta') this.#delta(short, { ...answer, resourceNamesUnsubscribe: [...left] });
    else this.#sotw(short, { ...answer, versionInfo: this.#accepted.get(short) ?? '' });
  }

  #hold({ type: short, resources, removed }: RecordedResponse): void {
    const held = this.#of(short);
    if (this.protocol === 'sotw' && (short === 'cds' || short === 'lds')) held.clear();
    for (const [name, content] of resources) held.set(name, content);
    for (const name of removed) held.delete(name);
  }

  #readDelta(bytes: Buffer): RecordedResponse {
    const response = fromBinary(DeltaDiscoveryResponseSchema, bytes);
    const short = shortOf(response.typeUrl);
    const versions = this.versions.get(short) ?? {};
    this.versions.set(short, versions);
    for (const { name, version } of response.resources) versions[name] = version;
    for (const name of response.removedResources) delete versions[name];
    return {
      type: short,
      at: performance.now(),
      version: response.systemVersionInfo,
      nonce: response.nonce,
      resources: new Map(response.resources.map(({ name, resource }) => [name, contentOf(resource)])),
      removed: response.removedResources,
    };
  }

  #readSotw(bytes: Buffer): RecordedResponse {
    const response = fromBinary(DiscoveryResponseSchema, bytes);
    return {
      type: shortOf(response.typeUrl),
      at: performance.now(),
      version: response.versionInfo,
      nonce: response.nonce,
      resources: new Map(response.resources.map((one) => [nameOf(one), contentOf(one)])),
      removed: [],
    };
  }

  #of(short: string): Map<string, string> {
    const known = this.holds.get(short) ?? new Map<string, string>();
    this.holds.set(short, known);
    return known;
  }

  #node(): Pick<Delta & Sotw, 'node'> {
    if (this.#greeted) return {};
    this.#greeted = true;
    return { node: { id: this.#id, cluster: 'clients', userAgentName: this.#userAgentName } };
  }

  #delta(short: string, request: Delta): void {
    const message = create(DeltaDiscoveryRequestSchema, {
      typeUrl: type(short),
      ...this.#node(),
      ...request,
    });
    this.#call.write(Buffer.from(toBinary(DeltaDiscoveryRequestSchema, message)));
  }

  #sotw(short: string, request: Sotw): void {
    const resourceNames = [...(this.#names.get(short) ?? [])];
    const message = { typeUrl: type(short), ...this.#node(), resourceNames, ...request };
    this.#call.write(Buffer.from(toBinary(DiscoveryRequestSchema, create(DiscoveryRequestSchema, message))));
  }
}

function shortOf(url: string): string {
  const short = ['cds', 'eds', 'lds', 'rds', 'sds', 'rtds', 'vhds'].find((one) => type(one) === url);
  if (short === undefined) throw new Error(`a response of ${url}`);
  return short;
}
