import { expect } from 'chai';
import { cohortStores, type Store } from '../../src/cache/store.ts';
import type { Cohort } from '../../src/model/access.ts';
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

type Stores = Readonly<Record<Cohort, Store>>;

function twoStores(): Stores {
  const stores = cohortStores({ clock: new VirtualClock(), ambiguous: () => {}, expiring: () => {} }, true);
  for (const store of Object.values(stores)) store.addInterest(interest);
  return stores;
}

const payloadOf = (stores: Stores, cohort: Cohort) => {
  const value = stores[cohort].cohorts[cohort].resolve(cds, name, NO_PARAMETERS);
  return isVariant(value) ? value.payload : undefined;
};

const changedOn = ({ cohorts }: Commit): readonly Cohort[] =>
  (['released', 'canary'] as const).filter((cohort) => (cohorts?.[cohort].changed.size ?? 0) > 0);

describe('the stores of both cohorts', () => {
  it('each cohort sees what its upstream says, and nothing of the other', () => {
    const stores = twoStores();
    expect(changedOn(stores.released.apply(says('1')))).to.deep.equal(['released']);
    expect(stores.canary.cohorts.canary.isResolved(interest)).to.equal(false);
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

  it('one store is both cohorts where nothing is said apart', () => {
    const options = { clock: new VirtualClock(), ambiguous: () => {}, expiring: () => {} };
    const stores = cohortStores(options, false);
    stores.released.addInterest(interest);
    expect(stores.released.apply(says('1')).cohorts).to.equal(undefined);
    expect(payloadOf(stores, 'canary')).to.equal(payloadOf(stores, 'released'));
    expect(stores.canary).to.equal(stores.released);
  });
});
