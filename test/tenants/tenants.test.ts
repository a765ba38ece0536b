import { readFileSync } from 'node:fs';
import fc from 'fast-check';
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

/** `npm run simulate:tenants` goes on from here. */
const seed = 1;

describe('tenants: nobody gets what it may not see, and everybody what it may', () => {
  for (const { name, plan } of regressions) {
    it(name, () => run(plan));
  }

  it(`in 300 random cases (seed ${seed})`, function () {
    this.timeout(120_000);
    fc.assert(fc.property(cases, run), { seed, numRuns: 300 });
  });
});
