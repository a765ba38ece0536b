/** `npm run attack:search`: an attacker that looks for what costs the relay most for each byte that it is sent. */
import { renameSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { Random } from '../support/random.ts';
import { nextSequence, type Step, seeds } from './support/search-requests.ts';
import { SearchStage, type Spent } from './support/search-stage.ts';

const usage = `usage: npm run attack:search -- [options]

  --minutes N     how long (5; at most 240)
  --seed S        another seed, other sequences (0)
  --count N       at most so many sequences (1000000)
  --report FILE   where the ten dearest requests are written, each minute and at the end (in the temp directory)
`;

const text = { type: 'string' } as const;
const { values } = parseArgs({
  options: { minutes: text, seed: text, count: text, report: text, help: { type: 'boolean' } },
});
/** So many of the dearest are kept and changed. */
const kept = 40;
const reported = 10;
/** What is dear must be so this often: the lowest cost counts. */
const again = 2;
const progressMs = 10_000;
const reportMs = 60_000;

interface Found {
  readonly steps: readonly Step[];
  readonly spent: Spent;
  /** The order of the corpus. */
  readonly score: number;
}

function numberOf(name: 'minutes' | 'seed' | 'count', usual: number, most: number): number {
  const value = Number(values[name] ?? usual);
  if (!(value >= 0 && value <= most)) {
    console.error(`--${name} is ${values[name]}: a number from 0 to ${most} is accepted\n\n${usage}`);
    process.exit(2);
  }
  return value;
}

/** Milliseconds of the loop and of standstill, and what memory is worth in them, for each KB that was sent, or less. */
const scoreOf = ({ cpu, stall, held, bytes }: Spent): number =>
  (cpu + stall + held / (1 << 20)) / (Math.max(bytes, 1024) / 1024);

const cheapest = (list: readonly Spent[]): Spent =>
  list.toSorted((a, b) => scoreOf(a) - scoreOf(b))[0] ?? { cpu: 0, stall: 0, held: 0, bytes: 0 };

/** What a sequence begins with. */
const kindOf = ([first]: readonly Step[]): string =>
  first === undefined ? '' : `${first.kind} ${first.door} ${first.path}`;

/** Of each kind only the dearest stays, so that the corpus does not become ten times the same. */
function admit(corpus: readonly Found[], found: Found): readonly Found[] {
  const others = corpus.filter(
    (each) => kindOf(each.steps) !== kindOf(found.steps) || each.score > found.score,
  );
  const same =
    others.length < corpus.length || !corpus.some((each) => kindOf(each.steps) === kindOf(found.steps));
  return same ? [...others, found].toSorted((a, b) => b.score - a.score).slice(0, kept) : corpus;
}

function reportOf(corpus: readonly Found[], done: number, seed: number, ends: readonly string[]): string {
  const rows = corpus.slice(0, reported).map(({ steps, spent, score }) => {
    const what = steps
      .map(({ kind, door, path, times }) => `${times} × ${kind} ${door} ${path}`.trim())
      .join(', then ');
    const { cpu, stall, held, bytes } = spent;
    return `| ${what} | ${bytes} | ${cpu.toFixed(1)} | ${stall.toFixed(1)} | ${(held / 1024).toFixed(0)} | ${score.toFixed(1)} |`;
  });
  const head =
    '| request | bytes sent | CPU of the loop, ms | longest stall, ms | memory held, KB | cost for each KB |';
  const bodies = corpus
    .slice(0, reported)
    .map(({ steps }) =>
      JSON.stringify(steps.map((step) => ({ ...step, bytes: step.bytes.toString('base64') }))),
    );
  const ended = ends.length === 0 ? '' : `\n${ends.join('\n\n')}\n`;
  return `${done} sequences, seed ${seed}\n\n${head}\n|-|-|-|-|-|-|\n${rows.join('\n')}\n\nThe same as JSON, bytes in base64:\n\n${bodies.join('\n')}\n${ended}`;
}

async function search(): Promise<void> {
  const until = performance.now() + numberOf('minutes', 5, 240) * 60_000;
  const seed = numberOf('seed', 0, 2 ** 32 - 1);
  const most = numberOf('count', 1_000_000, 1_000_000);
  const path = resolve(
    process.env['INIT_CWD'] ?? '.',
    values.report ?? join(tmpdir(), `distributary-attack-search-${seed}.md`),
  );
  const random = new Random(seed);
  let corpus: readonly Found[] = [];
  let done = 0;
  let said = performance.now();
  let written = said;
  let isInterrupted = false;
  for (const signal of ['SIGINT', 'SIGTERM']) process.once(signal, () => (isInterrupted = true));
  await using stage = await SearchStage.start();
  const dear = (): number => corpus[Math.min(reported, corpus.length) - 1]?.score ?? 0;
  const write = (): string => {
    const report = reportOf(corpus, done, seed, stage.ends);
    writeFileSync(`${path}.new`, report);
    renameSync(`${path}.new`, path);
    written = performance.now();
    return report;
  };
  const attempt = async (steps: readonly Step[]): Promise<void> => {
    done++;
    let spent = await stage.cost(steps);
    // What a busy machine makes dear is not dear twice.
    for (let time = 0; time < again && scoreOf(spent) > dear() / 2; time++)
      spent = cheapest([spent, await stage.cost(steps)]);
    corpus = admit(corpus, { steps, spent, score: scoreOf(spent) });
    if (performance.now() - written > reportMs) write();
    if (performance.now() - said < progressMs) return;
    said = performance.now();
    const [first] = corpus;
    const best = first === undefined ? '' : `${kindOf(first.steps)}: ${first.score.toFixed(1)} for each KB`;
    console.log(`${done} sequences, ${stage.restarts} restarts; the dearest: ${best}`);
  };
  const isOver = (): boolean => isInterrupted || performance.now() >= until || done >= most;
  try {
    for (const step of seeds) if (!isOver()) await attempt([step]);
    while (!isOver()) {
      const known = corpus.map(({ steps }) => steps);
      await attempt(nextSequence(known, random));
    }
  } finally {
    console.log(`${write()}\nwritten to ${path}`);
  }
}

if (values.help === true) console.log(usage);
else await search();
