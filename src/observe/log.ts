import { pino, stdSerializers, stdTimeFunctions } from 'pino';

/** The fields of a line beside its message. Errors are written with their code and stack. */
export type Fields = Readonly<Record<string, unknown>>;

export type Level = 'debug' | 'info' | 'warn' | 'error';

export interface Log {
  debug(message: string, fields?: Fields): void;
  info(message: string, fields?: Fields): void;
  warn(message: string, fields?: Fields): void;
  error(message: string, fields?: Fields): void;
  /** The same log with these fields in every line. */
  child(fields: Fields): Log;
}

/** The levels that `--log-level` takes. */
export const levels = ['debug', 'info', 'warn', 'error', 'silent'] as const;
export type LogLevel = (typeof levels)[number];

export function isLogLevel(text: string): text is LogLevel {
  return levels.some((level) => level === text);
}

export interface LogOptions {
  /** `info` unless told. */
  readonly level?: LogLevel;
  /** Takes one line, its newline included. Standard error unless told. */
  readonly write?: (line: string) => void;
}

/** Bytes of lines that may wait while nobody reads standard error; further lines are dropped. */
const waiting = 4 * 1024 * 1024;

/** JSON lines. Serving never waits for whoever reads them; what is left is written when the process exits. */
export function createLog(options: LogOptions = {}): Log {
  const { write } = options;
  const destination =
    write === undefined ? pino.destination({ dest: 2, sync: false, maxLength: waiting }) : { write };
  const logger = pino(
    {
      level: options.level ?? 'info',
      base: { pid: process.pid },
      messageKey: 'message',
      timestamp: stdTimeFunctions.isoTime,
      formatters: { level: (label) => ({ level: label }) },
      serializers: { error: stdSerializers.err },
    },
    destination,
  );
  return new PinoLog(logger);
}

class PinoLog implements Log {
  readonly #logger: pino.Logger;

  constructor(logger: pino.Logger) {
    this.#logger = logger;
  }

  debug(message: string, fields: Fields = {}): void {
    this.#logger.debug(fields, message);
  }

  info(message: string, fields: Fields = {}): void {
    this.#logger.info(fields, message);
  }

  warn(message: string, fields: Fields = {}): void {
    this.#logger.warn(fields, message);
  }

  error(message: string, fields: Fields = {}): void {
    this.#logger.error(fields, message);
  }

  child(fields: Fields): Log {
    return new PinoLog(this.#logger.child(fields));
  }
}
