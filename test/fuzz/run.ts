import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { slower, slowness } from '../support/cpu.ts';
import { Random } from '../support/random.ts';
import { mutate } from './mutation.ts';
import type { Subject, Trial } from './subject.ts';

/** A finding: which input, and what it did. `input` is base64, for findings.jsonl. */
export interface Finding {
  readonly subject: string;
  readonly seed: number;
  readonly input: string;
  readonly problem: string;
}

/** CPU time that one input may take, in milliseconds: the event loop is blocked for as long. */
const longestMilliseconds = 200;
/** So many inputs share one trial; then it is looked at what they have left. */
const casesPerTrial = 2000;
/** What a trial may keep when its peers are gone, in bytes. */
const mostKept = 2 ** 20;
/** More of them say no more. */
const mostFindings = 10;

// As Node has it: mocha keeps stacks whole, and thousands of errors deep in a parser cost ten times as much.
Error.stackTraceLimit = 10;
setFlagsFromString('--expose-gc');
const gc: unknown = runInNewContext('gc');
/** Collects garbage at once. */
function collect(): void {
  if (typeof gc !== 'function') throw new Error('V8 gives no gc()');
  Reflect.apply(gc, undefined, []);
}

/** Tries `count` mutations, or as many as there is time for, beginning with the seed. */
export async function fuzz(
  subject: Subject,
  seed: number,
  count: number,
  goesOn: (done: number) => boolean = () => true,
): Promise<{ readonly done: number; readonly findings: readonly Finding[] }> {
  const findings: Finding[] = [];
  let done = 0;
  // What is loaded on first use is no input's fault.
  for (const input of subject.corpus) problemAlone(subject, input);
  while (done < count && findings.length < mostFindings && goesOn(done)) {
    const from = seed + done;
    const cases = Math.min(subject.casesPerTrial ?? casesPerTrial, count - done);
    findings.push(...(await tryMany(subject, from, cases)));
    done += cases;
  }
  return { done, findings };
}

const inputOf = ({ corpus, longest }: Subject, seed: number): Buffer =>
  mutate(corpus, new Random(seed)).subarray(0, longest);

/** What is wrong with how the subject takes this input, by itself; undefined: nothing. */
export function tryOne(subject: Subject, input: Buffer): string | undefined {
  return problemAlone(subject, input)?.text;
}

async function tryMany(subject: Subject, from: number, cases: number): Promise<Finding[]> {
  const findings: Finding[] = [];
  let trial = opened(subject);
  const before = await kept(trial);
  for (let seed = from; seed < from + cases; seed++) {
    const input = inputOf(subject, seed);
    const problem = problemOf(trial, input);
    if (problem === undefined) continue;
    const alone = problemAlone(subject, input);
    // A collection of garbage or the compiler may fall into any call: what is slow is slow again.
    if (problem.slow && alone === undefined) continue;
    const text = alone?.text ?? `only after others since seed ${from}: ${problem.text}`;
    findings.push({ subject: subject.name, seed, input: input.toString('base64'), problem: text });
    if (findings.length >= mostFindings) break;
    trial.close?.();
    trial = opened(subject);
  }
  const growth = (await kept(trial)) - before;
  trial.close?.();
  if (findings.length === 0 && growth > mostKept && (await keepsAgain(subject, from, cases))) {
    const problem = `${growth} bytes are kept after seeds ${from} to ${from + cases - 1}`;
    findings.push({ subject: subject.name, seed: from, input: '', problem });
  }
  return findings;
}

/** What begins with a conversation has had it: each input meets the same state. */
function opened(subject: Subject): Trial {
  const trial = subject.open();
  trial.settle?.();
  return trial;
}

/** The first run of code, and what it compiles, is no leak: what a second run adds is. */
async function keepsAgain(subject: Subject, from: number, cases: number): Promise<boolean> {
  const trial = subject.open();
  const before = await kept(trial);
  for (let seed = from; seed < from + cases; seed++) problemOf(trial, inputOf(subject, seed));
  const growth = (await kept(trial)) - before;
  trial.close?.();
  return growth > mostKept;
}

async function kept(trial: Trial): Promise<number> {
  trial.settle?.();
  // Weak references and the memory behind buffers go some turns of the event loop after what held them.
  for (let turn = 0; turn < 3; turn++) {
    collect();
    await new Promise((resolve) => setImmediate(resolve));
  }
  const { heapUsed, arrayBuffers } = process.memoryUsage();
  return heapUsed + arrayBuffers;
}

interface Problem {
  readonly slow: boolean;
  readonly text: string;
}

/** So often an input must be slow by itself: on a busy machine anything is, for a while. */
const slowTimes = 3;

/** On a trial of its own. */
function problemAlone(subject: Subject, input: Buffer): Problem | undefined {
  let problem: Problem | undefined;
  for (let time = 0; time < slowTimes; time++) {
    const trial = opened(subject);
    problem = problemOf(trial, input);
    trial.close?.();
    if (problem?.slow !== true) return problem;
  }
  return problem;
}

function problemOf(trial: Trial, input: Buffer): Problem | undefined {
  const before = process.cpuUsage();
  const began = performance.now();
  try {
    trial.take(Buffer.from(input));
  } catch (error) {
    return { slow: false, text: error instanceof Error ? (error.stack ?? error.message) : String(error) };
  }
  if (performance.now() - began <= longestMilliseconds) return undefined; // the system's counters are dear
  const { user, system } = process.cpuUsage(before);
  const milliseconds = Math.round((user + system) / 1000 / slowness() / slower());
  return milliseconds > longestMilliseconds
    ? { slow: true, text: `took ${milliseconds} ms of CPU` }
    : undefined;
}
