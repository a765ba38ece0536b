import { once } from 'node:events';
import { createServer, type Server } from 'node:net';

/** Systems choose ports from 32768 (Linux) or 49152 (macOS) on; below it a port is only taken by who names it. */
const least = 12_000;
const most = 32_000;

/**
 * A port of 127.0.0.1 that is this process's until it ends, also while nothing listens on it. For who listens later, or
 * again: a port that the system has chosen once goes to others when it is free.
 */
export async function ownPort(): Promise<number> {
  for (;;) {
    const port = least + 2 * Math.floor((Math.random() * (most - least)) / 2);
    // Every test that wants the even port takes the odd one first, and keeps it.
    const claim = await taken(port + 1);
    if (claim === undefined) continue;
    const free = await taken(port);
    if (free === undefined) {
      claim.close();
      continue;
    }
    free.close();
    await once(free, 'close');
    claim.unref();
    return port;
  }
}

async function taken(port: number): Promise<Server | undefined> {
  const server = createServer();
  server.listen(port, '127.0.0.1');
  try {
    await once(server, 'listening');
    return server;
  } catch {
    return undefined;
  }
}
