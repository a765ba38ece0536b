import { extname } from 'node:path';
import { Worker } from 'node:worker_threads';
import { fail, ok, type Result } from '../../model/result.ts';
import type { DiskError, DiskReply, DiskRequest, Opened, RowBatch } from './records.ts';

/** What persistence asks of the disk, one thing at a time. Nothing here throws or rejects. */
export interface Disk {
  /** Again after a failure, too: what was there is closed first. `discard`: set the file aside, for this reason. */
  open(secrets: boolean, discard?: string): Promise<Result<Opened, DiskError>>;
  /** What belongs to the state that was committed last. */
  load(take: (part: RowBatch) => void): Promise<Result<undefined, DiskError>>;
  begin(replace: boolean): Promise<Result<undefined, DiskError>>;
  put(part: RowBatch): Promise<Result<undefined, DiskError>>;
  /** The ids of payloads that are gone. */
  commit(state: string): Promise<Result<readonly number[], DiskError>>;
  close(): Promise<void>;
  /** Whatever it is doing: the process does not wait for it any more. */
  abandon(): void;
}

// From dist/ it is JavaScript.
const workerFile = new URL(`./disk-thread${extname(import.meta.filename)}`, import.meta.url);

/** SQLite on a thread of its own. */
export class WorkerDisk implements Disk {
  readonly #directory: string;
  #worker: Worker | undefined;
  #answer: ((reply: DiskReply) => void) | undefined;

  constructor(directory: string) {
    this.#directory = directory;
  }

  async open(secrets: boolean, discard?: string): Promise<Result<Opened, DiskError>> {
    this.#worker ??= this.#start();
    const reply = await this.#ask({ kind: 'open', secrets, discard });
    return reply.kind === 'opened' ? ok(reply.opened) : failure(reply);
  }

  load(take: (part: RowBatch) => void): Promise<Result<undefined, DiskError>> {
    return this.#do({ kind: 'load' }, take);
  }

  begin(replace: boolean): Promise<Result<undefined, DiskError>> {
    return this.#do({ kind: 'begin', replace });
  }

  put(part: RowBatch): Promise<Result<undefined, DiskError>> {
    return this.#do({ kind: 'put', part });
  }

  async commit(state: string): Promise<Result<readonly number[], DiskError>> {
    const reply = await this.#ask({ kind: 'commit', state });
    return reply.kind === 'committed' ? ok(reply.dropped) : failure(reply);
  }

  async close(): Promise<void> {
    const worker = this.#worker;
    if (worker === undefined) return;
    await this.#ask({ kind: 'close' });
    this.#worker = undefined;
    await worker.terminate();
  }

  abandon(): void {
    const worker = this.#worker;
    this.#worker = undefined;
    worker?.unref();
    void worker?.terminate();
  }

  async #do(request: DiskRequest, take?: (part: RowBatch) => void): Promise<Result<undefined, DiskError>> {
    const reply = await this.#ask(request, take);
    return reply.kind === 'done' ? ok(undefined) : failure(reply);
  }

  #ask(request: DiskRequest, take: (part: RowBatch) => void = () => {}): Promise<DiskReply> {
    const worker = this.#worker;
    if (worker === undefined) return Promise.resolve(ended('it is not open'));
    const { promise, resolve } = Promise.withResolvers<DiskReply>();
    this.#answer = (reply) => {
      if (reply.kind === 'part') {
        take(reply.part);
        return;
      }
      worker.unref();
      resolve(reply);
    };
    worker.ref(); // the process does not end before the answer; an idle thread does not keep it
    worker.postMessage(request, request.kind === 'put' ? [request.part.payloads.bytes.buffer] : []);
    return promise;
  }

  #start(): Worker {
    // Node calls SQLite experimental, on standard error: that is for JSON lines.
    const worker = new Worker(workerFile, {
      workerData: this.#directory,
      execArgv: ['--disable-warning=ExperimentalWarning'],
    });
    worker.on('message', (reply: DiskReply) => this.#answer?.(reply));
    const end = (reason: string): void => {
      if (this.#worker === worker) this.#worker = undefined;
      this.#answer?.(ended(reason));
    };
    worker.on('error', (error) => end(String(error)));
    worker.on('exit', () => end('its thread has ended'));
    return worker;
  }
}

const ended = (message: string): DiskReply => ({ kind: 'failed', error: { kind: 'io', message } });

function failure(reply: DiskReply): Result<never, DiskError> {
  return fail(
    reply.kind === 'failed' ? reply.error : { kind: 'io', message: `unexpected answer: ${reply.kind}` },
  );
}
