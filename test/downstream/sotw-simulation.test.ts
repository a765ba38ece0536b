import { create } from '@bufbuild/protobuf';
import { expect } from 'chai';
import fc from 'fast-check';
import { NodeSchema } from '../../src/gen/envoy/config/core/v3/base_pb.ts';
import type { Put } from '../../src/model/transaction.ts';
import {
  contentOf,
  InMemoryRelay,
  nameOf,
  node,
  put,
  type SotwClient,
  type,
  when,
} from '../support/in-memory-relay.ts';

const allNames = ['a', 'b', 'c', 'd'];
const environments = ['prod', 'test'];
const types = ['cds', 'eds'] as const;
type Short = (typeof types)[number];
/** Name → content, by environment. */
type State = Readonly<Record<string, Readonly<Record<string, string>>>>;

type Event =
  | { readonly kind: 'upstream'; readonly short: Short; readonly state: State }
  | { readonly kind: 'subscribe'; readonly short: Short; readonly names: readonly string[] }
  | { readonly kind: 'node'; readonly environment: string }
  | { readonly kind: 'stop' | 'read one' | 'read on' | 'acknowledge again' };

const contents = fc.dictionary(fc.constantFrom(...allNames), fc.constantFrom('1', '2', '3'));
const states: fc.Arbitrary<State> = fc.record({ prod: contents, test: contents });
const events: fc.Arbitrary<Event> = fc.oneof(
  fc.record({ kind: fc.constant('upstream' as const), short: fc.constantFrom(...types), state: states }),
  fc.record({
    kind: fc.constant('subscribe' as const),
    short: fc.constantFrom(...types),
    names: fc.subarray(['*', ...allNames]),
  }),
  fc.record({ kind: fc.constant('node' as const), environment: fc.constantFrom(...environments) }),
  fc.record({ kind: fc.constantFrom('stop', 'read one', 'read on', 'acknowledge again') }),
);

/** A client as the specification describes it: what it holds is what it was told, by the rules of each type. */
class Model {
  readonly client: SotwClient;
  readonly names = new Map<Short, readonly string[]>();
  readonly held = new Map<Short, Map<string, string>>(types.map((short) => [short, new Map()]));
  environment = 'prod';
  #lastSerial = 0;
  readonly #last = new Map<Short, { nonce: string; version: string }>();

  constructor(client: SotwClient) {
    this.client = client;
  }

  /** Reads what has arrived, and acknowledges it. */
  read(): void {
    for (;;) {
      const responses = this.client.received();
      if (responses.length === 0) return;
      for (const response of responses) {
        const short = types.find((one) => type(one) === response.typeUrl);
        if (short === undefined) throw new Error(response.typeUrl);
        const told = response.resources.map((any): [string, string] => [nameOf(any), contentOf(any)]);
        expect(new Set(told.map(([name]) => name)).size, 'a name twice').to.equal(told.length);
        expect(Number(response.nonce), 'nonces grow').to.be.greaterThan(this.#lastSerial);
        this.#lastSerial = Number(response.nonce);
        const wanted = this.names.get(short) ?? [];
        const everything = short === 'cds' || wanted.includes('*');
        const held = everything ? new Map<string, string>() : new Map(this.held.get(short));
        for (const [name, content] of told) held.set(name, content);
        this.held.set(short, held);
        this.#last.set(short, { nonce: response.nonce, version: response.versionInfo });
        this.#forget(short);
      }
      for (const short of new Set(
        responses.map(({ typeUrl }) => types.find((one) => type(one) === typeUrl)),
      )) {
        if (short !== undefined) this.send(short);
      }
    }
  }

  send(short: Short): void {
    const names = this.names.get(short);
    if (names === undefined) return;
    // While a response is on its way this request may be stale (§3.3). Then the server has not seen which names it leaves
    // out, and does not send them again (§5b.11).
    if (!this.client.blocked) this.#forget(short);
    const last = this.#last.get(short);
    this.client.send(short, {
      node: create(NodeSchema, node({ env: this.environment })),
      resourceNames: [...names],
      responseNonce: last?.nonce ?? '',
      versionInfo: last?.version ?? '',
    });
  }

  subscribe(short: Short, names: readonly string[]): void {
    if (short === 'cds' && names.length === 0 && this.names.get('cds') === undefined) return; // the legacy wildcard
    this.names.set(short, names);
    this.send(short);
  }

  #forget(short: Short): void {
    const names = this.names.get(short) ?? [];
    if (names.includes('*')) return;
    for (const name of this.held.get(short)?.keys() ?? []) {
      if (!names.includes(name)) this.held.get(short)?.delete(name);
    }
  }
}

function says(relay: InMemoryRelay, short: Short, state: State): void {
  const url = type(short);
  const puts: Put[] = environments.flatMap((env) =>
    Object.entries(state[env] ?? {}).map(([name, content]) =>
      put(url, name, content, { constraints: when({ env }) }),
    ),
  );
  relay.says({ type: url, puts, complete: true });
}

function play(schedule: readonly Event[]): void {
  const relay = new InMemoryRelay();
  const truth = new Map<Short, State>();
  const model = new Model(relay.sotw());
  for (const event of schedule) {
    switch (event.kind) {
      case 'upstream':
        truth.set(event.short, event.state);
        says(relay, event.short, event.state);
        break;
      case 'subscribe':
        model.subscribe(event.short, event.names);
        break;
      case 'node':
        model.environment = event.environment;
        break;
      case 'stop':
        model.client.blocked = true;
        break;
      case 'read one':
        model.client.readOne();
        break;
      case 'read on':
        model.client.unblock();
        break;
      case 'acknowledge again':
        for (const short of types) model.send(short);
        break;
    }
    if (!model.client.blocked || event.kind === 'read one') model.read();
  }
  model.client.unblock();
  model.read();
  for (const short of types) model.send(short);
  // Upstream answers what it was asked last.
  for (const short of types) says(relay, short, truth.get(short) ?? {});
  model.read();
  expect(model.client.status).to.equal(undefined);
  for (const short of types) {
    const names = model.names.get(short) ?? [];
    const visible = Object.entries(truth.get(short)?.[model.environment] ?? {}).filter(
      ([name]) => names.includes('*') || names.includes(name),
    );
    const held = model.held.get(short) ?? new Map<string, string>();
    const exact = short === 'cds' || names.includes('*');
    for (const [name, content] of visible) expect(held.get(name), `${short} ${name}`).to.equal(content);
    if (exact && names.length > 0) expect(held.size, short).to.equal(visible.length);
    // An acknowledgement of everything gets nothing more.
    model.send(short);
    expect(model.client.received()).to.deep.equal([]);
  }
  model.client.disconnect();
  expect([...relay.relay.views.all()], 'views left over').to.deep.equal([]);
}

describe('SotW, in random schedules', () => {
  it('a client that follows the rules ends up with what its node sees, whatever happened on the way', () => {
    fc.assert(fc.property(fc.array(events, { maxLength: 40 }), play), { numRuns: 1500 });
  });
});
