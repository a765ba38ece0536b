import { z } from 'zod';
import { publishedSchema } from '../src/config/json-schema.ts';

/** The lines in docs/configuration.md between which the reference stands. */
export const start = '<!-- reference: written by scripts/config-schema.ts -->';
export const end = '<!-- end of reference -->';

const schema = z.object({
  type: z.union([z.string(), z.array(z.string()).transform((all) => all.join(' or '))]).optional(),
  description: z.string().optional(),
  default: z.unknown().optional(),
  enum: z.array(z.unknown()).optional(),
  minimum: z.number().optional(),
  maximum: z.number().optional(),
  maxItems: z.number().optional(),
  maxLength: z.number().optional(),
  pattern: z.string().optional(),
  get anyOf() {
    return z.array(schema).optional();
  },
  get items() {
    return schema.optional();
  },
  get properties() {
    return z.record(z.string(), schema).optional();
  },
  required: z.array(z.string()).optional(),
});
type Schema = z.infer<typeof schema>;

/** Every key of the configuration with what it takes, its default and its meaning: Markdown, from the schema. */
export function reference(): string {
  const root = schema.parse(publishedSchema());
  // A mapping, or false: the mapping.
  const sections = Object.entries(root.properties ?? {})
    .filter(([key]) => key !== '$schema')
    .map(
      ([key, part]) =>
        [key, { ...part, ...part.anyOf?.find((one) => one.properties !== undefined) }] as const,
    );
  const plain = sections.filter(([, part]) => part.properties === undefined && part.items === undefined);
  const nested = sections.filter((section) => !plain.includes(section));
  return [
    ...nested.map(([key, part]) => section(key, part, root.required?.includes(key) === true)),
    `### The rest\n\n${table(plain.flatMap(([key, part]) => rows(key, part, false)))}`,
  ].join('\n\n');
}

function section(key: string, part: Schema, required: boolean): string {
  const list = part.items !== undefined;
  const about = sentence(part.description ?? '');
  const need = required ? ' Required.' : '';
  const keys = Object.entries(part.items?.properties ?? part.properties ?? {});
  const path = list ? `${key}[]` : key;
  const needed = part.items?.required ?? part.required ?? [];
  return `### \`${key}\`\n\n${about}${need}${list ? ' A list.' : ''}\n\n${table(
    keys.flatMap(([name, inner]) => rows(`${path}.${name}`, inner, needed.includes(name))),
  )}`;
}

function rows(path: string, part: Schema, required: boolean): readonly string[] {
  const inner = part.items?.properties ?? part.properties;
  const own = `| \`${path}\` | ${taken(part)} | ${fallback(part, required)} | ${cell(part.description ?? '')} |`;
  if (inner === undefined) return [own];
  const below = part.items === undefined ? path : `${path}[]`;
  const needed = part.items?.required ?? part.required ?? [];
  return [
    own,
    ...Object.entries(inner).flatMap(([name, one]) => rows(`${below}.${name}`, one, needed.includes(name))),
  ];
}

function taken(part: Schema): string {
  // The other alternative is a reference to the environment, which every scalar takes.
  const [own = part] = part.anyOf ?? [];
  if (own.enum !== undefined) return own.enum.map((value) => `\`${String(value)}\``).join(' or ');
  if (own.items !== undefined) {
    const most = own.maxItems === undefined ? '' : `, at most ${own.maxItems}`;
    return own.items.properties === undefined ? `list of ${taken(own.items)}s${most}` : `list${most}`;
  }
  if (own.pattern?.includes('ms') === true) return 'duration';
  if (own.type === 'object') return 'mapping';
  if (own.type === undefined) return 'string';
  if (own.maxLength !== undefined) return `${own.type}, at most ${own.maxLength} characters`;
  const bounds = own.type === 'integer' && own.maximum !== undefined ? `, at most ${own.maximum}` : '';
  return `${own.type}${bounds}`;
}

function fallback(part: Schema, required: boolean): string {
  if (required) return '**required**';
  const { default: value } = part;
  if (value === undefined) return 'none';
  const empty = JSON.stringify(value);
  return empty === '{}' ? '' : `\`${typeof value === 'string' && value !== '' ? value : empty}\``;
}

const table = (lines: readonly string[]): string =>
  ['| key | takes | default | meaning |', '|-|-|-|-|', ...lines].join('\n');

const cell = (text: string): string => text.replaceAll('|', '\\|').replaceAll('<', '&lt;');
const sentence = (text: string): string => (text === '' || text.endsWith('.') ? text : `${cell(text)}.`);
