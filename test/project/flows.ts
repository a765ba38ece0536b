import { setTimeout as sleep } from 'node:timers/promises';
import { z } from 'zod';
import { eventually } from '../e2e/support/eventually.ts';
import { ModelPlane } from '../e2e/support/model-plane.ts';
import { ClientPool } from '../e2e/support/recording-client.ts';
import { type RelayConfig, RelayProcess } from '../e2e/support/relay.ts';

/*
 * How many files of src/ each flow of docs/ARCHITECTURE.md passes: `npm run flows`, with `--names` also which. A relay
 * with `rollout` and `history` runs with V8's coverage; a file counts if one of its functions runs that does not run in
 * the seconds before, while nothing happens.
 */

const coverage = z.object({
  result: z.array(
    z.object({
      url: z.string(),
      functions: z.array(
        z.object({
          ranges: z.tuple([z.object({ startOffset: z.number(), count: z.number() })]).rest(z.unknown()),
        }),
      ),
    }),
  ),
});
const reply = z.object({ id: z.number(), result: z.unknown() });
const history = z.object({ changes: z.array(z.object({ revision: z.number(), type: z.string() })) });
const service = 'distributary.admin.v1.AdminService';

/** By file of src/, the functions (their offsets) that ran since this was asked the last time. */
type Ran = ReadonlyMap<string, ReadonlySet<number>>;

/** The profiler of a process that was started with --inspect. */
class Profiler implements Disposable {
  readonly #socket: WebSocket;
  readonly #waiting = new Map<number, (result: unknown) => void>();
  #asked = 0;

  private constructor(socket: WebSocket) {
    this.#socket = socket;
    socket.addEventListener('message', ({ data }) => {
      const { id, result } = reply.parse(JSON.parse(String(data)));
      this.#waiting.get(id)?.(result);
      this.#waiting.delete(id);
    });
  }

  static async start(url: string): Promise<Profiler> {
    const socket = new WebSocket(url);
    const { promise, resolve } = Promise.withResolvers<unknown>();
    socket.addEventListener('open', resolve);
    await promise;
    const profiler = new Profiler(socket);
    await profiler.#ask('Profiler.enable');
    await profiler.#ask('Profiler.startPreciseCoverage', { callCount: true });
    return profiler;
  }

  async ran(): Promise<Ran> {
    const { result } = coverage.parse(await this.#ask('Profiler.takePreciseCoverage'));
    const files = new Map<string, ReadonlySet<number>>();
    for (const { url, functions } of result) {
      const path = /\/src\/(?!gen\/)(.*\.ts)$/.exec(url)?.[1];
      const starts = functions.flatMap(({ ranges: [{ startOffset, count }] }) =>
        count > 0 ? [startOffset] : [],
      );
      // Offset 0 is the module itself.
      if (path !== undefined) files.set(path, new Set(starts.filter((start) => start > 0)));
    }
    return files;
  }

  #ask(method: string, params: object = {}): Promise<unknown> {
    const { promise, resolve } = Promise.withResolvers<unknown>();
    this.#waiting.set(++this.#asked, resolve);
    this.#socket.send(JSON.stringify({ id: this.#asked, method, params }));
    return promise;
  }

  [Symbol.dispose](): void {
    this.#socket.close();
  }
}

const names = process.argv.includes('--names');
await using plane = await ModelPlane.start();
const config = (percent: number): RelayConfig => ({
  upstreams: [{ name: 'central', ads: { endpoints: [plane.address] } }],
  history: {},
  rollout: { canary: { percent }, bake: '1s' },
});
plane.set('cds', { a: '1', b: '1' });
plane.set('eds', { a: '1', b: '1' });
await using relay = await RelayProcess.start(config(1), { flags: ['--inspect=127.0.0.1:0'] });
const url = await eventually(() => {
  const found = relay.logged.map((line) => /ws:\S+/.exec(line)?.[0]).find((one) => one !== undefined);
  if (found === undefined) throw new Error('no inspector');
  return found;
});
using profiler = await Profiler.start(url);
using pool = new ClientPool(relay.xds, 2);
const [one, two] = [pool.open('delta', 'one'), pool.open('delta', 'two')];

async function flow(name: string, act: () => Promise<unknown>): Promise<void> {
  await profiler.ran();
  await sleep(3000);
  const before = await profiler.ran();
  await act();
  await sleep(150);
  const ran = await profiler.ran();
  const passed = [...ran].filter(
    ([path, starts]) => starts.difference(before.get(path) ?? new Set()).size > 0,
  );
  console.log(`${name}: ${passed.length}`);
  if (names) for (const [path] of passed.toSorted(([a], [b]) => (a < b ? -1 : 1))) console.log(`  ${path}`);
}

async function allGet(type: string, contents: Readonly<Record<string, string>>): Promise<void> {
  for (const client of [one, two]) await client.gets(type, contents);
}

for (const client of [one, two]) client.subscribe('cds');
for (const client of [one, two]) client.subscribe('eds', ['a']);
for (const a of ['2', '3']) {
  plane.set('cds', { a, b: '1' });
  plane.set('eds', { a, b: '1' });
  await allGet('cds', { a, b: '1' });
  await allGet('eds', { a });
  await sleep(2000);
}

await flow('a change', () => {
  plane.set('eds', { a: '4', b: '1' });
  return allGet('eds', { a: '4' });
});
await flow('an interest', () => {
  one.subscribe('eds', ['b']);
  return one.gets('eds', { a: '4', b: '1' });
});
// What a change passes is not counted again.
two.answers = false;
plane.set('eds', { a: '5', b: '1' });
await two.gets('eds', { a: '5' });
await flow('a NACK', () => {
  const nonce = two.of('eds').at(-1)?.nonce ?? '';
  two.answer('eds', nonce, 'bad');
  return sleep(500);
});
two.answers = true;
await flow('its status', () => relay.rpc(`${service}/Status`, {}));
const { changes } = history.parse(JSON.parse((await relay.rpc(`${service}/History`, {})).body));
const clusters = changes.filter(({ type }) => type === 'cds').map(({ revision }) => revision);
await flow('a rollback', async () => {
  await relay.rpc(`${service}/Rollback`, { to: String(Math.min(...clusters)), reason: 'flows' });
  await allGet('cds', { a: '2', b: '1' });
});
await flow('a reload', () => {
  relay.configure(config(2));
  return eventually(() => {
    if (!relay.logged.some((line) => line.includes('configuration reloaded')))
      throw new Error('not reloaded');
  });
});
