import { pino, stdSerializers, stdTimeFunctions } from 'pino';
import * as z from 'zod';
import { type Clock, systemClock } from '../model/clock.ts';
import {
  errorText,
  printable,
  printableJson,
  shorten,
  withoutUserinfo,
  withoutUserinfoJson,
} from '../model/text.ts';
import { type Level, type LogFormat, type LogLevel, LogLevels } from './log-levels.ts';

/**
 * The fields of a line beside those that every line has: with one of their names its own would be lost. Errors are written
 * with their code and stack.
 */
export type Fields = Readonly<Record<string, unknown>> & {
  readonly [own in 'level' | 'time' | 'pid' | 'message']?: never;
};

/** With `node` among its fields, a line has the level that is in force for this node. */
export interface Log {
  debug(message: string, fields?: Fields): void;
  info(message: string, fields?: Fields): void;
  warn(message: string, fields?: Fields): void;
  error(message: string, fields?: Fields): void;
  /** The same log with these fields in every line. */
  child(fields: Fields): Log;
}

/** Bytes of lines that may wait while nobody reads standard error; further lines are dropped. */
const waiting = 4 * 1024 * 1024;

/** Lines at the level debug in a second: a storm of clients must not cost more than that. */
const mostDebugLines = 500;

/** One line per message. Serving never waits for whoever reads them; what is left is written when the process exits. */
export function createLog(
  options: {
    /** `info` unless told. */
    readonly level?: LogLevel;
    /** Instead of `level`: those may change. */
    readonly levels?: LogLevels;
    /** `json` unless told. */
    readonly format?: LogFormat;
    /** Takes one line, its newline included. Standard error unless told. */
    readonly write?: (line: string) => void;
    readonly clock?: Clock;
  } = {},
): Log {
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
    { write: (line) => write(format === 'json' ? printableJson(line) : textLine(line)) },
  );
  return logTo(logger, levels, debugBudget(clock));
}

function standardError(): (line: string) => void {
  const destination = pino.destination({ dest: 2, sync: false, maxLength: waiting });
  // Such as a full disk: the next line tries again, but at the exit it would be tried without end.
  let failing = false;
  destination.on('error', () => {
    failing = true;
  });
  destination.on('write', () => {
    failing = false;
  });
  const flush = destination.flushSync.bind(destination);
  destination.flushSync = () => {
    if (!failing) flush();
  };
  return (line) => destination.write(line);
}

/**
 * Lines at the level debug, so many a second: the fields of the line that may be written. Undefined: it is left out, and
 * the next one says how many were.
 */
function debugBudget(clock: Clock): (fields: Fields) => Fields | undefined {
  let [second, lines, left_out] = [0, 0, 0];
  return (fields) => {
    const now = Math.floor(clock.monotonic() / 1000);
    if (now !== second) [second, lines] = [now, 0];
    if (lines >= mostDebugLines) {
      left_out++;
      return undefined;
    }
    lines++;
    if (left_out === 0) return fields;
    const spent = { ...fields, left_out };
    left_out = 0;
    return spent;
  };
}

function logTo(logger: pino.Logger, levels: LogLevels, budget: ReturnType<typeof debugBudget>): Log {
  const writes =
    (level: Level) =>
    (message: string, fields: Fields = {}): void => {
      if (!levels.enables(level, fields['node'])) return;
      const spent = level === 'debug' ? budget(fields) : fields;
      if (spent !== undefined) logger[level](spent, message);
    };
  return {
    debug: writes('debug'),
    info: writes('info'),
    warn: writes('warn'),
    error: writes('error'),
    child: (fields) => logTo(logger.child(fields), levels, budget),
  };
}

const lineSchema = z.looseObject({ time: z.string(), level: z.string(), message: z.string() });

/** One word as it is, anything else as JSON. */
function valueText(value: unknown): string {
  const isWord = typeof value === 'string' && /^[^\s"=]+$/.test(value) && value === printable(value);
  return isWord ? value : printableJson(JSON.stringify(value) ?? '');
}

/** A JSON line of the log for people: time, level, message, and the fields as `key=value`. Always one line. */
function textLine(json: string): string {
  const { time, level, message, pid: _pid, ...fields } = lineSchema.parse(JSON.parse(json));
  const words = Object.entries(fields).map(([key, value]) => `${key}=${valueText(value)}`);
  return `${[time, level.toUpperCase().padEnd(5), printable(message), ...words].join(' ')}\n`;
}

/**
 * Node writes its warnings to stderr as text. From now on they are JSON lines of the log. Operators need not know that
 * a feature of Node is experimental: that is a debug line.
 */
export function logRuntimeWarnings(log: Log): void {
  process.removeAllListeners('warning');
  process.on('warning', ({ name, message }) => {
    const level = name === 'ExperimentalWarning' ? 'debug' : 'warn';
    log[level]('Node.js warning', { name, warning: message });
  });
}

/** One line of the log, kept for the status page. */
export type RecentLine = ReturnType<typeof recentLine>;

const kept = 50;
const longest = { message: 300, fields: 400 };

const recentLine = (at: number, level: 'info' | 'warn' | 'error', message: string, fields: Fields) => ({
  /** Milliseconds since the epoch. */
  at,
  level,
  message: shorten(withoutUserinfo(message), longest.message),
  /** `key=value`, shortened. */
  fields: errorText(
    Object.entries(fields)
      .map(([key, value]) => `${key}=${textOf(value)}`)
      .join(' '),
    longest.fields,
  ),
});

/** The same log, whose last lines at the level info and above are kept, whatever level is written. */
export function withRecentLines(log: Log, now: () => number) {
  const lines: RecentLine[] = [];
  return {
    log: keeping(log),
    /** The newest first. */
    lines: (): readonly RecentLine[] => lines.toReversed(),
  };

  function keeping(log: Log): Log {
    const keep =
      (level: RecentLine['level']) =>
      (message: string, fields: Fields = {}): void => {
        lines.push(recentLine(now(), level, message, fields));
        if (lines.length > kept) lines.shift();
        log[level](message, fields);
      };
    return {
      debug: (message, fields) => log.debug(message, fields),
      info: keep('info'),
      warn: keep('warn'),
      error: keep('error'),
      child: (fields) => keeping(log.child(fields)),
    };
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
