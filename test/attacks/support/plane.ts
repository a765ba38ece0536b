import { once } from 'node:events';
import { join } from 'node:path';
import { Worker } from 'node:worker_threads';
import type { PlaneData } from './plane-thread.ts';

/** A control plane that changes one cluster all the time, in its thread. */
export class ChangingPlane implements AsyncDisposable {
  /** HOST:PORT. */
  readonly address: string;
  readonly #thread: Worker;

  private constructor(thread: Worker, address: string) {
    this.#thread = thread;
    this.address = address;
  }

  static async start(data: PlaneData): Promise<ChangingPlane> {
    const thread = new Worker(join(import.meta.dirname, 'plane-thread.ts'), { workerData: data });
    const [address] = (await once(thread, 'message')) as [string];
    return new ChangingPlane(thread, address);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const exited = once(this.#thread, 'exit');
    this.#thread.postMessage('stop');
    await exited;
  }
}
