import { create } from '@bufbuild/protobuf';
import { expect } from 'chai';
import fc from 'fast-check';
import { NodeSchema } from '../../src/gen/envoy/config/core/v3/base_pb.ts';
import type { DeltaDiscoveryResponse } from '../../src/gen/envoy/service/discovery/v3/discovery_pb.ts';
import type { Put } from '../../src/model/transaction.ts';
import {
  contentOf,
  type DeltaClient,
  InMemoryRelay,
  node,
  put,
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
  | {
      readonly kind: 'subscribe';
      readonly short: Short;
      readonly add: readonly string[];
      readonly drop: readonly string[];
      readonly acknowledging: boolean;
    }
  | { readonly kind: 'node'; readonly environment: string }
  | { readonly kind: 'stop' | 'read on' | 'reconnect' | 'reject' };

const contents = fc.dictionary(fc.constantFrom(...allNames), fc.constantFrom('1', '2', '3'));
const states: fc.Arbitrary<State> = fc.record({ prod: contents, test: contents });
const selectors = fc.subarray(['*', ...allNames]);
const events: fc.Arbitrary<Event> = fc.oneof(
  fc.record({ kind: fc.constant('upstream' as const), short: fc.constantFrom(...types), state: states }),
  fc.record({
    kind: fc.constant('subscribe' as const),
    short: fc.constantFrom(...types),
    add: selectors,
    drop: selectors,
    acknowledging: fc.boolean(),
  }),
  fc.record({ kind: fc.constant('node' as const), environment: fc.constantFrom(...environments) }),
  fc.record({ kind: fc.constantFrom('stop', 'read on', 'reconnect', 'reject') }),
);

interface Held {
  readonly content: string;
  readonly version: string;
}

/** A client as the specification describes it, over a control plane whose state is known to the test. */
class Model {
  readonly lab: InMemoryRelay;
  readonly truth = new Map<Short, State>();
  readonly subscribed = new Map<Short, Set<string>>(types.map((short) => [short, new Set()]));
  readonly held = new Map<Short, Map<string, Held>>(types.map((short) => [short, new Map()]));
  client: DeltaClient;
  environment = 'prod';
  #last: { readonly short: Short; readonly nonce: string } | undefined;
  readonly #greeted = new Set<Short>();

  constructor(relay: InMemoryRelay) {
    this.lab = relay;
    this.client = relay.delta();
  }

  step(event: Event): void {
    switch (event.kind) {
      case 'upstream':
        this.truth.set(event.short, event.state);
        this.upstream(event.short);
        break;
      case 'subscribe':
        this.#subscribe(event.short, event.add, event.drop, event.acknowledging);
        break;
      case 'node':
        this.environment = event.environment;
        for (const short of this.#greeted) this.#send(short, {});
        break;
      case 'stop':
        this.client.blocked = true;
        break;
      case 'read on':
        this.client.unblock();
        break;
      case 'reject':
        if (this.#last !== undefined) {
          const { short, nonce } = this.#last;
          this.client.send(short, { responseNonce: nonce, errorDetail: { code: 13, message: 'no' } });
        }
        break;
      case 'reconnect':
        this.#reconnect();
        break;
    }
    this.read();
  }

  /** Says the whole state of a type, of what is asked for, and so answers everything. */
  upstream(short: Short): void {
    const puts: Put[] = [];
    const interests = [...this.lab.upstream.interests].filter((interest) => interest.type === type(short));
    for (const environment of environments) {
      const constraints = when({ env: environment });
      const asked = interests.filter(({ parameters }) => constraints.matches(parameters));
      for (const [name, content] of Object.entries(this.truth.get(short)?.[environment] ?? {})) {
        if (!asked.some(({ selector }) => selector === '*' || selector === name)) continue;
        puts.push(put(type(short), name, content, { constraints }));
      }
    }
    this.lab.says({ type: type(short), puts, complete: true });
  }

  sees(short: Short): Readonly<Record<string, string>> {
    return this.truth.get(short)?.[this.environment] ?? {};
  }

  expected(short: Short): Record<string, string> {
    const subscribed = this.subscribed.get(short) ?? new Set();
    const entries = Object.entries(this.sees(short));
    return Object.fromEntries(entries.filter(([name]) => subscribed.has('*') || subscribed.has(name)));
  }

  contents(short: Short): Record<string, string> {
    return Object.fromEntries(
      [...(this.held.get(short) ?? [])].map(([name, { content }]) => [name, content]),
    );
  }

  read(): void {
    for (const response of this.client.received()) {
      const short = types.find((one) => type(one) === response.typeUrl);
      if (short === undefined) throw new Error(response.typeUrl);
      this.#take(short, response);
      this.#last = { short, nonce: response.nonce };
    }
  }

  #take(short: Short, response: DeltaDiscoveryResponse): void {
    const held = this.held.get(short);
    const names = [...response.resources.map(({ name }) => name), ...response.removedResources];
    expect(new Set(names).size, `a name twice: ${names.join()}`).to.equal(names.length);
    for (const { name, version, resource } of response.resources) {
      held?.set(name, { content: contentOf(resource), version });
    }
    for (const name of response.removedResources) {
      held?.delete(name);
      expect(this.expected(short), 'removed though it is there: a gap').to.not.have.property(name);
    }
  }

  #subscribe(short: Short, add: readonly string[], drop: readonly string[], acknowledging: boolean): void {
    const first = !this.#greeted.has(short);
    // An empty first request would be a legacy wildcard, which is another test's matter.
    if (first && add.length === 0) return;
    const subscribed = this.subscribed.get(short) ?? new Set();
    const held = this.held.get(short);
    for (const name of add) subscribed.add(name);
    for (const name of drop) {
      if (!subscribed.delete(name) || subscribed.has('*')) continue;
      if (name !== '*') held?.delete(name);
    }
    if (!subscribed.has('*'))
      for (const name of held?.keys() ?? []) if (!subscribed.has(name)) held?.delete(name);
    this.#send(short, {
      resourceNamesSubscribe: [...add],
      resourceNamesUnsubscribe: [...drop],
      responseNonce: acknowledging && this.#last?.short === short ? this.#last.nonce : '',
    });
  }

  #reconnect(): void {
    this.client.disconnect();
    this.client = this.lab.delta();
    this.#greeted.clear();
    this.#last = undefined;
    for (const short of types) {
      const subscribed: string[] = [...(this.subscribed.get(short) ?? [])];
      if (subscribed.length === 0) continue;
      const versions = [...(this.held.get(short) ?? [])].map(
        ([name, { version }]) => [name, version] as const,
      );
      this.#send(short, {
        resourceNamesSubscribe: subscribed,
        initialResourceVersions: Object.fromEntries(versions),
      });
    }
  }

  #send(short: Short, request: Parameters<DeltaClient['send']>[1]): void {
    this.#greeted.add(short);
    this.client.send(short, { node: create(NodeSchema, node({ env: this.environment })), ...request });
    this.read();
  }
}

describe('delta, in random schedules', () => {
  it('a client that follows the rules ends up with what its node sees, and loses nothing on the way', () => {
    fc.assert(
      fc.property(fc.array(events, { minLength: 3, maxLength: 30 }), (schedule) => {
        const model = new Model(new InMemoryRelay());
        for (const event of schedule) model.step(event);
        model.step({ kind: 'read on' });
        for (const short of types) {
          model.upstream(short);
          model.read();
          expect(model.contents(short), short).to.deep.equal(model.expected(short));
        }
        const before = [...model.lab.relay.views.all()].length;
        expect(before).to.be.at.most(types.length);
        model.client.disconnect();
        model.lab.clock.advance(600_000);
        expect(model.lab.relay.store.bytes, 'nothing is left').to.equal(0);
        expect([...model.lab.relay.views.all()]).to.deep.equal([]);
      }),
      { numRuns: 400 },
    );
  });
});
