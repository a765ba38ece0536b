import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { parse } from 'yaml';
import { z } from 'zod';
import { code, heading, table } from './markdown.ts';

const value = z.object({
  description: z.string().optional(),
  get properties() {
    return z.record(z.string(), value).optional();
  },
});
const mapping = z.record(z.string(), z.unknown());

const chart = join(import.meta.dirname, '../../deploy/chart');
const read = (name: string): string => readFileSync(join(chart, name), 'utf8');
/** Longer defaults are in values.yaml. */
const longest = 80;

const about = `Each value with its default, from [values.schema.json](values.schema.json) and [values.yaml](values.yaml). How to install the chart is in [docs/kubernetes.md](../../docs/kubernetes.md).`;

/** deploy/chart/README.md. */
export function chartValues(): string {
  const schema = value.parse(JSON.parse(read('values.schema.json')));
  const all = rows(schema, parse(read('values.yaml')), []);
  return `${heading('Values of the chart', about)}\n${table(['value', 'default', 'what it is'], all)}\n`;
}

function rows(of: z.infer<typeof value>, defaults: unknown, path: readonly string[]): string[][] {
  const known = mapping.safeParse(defaults).data ?? {};
  return Object.entries(of.properties ?? {}).flatMap(([key, part]) => {
    const at = [...path, key];
    if (part.properties !== undefined) return rows(part, known[key], at);
    return [[code(at.join('.')), shown(known[key]), part.description ?? '']];
  });
}

function shown(given: unknown): string {
  if (given === undefined) return '–';
  const text = JSON.stringify(given);
  return text.length > longest ? '[values.yaml](values.yaml)' : code(text);
}
