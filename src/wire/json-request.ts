import { onceFor } from '../model/maps.ts';
import type { WantedMetadata } from '../model/node-path.ts';
import { assertNever, fail, ok, type Result } from '../model/result.ts';
import { atOnce, type InTurns } from '../model/time-slices.ts';
import { encode, type Field, message, nested, utf8, varint } from '../protobuf/field-writer.ts';
import { JsonFault, JsonReader } from './json-reader.ts';

/** Envoy's node has 4,000, and 10,000 locators with their parameters have 60,000. */
const mostValues = 200_000;

/**
 * A DiscoveryRequest in JSON as an encoded one (protocol §7.1), with what the relay reads of it. Of a node of 61 KB that
 * is a few texts; of its metadata only what is `wanted` (undefined: all). Everything else is passed over.
 */
export function* requestFromJson(body: Buffer, wanted: WantedMetadata | undefined): InTurns<Result<Buffer>> {
  try {
    const reader = new JsonReader(body, mostValues);
    if (reader.kind() !== 'object') {
      reader.skip();
      reader.end();
      return fail('the body is not a JSON object: it must be a DiscoveryRequest');
    }
    const fields = yield* readMessage(reader, requestShape(wanted));
    reader.end();
    yield;
    return ok(encode(fields));
  } catch (error) {
    if (!(error instanceof JsonFault)) throw error;
    return fail(`the body is ${verdicts[error.kind]}${error.message}`);
  }
}

const verdicts: Readonly<Record<JsonFault['kind'], string>> = {
  malformed: 'not JSON: ',
  beyond: '',
  unexpected: 'not a DiscoveryRequest: ',
};

/** Reads a value that is not null. */
type Read = (reader: JsonReader, into: Field[]) => void;

/** A list, of which this reads each element. */
interface List {
  readonly each: Read;
}

/** The fields that are read, under both of their names. `once` may be set once: the field, or the one-of that has it. */
type Shape = ReadonlyMap<string, { readonly read: Read | List; readonly once: string }>;

function shape(
  fields: Readonly<Record<string, Read | List>>,
  oneOfs: Readonly<Record<string, string>> = {},
): Shape {
  return new Map(
    Object.entries(fields).flatMap(([name, read]) => {
      const known = { read, once: oneOfs[name] ?? name };
      const jsonName = name.replaceAll(/_(.)/g, (_, letter: string) => letter.toUpperCase());
      return [name, jsonName].map((key) => [key, known] as const);
    }),
  );
}

/** So many elements of a list are read in one turn: locators with their parameters take some milliseconds. */
const elementsPerTurn = 500;

function* readMessage(reader: JsonReader, known: Shape): InTurns<Field[]> {
  const into: Field[] = [];
  const seen = new Set<string>();
  for (const key of reader.keys()) {
    const field = known.get(key);
    if (field === undefined) {
      reader.skip();
      continue;
    }
    const { read, once } = field;
    if (seen.has(once)) reader.refuse(`${once} may be given only once`);
    if (reader.isNull()) continue;
    seen.add(once);
    if (typeof read === 'function') read(reader, into);
    else
      for (const index of reader.elements()) {
        if (index % elementsPerTurn === elementsPerTurn - 1) yield;
        read.each(reader, into);
      }
  }
  return into;
}

const text =
  (number: number): Read =>
  (reader, into) => {
    into.push(utf8(number, reader.text()));
  };

/** An unsigned number, or one whose sign the reader of the message takes from its 32 bits. */
const integer =
  (number: number): Read =>
  (reader, into) => {
    const value = reader.number();
    if (!Number.isInteger(value) || Math.abs(value) > 0xffffffff)
      reader.refuse('a number of 32 bits is expected');
    into.push(varint(number, value >>> 0));
  };

const part =
  (number: number, known: Shape): Read =>
  (reader, into) =>
    nested(into, number, atOnce(readMessage(reader, known)));

/** A map<string, string>. */
const texts =
  (number: number): Read =>
  (reader, into) => {
    const seen = new Set<string>();
    for (const key of reader.keys()) {
      if (seen.has(key)) reader.refuse('each key may be given only once');
      seen.add(key);
      nested(into, number, [utf8(1, key), utf8(2, reader.text())]);
    }
  };

/** A google.protobuf.Struct. The relay reads no lists and no nulls of it, and numbers as text (`readClientNode`). */
const struct =
  (number: number, wanted: WantedMetadata | undefined): Read =>
  (reader, into) =>
    nested(into, number, readStruct(reader, wanted));

function readStruct(reader: JsonReader, wanted: WantedMetadata | undefined): Field[] {
  const into: Field[] = [];
  const seen = new Set<string>();
  for (const key of reader.keys()) {
    const below = wanted?.get(key);
    if (wanted !== undefined && below === undefined) {
      reader.skip();
      continue;
    }
    if (seen.has(key)) reader.refuse('each key may be given only once');
    seen.add(key);
    const value = readValue(reader, below);
    if (value !== undefined) nested(into, 1, [utf8(1, key), message(2, [value])]);
  }
  return into;
}

function readValue(reader: JsonReader, wanted: WantedMetadata | undefined): Field | undefined {
  const kind = reader.kind();
  switch (kind) {
    case 'text':
      return utf8(stringValue, reader.text());
    case 'number': {
      const number = reader.number();
      return Number.isFinite(number) ? utf8(stringValue, JSON.stringify(number)) : undefined;
    }
    case 'object':
      return message(structValue, readStruct(reader, wanted));
    case 'literal': {
      const literal = reader.passed();
      return literal === 'null' ? undefined : utf8(stringValue, literal);
    }
    case 'list':
      reader.skip();
      return undefined;
    default:
      return assertNever(kind);
  }
}

const stringValue = 3;
const structValue = 5;

const locator = shape({ name: text(1), dynamic_parameters: texts(2) });
const locality = shape({ region: text(1), zone: text(2), sub_zone: text(3) });
const semanticVersion = shape({ major_number: integer(1), minor_number: integer(2), patch: integer(3) });
const buildVersion = shape({ version: part(1, semanticVersion) });
const status = shape({ code: integer(1), message: text(2) });
const version = 'user_agent_version_type';

const nodeShape = (wanted: WantedMetadata | undefined): Shape =>
  shape(
    {
      id: text(1),
      cluster: text(2),
      metadata: struct(3, wanted),
      locality: part(4, locality),
      user_agent_name: text(6),
      user_agent_version: text(7),
      user_agent_build_version: part(8, buildVersion),
      client_features: { each: text(10) },
    },
    { user_agent_version: version, user_agent_build_version: version },
  );

const makeShape = (wanted: WantedMetadata | undefined): Shape =>
  shape({
    version_info: text(1),
    node: part(2, nodeShape(wanted)),
    resource_names: { each: text(3) },
    resource_locators: { each: part(7, locator) },
    type_url: text(4),
    response_nonce: text(5),
    error_detail: part(6, status),
  });

const shapeOf = onceFor<WantedMetadata, Shape>(makeShape);
const shapeOfAll = makeShape(undefined);

/** The rules want the same of every request. */
const requestShape = (wanted: WantedMetadata | undefined): Shape =>
  wanted === undefined ? shapeOfAll : shapeOf(wanted);
