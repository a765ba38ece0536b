import { readFileSync } from 'node:fs';

/**
 * Milliseconds of a processor that the main threads of the relay's processes had since they began, of each. From the
 * kernel (Linux); elsewhere, or of a relay on another machine, nothing. What others have to wait for because of an attack
 * is work of a main thread; what else they wait for is the machine's doing.
 */
export function processorTimes(pids: readonly number[] = []): readonly number[] {
  return pids.map((pid) => {
    try {
      const [used = ''] = readFileSync(`/proc/${pid}/schedstat`, 'utf8').split(' ');
      return Number(used) / 1e6;
    } catch {
      return Number.NaN;
    }
  });
}

/** Of what was waited for, the part that the relay is to blame for: at most what one of its main threads worked. */
export function blamed(waited: number, before: readonly number[], after: readonly number[]): number {
  const worked = after.map((used, at) => used - (before[at] ?? Number.NaN)).filter(Number.isFinite);
  return worked.length === 0 ? waited : Math.min(waited, Math.max(...worked));
}
