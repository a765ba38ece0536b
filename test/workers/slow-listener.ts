/** A worker that is held up from when it has asked to listen until a file is there. Arguments: protocol, port, path. */
import { existsSync } from 'node:fs';
import { listenHttp } from '../../src/wire/http-server.ts';
import { listenGrpc } from '../../src/wire/http2-server.ts';

const [protocol, port = '', path = ''] = process.argv.slice(2);
const common = { address: `127.0.0.1:${port}`, maxRequestBytes: 4 << 20 };
const longestMs = 30_000;

const listening =
  protocol === 'grpc'
    ? listenGrpc({ ...common, accept: () => undefined })
    : listenHttp({
        ...common,
        route: () => ({ status: 404, type: 'text/plain', body: '' }),
        stalledTimeout: () => 60_000,
      });
// Node asks the primary in the next tick. This one is after it, and before anything is read.
process.nextTick(() => {
  const cell = new Int32Array(new SharedArrayBuffer(4));
  for (const since = Date.now(); !existsSync(path) && Date.now() - since < longestMs; )
    Atomics.wait(cell, 0, 0, 10);
});
await listening;
