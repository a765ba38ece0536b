import { mergeScan } from './merge.ts';
import type { FileProblem } from './problem.ts';
import { scanFiles } from './scan.ts';

/** Everything wrong with the files below a path, for `validate`; nothing is watched or kept. */
export async function checkResourceFiles(
  path: string,
  maxConstraintDepth: number,
): Promise<readonly FileProblem[]> {
  const scan = await scanFiles(path, new Map(), {
    maxConstraintDepth,
    now: () => Date.now(),
    visit: () => {},
  });
  if (!scan.ok) return [{ file: path, place: undefined, message: scan.error, types: [] }];
  return mergeScan(scan.value, () => true).problems;
}
