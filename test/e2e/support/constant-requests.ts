import { Agent, request } from 'node:http';
import { text } from 'node:stream/consumers';

import { setTimeout as sleep } from 'node:timers/promises';

/**
 * Requests to one URL on several connections, each as soon as the one before is answered, or so many a second; answers
 * are counted.
 */
export class ConstantRequests implements AsyncDisposable {
  /** `status body`, or why there was none. */
  readonly answers = new Map<string, number>();
  last = '';
  readonly #url: string;
  readonly #agent: Agent;
  readonly #running: Promise<unknown>;
  readonly #pause: number;
  #stopped = false;

  /** `keepAlive`: Envoy goes on with the listener of before on a connection that is open. */
  constructor(url: string, connections = 4, perSecond?: number, keepAlive = true) {
    this.#pause = perSecond === undefined ? 0 : (connections * 1000) / perSecond;
    this.#url = url;
    this.#agent = new Agent({ keepAlive, maxSockets: connections });
    this.#running = Promise.all(Array.from({ length: connections }, () => this.#run()));
  }

  get count(): number {
    return [...this.answers.values()].reduce((sum, one) => sum + one, 0);
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    await this.#running;
    this.#agent.destroy();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }

  async #run(): Promise<void> {
    while (!this.#stopped) {
      const next = performance.now() + this.#pause;
      this.last = await this.#ask();
      this.answers.set(this.last, (this.answers.get(this.last) ?? 0) + 1);
      const left = next - performance.now();
      if (this.#pause > 0 && left > 0) await sleep(left);
    }
  }

  #ask(): Promise<string> {
    return new Promise((resolve) => {
      request(this.#url, { agent: this.#agent })
        .on('error', (error) => resolve(error.message))
        .on('response', (response) => {
          void text(response).then(
            (body) => resolve(`${response.statusCode} ${body}`.trim()),
            (error: unknown) => resolve(String(error)),
          );
        })
        .end();
    });
  }
}
