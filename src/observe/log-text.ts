import { z } from 'zod';

const lineSchema = z.looseObject({ time: z.string(), level: z.string(), message: z.string() });

/** Ends of lines, and what a terminal obeys or reorders: peers choose some of these texts. */
const control = /[\p{Cc}\p{Zl}\p{Zp}\p{Bidi_Control}]/gu;

const escaped = (text: string): string =>
  text.replace(control, (found) => `\\u${found.codePointAt(0)?.toString(16).padStart(4, '0') ?? ''}`);

/** One word as it is, anything else as JSON. */
function valueText(value: unknown): string {
  if (typeof value === 'string' && /^[^\s"=]+$/.test(value)) return escaped(value);
  return escaped(JSON.stringify(value) ?? '');
}

/** A JSON line of the log for people: time, level, message, and the fields as `key=value`. Always one line. */
export function textLine(json: string): string {
  const { time, level, message, pid: _pid, ...fields } = lineSchema.parse(JSON.parse(json));
  const words = Object.entries(fields).map(([key, value]) => `${key}=${valueText(value)}`);
  return `${[time, level.toUpperCase().padEnd(5), escaped(message), ...words].join(' ')}\n`;
}
