import { Worker } from 'node:worker_threads';
import { fail } from '../../model/result.ts';
import { threadProgram } from '../../package/files.ts';
import type { Asked, Operation, Reply } from './disk-server.ts';
import type { DiskError } from './records.ts';

/** What persistence asks of the disk, one thing at a time. */
export type Disk = Pick<WorkerDisk, keyof WorkerDisk>;

/** SQLite on a thread of its own, which starts with `open`. Nothing here throws or rejects. */
export class WorkerDisk {
  readonly read = this.#remote('read');
  readonly begin = this.#remote('begin');
  readonly put = this.#remote('put');
  readonly commit = this.#remote('commit');
  readonly #directory: string;
  #worker: Worker | undefined;
  /** Ends the operation under way. */
  #failed: ((error: DiskError) => void) | undefined;

  constructor(directory: string) {
    this.#directory = directory;
  }

  open(...args: Asked<'open'>): Promise<Reply<'open'>> {
    this.#worker ??= this.#start();
    return this.#ask('open', args);
  }

  async close(): Promise<Reply<'close'>> {
    const closed = await this.#ask('close', []);
    const worker = this.#worker;
    this.#worker = undefined;
    await worker?.terminate();
    return closed;
  }

  /** Whatever it is doing: the process does not wait for it any more. */
  abandon(): void {
    const worker = this.#worker;
    this.#worker = undefined;
    worker?.unref();
    void worker?.terminate();
  }

  #remote<O extends Operation>(operation: O): (...args: Asked<O>) => Promise<Reply<O>> {
    return (...args) => this.#ask(operation, args);
  }

  async #ask<O extends Operation>(operation: O, args: Asked<O>): Promise<Reply<O>> {
    const worker = this.#worker;
    if (worker === undefined) return fail({ kind: 'io', message: 'it is not open' });
    const { promise, resolve } = Promise.withResolvers<Reply<O>>();
    this.#failed = (error) => resolve(fail(error));
    worker.once('message', resolve);
    worker.ref(); // the process does not end before the answer; an idle thread does not keep it
    worker.postMessage({ operation, args }, []);
    const reply = await promise;
    worker.off('message', resolve);
    worker.unref();
    return reply;
  }

  #start(): Worker {
    // Node calls SQLite experimental, on standard error: that is for JSON lines.
    const [file, options] = threadProgram('cache/persistence/disk-thread');
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
