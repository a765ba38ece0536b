import { expect } from 'chai';
import { Store } from '../../src/cache/store.ts';
import { resourceName, revision } from '../../src/model/brand.ts';
import type { Commit } from '../../src/model/catalog.ts';
import { type Constraints, UNCONSTRAINED } from '../../src/model/constraints.ts';
import { internParameters, NO_PARAMETERS, type Parameters } from '../../src/model/parameters.ts';
import { Selection, type SelectionEntry } from '../../src/model/selection.ts';
import { ALLOW_ALL } from '../../src/security/authorization.ts';
import { View } from '../../src/views/view.ts';
import { Watchers } from '../../src/views/view-pool.ts';
import { type } from '../support/in-memory-relay.ts';
import { compiled, is, not } from '../support/variants.ts';
import { VirtualClock } from '../support/virtual-clock.ts';

const cds = type('cds');
const prod = compiled(is('env', 'prod'));
const notProd = compiled(not(is('env', 'prod')));
const inProd = internParameters([['env', 'prod']]);
const inTest = internParameters([['env', 'test']]);
const glob = 'xdstp://x/envoy.config.cluster.v3.Cluster/d/*';
const member = 'xdstp://x/envoy.config.cluster.v3.Cluster/d/a';

const catalog = new Store({
  clock: new VirtualClock(),
  ambiguous: () => undefined,
  expiring: () => undefined,
});

const selected = (selector: string, parameters: Parameters, locator = false): SelectionEntry => ({
  selector: resourceName(selector),
  requestedName: selector,
  locator,
  parameters,
  locatorParameters: undefined,
});
const viewOf = (...entries: SelectionEntry[]): View =>
  new View(catalog, cds, Selection.of(entries), ALLOW_ALL, () => 0);

/** By label, what each view watches. */
const views: ReadonlyMap<string, View> = new Map([
  ['a in prod', viewOf(selected('a', inProd))],
  ['a in test', viewOf(selected('a', inTest))],
  ['a of nobody', viewOf(selected('a', NO_PARAMETERS))],
  ['b in prod', viewOf(selected('b', inProd))],
  ['a twice', viewOf(selected('a', inProd, true), selected('a', inTest, true))],
  ['all in prod', viewOf(selected('*', inProd))],
  ['all in test', viewOf(selected('*', inTest))],
  ['glob in prod', viewOf(selected(glob, inProd))],
]);

const commit = (part: Partial<Commit>): Commit => ({
  revision: revision(1),
  type: cds,
  version: '',
  receivedAt: 0,
  changed: new Map(),
  resolved: [],
  ...part,
});
const changing = (name: string, ...constraints: Constraints[]): Commit =>
  commit({ changed: new Map([[resourceName(name), constraints]]) });
const settling = (selector: string, parameters: Parameters): Commit =>
  commit({ resolved: [{ type: cds, selector: resourceName(selector), parameters }] });

/** Globs are found by their parameters alone: whether a name is a member the view finds out. */
const rows: readonly [what: string, commit: Commit, affected: readonly string[]][] = [
  ['a variant of a for prod', changing('a', prod), ['a in prod', 'a twice', 'all in prod', 'glob in prod']],
  [
    'a variant of a for all but prod',
    changing('a', notProd),
    ['a in test', 'a of nobody', 'a twice', 'all in test'],
  ],
  [
    'an unconstrained a',
    changing('a', UNCONSTRAINED),
    ['a in prod', 'a in test', 'a of nobody', 'a twice', 'all in prod', 'all in test', 'glob in prod'],
  ],
  [
    'a swap of both variants of a',
    changing('a', prod, notProd),
    ['a in prod', 'a in test', 'a of nobody', 'a twice', 'all in prod', 'all in test', 'glob in prod'],
  ],
  ['b for prod', changing('b', prod), ['all in prod', 'b in prod', 'glob in prod']],
  ['a member of the glob for prod', changing(member, prod), ['all in prod', 'glob in prod']],
  ['a name that only wildcards see', changing('z', notProd), ['all in test']],
  ['an answer for a in prod', settling('a', inProd), ['a in prod', 'a twice']],
  ['an answer for the wildcard in prod', settling('*', inProd), ['all in prod']],
  ['an answer for the glob in prod', settling(glob, inProd), ['glob in prod']],
  ['an answer that nobody waits for', settling('q', inProd), []],
];

describe('watchers', () => {
  for (const [what, change, expected] of rows) {
    it(`${what} is seen by ${expected.length === 0 ? 'nobody' : expected.join(', ')}`, () => {
      const watchers = new Watchers();
      for (const view of views.values()) watchers.add(view);
      const affected = watchers.affected(change);
      const labels = [...views].filter(([, view]) => affected.has(view)).map(([label]) => label);
      expect(labels.toSorted()).to.deep.equal(expected);
      for (const { names } of affected.values()) expect(new Set(names).size).to.equal(names.length);
    });
  }
  it('one that is gone is not found', () => {
    const watchers = new Watchers();
    for (const view of views.values()) watchers.add(view);
    for (const view of views.values()) watchers.delete(view);
    for (const [what, change] of rows) expect([...watchers.affected(change)], what).to.deep.equal([]);
  });
  it('a collection hears that its answer has come, a name is told by name', () => {
    const watchers = new Watchers();
    for (const view of views.values()) watchers.add(view);
    const all = views.get('all in prod');
    if (all === undefined) throw new Error();
    expect(watchers.affected(settling('*', inProd)).get(all)).to.deep.equal({
      names: [],
      collectionResolved: true,
    });
    expect(watchers.affected(changing('a', prod)).get(all)).to.deep.equal({
      names: ['a'],
      collectionResolved: false,
    });
  });
  it('a change costs the views that can see it, not all there are', () => {
    const watchers = new Watchers();
    let matched = 0;
    for (let index = 0; index < 1000; index++) {
      const parameters = internParameters([['client', String(index)]]);
      watchers.add(viewOf(selected('a', parameters)));
    }
    const seventh = compiled(is('client', '7'));
    const counting: Constraints = {
      ...seventh,
      matches: (parameters) => {
        matched++;
        return seventh.matches(parameters);
      },
    };
    expect(watchers.affected(changing('a', counting)).size).to.equal(1);
    expect(matched).to.equal(1);
  });
});
