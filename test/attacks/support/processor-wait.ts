import { readFileSync } from 'node:fs';

/**
 * Milliseconds that the main thread of a process has waited for a processor since it began: another program had it. From
 * the kernel (Linux); elsewhere 0. What a relay waited on a busy machine is not what an attack did to it.
 */
export function processorWait(pid: number): number {
  try {
    const [, waited = '0'] = readFileSync(`/proc/${pid}/schedstat`, 'utf8').split(' ');
    return Number(waited) / 1e6;
  } catch {
    return 0;
  }
}
