import { setTimeout as sleep } from 'node:timers/promises';
import { eventually } from './eventually.ts';
import { ModelPlane } from './model-plane.ts';
import { cpuSeconds } from './process-figures.ts';
import { ClientPool } from './recording-client.ts';
import { type LogLine, RelayProcess } from './relay.ts';
import { checkCurrent, readyOf } from './relay-state.ts';

export interface RetryCost {
  /** CPU in seconds of a relay whose control plane is there, and of one whose is away, in the same time. */
  readonly up: number;
  readonly down: number;
  /** Everything that the second one wrote: when the control plane went, in that time, and when it was back. */
  readonly lines: readonly [lost: readonly LogLine[], retrying: readonly LogLine[], back: readonly LogLine[]];
}

const connected = 'connected to the control plane';

/** Two relays with clients in quiet, the control plane of one of them away. Without `backoff` they wait as they do by default. */
export async function retryCost(
  seconds: number,
  protocol: 'SOTW' | 'DELTA',
  backoff: object = {},
): Promise<RetryCost> {
  await using stays = await ModelPlane.start();
  await using goes = await ModelPlane.start();
  for (const plane of [stays, goes]) plane.set('cds', { a: '1' });
  await using idle = await startWith(stays, protocol, backoff);
  await using retrying = await startWith(goes, protocol, backoff);
  using near = new ClientPool(idle.xds);
  using far = new ClientPool(retrying.xds);
  for (const pool of [near, far]) await join(pool);
  // Its log comes by another way than its answers.
  await eventually(() => {
    if (!retrying.logged.some((line) => line.includes(connected))) throw new Error(`no line ${connected}`);
  });
  const marks = [retrying.log.length];
  goes.kill();
  await eventually(async () => {
    if ((await readyOf(retrying)).connected) throw new Error('it has not noticed');
  });
  await eventually(() => {
    if (!retrying.logged.some((line) => line.includes('control plane failed')))
      throw new Error('it has not tried again');
  });
  await sleep(2000);
  marks.push(retrying.log.length);
  const before = [idle, retrying].map(({ pid }) => cpuSeconds(pid));
  await sleep(seconds * 1000);
  const [up = 0, down = 0] = [idle, retrying].map(({ pid }, at) => cpuSeconds(pid) - (before[at] ?? 0));
  marks.push(retrying.log.length);
  await goes.again();
  await eventually(() => checkCurrent(retrying), { timeout: 60_000 });
  const part = (at: number): readonly LogLine[] => retrying.log.slice(marks[at], marks[at + 1]);
  return { up, down, lines: [part(0), part(1), part(2)] };
}

function startWith(plane: ModelPlane, protocol: 'SOTW' | 'DELTA', backoff: object): Promise<RelayProcess> {
  const ads = { endpoints: [plane.address], protocol, backoff };
  return RelayProcess.start({ upstreams: [{ name: 'central', ads }] });
}

async function join(pool: ClientPool): Promise<void> {
  const clients = Array.from({ length: 20 }, (_, at) => pool.open(at % 2 === 0 ? 'delta' : 'sotw'));
  for (const client of clients) client.subscribe('cds');
  for (const client of clients) await client.gets('cds', { a: '1' });
}
