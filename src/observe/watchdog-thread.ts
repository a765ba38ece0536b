/** Sees that the event loop of the main thread stands still, says where, and ends the process. */
import { type Debugger, type InspectorNotification, Session } from 'node:inspector';
import { parentPort } from 'node:worker_threads';
import type { Log } from './log.ts';
import { ticks, type WatchdogData } from './watchdog.ts';

/** For the main thread to say where it stands, and for that to be written too, in milliseconds. */
const patienceMs = 2000;
const abortAfterMs = 4000;
const mostFrames = 30;
const unknown = 'unknown: it is in native code';

/** The main thread, halted by its debugger if it runs JavaScript. Until `end`. */
class Halted {
  readonly #session = new Session();
  readonly #scripts = new Map<string, string>();
  /** The innermost function first. */
  readonly stack: Promise<readonly string[]>;

  constructor() {
    const { promise, resolve } = Promise.withResolvers<readonly string[]>();
    this.stack = promise;
    const session = this.#session;
    session.on(
      'Debugger.scriptParsed',
      ({ params }: InspectorNotification<Debugger.ScriptParsedEventDataType>) => {
        this.#scripts.set(params.scriptId, params.url);
      },
    );
    session.on('Debugger.paused', ({ params }: InspectorNotification<Debugger.PausedEventDataType>) => {
      resolve(params.callFrames.slice(0, mostFrames).map((frame) => this.#line(frame)));
    });
    setTimeout(() => resolve([unknown]), patienceMs);
    session.connectToMainThread();
    session.post('Debugger.enable');
    session.post('Debugger.pause');
  }

  run(expression: string): void {
    this.#session.post('Runtime.evaluate', { expression });
  }

  end(): void {
    this.#session.post('Debugger.resume');
    this.#session.disconnect();
  }

  #line({ functionName, location }: Debugger.CallFrame): string {
    const { scriptId, lineNumber, columnNumber = 0 } = location;
    const script = this.#scripts.get(scriptId) ?? '';
    return `${functionName === '' ? '<anonymous>' : functionName} (${script}:${lineNumber + 1}:${columnNumber + 1})`;
  }
}

/** The log of this thread; loaded only now, because it would have memory in every process for ever. */
async function openLog({ format, fields }: WatchdogData): Promise<Log> {
  const { createLog } = await import('./log.ts');
  return createLog({ format }).child(fields);
}

function watch(data: WatchdogData): void {
  const { turns, tickMs } = data;
  let last = 0;
  let missed = 0;
  setInterval(() => {
    const now = Atomics.load(turns, 0);
    missed = now === last ? missed + 1 : 0;
    last = now;
    if (missed === ticks.logged) void say();
    else if (missed === ticks.aborted) void abort();
  }, tickMs);

  async function say(): Promise<void> {
    const main = new Halted();
    const stack = await main.stack;
    main.end();
    const log = await openLog(data);
    log.error('the event loop is blocked', { milliseconds: tickMs * ticks.logged, stack });
  }

  async function abort(): Promise<void> {
    const main = new Halted();
    // Whether or not a line can be written.
    setTimeout(() => {
      process.kill(process.pid, 'SIGABRT');
      // The first process of a container is not ended by signals from within.
      main.run('process.abort()');
    }, abortAfterMs);
    const stack = await main.stack;
    const log = await openLog(data);
    const milliseconds = tickMs * ticks.aborted;
    log.error('the event loop is blocked: the process aborts', { milliseconds, stack });
  }
}

parentPort?.once('message', watch);
