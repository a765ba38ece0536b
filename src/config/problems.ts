import type * as z from 'zod';
import { assertNever } from '../model/result.ts';
import { anyOf, nearest, quote, unknownWord } from '../model/text.ts';
import { notADuration } from './duration.ts';
import { acceptedKeys, isDuration } from './json-schema.ts';
import { putAt, valueAt } from './schema-parts.ts';
import { type Path, pathText, type UnplacedProblem } from './source.ts';

/**
 * The issues of the schema as problems that say what is wrong and what is accepted. `file` is the value that was
 * parsed.
 */
export function problemsOf(error: z.ZodError, file: unknown): readonly UnplacedProblem[] {
  return error.issues.flatMap((issue) => problemOf(issue, file));
}

function problemOf(issue: z.core.$ZodIssue, file: unknown): readonly UnplacedProblem[] {
  const path: Path = issue.path.map((step) => (typeof step === 'symbol' ? String(step) : step));
  const value = valueAt(file, path);
  switch (issue.code) {
    case 'unrecognized_keys': {
      const accepted = acceptedKeys(path);
      return issue.keys.map((key) => ({
        path: [...path, key],
        message: unknownWord('key', key, accepted),
        aboutKey: true,
      }));
    }
    case 'invalid_type': {
      const got = path.includes('headers') ? 'secret' : 'shown';
      return [
        { path, message: isDuration(path) ? wrongDuration(value) : wrongType(issue.expected, value, got) },
      ];
    }
    case 'invalid_value':
      return [{ path, message: notAmong(issue.values.map(String), value) }];
    case 'too_small':
      return [{ path, message: tooSmall(issue.origin, issue.minimum) }];
    case 'too_big':
      return [{ path, message: tooBig(issue.origin, issue.maximum) }];
    case 'invalid_union': {
      const meant = issue.errors.find((own) => !own.some(isOfAnotherType));
      if (meant === undefined) return [{ path, message: noneOf(issue.errors.flat(), value) }];
      return inUnion(issue, meant).flatMap((one) => problemOf(one, file));
    }
    case 'custom':
    case 'invalid_format':
    case 'not_multiple_of':
    case 'invalid_key':
    case 'invalid_element':
      return [{ path, message: issue.message }];
    default:
      return assertNever(issue);
  }
}

/** What is wrong with a value by one alternative of a union, with paths in the file. */
const inUnion = ({ path }: z.core.$ZodIssue, own: readonly z.core.$ZodIssue[]): readonly z.core.$ZodIssue[] =>
  own.map((one) => ({ ...one, path: [...path, ...one.path] }));

/** This alternative of a union cannot be meant. */
const isOfAnotherType = ({ code, path }: z.core.$ZodIssue): boolean =>
  path.length === 0 && (code === 'invalid_type' || code === 'invalid_value');

/** Of a union whose alternatives have these issues. */
function noneOf(issues: readonly z.core.$ZodIssue[], value: unknown): string {
  const accepted = issues.flatMap((issue) => {
    if (issue.code === 'invalid_value') return issue.values.map(String);
    return issue.code === 'invalid_type' ? (typeNames.get(issue.expected) ?? issue.expected) : [];
  });
  const meant = hint('boolean', value);
  const isAccepted = accepted.some((one) => meant === `: write ${one}`);
  return `expected ${anyOf(accepted)}, got ${describe(value)}${isAccepted ? meant : ''}`;
}

/** `got`: of what may be a secret, as the values of headers, it says only of which type it is. */
function wrongType(type: string, value: unknown, got: 'shown' | 'secret'): string {
  const expected = typeNames.get(type) ?? type;
  if (got === 'secret' && value !== undefined) return `expected ${expected}, got ${typeOf(value)}`;
  return value === undefined
    ? `missing: ${expected} is required`
    : `expected ${expected}, got ${describe(value)}${hint(type, value)}`;
}

function wrongDuration(value: unknown): string {
  if (typeof value === 'number') return `${value} ${notADuration(String(value))}`;
  return value === undefined
    ? 'missing: a duration as in "5s" is required'
    : `expected a duration as in "5s", got ${describe(value)}`;
}

const units: ReadonlyMap<string, number> = new Map([
  ['', 1],
  ['k', 1e3],
  ['m', 1e6],
  ['g', 1e9],
  ['t', 1e12],
  ['ki', 2 ** 10],
  ['mi', 2 ** 20],
  ['gi', 2 ** 30],
  ['ti', 2 ** 40],
]);

/** What was probably meant: `1GiB` for a number, YAML 1.1's `yes` for a boolean. */
function hint(type: string, value: unknown): string {
  if (typeof value !== 'string') return '';
  if (type === 'boolean') {
    if (/^(yes|on|true)$/i.test(value)) return ': write true';
    return /^(no|off|false)$/i.test(value) ? ': write false' : '';
  }
  if (type !== 'number' && type !== 'int') return '';
  const [, amount, unit = ''] = /^(\d+(?:\.\d+)?) *([kmgt]?i?)b?$/i.exec(value) ?? [];
  const scale = units.get(unit.toLowerCase());
  if (amount === undefined || scale === undefined) return '';
  return `: write ${Math.round(Number(amount) * scale)}${unit === '' ? ', without quotes' : ''}`;
}

function notAmong(accepted: readonly string[], value: unknown): string {
  const meant = typeof value === 'string' ? nearest(value, accepted) : undefined;
  const hint = meant === undefined ? '' : `: did you mean ${JSON.stringify(meant)}?`;
  return `expected ${anyOf(accepted)}, got ${describe(value)}${hint}`;
}

const typeNames: ReadonlyMap<string, string> = new Map([
  ['string', 'a string'],
  ['number', 'a number'],
  ['int', 'a whole number'],
  ['boolean', 'true or false'],
  ['array', 'a list'],
  ['object', 'a mapping'],
  ['record', 'a mapping'],
]);

function tooSmall(origin: string, minimum: number | bigint): string {
  if (origin === 'string') return 'must not be empty';
  if (origin === 'array') return 'must have at least one entry';
  return `must be at least ${minimum}`;
}

function tooBig(origin: string, maximum: number | bigint): string {
  if (origin === 'string') return `must have at most ${maximum} characters`;
  if (origin === 'array') return `must have at most ${maximum} entries`;
  return `must be at most ${maximum}`;
}

function typeOf(value: unknown): string {
  if (value === null) return 'nothing (null)';
  if (Array.isArray(value)) return 'a list';
  return typeof value === 'object' ? 'a mapping' : `a ${typeof value}`;
}

/** A value as its writer would recognise it. */
function describe(value: unknown): string {
  if (typeof value === 'object') return typeOf(value);
  const shown = typeof value === 'string' ? quote(value, 60) : JSON.stringify(value);
  return `the ${typeof value} ${shown}`;
}

/** In a union what each alternative says, instead of its own issue. */
const withAlternatives = (issues: readonly z.core.$ZodIssue[]): readonly z.core.$ZodIssue[] =>
  issues.flatMap((issue) =>
    issue.code === 'invalid_union'
      ? issue.errors.flatMap((own) => withAlternatives(inUnion(issue, own)))
      : [issue],
  );

/**
 * A reference to the environment is always a string: turns it into a number or a boolean where one is wanted, in place.
 * `templates` names the strings that came from there.
 */
export function coerce(error: z.ZodError, file: unknown, templates: ReadonlyMap<string, string>): void {
  for (const issue of withAlternatives(error.issues)) {
    const path: Path = issue.path.map((step) => (typeof step === 'symbol' ? String(step) : step));
    const text = valueAt(file, path);
    if (typeof text !== 'string' || !templates.has(pathText(path))) continue;
    const literal =
      issue.code === 'invalid_value' ? issue.values.find((one) => String(one) === text) : undefined;
    if (literal !== undefined) putAt(file, path, literal);
    if (issue.code !== 'invalid_type') continue;
    if (issue.expected === 'boolean' && (text === 'true' || text === 'false')) {
      putAt(file, path, text === 'true');
    }
    if ((issue.expected === 'number' || issue.expected === 'int') && /^-?\d+(\.\d+)?$/.test(text)) {
      putAt(file, path, Number(text));
    }
  }
}
