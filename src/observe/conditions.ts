import type { Fields, Level, Log } from './log.ts';

/** How many conditions are remembered; past it the one that was said longest ago may be said again. */
const remembered = 10_000;

/**
 * Says what lasts once per change, not once per retry: an upstream that is down for an hour is one line, and one more
 * when it is back.
 */
export class Conditions {
  readonly #log: Log;
  readonly #limit: number;
  readonly #known = new Map<string, string>();

  constructor(log: Log, limit: number = remembered) {
    this.#log = log;
    this.#limit = limit;
  }

  /** Logs if `value` differs from what this condition was last set to; true if it did. */
  set(key: string, value: string, level: Level, message: string, fields?: Fields): boolean {
    if (this.#known.get(key) === value) return false;
    this.#known.delete(key);
    this.#known.set(key, value);
    this.#forgetOldest();
    this.#log[level](message, fields);
    return true;
  }

  /** What it stood for is gone: it is said again if it comes back. */
  forget(key: string): void {
    this.#known.delete(key);
  }

  #forgetOldest(): void {
    if (this.#known.size <= this.#limit) return;
    for (const key of this.#known.keys()) {
      this.#known.delete(key);
      return;
    }
  }
}
