import { pino, stdSerializers, stdTimeFunctions } from 'pino';
import { type Clock, systemClock } from '../model/clock.ts';
import { withoutUserinfoJson } from '../model/text.ts';
import type { LogFormat } from './log-format.ts';
import { type Level, type LogLevel, LogLevels } from './log-levels.ts';
import { textLine } from './log-text.ts';

/** The fields of a line beside its message. Errors are written with their code and stack. */
export type Fields = Readonly<Record<string, unknown>>;

/** With `node` among its fields, a line has the level that is in force for this node. */
export interface Log {
  debug(message: string, fields?: Fields): void;
  info(message: string, fields?: Fields): void;
  warn(message: string, fields?: Fields): void;
  error(message: string, fields?: Fields): void;
  /** The same log with these fields in every line. */
  child(fields: Fields): Log;
}

export interface LogOptions {
  /** `info` unless told. */
  readonly level?: LogLevel;
  /** Instead of `level`: those may change. */
  readonly levels?: LogLevels;
  /** `json` unless told. */
  readonly format?: LogFormat;
  /** Takes one line, its newline included. Standard error unless told. */
  readonly write?: (line: string) => void;
  readonly clock?: Clock;
}

/** Bytes of lines that may wait while nobody reads standard error; further lines are dropped. */
const waiting = 4 * 1024 * 1024;

/** Lines at the level debug in a second: a storm of clients must not cost more than that. */
const mostDebugLines = 500;

/** One line per message. Serving never waits for whoever reads them; what is left is written when the process exits. */
export function createLog(options: LogOptions = {}): Log {
  const { levels = new LogLevels(options.level), format = 'json', clock = systemClock } = options;
  const writeLine = options.write ?? standardError();
  const write = (line: string): void => writeLine(withoutUserinfoJson(line));
  const logger = pino(
    {
      level: 'debug', // `levels` decides, and may change
      base: { pid: process.pid },
      messageKey: 'message',
      timestamp: stdTimeFunctions.isoTime,
      formatters: { level: (label) => ({ level: label }) },
      serializers: { error: stdSerializers.err },
    },
    { write: format === 'json' ? write : (line) => write(textLine(line)) },
  );
  return new PinoLog(logger, levels, new DebugBudget(clock));
}

function standardError(): (line: string) => void {
  const destination = pino.destination({ dest: 2, sync: false, maxLength: waiting });
  return (line) => destination.write(line);
}

/** Lines at the level debug, so many a second. */
class DebugBudget {
  readonly #clock: Clock;
  #second = 0;
  #lines = 0;
  #leftOut = 0;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** The fields of the line that may be written; undefined: it is left out. The next one says how many were. */
  spend(fields: Fields): Fields | undefined {
    const second = Math.floor(this.#clock.now() / 1000);
    if (second !== this.#second) {
      this.#second = second;
      this.#lines = 0;
    }
    if (this.#lines >= mostDebugLines) {
      this.#leftOut++;
      return undefined;
    }
    this.#lines++;
    if (this.#leftOut === 0) return fields;
    const left_out = this.#leftOut;
    this.#leftOut = 0;
    return { ...fields, left_out };
  }
}

class PinoLog implements Log {
  readonly #logger: pino.Logger;
  readonly #levels: LogLevels;
  readonly #budget: DebugBudget;

  constructor(logger: pino.Logger, levels: LogLevels, budget: DebugBudget) {
    this.#logger = logger;
    this.#levels = levels;
    this.#budget = budget;
  }

  debug(message: string, fields: Fields = {}): void {
    if (!this.#levels.enables('debug', fields['node'])) return;
    const spent = this.#budget.spend(fields);
    if (spent !== undefined) this.#logger.debug(spent, message);
  }

  info(message: string, fields?: Fields): void {
    this.#write('info', message, fields);
  }

  warn(message: string, fields?: Fields): void {
    this.#write('warn', message, fields);
  }

  error(message: string, fields?: Fields): void {
    this.#write('error', message, fields);
  }

  child(fields: Fields): Log {
    return new PinoLog(this.#logger.child(fields), this.#levels, this.#budget);
  }

  #write(level: Level, message: string, fields: Fields = {}): void {
    if (this.#levels.enables(level, fields['node'])) this.#logger[level](fields, message);
  }
}
