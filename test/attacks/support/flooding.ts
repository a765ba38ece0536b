import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import type { Target } from './target.ts';

export interface FloodOrder {
  readonly target: Target;
  /** Of the floods that run at once. */
  readonly names: readonly string[];
}

/** Floods, in their process. */
export class Flooding implements AsyncDisposable {
  readonly #child: ChildProcess;

  private constructor(child: ChildProcess) {
    this.#child = child;
  }

  static async start(order: FloodOrder): Promise<Flooding> {
    const child = fork(join(import.meta.dirname, 'flood-process.ts'), { stdio: 'inherit' });
    child.send(order);
    await once(child, 'message');
    return new Flooding(child);
  }

  /** Why it has ended already. */
  get ended(): string | undefined {
    const { exitCode, signalCode } = this.#child;
    return exitCode === null && signalCode === null
      ? undefined
      : `the attacker ended: ${exitCode ?? signalCode}`;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.ended !== undefined) return;
    const exited = once(this.#child, 'exit');
    this.#child.disconnect();
    await exited;
  }
}
