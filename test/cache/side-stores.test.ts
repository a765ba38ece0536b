import { expect } from 'chai';
import { type Store, sideStores } from '../../src/cache/store.ts';
import type { Side } from '../../src/model/access.ts';
import { resourceName } from '../../src/model/brand.ts';
import { type Commit, isVariant } from '../../src/model/catalog.ts';
import { NO_PARAMETERS } from '../../src/model/parameters.ts';
import { type Transaction, transaction } from '../../src/model/transaction.ts';
import { namedHolder, put, type } from '../support/in-memory-relay.ts';
import { VirtualClock } from '../support/virtual-clock.ts';

const cds = type('cds');
const name = resourceName('a');
const interest = { type: cds, selector: name, parameters: NO_PARAMETERS };

const says = (content: string): Transaction =>
  transaction({ holder: namedHolder, type: cds, puts: [put(cds, 'a', content)], resolved: [interest] });

type Stores = Readonly<Record<Side, Store>>;

function twoStores(): Stores {
  const stores = sideStores({ clock: new VirtualClock(), ambiguous: () => {}, expiring: () => {} }, true);
  for (const store of Object.values(stores)) store.addInterest(interest);
  return stores;
}

const payloadOf = (stores: Stores, side: Side) => {
  const value = stores[side].sides[side].resolve(cds, name, NO_PARAMETERS);
  return isVariant(value) ? value.payload : undefined;
};

const changedOn = ({ sides }: Commit): readonly Side[] =>
  (['released', 'canary'] as const).filter((side) => (sides?.[side].changed.size ?? 0) > 0);

describe('the stores of both sides', () => {
  it('each side sees what its upstream says, and nothing of the other', () => {
    const stores = twoStores();
    expect(changedOn(stores.released.apply(says('1')))).to.deep.equal(['released']);
    expect(stores.canary.sides.canary.isResolved(interest)).to.equal(false);
    expect(changedOn(stores.canary.apply(says('2')))).to.deep.equal(['canary']);
    expect(payloadOf(stores, 'released')).not.to.equal(payloadOf(stores, 'canary'));
  });

  it('equal bodies are one, and count once', () => {
    const stores = twoStores();
    stores.released.apply(says('1'));
    const before = stores.released.bodyBytes;
    stores.canary.apply(says('1'));
    expect(payloadOf(stores, 'released')).to.equal(payloadOf(stores, 'canary'));
    expect(stores.released.bodyBytes).to.equal(before);
  });

  it('revisions count over both, and an interest ends in both', () => {
    const stores = twoStores();
    const first = stores.released.apply(says('1'));
    expect(stores.canary.apply(says('1')).revision).to.equal(first.revision + 1);
    for (const store of Object.values(stores)) store.removeInterest(interest);
    expect(payloadOf(stores, 'released')).to.equal(undefined);
    expect(payloadOf(stores, 'canary')).to.equal(undefined);
    expect(stores.released.bytes).to.equal(0);
  });

  it('one store is both sides where nothing is said apart', () => {
    const options = { clock: new VirtualClock(), ambiguous: () => {}, expiring: () => {} };
    const stores = sideStores(options, false);
    stores.released.addInterest(interest);
    expect(stores.released.apply(says('1')).sides).to.equal(undefined);
    expect(payloadOf(stores, 'canary')).to.equal(payloadOf(stores, 'released'));
    expect(stores.canary).to.equal(stores.released);
  });
});
