import { globSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { z } from 'zod';
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

/** What jobs took, in seconds: the longest come first, so that the end does not wait for one. */
const durationsFile = join(import.meta.dirname, 'durations.json');
const durations = z
  .object({ test: z.record(z.string(), z.number()), more: z.record(z.string(), z.number()) })
  .parse(JSON.parse(readFileSync(durationsFile, 'utf8')));

/** It may be long. */
const ofNew = 600;

/** For the next runs. `seconds`: by the names of all jobs of a whole run. */
export function recordDurations(extent: Extent, seconds: ReadonlyMap<string, number>): void {
  const rounded = Array.from(seconds, ([name, took]) => [name, Math.round(took)] as const);
  const sorted = Object.fromEntries(rounded.toSorted(([a], [b]) => (a < b ? -1 : 1)));
  writeFileSync(durationsFile, `${JSON.stringify({ ...durations, [extent]: sorted }, undefined, 2)}\n`);
}

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
  const took = (name: string): number => durations[extent][name] ?? ofNew;
  return [...units]
    .map(([name, files]): Job => ({ name, files, lane: isAlone(name) ? 'alone' : 'side by side' }))
    .toSorted((a, b) => took(b.name) - took(a.name));
}

const isAlone = (file: string): boolean => file.includes('.alone.');
const folderOf = (file: string): string => dirname(file).split('/').slice(0, 2).join('/');
