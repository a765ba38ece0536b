import { z } from 'zod';
import { eventually } from './eventually.ts';
import type { RelayProcess } from './relay.ts';

const counts = z.object({ requests: z.number(), errors: z.number() });
const rollout = z.object({
  state: z.string(),
  since: z.string(),
  upstream: z.string(),
  types: z.array(z.string()),
  names: z.array(z.string()),
  canaries: z.object({ total: z.number(), accepted: z.number(), rejected: z.number(), ended: z.number() }),
  reason: z.string(),
  cause: z.string().optional(),
  wave: z.number(),
  traffic: z.object({ state: z.string(), reason: z.string(), canaries: counts, others: counts }).optional(),
  revision: z.number(),
  pending_revision: z.number(),
  freezes: z.array(
    z.object({ type: z.string(), upstream: z.string(), operator: z.string(), reason: z.string() }),
  ),
});
export type RolloutState = z.infer<typeof rollout>;

const admin = 'distributary.admin.v1.AdminService';

/** Where a change stands, by the Status RPC. */
export async function rolloutOf(relay: RelayProcess): Promise<RolloutState> {
  const { body } = await relay.rpc(`${admin}/Status`, {});
  return z.object({ rollout }).parse(JSON.parse(body)).rollout;
}

/** Waits for a state. */
export function reaches(relay: RelayProcess, state: string): Promise<RolloutState> {
  return eventually(async () => {
    const now = await rolloutOf(relay);
    if (now.state !== state) throw new Error(`${now.state} instead of ${state}: ${JSON.stringify(now)}`);
    return now;
  });
}

/** An operator's RPC. The answer: its HTTP status, and the body as an object. */
export async function operate(
  relay: RelayProcess,
  method: 'Freeze' | 'Unfreeze' | 'Promote' | 'Release' | 'Discard' | 'Rollback',
  request: object = {},
): Promise<{ readonly status: number; readonly body: Readonly<Record<string, unknown>> }> {
  const { status, body } = await relay.rpc(`${admin}/${method}`, { reason: 'a test', ...request });
  return { status, body: z.record(z.string(), z.unknown()).parse(JSON.parse(body)) };
}
