import { create, fromBinary, type MessageInitShape, toBinary } from '@bufbuild/protobuf';
import type { Any } from '@bufbuild/protobuf/wkt';
import type { Client, Metadata, StatusObject } from '@grpc/grpc-js';
import {
  DeltaDiscoveryRequestSchema,
  type DeltaDiscoveryResponse,
  DeltaDiscoveryResponseSchema,
  DiscoveryRequestSchema,
  type DiscoveryResponse,
  DiscoveryResponseSchema,
  DynamicParameterConstraintsSchema,
  type Resource,
  ResourceSchema,
} from '../../../src/gen/envoy/service/discovery/v3/discovery_pb.ts';
import { ADS_SERVICE } from '../../../src/model/types.ts';
import { openCall, type RawCall, rawClient } from '../../support/grpc-calls.ts';
import { contentOf, nameOf, type } from '../../support/in-memory-relay.ts';
import { identity, locator, told } from '../../support/variants.ts';
import { eventually } from './eventually.ts';
import type { NodeInit } from './xds-client.ts';

type Sotw = MessageInitShape<typeof DiscoveryRequestSchema>;
type Delta = MessageInitShape<typeof DeltaDiscoveryRequestSchema>;
type Locators = Readonly<Record<string, Readonly<Record<string, string>>>>;

export interface Wanted {
  readonly names?: readonly string[];
  /** Name to parameters. */
  readonly locators?: Locators;
}

export interface VariantClientOptions {
  readonly protocol: 'sotw' | 'delta';
  readonly node?: NodeInit;
  readonly metadata?: Metadata;
  /** Delta: whether a response is accepted, by what it says; all are by default. */
  readonly accepts?: (said: readonly string[]) => boolean;
  /** What of a resource's body is remembered. */
  readonly content?: (any: Any | undefined) => string;
}

/** A few connections that many streams share. */
export class Connections implements Disposable {
  readonly #clients: readonly Client[];
  readonly #streams: VariantClient[] = [];
  #next = 0;

  constructor(address: string, count = 1) {
    const limits = { 'grpc.max_receive_message_length': -1, 'grpc.max_send_message_length': -1 };
    this.#clients = Array.from({ length: count }, () => rawClient(address, undefined, limits));
  }

  open(options: VariantClientOptions): VariantClient {
    const client = this.#clients[this.#next++ % this.#clients.length];
    if (client === undefined) throw new Error('no connection');
    const stream = new VariantClient(client, options);
    this.#streams.push(stream);
    return stream;
  }

  /** Ends its streams, too: a connection is open as long as one is. */
  [Symbol.dispose](): void {
    for (const stream of this.#streams) stream.close();
    for (const client of this.#clients) client.close();
  }
}

/** A stream that keeps what it is given as an xDS client does, plain or by TP2, and accepts all of it. */
export class VariantClient {
  /** Of each type, by short name: `name` or `name {constraints}` → content. */
  readonly holds = new Map<string, Map<string, string>>();
  /** What each response said, in order; only of the responses since the last `heard`. */
  readonly #heard: string[][] = [];
  status: StatusObject | undefined;
  readonly #options: VariantClientOptions;
  readonly #call: RawCall;
  readonly #wanted = new Map<string, Wanted>();
  #greeted = false;

  constructor(client: Client, options: VariantClientOptions) {
    this.#options = options;
    const method = options.protocol === 'delta' ? 'DeltaAggregatedResources' : 'StreamAggregatedResources';
    this.#call = openCall(client, `/${ADS_SERVICE}/${method}`, options.metadata);
    this.#call.on('status', (status) => {
      this.status = status;
    });
    this.#call.on('data', (bytes: Buffer) => {
      if (options.protocol === 'delta') this.#takeDelta(fromBinary(DeltaDiscoveryResponseSchema, bytes));
      else this.#takeSotw(fromBinary(DiscoveryResponseSchema, bytes));
    });
  }

  /** Replaces (SotW) or adds to (delta) what is subscribed of a type. */
  want(short: string, wanted: Wanted = {}, node?: NodeInit): void {
    const { names = [], locators = {} } = wanted;
    const list = Object.entries(locators).map(([name, parameters]) => locator(name, { ...parameters }));
    if (this.#options.protocol === 'delta') {
      this.delta(short, { resourceNamesSubscribe: [...names], resourceLocatorsSubscribe: list }, node);
      return;
    }
    this.#wanted.set(short, wanted);
    this.#sotw(short, {}, node);
  }

  /** Another node, with nothing else new in the request. */
  become(short: string, node: NodeInit): void {
    if (this.#options.protocol === 'delta') this.delta(short, {}, node);
    else this.#sotw(short, {}, node);
  }

  delta(short: string, request: Delta, node = this.#greeting()): void {
    const message = { typeUrl: type(short), ...(node === undefined ? {} : { node }), ...request };
    this.#call.write(
      Buffer.from(
        toBinary(DeltaDiscoveryRequestSchema, create(DeltaDiscoveryRequestSchema, message as Delta)),
      ),
    );
  }

  /** Each response since the last look. */
  heard(): readonly (readonly string[])[] {
    return this.#heard.splice(0);
  }

  /** What it holds of a type, sorted: `name content`. */
  has(short: string): string[] {
    return [...(this.holds.get(short) ?? [])].map(([key, content]) => `${key}: ${content}`).toSorted();
  }

  /** Of the delta resource of this name: its version, and its constraints as they came. */
  variant(short: string, name: string): { readonly version: string; readonly constraints: Buffer } {
    const known = this.#variants.get(`${short} ${name}`);
    if (known === undefined) throw new Error(`no ${short} ${name}`);
    const constraints = known.resourceName?.dynamicParameterConstraints;
    const bytes = constraints === undefined ? [] : toBinary(DynamicParameterConstraintsSchema, constraints);
    return { version: known.version, constraints: Buffer.from(bytes) };
  }

  /** Waits until it holds exactly this. */
  async gets(short: string, expected: readonly string[]): Promise<void> {
    await eventually(() => {
      const has = JSON.stringify(this.has(short));
      if (has === JSON.stringify(expected)) return;
      throw new Error(`it holds ${has} instead of ${JSON.stringify(expected)}; ${this.#end()}`);
    });
  }

  async ends(): Promise<StatusObject> {
    return eventually(() => {
      if (this.status === undefined) throw new Error('the stream is open');
      return this.status;
    });
  }

  close(): void {
    this.#call.cancel();
  }

  [Symbol.dispose](): void {
    this.close();
  }

  #end(): string {
    return this.status === undefined ? 'the stream is open' : `ended: ${this.status.details}`;
  }

  #sotw(short: string, request: Sotw, node = this.#greeting()): void {
    const { names = [], locators = {} } = this.#wanted.get(short) ?? {};
    const message = {
      typeUrl: type(short),
      ...(node === undefined ? {} : { node }),
      resourceNames: [...names],
      resourceLocators: Object.entries(locators).map(([name, parameters]) =>
        locator(name, { ...parameters }),
      ),
      ...this.#last.get(short),
      ...request,
    };
    this.#call.write(
      Buffer.from(toBinary(DiscoveryRequestSchema, create(DiscoveryRequestSchema, message as Sotw))),
    );
  }

  readonly #variants = new Map<string, Resource>();
  readonly #last = new Map<string, { readonly versionInfo: string; readonly responseNonce: string }>();

  #greeting(): NodeInit | undefined {
    if (this.#greeted) return undefined;
    this.#greeted = true;
    return this.#options.node ?? { id: 'client', cluster: 'clients' };
  }

  #takeDelta(response: DeltaDiscoveryResponse): void {
    const short = shortOf(response.typeUrl);
    const held = this.#of(short);
    const said = told(response);
    if (this.#options.accepts?.(said) === false) {
      const errorDetail = { code: 3, message: 'not to my taste' };
      this.delta(short, { responseNonce: response.nonce, errorDetail });
      return;
    }
    for (const resource of response.resources) {
      held.set(identity(resource), this.#content(resource.resource));
      this.#variants.set(`${short} ${resource.resourceName?.name ?? resource.name}`, resource);
    }
    // "-name" and "-name {constraints}": as the resource was told.
    for (const line of said) if (line.startsWith('-')) held.delete(line.slice(1));
    this.#heard.push(said);
    this.delta(short, { responseNonce: response.nonce });
  }

  #takeSotw(response: DiscoveryResponse): void {
    const short = shortOf(response.typeUrl);
    const held = this.#of(short);
    if (short === 'cds' || short === 'lds') held.clear();
    const said: string[] = [];
    for (const any of response.resources) {
      const resource = any.typeUrl.endsWith('.Resource') ? fromBinary(ResourceSchema, any.value) : undefined;
      const key = resource === undefined ? nameOf(any) : identity(resource);
      const content = this.#content(resource === undefined ? any : resource.resource);
      held.set(key, content);
      said.push(`+${key} ${content}`);
    }
    this.#heard.push(said.toSorted());
    this.#last.set(short, { versionInfo: response.versionInfo, responseNonce: response.nonce });
    this.#sotw(short, {});
  }

  #content(any: Any | undefined): string {
    return (this.#options.content ?? contentOf)(any);
  }

  #of(short: string): Map<string, string> {
    const known = this.holds.get(short);
    if (known !== undefined) return known;
    const created = new Map<string, string>();
    this.holds.set(short, created);
    return created;
  }
}

function shortOf(url: string): string {
  const short = ['cds', 'eds', 'lds', 'rds', 'sds'].find((one) => type(one) === url);
  if (short === undefined) throw new Error(`a response of ${url}`);
  return short;
}
