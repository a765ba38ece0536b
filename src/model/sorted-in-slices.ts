import type { Pace } from './time-slices.ts';

/** So many are sorted at once. */
const runLength = 2048;

type Compare<T> = (a: T, b: T) => number;

/** A sorted copy of a list of any length: a merge sort that makes pauses. */
export async function sortedInSlices<T>(
  list: readonly T[],
  compare: Compare<T>,
  pace: Pace,
): Promise<readonly T[]> {
  let runs: (readonly T[])[] = [];
  for (let at = 0; at < list.length; at += runLength) {
    await pace.yieldIfDue();
    runs.push(list.slice(at, at + runLength).toSorted(compare));
  }
  while (runs.length > 1) {
    const merged: (readonly T[])[] = [];
    for (let at = 0; at < runs.length; at += 2) {
      merged.push(await mergedInSlices(runs[at] ?? [], runs[at + 1] ?? [], compare, pace));
    }
    runs = merged;
  }
  return runs[0] ?? [];
}

async function mergedInSlices<T>(
  a: readonly T[],
  b: readonly T[],
  compare: Compare<T>,
  pace: Pace,
): Promise<readonly T[]> {
  const merged: T[] = [];
  const rest = b[Symbol.iterator]();
  let next = rest.next();
  for (const one of a) {
    while (next.done !== true && compare(next.value, one) < 0) {
      merged.push(next.value);
      next = rest.next();
      if (merged.length % runLength === 0) await pace.yieldIfDue();
    }
    merged.push(one);
    if (merged.length % runLength === 0) await pace.yieldIfDue();
  }
  for (; next.done !== true; next = rest.next()) {
    merged.push(next.value);
    if (merged.length % runLength === 0) await pace.yieldIfDue();
  }
  return merged;
}
