import { extname } from 'node:path';
import { fromBinary } from '@bufbuild/protobuf';
import {
  type Document,
  isAlias,
  isMap,
  isNode,
  isScalar,
  isSeq,
  LineCounter,
  type Pair,
  parseDocument,
  visit,
} from 'yaml';
import {
  type DiscoveryResponse,
  DiscoveryResponseSchema,
} from '../../gen/envoy/service/discovery/v3/discovery_pb.ts';
import type { TypeUrl } from '../../model/brand.ts';
import { errorMessage, fail, ok, type Result } from '../../model/result.ts';
import type { JsonPath } from '../../wire/json-fault.ts';
import { type JsonFault, jsonToBytes, textToBytes } from '../../wire/registry.ts';

/** A file's content, and how to find a resource in it. */
export interface ParsedFile {
  readonly response: DiscoveryResponse;
  /** Where a resource of the response is; undefined where the format has no lines. Holds the text. */
  readonly placeOf: (index: number) => Place | undefined;
  /** Its index in the file: others may have been left out. */
  readonly indexOf: (index: number) => number;
  /** The same, worked out already, where that costs little. */
  readonly places: readonly (Place | undefined)[];
}

interface ParseProblem {
  readonly place: Place | undefined;
  readonly message: string;
}

/** What is wrong with a file: at least one thing. */
interface Faults {
  readonly problems: readonly ParseProblem[];
  /** The resources in which nothing was found, for what else may be wrong with them. */
  readonly rest: ParsedFile | undefined;
}

type Parsed = Result<ParsedFile, Faults>;

const decoders: ReadonlyMap<string, (bytes: Uint8Array) => Parsed> = new Map([
  ['.json', parseJson],
  ['.yaml', parseYaml],
  ['.yml', parseYaml],
  ['.pb', parseBinary],
  ['.pb_text', parseText],
]);

/** Whether files of this name are read at all (docs/configuration.md, upstreams). */
export function isResourceFile(path: string): boolean {
  return decoders.has(extname(path));
}

/** Reads a DiscoveryResponse (protocol §7) in the format that the file's name says. */
export function parseFile(path: string, bytes: Uint8Array): Parsed {
  const decode = decoders.get(extname(path));
  if (decode === undefined) {
    return refuse(`its name must end in one of ${[...decoders.keys()].join(' ')}`);
  }
  // Full state with nothing in it deletes everything. An empty file is more likely one that is being written.
  if (bytes.length === 0)
    return refuse('the file is empty; a DiscoveryResponse without resources is `resources: []`');
  return decode(bytes);
}

function parseJson(bytes: Uint8Array): Parsed {
  const text = utf8(bytes);
  if (!text.ok) return refuse(text.error);
  let json: unknown;
  try {
    json = JSON.parse(text.value);
  } catch (error) {
    const message = errorMessage(error);
    const [, line, column] = /\(line (\d+) column (\d+)\)/.exec(message) ?? [];
    const place = line === undefined ? undefined : { line: Number(line), column: Number(column) };
    return refuse(message, place);
  }
  // JSON.parse rounds integers that a double cannot hold; the YAML reader keeps them.
  if (/\d{16}/.test(text.value)) return parseYaml(bytes);
  const layout = lazy(() => readLayout(text.value));
  // The layout of what is nested too deeply costs a second; a fault of the whole document needs none.
  return fromJsonValue(json, (path) => (path.length === 0 ? start : layout().placeAt(path)));
}

function parseYaml(bytes: Uint8Array): Parsed {
  const text = utf8(bytes);
  if (!text.ok) return refuse(text.error);
  try {
    const { document, placeIn, placeAt } = readLayout(text.value);
    // After the first error the parser has lost its place: what it reports from there on is mostly not there.
    const [error] = document.errors;
    if (error !== undefined) return refuse(error.message, placeIn(error.pos[0]));
    visit(document, {
      Scalar(_key, node) {
        // 64-bit integers beyond what a double holds: canonical JSON writes them as strings.
        if (Number.isInteger(node.value) && !Number.isSafeInteger(node.value)) {
          node.value = node.source ?? node.value;
        }
      },
    });
    const json: unknown = document.toJS();
    const parsed = fromJsonValue(json, placeAt);
    if (!parsed.ok) return parsed;
    const { response, placeOf } = parsed.value;
    return ok({ ...parsed.value, places: response.resources.map((_, index) => placeOf(index)) });
  } catch (thrown) {
    // An alias without its anchor, aliases that multiply beyond reason, or too deep nesting.
    return refuse(errorMessage(thrown));
  }
}

const start: Place = { line: 1, column: 1 };

type PlaceAt = (path: JsonPath) => Place | undefined;

function fromJsonValue(json: unknown, placeAt: PlaceAt): Parsed {
  if (json === null)
    return refuse('the file is empty; a DiscoveryResponse without resources is `resources: []`');
  const bytes = toBytes(json);
  if (bytes.ok) return ok(parsedFile(bytes.value, (index) => placeAt(['resources', index])));
  const problems = bytes.error.all.map(({ path, message }) => ({
    place: placeAt(path),
    message: path.length === 0 ? message : `${showPath(path)}: ${message}`,
  }));
  return fail({ problems, rest: withoutFaults(json, bytes.error, placeAt) });
}

const toBytes = (json: unknown) => jsonToBytes(DiscoveryResponseSchema.typeName, json);

/** Undefined: something is wrong outside of the resources. */
function withoutFaults(json: unknown, { all }: JsonFault, placeAt: PlaceAt): ParsedFile | undefined {
  if (typeof json !== 'object' || json === null || !('resources' in json)) return undefined;
  const { resources } = json;
  if (!Array.isArray(resources)) return undefined;
  const faulty = new Set(all.map(({ path }) => path[1]));
  const sound = [...resources.keys()].filter((index) => !faulty.has(index));
  const bytes = toBytes({ ...json, resources: sound.map((index): unknown => resources[index]) });
  if (!bytes.ok) return undefined;
  const indexOf = (index: number): number => sound[index] ?? index;
  return parsedFile(bytes.value, (index) => placeAt(['resources', indexOf(index)]), indexOf);
}

function parsedFile(
  bytes: Uint8Array,
  placeOf: ParsedFile['placeOf'],
  indexOf: ParsedFile['indexOf'] = (index) => index,
): ParsedFile {
  return { response: fromBinary(DiscoveryResponseSchema, bytes), placeOf, indexOf, places: [] };
}

function parseBinary(bytes: Uint8Array): Parsed {
  try {
    return ok(parsedFile(bytes, () => undefined));
  } catch (error) {
    return refuse(`not an encoded DiscoveryResponse: ${errorMessage(error)}`);
  }
}

function parseText(bytes: Uint8Array): Parsed {
  const text = utf8(bytes);
  if (!text.ok) return refuse(text.error);
  const encoded = textToBytes(DiscoveryResponseSchema.typeName, text.value);
  return encoded.ok ? parseBinary(encoded.value) : refuse(encoded.error);
}

interface Layout {
  readonly document: Document.Parsed;
  /** Of a position in the text. */
  readonly placeIn: (position: number) => Place;
  readonly placeAt: PlaceAt;
}

function readLayout(text: string): Layout {
  const lines = new LineCounter();
  const document = parseDocument(text, { merge: true, prettyErrors: false, lineCounter: lines });
  const placeIn = (position: number): Place => {
    const { line, col } = lines.linePos(position);
    return { line, column: col };
  };
  return {
    document,
    placeIn,
    placeAt: (path) => {
      const position = positionOf(document, path);
      return position === undefined ? undefined : placeIn(position);
    },
  };
}

/** Where the deepest part of the path is that is there: keys that a merge (`<<`) brought are elsewhere. */
function positionOf(document: Document.Parsed, path: JsonPath): number | undefined {
  let node: unknown = document.contents;
  let place: unknown = node;
  for (const segment of path) {
    const pair = entryAt(isAlias(node) ? node.resolve(document) : node, segment);
    if (pair === undefined) break;
    place = pair.key ?? pair.value ?? place;
    node = pair.value;
  }
  return isNode(place) ? place.range?.[0] : undefined;
}

/** An entry of a mapping, or one of a list, which has no key. */
function entryAt(node: unknown, segment: string | number): Pick<Pair, 'key' | 'value'> | undefined {
  if (isSeq(node) && typeof segment === 'number') return { key: undefined, value: node.items[segment] };
  if (!isMap(node)) return undefined;
  return node.items.find(({ key }) => isScalar(key) && String(key.value) === String(segment));
}

function showPath(path: JsonPath): string {
  return path.reduce<string>(
    (shown, part) =>
      typeof part === 'number' ? `${shown}[${part}]` : shown === '' ? part : `${shown}.${part}`,
    '',
  );
}

function utf8(bytes: Uint8Array): Result<string> {
  try {
    return ok(new TextDecoder('utf-8', { fatal: true }).decode(bytes));
  } catch {
    return fail('the file is not UTF-8 text');
  }
}

function lazy<T>(make: () => T): () => T {
  let made: { readonly value: T } | undefined;
  return () => {
    made ??= { value: make() };
    return made.value;
  };
}

function refuse(message: string, place?: Place): Result<never, Faults> {
  return fail({ problems: [{ place, message }], rest: undefined });
}

/** From 1, as editors count. */
export interface Place {
  readonly line: number;
  /** Undefined: only the line is known. */
  readonly column?: number | undefined;
}

/** Something wrong with one file, for the log, for `status` and for `validate`. */
export interface FileProblem {
  /** As found below the configured path. */
  readonly file: string;
  /** Undefined where the format has no lines or the place is not known. */
  readonly place: Place | undefined;
  readonly message: string;
  /** The types of which something is refused. */
  readonly types: readonly TypeUrl[];
}

/** `path:line:column: message`, as editors and compilers write it. */
export function formatProblem({ file, place, message }: FileProblem): string {
  const at = [file, ...[place?.line, place?.column].filter((part) => part !== undefined)];
  return `${at.join(':')}: ${message}`;
}
