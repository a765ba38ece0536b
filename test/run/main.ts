/** `npm test`: all test files, in a few processes. What only waits runs side by side, what measures runs alone. */
import { availableParallelism } from 'node:os';
import { parseArgs } from 'node:util';
import '../support/compile-cache.ts';
import { slowness } from '../support/cpu.ts';
import { type Job, jobsOf, recordDurations } from './jobs.ts';
import { compete } from './load.ts';
import { needsPrograms, prepare } from './prepare.ts';
import { MochaProcess, type Outcome } from './run-job.ts';

const usage = `usage: npm test [-- [options] [PART_OF_A_PATH...]]

  --jobs N     so many processes side by side (four for each core, three on a slow machine)
  --more       what takes longer, instead: npm run test:more
  --load       beside twice as many busy loops as there are cores
  --record     keeps what the files took, so that the next runs begin with the longest: for a quiet machine
  --verbose    prints what passes, too

Without a part of a path all files run.
`;

const options = {
  jobs: { type: 'string' },
  more: { type: 'boolean' },
  load: { type: 'boolean' },
  record: { type: 'boolean' },
  verbose: { type: 'boolean' },
  help: { type: 'boolean' },
} as const;
const { values, positionals } = parseArgs({ options, allowPositionals: true });
// What starts beside too many others is not there in time. With fewer than three for each core the cores wait.
const perCore = Math.max(3, 4 / slowness());
const most = Number(values.jobs ?? Math.round(perCore * availableParallelism()));
if (values.help === true || !(most >= 1)) {
  console.log(usage);
  process.exit(values.help === true ? 0 : 2);
}

const began = performance.now();
const extent = values.more === true ? 'more' : 'test';
process.env['TESTS_EXTENT'] = extent;
const jobs = jobsOf(extent, positionals);
const files = jobs.reduce((sum, job) => sum + job.files.length, 0);
if (files === 0) {
  console.error(`no test file has ${positionals.join(' or ')} in its path`);
  process.exit(2);
}
const outcomes: Outcome[] = [];
const badEnds: (number | string)[] = [];
let done = 0;

const clock = (): string => {
  const seconds = Math.round((performance.now() - began) / 1000);
  return `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, '0')}`;
};

/** What only computes runs meanwhile. */
const preparing = jobs.some(needsPrograms) ? prepare() : Promise.resolve({});
let isPrepared = false;
void preparing.finally(() => {
  isPrepared = true;
});

/** The next of the queue: while programs are fetched and built, one that needs none, if there is one. */
function take(queue: Job[]): Job | undefined {
  const at = isPrepared ? 0 : queue.findIndex((job) => !needsPrograms(job));
  return queue.splice(Math.max(0, at), 1)[0];
}

async function runOne(job: Job, mocha: MochaProcess): Promise<void> {
  const outcome = await mocha.run(job, needsPrograms(job) ? await preparing : {});
  outcomes.push(outcome);
  done += job.files.length;
  const { passed, failed, skipped, seconds, cpuSeconds } = outcome;
  const rest = [
    failed > 0 ? `${failed} FAILED` : '',
    skipped.length > 0 ? `${skipped.length} skipped` : '',
  ].filter((text) => text !== '');
  const cpu = cpuSeconds === undefined ? '' : `, ${cpuSeconds.toFixed(0)} s of CPU`;
  const took = `${seconds.toFixed(0)} s${cpu}`;
  const counts = [`${passed} passed`, ...rest].join(', ');
  console.log(`[${done}/${files} ${clock()}] ${job.name}: ${counts} (${took})`);
  if (outcome.failed > 0 || values.verbose === true) console.log(outcome.output);
}

/** A process that does not end as it should after its last job is a failure, and no reason to lose the others' results. */
async function end(mocha: MochaProcess): Promise<void> {
  const how = await mocha.end();
  if (how !== 0) badEnds.push(how);
}

/** In so many processes, each of which takes the next job when one has ended. */
async function runSideBySide(): Promise<void> {
  const queue = jobs.filter(({ lane }) => lane === 'side by side');
  await Promise.all(
    Array.from({ length: Math.min(most, queue.length) }, async () => {
      const mocha = new MochaProcess();
      for (let job = take(queue); job !== undefined; job = take(queue)) await runOne(job, mocha);
      await end(mocha);
    }),
  );
}

async function runAlone(): Promise<void> {
  for (const job of jobs.filter(({ lane }) => lane === 'alone')) {
    const mocha = new MochaProcess();
    await runOne(job, mocha);
    await end(mocha);
  }
}

{
  using _load = values.load === true ? compete(2 * availableParallelism()) : undefined;
  await runSideBySide();
  await runAlone();
}

if (values.record === true && positionals.length === 0)
  recordDurations(extent, new Map(outcomes.map(({ job, seconds }) => [job.name, seconds])));

const sum = (count: (outcome: Outcome) => number): number =>
  outcomes.reduce((total, outcome) => total + count(outcome), 0);
const failed = outcomes.filter((outcome) => outcome.failed > 0);
for (const why of new Set(outcomes.flatMap(({ missing }) => missing))) console.log(`\nleft out: ${why}`);
for (const { failures } of failed) {
  for (const { title, file } of failures) {
    console.log(`\nFAILED ${title}\n  again, alone: npx mocha ${file} -g ${JSON.stringify(title)}`);
  }
}
console.log(
  `\n${sum(({ passed }) => passed)} passed, ${sum((outcome) => outcome.failed)} failed, ` +
    `${sum(({ skipped }) => skipped.length)} skipped, in ${clock()}`,
);
for (const how of badEnds) console.log(`FAILED a process of tests ended with ${how} after its last job`);
process.exitCode = failed.length + badEnds.length > 0 ? 1 : 0;
