import type { View, ViewSubscriber } from './view.ts';

/** A slice of work must not hold up ACKs, health checks and new streams for longer, in milliseconds. */
const sliceMs = 5;
/** Looking at the clock costs something too. */
const wakesPerClockRead = 16;

/** Wakes the subscribers of changed views, a slice at a time: other events get their turn in between. */
export class FanOut {
  readonly #defer: (run: () => void) => void;
  /** Changed views that wait, and for the first of them, whose turn it is. */
  readonly #waiting = new Set<View>();
  #current: Iterator<ViewSubscriber> | undefined;
  #scheduled = false;

  constructor(defer: (run: () => void) => void) {
    this.#defer = defer;
  }

  add(view: View): void {
    this.#waiting.add(view);
    this.#schedule();
  }

  #schedule(): void {
    if (this.#scheduled) return;
    this.#scheduled = true;
    this.#defer(() => {
      this.#scheduled = false;
      this.#run();
    });
  }

  #run(): void {
    const end = performance.now() + sliceMs;
    try {
      for (let count = 1; ; count++) {
        const subscriber = this.#next();
        if (subscriber === undefined) return;
        subscriber.wake();
        if (count % wakesPerClockRead === 0 && performance.now() > end) break;
      }
    } finally {
      // Whatever one of them did: the others must hear of the change.
      if (this.#current !== undefined || this.#waiting.size > 0) this.#schedule();
    }
  }

  #next(): ViewSubscriber | undefined {
    for (;;) {
      if (this.#current === undefined) {
        const [view] = this.#waiting;
        if (view === undefined) return undefined;
        this.#waiting.delete(view);
        this.#current = view.subscribers.values();
      }
      const next = this.#current.next();
      if (next.done !== true) return next.value;
      this.#current = undefined;
    }
  }
}
