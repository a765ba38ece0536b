import { eventually } from '../../e2e/support/eventually.ts';
import { slowness, slownessNow } from '../../support/cpu.ts';
import { Arena, type Attack } from './attack.ts';
import type { Bystander } from './bystander.ts';
import type { BystanderReport } from './bystander-messages.ts';
import { type Figures, type FiguresOptions, figuresOf } from './figures.ts';
import type { Target } from './target.ts';

const MB = 1024 * 1024;

/** What an attack may cost the others at most. */
export interface Bounds {
  /** Milliseconds of CPU until `Health/Check` answers. */
  readonly health: number;
  /** Milliseconds of CPU until an update is with the well-behaved client. */
  readonly update: number;
  /** Milliseconds that either may take without work of the relay, as by turns or timers. */
  readonly delay: number;
  /** Bytes that may stay. */
  readonly memory: number;
  /** How long after the attack memory and streams must be back, in milliseconds. */
  readonly settle: number;
}

export const usualBounds: Bounds = { health: 200, update: 1000, delay: 2000, memory: 8 * MB, settle: 30_000 };

/** Sockets of the measurement itself come and go. */
const sparedFiles = 4;

export interface Stage extends FiguresOptions {
  readonly target: Target;
  readonly witness: Bystander;
  readonly bounds?: Bounds;
  /** That the relay runs still; else why not. */
  readonly alive?: () => string | undefined;
}

export interface Outcome {
  readonly report: BystanderReport;
  readonly before: Figures;
  readonly after: Figures;
  /** Everything that is wrong; empty: the attack was withstood. */
  readonly problems: readonly string[];
}

/** Runs one attack while others use the relay, and looks at it before and after; `known`: what it was like before. */
export async function runAttack(attack: Attack, stage: Stage, known?: Figures): Promise<Outcome> {
  const { target, witness, bounds = usualBounds } = stage;
  await witness.begin();
  const before = known ?? (await figuresOf(target, stage));
  const reaction = await reactionTo(attack, target);
  const report = await witness.report();
  const after = await settled(before, stage, bounds);
  const dead = stage.alive?.();
  const problems = [
    ...(reaction === undefined ? [] : [reaction]),
    ...(dead === undefined ? [] : [dead]),
    ...failures(report),
    ...remains(before, after, bounds),
    ...delays(report, bounds),
  ];
  return { report, before, after, problems };
}

async function reactionTo(attack: Attack, target: Target): Promise<string | undefined> {
  try {
    await using arena = new Arena(target);
    await attack.run(arena);
    return undefined;
  } catch (error) {
    return `the relay's reaction: ${error instanceof Error ? (error.stack ?? error.message) : String(error)}`;
  }
}

/** What failed for the well-behaved client and the probe. */
function failures({ health, failure }: BystanderReport): string[] {
  const problems = health.failures.map((reason) => `Health/Check failed: ${reason}`);
  if (health.probes === 0) problems.push('Health/Check was not asked');
  if (failure !== undefined) problems.push(`the well-behaved client: ${failure}`);
  return problems;
}

/** What took them too long. */
function delays({ health, updates }: BystanderReport, bounds: Bounds): string[] {
  const problems: string[] = [];
  if (isAbove(health.worst, bounds.health)) {
    problems.push(
      `Health/Check took ${health.worst.toFixed()} ms of CPU, at most ${bounds.health} ms are accepted`,
    );
  }
  if (isAbove(updates.worst, bounds.update)) {
    problems.push(
      `an update took ${updates.worst.toFixed()} ms of CPU, at most ${bounds.update} ms are accepted`,
    );
  }
  for (const [what, { delay }] of [
    ['Health/Check', health],
    ['an update', updates],
  ] as const) {
    if (delay > bounds.delay) {
      problems.push(`${what} took ${delay.toFixed()} ms, at most ${bounds.delay} ms are accepted`);
    }
  }
  return problems;
}

/** Milliseconds of CPU. The machine may have become slower since the process began. */
const isAbove = (worst: number, bound: number): boolean =>
  worst / slowness() > bound && worst / slownessNow() > bound;

/** What the attack has left behind. */
function remains(before: Figures, after: Figures, bounds: Bounds): string[] {
  const problems: string[] = [];
  for (const [name, spared] of [
    ['streams', 0],
    ['connections', 0],
    ['files', sparedFiles],
  ] as const) {
    if (after[name] > before[name] + spared)
      problems.push(`${name}: ${after[name]} are open, ${before[name]} were before`);
  }
  const kept = after.memory - before.memory;
  if (kept > bounds.memory) problems.push(`memory: ${(kept / MB).toFixed(1)} MB are kept`);
  return problems;
}

/** The figures as soon as they are back, else the last ones. */
async function settled(before: Figures, stage: Stage, bounds: Bounds): Promise<Figures> {
  let last = before;
  const check = async (): Promise<Figures> => {
    // What is still open needs no collection of garbage: they are the dearest of a suite.
    last = await figuresOf(stage.target, { memory: () => Promise.resolve(before.memory) });
    if (remains(before, last, bounds).length > 0) throw new Error('not yet');
    last = await figuresOf(stage.target, stage);
    if (remains(before, last, bounds).length > 0) throw new Error('not yet');
    return last;
  };
  try {
    return await eventually(check, { timeout: bounds.settle, pause: 200 });
  } catch {
    return last;
  }
}
