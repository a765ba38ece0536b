import { monitorEventLoopDelay, performance } from 'node:perf_hooks';
import type { Metrics } from './metrics.ts';

/**
 * What a process has counted since its start, for the charts of the status page and for problems. All of it is plain data,
 * for another process too.
 */
export type Counters = Readonly<ReturnType<Metrics['counted']> & ReturnType<typeof processCounters>> & {
  readonly streams: number;
  readonly connections: number;
};

/** Of a process that does not answer its pid. */
export type CountersOrPid = Counters | number;

/** One that does not keep the process alive. */
const delay = monitorEventLoopDelay({ resolution: 20 });

/** What only this process can say of itself. */
export function processCounters() {
  const { active, idle } = performance.eventLoopUtilization();
  const lagMs = delay.count === 0 ? 0 : delay.percentile(99) / 1e6;
  delay.enable();
  delay.reset();
  return {
    pid: process.pid,
    memoryBytes: process.memoryUsage.rss(),
    /** Milliseconds in which the event loop was busy, and was not. */
    busyMs: active,
    idleMs: idle,
    /** For how long 99 % of events waited at most, since it was asked before. Milliseconds. */
    lagMs,
  };
}
