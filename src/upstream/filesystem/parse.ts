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
import { errorMessage, fail, ok, type Result } from '../../model/result.ts';
import type { JsonPath } from '../../wire/json-fault.ts';
import { jsonToBytes, textToBytes } from '../../wire/registry.ts';

/** A file's content, and how to find a resource in it. */
interface ParsedFile {
  readonly response: DiscoveryResponse;
  /** The line, from 1, of the resource with this index; undefined where the format has no lines. Holds the text. */
  readonly lineOf: (index: number) => number | undefined;
  /** The same, worked out already, where that costs little. */
  readonly lines: readonly (number | undefined)[];
}

interface ParseProblem {
  readonly line: number | undefined;
  readonly message: string;
}

type Parsed = Result<ParsedFile, ParseProblem>;

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
    return refuse(message, Number(/\(line (\d+) /.exec(message)?.[1]) || undefined);
  }
  // JSON.parse rounds integers that a double cannot hold; the YAML reader keeps them.
  if (/\d{16}/.test(text.value)) return parseYaml(bytes);
  const layout = lazy(() => readLayout(text.value));
  // The layout of what is nested too deeply costs a second; a fault of the whole document needs none.
  return fromJsonValue(json, (path) => (path.length === 0 ? 1 : layout().lineAt(path)));
}

function parseYaml(bytes: Uint8Array): Parsed {
  const text = utf8(bytes);
  if (!text.ok) return refuse(text.error);
  try {
    const { document, lines, lineAt } = readLayout(text.value);
    const [error] = document.errors;
    if (error !== undefined) return refuse(error.message, lines.linePos(error.pos[0]).line);
    visit(document, {
      Scalar(_key, node) {
        // 64-bit integers beyond what a double holds: canonical JSON writes them as strings.
        if (Number.isInteger(node.value) && !Number.isSafeInteger(node.value)) {
          node.value = node.source ?? node.value;
        }
      },
    });
    const json: unknown = document.toJS();
    const parsed = fromJsonValue(json, lineAt);
    if (!parsed.ok) return parsed;
    const { response, lineOf } = parsed.value;
    return ok({ response, lineOf, lines: response.resources.map((_, index) => lineOf(index)) });
  } catch (thrown) {
    // An alias without its anchor, aliases that multiply beyond reason, or too deep nesting.
    return refuse(errorMessage(thrown));
  }
}

function fromJsonValue(json: unknown, lineAt: (path: JsonPath) => number | undefined): Parsed {
  if (json === null)
    return refuse('the file is empty; a DiscoveryResponse without resources is `resources: []`');
  const bytes = jsonToBytes(DiscoveryResponseSchema.typeName, json, { ignoreUnknownFields: false });
  if (!bytes.ok) {
    const { path, message } = bytes.error;
    return refuse(path.length === 0 ? message : `${showPath(path)}: ${message}`, lineAt(path));
  }
  return ok({
    response: fromBinary(DiscoveryResponseSchema, bytes.value),
    lineOf: (index) => lineAt(['resources', index]),
    lines: [],
  });
}

function parseBinary(bytes: Uint8Array): Parsed {
  try {
    return ok({ response: fromBinary(DiscoveryResponseSchema, bytes), lineOf: () => undefined, lines: [] });
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
  readonly lines: LineCounter;
  readonly lineAt: (path: JsonPath) => number | undefined;
}

function readLayout(text: string): Layout {
  const lines = new LineCounter();
  const document = parseDocument(text, { merge: true, prettyErrors: false, lineCounter: lines });
  return { document, lines, lineAt: (path) => lineOfNode(document, lines, path) };
}

/** The line of the deepest part of the path that is there: keys that a merge (`<<`) brought are elsewhere. */
function lineOfNode(document: Document.Parsed, lines: LineCounter, path: JsonPath): number | undefined {
  let node: unknown = document.contents;
  let place: unknown = node;
  for (const segment of path) {
    const pair = entryAt(isAlias(node) ? node.resolve(document) : node, segment);
    if (pair === undefined) break;
    place = pair.key ?? pair.value ?? place;
    node = pair.value;
  }
  const start = isNode(place) ? place.range?.[0] : undefined;
  return typeof start === 'number' ? lines.linePos(start).line : undefined;
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

function refuse(message: string, line?: number): Result<never, ParseProblem> {
  return fail({ line, message });
}
