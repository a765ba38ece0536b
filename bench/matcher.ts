/**
 * What variants cost (`npm run bench:matcher`): how many lookups the cache does in a second, and what one transaction
 * that changes one variant costs from its arrival to the views that can see it, as variants and parameter sets grow
 * tenfold. The real store and the real views; no sockets. The parameter sets are all different.
 */
import { parseArgs } from 'node:util';
import { Store } from '../src/cache/store.ts';
import { type ResourceName, resourceName } from '../src/model/brand.ts';
import { systemClock } from '../src/model/clock.ts';
import { assignmentType as eds } from '../src/model/cluster.ts';
import { type Constraints, stampConstraints } from '../src/model/constraints.ts';
import { internParameters, type Parameters } from '../src/model/parameters.ts';
import { Selection, type SelectionEntry } from '../src/model/selection.ts';
import { defersNothing, encoding } from '../src/model/subscription.ts';
import { type Put, transaction } from '../src/model/transaction.ts';
import { ALLOW_ALL } from '../src/security/authorization.ts';
import { Views } from '../src/views/views.ts';

type Pairs = Readonly<Record<string, string | undefined>>;

const delta = encoding({
  protocol: 'delta',
  wrapped: false,
  ttl: false,
  constrained: false,
  contentVersions: false,
  unknownNames: false,
  absencesUnsaid: false,
});
const holder = { key: 'bench', upstream: 'bench', role: 'named' as const };

const parametersOf = (pairs: Pairs): Parameters =>
  internParameters(
    Object.entries(pairs).flatMap(([key, value]) => (value === undefined ? [] : [[key, value]])),
  );

/** key == value for each pair, and no such key where the value is undefined: what a PER_PARAMETERS session stamps. */
const when = (pairs: Pairs): Constraints => stampConstraints(Object.keys(pairs), parametersOf(pairs));

function put(name: ResourceName, constraints: Constraints, content: number): Put {
  const any = Buffer.alloc(200, `${content} `);
  return {
    name,
    constraints,
    version: String(content),
    any,
    aliases: [],
    ttlMilliseconds: undefined,
    doNotCache: false,
    metadata: undefined,
  };
}

/** A cache with variants, and a view for each parameter set of the names that it asks for. */
class World {
  readonly names: readonly ResourceName[];
  readonly variants: readonly Constraints[];
  readonly sets: readonly Parameters[];
  readonly #store: Store;
  readonly #views: Views;
  #content = 0;

  constructor(names: number, variants: readonly Pairs[], sets: readonly Pairs[], namesPerSet: number) {
    this.names = Array.from({ length: names }, (_, index) => resourceName(`cluster-${index}`));
    this.variants = variants.map(when);
    this.sets = sets.map(parametersOf);
    this.#store = new Store({ clock: systemClock, ambiguous: () => {}, expiring: () => {} });
    this.#views = new Views({
      catalogs: this.#store.cohorts,
      interests: {
        subscribe: (interest) => this.#store.addInterest(interest),
        resubscribe: () => {},
        contentOf: () => ({ hasContent: true, bytes: 0 }),
        markIdle: () => {},
        markActive: () => {},
        unsubscribe: () => {},
      },
      clock: systemClock,
      idleMilliseconds: 1000,
      maxCacheBytes: () => 2 ** 30,
      controlPlane: '',
      lookedUp: () => {},
      answered: () => undefined,
      defer: (run) => run(),
    });
    const puts = this.names.flatMap((name) => this.variants.map((constraints) => put(name, constraints, 0)));
    this.#store.apply(transaction({ holder, type: eds, version: '0', puts }));
    for (const [index, parameters] of this.sets.entries()) this.#subscribe(parameters, index, namesPerSet);
  }

  /** So many lookups; how many found something. */
  look(count: number): number {
    let found = 0;
    for (let index = 0; index < count; index++) {
      const name = this.names[(index * 7919) % this.names.length];
      const parameters = this.sets[index % this.sets.length];
      if (name === undefined || parameters === undefined) continue;
      if (typeof this.#store.resolve(eds, name, parameters) === 'object') found++;
    }
    return found;
  }

  /** One transaction that changes one variant of one name; how many views saw it. */
  change(round: number): number {
    const name = this.names[(round * 7919) % this.names.length];
    const constraints = this.variants[round % this.variants.length];
    if (name === undefined || constraints === undefined) return 0;
    const version = String(++this.#content);
    this.#woken = 0;
    const change = transaction({ holder, type: eds, version, puts: [put(name, constraints, this.#content)] });
    this.#views.publish(this.#store.apply(change));
    return this.#woken;
  }

  #woken = 0;

  #subscribe(parameters: Parameters, index: number, count: number): void {
    const selected = Array.from({ length: count }, (_, offset): SelectionEntry[] => {
      const name = this.names[(index * count + offset) % this.names.length];
      if (name === undefined) return [];
      return [
        { selector: name, requestedName: name, locator: false, parameters, locatorParameters: undefined },
      ];
    });
    const subscription = this.#views.open(eds, delta, Selection.of(selected.flat()), ALLOW_ALL, {
      wake: () => {
        this.#woken++;
        subscription.take(defersNothing);
      },
      payer: undefined,
    });
    subscription.take(defersNothing);
  }
}

/** By the processor time of this process: others may be using the machine. */
function perSecond(world: World, milliseconds: number): number {
  const batch = 10_000;
  world.look(5 * batch);
  let count = 0;
  let used = 0;
  const start = process.cpuUsage();
  while (used < milliseconds) {
    world.look(batch);
    count += batch;
    const { user, system } = process.cpuUsage(start);
    used = (user + system) / 1000;
  }
  return (count / used) * 1000;
}

/** Median, so that a garbage collection does not speak for all; and how many views a change reached on average. */
function perTransaction(world: World, rounds: number): { readonly micros: number; readonly seen: number } {
  for (let round = 0; round < rounds / 4; round++) world.change(round);
  const times: number[] = [];
  let seen = 0;
  for (let round = 0; round < rounds; round++) {
    const start = performance.now();
    seen += world.change(round);
    times.push(performance.now() - start);
  }
  const median = times.toSorted((a, b) => a - b)[Math.floor(times.length / 2)] ?? 0;
  return { micros: median * 1000, seen: seen / rounds };
}

const each = (count: number, pairs: (index: number) => Pairs): Pairs[] =>
  Array.from({ length: count }, (_, index) => pairs(index));

/** env × version, and what makes each set another one without any variant asking for it. */
const quarters: readonly Pairs[] = [
  { env: 'prod', version: undefined },
  { env: 'prod', version: 'v1' },
  { env: 'test', version: undefined },
  { env: 'test', version: 'v1' },
];

interface Case {
  readonly title: string;
  readonly make: () => World;
}

function cases(quick: boolean): readonly Case[] {
  const many = quick ? 1000 : 10_000;
  const byTenant = (variants: number, sets: number): Case => ({
    title: `1 name × ${variants} variants, ${sets} parameter sets`,
    make: () =>
      new World(
        1,
        each(variants, (index) => ({ tenant: `t${index}` })),
        each(sets, (index) => ({ tenant: `t${index % variants}`, node: `n${index}` })),
        1,
      ),
  });
  const byQuarter = (names: number, sets: number): Case => ({
    title: `${names} names × 4 variants, ${sets} parameter sets`,
    make: () =>
      new World(
        names,
        quarters,
        each(sets, (index) => ({ ...quarters[index % 4], node: `n${index}` })),
        100,
      ),
  });
  const forAll = (sets: number): Case => ({
    title: `1 name × 1 variant for all, ${sets} parameter sets`,
    make: () =>
      new World(
        1,
        [{}],
        each(sets, (index) => ({ node: `n${index}` })),
        1,
      ),
  });
  return [
    forAll(10),
    forAll(100),
    forAll(1000),
    byTenant(10, 10),
    byTenant(100, 10),
    byTenant(1000, 10),
    byTenant(1000, 100),
    byTenant(1000, 1000),
    byQuarter(many / 10, 10),
    byQuarter(many, 10),
    byQuarter(many, 100),
    byQuarter(many, 1000),
  ];
}

const { values } = parseArgs({ options: { quick: { type: 'boolean', default: false } } });
const milliseconds = values.quick ? 100 : 1000;
const rounds = values.quick ? 200 : 4000;
const warmUp = new World(100, quarters, quarters, 100);
perSecond(warmUp, milliseconds);
perTransaction(warmUp, rounds);
console.log('| | lookups/s | one change, µs | views that see it |');
console.log('|-|-|-|-|');
for (const { title, make } of cases(values.quick)) {
  const world = make();
  const lookups = perSecond(world, milliseconds);
  const { micros, seen } = perTransaction(world, rounds);
  console.log(`| ${title} | ${(lookups / 1e6).toFixed(2)} M | ${micros.toFixed(0)} | ${seen.toFixed(2)} |`);
}
