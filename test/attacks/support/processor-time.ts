import { readFileSync } from 'node:fs';

/** Milliseconds that a thread has had a processor, and that it has waited for one, since it began. */
export interface ProcessorTime {
  readonly worked: number;
  readonly waited: number;
}

/** Of the calling thread, and of the main threads of a relay's processes. From the kernel (Linux); elsewhere nothing is known. */
export interface ProcessorTimes {
  readonly own: ProcessorTime | undefined;
  readonly relay: readonly (ProcessorTime | undefined)[];
}

export const processorTimes = (pids: readonly number[] = []): ProcessorTimes => ({
  own: timeOf('thread-self'),
  relay: pids.map((pid) => timeOf(`${pid}`)),
});

function timeOf(thread: string): ProcessorTime | undefined {
  try {
    const [worked, waited] = readFileSync(`/proc/${thread}/schedstat`, 'utf8').split(' ');
    return { worked: Number(worked) / 1e6, waited: Number(waited) / 1e6 };
  } catch {
    return undefined;
  }
}

/** What somebody had to wait for, in milliseconds. */
export interface Blame {
  /** At most what one of the relay's main threads worked meanwhile: what blocks its loop is work. */
  readonly work: number;
  /** Without what threads waited for a processor, which is the machine's doing. */
  readonly delay: number;
}

export function blame(latency: number, before: ProcessorTimes, after: ProcessorTimes): Blame {
  const since = (what: keyof ProcessorTime): readonly number[] =>
    after.relay.map((now, at) => (now?.[what] ?? Number.NaN) - (before.relay[at]?.[what] ?? Number.NaN));
  const worked = since('worked').filter(Number.isFinite);
  const waited = since('waited').filter(Number.isFinite);
  const own = (after.own?.waited ?? 0) - (before.own?.waited ?? 0);
  return {
    work: worked.length === 0 ? latency : Math.min(latency, Math.max(...worked)),
    delay: Math.max(0, latency - own - Math.max(0, ...waited)),
  };
}
