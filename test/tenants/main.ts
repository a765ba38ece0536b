import { parseArgs } from 'node:util';
import fc from 'fast-check';
import { Tally } from '../simulator/tally.ts';
import { cases } from './arbitrary.ts';
import { run } from './run.ts';

const { values } = parseArgs({
  options: {
    cases: { type: 'string', default: '100000' },
    seed: { type: 'string', default: '1' },
    /** Of a failure: together with the seed it leads to the shrunk case. */
    path: { type: 'string' },
    /** A failure as it comes, not shrunk. */
    brief: { type: 'boolean', default: false },
    /** How often what has happened. */
    tally: { type: 'boolean', default: false },
  },
});

/** So many under one seed: it is said how far it is. */
const batch = values.path === undefined ? 500 : 1;
const total = Number(values.cases);
const startedAt = performance.now();
let done = 0;
const tally = new Tally();
for (let seed = Number(values.seed); done < total; seed++) {
  const numRuns = Math.min(batch, total - done);
  const result = fc.check(
    fc.property(cases, (plan) => run(plan, tally)),
    {
      seed,
      numRuns,
      endOnFailure: values.brief,
      ...(values.path === undefined ? {} : { path: values.path }),
    },
  );
  done += result.numRuns;
  if (result.failed) {
    const error = result.errorInstance instanceof Error ? result.errorInstance.stack : '';
    console.log(
      `failed after ${done} cases: npm run simulate:tenants -- --seed ${seed} --path ${result.counterexamplePath}`,
    );
    console.log(JSON.stringify(result.counterexample?.[0], undefined, 1));
    console.log(error);
    process.exitCode = 1;
    break;
  }
  const seconds = (performance.now() - startedAt) / 1000;
  if (done % (batch * 10) === 0 || done === total)
    console.log(
      `${done} of ${total} cases, seeds from ${values.seed}, ${(done / seconds).toFixed(1)} cases/s`,
    );
}
if (values.tally) {
  for (const [event, times] of [...tally.counts].toSorted(([, a], [, b]) => b - a)) {
    console.log(`${String(times).padStart(9)} ${event}`);
  }
}
