import type { ChildProcess } from 'node:child_process';
import cluster, { type Worker } from 'node:cluster';
import { readFileSync } from 'node:fs';
import type { Plain } from '../admin/service.ts';
import type { ClientListeners } from '../client-serving.ts';
import type { Load } from '../core.ts';
import type { WorkerStatus } from '../gen/distributary/admin/v1/admin_pb.ts';
import { Backoff, type Clock, type Timer } from '../model/clock.ts';
import type { Log } from '../observe/log.ts';
import type { Series } from '../observe/series.ts';
import { ticks } from '../observe/watchdog.ts';
import { programPath } from '../package/files.ts';
import { explainError } from '../wire/node-error.ts';
import {
  anotherBuild,
  isToPrimary,
  type Message,
  sealed,
  type ToPrimary,
  type ToWorker,
} from './ipc-messages.ts';
import { WorkerClient } from './worker-client.ts';

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

/** What a process tells. */
export type WorkerHandler = Pick<WorkerSlot, 'message' | 'ended'>;

interface WorkerSlotOptions {
  /** From 1. */
  readonly number: number;
  /** Where its process answers. */
  readonly socket: string;
  readonly clock: Clock;
  /** Of the watchdog, in milliseconds; undefined: nobody watches. */
  readonly tickMs: number | undefined;
  readonly log: Log;
  readonly random: () => number;
  readonly fork: (handler: WorkerHandler) => WorkerProcess;
  /** The first messages to a new process. */
  readonly opening: () => readonly ToWorker[];
  /** It listens or has ended, or the number of its streams or connections has changed. */
  readonly changed: () => void;
  /** A process has ended, with these counters. `listened`: it had clients, and said this last of them; not while it drains. */
  readonly ended: (
    series: readonly Series[],
    listened: boolean,
    report: Message<'canary_report'> | undefined,
  ) => void;
  readonly restarted: () => void;
  /** Its clients have answered a change, reported traffic or shown an intermediate, or its canaries say something else. */
  readonly heard: (message: Message<'answers' | 'canary_report' | 'intermediate' | 'traffic'>) => void;
}

const NO_LOAD: Load = { streams: 0, connections: 0 };

/** Milliseconds. */
const firstRestartMs = 200;
const longestRestartMs = 30_000;
/** A worker that has run for this long resets the backoff of its slot. Milliseconds. */
const stableAfterMs = 30_000;
/** So long a start may take, however short `watchdog.timeout` is: a machine that boots is busy. */
const shortestStartMs = 60_000;
const startTicks = (tickMs = 1000): number => Math.max(ticks.listens, Math.ceil(shortestStartMs / tickMs));

interface Running {
  readonly kind: 'running';
  readonly process: WorkerProcess;
  addresses: ClientListeners['addresses'];
  /** Ticks until it is killed, if it says nothing. */
  left: number;
  /** Why it cannot go on, as it has said itself. */
  failure?: string | undefined;
}

type State = Running | { readonly kind: 'waiting'; readonly timer: Timer } | { readonly kind: 'over' };

/** One slot of the worker pool. If its process ends, another one is started in the same slot. */
export class WorkerSlot {
  readonly number: number;
  /** What its clients have open. */
  load: Load = NO_LOAD;
  /** Its series when they were last read. */
  series: readonly Series[] = [];
  /** What its canaries said last to a change that waits. */
  report: Message<'canary_report'> | undefined;
  readonly #options: WorkerSlotOptions;
  readonly #client: WorkerClient;
  readonly #backoff: Backoff;
  #state: State = { kind: 'over' };
  #startedAt = 0;
  #restarts = 0;
  /** Why the last process ended; empty if none has. */
  lastError = '';
  #ending = false;
  #onEnded: (() => void) | undefined;

  constructor(options: WorkerSlotOptions) {
    this.number = options.number;
    this.#options = options;
    this.#client = new WorkerClient(options.socket);
    this.#backoff = new Backoff(firstRestartMs, longestRestartMs, options.random);
    this.#start();
  }

  /** None while it does not listen. */
  get addresses(): ClientListeners['addresses'] {
    return this.#state.kind === 'running' ? this.#state.addresses : [];
  }

  get listening(): boolean {
    return this.addresses.length > 0;
  }

  /** To ask the process; undefined while it does not listen. */
  get client(): WorkerClient | undefined {
    return this.listening ? this.#client : undefined;
  }

  /** Whether a stream with this id is, or was, one of this process. */
  owns(stream: string): boolean {
    return this.#state.kind === 'running' && stream.startsWith(`${this.#state.process.id}-`);
  }

  get status(): Plain<WorkerStatus> {
    return {
      number: this.number,
      pid: this.#state.kind === 'running' ? this.#state.process.pid : 0,
      listening: this.listening,
      clients: this.load.streams,
      restarts: this.#restarts,
      lastError: this.lastError,
    };
  }

  send(message: ToWorker): void {
    if (this.#state.kind === 'running') this.#state.process.send(message);
  }

  /** Ends the process, by itself or after this time, without a new one; resolves when it has ended. */
  async end(milliseconds: number): Promise<void> {
    this.#ending = true;
    if (this.#state.kind === 'waiting') {
      this.#state.timer.cancel();
      this.#state = { kind: 'over' };
    }
    if (this.#state.kind !== 'running') return;
    const { process } = this.#state;
    const timer = this.#options.clock.after(milliseconds, () => process.kill());
    await new Promise<void>((resolve) => {
      this.#onEnded = resolve;
    });
    timer.cancel();
  }

  #start(): void {
    const { clock, fork, opening } = this.#options;
    this.#startedAt = clock.monotonic();
    const process = fork(this);
    const running: Running = {
      kind: 'running',
      process,
      addresses: [],
      left: startTicks(this.#options.tickMs),
    };
    this.#state = running;
    for (const message of opening()) process.send(message);
    this.#watch(running);
  }

  /** Ends a process that does not begin to listen, or whose event loop stands still: it hears no other signal than SIGKILL. */
  #watch(running: Running): void {
    const { clock, tickMs } = this.#options;
    if (tickMs === undefined) return;
    clock.after(tickMs, () => {
      if (this.#state !== running) return;
      // The start of the relay waits for one that does not listen yet.
      const mayStand = running.addresses.length > 0 && running.process.isSuspended();
      running.left = mayStand ? ticks.replaced : running.left - 1;
      if (running.left === 0) running.process.kill();
      this.#watch(running);
    });
  }

  message(message: ToPrimary): void {
    if (this.#state.kind !== 'running') return;
    switch (message.kind) {
      case 'listening':
        this.#state.addresses = message.addresses;
        this.#options.changed();
        return;
      case 'failed':
        this.#state.failure = message.reason;
        return;
      case 'load_here':
        this.load = message.load;
        this.#options.changed();
        return;
      case 'turned':
        this.#state.left = ticks.replaced;
        return;
      case 'canary_report':
        this.report = message;
        this.#options.heard(message);
        return;
      case 'answers':
      case 'intermediate':
      case 'traffic':
        this.#options.heard(message);
        return;
      default:
        message satisfies never;
    }
  }

  /** The process has ended. `signal`: how, for messages. */
  ended(signal: string): void {
    const { clock, log, ended, changed, restarted, tickMs = 0 } = this.#options;
    if (this.#state.kind !== 'running') return;
    const { process, addresses, left, failure } = this.#state;
    const listened = addresses.length > 0;
    const seconds = (tickMs * (listened ? ticks.replaced : startTicks(tickMs))) / 1000;
    const silence = listened ? 'its event loop was blocked' : 'nothing was heard of it';
    const how = left > 0 ? signal : `${silence} for ${seconds} s`;
    const { series, report } = this;
    this.series = [];
    this.load = NO_LOAD;
    this.report = undefined;
    if (this.#ending) {
      this.#state = { kind: 'over' };
      ended(series, false, undefined);
      this.#onEnded?.();
      return;
    }
    this.lastError = failure ?? (listened ? how : `${how}, before it listened`);
    if (clock.monotonic() - this.#startedAt >= stableAfterMs) this.#backoff.reset();
    const wait = this.#backoff.next();
    log.error('a worker has exited: another one replaces it', {
      worker: process.id,
      worker_pid: process.pid,
      reason: this.lastError,
      milliseconds: Math.round(wait),
    });
    const timer = clock.after(wait, () => {
      this.#restarts++;
      restarted();
      this.#start();
    });
    this.#state = { kind: 'waiting', timer };
    changed();
    ended(series, listened, report);
  }
}

/** Starts a process of this very program. Where it does not share a port, it listens through the primary. */
export function forkWorker(handler: WorkerHandler): WorkerProcess {
  cluster.setupPrimary({ exec: programPath(), args: [], serialization: 'advanced' });
  const failed = (error: unknown): void => handler.ended(`it could not be started: ${explainError(error)}`);
  let worker: Worker;
  try {
    worker = cluster.fork();
  } catch (error) {
    setImmediate(failed, error);
    return { id: 0, pid: 0, send: () => {}, kill: () => {}, isSuspended: () => false };
  }
  // Without descriptors there is no channel to it.
  const closeUntaken = worker.process.connected ? untakenConnections(worker.process) : () => {};
  worker.on('message', (message: unknown) => {
    handler.message(isToPrimary(message) ? message : anotherBuild);
    if (!isToPrimary(message)) worker.process.kill('SIGKILL');
  });
  worker.once('error', (error) => {
    if (worker.process.pid !== undefined) return; // `exit` follows, or it has not heard us
    closeUntaken();
    // Without a process there is no `exit`, after which node:cluster forgets it.
    delete cluster.workers?.[worker.id];
    failed(error);
  });
  worker.on('error', () => {});
  worker.on('exit', (code: number | null, signal: string | null) => {
    closeUntaken();
    handler.ended(signal === null ? `exit code ${code ?? 'unknown'}` : `signal ${signal}`);
  });
  return {
    id: worker.id,
    pid: worker.process.pid ?? 0,
    send(message) {
      if (worker.isConnected()) worker.send(sealed(message), () => {});
    },
    kill: () => worker.process.kill('SIGKILL'),
    isSuspended: () => isSuspended(worker.process.pid),
  };
}

/**
 * Of listeners that share no port, node:cluster sends a process one connection of each at a time, and closes its own end when
 * the process has taken it. If the process ends before that, it would stay open, and its client would wait for ever. Returns
 * what closes these. None of this is documented: where it is otherwise, nothing is closed.
 */
function untakenConnections(child: ChildProcess): () => void {
  const latest = new Map<unknown, { close(): void }>();
  const send = child.send.bind(child);
  child.send = (...[message, handle, ...more]: readonly unknown[]) => {
    if (isHandle(handle)) latest.set(Reflect.get(Object(message), 'key'), handle);
    return Reflect.apply(send, undefined, [message, handle, ...more]) === true;
  };
  return () => {
    for (const handle of latest.values()) handle.close();
  };
}

const isHandle = (value: unknown): value is { close(): void } =>
  typeof value === 'object' && value !== null && 'close' in value && typeof value.close === 'function';

function isSuspended(pid: number | undefined): boolean {
  try {
    const stat = readFileSync(`/proc/${pid ?? 0}/stat`, 'latin1');
    return /^ [tT]/.test(stat.slice(stat.lastIndexOf(')') + 1));
  } catch {
    return false;
  }
}
