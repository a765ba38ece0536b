import type { Fields, Level, Log } from './log.ts';

/** How many conditions are remembered; past it the one that was said longest ago may be said again. */
const remembered = 10_000;
/** How many causes of one condition are told apart; what else is given for it until it is forgotten is not said. */
const mostCauses = 16;

/**
 * Says what lasts once per change, not once per retry: an upstream that is down for an hour is one line, and one more
 * when it is back.
 */
export class Conditions {
  readonly #log: Log;
  readonly #limit: number;
  readonly #known = new Map<string, Set<string>>();

  constructor(log: Log, limit: number = remembered) {
    this.#log = log;
    this.#limit = limit;
  }

  /** Logs if `value` differs from what this condition was last set to; true if it did. */
  set(key: string, value: string, level: Level, message: string, fields?: Fields): boolean {
    const values = this.#known.get(key);
    if (values?.size === 1 && values.has(value)) return false;
    this.#remember(key, new Set([value]));
    this.#log[level](message, fields);
    return true;
  }

  /**
   * The same for what gives its reasons in turn, as an endpoint that now refuses and now resets: logs each `cause` once,
   * until the condition is forgotten or set.
   */
  add(key: string, cause: string, level: Level, message: string, fields?: Fields): boolean {
    const causes = this.#known.get(key) ?? new Set<string>();
    if (causes.has(cause) || causes.size >= mostCauses) return false;
    this.#remember(key, causes.add(cause));
    this.#log[level](message, fields);
    return true;
  }

  /** What it stood for is gone: it is said again if it comes back. */
  forget(key: string): void {
    this.#known.delete(key);
  }

  #remember(key: string, values: Set<string>): void {
    this.#known.delete(key);
    this.#known.set(key, values);
    if (this.#known.size <= this.#limit) return;
    for (const key of this.#known.keys()) {
      this.#known.delete(key);
      return;
    }
  }
}
