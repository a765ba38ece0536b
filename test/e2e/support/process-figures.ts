import { readFileSync } from 'node:fs';
import { slowness } from '../../support/cpu.ts';

/**
 * User and system time of a process, from the kernel, in seconds of the machine on which the bounds were set; its clock
 * counts in hundredths.
 */
export function cpuSeconds(pid: number): number {
  const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  return (Number(fields[11]) + Number(fields[12])) / 100 / slowness();
}

/** Bytes of memory that the kernel has given to a process. */
export function residentBytes(pid: number): number {
  const status = readFileSync(`/proc/${pid}/status`, 'utf8');
  return Number(/^VmRSS:\s+(\d+) kB/m.exec(status)?.[1] ?? Number.NaN) * 1024;
}

/** The processes that a process has started, from the kernel (Linux); elsewhere none. */
export function childrenOf(pid: number): readonly number[] {
  try {
    return readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').split(' ').filter(Boolean).map(Number);
  } catch {
    return [];
  }
}
