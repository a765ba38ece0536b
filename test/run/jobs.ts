import { globSync, statSync } from 'node:fs';
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

/** Files that start processes wait most of the time, so that each of them is a job. Those of another folder are one. */
export const waits = /^test\/(attacks|deploy|docs|e2e|fuzz|observability|simulator|tenants|workers)\//;

/**
 * `NAME.test.ts` is for `npm test`, `NAME.more.ts` for `npm run test:more`; `NAME.alone.test.ts` and `NAME.alone.more.ts`
 * run alone. `parts`: only files with one of these in their path; all of them if there is none.
 */
export function jobsOf(extent: 'test' | 'more', parts: readonly string[] = []): readonly Job[] {
  const files = globSync(`test/**/*.${extent}.ts`, { cwd: root })
    .filter((file) => parts.length === 0 || parts.some((part) => file.includes(part)))
    .toSorted();
  const byKey = Map.groupBy(files, (file) => (waits.test(file) || isAlone(file) ? file : folderOf(file)));
  return [...byKey]
    .map(([name, of]) => ({
      name,
      files: of,
      lane: isAlone(name) ? ('alone' as const) : ('side by side' as const),
    }))
    .toSorted((a, b) => weight(b) - weight(a));
}

const isAlone = (file: string): boolean => file.includes('.alone.');
const folderOf = (file: string): string => dirname(file).split('/').slice(0, 2).join('/');
/** Longer files take longer, as a rule: they come first, so that the end does not wait for one. */
const weight = ({ files }: Job): number =>
  files.reduce((sum, file) => sum + statSync(join(root, file)).size, 0);
