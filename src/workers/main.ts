import cluster from 'node:cluster';
import { openTraces } from '../core.ts';
import { collectAsHeldMemoryGrows } from '../external-memory.ts';
import { createLog } from '../observe/log.ts';
import { LogLevels } from '../observe/log-levels.ts';
import { startWatchdog } from '../observe/watchdog.ts';
import { anotherBuild, isToWorker, type Message, sealed, type ToPrimary } from './ipc-messages.ts';
import { removePrivateDirectory } from './private-socket.ts';
import { Worker } from './worker.ts';

/** What a worker process runs. Only the primary starts it, configures it (over IPC) and ends it. */
export function runWorker(): void {
  collectAsHeldMemoryGrows();
  let worker: Promise<Worker | undefined> = Promise.resolve(undefined);
  // A terminal's Ctrl-C and a service manager reach the whole group of processes: the primary drains, then so do we.
  // SIGUSR1 would open Node's debugger.
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP', 'SIGUSR1'] as const) process.on(signal, () => {});
  process.on('message', (message) => {
    if (!isToWorker(message)) fail(anotherBuild);
    else if (message.kind === 'start') worker = start(message);
    else if (message.kind === 'drain') void worker.then((started) => drain(started, message.milliseconds));
    else void worker.then((started) => started?.receive(message));
  });
}

async function start(message: Message<'start'>): Promise<Worker | undefined> {
  const { config, directory, level, logFormat: format, version } = message;
  // The primary removes it, unless it was killed.
  process.once('exit', () => {
    if (!process.connected) removePrivateDirectory(directory);
  });
  const id = cluster.worker?.id ?? 0;
  const logLevels = new LogLevels(level);
  const log = createLog({ levels: logLevels, format }).child({ worker: id });
  const spans = await openTraces(config, log, version, id);
  const worker = new Worker(id, message, log, logLevels, send, spans);
  const listening = await worker.open();
  if (!listening.ok) {
    fail({ kind: 'failed', reason: listening.error });
    return undefined;
  }
  const failed = (error: unknown): void => log.error('the watchdog has exited', { error });
  startWatchdog(config.watchdog, format, failed, { worker: id }, () => send({ kind: 'turned' }));
  return worker;
}

function fail(why: Message<'failed'>): void {
  send(why, () => process.exit(1));
}

async function drain(worker: Worker | undefined, milliseconds: number): Promise<void> {
  await worker?.drain(milliseconds);
  process.exit(0);
}

/** Without a connected primary nothing is sent, and node:cluster ends this process. */
function send(message: ToPrimary, sent: () => void = () => {}): void {
  if (process.connected) process.send?.(sealed(message), undefined, undefined, () => sent());
  else sent();
}
