import { z } from 'zod';

/** What a process has counted since its start, for the charts of the status page. All of it is plain data. */
const schema = z.object({
  /** Responses handed to clients. */
  responses: z.number(),
  /** ACKs by their delay, as `delayBuckets` has it; the last count is what is above them all. */
  acknowledged: z.array(z.number()),
  streams: z.number(),
  connections: z.number(),
  memoryBytes: z.number(),
  /** Milliseconds in which the event loop was busy, and was not. */
  busyMs: z.number(),
  idleMs: z.number(),
  /** When the certificate of each listener ends, in milliseconds since the epoch. */
  certificates: z.array(z.tuple([z.string(), z.number()])),
});

export type Counters = Readonly<z.infer<typeof schema>>;

/** Throws if it is something else. */
export function readCounters(value: unknown): Counters {
  return schema.parse(value);
}

/** What only this process can say of itself. */
export function processCounters(): Pick<Counters, 'memoryBytes' | 'busyMs' | 'idleMs'> {
  const { active, idle } = performance.eventLoopUtilization();
  return { memoryBytes: process.memoryUsage.rss(), busyMs: active, idleMs: idle };
}
