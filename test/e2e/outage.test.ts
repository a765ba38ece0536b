import { connect, createServer, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'chai';
import { Code } from '../../src/wire/grpc-status.ts';
import { run } from './support/command.ts';
import { always, eventually } from './support/eventually.ts';
import { ModelPlane } from './support/model-plane.ts';
import { ClientPool, wildcardAnswered } from './support/recording-client.ts';
import { RelayProcess } from './support/relay.ts';
import { checkCurrent, endpointOf, readyOf, statusOf } from './support/relay-state.ts';
import { retryCost } from './support/retry-cost.ts';

type Protocol = 'SOTW' | 'DELTA';
const backoff = { initial: '20ms', max: '100ms' };

function central(
  endpoints: readonly string[],
  protocol: Protocol,
  changes: object = {},
  others = {},
): object {
  return { name: 'central', ads: { endpoints, protocol, backoff, ...changes }, ...others };
}

describe('an outage', () => {
  for (const protocol of ['DELTA', 'SOTW'] as const) {
    it(`upstream ${protocol} lost: streams live on, new ones get the cache, nothing is removed; back: only differences`, async () => {
      await using plane = await ModelPlane.start();
      plane.set('cds', { a: '1', b: '1', c: '1' });
      plane.set('eds', { a: '1', b: '1' });
      await using relay = await RelayProcess.start({ upstreams: [central([plane.address], protocol)] });
      using pool = new ClientPool(relay.xds);
      const before = (['delta', 'sotw'] as const).map((one) => pool.open(one));
      for (const client of before) {
        client.subscribe('cds');
        client.subscribe('eds', ['a', 'b']);
        await client.gets('cds', { a: '1', b: '1', c: '1' });
        await client.gets('eds', { a: '1', b: '1' });
      }
      await eventually(() => checkCurrent(relay));
      await wildcardAnswered(pool);
      const killedAt = Date.now();
      plane.kill();
      await eventually(async () => {
        const state = await readyOf(relay);
        expect([state.status, state.connected, state.stale]).to.deep.equal([200, false, true]);
        expect(Date.parse(state.since ?? '')).to.be.within(killedAt, Date.now());
      });
      expect(await relay.metric('upstream_connected', 'central')).to.equal(0);
      await eventually(async () =>
        expect(await relay.metric('upstream_stale_seconds', 'central')).to.be.greaterThan(0),
      );
      const during = (['delta', 'sotw'] as const).map((one) => pool.open(one, 'late'));
      for (const client of during) {
        client.subscribe('cds');
        client.subscribe('eds', ['b']);
        await client.gets('cds', { a: '1', b: '1', c: '1' });
        await client.gets('eds', { b: '1' });
      }
      const all = [...before, ...during];
      const heard = all.map(({ said }) => said.length);
      await sleep(500);
      expect(
        all.map(({ said }) => said.length),
        'nothing is said',
      ).to.deep.equal(heard);

      plane.set('cds', { a: '1', b: '2', d: '1' });
      const asked = plane.requests.length;
      await plane.again();
      for (const client of all) await client.gets('cds', { a: '1', b: '2', d: '1' });
      await eventually(() => checkCurrent(relay));
      expect(await relay.metric('upstream_stale_seconds', 'central')).to.equal(0);
      const first = plane.requests.slice(asked).find(({ typeUrl }) => typeUrl.endsWith('Cluster'));
      if (protocol === 'DELTA') {
        const versions =
          first !== undefined && 'initialResourceVersions' in first && first.initialResourceVersions;
        expect(versions).to.deep.equal({ a: 'v1', b: 'v1', c: 'v1' });
      }
      for (const [at, client] of all.entries()) {
        const since = client.said.slice(heard[at]);
        expect(client.status).to.equal(undefined);
        if (client.protocol === 'sotw') {
          expect(
            since.filter(({ type }) => type === 'cds'),
            'one change, one response',
          ).to.have.length(1);
          continue;
        }
        const told = since.flatMap(({ type, resources, removed }) => [
          ...[...resources.keys()].map((name) => `+${type} ${name}`),
          ...removed.map((name) => `-${type} ${name}`),
        ]);
        // b's endpoints follow its cluster (protocol §10.1).
        expect(told.filter((line) => line !== '+eds b').toSorted()).to.deep.equal([
          '+cds b',
          '+cds d',
          '-cds c',
        ]);
      }
    });
  }

  it('a reload that changes how to reach it leaves the relay ready, and what it serves as old as it is', async () => {
    await using plane = await ModelPlane.start();
    plane.set('cds', { a: '1' });
    const config = { upstreams: [central([plane.address], 'DELTA')] };
    await using relay = await RelayProcess.start(config);
    using pool = new ClientPool(relay.xds);
    const client = pool.open('delta');
    client.subscribe('cds');
    await client.gets('cds', { a: '1' });
    plane.kill();
    const before = await eventually(async () => {
      const { stale, since } = await readyOf(relay);
      expect(stale).to.equal(true);
      return since;
    });
    await relay.reconfigure({ ...config, limits: { max_response_bytes: 50_000_000 } });
    await eventually(async () => expect(await relay.metric('upstream_sessions')).to.equal(1));
    const { status, stale, since } = await readyOf(relay);
    expect({ status, stale, since }).to.deep.equal({ status: 200, stale: true, since: before });
    const late = pool.open('delta');
    late.subscribe('cds');
    await late.gets('cds', { a: '1' });
    await plane.again();
    await eventually(async () => expect((await readyOf(relay)).stale).to.equal(false));
  });

  it('cold cache and no upstream: UNAVAILABLE before any response', async () => {
    const gone = await ModelPlane.start();
    gone.kill();
    await using relay = await RelayProcess.start({ upstreams: [central([gone.address], 'DELTA')] });
    using pool = new ClientPool(relay.xds);
    for (const protocol of ['delta', 'sotw'] as const) {
      const client = pool.open(protocol);
      client.subscribe('cds');
      expect((await client.ends()).code).to.equal(Code.UNAVAILABLE);
      expect(client.said).to.deep.equal([]);
    }
    expect(await relay.metric('downstream_rejected_total', 'cold')).to.equal(2);
  });

  it('who asks only for what is not cached is told the same in an outage, whatever else is cached', async () => {
    await using plane = await ModelPlane.start();
    plane.set('cds', { a: '1' });
    plane.set('eds', { a: '1' });
    await using relay = await RelayProcess.start({ upstreams: [central([plane.address], 'DELTA')] });
    using pool = new ClientPool(relay.xds);
    const before = pool.open('delta');
    before.subscribe('cds');
    before.subscribe('eds', ['a']);
    await before.gets('eds', { a: '1' });
    await wildcardAnswered(pool);
    plane.kill();
    await eventually(async () => expect((await readyOf(relay)).connected).to.equal(false));
    const client = pool.open('delta');
    client.subscribe('eds', ['other']);
    expect((await client.ends()).code).to.equal(Code.UNAVAILABLE);
    expect(client.said).to.deep.equal([]);
    const both = pool.open('delta');
    both.subscribe('eds', ['a', 'other']);
    await both.gets('eds', { a: '1' });
    expect([before, both].map(({ status }) => status)).to.deep.equal([undefined, undefined]);
  });

  it('what a client names stays when the wildcard that brought it has no client any more', async () => {
    await using plane = await ModelPlane.start();
    plane.set('cds', { a: '1', b: '1' });
    await using relay = await RelayProcess.start({
      upstreams: [central([plane.address], 'DELTA')],
      cache: { idle_ttl: '1s' },
    });
    using pool = new ClientPool(relay.xds);
    const all = pool.open('delta');
    all.subscribe('cds');
    await all.gets('cds', { a: '1', b: '1' });
    await wildcardAnswered(pool);
    plane.kill();
    await eventually(async () => expect((await readyOf(relay)).connected).to.equal(false));
    const named = pool.open('delta');
    named.subscribe('cds', ['a']);
    await named.gets('cds', { a: '1' });
    all[Symbol.dispose]();
    await eventually(async () => expect((await statusOf(relay)).types[0]?.resources).to.be.below(2));
    const late = pool.open('delta');
    late.subscribe('cds', ['a']);
    await late.gets('cds', { a: '1' });
  });

  it('a half-open connection is noticed by keepalive', async () => {
    await using plane = await ModelPlane.start();
    plane.set('cds', { a: '1' });
    await using wire = await Wire.start(plane.address);
    const changes = { keepalive: { time: '200ms', timeout: '1s' }, connect_timeout: '1s' };
    await using relay = await RelayProcess.start({ upstreams: [central([wire.address], 'DELTA', changes)] });
    using pool = new ClientPool(relay.xds);
    const client = pool.open('delta');
    client.subscribe('cds');
    await client.gets('cds', { a: '1' });
    wire.silent = true;
    await eventually(async () => expect((await readyOf(relay)).connected).to.equal(false));
    plane.set('cds', { a: '2' });
    wire.silent = false;
    await client.gets('cds', { a: '2' });
    expect(client.status).to.equal(undefined);
  });

  it('an upstream that accepts and never answers: the next endpoint', async () => {
    await using mute = await ModelPlane.start();
    mute.mute = true;
    await using dead = await Wire.start('127.0.0.1:1');
    dead.silent = true;
    await using plane = await ModelPlane.start();
    plane.set('cds', { a: '1' });
    const changes = { connect_timeout: '300ms', resource_timeout: '500ms' };
    await using relay = await RelayProcess.start({
      upstreams: [central([dead.address, mute.address, plane.address], 'DELTA', changes)],
    });
    using pool = new ClientPool(relay.xds);
    const client = pool.open('delta');
    client.subscribe('cds');
    await client.gets('cds', { a: '1' });
    expect(await endpointOf(relay)).to.equal(plane.address);
  });

  it('retrying costs under 1 % of a core, and one line per change of state', async function () {
    this.timeout(180_000);
    // By default the wait grows to 30 s.
    const { up, down, lines: parts } = await retryCost(10, 'DELTA', { initial: '0.5s', max: '4s' });
    expect(down - up, 'seconds of CPU in 10 s, beyond those without an outage').to.be.lessThan(0.1);
    // The list of problems, which probes ask for, has lines of its own.
    const [lost, retrying, back] = parts.map((part) =>
      part.map(({ message }) => message).filter((message) => !/^(?:problem|resolved): /.test(message)),
    );
    // That it was lost, as an end of the connection or of its stream, and that it cannot be reached.
    const lines = ['the connection ended, and another one is opened', 'control plane failed'];
    expect(lines).to.include.members(lost ?? []);
    expect(lost?.at(-1)).to.equal('control plane failed');
    expect(lost?.length).to.be.within(1, 2);
    expect(retrying).to.deep.equal([]);
    expect(back).to.deep.equal(['connected to the control plane']);
  });

  for (const protocol of ['DELTA', 'SOTW'] as const) {
    it(`failover, and back: what the other one lacks goes once it has answered (${protocol})`, async () => {
      await using one = await ModelPlane.start();
      await using two = await ModelPlane.start();
      one.set('cds', { a: '1', b: '1' });
      two.set('cds', { a: '1', c: '1' });
      two.mute = true;
      const changes = { failback_after: '300ms', resource_timeout: '1s' };
      await using relay = await RelayProcess.start({
        upstreams: [central([one.address, two.address], protocol, changes)],
      });
      using pool = new ClientPool(relay.xds);
      const client = pool.open('delta');
      client.subscribe('cds');
      await client.gets('cds', { a: '1', b: '1' });
      await wildcardAnswered(pool);
      one.kill();
      await eventually(async () => expect(two.openStreams).to.equal(1));
      // Connected is not answered.
      await always(() => {
        expect(client.has('cds')).to.deep.equal({ a: '1', b: '1' });
      }, 300);
      two.mute = false;
      two.kill();
      await two.again();
      await client.gets('cds', { a: '1', c: '1' });
      expect(await endpointOf(relay)).to.equal(two.address);
      expect(client.said.flatMap(({ removed }) => removed)).to.deep.equal(['b']);

      await one.again();
      await eventually(async () => expect(await endpointOf(relay)).to.equal(one.address));
      await client.gets('cds', { a: '1', b: '1' });
      // What both have was never sent again.
      expect(client.said.filter(({ resources }) => resources.has('a'))).to.have.length(1);
      expect(client.status).to.equal(undefined);
    });
  }

  it('failover: each subscription waits for its own answer', async () => {
    await using one = await ModelPlane.start();
    await using two = await ModelPlane.start();
    for (const short of ['cds', 'eds']) one.set(short, { a: '1', b: '1' });
    for (const short of ['cds', 'eds']) two.set(short, { a: '1' });
    two.silentOn.add('eds');
    await using relay = await RelayProcess.start({
      upstreams: [central([one.address, two.address], 'DELTA', { failback_after: '30s' })],
    });
    using pool = new ClientPool(relay.xds);
    const client = pool.open('delta');
    client.subscribe('cds');
    client.subscribe('eds', ['a', 'b']);
    await client.gets('cds', { a: '1', b: '1' });
    await client.gets('eds', { a: '1', b: '1' });
    await wildcardAnswered(pool);
    one.kill();
    await client.gets('cds', { a: '1' });
    await always(() => {
      expect(client.has('eds')).to.deep.equal({ a: '1', b: '1' });
    }, 500);
    two.silentOn.clear();
    two.set('eds', { a: '1' });
    await client.gets('eds', { a: '1' });
    expect(client.status).to.equal(undefined);
  });
});

describe('the shrink guard, on a running relay', () => {
  const ten = Object.fromEntries(Array.from({ length: 10 }, (_, at) => [`c${at}`, '1']));
  const service = 'distributary.admin.v1.AdminService';

  for (const protocol of ['DELTA', 'SOTW'] as const) {
    it(`a control plane comes back nearly empty (${protocol}): held, alarmed, additions pass; released by RPC`, async () => {
      await using plane = await ModelPlane.start();
      plane.set('cds', ten);
      await using relay = await RelayProcess.start({
        upstreams: [central([plane.address], protocol, {}, { max_removal_percent: 50 })],
      });
      using pool = new ClientPool(relay.xds);
      const clients = (['delta', 'sotw'] as const).map((one) => pool.open(one));
      for (const client of clients) {
        client.subscribe('cds');
        await client.gets('cds', ten);
      }
      await wildcardAnswered(pool);
      const killedAt = Date.now();
      plane.kill();
      plane.set('cds', { c0: '2', fresh: '1' });
      await plane.again();
      const held = { ...ten, c0: '2', fresh: '1' };
      for (const client of clients) await client.gets('cds', held);
      await eventually(async () => expect(await relay.metric('upstream_held_removals', 'cds')).to.equal(9));
      const alarms = async () => (await statusOf(relay)).upstreams[0]?.held_removals ?? [];
      const [alarm] = await alarms();
      expect(alarm).to.include({ type: 'cds', count: 9 });
      expect(Date.parse(alarm?.since ?? '')).to.be.within(killedAt, Date.now());
      await always(() => {
        for (const client of clients) expect(client.has('cds')).to.deep.equal(held);
      }, 500);
      expect((await relay.rpc(`${service}/ReleaseRemovals`, { upstream: 'nobody' })).status).to.equal(404);
      const { body } = await relay.rpc(`${service}/ReleaseRemovals`, { upstream: 'central', type: 'cds' });
      expect(JSON.parse(body)).to.deep.equal({ removed: 9 });
      for (const client of clients) await client.gets('cds', { c0: '2', fresh: '1' });
      expect(await alarms()).to.deep.equal([]);
      expect(await relay.metric('upstream_held_removals', 'cds')).to.equal(0);
      // Removing after a reconnect is one thing, in the course of events another.
      expect(await relay.says(/^removals are held back/)).to.have.length(1);
    });
  }

  it('distributary release ends it too: who did it and why is in the log', async () => {
    await using plane = await ModelPlane.start();
    plane.set('cds', ten);
    await using relay = await RelayProcess.start({
      upstreams: [central([plane.address], 'DELTA', {}, { max_removal_percent: 50 })],
    });
    using pool = new ClientPool(relay.xds);
    const client = pool.open('delta');
    client.subscribe('cds');
    await client.gets('cds', ten);
    await wildcardAnswered(pool);
    const release = (...more: readonly string[]) =>
      run('release', '--reason', 'on purpose', ...more, '--admin', `http://${relay.admin}`);
    expect((await release()).code, 'nothing waits').to.equal(1);
    plane.kill();
    plane.set('cds', { c0: '1' });
    await plane.again();
    await eventually(async () => expect(await relay.metric('held_removals')).to.equal(9));
    expect((await release('--type', 'eds')).code).to.equal(1);
    expect(await release('--upstream', 'central', '--type', 'cds')).to.deep.equal({
      code: 0,
      out: 'released: 9 names',
      err: '',
    });
    await client.gets('cds', { c0: '1' });
    expect(await relay.metric('held_removals')).to.equal(0);
    const [line] = await relay.says(/an operator has released changes/);
    expect(line).to.include({ reason: 'on purpose', upstream: 'central', type: 'cds', names: 9 });
  });

  it('max_removal_hold: removed after that; what has come again by then stays', async () => {
    await using plane = await ModelPlane.start();
    plane.set('cds', ten);
    const guard = { max_removal_percent: 20, max_removal_hold: '3500ms' };
    await using relay = await RelayProcess.start({
      upstreams: [central([plane.address], 'SOTW', {}, guard)],
    });
    using pool = new ClientPool(relay.xds);
    const client = pool.open('delta');
    client.subscribe('cds');
    await client.gets('cds', ten);
    plane.kill();
    plane.set('cds', {});
    await plane.again();
    await eventually(async () => expect(await relay.metric('upstream_held_removals', 'cds')).to.equal(10));
    const half = Object.fromEntries(Object.entries(ten).slice(0, 5));
    plane.set('cds', half);
    await eventually(async () => expect(await relay.metric('upstream_held_removals', 'cds')).to.equal(5));
    expect(client.has('cds')).to.deep.equal(ten);
    await client.gets('cds', half);
    expect(client.said).to.have.length(2);
  });
});

/** A TCP connection between two, which may fall silent: it takes bytes and says nothing more. */
class Wire implements AsyncDisposable {
  readonly #server = createServer((socket) => this.#join(socket));
  readonly #sockets = new Set<Socket>();
  readonly #target: string;
  #silent = false;
  address = '';

  private constructor(target: string) {
    this.#target = target;
  }

  static async start(target: string): Promise<Wire> {
    const wire = new Wire(target);
    await new Promise<void>((resolve) => wire.#server.listen(0, '127.0.0.1', resolve));
    const bound = wire.#server.address();
    wire.address = typeof bound === 'object' && bound !== null ? `127.0.0.1:${bound.port}` : '';
    return wire;
  }

  /** Connections that were silent stay so. */
  set silent(silent: boolean) {
    this.#silent = silent;
    if (silent) for (const socket of this.#sockets) socket.unpipe();
  }

  [Symbol.asyncDispose](): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    return new Promise((resolve) => this.#server.close(() => resolve()));
  }

  #join(near: Socket): void {
    this.#keep(near);
    if (this.#silent) return;
    const [host = '', port = ''] = this.#target.split(':');
    const far = connect(Number(port), host);
    this.#keep(far);
    near.pipe(far);
    far.pipe(near);
  }

  #keep(socket: Socket): void {
    this.#sockets.add(socket);
    socket.on('error', () => undefined);
    socket.on('close', () => this.#sockets.delete(socket));
  }
}
