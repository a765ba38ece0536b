import { setTimeout as sleep } from 'node:timers/promises';
import { Random } from '../../simulator/random.ts';
import { eventually } from './eventually.ts';
import { ModelPlane } from './model-plane.ts';
import { ClientPool, type RecordedResponse, type RecordingClient } from './recording-client.ts';
import { RelayProcess } from './relay.ts';
import { checkCurrent } from './relay-state.ts';

export interface KillsOptions {
  readonly kills: number;
  readonly clients: number;
  readonly protocol: 'SOTW' | 'DELTA';
  readonly seed: number;
}

const clusters = Array.from({ length: 12 }, (_, at) => `c${at}`);

/** What upstream held of a type, all along: contents are numbers that grow with each change of a name. */
class History {
  /** Name → what it was and since when; undefined: not there. */
  readonly #names = new Map<string, { readonly at: number; readonly content: string | undefined }[]>();
  #changes = 0;
  #last = 0;

  get changes(): number {
    return this.#changes;
  }

  now(contents: ReadonlyMap<string, string>): void {
    this.#changes++;
    for (const name of new Set([...this.#names.keys(), ...contents.keys()])) {
      const all = this.#names.get(name) ?? [{ at: 0, content: undefined }];
      this.#names.set(name, all);
      if (all.at(-1)?.content !== contents.get(name))
        all.push({ at: performance.now(), content: contents.get(name) });
    }
  }

  next(): string {
    return String(++this.#last);
  }

  held(name: string, content: string, until: number): boolean {
    return this.#names.get(name)?.some((one) => one.content === content && one.at <= until) === true;
  }

  /** Whether it was not there at some time after it was this; undefined: at any time. */
  lacked(name: string, after: string | undefined, until: number): boolean {
    const all = this.#names.get(name) ?? [{ at: 0, content: undefined }];
    const from = after === undefined ? 0 : all.findIndex(({ content }) => content === after);
    return all.slice(from).some(({ at, content }) => content === undefined && at <= until);
  }
}

/**
 * A relay whose control plane is killed at random moments, while its resources change and clients watch. What they were
 * told is checked against what upstream held. Returns every violation.
 */
export async function killUpstream({
  kills,
  clients,
  protocol,
  seed,
}: KillsOptions): Promise<readonly string[]> {
  const random = new Random(seed);
  await using plane = await ModelPlane.start();
  const histories = new Map(['cds', 'eds'].map((short) => [short, new History()]));
  const contents = new Map(['cds', 'eds'].map((short) => [short, new Map<string, string>()]));
  const change = (short: string, count: number): void => {
    const history = histories.get(short);
    const all = contents.get(short);
    if (history === undefined || all === undefined) return;
    for (let step = 0; step < count; step++) {
      const name = clusters[random.below(clusters.length)] ?? '';
      if (all.has(name) && random.below(4) === 0) all.delete(name);
      else all.set(name, history.next());
    }
    history.now(all);
    plane.set(short, new Map(all));
  };
  for (const short of contents.keys()) change(short, 20);
  const ads = {
    endpoints: [plane.address],
    protocol,
    backoff: { initial: '10ms', max: '50ms' },
    resource_timeout: '1s',
  };
  await using relay = await RelayProcess.start({
    upstreams: [{ name: 'central', ads }],
    drain_timeout: '1s',
  });
  using pool = new ClientPool(relay.xds);
  const wants = new Map<RecordingClient, readonly string[]>();
  const join = (): void => {
    const client = pool.open(random.below(2) === 0 ? 'delta' : 'sotw');
    const names = clusters.filter(() => random.below(3) === 0);
    wants.set(client, names);
    client.subscribe('cds');
    if (names.length > 0) client.subscribe('eds', names);
  };
  for (let count = 0; count < clients / 2; count++) join();
  await eventually(() => {
    // Before its first answer is whole a wildcard is not known: whoever asks in an outage is told UNAVAILABLE.
    for (const client of wants.keys())
      if (client.of('cds').length === 0) throw new Error('a client has nothing yet');
  });
  for (let kill = 0; kill < kills; kill++) {
    for (let round = random.below(6); round >= 0; round--) {
      change(random.below(2) === 0 ? 'cds' : 'eds', 1 + random.below(4));
      if (wants.size < clients) join();
      await sleep(random.below(40));
    }
    plane.kill();
    for (let round = random.below(3); round > 0; round--) change(random.below(2) === 0 ? 'cds' : 'eds', 2);
    if (wants.size < clients) join();
    await sleep(random.below(100));
    await plane.again();
  }
  await settle(relay, wants, contents, protocol);
  const problems = [...wants.keys()].flatMap((client, index) =>
    judge(client, histories, kills).map((problem) => `${client.protocol} client ${index}: ${problem}`),
  );
  const heard = (): number[] => Array.from(wants.keys(), ({ said }) => said.length);
  try {
    // What a client has in the end may have come before the last response of other types.
    await eventually(async () => {
      const before = heard();
      await sleep(500);
      if (heard().join() !== before.join())
        throw new Error('clients are told something while nothing happens');
    });
  } catch (error) {
    problems.push(String(error));
  }
  return problems;
}

/** After quiet everybody has what upstream has. */
async function settle(
  relay: RelayProcess,
  wants: ReadonlyMap<RecordingClient, readonly string[]>,
  contents: ReadonlyMap<string, ReadonlyMap<string, string>>,
  protocol: 'SOTW' | 'DELTA',
): Promise<void> {
  await eventually(() => checkCurrent(relay));
  for (const [client, names] of wants) {
    await client.gets('cds', Object.fromEntries(contents.get('cds') ?? []));
    const endpoints = [...(contents.get('eds') ?? [])].filter(([name]) => names.includes(name));
    // SotW never removes endpoints, upstream or downstream (protocol §3.7): what is gone stays as it was.
    if (client.protocol === 'delta' && protocol === 'DELTA')
      await client.gets('eds', Object.fromEntries(endpoints));
    else await eventually(() => hasAll(client, endpoints));
  }
}

function hasAll(client: RecordingClient, expected: readonly (readonly [string, string])[]): void {
  const has = client.holds.get('eds');
  for (const [name, content] of expected) {
    if (has?.get(name) !== content) throw new Error(`it has ${name} ${has?.get(name)} instead of ${content}`);
  }
}

function judge(client: RecordingClient, histories: ReadonlyMap<string, History>, kills: number): string[] {
  const problems: string[] = [];
  if (client.status !== undefined) problems.push(`its stream ended: ${client.status.details}`);
  for (const [short, history] of histories) {
    const said = client.said.filter(({ type }) => type === short);
    // One per change; endpoints are sent again when their cluster changes (protocol §10.1).
    const most = 2 * [...histories.values()].reduce((sum, { changes }) => sum + changes, 0) + kills + 5;
    if (said.length > most) problems.push(`${said.length} responses of ${short} for at most ${most} causes`);
    problems.push(...judgeType(client, said, history));
  }
  return problems;
}

function judgeType(
  { protocol }: RecordingClient,
  said: readonly RecordedResponse[],
  history: History,
): string[] {
  const problems: string[] = [];
  const seen = new Map<string, string>();
  let before: ReadonlyMap<string, string> = new Map();
  for (const { type: short, at, resources, removed } of said) {
    for (const [name, content] of resources) {
      if (!history.held(name, content, at))
        problems.push(`${short} ${name} ${content}: upstream never had it`);
      const last = seen.get(name) ?? '0';
      if (Number(content) < Number(last)) problems.push(`${short} ${name} ${content} after ${last}`);
      seen.set(name, content);
    }
    const gone =
      protocol === 'sotw' && short === 'cds'
        ? [...before.keys()].filter((name) => !resources.has(name))
        : removed;
    for (const name of gone) {
      if (!history.lacked(name, seen.get(name), at)) {
        problems.push(`${short} ${name} is removed: upstream had it all the time`);
      }
    }
    before = resources;
  }
  return problems;
}
