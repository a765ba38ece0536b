import { extname } from 'node:path';
import { Worker, type WorkerOptions } from 'node:worker_threads';
import type { TypeUrl } from '../../model/brand.ts';
import { fail, type Result } from '../../model/result.ts';
import { executable, packageFile } from '../../package/files.ts';
import type { DiskError, Opened, RowBatch } from './records.ts';

/** What persistence asks of the disk, one thing at a time. */
export interface Disk extends RemoteOperations {
  /** Whatever it is doing: the process does not wait for it any more. */
  abandon(): void;
}

/** The thread's program: next to this file, be it src/ or dist/, or as a script inside the executable. */
const program = (): readonly [URL | string, WorkerOptions] =>
  executable
    ? [packageFile('disk-thread.cjs').toString(), { eval: true }]
    : [new URL(`./disk-thread${extname(import.meta.filename)}`, import.meta.url), {}];

/** SQLite on a thread of its own, which starts with `open`. */
export class WorkerDisk implements Disk {
  readonly read = this.#remote('read');
  readonly begin = this.#remote('begin');
  readonly commit = this.#remote('commit');
  readonly #directory: string;
  #worker: Worker | undefined;
  /** Ends the operation under way. */
  #failed: ((error: DiskError) => void) | undefined;

  constructor(directory: string) {
    this.#directory = directory;
  }

  open(...args: DiskOperations['open']['takes']): Promise<Reply<'open'>> {
    this.#worker ??= this.#start();
    return this.#ask('open', args);
  }

  put(part: RowBatch): Promise<Reply<'put'>> {
    return this.#ask('put', [part], [part.payloads.bytes.buffer]);
  }

  async close(): Promise<Reply<'close'>> {
    const closed = await this.#ask('close', []);
    const worker = this.#worker;
    this.#worker = undefined;
    await worker?.terminate();
    return closed;
  }

  abandon(): void {
    const worker = this.#worker;
    this.#worker = undefined;
    worker?.unref();
    void worker?.terminate();
  }

  #remote<O extends Operation>(operation: O): (...args: DiskOperations[O]['takes']) => Promise<Reply<O>> {
    return (...args) => this.#ask(operation, args);
  }

  /** `transfer`: memory that the other thread takes over without a copy. */
  async #ask<O extends Operation>(
    operation: O,
    args: DiskOperations[O]['takes'],
    transfer: readonly ArrayBuffer[] = [],
  ): Promise<Reply<O>> {
    const worker = this.#worker;
    if (worker === undefined) return fail({ kind: 'io', message: 'it is not open' });
    const { promise, resolve } = Promise.withResolvers<Reply<O>>();
    this.#failed = (error) => resolve(fail(error));
    worker.once('message', resolve);
    worker.ref(); // the process does not end before the answer; an idle thread does not keep it
    worker.postMessage({ operation, args }, transfer);
    const reply = await promise;
    worker.off('message', resolve);
    worker.unref();
    return reply;
  }

  #start(): Worker {
    // Node calls SQLite experimental, on standard error: that is for JSON lines.
    const [file, options] = program();
    const worker = new Worker(file, {
      ...options,
      workerData: this.#directory,
      execArgv: ['--disable-warning=ExperimentalWarning'],
    });
    const end = (message: string): void => {
      if (this.#worker === worker) this.#worker = undefined;
      this.#failed?.({ kind: 'io', message });
    };
    worker.on('error', (error) => end(String(error)));
    worker.on('exit', () => end('its thread has ended'));
    return worker;
  }
}

/**
 * What the thread of the disk does, stated once: the proxy (`WorkerDisk`) and the dispatcher (`DiskServer`) are derived
 * from it. In this order: open; read until there is no more, or not at all; any number of (begin, put…, commit); close.
 * One at a time. Where one fails, a transaction that was begun is taken back.
 */
export interface DiskOperations {
  /** Again after a failure, too: what was there is closed first. `leaveOut`: types of which nothing may be there. `discard`: set the file aside, for this reason. */
  open: { takes: [leaveOut: readonly TypeUrl[], discard?: string | undefined]; gives: Opened };
  /** The next part of what was committed last: first rows, then payloads. Undefined: that was all, and all is whole. */
  read: { takes: []; gives: RowBatch | undefined };
  /** `replace`: everything that is there goes. */
  begin: { takes: [replace: boolean]; gives: undefined };
  put: { takes: [part: RowBatch]; gives: undefined };
  /** Gives the digests of the payloads that were deleted, because no row refers to them any more. */
  commit: { takes: [state: string]; gives: readonly string[] };
  close: { takes: []; gives: undefined };
}

export type Operation = keyof DiskOperations;

/** What each operation does, on the thread of the disk. It may throw. */
export type DiskHandlers = {
  readonly [O in Operation]: (...args: DiskOperations[O]['takes']) => DiskOperations[O]['gives'];
};

export type Reply<O extends Operation> = Result<DiskOperations[O]['gives'], DiskError>;

/** The same for the thread that serves. Nothing here throws or rejects. */
type RemoteOperations = {
  readonly [O in Operation]: (...args: DiskOperations[O]['takes']) => Promise<Reply<O>>;
};

/** What crosses to the thread of the disk. The reply is a `Reply`. */
export type DiskRequest<O extends Operation = Operation> = {
  [P in O]: { readonly operation: P; readonly args: DiskOperations[P]['takes'] };
}[O];
