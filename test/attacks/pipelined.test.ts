import { once } from 'node:events';
import { connect } from 'node:net';
import { expect } from 'chai';
import { manyResources, ResourceFiles } from '../e2e/support/files.ts';
import { RelayProcess } from '../e2e/support/relay.ts';

const requests = 500;
/** CPU of the loop without a turn, in milliseconds; one answer takes 2. */
const most = 400;

describe('five hundred requests in one packet', () => {
  let files: ResourceFiles;
  let relay: RelayProcess;

  before(async () => {
    files = new ResourceFiles();
    files.write('cds', manyResources(100));
    relay = await RelayProcess.startProbed({ upstreams: [files.upstream], metrics: {}, rest: {} });
  });

  after(async () => {
    await relay?.[Symbol.asyncDispose]();
    files?.[Symbol.dispose]();
  });

  for (const [door, path] of [
    ['metrics', '/metrics'],
    ['admin', '/metrics'],
  ] as const) {
    it(`share one answer: ${door} ${path}`, async () => {
      const [host = '', port = ''] = relay[door].split(':');
      const head = `GET ${path} HTTP/1.1\r\nhost: ${relay[door]}\r\n`;
      const socket = connect({ host, port: Number(port) });
      socket.resume();
      const ended = once(socket, 'close');
      await relay.blocked();
      socket.write(`${`${head}\r\n`.repeat(requests - 1)}${head}connection: close\r\n\r\n`);
      await ended;
      const { cpu } = await relay.blocked();
      if (process.env['FIGURES'] === '1') process.stdout.write(`${cpu.toFixed()} ms  ${door} ${path}\n`);
      expect(cpu).to.be.below(most);
    });
  }

  for (const door of ['rest', 'metrics', 'admin'] as const) {
    it(`of many connections, that Node would answer itself: ${door}`, async () => {
      const [host = '', port = ''] = relay[door].split(':');
      const sockets = Array.from({ length: 20 }, () => connect({ host, port: Number(port) }));
      const closed = sockets.map((socket) =>
        once(
          socket.resume().on('error', () => undefined),
          'close',
        ),
      );
      await Promise.all(sockets.map((socket) => once(socket, 'connect')));
      await relay.blocked();
      for (const socket of sockets) socket.write('GET / HTTP/1.1\r\nhost:\r\nexpect: x\r\n\r\n'.repeat(1800));
      await Promise.all(closed);
      const { cpu } = await relay.blocked();
      if (process.env['FIGURES'] === '1') process.stdout.write(`${cpu.toFixed()} ms  ${door}\n`);
      // Of each connection Node reads 64 KB before it is cut, and that once.
      expect(cpu).to.be.below(4 * most);
    });
  }
});
