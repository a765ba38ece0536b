import { printableJson } from '../model/text.ts';
import { type View } from '../observe/text-table.ts';
import { yamlText } from '../observe/yaml-text.ts';
import { oneOf, toggle, UsageError } from './command.ts';
import { type Terminal, viewOf } from './terminal.ts';

/** What a command shows. */
export interface Shown {
  /** For scripts. */
  readonly json: () => unknown;
  /** For people. Empty: nothing. */
  readonly text: (view: View) => string | Promise<string>;
}

const outputs = ['wide', 'json', 'yaml'] as const;
/** Undefined: for people, as wide as the terminal. */
export type Output = (typeof outputs)[number] | undefined;

/** Of every command that prints a table. */
export const outputFlags = {
  output: { ...oneOf('FORMAT', outputs, 'wide (a table with all columns), json or yaml'), short: 'o' },
  json: toggle('same as -o json'),
} as const;

export function outputOf({ json, output }: { readonly json: boolean; readonly output: Output }) {
  if (json && output !== undefined && output !== 'json')
    return new UsageError(`--json and -o ${output} exclude each other`);
  return json ? 'json' : output;
}

export async function written(
  { json, text }: Shown,
  format: Output,
  terminal: Terminal,
  indent: number,
): Promise<string> {
  return format === undefined || format === 'wide'
    ? text(viewOf(terminal, format === 'wide'))
    : dataText(json(), format, indent);
}

export function dataText(value: unknown, format: 'json' | 'yaml', indent: number): string {
  return format === 'json' ? printableJson(JSON.stringify(value, null, indent)) : yamlText(value).trimEnd();
}
