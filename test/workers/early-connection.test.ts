import cluster from 'node:cluster';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { connect as connectHttp2 } from 'node:http2';
import { connect, type Socket } from 'node:net';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { eventually } from '../e2e/support/eventually.ts';
import { temporaryDirectory } from '../e2e/support/paths.ts';
import { ownPort } from '../support/ports.ts';

const program = join(import.meta.dirname, 'slow-listener.ts');

async function connected(port: number): Promise<Socket> {
  const socket = connect(port, '127.0.0.1');
  await once(socket, 'connect');
  return socket;
}

describe('a connection that node:cluster hands to a worker before the worker knows that it listens', () => {
  for (const protocol of ['grpc', 'http'])
    it(`is served: ${protocol}`, async () => {
      using files = temporaryDirectory();
      const port = await ownPort();
      const proceed = join(files.path, 'proceed');
      cluster.setupPrimary({ exec: program, args: [protocol, String(port), proceed] });
      const worker = cluster.fork();
      try {
        const socket = await eventually(() => connected(port));
        // The primary's word that it listens and the connection are both on their way to the worker now.
        await sleep(200);
        writeFileSync(proceed, '');
        const session = connectHttp2('http://localhost', { createConnection: () => socket });
        await once(session, 'remoteSettings', { signal: AbortSignal.timeout(20_000) });
        session.destroy();
      } finally {
        worker.process.kill('SIGKILL');
        await once(worker, 'exit');
      }
    });
});
