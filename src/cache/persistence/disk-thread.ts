import { parentPort, workerData } from 'node:worker_threads';
import { type DiskRequest, DiskServer } from './disk-server.ts';

/** A thread for the disk: SQLite waits for it, and nothing that serves may. */
const directory: unknown = workerData;
const server = new DiskServer(String(directory));
parentPort?.on('message', (request: DiskRequest) => {
  if (request.operation !== 'read') {
    parentPort?.postMessage(server.answer(request), []);
    return;
  }
  const part = server.answer(request);
  const bytes = part.ok ? part.value?.payloads.bytes : undefined;
  parentPort?.postMessage(part, bytes === undefined ? [] : [bytes.buffer]);
});
