import type { Plain } from '../admin/plain.ts';
import type { ListedClient } from '../downstream/services.ts';
import type { ClientWave } from '../gen/distributary/admin/v1/admin_pb.ts';
import type { WaveStatus } from '../gen/distributary/admin/v1/rollout_pb.ts';
import { type WaveRules, waveOf } from '../rollout/canaries.ts';
import type { Standing } from '../rollout/waiting.ts';

/** The changes that wait, as they concern the clients of this process. */
export interface WaitingChanges {
  readonly rules: () => WaveRules;
  /** What a stream says to what waits; undefined: it does not subscribe to it. */
  readonly standing: (stream: string) => Standing['kind'] | undefined;
}

/** Where a client stands in what waits; undefined: it does not subscribe to it. */
export type WaveOf = (client: Pick<ListedClient, 'id' | 'client'>) => Plain<ClientWave> | undefined;

const answers = { accepted: 'ACCEPTED', rejected: 'REJECTED', waiting: 'WAITING' } as const;

/** As of now. */
export function inWaves({ rules: rulesNow, standing }: WaitingChanges): WaveOf {
  const { waves: all, reached, named } = rulesNow();
  const rules = { waves: all, reached, named };
  const waves = all.length;
  return ({ id, client }) => {
    const said = waves === 0 || client === undefined ? undefined : standing(id);
    if (said === undefined || client === undefined) return undefined;
    const { nodeId, classKey, place, access } = client;
    const placed = { nodeId, classKey, place, parameters: client.derived(undefined) };
    const wave = waveOf(rules, placed, access.side);
    return { wave, waves, answer: access.side === 'canary' ? answers[said] : '' };
  };
}

/** How many there are in each wave, and how many get it with everybody. None: nothing waits. */
export function waveClients(
  streams: Iterable<Pick<ListedClient, 'id' | 'client'>>,
  of: WaveOf,
): Plain<WaveStatus>[] {
  const counts: Plain<WaveStatus>[] = [];
  for (const stream of streams) {
    const { wave = 0, waves = 0, answer = '' } = of(stream) ?? {};
    if (wave === 0) continue;
    while (counts.length <= waves) counts.push({ clients: 0, accepted: 0, rejected: 0 });
    const count = counts[wave - 1];
    if (count === undefined) continue;
    count.clients++;
    count.accepted += Number(answer === 'ACCEPTED');
    count.rejected += Number(answer === 'REJECTED');
  }
  return counts;
}

/** Those of two processes. */
export function sumOfWaves(
  a: readonly Plain<WaveStatus>[],
  b: readonly Plain<WaveStatus>[],
): Plain<WaveStatus>[] {
  return (a.length < b.length ? b : a).map((longer, index) => {
    const other = (a.length < b.length ? a : b)[index] ?? { clients: 0, accepted: 0, rejected: 0 };
    return {
      clients: longer.clients + other.clients,
      accepted: longer.accepted + other.accepted,
      rejected: longer.rejected + other.rejected,
    };
  });
}
