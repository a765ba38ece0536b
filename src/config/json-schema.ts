import * as z from 'zod';
import { durationPattern } from './duration.ts';
import { fileSchema } from './schema.ts';
import { read } from './schema-parts.ts';
import type { Path } from './source.ts';

type JsonSchema = z.core.JSONSchema.BaseSchema;

let made: JsonSchema | undefined;

/** Made when it is first asked for: a start needs none, and it takes 20 ms. */
function generated(): JsonSchema {
  made ??= z.toJSONSchema(fileSchema, { io: 'input' });
  return made;
}

/** Of a mapping, or false, that of the mapping: its keys are there where they are looked for. */
const mappingIn = ({ anyOf, ...schema }: JsonSchema): JsonSchema =>
  Object.assign(
    {},
    schema,
    anyOf?.find(({ properties }) => properties !== undefined),
  );

/** The schema that is published for editors: config.schema.json. */
export function publishedSchema(): Readonly<Record<string, unknown>> {
  const { $schema, ...rest } = allowReferences(generated());
  return { $schema, title: 'distributary', ...rest };
}

/** The keys of the mapping at a path, as the schema has them. */
export const acceptedKeys = (path: Path): readonly string[] => Object.keys(schemaAt(path)?.properties ?? {});

/** Whether a duration is to stand at a path. */
export const isDuration = (path: Path): boolean => schemaAt(path)?.pattern === durationPattern;

function schemaAt(path: Path): JsonSchema | undefined {
  let current: JsonSchema | undefined = generated();
  for (const step of path) {
    const next: unknown = typeof step === 'number' ? current?.items : current?.properties?.[step];
    current = isSchema(next) ? mappingIn(next) : undefined;
  }
  return current;
}

/** What a configuration says, with the default of every key that it leaves out. */
export function withDefaults(value: unknown, schema: JsonSchema = generated()): unknown {
  const given = value === undefined ? schema.default : value;
  const { items, properties } = mappingIn(schema);
  if (Array.isArray(given) && isSchema(items)) {
    return given.map((item: unknown) => withDefaults(item, items));
  }
  if (given === undefined || given === false || properties === undefined) return given;
  const filled = new Map<string, unknown>();
  for (const [key, inner] of Object.entries(properties)) {
    if (isSchema(inner)) filled.set(key, withDefaults(read(given, key), inner));
  }
  return defined(Object.fromEntries(filled));
}

const isSchema = (value: unknown): value is JsonSchema =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

/** To the environment. */
const reference: JsonSchema = { type: 'string', pattern: String.raw`\$\{` };

/** Any scalar may also be written as a reference to the environment, whatever it is checked for afterwards. */
function allowReferences(schema: JsonSchema): JsonSchema {
  const { properties, items } = schema;
  const inner: JsonSchema = { ...schema };
  if (properties !== undefined) {
    inner.properties = Object.fromEntries(
      Object.entries(properties).map(([key, value]) => [
        key,
        isSchema(value) ? allowReferences(value) : value,
      ]),
    );
  }
  if (isSchema(items)) inner.items = allowReferences(items);
  if (inner.anyOf !== undefined) {
    const alternatives = inner.anyOf.map((one) => (isSchema(one) ? allowReferences(one) : one));
    return { ...inner, anyOf: [...alternatives, reference] };
  }
  // JavaScript's largest exact integer is no bound that tells a reader anything.
  if (inner.maximum === Number.MAX_SAFE_INTEGER) delete inner.maximum;
  const { description, default: fallback, ...own } = inner;
  return isScalar(own) ? { ...defined({ description, default: fallback }), anyOf: [own, reference] } : inner;
}

const scalars: ReadonlySet<unknown> = new Set(['integer', 'number', 'boolean']);
/** What is not one value only, and could not be written as a reference by its own schema. */
const isScalar = ({ type, pattern, enum: values, format, const: only }: JsonSchema): boolean =>
  only === undefined && (scalars.has(type) || (pattern ?? values ?? format) !== undefined);

function defined(entries: Readonly<Record<string, unknown>>): JsonSchema {
  return Object.fromEntries(Object.entries(entries).filter(([, value]) => value !== undefined));
}
