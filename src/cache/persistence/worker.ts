import { parentPort, workerData } from 'node:worker_threads';
import type { DiskRequest } from './records.ts';
import { DiskServer } from './server.ts';

/** A thread for the disk: SQLite waits for it, and nothing that serves may. */
const directory: unknown = workerData;
const port = parentPort;
// oxlint-disable-next-line unicorn/require-post-message-target-origin -- a thread, not a window
const server = new DiskServer(String(directory), (reply) => port?.postMessage(reply));
port?.on('message', (request: DiskRequest) => server.take(request));
