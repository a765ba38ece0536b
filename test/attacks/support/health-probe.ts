import { setTimeout as sleep } from 'node:timers/promises';
import type { Client } from '@grpc/grpc-js';
import { rawClient } from '../../support/grpc-calls.ts';
import { blame, processorTimes } from './processor-time.ts';
import { addressOf, secureAs, type Target } from './target.ts';

const CHECK = '/grpc.health.v1.Health/Check';
/** Between two probes, in milliseconds. */
const pause = 20;
/** No answer by then is a failure whatever the machine does, in milliseconds. A busy one has taken 10 s for a second of CPU. */
const patience = 30_000;
const serving = Buffer.of(0x08, 0x01);

/** What was seen from one call of `begin` to the next. Milliseconds. */
export interface HealthReport {
  readonly probes: number;
  /** Of the slowest: what the relay itself is to blame for, by the CPU time of its main thread. */
  readonly worst: number;
  /** Of the slowest, without what the machine took: nobody may be kept waiting without work either. */
  readonly delay: number;
  /** Answers other than SERVING. */
  readonly failures: readonly string[];
}

/** Asks `Health/Check` all the time, one call at once, on a connection of its own. */
export class HealthProbe {
  readonly #client: Client;
  readonly #pids: readonly number[];
  #seen = { probes: 0, worst: 0, delay: 0, failures: new Array<string>() };
  /** What is under way now, so that a window ends with the answer to it. */
  #current: Promise<void> = Promise.resolve();
  #stopped = false;

  constructor(target: Target) {
    const { secure, serverName } = secureAs(target, 'tenant');
    const names =
      serverName === undefined
        ? {}
        : { 'grpc.ssl_target_name_override': serverName, 'grpc.default_authority': serverName };
    this.#client = rawClient(addressOf(target), secure, names);
    this.#pids = target.pids ?? [];
    void this.#run();
  }

  begin(): void {
    this.#seen = { probes: 0, worst: 0, delay: 0, failures: [] };
  }

  /** One more probe begins and ends before the report: a loop that is blocked now is seen. */
  async report(): Promise<HealthReport> {
    await this.#current;
    await this.#probe();
    return this.#seen;
  }

  stop(): void {
    this.#stopped = true;
    this.#client.close();
  }

  async #run(): Promise<void> {
    while (!this.#stopped) {
      this.#current = this.#probe();
      await this.#current;
      await sleep(pause);
    }
  }

  async #probe(): Promise<void> {
    const before = processorTimes(this.#pids);
    const start = performance.now();
    const failure = await this.#check();
    const latency = performance.now() - start;
    const { work, delay } = blame(latency, before, processorTimes(this.#pids));
    const seen = this.#seen;
    seen.probes++;
    seen.worst = Math.max(seen.worst, work);
    seen.delay = Math.max(seen.delay, delay);
    if (failure !== undefined && !this.#stopped) seen.failures.push(failure);
  }

  /** Why it was not SERVING. */
  #check(): Promise<string | undefined> {
    const same = (bytes: Buffer): Buffer => bytes;
    const deadline = Date.now() + patience;
    return new Promise((resolve) => {
      this.#client.makeUnaryRequest(
        CHECK,
        same,
        same,
        Buffer.alloc(0),
        { deadline },
        (error, answer: Buffer | undefined) => {
          if (error !== null) resolve(error.message);
          else resolve(answer?.equals(serving) === true ? undefined : 'not SERVING');
        },
      );
    });
  }
}
