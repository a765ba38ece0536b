import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { parseArgs } from 'node:util';
import { makePlan, makeSteps, sizeOf } from './schedule.ts';
import { simulate } from './simulation.ts';

/*
 * An earlier version of the relay beside this one: the same schedules, and the same messages at every client and every
 * control plane at the same virtual time. Each version brings its own simulator, so that constructors may change; the
 * schedules are those of this version. A change of the representation keeps every trace; docs/testing.md says which
 * traces changed on purpose.
 */

const { values } = parseArgs({
  options: {
    /** A revision in this repository. */
    base: { type: 'string', default: '9dd5232' },
    seeds: { type: 'string', default: '1000' },
    from: { type: 'string', default: '0' },
    seed: { type: 'string' },
  },
});

const root = new URL('../..', import.meta.url).pathname;

/** Node's stripping of types leaves what is below node_modules alone, so a copy has its own place. */
function checkOut(revision: string, into: string): void {
  const archive = spawnSync(
    'git',
    ['-C', root, 'archive', revision, 'src', 'test', 'proto', 'package.json'],
    {
      maxBuffer: 1 << 30,
    },
  );
  if (archive.status !== 0) throw new Error(archive.stderr.toString());
  const tar = spawnSync('tar', ['-x', '-C', into], { input: archive.stdout });
  if (tar.status !== 0) throw new Error(tar.stderr.toString());
  symlinkSync(join(root, 'node_modules'), join(into, 'node_modules'));
}

/** By virtual time, what was said then: without the log's words, nonces and the order within a moment. */
function said(transcript: readonly string[]): Map<string, string[]> {
  const moments = new Map<string, string[]>();
  for (const line of transcript) {
    const [, at = '', words = ''] = /^ *([\d.]+) {2}(.*)$/s.exec(line) ?? [];
    if (!/[←→]/.test(words)) continue;
    const moment = moments.get(at) ?? [];
    moment.push(
      words.replaceAll(/#\d+/g, '#n').replaceAll(/\[([^\]]*)\]/g, (_, list: string) => sorted(list)),
    );
    moments.set(at, moment);
  }
  return moments;
}

function sorted(list: string): string {
  return `[${list.split(' ').toSorted().join(' ')}]`;
}

/** The first moment at which the two say different things; undefined: there is none. */
function firstDifference(before: readonly string[], after: readonly string[]): string | undefined {
  const [old, now] = [said(before), said(after)];
  const times = [...new Set([...old.keys(), ...now.keys()])].toSorted((a, b) => Number(a) - Number(b));
  for (const at of times) {
    const [left, right] = [bag(old.get(at)), bag(now.get(at))];
    if (left.join('\n') === right.join('\n')) continue;
    const only = (these: string[], those: string[], sign: string) =>
      these.filter((line) => !those.includes(line)).map((line) => `    ${sign} ${line}`);
    return [`at ${at}:`, ...only(left, right, '-'), ...only(right, left, '+')].join('\n');
  }
  return undefined;
}

const bag = (lines: readonly string[] = []): string[] => lines.toSorted();

const copy = mkdtempSync(join(tmpdir(), 'oracle-'));
try {
  checkOut(values.base, copy);
  const url = pathToFileURL(join(copy, 'test/simulator/simulation.ts')).href;
  const earlier = (await import(url)) as { readonly simulate: typeof simulate };
  const from = Number(values.seed ?? values.from);
  const count = values.seed === undefined ? Number(values.seeds) : 1;
  let different = 0;
  let saidAt = performance.now();
  for (let seed = from; seed < from + count; seed++) {
    const plan = makePlan(seed, sizeOf(seed));
    const steps = makeSteps(plan, sizeOf(seed));
    const difference = firstDifference(
      earlier.simulate(plan, steps, true).transcript,
      simulate(plan, steps, true).transcript,
    );
    if (difference !== undefined) {
      different++;
      console.log(`seed ${seed} differs from ${values.base} ${difference}`);
    }
    if (performance.now() - saidAt < 2000 && seed < from + count - 1) continue;
    saidAt = performance.now();
    console.log(`${seed - from + 1} of ${count} seeds, ${different} differ`);
  }
  process.exitCode = different > 0 ? 1 : 0;
} finally {
  rmSync(copy, { recursive: true });
}
