import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';

/** A server that answers with its name. */
export interface Backend extends AsyncDisposable {
  readonly name: string;
  readonly port: number;
}

export async function startBackend(name: string): Promise<Backend> {
  const server = createServer((_, response) => response.end(name));
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    name,
    port: portOf(server.address()),
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      server.close();
      await once(server, 'close');
    },
  };
}

function portOf(address: AddressInfo | string | null): number {
  if (address === null || typeof address === 'string') throw new Error('no port');
  return address.port;
}
