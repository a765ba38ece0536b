import { create, toBinary } from '@bufbuild/protobuf';
import { AnySchema } from '@bufbuild/protobuf/wkt';
import { expect } from 'chai';
import fc from 'fast-check';
import { Store } from '../../src/cache/store.ts';
import { resourceName } from '../../src/model/brand.ts';
import { clusterFacts } from '../../src/model/cluster.ts';
import { UNCONSTRAINED } from '../../src/model/constraints.ts';
import { NO_PARAMETERS } from '../../src/model/parameters.ts';
import { type Interest, type Transaction, transaction } from '../../src/model/transaction.ts';
import { VariantIndex } from '../../src/model/variant-index.ts';
import { jsonToBytes, messageName } from '../../src/wire/registry.ts';
import { put, type, when } from '../support/in-memory-relay.ts';
import { VirtualClock } from '../support/virtual-clock.ts';
import { workOf } from '../support/work.ts';

const [cds, eds] = [type('cds'), type('eds')];
const wildcard = { key: 'w', upstream: 'test', role: 'wildcard' as const };
const named = { key: 'n', upstream: 'test', role: 'named' as const };

const interest = (of: typeof cds, selector: string): Interest => ({
  type: of,
  selector: resourceName(selector),
  parameters: NO_PARAMETERS,
});

function cluster(fields: Readonly<Record<string, unknown>>) {
  const bytes = jsonToBytes(messageName(cds), fields);
  if (!bytes.ok) throw new Error(bytes.error[0]?.message);
  const any = toBinary(AnySchema, create(AnySchema, { typeUrl: cds, value: bytes.value }));
  return { ...put(cds, String(fields['name']), ''), any };
}

/** A store that has the answer to the wildcard of clusters, and to these names of endpoints. */
class Setting {
  readonly clock = new VirtualClock();
  readonly store = new Store({
    clock: this.clock,
    ambiguous: () => {},
    expiring: () => {},
    publish: () => {},
  });
  readonly #endpoints: readonly Interest[];

  constructor(endpoints: readonly string[]) {
    this.#endpoints = endpoints.map((name) => interest(eds, name));
    const all = interest(cds, '*');
    for (const one of [all, ...this.#endpoints]) this.store.addInterest(one);
    this.clusters({ resolved: [all] });
    const puts = endpoints.map((name) => put(eds, name, '1'));
    this.store.apply(transaction({ holder: named, type: eds, puts, resolved: this.#endpoints }));
  }

  clusters(part: Partial<Transaction>): void {
    this.store.apply(transaction({ holder: wildcard, type: cds, ...part }));
  }

  /** The endpoints that are kept for long when nobody subscribes to them. */
  get kept(): readonly string[] {
    return this.#endpoints
      .filter((one) => this.store.contentOf(one).hasContent)
      .map(({ selector }) => selector);
  }

  end(name: string): void {
    this.store.removeInterest(interest(eds, name));
    // The stream upstream says it to the store.
    this.store.apply(transaction({ holder: named, type: eds }));
  }
}

/** Whether the endpoints `a` are kept for long when nobody subscribes to them. */
function keeps(
  clusters: readonly Readonly<Record<string, unknown>>[],
  { subscribed = '*', resolved = true } = {},
): boolean {
  const store = new Store({ clock: new VirtualClock(), ambiguous: () => {}, expiring: () => {} });
  const all = interest(cds, subscribed);
  const endpoints = interest(eds, 'a');
  store.addInterest(all);
  store.addInterest(endpoints);
  const holder = subscribed === '*' ? wildcard : named;
  const puts = clusters.map(cluster);
  store.apply(transaction({ holder, type: cds, puts, resolved: resolved ? [all] : [] }));
  store.apply(transaction({ holder: named, type: eds, puts: [put(eds, 'a', '1')], resolved: [endpoints] }));
  return store.contentOf(endpoints).hasContent;
}

describe('endpoints that nobody subscribes to are kept for idle_ttl', () => {
  const cases = [
    ['if a cluster has their name', [{ name: 'a' }], {}, true],
    [
      'if a cluster leads to them by service_name',
      [{ name: 'x', edsClusterConfig: { serviceName: 'a' } }],
      {},
      true,
    ],
    ['but not if no cluster leads to them', [{ name: 'b' }], {}, false],
    [
      'nor if the cluster of their name has others',
      [{ name: 'a', edsClusterConfig: { serviceName: 'b' } }],
      {},
      false,
    ],
    ['nor if there is no cluster at all', [], {}, false],
    ['while it is not known which clusters there are', [{ name: 'b' }], { resolved: false }, true],
    ['where clusters are subscribed by name', [{ name: 'b' }], { subscribed: 'b' }, true],
    ['where an extension may lead to them', [{ name: 'b', clusterType: { name: 'x' } }], {}, true],
  ] as const;
  for (const [name, clusters, how, kept] of cases) {
    it(name, () => {
      expect(keeps(clusters, how)).to.equal(kept);
    });
  }
  it('whatever becomes of the clusters meanwhile', () => {
    fc.assert(fc.property(fc.array(step, { maxLength: 25 }), keepsWhatClustersLeadTo));
  });
  it('which costs the same for each, however many clusters there are, and though they change', () => {
    const lookedAt = (clusters: number): number => {
      const endpoints = Array.from({ length: 20 }, (_, at) => `e${at}`);
      const setting = new Setting(endpoints);
      setting.clusters({ puts: Array.from({ length: clusters }, (_, at) => cluster({ name: `c${at}` })) });
      expect(setting.kept).to.deep.equal([]);
      return workOf(VariantIndex.prototype, ['all', 'values'], () => {
        for (const [at, name] of endpoints.entries()) {
          setting.end(name);
          setting.clusters({ removals: [{ name: resourceName(`c${at}`), constraints: UNCONSTRAINED }] });
          expect(setting.kept).to.deep.equal([]);
        }
      });
    };
    expect(lookedAt(200)).to.equal(lookedAt(50));
  });
});

const names = ['a', 'b', 'c'].map(resourceName);
/** Of their own name, another, the same in other bytes, and of an extension. */
const bodies = [
  {},
  { edsClusterConfig: { serviceName: 'a' } },
  { edsClusterConfig: { serviceName: 'b' } },
  { edsClusterConfig: { serviceName: 'b' }, altStatName: 'x' },
  { clusterType: { name: 'x' } },
];
const constraints = [UNCONSTRAINED, when({ env: 'prod' })];
const ttlMilliseconds = 1000;
const some = fc.record({
  name: fc.constantFrom(...names),
  body: fc.constantFrom(...bodies),
  constraints: fc.constantFrom(...constraints),
  expires: fc.boolean(),
});
const step = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record({
      kind: fc.constant('apply' as const),
      holder: fc.constantFrom(wildcard, named),
      puts: fc.uniqueArray(some, { maxLength: 2, selector: (one) => `${one.name} ${one.constraints.key}` }),
      removals: fc.array(some, { maxLength: 1 }),
      complete: fc.boolean(),
      cannotDelete: fc.boolean(),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({ kind: fc.constant('want' as const), name: fc.constantFrom(...names) }),
  },
  {
    weight: 4,
    arbitrary: fc.record({
      kind: fc.constantFrom(
        'gate',
        'open',
        'release',
        'discard',
        'rollback',
        'unfreeze',
        'expire',
        'restamp',
      ),
    }),
  },
);

/** `steps`: what becomes of the clusters. */
function keepsWhatClustersLeadTo(steps: readonly (typeof step extends fc.Arbitrary<infer T> ? T : never)[]) {
  const setting = new Setting(names);
  const { store, clock } = setting;
  const { held } = store;
  for (const one of steps) {
    if (one.kind === 'apply') {
      const puts = one.puts.map(({ name, body, constraints, expires }) => ({
        ...cluster({ name, ...body }),
        constraints,
        ttlMilliseconds: expires ? ttlMilliseconds : undefined,
      }));
      const complete = one.complete && !one.cannotDelete;
      setting.clusters({ ...one, puts, complete });
    } else if (one.kind === 'want') {
      const wanted = interest(cds, one.name);
      if (store.isResolved(wanted)) store.removeInterest(wanted);
      else {
        store.addInterest(wanted);
        setting.clusters({ holder: named, resolved: [wanted] });
      }
    } else if (one.kind === 'gate') held.gatedTypes(new Set([cds]));
    else if (one.kind === 'open') held.gatedTypes(new Set());
    else if (one.kind === 'rollback') {
      held.freeze({ type: cds });
      held.replace(cds, new Map(names.map((name) => [name, held.contentOf(cds, name, 'canary')])));
    } else if (one.kind === 'expire') {
      clock.advance(ttlMilliseconds);
      const all = names.flatMap((name) =>
        constraints.map((each) => ({ type: cds, name, constraints: each })),
      );
      Array.from(store.expire(all));
    } else if (one.kind === 'restamp') {
      const [from = UNCONSTRAINED, to] = constraints;
      const moves = names.map((name, at) => ({ holder: named, name, from, to: at === 0 ? undefined : to }));
      store.restamp({ type: cds, moves, unresolved: [] });
    } else held[one.kind]();
    const all = names.flatMap((name) => store.named(cds, name)).map(({ variant }) => clusterFacts(variant));
    const isKept = (name: string): boolean =>
      held.pending.length > 0 || all.some(({ service, extended }) => extended || service === name);
    expect(setting.kept).to.deep.equal(names.filter(isKept));
  }
}
