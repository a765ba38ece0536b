import type { HealthReport } from './health-probe.ts';
import type { Target } from './target.ts';

/** The node id of the well-behaved client: nobody else may see it. */
export const WELL_BEHAVED = 'well-behaved-client';

export interface BystanderData {
  readonly target: Target;
  /** The name of a cluster that the relay has. */
  readonly cluster: string;
  /** It changes all the time (see plane-thread.ts). Otherwise the client asks for it again and again. */
  readonly updates: boolean;
}

/** What a well-behaved client saw while an attack ran. */
export interface BystanderReport {
  readonly health: HealthReport;
  readonly updates: {
    readonly arrived: number;
    /** Milliseconds from the control plane (or the question) to the client, of the slowest: what the relay is to blame for. */
    readonly worst: number;
    /** The same without what the machine took. */
    readonly delay: number;
  };
  /** Why its stream ended, or that nothing arrived after the attack. */
  readonly failure: string | undefined;
}

export type BystanderCommand = 'begin' | 'report' | 'stop';

/** The content of a cluster that says when it was sent. */
export const stampNow = (): string => `at=${Date.now()};`;

export function stampOf(content: string): number | undefined {
  const digits = /at=(\d+);/.exec(content)?.[1];
  return digits === undefined ? undefined : Number(digits);
}
