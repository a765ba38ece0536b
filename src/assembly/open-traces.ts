import type { Config } from '../config/config.ts';
import { systemClock } from '../model/clock.ts';
import { Conditions } from '../observe/conditions.ts';
import type { Log } from '../observe/log.ts';
import type { Spans } from '../observe/update-traces.ts';

export interface TracingProcess {
  readonly log: Log;
  readonly version: string;
  /** Undefined: not a worker. */
  readonly worker: number | undefined;
}

/** Where this process sends its spans. Undefined: nothing is traced, and OpenTelemetry's SDK is not even loaded. */
export async function openTraces(
  { tracing, node }: Config,
  { log, version, worker }: TracingProcess,
): Promise<Spans | undefined> {
  const { otlpEndpoint: endpoint, ratio } = tracing;
  if (endpoint === undefined) return undefined;
  const { OtlpSpans } = await import('../observe/otlp-spans.ts');
  const conditions = new Conditions(log);
  return new OtlpSpans({ endpoint, ratio, version, nodeId: node.id, worker, clock: systemClock, conditions });
}
