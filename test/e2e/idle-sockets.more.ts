import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { setTimeout } from 'node:timers/promises';
import { expect } from 'chai';
import { eventually } from './support/eventually.ts';
import { ResourceFiles } from './support/files.ts';
import { get } from './support/http.ts';
import { cpuSeconds } from './support/process-figures.ts';
import { RelayProcess } from './support/relay.ts';

/** Connections that say nothing, from so many addresses. So many at a time that the listener's queue holds them. */
async function silent(address: string, count: number, from: readonly string[]): Promise<readonly Socket[]> {
  const colon = address.lastIndexOf(':');
  const [host, port] = [address.slice(0, colon), Number(address.slice(colon + 1))];
  const sockets: Socket[] = [];
  while (sockets.length < count) {
    const some = Array.from({ length: Math.min(100, count - sockets.length) }, (_, index) => {
      const socket = connect({
        host,
        port,
        localAddress: from[(sockets.length + index) % from.length],
      });
      return socket.on('error', () => undefined);
    });
    sockets.push(...some);
    await Promise.all(some.map((socket) => once(socket, 'connect')));
    // It has accepted these once it answers. After the last ones nobody may come: they would give way.
    if (sockets.length < count) await get(`http://${address}/healthz`);
  }
  return sockets;
}

const others = (count: number): readonly string[] =>
  Array.from({ length: count }, (_, index) => `127.0.1.${1 + index}`);

/** Until a process has used no time for half a second. */
async function atRest(pid: number): Promise<void> {
  for (let before = -1, now = cpuSeconds(pid); now > before; now = cpuSeconds(pid)) {
    before = now;
    await setTimeout(500);
  }
}

describe('sockets that hold the listeners for probes', function () {
  this.timeout(180_000);
  let files: ResourceFiles;
  let relay: RelayProcess;
  let sockets: readonly Socket[] = [];

  beforeEach(async function () {
    // Of the whole 127.0.0.0/8, on Linux alone.
    if (process.platform !== 'linux') this.skip();
    files = new ResourceFiles();
    files.write('cds', new Map([['shop', '0']]));
    relay = await RelayProcess.start({ upstreams: [files.upstream], metrics: { address: '127.0.0.1:0' } });
  });

  afterEach(async () => {
    for (const socket of sockets) socket.destroy();
    await relay?.[Symbol.asyncDispose]();
    files?.[Symbol.dispose]();
  });

  for (const door of ['metrics', 'admin'] as const) {
    for (const addresses of [1, 100]) {
      it(`1,200 silent ones leave places for probes, and end soon: ${door}, ${addresses} addresses`, async () => {
        sockets = await silent(relay[door], 1200, others(addresses));
        const open = (): number => sockets.filter(({ closed }) => !closed).length;
        for (const socket of sockets) socket.resume();
        await eventually(() => expect(open()).to.be.at.most(addresses === 1 ? 250 : 1000));
        for (let probe = 0; probe < 5; probe++) {
          expect((await get(`http://${relay[door]}/healthz`)).status).to.equal(200);
        }
        await eventually(() => expect(open()).to.equal(0));
      });
    }

    it(`250 whose request never ends leave places for probes of their address: ${door}`, async () => {
      sockets = await silent(relay[door], 250, ['127.0.0.1']);
      const asked = 'GET /healthz HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1\r\n\r\n';
      const answers = sockets.map((socket) => once(socket, 'data'));
      for (const socket of sockets) socket.write(asked);
      await Promise.all(answers);
      for (let probe = 0; probe < 5; probe++) {
        expect((await get(`http://${relay[door]}/healthz`)).status).to.equal(200);
      }
    });

    it(`250 that ask and do not read the answer leave places for probes of their address: ${door}`, async () => {
      sockets = await silent(relay[door], 250, ['127.0.0.1']);
      const asked = 'GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n'.repeat(60);
      for (const socket of sockets) socket.pause().write(asked);
      // It has nothing left to do once every answer waits in the relay, since the system takes no more of it.
      await atRest(relay.pid);
      for (let probe = 0; probe < 5; probe++) {
        expect((await get(`http://${relay[door]}/healthz`)).status).to.equal(200);
      }
    });
  }
});
