import { parentPort, workerData } from 'node:worker_threads';
import { type DiskRequest, DiskServer } from './disk-server.ts';

/** A thread for the disk: SQLite waits for it, and nothing that serves may. */
const directory: unknown = workerData;
const server = new DiskServer(String(directory));
parentPort?.on('message', (request: DiskRequest) => parentPort?.postMessage(server.answer(request), []));
