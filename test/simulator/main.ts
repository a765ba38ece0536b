import { parseArgs } from 'node:util';
import { makePlan, makeSteps, type Plan, type Step, sizeOf } from './schedule.ts';
import { readScenarios, shrink } from './shrink.ts';
import { simulate } from './simulation.ts';
import { Tally } from './tally.ts';
import { rules } from './violation.ts';

const { values } = parseArgs({
  options: {
    seeds: { type: 'string', default: '1000' },
    from: { type: 'string', default: '0' },
    seed: { type: 'string' },
    /** A file with schedules as they are printed here, or of regressions.jsonl, a line each: their transcripts. */
    schedules: { type: 'string' },
    /** Every failing seed in one line, without its transcript. */
    brief: { type: 'boolean', default: false },
    /** A rollout at nearly every relay. */
    waves: { type: 'boolean', default: false },
    /** Freezes, and more that operators do to rollouts. */
    freezes: { type: 'boolean', default: false },
    'until-failure': { type: 'boolean', default: false },
    /** How often each kind of event has occurred. */
    tally: { type: 'boolean', default: false },
  },
});

function report(plan: Plan, steps: readonly Step[]): void {
  const first = simulate(plan, steps);
  if (first.failure === undefined) return;
  console.log(`\nseed ${plan.seed} breaks rule ${first.failure.rule} (${rules[first.failure.rule]}):`);
  if (values.brief) {
    console.log(`  ${first.failure.message.split('\n', 3).join(' ')}`);
    return;
  }
  console.log(`  ${first.failure.message}`);
  const least = shrink(plan, steps, first.failure.rule);
  const { transcript } = simulate(least.plan, least.steps, true);
  console.log(`the shortest schedule that does has ${least.steps.length} of its ${steps.length} steps:`);
  console.log(JSON.stringify(least));
  console.log(transcript.join('\n'));
}

function check(seed: number): boolean {
  const size = sizeOf(seed);
  const plan = makePlan(seed, size, values);
  const steps = makeSteps(plan, size, values);
  const { failure, responses, tally: events } = simulate(plan, steps);
  total += responses;
  tally.add(events);
  if (failure !== undefined) report(plan, steps);
  return failure === undefined;
}

/** The number of schedules that break a rule. */
function replay(file: string): number {
  const failures = readScenarios(file).filter(({ name, plan, steps }) => {
    const { failure, transcript } = simulate(plan, steps, true);
    const what = failure === undefined ? 'breaks no rule' : `breaks rule ${failure.rule}: ${failure.message}`;
    console.log([name ?? `seed ${plan.seed}`, ...transcript, what, ''].join('\n'));
    return failure !== undefined;
  });
  return failures.length;
}

if (values.schedules !== undefined) process.exit(replay(values.schedules) > 0 ? 1 : 0);

let total = 0;
const tally = new Tally();
const from = Number(values.seed ?? values.from);
const count = values.seed === undefined ? Number(values.seeds) : 1;
const startedAt = performance.now();
let saidAt = startedAt;
let failed = 0;
for (let seed = from; seed < from + count; seed++) {
  if (!check(seed)) {
    failed++;
    if (!values.brief || values['until-failure']) break;
  }
  const now = performance.now();
  if (now - saidAt > 2000 || seed === from + count - 1) {
    saidAt = now;
    const done = seed - from + 1;
    const rate = (done / ((now - startedAt) / 1000)).toFixed(1);
    console.log(`${done} of ${count} seeds, ${rate} seeds/s, ${total} responses checked, ${failed} failed`);
  }
}
if (values.tally) {
  for (const [event, times] of [...tally.counts].toSorted(([, a], [, b]) => b - a)) {
    console.log(`${String(times).padStart(8)} ${event}`);
  }
}
process.exitCode = failed > 0 ? 1 : 0;
