import { globSync, readFileSync, statSync } from 'node:fs';
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
  const waiting = together.filter((file) => waits.test(file));
  const byFolder = Map.groupBy(
    together.filter((file) => !waits.test(file)),
    folderOf,
  );
  return [
    ...files.filter(isAlone).map((file) => ({ name: file, files: [file], lane: 'alone' as const })),
    ...[...byFolder, ...batches(waiting, extent === 'test' ? 3 : 1)].map(([name, of]) => ({
      name,
      files: of,
      lane: 'side by side' as const,
    })),
  ].toSorted((a, b) => weight(b) - weight(a));
}

/** A process costs half a second of CPU before its first test, so that short neighbours share one. */
const longestBatch = 16_000;

function batches(
  files: readonly string[],
  most: number,
): readonly (readonly [name: string, files: readonly string[]])[] {
  const all: string[][] = [];
  let room = 0;
  for (const file of files) {
    const { size } = statSync(join(root, file));
    if (size > room || all.at(-1)?.length === most) {
      all.push([]);
      room = longestBatch;
    }
    all.at(-1)?.push(file);
    room -= size;
  }
  return all.map((of) => [of.length === 1 ? `${of[0]}` : `${of[0]} and ${of.length - 1} more`, of]);
}

const isAlone = (file: string): boolean => file.includes('.alone.');
const folderOf = (file: string): string => dirname(file).split('/').slice(0, 2).join('/');

/** Longer files take longer, as a rule: they come first, so that the end does not wait for one. */
const weight = ({ files }: Job): number => files.reduce((sum, file) => sum + weightOf(file), 0);

/** In bytes of a file that only computes; those go at any time, also while the last ones wait. */
function weightOf(file: string): number {
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
