import cluster from 'node:cluster';
import { extname, join } from 'node:path';
import { executable } from '../package/files.ts';
import { readToPrimary, type ToPrimary, type ToWorker } from './ipc-messages.ts';

/** A worker's process, as the primary sees it. */
export interface WorkerProcess {
  /** Never used again in this run. */
  readonly id: number;
  readonly pid: number;
  /** Does nothing if the process has ended. */
  send(message: ToWorker): void;
  kill(): void;
}

export interface WorkerHandler {
  message(message: ToPrimary): void;
  /** The process has ended. `how`: for messages. */
  ended(how: string): void;
}

/** Next to this file, be it src/ or dist/. The executable knows that it is a worker (src/executable.ts). */
const program = executable
  ? process.execPath
  : join(import.meta.dirname, `main${extname(import.meta.filename)}`);

/** Starts a process of this very program; all of them listen through the primary. */
export function forkWorker(handler: WorkerHandler): WorkerProcess {
  cluster.setupPrimary({ exec: program, args: [], serialization: 'advanced' });
  const worker = cluster.fork();
  worker.on('message', (message: unknown) => handler.message(readToPrimary(message)));
  worker.on('error', () => {}); // `exit` follows, or it has not heard us
  worker.on('exit', (code: number | null, signal: string | null) => {
    handler.ended(signal === null ? `exit code ${code ?? 'unknown'}` : `signal ${signal}`);
  });
  return {
    id: worker.id,
    pid: worker.process.pid ?? 0,
    send(message) {
      if (worker.isConnected()) worker.send(message, () => {});
    },
    kill: () => worker.process.kill('SIGKILL'),
  };
}
