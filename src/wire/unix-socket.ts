import { existsSync, lstatSync } from 'node:fs';
import { lstat, unlink } from 'node:fs/promises';
import { createConnection } from 'node:net';
import { dirname } from 'node:path';
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

/** What the system's own error would not tell of a path that cannot be listened on. */
export function explainSocket(path: string): string | undefined {
  const directory = dirname(path);
  if (!existsSync(directory)) return `there is no directory ${directory}`;
  const info = lstatSync(path, { throwIfNoEntry: false });
  return info === undefined || info.isSocket() ? undefined : 'something else of that name is in the way';
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
