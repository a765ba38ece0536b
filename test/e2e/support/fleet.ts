import { join } from 'node:path';
import { z } from 'zod';
import { ok, type Result } from '../../../src/model/result.ts';
import { goBinary } from './go.ts';
import { root } from './paths.ts';
import { outcome, Process } from './process.ts';
import type { RelayProcess } from './relay.ts';

/** The benchmark's load generator and its control plane: cheap enough for a thousand streams that are busy. */
export interface FleetPrograms {
  readonly loadgen: string;
  readonly plane: string;
}

export async function fleetPrograms(): Promise<Result<FleetPrograms>> {
  const module = join(root, 'bench');
  const [loadgen, plane] = [await goBinary('loadgen', module), await goBinary('plane', module)];
  if (!loadgen.ok) return loadgen;
  return plane.ok ? ok({ loadgen: loadgen.value, plane: plane.value }) : plane;
}

/** 36 KB of clusters, as the load generator and the control plane know them: in each update one of them changes. */
const payload = ['-type', 'cds', '-nres', '100', '-size', '360'];

/** The benchmark's control plane, which changes one resource when the load generator says so. */
export class FleetPlane implements AsyncDisposable {
  readonly address: string;
  readonly control: string;
  readonly #process: Process;

  private constructor(child: Process, address: string, control: string) {
    this.#process = child;
    this.address = address;
    this.control = control;
  }

  static async start({ plane }: FleetPrograms): Promise<FleetPlane> {
    const child = new Process({ command: plane, args: payload });
    const xds = await child.line(/^listening xds (\S+)/);
    const control = await child.line(/^listening control (\S+)/);
    return new FleetPlane(child, xds[1] ?? '', control[1] ?? '');
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#process.stop();
  }
}

export interface FleetOptions {
  readonly streams: number;
  /** The fraction of them that stops reading after the first state, until the end. */
  readonly stalled: number;
  readonly updates: number;
  /** Between two updates, in milliseconds. */
  readonly pace: number;
  /** HTTP/2 windows of each, in bytes. */
  readonly window: number;
}

const report = z.object({
  streams_with_every_update: z.number(),
  superseded_for_reading: z.number(),
  most_responses_after_stall: z.number(),
  cpu_us_per_update: z.number(),
  superseded: z.number(),
  p50_ms: z.number(),
  p99_ms: z.number(),
  last_ms: z.number(),
  checks: z.object({
    out_of_order: z.number(),
    incomplete: z.number(),
    wrong_bytes: z.number(),
    unfinished: z.number(),
    late: z.number(),
    broken: z.number(),
    unacked: z.number(),
    duplicates: z.number(),
    first_errors: z.array(z.string()).default([]),
  }),
});
export type FleetReport = z.infer<typeof report>;

/** So many clients of these relays in turn, and updates for them; all have ended when this resolves. CPU: of the first. */
export async function runFleet(
  { loadgen }: FleetPrograms,
  plane: FleetPlane,
  relays: readonly RelayProcess[],
  { streams, stalled, updates, pace, window }: FleetOptions,
): Promise<FleetReport> {
  const options = {
    addr: relays.map(({ xds }) => xds).join(','),
    control: plane.control,
    pid: relays[0]?.pid ?? 0,
    n: streams,
    slow: stalled,
    warm: 0,
    updates,
    pace: `${pace}ms`,
    window,
    timeout: '60s',
  };
  const flags = Object.entries(options).flatMap(([name, value]) => [`-${name}`, String(value)]);
  const { code, output } = await outcome({ command: loadgen, args: [...payload, ...flags] });
  if (code !== 0) throw new Error(`the load generator ended with ${code}: ${output}`);
  return report.parse(JSON.parse(output));
}
