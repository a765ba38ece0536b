import cluster from 'node:cluster';
import { readFileSync } from 'node:fs';
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
  /** A signal or a debugger has stopped it, and it will go on. Told by the kernel (Linux); elsewhere false. */
  isSuspended(): boolean;
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
    isSuspended: () => isSuspended(worker.process.pid),
  };
}

function isSuspended(pid: number | undefined): boolean {
  try {
    const stat = readFileSync(`/proc/${pid ?? 0}/stat`, 'latin1');
    return /^ [tT]/.test(stat.slice(stat.lastIndexOf(')') + 1));
  } catch {
    return false;
  }
}
