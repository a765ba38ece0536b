import { readFileSync } from 'node:fs';
import { expect } from 'chai';
import fc from 'fast-check';
import { Tally } from '../simulator/tally.ts';
import { type Case, cases } from './arbitrary.ts';
import { run } from './run.ts';

interface Regression {
  /** What holds now, and did not. */
  readonly name: string;
  readonly plan: Case;
}

/** Cases, shrunk, that once went wrong: one JSON document a line. */
const regressions = readFileSync(new URL('regressions.jsonl', import.meta.url), 'utf8')
  .split('\n')
  .filter((line) => line !== '')
  .map((line) => JSON.parse(line) as Regression);

/** About half of how often each happens in the 300 cases: what hardly ever happens is not checked. */
const leastOf: ReadonlyMap<string, number> = new Map(
  Object.entries({
    'message to a sotw client': 130,
    'message to a delta client': 200,
    reload: 150,
    'resource that a subscription shows': 800,
    'resource that the rules hide': 400,
    'resource that trusted parameters hide': 150,
    'resource of other parameters': 200,
    'alias that leads to a resource': 90,
    'alias that leads nowhere': 100,
    'stream refused': 60,
    'stream ended for other rules': 40,
    'rule refused by validation': 4,
    'error told': 4,
  }),
);

const tally = new Tally();

/** `npm run simulate:tenants` goes on from here. */
const seed = 1;

describe('tenants: nobody gets what it may not see, and everybody what it may', () => {
  for (const { name, plan } of regressions) {
    it(name, () => run(plan));
  }

  it(`in 300 random cases (seed ${seed})`, () => {
    fc.assert(
      fc.property(cases, (plan) => run(plan, tally)),
      { seed, numRuns: 300 },
    );
  });

  it('what the rules are about happens in them', () => {
    const rare = [...leastOf].filter(([event, least]) => (tally.counts.get(event) ?? 0) < least);
    expect(rare.map(([event]) => `${event}: ${tally.counts.get(event) ?? 0}`)).to.deep.equal([]);
  });
});
