import { join } from 'node:path';
import { z } from 'zod';

export const root = join(import.meta.dirname, '../..');

/** What a process of mocha is asked for. */
export const orderSchema = z.object({
  files: z.array(z.string()),
  /** What has been prepared for the tests since the process began. */
  env: z.record(z.string(), z.string()),
});
export type Order = z.infer<typeof orderSchema>;

/** What it says after that. */
export const reportSchema = z.object({
  passed: z.number(),
  failures: z.array(z.object({ title: z.string(), file: z.string() })),
  /** Titles of what was left out. */
  skipped: z.array(z.string()),
  /** What they need and this machine does not have, and what brings it. */
  missing: z.array(z.string()),
  /** What keeps the process alive longer than it should, as Node names it. */
  stillOpen: z.array(z.string()),
  /** Of the process and of all that it has started, since it said so last; undefined where the system does not say it. */
  cpuSeconds: z.number().optional(),
});
export type Report = z.infer<typeof reportSchema>;

/** In this process. */
export const missing = new Set<string>();
