import { parseArgs } from 'node:util';
import { choices, defaults, measured, type PlanInput, plan, planText } from './plan-model.ts';

const choicesOf = new Map<string, readonly string[]>(Object.entries(choices));

const usage = `Usage: npm run plan -- [--envoys N] [--regions N] …

Computes how many relays a fleet needs, and what an update and the failure or restart of a region cost. docs/scale.md
has the formulas. What it takes as measured: ${Object.entries(measured)
  .map(([name, value]) => `${name} ${value}`)
  .join(', ')}.

${Object.entries(defaults)
  .map(
    ([name, value]) =>
      `  --${flagOf(name).padEnd(26)} default ${value}${choicesOf.has(name) ? ` (${choicesOf.get(name)?.join(', ')})` : ''}`,
  )
  .join('\n')}
  --json                       figures as JSON
  -h, --help                   this text`;

function flagOf(name: string): string {
  return name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
}

export interface PlanOutput {
  readonly out: string;
  readonly err: string;
  readonly code: number;
}

/** What the command prints; 2: an argument is wrong. */
export function runPlan(argv: readonly string[]): PlanOutput {
  try {
    return { out: output(argv), err: '', code: 0 };
  } catch (error) {
    return {
      out: '',
      err: `${error instanceof Error ? error.message : String(error)}\n\n${usage}\n`,
      code: 2,
    };
  }
}

function output(argv: readonly string[]): string {
  const options = Object.fromEntries(
    Object.keys(defaults).map((name): [string, { type: 'string' }] => [flagOf(name), { type: 'string' }]),
  );
  const { values } = parseArgs({
    args: [...argv],
    options: { ...options, json: { type: 'boolean' }, help: { type: 'boolean', short: 'h' } },
  });
  if (values['help'] === true) return `${usage}\n`;
  const given: Record<string, number | string> = {};
  for (const name of Object.keys(defaults)) {
    const text: unknown = Reflect.get(values, flagOf(name));
    if (typeof text === 'string') given[name] = valueOf(name, text);
  }
  const input: PlanInput = { ...defaults, ...given };
  const result = plan(input);
  return values['json'] === true ? `${JSON.stringify(result, null, 2)}\n` : planText(input, result);
}

/** What is accepted where that is not any number above 0. */
const numbers = new Map<string, readonly [accepts: (value: number) => boolean, accepted: string]>([
  ['resumed', [(value) => value >= 0 && value <= 1, 'a number from 0 to 1']],
  ['secondsDown', [(value) => value >= 0, 'a number, 0 or more']],
  ['workers', [(value) => Number.isInteger(value) && value > 0, 'a whole number above 0']],
]);

function valueOf(name: string, text: string): number | string {
  const refused = (accepted: string): Error =>
    new Error(`--${flagOf(name)} ${text}: accepted is ${accepted}`);
  const chosen = choicesOf.get(name);
  if (chosen !== undefined) {
    if (!chosen.includes(text)) throw refused(chosen.join(' or '));
    return text;
  }
  const value = text === '' ? Number.NaN : Number(text);
  const [accepts, accepted] = numbers.get(name) ?? [(number: number) => number > 0, 'a number above 0'];
  if (!accepts(value)) throw refused(accepted);
  return value;
}
