import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** Of a socket that only this user can connect to. */
export const socketMode = 0o600;

/** For the sockets between the primary and its workers. Its mode is 0700. */
export function makePrivateDirectory(): string {
  return mkdtempSync(join(tmpdir(), 'distributary-feed-'));
}

/** With everything in it. Several workers may do so at once, when the primary was killed. */
export function removePrivateDirectory(directory: string): void {
  try {
    rmSync(directory, { recursive: true, force: true });
  } catch {
    // another worker was faster
  }
}

/** The primary's, for xDS. What canaries see comes from the second one. */
export const feedSocket = (directory: string): string => join(directory, 'feed');
export const canaryFeedSocket = (directory: string): string => join(directory, 'feed-canary');

/** The primary's, for what workers ask. */
export const primarySocket = (directory: string): string => join(directory, 'primary');

/** For what the primary asks the worker in this slot. */
export const workerSocket = (directory: string, slot: number): string => join(directory, `worker-${slot}`);
