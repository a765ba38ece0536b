import { expect } from 'chai';
import fc from 'fast-check';
import { UNCONSTRAINED } from '../../src/model/constraints.ts';
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
import { compiled, identity, is, locator, told } from '../support/variants.ts';

const cds = type('cds');
const environments = ['prod', 'test'];
/** A selector and an environment: one locator. */
type Pair = readonly [selector: string, environment: string];
const pairs: readonly Pair[] = ['*', 'a', 'b', 'c'].flatMap((name) =>
  environments.map((env): Pair => [name, env]),
);
const idOf = ([selector, environment]: Pair): string => `${selector} ${environment}`;

/** Of each name: one content for all, or one for each of some environments. */
type Resource = string | Readonly<Record<string, string>>;
type State = Readonly<Record<string, Resource>>;

type Event =
  | { readonly kind: 'upstream'; readonly state: State }
  | { readonly kind: 'subscribe'; readonly add: readonly Pair[]; readonly drop: readonly Pair[] }
  | { readonly kind: 'stop' | 'read on' | 'delay' | 'arrive' | 'accept' | 'reject' };

const contents = fc.constantFrom('1', '2', '3');
const states: fc.Arbitrary<State> = fc.dictionary(
  fc.constantFrom('a', 'b', 'c'),
  fc.oneof(contents, fc.dictionary(fc.constantFrom(...environments), contents)),
);
const some = fc.subarray([...pairs]);
const events: fc.Arbitrary<Event> = fc.oneof(
  fc.record({ kind: fc.constant('upstream' as const), state: states }),
  fc.record({ kind: fc.constant('subscribe' as const), add: some, drop: some }),
  fc.record({ kind: fc.constantFrom('stop', 'read on', 'delay', 'arrive', 'accept', 'reject') }),
);

/** A variant, as `identity` writes it. */
function variantOf(
  name: string,
  resource: Resource | undefined,
  environment: string,
): [string, string] | undefined {
  if (resource === undefined) return undefined;
  if (typeof resource === 'string') return [`${name} {}`, resource];
  const content = resource[environment];
  return content === undefined ? undefined : [`${name} {env == "${environment}"}`, content];
}

/** A client that speaks TP2, over a control plane whose state is known to the test. */
class Model {
  readonly lab = new InMemoryRelay();
  readonly client: DeltaClient = this.lab.delta();
  readonly subscribed = new Map<string, Pair>();
  readonly held = new Map<string, string>();
  truth: State = {};
  #nonce = '';
  #greeted = false;
  /** What is sent to the client is on its way for a while. */
  #delayed = false;

  step(event: Event): void {
    switch (event.kind) {
      case 'upstream':
        this.truth = event.state;
        this.upstream();
        break;
      case 'subscribe':
        this.#subscribe(event.add, event.drop);
        break;
      case 'stop':
        this.client.blocked = true;
        break;
      case 'read on':
        this.client.unblock();
        break;
      case 'delay':
        this.#delayed = true;
        return;
      case 'arrive':
        this.#arrive();
        return;
      case 'accept':
        if (this.#nonce !== '') this.client.send('cds', { responseNonce: this.#nonce });
        break;
      case 'reject':
        if (this.#nonce === '') return;
        this.client.send('cds', { responseNonce: this.#nonce, errorDetail: { code: 13, message: 'no' } });
        break;
    }
    if (!this.#delayed) this.read();
  }

  /** What was on its way all the time. It may say what was so when it was sent. */
  #arrive(): void {
    this.read();
    this.#delayed = false;
  }

  upstream(): void {
    const puts: Put[] = [];
    const interests = [...this.lab.upstream.interests];
    for (const [name, resource] of Object.entries(this.truth)) {
      const asked = interests.filter(({ selector }) => selector === '*' || selector === name);
      if (asked.length === 0) continue;
      if (typeof resource === 'string') puts.push(put(cds, name, resource, { constraints: UNCONSTRAINED }));
      else
        for (const [env, content] of Object.entries(resource)) {
          const constraints = when({ env });
          if (!asked.some(({ parameters }) => constraints.matches(parameters))) continue;
          puts.push(put(cds, name, content, { constraints: compiled(is('env', env)) }));
        }
    }
    this.lab.says({ type: cds, puts, complete: true });
  }

  expected(): Record<string, string> {
    const expected = new Map<string, string>();
    for (const [selector, environment] of this.subscribed.values()) {
      for (const [name, resource] of Object.entries(this.truth)) {
        const variant =
          selector === '*' || selector === name ? variantOf(name, resource, environment) : undefined;
        if (variant !== undefined) expected.set(...variant);
      }
    }
    return Object.fromEntries(expected);
  }

  read(): void {
    for (const response of this.client.received()) {
      const lines = told(response);
      const identities = [
        ...response.resources.map(identity),
        ...lines.filter((line) => line.startsWith('-')).map((line) => line.slice(1)),
      ];
      expect(new Set(identities).size, lines.join()).to.equal(identities.length);
      expect(response.removedResources).to.deep.equal([]);
      // One update: what goes and what comes belong together, whatever the order of their fields.
      for (const line of lines) {
        if (!line.startsWith('-')) continue;
        this.held.delete(line.slice(1));
        if (this.#delayed) continue;
        expect(this.expected(), 'removed though it is there: a gap').to.not.have.property(line.slice(1));
      }
      for (const resource of response.resources)
        if (this.#selects(identity(resource)))
          this.held.set(identity(resource), contentOf(resource.resource));
      this.#nonce = response.nonce;
    }
  }

  #subscribe(add: readonly Pair[], drop: readonly Pair[]): void {
    if (!this.#greeted && add.length === 0) return;
    this.#greeted = true;
    for (const pair of add) this.subscribed.set(idOf(pair), pair);
    for (const pair of drop) this.subscribed.delete(idOf(pair));
    // What no locator of the client selects any more it drops itself.
    for (const held of this.held.keys()) if (!this.#selects(held)) this.held.delete(held);
    this.client.send('cds', {
      node: node(),
      resourceLocatorsSubscribe: add.map(([name, env]) => locator(name, { env })),
      resourceLocatorsUnsubscribe: drop.map(([name, env]) => locator(name, { env })),
    });
  }

  #selects(held: string): boolean {
    return [...this.subscribed.values()].some(
      ([selector, env]) =>
        (selector === '*' || held.startsWith(`${selector} `)) &&
        (held.endsWith('{}') || held.endsWith(`{env == "${env}"}`)),
    );
  }
}

describe('delta with locators, in random schedules', () => {
  it('a TP2 client ends up with the variants that its locators select, and loses nothing on the way', () => {
    fc.assert(
      fc.property(fc.array(events, { minLength: 3, maxLength: 30 }), (schedule) => {
        const model = new Model();
        for (const event of schedule) model.step(event);
        model.step({ kind: 'read on' });
        model.step({ kind: 'arrive' });
        model.upstream();
        model.read();
        expect(Object.fromEntries(model.held)).to.deep.equal(model.expected());
        model.client.disconnect();
        model.lab.clock.advance(600_000);
        expect(model.lab.relay.store.bytes, 'nothing is left').to.equal(0);
      }),
      {
        numRuns: 400,
        // It read b, dropped it, and asks for it again by a wildcard, all before an ACK: b must come again.
        examples: [
          [
            [
              {
                kind: 'subscribe',
                add: [
                  ['b', 'test'],
                  ['c', 'test'],
                ],
                drop: [],
              },
              { kind: 'upstream', state: { b: { test: '1' } } },
              { kind: 'stop' },
              { kind: 'subscribe', add: [], drop: [['b', 'test']] },
              { kind: 'subscribe', add: [['*', 'test']], drop: [] },
            ],
          ],
          // The last response repeats an older removal, of another variant than the one that is on its way.
          [
            [
              { kind: 'subscribe', add: [['*', 'test']], drop: [] },
              { kind: 'upstream', state: { a: '1' } },
              { kind: 'subscribe', add: [['a', 'prod']], drop: [['*', 'test']] },
              { kind: 'delay' },
              { kind: 'subscribe', add: [['a', 'test']], drop: [] },
              { kind: 'upstream', state: { a: { test: '1' } } },
              { kind: 'subscribe', add: [], drop: [['a', 'test']] },
              { kind: 'reject' },
              { kind: 'stop' },
              { kind: 'upstream', state: {} },
              { kind: 'subscribe', add: [['a', 'test']], drop: [] },
            ],
          ],
        ],
      },
    );
  });
});
