import { globSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { root } from './report.ts';

/** `alone`: it measures time or memory, and nothing else may run beside it. */
export type Lane = 'side by side' | 'alone';

/** Test files of one process. */
export interface Job {
  readonly name: string;
  readonly files: readonly string[];
  readonly lane: Lane;
}

/** Files that start processes wait most of the time: side by side. Those of another folder are one job. */
export const waits = /^test\/(attacks|deploy|docs|e2e|fuzz|observability|simulator|tenants|workers)\//;

/**
 * `NAME.test.ts` is for `npm test`, `NAME.more.ts` for `npm run test:more`; `NAME.alone.test.ts` and `NAME.alone.more.ts`
 * run alone. `parts`: only files with one of these in their path; all of them if there is none.
 */
export function jobsOf(extent: 'test' | 'more', parts: readonly string[] = []): readonly Job[] {
  const files = globSync(`test/**/*.${extent}.ts`, { cwd: root })
    .filter((file) => parts.length === 0 || parts.some((part) => file.includes(part)))
    .toSorted();
  const together = files.filter((file) => !isAlone(file));
  const folders = Map.groupBy(
    together.filter((file) => !waits.test(file)),
    folderOf,
  );
  const waiting = together.filter((file) => waits.test(file)).map((file) => [file, [file]] as const);
  return [
    ...files.filter(isAlone).map((file) => ({ name: file, files: [file], lane: 'alone' as const })),
    ...batches(folders, 15_000),
    ...batches(waiting, extent === 'test' ? 90_000 : 0),
  ].toSorted((a, b) => weightOf(b.files) - weightOf(a.files));
}

/** A process costs half a second of CPU before its first test, so that short neighbours share one, up to this weight. */
function batches(units: Iterable<readonly [name: string, files: readonly string[]]>, longest: number): Job[] {
  const all: { names: string[]; files: string[] }[] = [];
  let room = 0;
  for (const [name, files] of units) {
    const size = weightOf(files);
    if (size > room) {
      all.push({ names: [], files: [] });
      room = longest;
    }
    all.at(-1)?.names.push(name);
    all.at(-1)?.files.push(...files);
    room -= size;
  }
  return all.map(({ names, files }) => ({
    name: names.length === 1 ? `${names[0]}` : `${names[0]} and ${names.length - 1} more`,
    files,
    lane: 'side by side',
  }));
}

const isAlone = (file: string): boolean => file.includes('.alone.');
const folderOf = (file: string): string => dirname(file).split('/').slice(0, 2).join('/');

/** Longer files take longer, as a rule: they come first, so that the end does not wait for one. */
const weightOf = (files: readonly string[]): number =>
  files.reduce((sum, file) => sum + patienceFor(file), 0);

/** In bytes of a file that only computes; those go at any time, also while the last ones wait. */
function patienceFor(file: string): number {
  const text = readFileSync(join(root, file), 'utf8');
  if (!waits.test(file)) return text.length / 10;
  // What they do stands elsewhere, in tables, or they wait for real Envoys.
  const isLong =
    /^test\/(attacks|fuzz)\//.test(file) || /support\/(envoy|prometheus|setting)[-\w]*\.ts/.test(text);
  const patience = Math.max(
    0,
    ...Array.from(text.matchAll(/this\.timeout\(([\d_]+)\)/g), ([, ms = '']) =>
      Number(ms.replaceAll('_', '')),
    ),
  );
  return text.length + (isLong ? 10_000 : 0) + patience / 4;
}
