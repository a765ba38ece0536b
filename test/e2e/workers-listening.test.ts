import { once } from 'node:events';
import { readdirSync, readFileSync, readlinkSync, writeFileSync } from 'node:fs';
import { connect, createServer, type Socket } from 'node:net';
import { join } from 'node:path';
import { expect } from 'chai';
import { ownPort } from '../support/ports.ts';
import { eventually } from './support/eventually.ts';
import { ResourceFiles } from './support/files.ts';
import { temporaryDirectory } from './support/paths.ts';
import { outcome, Process, signalTo } from './support/process.ts';
import { distributary, type RelayConfig, RelayProcess } from './support/relay.ts';
import { XdsClient } from './support/xds-client.ts';

const isLinux = process.platform === 'linux';
const host = '127.0.0.1';
/** So many that by chance no worker stays without one. */
const many = 24;

const portOf = (address: string): number => Number(address.slice(address.lastIndexOf(':') + 1));

function clientsOf(relay: RelayProcess, count: number, stack: AsyncDisposableStack): readonly XdsClient[] {
  return Array.from({ length: count }, (_, index) => {
    const client = stack.use(new XdsClient(relay.xds, index % 2 === 0 ? 'sotw' : 'delta'));
    client.subscribe('cds');
    return client;
  });
}

const isServed = (client: XdsClient): boolean => client.of('cds').length > 0;
const hasEnded = ({ status }: XdsClient): boolean => status !== undefined;

/** How many sockets of each process listen on the port (Linux). */
async function listeners(relay: RelayProcess, address: string): Promise<readonly number[]> {
  const at = `:${portOf(address).toString(16).toUpperCase().padStart(4, '0')}`;
  const listening = '0A';
  const sockets = new Set(
    readFileSync('/proc/net/tcp', 'latin1')
      .split('\n')
      .map((line) => line.trim().split(/\s+/))
      .filter(([, local = '', , state]) => local.endsWith(at) && state === listening)
      .map(({ 9: inode }) => `socket:[${inode}]`),
  );
  return (await relay.pids()).map(
    (pid) => readdirSync(`/proc/${pid}/fd`).filter((fd) => sockets.has(linkOf(pid, fd))).length,
  );
}

function linkOf(pid: number, fd: string): string {
  try {
    return readlinkSync(`/proc/${pid}/fd/${fd}`);
  } catch {
    return ''; // closed meanwhile
  }
}

/** Resolves when it is connected. */
async function socketTo(address: string): Promise<Socket> {
  const socket = connect({ host: address.slice(0, address.lastIndexOf(':')), port: portOf(address) });
  socket.on('error', () => {}).resume();
  await once(socket, 'connect');
  return socket;
}

describe('how workers listen', () => {
  let files: ResourceFiles;

  before(() => {
    files = new ResourceFiles();
    files.write('cds', new Map([['shop', '1']]));
  });

  after(() => files?.[Symbol.dispose]());

  const configOf = (more: object = {}): RelayConfig => ({ upstreams: [files.upstream], workers: 2, ...more });

  /** A relay that is started with these addresses, and ends. */
  async function refused(addresses: object): Promise<string> {
    using place = temporaryDirectory();
    const path = join(place.path, 'relay.json');
    const config = { ...configOf(), node: { id: 'relay' }, admin: { address: `${host}:0` }, ...addresses };
    writeFileSync(path, JSON.stringify(config));
    const { code, output } = await outcome(distributary('run', '--config', path));
    expect(code, output).to.equal(1);
    return output;
  }

  const inUse = (port: number): string =>
    `cannot listen on ${host}:${port}: the address is in use: another process listens there`;

  it('not without a directory for their sockets: the error says what to set', async () => {
    using place = temporaryDirectory();
    const path = join(place.path, 'relay.json');
    const address = `${host}:0`;
    writeFileSync(
      path,
      JSON.stringify({ ...configOf(), node: { id: 'relay' }, xds: { address }, admin: { address } }),
    );
    const none = join(place.path, 'none');
    const env = { TMPDIR: none };
    const { code, output } = await outcome({ ...distributary('run', '--config', path), env });
    expect(output).to.include(
      `workers need a directory for their sockets, and none can be made in ${none} (TMPDIR): there is no such file or directory`,
    );
    expect(code).to.equal(1);
  });

  it('each by itself, where ports can be shared', async function () {
    if (!isLinux) this.skip();
    await using relay = await RelayProcess.start(configOf({ rest: {} }));
    expect(await listeners(relay, relay.xds)).to.deep.equal([0, 1, 1]);
    expect(await listeners(relay, relay.rest)).to.deep.equal([0, 1, 1]);
  });

  it('through the primary, where they cannot', async function () {
    if (!isLinux) this.skip();
    const flags = [`--import=${join(import.meta.dirname, 'support/no-shared-ports.ts')}`];
    await using relay = await RelayProcess.start(configOf(), { flags });
    await using stack = new AsyncDisposableStack();
    for (const client of clientsOf(relay, many, stack)) await client.gets('cds');
    expect(await listeners(relay, relay.xds)).to.deep.equal([1, 0, 0]);
    expect(await refused({ xds: { address: relay.xds } })).to.include(inUse(portOf(relay.xds)));
  });

  for (const listener of ['xds', 'rest'])
    it(`${listener}: a port that another program shares is refused`, async function () {
      if (!isLinux) this.skip();
      await using other = createServer();
      const port = await ownPort();
      other.listen({ host, port, reusePort: true });
      await once(other, 'listening');
      const free = { address: `${host}:0` };
      const addresses = { xds: free, rest: free, [listener]: { address: `${host}:${port}` } };
      expect(await refused(addresses)).to.include(inUse(port));
    });

  it('of two relays that start at the same time on one port, one is refused, and the other has all clients', async () => {
    const port = await ownPort();
    using place = temporaryDirectory();
    const path = join(place.path, 'relay.json');
    const config = {
      ...configOf(),
      node: { id: 'relay' },
      admin: { address: `${host}:0` },
      xds: { address: `${host}:${port}` },
    };
    writeFileSync(path, JSON.stringify(config));
    const relays = [0, 1].map(() => new Process(distributary('run', '--config', path)));
    try {
      const outcomes = await Promise.allSettled(relays.map((relay) => relay.line(/^listening xds/)));
      expect(outcomes.map(({ status }) => status).toSorted()).to.deep.equal(['fulfilled', 'rejected']);
      const loser = relays[outcomes.findIndex(({ status }) => status === 'rejected')];
      expect(await loser?.exited).to.equal(1);
      expect(loser?.output).to.include(inUse(port));
    } finally {
      for (const relay of relays) await relay.stop();
    }
  });

  it('the next relay may begin while the clients of one that drains leave', async () => {
    const config = configOf({
      xds: { address: `${host}:${await ownPort()}` },
      rest: { address: `${host}:${await ownPort()}` },
      drain_timeout: '60s',
    });
    const first = await RelayProcess.start(config);
    try {
      await using stack = new AsyncDisposableStack();
      const clients = clientsOf(first, many, stack);
      for (const client of clients) await client.gets('cds');
      first.signal('SIGTERM');
      await eventually(() =>
        socketTo(first.xds)
          .then((socket) => socket.destroy())
          .then(fail, () => {}),
      );
      await using second = await RelayProcess.start(config);
      for (const client of clientsOf(second, 2, stack)) await client.gets('cds');
      expect(clients.every(hasEnded)).to.equal(false);
    } finally {
      await first.kill();
    }
  });

  it('port 0: the ports stay when all workers have been replaced', async () => {
    // Of an address that nobody else uses: while no worker listens, the ports are free.
    const address = isLinux ? '127.0.77.2:0' : `${host}:0`;
    await using relay = await RelayProcess.start(configOf({ xds: { address }, rest: { address } }));
    const [, ...pids] = await relay.pids();
    for (const pid of pids) signalTo(pid, 'SIGKILL');
    await eventually(async () => expect(await relay.metric('worker_restarts_total')).to.equal(2));
    await eventually(async () => expect((await relay.get('/ready')).status).to.equal(200));
    await using stack = new AsyncDisposableStack();
    for (const client of clientsOf(relay, 4, stack)) await client.gets('cds');
    await eventually(async () => (await socketTo(relay.rest)).destroy());
  });

  it('who waits for a worker that is stopped gets everything when it goes on; the others at once', async function () {
    if (!isLinux) this.skip();
    await using relay = await RelayProcess.start(configOf());
    await using stack = new AsyncDisposableStack();
    const [, stopped] = await relay.pids();
    signalTo(stopped, 'SIGSTOP');
    const clients = clientsOf(relay, many, stack);
    await eventually(() => expect(clients.some(isServed)).to.equal(true));
    signalTo(stopped, 'SIGCONT');
    for (const client of clients) await client.gets('cds');
  });

  it('who waits for a worker that is killed is disconnected, and nobody else', async function () {
    if (!isLinux) this.skip();
    await using relay = await RelayProcess.start(configOf());
    const [, stopped] = await relay.pids();
    signalTo(stopped, 'SIGSTOP');
    const sockets = await Promise.all(Array.from({ length: many }, () => socketTo(relay.xds)));
    signalTo(stopped, 'SIGKILL');
    await eventually(async () => {
      const open = sockets.filter(({ closed }) => !closed);
      expect(open).to.have.length.within(1, many - 1);
      expect(await relay.metric('downstream_connections')).to.equal(open.length);
    });
    await using stack = new AsyncDisposableStack();
    for (const client of clientsOf(relay, 4, stack)) await client.gets('cds');
    for (const socket of sockets) socket.destroy();
  });

  it('limits.max_connections: what workers take too much while they do not hear of each other ends', async function () {
    if (!isLinux) this.skip();
    await using relay = await RelayProcess.start(configOf({ limits: { max_connections: 10 } }));
    // The primary tells the workers.
    relay.signal('SIGSTOP');
    const sockets = await Promise.all(Array.from({ length: 2 * many }, () => socketTo(relay.xds)));
    const open = (): readonly Socket[] => sockets.filter(({ closed }) => !closed);
    // Each has taken all that it may have.
    await eventually(() => expect(open()).to.have.length.within(11, 20));
    relay.signal('SIGCONT');
    await eventually(() => expect(open()).to.have.length(10));
    expect(await relay.metric('downstream_connections')).to.equal(10);
    expect(await relay.metric('downstream_rejected_total', 'reason="connections"')).to.equal(2 * many - 10);
    for (const socket of sockets) socket.destroy();
  });

  it('a reload loses no connection, and no client that connects meanwhile', async () => {
    await using relay = await RelayProcess.start(configOf());
    await using stack = new AsyncDisposableStack();
    const before = clientsOf(relay, many, stack);
    for (const client of before) await client.gets('cds');
    relay.configure(configOf({ limits: { max_request_bytes: 5 << 20 } }));
    const during = clientsOf(relay, many, stack);
    await eventually(async () =>
      expect(await relay.metric('config_reloads_total', 'result="accepted"')).to.equal(1),
    );
    for (const client of [...during, ...clientsOf(relay, many, stack)]) await client.gets('cds');
    expect([...before, ...during].some(hasEnded)).to.equal(false);
  });
});

function fail(): never {
  throw new Error('the relay still listens');
}
