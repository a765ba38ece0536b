import { expect } from 'chai';
import { Store } from '../../src/cache/store.ts';
import { resourceName } from '../../src/model/brand.ts';
import { isVariant, type Value } from '../../src/model/catalog.ts';
import { NO_PARAMETERS } from '../../src/model/parameters.ts';
import type { Holder, Transaction } from '../../src/model/transaction.ts';
import { type } from '../support/in-memory-relay.ts';
import { VirtualClock } from '../support/virtual-clock.ts';
import { interest, named, says } from './persistence/support.ts';

const cds = type('cds');
const all = interest('cds');
const sibling: Holder = { key: 'sibling wildcard', upstream: 'central', role: 'wildcard', restored: true };

/** What a sibling says. */
const sends = (part: Parameters<typeof says>[1]): Transaction => says('cds', { holder: sibling, ...part });

function storeWith(...wanted: readonly ReturnType<typeof interest>[]): Store {
  const store = new Store({ clock: new VirtualClock(), ambiguous: () => {}, expiring: () => {} });
  for (const one of wanted) store.addInterest(one);
  return store;
}

const valueOf = (store: Store, name: string): Value => store.resolve(cds, resourceName(name), NO_PARAMETERS);
const versionOf = (store: Store, name: string): string => {
  const value = valueOf(store, name);
  return isVariant(value) ? value.version : value;
};
const names = (store: Store): string[] => [...store.members(cds, all.selector, NO_PARAMETERS)].toSorted();

describe('what a sibling has', () => {
  it('is served, and its wildcard is known', () => {
    const store = storeWith(all);
    store.apply(sends({ resources: { a: '1', b: '1' }, resolved: [all] }));
    expect(names(store)).to.deep.equal(['a', 'b']);
    expect(store.isResolved(all)).to.equal(true);
    expect(store.isRestored(all)).to.equal(true);
  });

  it('changes nothing that is cached, and adds what is not', () => {
    const store = storeWith(all, interest('cds', 'a'));
    store.apply(says('cds', { holder: named, resources: { a: '2' }, resolved: [interest('cds', 'a')] }));
    store.apply(sends({ resources: { a: '1', b: '1' }, resolved: [all] }));
    expect(versionOf(store, 'a')).to.equal('v-2');
    expect(names(store), 'a is in the wildcard').to.deep.equal(['a', 'b']);
  });

  it('of two siblings the first counts, and the second adds', () => {
    const store = storeWith(all);
    store.apply(sends({ resources: { a: '1' }, resolved: [all] }));
    store.apply(sends({ resources: { a: 'other', b: '1' }, resolved: [all] }));
    expect([versionOf(store, 'a'), versionOf(store, 'b')]).to.deep.equal(['v-1', 'v-1']);
  });

  it('a name that a sibling says is not there stays unknown', () => {
    const wanted = interest('cds', 'a');
    const store = storeWith(wanted);
    store.apply(sends({ resolved: [wanted] }));
    expect(valueOf(store, 'a')).to.equal('unknown');
    expect(store.isResolved(wanted)).to.equal(false);
  });

  it('goes in the revision in which upstream answers without it', () => {
    const store = storeWith(all);
    store.apply(sends({ resources: { a: '1', b: '1' }, resolved: [all] }));
    store.apply(says('cds', { resources: { a: '1' } }));
    expect(names(store)).to.deep.equal(['a', 'b']);
    const commit = store.apply(says('cds', { resolved: [all] }));
    expect(commit.changed.has(resourceName('b'))).to.equal(true);
    expect(names(store)).to.deep.equal(['a']);
    expect(store.isRestored(all)).to.equal(false);
  });

  it('changes nothing visible where upstream delivers the same', () => {
    const store = storeWith(all);
    store.apply(sends({ resources: { a: '1' }, resolved: [all] }));
    const commit = store.apply(says('cds', { resources: { a: '1' }, resolved: [all] }));
    const value = valueOf(store, 'a');
    expect(commit.resolved).to.deep.equal([]);
    expect(isVariant(value) && value.revision).to.equal(1);
  });

  it('ends with the interest that it came for', () => {
    const store = storeWith(all);
    store.apply(sends({ resources: { a: '1' }, resolved: [all] }));
    store.removeInterest(all);
    expect(store.variants(cds)).to.equal(0);
    expect(store.bytes).to.equal(0);
  });
});
