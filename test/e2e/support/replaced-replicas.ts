import { expect } from 'chai';
import { ModelPlane } from './model-plane.ts';
import { ClientPool, type RecordingClient, wildcardAnswered } from './recording-client.ts';
import type { RelayProcess } from './relay.ts';
import { isReadyAndStale, Replicas } from './replicas.ts';

export const clusters = { a: '1', b: '1', c: '1' };
export const endpoints = { a: '1', b: '1' };
export const protocols = ['delta', 'sotw'] as const;

/** A control plane with these. */
export async function started(): Promise<ModelPlane> {
  const plane = await ModelPlane.start();
  plane.set('cds', clusters);
  plane.set('eds', endpoints);
  return plane;
}

/**
 * Without a control plane, one replica after the other is killed and replaced, but for the last. Clients go to others
 * with what they have. None loses anything before the control plane is back with changes.
 */
export async function replaceAllButOne(count: number): Promise<void> {
  await using plane = await started();
  await using replicas = await Replicas.of(plane.address);
  while (replicas.all.length < count) await replicas.start();
  using stack = new DisposableStack();
  const fleet = replicas.all.flatMap((relay) =>
    protocols.map((protocol) => stack.use(new Roamer(protocol, relay))),
  );
  for (const client of fleet) await client.hasAll();
  for (const relay of replicas.all) {
    using pool = new ClientPool(relay.xds);
    await wildcardAnswered(pool);
  }
  plane.kill();
  for (const old of replicas.all.slice(0, -1)) {
    await replicas.kill(old);
    const homeless = fleet.filter(({ home }) => home === old);
    const [other] = replicas.all;
    const added = await replicas.start();
    await isReadyAndStale(added);
    for (const [at, client] of homeless.entries()) client.move(at % 2 === 0 ? added : (other ?? added));
    for (const client of homeless) await client.hasAll();
  }
  for (const client of fleet) expect(client.lost, 'what was removed').to.deep.equal([]);

  plane.set('cds', { a: '2', c: '1', d: '1' });
  await plane.again();
  for (const client of fleet) await client.has('cds', { a: '2', c: '1', d: '1' });
  for (const client of fleet) expect(client.lost).to.deep.equal(['cds b']);
}

/** A client that goes to another replica with what it has, as Envoy does. */
class Roamer implements Disposable {
  /** What was told to be gone, or was missing in a full state. */
  readonly lost: string[] = [];
  home: RelayProcess;
  readonly #protocol: 'delta' | 'sotw';
  #pool: ClientPool;
  #client: RecordingClient;

  constructor(protocol: 'delta' | 'sotw', home: RelayProcess) {
    this.#protocol = protocol;
    this.home = home;
    this.#pool = new ClientPool(home.xds, 1);
    this.#client = this.#opened(undefined);
  }

  async has(short: string, expected: Readonly<Record<string, string>>): Promise<void> {
    await this.#client.gets(short, expected);
  }

  async hasAll(): Promise<void> {
    await this.has('cds', clusters);
    await this.has('eds', endpoints);
  }

  move(home: RelayProcess): void {
    const before = this.#client;
    this.#pool[Symbol.dispose]();
    this.home = home;
    this.#pool = new ClientPool(home.xds, 1);
    this.#client = this.#opened(before);
  }

  [Symbol.dispose](): void {
    this.#pool[Symbol.dispose]();
  }

  #opened(before: RecordingClient | undefined): RecordingClient {
    const client = this.#pool.open(this.#protocol);
    const has = new Set(before?.holds.get('cds')?.keys());
    client.rejects = (said) => {
      this.lost.push(...said.removed.map((name) => `${said.type} ${name}`));
      if (said.type !== 'cds') return undefined;
      for (const name of has)
        if (this.#protocol === 'sotw' && !said.resources.has(name)) this.lost.push(`cds ${name}`);
      if (this.#protocol === 'sotw') has.clear();
      for (const name of said.resources.keys()) has.add(name);
      return undefined;
    };
    client.subscribe('cds', [], before);
    client.subscribe('eds', ['a', 'b'], before);
    return client;
  }
}
