import type { Clock, Timer } from '../../src/model/clock.ts';

interface Waiting {
  readonly at: number;
  readonly order: number;
  readonly run: () => void;
}

/** Time that passes only when told. */
export class VirtualClock implements Clock {
  /** The longest wait, as setTimeout has one: a longer one ends then. */
  longest = Number.POSITIVE_INFINITY;
  #now = 1_000_000;
  #order = 0;
  #waiting: Waiting[] = [];

  now(): number {
    return this.#now;
  }

  monotonic(): number {
    return this.#now;
  }

  after(milliseconds: number, run: () => void): Timer {
    const waiting: Waiting = {
      at: this.#now + Math.min(Math.max(0, milliseconds), this.longest),
      order: this.#order++,
      run,
    };
    this.#waiting.push(waiting);
    return {
      cancel: () => {
        this.#waiting = this.#waiting.filter((other) => other !== waiting);
      },
    };
  }

  /** Lets time pass; what falls due runs at its time, in order. */
  advance(milliseconds: number): void {
    const end = this.#now + milliseconds;
    for (;;) {
      const next = this.#next(end);
      if (next === undefined) break;
      this.#waiting = this.#waiting.filter((other) => other !== next);
      this.#now = Math.max(this.#now, next.at);
      next.run();
    }
    this.#now = end;
  }

  /** Runs only what is due next. */
  turn(): void {
    const next = this.#next(Number.POSITIVE_INFINITY);
    if (next === undefined) throw new Error('nothing waits for its time');
    this.#waiting = this.#waiting.filter((other) => other !== next);
    this.#now = Math.max(this.#now, next.at);
    next.run();
  }

  #next(end: number): Waiting | undefined {
    let first: Waiting | undefined;
    for (const waiting of this.#waiting) {
      if (waiting.at > end) continue;
      if (
        first === undefined ||
        waiting.at < first.at ||
        (waiting.at === first.at && waiting.order < first.order)
      ) {
        first = waiting;
      }
    }
    return first;
  }
}
