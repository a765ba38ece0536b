import { globSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { root } from './report.ts';

/** `alone`: it measures time or memory, and nothing else may run beside it. */
type Lane = 'side by side' | 'alone';

/** Test files that run together. */
export interface Job {
  readonly name: string;
  readonly files: readonly string[];
  readonly lane: Lane;
}

/** Files that start processes wait most of the time: each is a job. Those of another folder are one job together. */
export const waits =
  /^test\/(attacks|cache\/persistence|deploy|docs|e2e|fuzz|observability|simulator|tenants|workers)\//;

/** `test`: for `npm test`; `more`: for `npm run test:more`. */
export type Extent = 'test' | 'more';

/** Files with tables of which `npm test` takes the first case (test/support/cases.ts). */
const hasMoreCases = (file: string): boolean =>
  readFileSync(join(root, file), 'utf8').includes("/support/cases.ts'");

/**
 * `NAME.test.ts` is for `npm test`, `NAME.more.ts` for `npm run test:more`, which also has the other cases of the first;
 * `NAME.alone.test.ts` and `NAME.alone.more.ts` run alone. `parts`: only files with one of these in their path; all of
 * them if there is none.
 */
export function jobsOf(extent: Extent, parts: readonly string[] = []): readonly Job[] {
  const tests = globSync('test/**/*.test.ts', { cwd: root });
  const all =
    extent === 'test'
      ? tests
      : [...globSync('test/**/*.more.ts', { cwd: root }), ...tests.filter(hasMoreCases)];
  const files = all
    .filter((file) => parts.length === 0 || parts.some((part) => file.includes(part)))
    .toSorted();
  const units = Map.groupBy(files, (file) => (isAlone(file) || waits.test(file) ? file : folderOf(file)));
  return [...units]
    .map(([name, files]): Job => ({ name, files, lane: isAlone(name) ? 'alone' : 'side by side' }))
    .toSorted((a, b) => weightOf(b.files) - weightOf(a.files));
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
  return text.length + (isLong ? 25_000 : 0) + patience / 4;
}
