import type { Clock, Timer } from '../../src/model/clock.ts';

interface Event {
  readonly at: number;
  readonly order: number;
  run: (() => void) | undefined;
}

/** Virtual time for a whole network: a heap, so that the many timers of a long run cost little. */
export class EventLoop implements Clock {
  #now = 250_000;
  #order = 0;
  readonly #heap: Event[] = [];

  /** Not what `monotonic()` says: what takes one time for the other shows. */
  now(): number {
    return this.#now + 750_000;
  }

  monotonic(): number {
    return this.#now;
  }

  after(milliseconds: number, run: () => void): Timer {
    const event: Event = { at: this.#now + Math.max(0, milliseconds), order: this.#order++, run };
    this.#push(event);
    return {
      cancel: () => {
        event.run = undefined;
      },
    };
  }

  /** Lets time pass; what falls due runs at its time, in the order in which it was asked for. */
  advance(milliseconds: number): void {
    const end = this.#now + milliseconds;
    for (let first = this.#heap[0]; first !== undefined && first.at <= end; first = this.#heap[0]) {
      this.#pop();
      this.#now = first.at;
      first.run?.();
    }
    this.#now = end;
  }

  #push(event: Event): void {
    const heap = this.#heap;
    let at = heap.push(event) - 1;
    while (at > 0) {
      const above = (at - 1) >> 1;
      const parent = heap[above];
      if (parent === undefined || before(parent, event)) break;
      heap[at] = parent;
      at = above;
    }
    heap[at] = event;
  }

  #pop(): void {
    const heap = this.#heap;
    const last = heap.pop();
    if (last === undefined || heap.length === 0) return;
    let at = 0;
    for (;;) {
      const left = heap[2 * at + 1];
      const right = heap[2 * at + 2];
      if (left === undefined) break;
      const child = right !== undefined && before(right, left) ? right : left;
      if (before(last, child)) break;
      heap[at] = child;
      at = child === left ? 2 * at + 1 : 2 * at + 2;
    }
    heap[at] = last;
  }
}

function before(a: Event, b: Event): boolean {
  return a.at < b.at || (a.at === b.at && a.order < b.order);
}
