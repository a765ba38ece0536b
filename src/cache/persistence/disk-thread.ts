import { parentPort, workerData } from 'node:worker_threads';
import { DiskServer } from './disk-server.ts';
import type { DiskRequest } from './records.ts';

/** A thread for the disk: SQLite waits for it, and nothing that serves may. */
const directory: unknown = workerData;
const port = parentPort;
const server = new DiskServer(String(directory), (reply) => {
  port?.postMessage(reply, reply.kind === 'part' ? [reply.part.payloads.bytes.buffer] : []);
});
port?.on('message', (request: DiskRequest) => server.take(request));
