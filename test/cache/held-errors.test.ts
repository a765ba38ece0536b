import { expect } from 'chai';
import { Store } from '../../src/cache/store.ts';
import type { Cohort } from '../../src/model/access.ts';
import { resourceName } from '../../src/model/brand.ts';
import type { Commit } from '../../src/model/catalog.ts';
import type { Constraints } from '../../src/model/constraints.ts';
import { internParameters } from '../../src/model/parameters.ts';
import { type Transaction, transaction } from '../../src/model/transaction.ts';
import { encodeStatus } from '../../src/wire/responses.ts';
import { namedHolder, put, type, when } from '../support/in-memory-relay.ts';
import { VirtualClock } from '../support/virtual-clock.ts';

const cds = type('cds');
const a = resourceName('a');
const b = resourceName('b');
const prod = when({ env: 'prod' });
const test = when({ env: 'test' });

/** A gate, and a client in each environment. */
class Setting {
  /** What no transaction made. */
  readonly published: Commit[] = [];
  readonly store = new Store({
    clock: new VirtualClock(),
    ambiguous: () => {},
    expiring: () => {},
    publish: (commit) => this.published.push(commit),
  });

  constructor() {
    this.store.held.gatedTypes(new Set([cds]));
    for (const env of ['prod', 'test'])
      this.store.addInterest({ type: cds, selector: a, parameters: internParameters([['env', env]]) });
    this.puts('1', prod);
    this.puts('1', test);
  }

  puts(content: string, constraints: Constraints): Commit {
    return this.#says({ puts: [put(cds, 'a', content, { constraints })] });
  }

  /** Upstream has an error. */
  denies(constraints: Constraints, name = a): Commit {
    const status = encodeStatus(7, 'denied');
    return this.#says({
      resourceErrors: [{ name, constraints, code: 7, message: 'denied', status }],
    });
  }

  #says(part: Partial<Transaction>): Commit {
    const commit = this.store.apply(transaction({ holder: namedHolder, type: cds, ...part }));
    this.store.held.notify();
    return commit;
  }
}

/** The constraints under which a may look different to a cohort. */
const changed = (commit: Commit, cohort: Cohort): readonly string[] =>
  [...new Set((commit.cohorts?.[cohort] ?? commit).changed.get(a)?.map(({ key }) => key))].toSorted();

describe('errors of a name that waits', () => {
  it('are told to the others when upstream goes back, whatever their constraints', () => {
    const setting = new Setting();
    setting.puts('2', prod);
    expect(changed(setting.denies(test), 'released')).to.deep.equal([]);
    const back = setting.puts('1', prod);
    expect([...setting.store.held.pending]).to.deep.equal([]);
    expect(changed(back, 'released')).to.deep.equal([prod.key, test.key].toSorted());
    // They have heard of it when it came.
    expect(changed(back, 'canary')).to.deep.equal([prod.key]);
  });

  it('are told to canaries too when what was discarded ends so', () => {
    const setting = new Setting();
    setting.puts('2', prod);
    setting.store.held.discard();
    expect(changed(setting.denies(test), 'canary')).to.deep.equal([]);
    const back = setting.puts('1', prod);
    for (const cohort of ['released', 'canary'] as const)
      expect(changed(back, cohort)).to.deep.equal([prod.key, test.key].toSorted());
  });

  it('tell nobody anything when there are none', () => {
    const setting = new Setting();
    setting.puts('2', prod);
    expect(changed(setting.puts('1', prod), 'released')).to.deep.equal([prod.key]);
  });

  it('are told to the others when a change is discarded and upstream has gone back meanwhile', () => {
    const setting = new Setting();
    setting.puts('2', prod);
    setting.store.held.queueing(() => true);
    setting.denies(test);
    setting.puts('1', prod);
    expect([...setting.store.held.pending].map(({ name, masked }) => [name, masked])).to.deep.equal([
      ['a', undefined],
    ]);
    setting.store.held.discard();
    expect([...setting.store.held.pending]).to.deep.equal([]);
    const [discarded] = setting.published;
    for (const cohort of ['released', 'canary'] as const)
      expect(discarded && changed(discarded, cohort), cohort).to.deep.equal([prod.key, test.key].toSorted());
  });

  it('§8.2 are told to nobody again by a rollback that changes nothing of what a cohort sees', () => {
    const setting = new Setting();
    const { store } = setting;
    const parameters = internParameters([['env', 'test']]);
    store.addInterest({ type: cds, selector: b, parameters });
    for (const name of [a, b]) setting.denies(test, name);
    const heardIn = (cohort: Cohort): readonly number[] =>
      [a, b].flatMap((name) =>
        store.cohorts[cohort].resourceErrors(cds, name, parameters).map(({ revision }) => revision[cohort]),
      );
    const before = heardIn('released');
    expect(before).to.have.length(2);
    // Of b there is nothing but the error.
    store.held.replace(cds, new Map([[a, store.held.contentOf(cds, a, 'released')]]));
    expect([...store.held.pending]).to.deep.equal([]);
    for (const cohort of ['released', 'canary'] as const)
      expect(heardIn(cohort), cohort).to.deep.equal(before);
  });
});
