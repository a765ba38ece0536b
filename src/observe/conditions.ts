import { hash } from 'node:crypto';
import { type Clock, systemClock } from '../model/clock.ts';
import type { Fields, Log } from './log.ts';
import type { Level } from './log-levels.ts';

/** At most so many conditions are remembered. The one that was logged longest ago is forgotten first. */
const maxRemembered = 10_000;
/** So many different causes of one condition are logged. Further ones are not, until the condition is over. */
const mostCauses = 16;
/** At most so many lines of one condition, or of several together, in a minute: they may change with every request of a client. */
const mostLines = 20;
const minute = 60_000;

/** Names and reasons from peers can be megabytes long. So many characters of a text are remembered, and a digest. */
const longestText = 256;

const bounded = (text: string): string =>
  text.length <= longestText ? text : `${text.slice(0, longestText)} ${hash('sha256', text, 'hex')}`;

/**
 * Logs a lasting condition once per change, not once per retry: an upstream that is down for an hour is one line, and
 * one more when it is back.
 */
export class Conditions {
  readonly #log: Log;
  readonly #limit: number;
  readonly #clock: Clock;
  /** What each was set to. */
  readonly #known = new Map<string, Set<string>>();
  /** `since`: when the minute of `lines` began. `heldBack`: changes that were not logged. */
  readonly #lines = new Map<string, Readonly<Record<'since' | 'lines' | 'heldBack', number>>>();

  constructor(log: Log, limit: number = maxRemembered, clock: Clock = systemClock) {
    this.#log = log;
    this.#limit = limit;
    this.#clock = clock;
  }

  /**
   * Logs if `value` differs from what this condition was last set to; true if it did, even if it was held back.
   * `together`: conditions with the same one share their lines. Clients may make any number of these.
   */
  set(
    named: string,
    given: string,
    level: Level,
    message: string,
    fields?: Fields,
    together: string = named,
  ): boolean {
    const [key, value] = [bounded(named), bounded(given)];
    const known = this.#known.get(key);
    if (known?.size === 1 && known.has(value)) return false;
    this.#say(key, bounded(together), new Set([value]), level, message, fields);
    return true;
  }

  /**
   * For a condition whose causes alternate, such as an endpoint that refuses, resets and refuses again: logs each cause
   * once, until the condition is forgotten or set.
   */
  add(named: string, given: string, level: Level, message: string, fields?: Fields): boolean {
    const [key, cause] = [bounded(named), bounded(given)];
    const causes = this.#known.get(key) ?? new Set<string>();
    if (causes.has(cause) || causes.size >= mostCauses) return false;
    this.#say(key, key, causes.add(cause), level, message, fields);
    return true;
  }

  /** The condition is over. If it comes back, it is logged again. */
  forget(named: string): void {
    this.#known.delete(bounded(named));
    this.#lines.delete(bounded(named));
  }

  #say(
    key: string,
    together: string,
    values: Set<string>,
    level: Level,
    message: string,
    fields: Fields | undefined,
  ): void {
    const now = this.#clock.monotonic();
    const before = this.#lines.get(together);
    const isNew = before === undefined || now - before.since >= minute;
    const { since, lines } = isNew ? { since: now, lines: 0 } : before;
    const heldBack = before?.heldBack ?? 0;
    this.#remember(this.#known, key, values);
    if (lines >= mostLines) {
      this.#remember(this.#lines, together, { since, lines, heldBack: heldBack + 1 });
      return;
    }
    this.#remember(this.#lines, together, { since, lines: lines + 1, heldBack: 0 });
    this.#log[level](message, heldBack === 0 ? fields : { ...fields, held_back: heldBack });
  }

  #remember<Value>(all: Map<string, Value>, key: string, value: Value): void {
    all.delete(key);
    all.set(key, value);
    const [oldest = key] = all.keys();
    if (all.size > this.#limit) all.delete(oldest);
  }
}
