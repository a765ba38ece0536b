import { errorText } from '../model/error-text.ts';
import { shorten, withoutUserinfo, withoutUserinfoJson } from '../model/text.ts';
import type { Fields, Log } from './log.ts';

/** One line of the log, kept for the status page. */
export interface RecentLine {
  /** Milliseconds since the epoch. */
  readonly at: number;
  readonly level: 'info' | 'warn' | 'error';
  readonly message: string;
  /** `key=value`, shortened. */
  readonly fields: string;
}

const kept = 50;
const longest = { message: 300, fields: 400 };

/** The last lines of a log at the level info and above, whatever level is written. */
export class RecentLines {
  readonly #now: () => number;
  readonly #lines: RecentLine[] = [];

  constructor(now: () => number) {
    this.#now = now;
  }

  /** The newest first. */
  get lines(): readonly RecentLine[] {
    return this.#lines.toReversed();
  }

  /** The same log; its lines are kept here too. */
  of(log: Log): Log {
    const keep =
      (level: RecentLine['level']) =>
      (message: string, fields: Fields = {}): void => {
        this.#keep(level, message, fields);
        log[level](message, fields);
      };
    return {
      debug: (message, fields) => log.debug(message, fields),
      info: keep('info'),
      warn: keep('warn'),
      error: keep('error'),
      child: (fields) => this.of(log.child(fields)),
    };
  }

  #keep(level: RecentLine['level'], message: string, fields: Fields): void {
    const words = Object.entries(fields).map(([key, value]) => `${key}=${textOf(value)}`);
    this.#lines.push({
      at: this.#now(),
      level,
      message: shorten(withoutUserinfo(message), longest.message),
      fields: errorText(words.join(' '), longest.fields),
    });
    if (this.#lines.length > kept) this.#lines.shift();
  }
}

/** A line must not be lost because a field cannot be written as JSON. */
function textOf(value: unknown): string {
  if (typeof value === 'string') return errorText(withoutUserinfo(value), longest.fields);
  if (value instanceof Error) return withoutUserinfo(value.message);
  try {
    return withoutUserinfoJson(JSON.stringify(value) ?? '');
  } catch {
    return '';
  }
}
