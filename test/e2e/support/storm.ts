import { typeUrl } from '../../../src/model/brand.ts';
import { typeInfo } from '../../../src/model/types.ts';
import { eventually } from './eventually.ts';
import { ModelPlane } from './model-plane.ts';
import { temporaryDirectory } from './paths.ts';
import { cpuSeconds, residentBytes } from './process-figures.ts';
import { ClientPool, type RecordingClient } from './recording-client.ts';
import { RelayProcess } from './relay.ts';
import { checkCurrent, readyOf } from './relay-state.ts';

export interface StormOptions {
  readonly clients: number;
  /** That the clients share. */
  readonly connections: number;
  /** Whether the control plane is there while the clients come back. */
  readonly upstream: 'up' | 'down';
}

export interface StormOutcome {
  /** What is wrong, one line for each client and thing. */
  readonly problems: readonly string[];
  /** `type name` of what the relay asked upstream for by name after its restart, sorted; as often as it asked. */
  readonly asked: readonly string[];
  readonly upstreamStreams: number;
  /** From the first client that comes back until all have a stream, in milliseconds. */
  readonly connected: number;
  /** CPU of the relay for that, in seconds. */
  readonly cpu: number;
  /** From the next change at the control plane until the last client has it, in milliseconds. */
  readonly served: number;
  /** Bytes of the relay before all that and after. */
  readonly rss: readonly [before: number, after: number];
}

const clusters = Object.fromEntries(Array.from({ length: 20 }, (_, at) => [`c${at}`, '1']));
const names = Object.keys(clusters);
/** What the clients ask for, besides one wildcard. */
export const endpointsAskedFor = names.map((name) => `eds ${name}`).toSorted();

/**
 * A relay restarts with its persisted cache, and all its clients come back at once. Half of them are delta, with the
 * versions that they have; the others SotW, with `sotw_versions: CONTENT`.
 */
export async function storm({ clients, connections, upstream }: StormOptions): Promise<StormOutcome> {
  await using plane = await ModelPlane.start();
  plane.set('cds', clusters);
  plane.set('eds', clusters);
  using directory = temporaryDirectory();
  const backoff = { initial: '20ms', max: '50ms' };
  const config = {
    upstreams: [{ name: 'central', ads: { endpoints: [plane.address], backoff } }],
    xds: { sotw_versions: 'CONTENT' },
    cache: { persistence: { path: directory.path } },
    drain_timeout: '200ms',
  };
  await using first = await RelayProcess.start(config);
  // A cold relay without upstream would turn everybody away.
  await eventually(async () => {
    if (!(await readyOf(first)).connected) throw new Error('no control plane yet');
  });
  const before: RecordingClient[] = [];
  {
    using pool = new ClientPool(first.xds, connections);
    for (let at = 0; at < clients; at++) before.push(join(pool, at));
    await eventually(() => all(before, (client) => client.holds.get('cds')?.size === names.length), patience);
    await first.stop();
  }
  if (upstream === 'down') plane.kill();

  const heard = plane.requests.length;
  await using second = await RelayProcess.start(config);
  const empty = residentBytes(second.pid);
  const idle = cpuSeconds(second.pid);
  const start = performance.now();
  using pool = new ClientPool(second.xds, connections);
  const after = before.map((client, at) => join(pool, at, client));
  await eventually(async () => {
    if ((await second.metric('downstream_streams')) !== clients) throw new Error('not everybody is back');
  }, patience);
  const connected = performance.now() - start;
  const cpu = cpuSeconds(second.pid) - idle;
  if (upstream === 'down') await plane.again();
  await eventually(() => checkCurrent(second));
  const changed = performance.now();
  plane.set('cds', { ...clusters, last: '1' });
  await eventually(() => all(after, (client) => client.has('cds')['last'] === '1'), patience);
  const rss = residentBytes(second.pid);
  return {
    problems: after.flatMap((client, at) =>
      judge(client).map((problem) => `${client.protocol} ${at}: ${problem}`),
    ),
    asked: plane.requests
      .slice(heard)
      .flatMap((request) =>
        'resourceNamesSubscribe' in request
          ? request.resourceNamesSubscribe.map((name) => `${shortOf(request.typeUrl)} ${name}`)
          : [],
      )
      .filter((line) => !line.endsWith(' *'))
      .toSorted(),
    upstreamStreams: plane.openStreams,
    connected,
    cpu,
    served: Math.max(...after.map((client) => client.of('cds').at(-1)?.at ?? Number.NaN)) - changed,
    rss: [empty, rss],
  };
}

const patience = { timeout: 180_000 };

const shortOf = (url: string): string => typeInfo(typeUrl(url)).short;

function all(clients: readonly RecordingClient[], check: (client: RecordingClient) => boolean): void {
  const behind = clients.filter((client) => !check(client));
  if (behind.length === 0) return;
  const why = behind[0]?.status?.details ?? 'its stream is open';
  throw new Error(`${behind.length} of ${clients.length} clients are behind; of the first: ${why}`);
}

function join(pool: ClientPool, at: number, from?: RecordingClient): RecordingClient {
  const client = pool.open(at % 2 === 0 ? 'delta' : 'sotw', `client-${at}`);
  client.subscribe('cds', [], from);
  if (at % 10 === 0) client.subscribe('eds', [names[(at / 10) % names.length] ?? ''], from);
  return client;
}

/** Nobody is sent again what it has. */
function judge(client: RecordingClient): string[] {
  const problems: string[] = [];
  if (client.status !== undefined) problems.push(`its stream ended: ${client.status.details}`);
  const cds = client.of('cds');
  const told = cds.flatMap(({ resources }) => [...resources.keys()]);
  if (client.protocol === 'delta' && told.join() !== 'last') problems.push(`it was sent ${told.join()}`);
  if (client.protocol === 'sotw' && cds.length !== 1) problems.push(`it was sent ${cds.length} responses`);
  return problems;
}
