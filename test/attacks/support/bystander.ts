import { once } from 'node:events';
import { join } from 'node:path';
import { Worker } from 'node:worker_threads';
import type { BystanderCommand, BystanderData, BystanderReport } from './bystander-messages.ts';

/** The well-behaved client and the health probe, in their thread. */
export class Bystander implements AsyncDisposable {
  readonly #thread: Worker;

  constructor(data: BystanderData) {
    this.#thread = new Worker(join(import.meta.dirname, 'bystander-thread.ts'), { workerData: data });
  }

  /** From now on it is measured. Resolves when the client has got something. */
  async begin(): Promise<void> {
    const answer = await this.#ask('begin');
    if (answer !== 'begun') throw new Error(`before the attack: ${JSON.stringify(answer)}`);
  }

  /** What was measured since. */
  async report(): Promise<BystanderReport> {
    const answer = await this.#ask('report');
    if (typeof answer === 'string') throw new Error(answer);
    return answer;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const exited = once(this.#thread, 'exit');
    this.#thread.postMessage('stop' satisfies BystanderCommand);
    await exited;
  }

  async #ask(command: BystanderCommand): Promise<string | BystanderReport> {
    const answered = once(this.#thread, 'message');
    this.#thread.postMessage(command);
    const [answer] = (await answered) as [string | BystanderReport];
    return answer;
  }
}
