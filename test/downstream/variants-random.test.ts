import { fromBinary, toBinary } from '@bufbuild/protobuf';
import { expect } from 'chai';
import {
  type DeltaDiscoveryResponse,
  type DiscoveryResponse,
  DynamicParameterConstraintsSchema,
  type ResourceName,
  ResourceSchema,
} from '../../src/gen/envoy/service/discovery/v3/discovery_pb.ts';
import { resourceName } from '../../src/model/brand.ts';
import { type Constraints, UNCONSTRAINED } from '../../src/model/constraints.ts';
import type { Put, Removal } from '../../src/model/transaction.ts';
import { cases } from '../support/cases.ts';
import {
  contentOf,
  InMemoryRelay,
  nameOf,
  node,
  put,
  type,
  wildcardHolder,
} from '../support/in-memory-relay.ts';
import { Random } from '../support/random.ts';
import { and, compiled, exists, is, locator, not, or } from '../support/variants.ts';

type Parameters = Readonly<Record<string, string>>;

/** A kind of variant, and what it matches, written by hand: the reference does not use the relay's matcher. */
interface Kind {
  readonly constraints: Constraints;
  /** As it goes over the wire. */
  readonly wire: string;
  matches(parameters: Parameters): boolean;
}

function kind(init: Parameters0 | undefined, matches: (parameters: Parameters) => boolean): Kind {
  const constraints = init === undefined ? UNCONSTRAINED : compiled(init);
  return { constraints, wire: hex(constraints.bytes), matches };
}
type Parameters0 = ReturnType<typeof is>;

const hex = (bytes: Uint8Array): string => Buffer.from(bytes).toString('hex');

const kinds: readonly Kind[] = [
  kind(undefined, () => true),
  kind(is('env', 'prod'), ({ env }) => env === 'prod'),
  kind(is('env', 'test'), ({ env }) => env === 'test'),
  kind(not(is('env', 'prod')), ({ env }) => env !== 'prod'),
  kind(and(is('env', 'prod'), is('version', '1')), ({ env, version }) => env === 'prod' && version === '1'),
  kind(and(is('env', 'prod'), is('version', '2')), ({ env, version }) => env === 'prod' && version === '2'),
  kind(
    and(is('env', 'prod'), not(exists('version'))),
    ({ env, version }) => env === 'prod' && version === undefined,
  ),
  kind(or(is('version', '1'), is('version', '2')), ({ version }) => version !== undefined),
  kind(not(exists('version')), ({ version }) => version === undefined),
  kind(
    and(exists('env'), not(is('version', '2'))),
    ({ env, version }) => env !== undefined && version !== '2',
  ),
];

const sets: readonly Parameters[] = [undefined, 'prod', 'test'].flatMap((env) =>
  [undefined, '1', '2'].map((version) => ({
    ...(env === undefined ? {} : { env }),
    ...(version === undefined ? {} : { version }),
  })),
);
const names = ['x', 'y', 'z'];

/** What the control plane has, and by TP2's rules and protocol §5's decisions who sees what. */
class Reference {
  readonly #variants = new Map<string, Map<Kind, string>>(
    names.map((name) => [name, new Map<Kind, string>()]),
  );
  /** Name and parameter set → what it was given last. */
  readonly #bound = new Map<string, Map<Parameters, Kind>>(names.map((name) => [name, new Map()]));

  variants(name: string): Map<Kind, string> {
    return this.#variants.get(name) ?? new Map<Kind, string>();
  }

  /** At the end of a transaction: who has a match keeps it, else the lowest canonical key. */
  bind(): void {
    for (const name of names) {
      const bound = this.#bound.get(name);
      for (const parameters of sets) {
        const before = bound?.get(parameters);
        const matching = [...this.variants(name).keys()]
          .filter((one) => one.matches(parameters))
          .toSorted((a, b) => (a.constraints.key < b.constraints.key ? -1 : 1));
        const now = before !== undefined && matching.includes(before) ? before : matching[0];
        if (now === undefined) bound?.delete(parameters);
        else bound?.set(parameters, now);
      }
    }
  }

  sees(name: string, parameters: Parameters): { readonly kind: Kind; readonly content: string } | undefined {
    const found = this.#bound.get(name)?.get(parameters);
    const content = found === undefined ? undefined : this.variants(name).get(found);
    return found === undefined || content === undefined ? undefined : { kind: found, content };
  }
}

/** One client: what it asks for, what it was told, and what it must have. */
abstract class Client {
  readonly label: string;
  readonly held = new Map<string, string>();
  #expected = '';
  #behind = false;

  constructor(label: string) {
    this.label = label;
  }

  abstract expectation(reference: Reference): Map<string, string>;
  /** Takes in what has arrived; how many responses that were. */
  abstract read(reference: Reference): number;
  abstract set blocked(value: boolean);
  abstract get blocked(): boolean;

  /** After every transaction, and by each client. */
  check(reference: Reference): void {
    const expected = show(this.expectation(reference));
    const changed = expected !== this.#expected;
    const { blocked } = this;
    const responses = this.read(reference);
    expect(
      responses,
      `${this.label}: one update per transaction, and only if it concerns the client`,
    ).to.be.at.most(changed || this.#behind ? 1 : 0);
    this.#behind = blocked;
    this.#expected = expected;
    if (!blocked) expect(this.state(), this.label).to.equal(expected);
  }

  protected state(): string {
    return show(this.held);
  }

  protected tell(key: string, content: string | undefined): void {
    if (content === undefined) this.held.delete(key);
    else this.held.set(key, content);
  }
}

const show = (map: ReadonlyMap<string, string>): string =>
  [...map]
    .map(([key, content]) => `${key} = ${content}`)
    .toSorted()
    .join('\n');
const key = (name: string, wire: string): string => `${name} {${wire}}`;
const keyOf = ({ name, dynamicParameterConstraints }: ResourceName): string =>
  key(
    name,
    dynamicParameterConstraints === undefined
      ? ''
      : hex(toBinary(DynamicParameterConstraintsSchema, dynamicParameterConstraints)),
  );

function plainExpectation(reference: Reference, parameters: Parameters): Map<string, string> {
  const expected = new Map<string, string>();
  for (const name of names) {
    const seen = reference.sees(name, parameters);
    if (seen !== undefined) expected.set(name, seen.content);
  }
  return expected;
}

function locatorExpectation(reference: Reference, all: readonly Parameters[]): Map<string, string> {
  const expected = new Map<string, string>();
  for (const name of names) {
    for (const parameters of all) {
      const seen = reference.sees(name, parameters);
      if (seen !== undefined) expected.set(key(name, seen.kind.wire), seen.content);
    }
  }
  return expected;
}

class Delta extends Client {
  readonly #client;
  readonly #sets: readonly Parameters[];
  readonly #locator: boolean;

  constructor(
    relay: InMemoryRelay,
    short: string,
    form: 'plain' | 'locator',
    all: readonly Parameters[],
    selectors: string[],
  ) {
    super(`delta ${form} ${selectors.join()} ${JSON.stringify(all)}`);
    this.#sets = all;
    this.#locator = form === 'locator';
    this.#client = relay.delta();
    this.#client.send(short, {
      node: node(all[0] ?? {}),
      ...(this.#locator
        ? {
            resourceLocatorsSubscribe: selectors.flatMap((name) =>
              all.map((parameters) => locator(name, parameters)),
            ),
          }
        : { resourceNamesSubscribe: selectors }),
    });
  }

  set blocked(value: boolean) {
    if (value) this.#client.blocked = true;
    else this.#client.unblock();
  }

  get blocked(): boolean {
    return this.#client.blocked;
  }

  expectation(reference: Reference): Map<string, string> {
    return this.#locator
      ? locatorExpectation(reference, this.#sets)
      : plainExpectation(reference, this.#sets[0] ?? {});
  }

  read(): number {
    const responses = this.#client.received();
    for (const response of responses) {
      this.#take(response);
      this.#client.ack(response.typeUrl, response);
    }
    return responses.length;
  }

  #take(response: DeltaDiscoveryResponse): void {
    const identities = [
      ...response.resources.map(({ name, resourceName: of }) => (of === undefined ? name : keyOf(of))),
      ...response.removedResources,
      ...response.removedResourceNames.map(keyOf),
    ];
    expect(new Set(identities).size, `${this.label}: ${identities.join()}`).to.equal(identities.length);
    for (const name of response.removedResources) {
      expect(this.#locator, 'removed_resource_names wherever constraints were sent').to.equal(false);
      this.tell(name, undefined);
    }
    for (const name of response.removedResourceNames) this.tell(keyOf(name), undefined);
    for (const { name, resourceName: of, resource } of response.resources) {
      expect(of !== undefined, this.label).to.equal(this.#locator);
      this.tell(of === undefined ? name : keyOf(of), contentOf(resource));
    }
  }
}

class Sotw extends Client {
  readonly #client;
  readonly #parameters: Parameters;
  readonly #locator: boolean;
  readonly #complete: boolean;

  constructor(
    relay: InMemoryRelay,
    short: string,
    form: 'plain' | 'locator',
    parameters: Parameters,
    selectors: string[],
  ) {
    super(`sotw ${form} ${selectors.join()} ${JSON.stringify(parameters)}`);
    this.#parameters = parameters;
    this.#locator = form === 'locator';
    this.#complete = short === 'cds' || selectors.includes('*');
    this.#client = relay.sotw();
    this.#client.send(short, {
      node: node(parameters),
      ...(this.#locator
        ? { resourceLocators: selectors.map((name) => locator(name, parameters)) }
        : { resourceNames: selectors }),
    });
  }

  set blocked(value: boolean) {
    if (value) this.#client.blocked = true;
    else this.#client.unblock();
  }

  get blocked(): boolean {
    return this.#client.blocked;
  }

  expectation(reference: Reference): Map<string, string> {
    return this.#locator
      ? locatorExpectation(reference, [this.#parameters])
      : plainExpectation(reference, this.#parameters);
  }

  read(reference: Reference): number {
    const responses = this.#client.received();
    for (const response of responses) this.#take(response);
    // A partial type cannot say what is gone: the client hears of it from others (protocol §3.7).
    if (!this.#complete && !this.blocked) {
      const expected = this.expectation(reference);
      for (const name of this.held.keys()) if (!expected.has(name)) this.held.delete(name);
    }
    return responses.length;
  }

  #take(response: DiscoveryResponse): void {
    if (this.#complete) this.held.clear();
    const told = new Set<string>();
    for (const any of response.resources) {
      const resource = this.#locator ? fromBinary(ResourceSchema, any.value) : undefined;
      const of = resource?.resourceName;
      const name = of === undefined ? nameOf(any) : of.name;
      expect(told.has(name), `${this.label}: two variants of ${name}`).to.equal(false);
      told.add(name);
      if (!this.#complete)
        for (const other of this.held.keys()) if (other.startsWith(`${name} {`)) this.held.delete(other);
      this.tell(of === undefined ? name : keyOf(of), contentOf(resource?.resource ?? any));
    }
  }
}

function clientsOf(relay: InMemoryRelay, short: string): Client[] {
  const clients: Client[] = [];
  for (const parameters of sets) {
    clients.push(new Delta(relay, short, 'plain', [parameters], names));
    clients.push(new Delta(relay, short, 'plain', [parameters], ['*']));
    clients.push(new Delta(relay, short, 'locator', [parameters], names));
    clients.push(new Delta(relay, short, 'locator', [parameters], ['*']));
    clients.push(new Sotw(relay, short, 'plain', parameters, names));
    clients.push(new Sotw(relay, short, 'plain', parameters, ['*']));
    clients.push(new Sotw(relay, short, 'locator', parameters, names));
    clients.push(new Sotw(relay, short, 'locator', parameters, ['*']));
  }
  clients.push(new Delta(relay, short, 'locator', sets, names));
  clients.push(new Delta(relay, short, 'locator', sets.slice(3, 6), names));
  clients.push(new Delta(relay, short, 'locator', sets.slice(2, 7), ['*']));
  clients.push(new Delta(relay, short, 'locator', sets.slice(0, 4), ['*', ...names]));
  return clients;
}

/** A random change of one name: variants that come, change, go and take each other's place. */
function change(
  random: Random,
  name: string,
  variants: Map<Kind, string>,
  puts: Put[],
  removals: Removal[],
  short: string,
): void {
  const url = type(short);
  const overlapping = random.chance(0.3);
  for (const one of [...variants.keys()]) {
    if (!random.chance(0.5)) continue;
    variants.delete(one);
    removals.push({ name: resourceName(name), constraints: one.constraints });
  }
  for (let attempt = random.below(4); attempt > 0; attempt--) {
    const one = random.pick(kinds);
    const others = [...variants.keys()].filter((other) => other !== one);
    const disjoint = others.every((other) => !sets.some((p) => one.matches(p) && other.matches(p)));
    if (!overlapping && !disjoint) continue;
    // With the variant that it is of: equal contents of two variants would be two things to be told.
    const content = `${random.below(5)} of kind ${kinds.indexOf(one)}`;
    variants.set(one, content);
    // What is removed and put in one response is there: the puts of a response are what it leaves.
    const known = puts.findIndex((other) => other.name === name && other.constraints === one.constraints);
    if (known >= 0) puts.splice(known, 1);
    puts.push(put(url, name, content, { constraints: one.constraints, version: String(random.below(3)) }));
  }
}

describe('variants, in random transactions', () => {
  for (const short of cases('cds', 'eds')) {
    it(`1,000 of ${short}: step by step each client has what the reference says, by one update for each`, () => {
      const seed = 20_260 + short.length * 7 + short.charCodeAt(0);
      const random = new Random(seed);
      const relay = new InMemoryRelay();
      const clients = clientsOf(relay, short);
      const reference = new Reference();
      let applied = 0;
      for (let step = 0; step < 1000; step++) {
        const puts: Put[] = [];
        const removals: Removal[] = [];
        for (const name of random.some(names, 0.5)) {
          change(random, name, reference.variants(name), puts, removals, short);
        }
        reference.bind();
        relay.says({ type: type(short), holder: wildcardHolder, puts, removals, version: String(step) });
        applied++;
        try {
          // The first answer settles everything: there a client may have one response for an empty wildcard.
          if (step === 0) for (const client of clients) client.read(reference);
          for (const client of clients) client.check(reference);
        } catch (error) {
          throw new Error(`seed ${seed}, step ${step}`, { cause: error });
        }
        for (const client of clients) {
          if (!random.chance(0.05)) continue;
          client.blocked = !client.blocked;
          // What it missed comes in one response, whatever has happened meanwhile.
          if (!client.blocked) expect(client.read(reference), client.label).to.be.at.most(1);
        }
      }
      expect(applied).to.equal(1000);
      const last = [...reference.variants('x').keys()].map(({ constraints }) => constraints.key);
      expect(new Set(last).size).to.equal(last.length);
    });
  }
});
