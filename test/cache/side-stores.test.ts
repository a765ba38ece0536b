import { expect } from 'chai';
import { SideStores } from '../../src/cache/store.ts';
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

function twoStores(): SideStores {
  const stores = new SideStores({ clock: new VirtualClock(), ambiguous: () => {}, expiring: () => {} }, true);
  stores.addInterest(interest);
  return stores;
}

const payloadOf = (stores: SideStores, side: Side) => {
  const value = stores.catalogs[side].resolve(cds, name, NO_PARAMETERS);
  return isVariant(value) ? value.payload : undefined;
};

const changedOn = ({ sides }: Commit): readonly Side[] =>
  (['released', 'canary'] as const).filter((side) => (sides?.[side].changed.size ?? 0) > 0);

describe('the stores of both sides', () => {
  it('each side sees what its upstream says, and nothing of the other', () => {
    const stores = twoStores();
    expect(changedOn(stores.apply(says('1'), 'released'))).to.deep.equal(['released']);
    expect(stores.catalogs.canary.isResolved(interest)).to.equal(false);
    expect(changedOn(stores.apply(says('2'), 'canary'))).to.deep.equal(['canary']);
    expect(payloadOf(stores, 'released')).not.to.equal(payloadOf(stores, 'canary'));
  });

  it('equal bodies are one, and count once', () => {
    const stores = twoStores();
    stores.apply(says('1'), 'released');
    const before = stores.released.bodyBytes;
    stores.apply(says('1'), 'canary');
    expect(payloadOf(stores, 'released')).to.equal(payloadOf(stores, 'canary'));
    expect(stores.released.bodyBytes).to.equal(before);
  });

  it('revisions count over both, and an interest ends in both', () => {
    const stores = twoStores();
    const first = stores.apply(says('1'), 'released');
    expect(stores.apply(says('1'), 'canary').revision).to.equal(first.revision + 1);
    stores.removeInterest(interest);
    expect(payloadOf(stores, 'released')).to.equal(undefined);
    expect(payloadOf(stores, 'canary')).to.equal(undefined);
    expect(stores.released.bytes).to.equal(0);
  });

  it('one store is both sides where nothing is said apart', () => {
    const options = { clock: new VirtualClock(), ambiguous: () => {}, expiring: () => {} };
    const stores = new SideStores(options, false);
    stores.addInterest(interest);
    expect(stores.apply(says('1'), 'released').sides).to.equal(undefined);
    expect(payloadOf(stores, 'canary')).to.equal(payloadOf(stores, 'released'));
    expect(stores.separate).to.deep.equal(['released']);
  });
});
