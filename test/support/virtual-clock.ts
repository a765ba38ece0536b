import type { Clock, Timer } from '../../src/model/clock.ts';

interface Waiting {
  readonly at: number;
  /** Undefined: cancelled. */
  run: (() => void) | undefined;
}

/** Time that passes only when told. */
export class VirtualClock implements Clock {
  /** The longest wait, as setTimeout has one: a longer one ends then. */
  longest = Number.POSITIVE_INFINITY;
  #now = 250_000;
  /** The wall clock is ahead by this. Never 0: what takes one time for the other shows. */
  #ahead = 750_000;
  /** What is due first is last. */
  readonly #waiting: Waiting[] = [];

  now(): number {
    return this.#now + this.#ahead;
  }

  monotonic(): number {
    return this.#now;
  }

  after(milliseconds: number, run: () => void): Timer {
    const waiting: Waiting = { at: this.#now + Math.min(Math.max(0, milliseconds), this.longest), run };
    this.#waiting.splice(this.#placeOf(waiting.at), 0, waiting);
    return {
      cancel: () => {
        waiting.run = undefined;
      },
    };
  }

  /** Somebody sets the wall clock: no time passes. */
  step(milliseconds: number): void {
    this.#ahead += milliseconds;
  }

  /** Lets time pass; what falls due runs at its time, in order. */
  advance(milliseconds: number): void {
    const end = this.#now + milliseconds;
    while (this.#runNext(end));
    this.#now = end;
  }

  /** Runs only what is due next. */
  turn(): void {
    if (!this.#runNext(Number.POSITIVE_INFINITY)) throw new Error('nothing waits for its time');
  }

  #runNext(end: number): boolean {
    for (let next = this.#waiting.at(-1); next !== undefined && next.at <= end; next = this.#waiting.at(-1)) {
      this.#waiting.pop();
      if (next.run === undefined) continue;
      this.#now = Math.max(this.#now, next.at);
      next.run();
      return true;
    }
    return false;
  }

  /** After all that are due later, and before those that are due then: the first of these runs first. */
  #placeOf(at: number): number {
    let [low, high] = [0, this.#waiting.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((this.#waiting[middle]?.at ?? 0) > at) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}
