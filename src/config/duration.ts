import { fail, ok, type Result } from '../model/result.ts';

const units = new Map([
  ['ms', 1],
  ['s', 1000],
  ['m', 60_000],
  ['h', 3_600_000],
]);

/** What the published schema shows of it. */
export const durationPattern = String.raw`^(0|\d+(\.\d+)?(ms|s|m|h))$`;
const form = /^(?:0|(?<amount>\d+(?:\.\d+)?)(?<unit>ms|s|m|h))$/;

/** The longest wait that a timer of Node can do: 24.8 days. */
const longest = 2 ** 31 - 1;

const accepted = 'a number with ms, s, m or h, as in "500ms" or "5s"';

/** What people write for the units. */
const otherUnits: ReadonlyMap<string, string> = new Map([
  ['', 's'],
  ['sec', 's'],
  ['second', 's'],
  ['min', 'm'],
  ['minute', 'm'],
  ['hour', 'h'],
  ['hr', 'h'],
  ['msec', 'ms'],
  ['millisecond', 'ms'],
]);

/** What is wrong with a text or a number that is no duration, and what was probably meant. */
export function notADuration(text: string): string {
  const [, amount, unit = ''] = /^(\d+(?:\.\d+)?) *([a-z]*)$/i.exec(text) ?? [];
  const meant = otherUnits.get(unit.toLowerCase().replace(/(?<=..)s$/, ''));
  if (amount === undefined || meant === undefined) return `is not a duration: use ${accepted}`;
  const written = JSON.stringify(`${amount}${meant}`);
  return unit === ''
    ? `is not a duration, because it has no unit: write ${written} (units: ms, s, m, h)`
    : `is not a duration: did you mean ${written}? (units: ms, s, m, h)`;
}

/** `5s`, `500ms`, `0.5s`, `2m`, `1h`, or `0`, which needs no unit: whole milliseconds. */
export function parseDuration(text: string): Result<number> {
  const found = form.exec(text);
  if (found === null) return fail(`${JSON.stringify(text)} ${notADuration(text)}`);
  const { amount = 0, unit = '' } = found.groups ?? {};
  const exact = Number(amount) * (units.get(unit) ?? 0);
  const milliseconds = Math.round(exact);
  if (milliseconds > longest) return fail(`${text} is too long: at most 24 days are accepted`);
  if (exact > 0 && milliseconds === 0) return fail(`${text} is too short: the smallest duration is 1ms`);
  return ok(milliseconds);
}
