import { url } from 'node:inspector';
import { Worker } from 'node:worker_threads';
import { threadProgram } from '../package/files.ts';
import type { LogFormat } from './log-levels.ts';

/**
 * A standstill is measured in ticks of whoever watches, and not by a clock. A process that was suspended, by a signal or
 * with its machine, has no ticks meanwhile: whoever watches was suspended too.
 */
export const ticks = {
  /** Where the event loop stands is logged. */
  logged: 5,
  /** The primary ends a worker. */
  replaced: 10,
  /** The process aborts: `watchdog.timeout`. */
  aborted: 30,
  /** The primary ends a worker that does not listen yet: on a busy machine a start takes long. */
  listens: 60,
} as const;

/** Milliseconds; undefined: nobody watches. A process with an open debugger (--inspect) may stand still on purpose. */
export function tickOf({
  enabled,
  timeoutMs,
}: {
  readonly enabled: boolean;
  readonly timeoutMs: number;
}): number | undefined {
  return enabled && url() === undefined ? timeoutMs / ticks.aborted : undefined;
}

/** What the thread starts with. */
export interface WatchdogData {
  /** One number, which the event loop counts up. */
  readonly turns: Int32Array<SharedArrayBuffer>;
  readonly tickMs: number;
  readonly format: LogFormat;
  readonly fields: Readonly<Record<string, unknown>>;
}

/**
 * A thread that notices when the event loop of this process stands still. It does not keep the process alive. `fields`: in
 * each line of the log. `turned`: the event loop has turned, called at once, and once a tick. `failed`: there is no watchdog
 * any more.
 */
export function startWatchdog(
  config: Parameters<typeof tickOf>[0],
  format: LogFormat,
  failed: (error: unknown) => void,
  fields: WatchdogData['fields'] = {},
  turned?: () => void,
): Disposable | undefined {
  const tickMs = tickOf(config);
  if (tickMs === undefined) return undefined;
  const turns = new Int32Array(new SharedArrayBuffer(Int32Array.BYTES_PER_ELEMENT));
  const turn = (): void => {
    Atomics.add(turns, 0, 1);
    turned?.();
  };
  turn();
  const timer = setInterval(turn, tickMs).unref();
  const [file, options] = threadProgram('observe/watchdog-thread');
  const thread = new Worker(file, { ...options, execArgv: [] });
  const data: WatchdogData = { turns, tickMs, format, fields };
  thread.postMessage(data, []);
  thread.unref();
  thread.on('error', failed);
  return {
    [Symbol.dispose]: () => {
      clearInterval(timer);
      void thread.terminate();
    },
  };
}
