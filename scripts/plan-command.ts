import { parseArgs } from 'node:util';
import { defaults, measured, type PlanInput, plan, planText } from './plan-model.ts';

const usage = `Usage: npm run plan -- [--envoys N] [--regions N] …

Computes how many relays a fleet needs, and what an update and the failure of a region cost. docs/scale.md has the
formulas. What it takes as measured: ${Object.entries(measured)
  .map(([name, value]) => `${name} ${value}`)
  .join(', ')}.

${Object.entries(defaults)
  .map(([name, value]) => `  --${flagOf(name).padEnd(26)} default ${value}`)
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
  const given: Record<string, number> = {};
  for (const name of Object.keys(defaults)) {
    const text: unknown = Reflect.get(values, flagOf(name));
    if (typeof text !== 'string') continue;
    const value = Number(text);
    if (!(value > 0)) throw new Error(`--${flagOf(name)} ${text}: accepted is a number above 0`);
    given[name] = value;
  }
  const input: PlanInput = { ...defaults, ...given };
  const result = plan(input);
  return values['json'] === true ? `${JSON.stringify(result, null, 2)}\n` : planText(input, result);
}
