import * as z from 'zod';
import { durationPattern } from './duration.ts';
import { fileSchema } from './schema.ts';
import { read } from './schema-parts.ts';
import type { Path } from './source.ts';

type JsonSchema = z.core.JSONSchema.BaseSchema;

let made: JsonSchema | undefined;

/** Made when it is first asked for: a start needs none, and it takes 20 ms. */
function generated(): JsonSchema {
  made ??= z.toJSONSchema(fileSchema, { io: 'input', override: ({ jsonSchema }) => orFalse(jsonSchema) });
  return made;
}

/** A mapping, or false: the keys of the mapping stay where they are looked for. */
function orFalse(schema: JsonSchema): void {
  const [first, mapping] = schema.anyOf ?? [];
  if (!isSchema(first) || !isSchema(mapping) || first.const !== false) return;
  Object.assign(schema, { ...mapping, orFalse: true });
  delete schema.anyOf;
}

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
    current = isSchema(next) ? next : undefined;
  }
  return current;
}

/** What a configuration says, with the default of every key that it leaves out. */
export function withDefaults(value: unknown, schema: JsonSchema = generated()): unknown {
  const given = value === undefined ? schema.default : value;
  const { items, properties } = schema;
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
  if (inner['orFalse'] === true) {
    const { description, default: fallback, orFalse: _, ...mapping } = inner;
    return {
      ...defined({ description, default: fallback }),
      anyOf: [{ type: 'boolean', const: false }, mapping, reference],
    };
  }
  // JavaScript's largest exact integer is no bound that tells a reader anything.
  if (inner.maximum === Number.MAX_SAFE_INTEGER) delete inner.maximum;
  const {
    type,
    pattern,
    minLength,
    minimum,
    maximum,
    enum: values,
    format,
    description,
    default: fallback,
    anyOf,
    ...rest
  } = inner;
  const constraints = defined({ pattern, enum: values, format, minimum, maximum });
  const scalar =
    type === 'integer' || type === 'number' || type === 'boolean' || Object.keys(constraints).length > 0;
  if (!scalar || anyOf !== undefined) return inner;
  const own = { ...defined({ type, minLength }), ...constraints };
  return {
    ...defined({ description, default: fallback }),
    ...rest,
    anyOf: [own, reference],
  };
}

function defined(entries: Readonly<Record<string, unknown>>): JsonSchema {
  return Object.fromEntries(Object.entries(entries).filter(([, value]) => value !== undefined));
}
