import { lstat, unlink } from 'node:fs/promises';
import { createConnection } from 'node:net';
import { errorCode } from './node-error.ts';

/**
 * Removes the file of a Unix socket that nobody listens on any more: a process that was killed leaves it behind, and
 * it would be "in use" for ever. Anything that is not a socket stays, and so does one that answers.
 */
export async function removeStaleSocket(path: string): Promise<void> {
  const info = await lstat(path).catch(() => undefined);
  if (info?.isSocket() !== true) return;
  if (await refuses(path)) await unlink(path).catch(() => undefined);
}

function refuses(path: string): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = createConnection({ path });
    socket.on('connect', () => {
      socket.destroy();
      resolve(false);
    });
    socket.on('error', (error) => resolve(errorCode(error) === 'ECONNREFUSED'));
  });
}
