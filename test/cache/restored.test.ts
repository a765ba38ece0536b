import { expect } from 'chai';
import fc from 'fast-check';
import { type Restored, Store } from '../../src/cache/store.ts';
import type { StoreOptions } from '../../src/cache/type-table.ts';
import { resourceName } from '../../src/model/brand.ts';
import { isVariant } from '../../src/model/catalog.ts';
import { UNCONSTRAINED } from '../../src/model/constraints.ts';
import { internParameters, NO_PARAMETERS } from '../../src/model/parameters.ts';
import { type Holder, type Interest, transaction } from '../../src/model/transaction.ts';
import { VariantIndex } from '../../src/model/variant-index.ts';
import { Code } from '../../src/wire/grpc-status.ts';
import { encodeStatus } from '../../src/wire/responses.ts';
import { InMemoryRelay, put, resources, type, when } from '../support/in-memory-relay.ts';
import { compiled, is } from '../support/variants.ts';
import { VirtualClock } from '../support/virtual-clock.ts';
import { workOf } from '../support/work.ts';
import { interest, named, says, unconfirmed, wild } from './persistence/support.ts';

const cds = type('cds');
const all = interest('cds');

function newStore(more: Partial<StoreOptions> = {}): Store {
  return new Store({ clock: new VirtualClock(), ambiguous: () => {}, expiring: () => {}, ...more });
}

/** What a store would be restored from. */
function imageOf(store: Store): Restored {
  const tables = [...store.tables];
  const old = (holder: Holder): Holder => ({ ...holder, restored: true });
  return {
    resources: tables.flatMap(([url, table]) =>
      [...table.resources].map(([name, cell]) => {
        const variants = cell.variants
          .values()
          .map(({ variant, holders }) => ({ variant, holders: holders.map(old) }));
        return { type: url, name, variants, bindings: [...(cell.bindings ?? [])] };
      }),
    ),
    interests: tables.flatMap(([, table]) =>
      [...table.interests.all()].map((state) => ({ ...state, holder: state.holder })),
    ),
    versions: tables.flatMap(([url, table]) =>
      [...table.versions].map(([holder, version]) => ({ type: url, holder, version })),
    ),
  };
}

/** The store of a process that was started again. */
function restarted(before: Store, more: Partial<StoreOptions> = {}): Store {
  const store = newStore(more);
  store.restore(imageOf(before));
  return store;
}

function names(store: Store, wanted: Interest = all): string[] {
  return [...store.members(wanted.type, wanted.selector, wanted.parameters)].toSorted();
}

function storeWith(...wanted: readonly Interest[]): Store {
  const store = newStore();
  for (const one of wanted) store.addInterest(one);
  return store;
}

describe('what is restored', () => {
  it('is served as it was, and its wildcard is known', () => {
    const before = storeWith(all);
    before.apply(says('cds', { resources: { a: '1', b: '2' }, resolved: [all] }));
    const store = restarted(before);
    expect(names(store)).to.deep.equal(['a', 'b']);
    expect(store.isResolved(all)).to.equal(true);
    expect(store.version(all)).to.equal('1');
    expect(store.resolve(cds, resourceName('a'), NO_PARAMETERS)).to.have.property('version', 'v-1');
  });

  it('has no choice for parameters that one variant matches, or none, whatever a file of an earlier version says', () => {
    const setTo = (value: string) => compiled(is('env', value));
    const before = storeWith(all);
    const puts = ['prod', 'test'].map((env) => put(cds, 'a', env, { constraints: setTo(env) }));
    before.apply(says('cds', { puts, resolved: [all] }));
    const image = imageOf(before);
    const bindings = ['prod', 'other'].map(
      (env) => [internParameters([['env', env]]), setTo('prod').key] as const,
    );
    const store = newStore();
    store.restore({ ...image, resources: image.resources.map((one) => ({ ...one, bindings })) });
    const [[, table] = expect.fail()] = store.tables;
    expect(table.ambiguousCount).to.equal(0);
  });

  it('stays without a visible change where upstream delivers the same again', () => {
    const before = storeWith(all);
    before.apply(says('cds', { resources: { a: '1', b: '2' }, resolved: [all] }));
    const store = restarted(before);
    store.addInterest(all);
    const commit = store.apply(says('cds', { resources: { a: '1', b: '2' }, resolved: [all] }));
    expect([...commit.changed.keys()]).to.deep.equal([]);
    expect(unconfirmed(store, cds)).to.deep.equal([]);
  });

  it('goes exactly when upstream has answered: what it did not deliver, in the same revision', () => {
    const before = storeWith(all);
    before.apply(says('cds', { resources: { a: '1', b: '2', c: '3' }, resolved: [all] }));
    const store = restarted(before);
    store.apply(says('cds', { resources: { a: '1' } })); // a delta control plane splits its answer
    store.apply(says('cds', { resources: { b: 'new' } }));
    expect(names(store)).to.deep.equal(['a', 'b', 'c']);
    const commit = store.apply(says('cds', { resolved: [all] }));
    expect([...commit.changed.keys()]).to.deep.equal(['c']);
    expect(names(store)).to.deep.equal(['a', 'b']);
  });

  it('is looked at where the answered interest may see it, however many variants a name has', () => {
    const lookedAt = (variants: number): number => {
      const wanted = Array.from({ length: variants }, (_, at) => interest('cds', 'a', { env: `${at}` }));
      const before = storeWith(...wanted);
      const puts = wanted.map((_, at) =>
        put(cds, 'a', `${at}`, { constraints: compiled(is('env', `${at}`)) }),
      );
      before.apply(says('cds', { holder: named, puts, resolved: wanted }));
      const store = restarted(before);
      const read = workOf(VariantIndex.prototype, ['values', 'match'], () =>
        store.apply(says('cds', { holder: named, resolved: wanted.slice(0, 1) })),
      );
      expect(unconfirmed(store, cds)).to.have.length(variants - 1);
      return read;
    };
    expect(lookedAt(100)).to.equal(lookedAt(10));
  });

  it('goes with a full state of the holder that it stands for, wanted or not', () => {
    const before = storeWith();
    before.apply(says('cds', { resources: { a: '1', b: '2' } }));
    const store = restarted(before);
    const commit = store.apply(says('cds', { resources: { a: '1' }, complete: true }));
    expect([...commit.changed.keys()]).to.deep.equal(['b']);
  });

  it('goes with a removal by the holder that it stands for', () => {
    const before = storeWith(all);
    before.apply(says('cds', { resources: { a: '1', b: '2' }, resolved: [all] }));
    const store = restarted(before);
    const removals = [{ name: resourceName('a'), constraints: UNCONSTRAINED }];
    store.apply(says('cds', { removals }));
    expect(names(store)).to.deep.equal(['b']);
  });

  it('of the wildcard and of names is confirmed apart', () => {
    const one = interest('cds', 'a');
    const before = storeWith(all, one);
    before.apply(says('cds', { resources: { a: '1' }, resolved: [all] }));
    before.apply(says('cds', { holder: named, resources: { a: '1' }, resolved: [one] }));
    const store = restarted(before);
    store.apply(says('cds', { holder: named, resolved: [one] }));
    expect(names(store)).to.deep.equal(['a']); // upstream has not answered for the wildcard
    const commit = store.apply(says('cds', { resolved: [all] }));
    expect([...commit.changed.keys()]).to.deep.equal(['a']);
    expect(store.resolve(cds, one.selector, NO_PARAMETERS)).to.equal('absent');

    const other = restarted(before);
    other.apply(says('cds', { resolved: [all] }));
    expect(names(other)).to.deep.equal([]);
    expect(isVariant(other.resolve(cds, one.selector, NO_PARAMETERS))).to.equal(true);
    other.apply(says('cds', { holder: named, resolved: [one] }));
    expect(other.resolve(cds, one.selector, NO_PARAMETERS)).to.equal('absent');
  });

  it('of names that upstream never answers is served on', () => {
    const web = interest('eds', 'web');
    const db = interest('eds', 'db');
    const before = storeWith(web, db);
    before.apply(
      says('eds', {
        holder: named,
        resources: { web: '1', db: '1' },
        resolved: [web, db],
        cannotDelete: true,
      }),
    );
    const store = restarted(before);
    store.apply(says('eds', { holder: named, resources: { web: '2' }, resolved: [web], cannotDelete: true }));
    expect(isVariant(store.resolve(db.type, db.selector, NO_PARAMETERS))).to.equal(true);
    expect(unconfirmed(store, db.type)).to.deep.equal(['db']);
  });

  it('for several parameter sets stays until the last that sees it is answered', () => {
    const [prod, dev] = [interest('cds', '*', { env: 'prod' }), interest('cds', '*', { env: 'dev' })];
    const before = storeWith(prod, dev);
    before.apply(says('cds', { resources: { shared: '1' }, resolved: [prod, dev] }));
    before.apply(says('cds', { resources: { own: '1' }, more: { constraints: when({ env: 'prod' }) } }));
    const store = restarted(before);
    store.apply(says('cds', { resolved: [prod] }));
    expect(names(store, prod)).to.deep.equal(['shared']);
    store.apply(says('cds', { resolved: [dev] }));
    expect(names(store, prod)).to.deep.equal([]);
  });

  it('is found by an alias, and goes when that is answered', () => {
    const www = interest('vhds', 'www');
    const before = storeWith(www);
    before.apply(
      says('vhds', { holder: named, resources: { web: '1' }, more: { aliases: ['www'] }, resolved: [www] }),
    );
    const store = restarted(before);
    expect(isVariant(store.resolve(www.type, www.selector, NO_PARAMETERS))).to.equal(true);
    store.apply(says('vhds', { holder: named, resolved: [www] }));
    expect(store.resolve(www.type, www.selector, NO_PARAMETERS)).to.equal('absent');
  });

  it('is not dropped for an error other than NOT_FOUND, and either is told (protocol §8)', () => {
    const one = interest('cds', 'a');
    const before = storeWith(one);
    before.apply(says('cds', { holder: named, resources: { a: '1' }, resolved: [one] }));
    for (const [code, stays] of [
      [Code.RESOURCE_EXHAUSTED, true],
      [Code.NOT_FOUND, false],
    ] as const) {
      const store = restarted(before);
      const fault = {
        name: one.selector,
        constraints: UNCONSTRAINED,
        code,
        message: 'no',
        status: encodeStatus(code, 'no'),
      };
      store.apply(says('cds', { holder: named, resourceErrors: [fault], resolved: [one] }));
      expect(isVariant(store.resolve(cds, one.selector, NO_PARAMETERS))).to.equal(stays);
      expect(store.resourceErrors(cds, one.selector, NO_PARAMETERS).map((error) => error.code)).to.deep.equal(
        [code],
      );
    }
  });

  describe('beside an error other than NOT_FOUND (protocol §8.2)', () => {
    const glob = 'xdstp://a/envoy.config.cluster.v3.Cluster/foo/*';
    const memberOf = (selector: string): string => (selector === '*' ? 'b' : selector.replace('*', 'b'));
    for (const [selector, holder] of [
      ['*', wild],
      [glob, named],
    ] as const) {
      const wanted = interest('cds', selector);
      const member = resourceName(memberOf(selector));
      const open = (code: Code): Store => {
        const before = storeWith(wanted);
        before.apply(says('cds', { holder, resources: { [member]: '1' }, resolved: [wanted] }));
        const store = restarted(before);
        const status = encodeStatus(code, 'no');
        const error = { name: member, constraints: UNCONSTRAINED, code, message: 'no', status };
        store.apply(says('cds', { holder, resourceErrors: [error] }));
        store.apply(says('cds', { holder, resolved: [wanted] }));
        return store;
      };

      it(`a member of ${selector} stays, and goes with a full state or a removal`, () => {
        const { full, removal } = {
          full: { complete: true },
          removal: { removals: [{ name: member, constraints: UNCONSTRAINED }] },
        };
        for (const end of [full, removal]) {
          const store = open(Code.UNAVAILABLE);
          expect(names(store, wanted)).to.deep.equal([member]);
          store.apply(says('cds', { holder, ...end }));
          expect(names(store, wanted)).to.deep.equal([]);
        }
      });

      it(`a member of ${selector} goes when nobody subscribes to it`, () => {
        const store = open(Code.UNAVAILABLE);
        store.removeInterest(wanted);
        expect(store.variants(cds)).to.equal(0);
      });

      it(`a member of ${selector} goes with NOT_FOUND`, () => {
        expect(names(open(Code.NOT_FOUND), wanted)).to.deep.equal([]);
      });
    }

    it('what a sibling has said goes with the answer: no removal would reach it', () => {
      const wanted = interest('cds');
      const store = storeWith(wanted);
      const sibling = { ...wild, key: 'sibling', restored: true } as const;
      store.apply(says('cds', { holder: sibling, resources: { b: '1' }, resolved: [wanted] }));
      const code = Code.UNAVAILABLE;
      const error = {
        name: resourceName('b'),
        constraints: UNCONSTRAINED,
        code,
        message: 'no',
        status: encodeStatus(code, 'no'),
      };
      store.apply(says('cds', { holder: wild, resourceErrors: [error] }));
      expect(names(store, wanted)).to.deep.equal(['b']);
      store.apply(says('cds', { holder: wild, resolved: [wanted] }));
      expect(names(store, wanted)).to.deep.equal([]);
    });

    it('a name goes with its own answer that lacks it', () => {
      const one = interest('lds', 'a');
      const before = storeWith(one);
      before.apply(says('lds', { holder: named, resources: { a: '1' }, resolved: [one] }));
      const store = restarted(before);
      const code = Code.UNAVAILABLE;
      const status = encodeStatus(code, 'no');
      const error = { name: one.selector, constraints: UNCONSTRAINED, code, message: 'no', status };
      store.apply(says('lds', { holder: named, resourceErrors: [error] }));
      store.apply(says('lds', { holder: named, resolved: [one] }));
      expect(store.resolve(one.type, one.selector, NO_PARAMETERS)).to.equal('absent');
    });
  });

  it('that only an ended interest had kept goes with it, for whoever else sees it', () => {
    const [prod, dev] = [interest('cds', '*', { env: 'prod' }), interest('cds', '*', { env: 'dev' })];
    const before = storeWith(prod, dev);
    before.apply(says('cds', { resources: { shared: '1' }, resolved: [prod, dev] }));
    const store = restarted(before);
    store.apply(says('cds', { resolved: [prod] }));
    const commit = store.removeInterest(dev);
    expect([...(commit?.changed.keys() ?? [])]).to.deep.equal(['shared']);
    expect(names(store, prod)).to.deep.equal([]);
  });

  it('that others name who are not answered yet stays when the interest that it came for ends', () => {
    const [prod, dev] = [interest('eds', 'x', { env: 'prod' }), interest('eds', 'x', { env: 'dev' })];
    const before = storeWith(prod);
    before.apply(says('eds', { holder: named, resources: { x: '1' }, resolved: [prod] }));
    const store = restarted(before);
    store.addInterest(dev);
    store.removeInterest(prod);
    expect(isVariant(store.peek(dev.type, dev.selector, dev.parameters))).to.equal(true);
    store.apply(says('eds', { holder: named, resolved: [dev] }));
    expect(store.peek(dev.type, dev.selector, dev.parameters)).to.equal('absent');
  });

  it('is also what a session lets go of, where others name it who are not answered yet', () => {
    const one = interest('cds', 'a');
    const store = storeWith(all);
    store.apply(says('cds', { resources: { a: '1', b: '1' }, complete: true, resolved: [all] }));
    store.addInterest(one);
    store.removeInterest(all);
    const removals = ['a', 'b'].map((name) => ({ name: resourceName(name), constraints: UNCONSTRAINED }));
    const commit = store.apply(says('cds', { removals, unwanted: true }));
    expect([...commit.changed.keys()]).to.deep.equal([]);
    expect(isVariant(store.peek(cds, one.selector, NO_PARAMETERS))).to.equal(true);
    expect(unconfirmed(store, cds)).to.deep.equal(['a']);
    store.apply(says('cds', { holder: named, resolved: [one] }));
    expect(store.peek(cds, one.selector, NO_PARAMETERS)).to.equal('absent');
  });

  it('that other wildcards see which are not answered yet stays when the one ends that it came for', () => {
    const [prod, dev] = [interest('cds', '*', { env: 'prod' }), interest('cds', '*', { env: 'dev' })];
    const before = storeWith(prod);
    before.apply(says('cds', { resources: { a: '1', b: '1' }, resolved: [prod] }));
    const store = restarted(before);
    store.addInterest(dev);
    expect(store.removeInterest(prod)).to.equal(undefined);
    expect(names(store, dev)).to.deep.equal(['a', 'b']);
    store.apply(says('cds', { resources: { a: '1' }, resolved: [dev] }));
    expect(names(store, dev)).to.deep.equal(['a']);
  });

  it('before a first answer is nothing but a hint: it goes with the answer', () => {
    const before = storeWith(all);
    before.apply(says('cds', { resources: { a: '1', b: '1' } })); // the rest of the answer was still to come
    const store = restarted(before);
    expect(store.isResolved(all)).to.equal(false);
    store.apply(says('cds', { resources: { b: '1' } }));
    store.apply(says('cds', { resolved: [all] }));
    expect(names(store)).to.deep.equal(['b']);
  });

  it('ends up as upstream has it, whatever was there before and in whatever parts it comes', () => {
    const content = fc.dictionary(fc.constantFrom('a', 'b', 'c', 'd', 'e'), fc.constantFrom('1', '2'));
    fc.assert(
      fc.property(content, fc.array(content, { maxLength: 4 }), fc.boolean(), (old, parts, sotw) => {
        const before = storeWith(all);
        before.apply(says('cds', { resources: old, resolved: [all] }));
        const store = restarted(before);
        const answer: Record<string, string> = {};
        for (const [index, part] of parts.entries()) {
          Object.assign(answer, part);
          if (!sotw) store.apply(says('cds', { resources: part }));
          // Never less than upstream held, before it has answered.
          expect(names(store)).to.include.members(Object.keys(old));
          if (sotw && index === parts.length - 1)
            store.apply(says('cds', { resources: answer, complete: true, resolved: [all] }));
        }
        const commit = store.apply(says('cds', { resolved: [all] }));
        const last = sotw && parts.length > 0 ? [] : Object.keys(old).filter((name) => !(name in answer));
        expect([...commit.changed.keys()].toSorted()).to.deep.equal(last.toSorted());
        expect(names(store)).to.deep.equal(Object.keys(answer).toSorted());
        expect(unconfirmed(store, cds)).to.deep.equal([]);
      }),
    );
  });
});

describe('a replaced upstream', () => {
  const other: Holder = { key: 'files', upstream: 'files', role: 'wildcard' };

  it('leaves what it had until the next one has answered', () => {
    const one = interest('cds', 'a');
    const store = storeWith(all, one);
    store.apply(says('cds', { resources: { a: '1', b: '2' }, resolved: [all] }));
    store.apply(says('cds', { holder: named, resources: { a: '1' }, resolved: [one] }));
    store.markRestored('central', () => undefined);
    expect(names(store)).to.deep.equal(['a', 'b']);
    const commit = store.apply(says('cds', { holder: other, resources: { a: '1' }, resolved: [all, one] }));
    expect([...commit.changed.keys()]).to.deep.equal(['a', 'b']);
    expect(names(store)).to.deep.equal(['a']);
    expect(unconfirmed(store, cds)).to.deep.equal([]);
  });

  it('of which nothing goes to another upstream freezes nothing of that', () => {
    const other: Holder = { key: 'other wildcard', upstream: 'other', role: 'wildcard' };
    const store = storeWith(all);
    store.apply(says('cds', { resources: { a: '1' }, resolved: [all] }));
    store.apply(says('cds', { holder: other, resources: { z: '1' }, resolved: [all] }));
    store.held.gatedTypes(new Set([cds]));
    store.apply(says('cds', { holder: other, resources: { z: '2' } }));
    store.held.freeze({ upstream: 'central' }, { operator: 'somebody', reason: 'a test' });
    // central is replaced (its address, say): each serves what it served.
    store.markRestored('central', (_, name) => (name === resourceName('z') ? 'other' : 'central'));
    expect(store.held.holds.freezes.map(({ upstream }) => upstream)).to.deep.equal(['central']);
  });

  it('of which one type goes to another upstream freezes no other type of that', () => {
    const store = storeWith(all);
    store.apply(says('cds', { resources: { a: '1' }, resolved: [all] }));
    store.held.freeze({ upstream: 'central', type: type('lds') }, { operator: 'somebody', reason: 'a test' });
    store.markRestored('central', (t) => (t === cds ? 'next' : 'central'));
    expect(store.held.holds.freezes.map(({ upstream }) => upstream)).to.deep.equal(['central']);
  });

  it('is not who is frozen, once another one serves its names', () => {
    const next: Holder = { key: 'next wildcard', upstream: 'next', role: 'wildcard' };
    const store = storeWith(all);
    store.apply(says('cds', { resources: { a: '1', b: '1' }, complete: true, resolved: [all] }));
    store.markRestored('central', () => 'next');
    const same = { a: '1', b: '1' };
    store.apply(says('cds', { holder: next, resources: same, complete: true, resolved: [all] }));
    store.held.freeze({ upstream: 'next' }, { operator: 'somebody', reason: 'a test' });
    store.apply(says('cds', { holder: next, resources: { a: '2', b: '2' }, complete: true }));
    const held = store.held.pending.map(({ name, upstream, masked }) => `${name} ${upstream} ${masked}`);
    expect(held.toSorted()).to.deep.equal(['a next frozen', 'b next frozen']);
  });

  it('that is frozen is so under the name of who takes its place', () => {
    const next: Holder = { key: 'next wildcard', upstream: 'next', role: 'wildcard' };
    const store = storeWith(all);
    store.apply(says('cds', { resources: { a: '1', b: '1' }, complete: true, resolved: [all] }));
    store.held.freeze({ upstream: 'central' }, { operator: 'somebody', reason: 'a test' });
    store.markRestored('central', () => 'next');
    const changed = { a: '1', b: '2' };
    store.apply(says('cds', { holder: next, resources: changed, complete: true, resolved: [all] }));
    expect(store.held.pending.map(({ name, masked }) => `${name} ${masked}`)).to.deep.equal(['b frozen']);
    expect(store.held.unfreeze({ upstream: 'next' }).ok).to.equal(true);
    expect(store.held.pending.map(({ masked }) => masked)).not.to.include('frozen');
  });

  it('whose names another one serves from now on does not touch these, and they are written as its own', () => {
    const one = interest('cds', 'a');
    const written: string[] = [];
    const journal = {
      resource: (_: unknown, name: string) => written.push(name),
      interest: () => {},
      version: () => {},
    };
    const store = new Store({ clock: new VirtualClock(), ambiguous: () => {}, expiring: () => {}, journal });
    for (const wanted of [all, one]) store.addInterest(wanted);
    store.apply(says('cds', { resources: { a: '1', b: '2' }, resolved: [all, one] }));
    written.length = 0;
    store.markRestored('central', (_, name) => (name === 'a' ? 'files' : 'central'));
    expect(written).to.deep.equal(['a']);
    store.apply(says('cds', { resources: { b: '2' }, complete: true, resolved: [all] }));
    expect(names(store), 'of the wildcard').to.deep.equal(['b']);
    expect(isVariant(store.peek(cds, resourceName('a'), NO_PARAMETERS))).to.equal(true);
    const upstreams = imageOf(store).resources.map(({ name, variants }) => [
      name,
      ...new Set(variants.flatMap(({ holders }) => holders.map(({ upstream }) => upstream))),
    ]);
    expect(upstreams).to.deep.equal([
      ['a', 'files'],
      ['b', 'central'],
    ]);
    store.apply(says('cds', { holder: other, resolved: [one] }));
    expect(store.peek(cds, resourceName('a'), NO_PARAMETERS)).to.equal('absent');
  });

  it('does not touch what is of others', () => {
    const store = storeWith(all);
    store.apply(says('cds', { resources: { a: '1' }, resolved: [all] }));
    store.markRestored('files', () => undefined);
    expect(unconfirmed(store, cds)).to.deep.equal([]);
    expect(store.isRestored(all)).to.equal(false);
    store.markRestored('central', () => undefined);
    expect(store.isRestored(all)).to.equal(true);
  });
});

describe('what files have', () => {
  const files: Holder = { key: 'files:files', upstream: 'files', role: 'wildcard' };
  const options: Partial<StoreOptions> = {
    publishedAs: (_, name) => (name.startsWith('shop') ? files : undefined),
  };
  const has = (store: Store, ...shops: readonly string[]): void => {
    const resources = Object.fromEntries(shops.map((name) => [name, '1']));
    store.apply(says('cds', { holder: files, resources, complete: true }));
  };
  const answers = (store: Store, ...resolved: readonly Interest[]): void =>
    void store.apply(says('cds', { resources: { a: '1' }, resolved }));
  const inEnv = (env: string): Interest => interest('cds', '*', { env });
  let store: Store;

  beforeEach(() => {
    store = newStore(options);
    has(store, 'shop', 'shop-2');
  });

  it('is there whoever subscribes to it, and an end of that makes no room', () => {
    store.addInterest(all);
    answers(store, all);
    const alone = storeWith(all);
    answers(alone, all);
    expect(store.contentOf(all)).to.deep.equal(alone.contentOf(all));
    store.removeInterest(all);
    expect(store.variants(cds)).to.equal(2);
  });

  it('before a restart goes when they say so: the answer to a wildcard is of another upstream', () => {
    store.addInterest(all);
    answers(store, all);
    const after = restarted(store, options);
    answers(after, all);
    expect(names(after)).to.deep.equal(['a', 'shop', 'shop-2']);
    expect([...after.restoredOf(files)]).to.deep.equal([cds]);
    has(after, 'shop');
    expect(names(after)).to.deep.equal(['a', 'shop']);
    expect([...after.restoredOf(files)]).to.deep.equal([]);
    expect(unconfirmed(after, cds)).to.deep.equal([]);
  });

  it('before a restart ends with its last subscriber, as all that is restored: they may never say it again', () => {
    store.addInterest(all);
    answers(store, all);
    const after = restarted(store, options);
    after.removeInterest(all);
    expect(after.variants(cds)).to.equal(0);
  });

  it('before a reload outlives others that see it, and the first answer to others', () => {
    const [prod, test, dev] = [inEnv('prod'), inEnv('test'), inEnv('dev')];
    for (const one of [prod, test]) store.addInterest(one);
    answers(store, prod, test);
    store.markRestored('files', () => 'files');
    store.removeInterest(test);
    expect(names(store, prod)).to.deep.equal(['a', 'shop', 'shop-2']);
    store.addInterest(dev);
    answers(store, dev);
    expect(names(store, prod)).to.deep.equal(['a', 'shop', 'shop-2']);
    has(store);
    expect(names(store, prod)).to.deep.equal(['a']);
  });

  it('takes the place of what was got by name before a reload: wildcards show it from then on', () => {
    const one = interest('cds', 'shop-3');
    for (const wanted of [all, one]) store.addInterest(wanted);
    answers(store, all);
    store.apply(says('cds', { holder: named, resources: { 'shop-3': '1' }, resolved: [one] }));
    store.markRestored('central', (_, name) => (name.startsWith('shop') ? 'files' : 'central'));
    expect(names(store)).to.deep.equal(['a', 'shop', 'shop-2']);
    const commit = store.apply(
      says('cds', { holder: files, resources: { 'shop-3': '1' }, complete: true, resolved: [one] }),
    );
    expect([...commit.changed.keys()].toSorted()).to.deep.equal(['shop', 'shop-2', 'shop-3']);
    expect(names(store)).to.deep.equal(['a', 'shop-3']);
  });

  it('of names that another upstream serves after a restart goes with the answer of that', () => {
    store.addInterest(all);
    answers(store, all);
    const after = restarted(store);
    answers(after, all);
    expect(names(after)).to.deep.equal(['a']);
  });
});

describe('a restarted relay', () => {
  const before = storeWith(all);
  before.apply(
    says('cds', { holder: { ...wild, upstream: 'script' }, resources: { a: '1', b: '2' }, resolved: [all] }),
  );

  function restart(): InMemoryRelay {
    const relay = new InMemoryRelay();
    relay.relay.start([relay.upstream], imageOf(before));
    return relay;
  }

  it('subscribes again to what it knew, serves it, and ends what nobody comes for', () => {
    const relay = restart();
    expect(relay.upstream.journal).to.deep.equal(['+cds *']);
    const client = relay.sotw();
    client.send('cds');
    expect(resources(client.one())).to.deep.equal({ a: '1', b: '2' });
    client.disconnect();
    relay.settle();
    relay.clock.advance(700_000);
    expect(relay.upstream.journal).to.deep.equal(['+cds *', '-cds *']);
    expect(relay.relay.store.bytes).to.equal(0);
  });

  it('tells clients nothing where upstream has the same, and one removal where it has one less', () => {
    for (const [content, removed] of [
      [{ a: '1', b: '2' }, []],
      [{ a: '1' }, ['b']],
    ] as const) {
      const relay = restart();
      const client = relay.delta();
      client.send('cds', {});
      client.ack('cds', client.one());
      for (const resource of Object.entries(content)) {
        relay.says({ ...says('cds', { resources: Object.fromEntries([resource]) }), resolved: [] });
      }
      expect(client.received()).to.deep.equal([]);
      relay.relay.apply(transaction({ holder: wild, type: cds, resolved: [all] }));
      relay.settle();
      expect(client.received().map(({ removedResources }) => removedResources)).to.deep.equal(
        removed.length === 0 ? [] : [removed],
      );
    }
  });
});
