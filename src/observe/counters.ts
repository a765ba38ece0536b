import { monitorEventLoopDelay, performance } from 'node:perf_hooks';
import * as z from 'zod';
import { certificateState } from './certificates.ts';

/** What a process has counted since its start, for the charts of the status page and for problems. All of it is plain data. */
const schema = z.object({
  pid: z.number(),
  /** Responses handed to clients. */
  responses: z.number(),
  /** ACKs by their delay, as `delayBuckets` has it; the last count is what is above them all. */
  acknowledged: z.array(z.number()),
  /** NACKs of clients. */
  rejections: z.number(),
  /** Clients that were refused, by the reason (observe/rejections.ts). */
  turnedAway: z.array(z.tuple([z.string(), z.number()])),
  /** Responses and files that the relay refused, by upstream and type, and why the last one was. */
  refusedUpdates: z.array(z.tuple([z.string(), z.string(), z.number(), z.string()])),
  /** Workers that were started in the place of others. */
  restarts: z.number(),
  streams: z.number(),
  connections: z.number(),
  memoryBytes: z.number(),
  /** Milliseconds in which the event loop was busy, and was not. */
  busyMs: z.number(),
  idleMs: z.number(),
  /** For how long 99 % of events waited at most, since it was asked before. Milliseconds. */
  lagMs: z.number(),
  certificates: z.array(certificateState),
});

export type Counters = Readonly<z.infer<typeof schema>>;

/** Of a process that does not answer its pid. */
export type CountersOrPid = Counters | number;

/** Throws if it is something else. */
export function readCounters(value: unknown): Counters {
  return schema.parse(value);
}

export type OwnCounters = Pick<Counters, 'pid' | 'memoryBytes' | 'busyMs' | 'idleMs' | 'lagMs'>;

/** One that does not keep the process alive. */
const delay = monitorEventLoopDelay({ resolution: 20 });

/** What only this process can say of itself. */
export function processCounters(): OwnCounters {
  const { active, idle } = performance.eventLoopUtilization();
  const lagMs = delay.count === 0 ? 0 : delay.percentile(99) / 1e6;
  delay.enable();
  delay.reset();
  return { pid: process.pid, memoryBytes: process.memoryUsage.rss(), busyMs: active, idleMs: idle, lagMs };
}
