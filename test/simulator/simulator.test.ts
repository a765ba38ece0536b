import { readFileSync } from 'node:fs';
import { expect } from 'chai';
import { makePlan, makeSteps, sizeOf } from './schedule.ts';
import type { Scenario } from './shrink.ts';
import { simulate } from './simulation.ts';

interface Regression extends Scenario {
  /** What holds now, and did not. */
  readonly name: string;
}

/** Schedules, shrunk, that once broke a rule: one JSON document a line. */
const regressions = readFileSync(new URL('regressions.jsonl', import.meta.url), 'utf8')
  .split('\n')
  .filter((line) => line !== '')
  .map((line) => JSON.parse(line) as Regression);

describe('the simulator', () => {
  for (const { name, plan, steps } of regressions) {
    it(name, () => {
      expect(simulate(plan, steps).failure).to.equal(undefined);
    });
  }

  it('the six rules hold in 200 random schedules', function () {
    this.timeout(60_000);
    let responses = 0;
    for (let seed = 0; seed < 200; seed++) {
      const size = sizeOf(seed);
      const plan = makePlan(seed, size);
      const outcome = simulate(plan, makeSteps(plan, size));
      expect(outcome.failure, `seed ${seed}: npm run simulate -- --seed ${seed}`).to.equal(undefined);
      responses += outcome.responses;
    }
    expect(responses, 'something was checked').to.be.above(5000);
  });

  it('a seed gives the same run, to the millisecond and the byte', () => {
    const run = (): string[] => {
      const size = sizeOf(9);
      const plan = makePlan(9, size);
      // Nonces are unique in the process.
      return simulate(plan, makeSteps(plan, size), true).transcript.map((line) => line.replace(/#\d+/, '#'));
    };
    expect(run()).to.deep.equal(run());
  });
});
