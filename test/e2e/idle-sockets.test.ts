import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { expect } from 'chai';
import { eventually } from './support/eventually.ts';
import { ResourceFiles } from './support/files.ts';
import { get } from './support/http.ts';
import { RelayProcess } from './support/relay.ts';

/** Connections that say nothing, from so many addresses. */
async function silent(address: string, count: number, addresses: number): Promise<readonly Socket[]> {
  const colon = address.lastIndexOf(':');
  const [host, port] = [address.slice(0, colon), Number(address.slice(colon + 1))];
  return Promise.all(
    Array.from({ length: count }, async (_, index) => {
      const socket = connect({ host, port, localAddress: `127.0.1.${1 + (index % addresses)}` });
      socket.on('error', () => undefined);
      await once(socket, 'connect');
      return socket;
    }),
  );
}

describe('1,200 silent sockets on the listeners for probes', function () {
  this.timeout(60_000);
  let files: ResourceFiles;
  let relay: RelayProcess;

  before(async function () {
    // Of the whole 127.0.0.0/8, on Linux alone.
    if (process.platform !== 'linux') this.skip();
    files = new ResourceFiles();
    files.write('cds', new Map([['shop', '0']]));
    relay = await RelayProcess.start({ upstreams: [files.upstream], metrics: { address: '127.0.0.1:0' } });
  });

  after(async () => {
    await relay?.[Symbol.asyncDispose]();
    files?.[Symbol.dispose]();
  });

  for (const door of ['metrics', 'admin'] as const) {
    for (const addresses of [1, 100]) {
      it(`leave places for probes, and end soon: ${door}, ${addresses} addresses`, async () => {
        const sockets = await silent(relay[door], 1200, addresses);
        const open = (): number => sockets.filter(({ closed }) => !closed).length;
        for (const socket of sockets) socket.resume();
        await eventually(() => expect(open()).to.be.at.most(addresses === 1 ? 250 : 1000));
        for (let probe = 0; probe < 5; probe++) {
          expect((await get(`http://${relay[door]}/healthz`)).status).to.equal(200);
        }
        await eventually(() => expect(open()).to.equal(0), { timeout: 30_000 });
      });
    }
  }
});
