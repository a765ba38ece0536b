/**
 * `npm run attack:search`: an attacker that looks for what costs the relay most for each byte that it is sent.
 *
 * Doors: the xDS listener (gRPC: SotW, delta, unary, CSDS, health, reflection, load reports), REST, metrics, the admin
 * listener (HTTP and RPCs), all of them with TLS too except metrics, and the first bytes of connections to each
 * (`covered` in search-requests.ts).
 */
import { renameSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { bundleRelay } from '../run/bundle.ts';
import { Random } from '../support/random.ts';
import { covered, nextSequence, type Step, seeds } from './support/search-requests.ts';
import { type Kind, type Outcome, SearchStage, type Spent } from './support/search-stage.ts';

const usage = `usage: npm run attack:search -- [options]

  --minutes N     how long (5; at most 240)
  --seed S        another seed, other sequences (0)
  --count N       at most so many sequences (1000000)
  --report FILE   what was found: relays that ended or stood still, and the ten dearest requests
                  (in the temp directory). It is replaced every minute, and at the end

${covered}
`;

const text = { type: 'string' } as const;
const { values } = parseArgs({
  options: { minutes: text, seed: text, count: text, report: text, help: { type: 'boolean' } },
});
/** So many of the dearest are kept and changed; of findings too, so many are kept. */
const kept = 40;
const reported = 10;
/** What is dear must be so this often: the lowest cost counts. */
const again = 2;
/** In the end, on a new relay. */
const inTheEnd = 4;
/** So many sequences before the relay of the other kind has its turn. */
const turn = 100;
const progressMs = 10_000;
const reportMs = 60_000;

/** What was sent to a relay of this kind. */
interface Sent {
  readonly kind: Kind;
  readonly steps: readonly Step[];
  readonly spent: Spent;
  /** The order of the corpus. */
  readonly score: number;
}

/** What must not happen to a relay. */
interface Finding extends Sent {
  readonly what: string;
  readonly log: string;
  /** How many sequences of this kind did it. */
  readonly times: number;
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

/** The relay, and what a sequence begins with. */
const groupOf = ({ kind, steps: [first] }: Pick<Sent, 'kind' | 'steps'>): string =>
  first === undefined ? kind : `${kind}: ${first.kind} ${first.door} ${first.path}`.trimEnd();

/** Of each group only the dearest stays, so that the corpus does not become ten times the same. */
function admit(corpus: readonly Sent[], found: Sent): readonly Sent[] {
  const same = corpus.find((each) => groupOf(each) === groupOf(found));
  if (same !== undefined && same.score > found.score) return corpus;
  const others = corpus.filter((each) => each !== same);
  return [...others, found].toSorted((a, b) => b.score - a.score).slice(0, kept);
}

const textOf = ({ kind, steps }: Sent): string => {
  const parts = steps.map(({ kind, door, path, times }) => `${times} × ${kind} ${door} ${path}`.trim());
  return `${kind}: ${parts.join(', then ')}`;
};

const rowOf = (sent: Sent): string => {
  const { cpu, stall, held, bytes } = sent.spent;
  const figures = [bytes, cpu.toFixed(1), stall.toFixed(1), (held / 1024).toFixed(0), sent.score.toFixed(1)];
  return `| ${[textOf(sent), ...figures].join(' | ')} |`;
};

const jsonOf = ({ steps }: Sent): string =>
  JSON.stringify(steps.map((step) => ({ ...step, bytes: step.bytes.toString('base64') })));

const head =
  '| request | bytes sent | CPU of the loop, ms | longest stall, ms | memory held, KB | cost for each KB |\n|-|-|-|-|-|-|';

class Search {
  done = 0;
  readonly #seed: number;
  readonly #stage: SearchStage;
  readonly #began = performance.now();
  /** Sequences, by relay and listener. */
  readonly #counts = new Map<string, number>();
  #corpus: readonly Sent[] = [];
  #findings: readonly Finding[] = [];

  constructor(seed: number, stage: SearchStage) {
    this.#seed = seed;
    this.#stage = stage;
  }

  get corpus(): readonly (readonly Step[])[] {
    return this.#corpus.map(({ steps }) => steps);
  }

  async attempt(kind: Kind, steps: readonly Step[]): Promise<void> {
    const outcome = await this.#cost(kind, steps);
    if (outcome === undefined) return;
    this.done++;
    for (const door of new Set(steps.map(({ door }) => `${kind} ${door}`)))
      this.#counts.set(door, (this.#counts.get(door) ?? 0) + 1);
    let { spent } = outcome;
    const dear = this.#corpus[Math.min(reported, this.#corpus.length) - 1]?.score ?? 0;
    // What a busy machine makes dear is not dear twice. What has ended a relay need not do it again.
    for (let time = 0; time < again && scoreOf(spent) > dear / 2; time++) {
      const next = await this.#cost(kind, steps);
      if (next === undefined) return;
      if (scoreOf(next.spent) < scoreOf(spent)) ({ spent } = next);
    }
    this.#corpus = admit(this.#corpus, { kind, steps, spent, score: scoreOf(spent) });
  }

  async #cost(kind: Kind, steps: readonly Step[]): Promise<Outcome | undefined> {
    const outcome = await this.#stage.cost(kind, steps);
    if (outcome?.fault !== undefined) {
      const { spent, fault } = outcome;
      this.#found({ kind, steps, spent, score: scoreOf(spent), ...fault, times: 1 });
    }
    return outcome;
  }

  /** Of each group and fault the first is kept: others may be changes of it. */
  #found(finding: Finding): void {
    const same = this.#findings.find(
      (each) => each.what === finding.what && groupOf(each) === groupOf(finding),
    );
    if (same === undefined) {
      console.log(`the relay ${finding.what}: ${textOf(finding)}`);
      this.#findings = [...this.#findings, finding].slice(0, kept);
      return;
    }
    this.#findings = this.#findings.map((each) =>
      each === same ? { ...same, times: same.times + 1 } : each,
    );
  }

  /** A relay may still be busy with what it was sent before: the ten dearest are measured again by new ones. */
  async confirm(): Promise<void> {
    if (this.done <= reported) return;
    const confirmed: Sent[] = [];
    await this.#stage.renew();
    const byKind = this.#corpus.slice(0, reported).toSorted((a, b) => a.kind.localeCompare(b.kind));
    for (const { kind, steps } of byKind) {
      const all: Spent[] = [];
      for (let time = 0; time < inTheEnd; time++) {
        const outcome = await this.#cost(kind, steps);
        if (outcome === undefined) return;
        all.push(outcome.spent);
      }
      const [spent] = all.toSorted((a, b) => scoreOf(a) - scoreOf(b));
      if (spent !== undefined) confirmed.push({ kind, steps, spent, score: scoreOf(spent) });
    }
    this.#corpus = confirmed.toSorted((a, b) => b.score - a.score);
  }

  progress(): string {
    const [first] = this.#corpus;
    const best = first === undefined ? '' : `${groupOf(first)}: ${first.score.toFixed(1)} for each KB`;
    return `${this.done} sequences, ${this.#findings.length} findings; the dearest: ${best}`;
  }

  summary(): string {
    const { starts, failedStarts, lastFailure } = this.#stage;
    const minutes = ((performance.now() - this.#began) / 60_000).toFixed(1);
    const last = failedStarts === 0 ? '' : `; the last: ${lastFailure.split('\n')[0]}`;
    const counts = Array.from(this.#counts, ([door, count]) => `${door} ${count}`).join(', ');
    const findings = this.#findings.map(
      (finding) => `- ${finding.what}, ${finding.times} times: ${textOf(finding)}`,
    );
    return [
      `${this.done} sequences, seed ${this.#seed}`,
      `${minutes} minutes; ${starts} relays started, ${failedStarts} starts failed${last}`,
      `sequences by listener: ${counts}`,
      `findings: ${findings.length}`,
      ...findings,
      '',
      head,
      ...this.#corpus.slice(0, reported).map(rowOf),
    ].join('\n');
  }

  report(): string {
    const findings = this.#findings.map(
      (finding) =>
        `## The relay ${finding.what}\n\n${head}\n${rowOf(finding)}\n\n${jsonOf(finding)}\n\n\`\`\`\n${finding.log}\n\`\`\`\n`,
    );
    const bodies = this.#corpus.slice(0, reported).map(jsonOf);
    return [
      this.summary(),
      '\nThe same as JSON, bytes in base64:\n',
      ...bodies,
      '\n# Findings\n',
      ...findings,
    ].join('\n');
  }
}

/** Aborted when a signal says so. */
function overBySignal(): AbortSignal {
  const stop = new AbortController();
  for (const name of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.once(name, () => stop.abort());
  // npm passes signals to the shell between, which ends without passing them on.
  const parent = process.ppid;
  const orphaned = (): void => void (process.ppid === parent || stop.abort());
  if (process.env['npm_lifecycle_event'] !== undefined) setInterval(orphaned, 1000).unref();
  return stop.signal;
}

async function search(): Promise<void> {
  const minutes = numberOf('minutes', 5, 240);
  const seed = numberOf('seed', 0, 2 ** 32 - 1);
  const most = numberOf('count', 1_000_000, 1_000_000);
  const path = resolve(
    process.env['INIT_CWD'] ?? '.',
    values.report ?? join(tmpdir(), `distributary-attack-search-${seed}.md`),
  );
  const over = overBySignal();
  const deadline = performance.now() + minutes * 60_000;
  await using stage = new SearchStage(over);
  const search = new Search(seed, stage);
  const write = (): void => {
    writeFileSync(`${path}.new`, search.report());
    renameSync(`${path}.new`, path);
  };
  // What cannot be written is known at once.
  write();
  // However it ends.
  process.once('exit', write);
  setInterval(write, reportMs).unref();
  setInterval(() => console.log(search.progress()), progressMs).unref();

  process.env['TESTS_RELAY'] ??= await bundleRelay();
  const random = new Random(seed);
  const isOver = (): boolean => over.aborted || search.done >= most || performance.now() >= deadline;
  const kinds = ['plain', 'TLS'] as const;
  for (const kind of kinds) for (const step of seeds) if (!isOver()) await search.attempt(kind, [step]);
  for (let round = 0; !isOver(); round++) {
    const kind = kinds[Math.floor(round / turn) % kinds.length] ?? 'plain';
    await search.attempt(kind, nextSequence(search.corpus, random));
  }
  await search.confirm();
  console.log(`${search.summary()}\n\nwritten to ${path}`);
  if (search.done === 0 && stage.failedStarts > 0) process.exitCode = 1;
}

if (values.help === true) console.log(usage);
else {
  await search();
  // Questions to relays that ended still wait for an answer.
  process.exit();
}
