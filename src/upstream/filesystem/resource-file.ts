import { createHash } from 'node:crypto';
import { extname } from 'node:path';
import { fromBinary, ScalarType, toBinary } from '@bufbuild/protobuf';
import { type Any, AnySchema } from '@bufbuild/protobuf/wkt';
import {
  type Alias,
  isAlias,
  isCollection,
  isMap,
  isNode,
  isScalar,
  isSeq,
  LineCounter,
  type Node,
  type Pair,
  parseDocument,
  visit,
} from 'yaml';
import {
  type DiscoveryResponse,
  DiscoveryResponseSchema,
  ResourceSchema,
} from '../../gen/envoy/service/discovery/v3/discovery_pb.ts';
import { type TypeUrl, typeUrl } from '../../model/brand.ts';
import { parseConstraints, UNCONSTRAINED } from '../../model/constraints.ts';
import { getOrMake } from '../../model/maps.ts';
import { ownBytes } from '../../model/payloads.ts';
import { attempt, errorMessage, fail, ok, type Result } from '../../model/result.ts';
import type { Put } from '../../model/transaction.ts';
import { isKnownType, typeByName } from '../../model/types.ts';
import { canonicalName, canonicalNames } from '../../model/xdstp.ts';
import { asBuffer } from '../../protobuf/message-reader.ts';
import { JsonReader } from '../../wire/json-reader.ts';
import {
  envoyRegistry,
  type JsonFaultPlace,
  type JsonPath,
  jsonToBytes,
  messageName,
  textToBytes,
} from '../../wire/registry.ts';
import {
  type IncomingResource,
  ownName,
  plain,
  readAny,
  readDeltaResource,
} from '../../wire/response-reader.ts';
import { VariantSet } from '../variant-set.ts';

type Place = NonNullable<FileProblem['place']>;

/** Something wrong, and where. */
export type Located = Pick<FileProblem, 'place' | 'message'>;

/**
 * Or what is wrong with the file, at least one thing. `rest`: the resources in which nothing was found, for what else may
 * be wrong with them. `isOther`: it has no `resources`, and what it has is of no DiscoveryResponse.
 */
type Parsed = Result<
  ParsedFile,
  { readonly problems: readonly Located[]; readonly rest: ParsedFile | undefined; readonly isOther: boolean }
>;

/** Of JSON: protobuf's reader goes 100 messages deep, and each may be in a list or a map. */
const mostDepth = 200;
const MiB = 1 << 20;
const mostYaml = 16 * MiB;
/**
 * For each alias the reader goes through all anchors and aliases, and for one inside of what has an anchor through the
 * whole document: so many, and so many times its characters.
 */
const mostAliases = { all: 5000, insideAnchors: 500_000_000 };
const mostBinary = 128 * MiB;

/**
 * By the end of a name: how it is read, and of how many bytes at most. A file is read in one turn of the event loop, in
 * which nobody is served: so many take some seconds.
 */
const formats: ReadonlyMap<
  string,
  { readonly decode: (bytes: Uint8Array) => Parsed; readonly most: number }
> = new Map([
  ['.json', { decode: parseJson, most: 64 * MiB }],
  ['.yaml', { decode: parseYaml, most: mostYaml }],
  ['.yml', { decode: parseYaml, most: mostYaml }],
  ['.pb', { decode: parseBinary, most: mostBinary }],
  ['.pb_text', { decode: parseText, most: 64 * MiB }],
]);

/** Whether files of this name are read at all (docs/configuration.md, upstreams). */
export function isResourceFile(path: string): boolean {
  return formats.has(extname(path));
}

/** Reads a DiscoveryResponse (protocol §7) in the format that the file's name says. */
export function parseFile(path: string, bytes: Uint8Array): Parsed {
  const format = formats.get(extname(path));
  if (format === undefined) {
    return refuse(`its name must end in one of ${[...formats.keys()].join(' ')}`);
  }
  // Full state with nothing in it deletes everything. An empty file is more likely one that is being written.
  if (bytes.length === 0)
    return refuse('the file is empty; a DiscoveryResponse without resources is `resources: []`');
  return format.decode(bytes);
}

/** Why a file of so many bytes is not read at all; undefined: it is. The same, whatever it grows to. */
export function tooLarge(path: string, size: bigint): string | undefined {
  const extension = extname(path);
  const most = formats.get(extension)?.most ?? mostBinary;
  if (size <= most) return undefined;
  const larger = most < mostBinary ? 'write it as .pb, or divide it' : 'divide it';
  return `the file is larger than the ${most} bytes that are read of ${extension}, as nobody is served meanwhile: ${larger} into several files`;
}

function parseJson(bytes: Uint8Array): Parsed {
  const text = utf8(bytes);
  if (!text.ok) return refuse(text.error);
  const { exact, wrong } = walkJson(text.value);
  const json = attempt((): unknown => JSON.parse(exact), errorMessage);
  if (!json.ok) {
    const [, line, column] = /\(line (\d+) column (\d+)\)/.exec(json.error) ?? [];
    const place = line === undefined ? undefined : { line: Number(line), column: Number(column) };
    return refuse(json.error, place);
  }
  if (wrong !== undefined) return refuse(wrong.message, wrong.place);
  let layout: ReturnType<typeof readLayout> | undefined;
  return fromJsonValue(json.value, (path) => {
    // The layout of what is nested too deeply costs a second; a fault of the whole document needs none.
    if (path.length === 0) return start;
    if (bytes.length <= mostYaml) layout ??= readLayout(text.value);
    return layout?.placeAt(path);
  });
}

/** 64-bit integers beyond what a double holds: canonical JSON writes them as strings. */
function exactInteger(value: unknown, source: string | undefined): unknown {
  return Number.isInteger(value) && !Number.isSafeInteger(value) ? (source ?? value) : value;
}

const keysNotUnique = 'Map keys must be unique';

/**
 * What JSON.parse takes without a word. `exact`: the text with integers that a double cannot hold as strings; with a
 * reviver for them JSON.parse takes seven times as long. `wrong`: the second value of a key, of which it takes the last,
 * or what no protobuf can be. Of text that is no JSON, which JSON.parse explains better, `exact` is as it is written.
 */
function walkJson(text: string): { readonly exact: string; readonly wrong: Located | undefined } {
  const bytes = Buffer.from(text);
  const reader = new JsonReader(bytes, Number.POSITIVE_INFINITY, mostDepth);
  const lineOf = (at: number): Place => ({ line: bytes.toString('latin1', 0, at).split('\n').length });
  let twice: number | undefined;
  let exact = '';
  let copied = 0;
  const look = (): void => {
    const kind = reader.kind();
    if (kind === 'list') reader.elements().forEach(look);
    else if (kind === 'object') {
      const keys = new Set<string>();
      for (const key of reader.keys()) {
        if (keys.has(key)) twice ??= reader.position;
        keys.add(key);
        look();
      }
    } else if (kind === 'number') {
      const from = reader.position;
      const source = reader.passed();
      if (!/\d{16}/.test(source) || exactInteger(Number(source), source) !== source) return;
      exact += `${bytes.toString('utf8', copied, from)}"${source}"`;
      copied = from + source.length;
    } else reader.skip();
  };
  try {
    look();
    reader.end();
  } catch (error) {
    return { exact: text, wrong: { message: errorMessage(error), place: lineOf(reader.position) } };
  }
  return {
    exact: exact + bytes.toString('utf8', copied),
    wrong: twice === undefined ? undefined : { message: keysNotUnique, place: lineOf(twice) },
  };
}

function parseYaml(bytes: Uint8Array): Parsed {
  const text = utf8(bytes);
  if (!text.ok) return refuse(text.error);
  try {
    const { document, placeIn, placeAt } = readLayout(text.value);
    // After the first error the parser has lost its place: what it reports from there on is mostly not there.
    const [error] = document.errors;
    if (error !== undefined) return refuse(error.message, placeIn(error.pos[0]));
    let twice: Node | undefined;
    let [aliases, insideAnchors] = [0, 0];
    visit(document, {
      Alias(_key, _node, path) {
        aliases++;
        if (path.some((around) => isCollection(around) && around.anchor !== undefined)) insideAnchors++;
      },
      Scalar(_key, node) {
        node.value = exactInteger(node.value, node.source);
      },
      // The reader itself would compare each key with all before it.
      Map(_key, { items }) {
        const keys = new Set<unknown>();
        for (const { key } of items) {
          if (!isScalar(key)) continue;
          if (keys.has(key.value)) twice ??= key;
          keys.add(key.value);
        }
      },
    });
    if (twice !== undefined) return refuse(keysNotUnique, placeIn(twice.range?.[0] ?? 0));
    if (aliases > mostAliases.all || insideAnchors * text.value.length > mostAliases.insideAnchors)
      return refuse(
        `its ${aliases} aliases are too many for its ${text.value.length} characters: write what they stand for`,
      );
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
  const problems = bytes.error.map(({ path, message }) => ({
    place: placeAt(path),
    message: path.length === 0 ? message : `${showPath(path)}: ${message}`,
  }));
  const isOther = typeof json === 'object' && !Array.isArray(json) && !Object.hasOwn(json, 'resources');
  return fail({ problems, rest: withoutFaults(json, bytes.error, placeAt), isOther });
}

const toBytes = (json: unknown) => jsonToBytes(DiscoveryResponseSchema.typeName, json);

/** Undefined: something is wrong outside of the resources. */
function withoutFaults(
  json: unknown,
  faults: readonly JsonFaultPlace[],
  placeAt: PlaceAt,
): ParsedFile | undefined {
  if (typeof json !== 'object' || json === null || !('resources' in json)) return undefined;
  const { resources } = json;
  if (!Array.isArray(resources)) return undefined;
  const faulty = new Set(faults.map(({ path }) => path[1]));
  const sound = [...resources.keys()].filter((index) => !faulty.has(index));
  const bytes = toBytes({ ...json, resources: sound.map((index): unknown => resources[index]) });
  if (!bytes.ok) return undefined;
  const indexOf = (index: number): number => sound[index] ?? index;
  return parsedFile(bytes.value, (index) => placeAt(['resources', indexOf(index)]), indexOf);
}

/** A file's content, and how to find a resource in it. */
type ParsedFile = Readonly<ReturnType<typeof parsedFile>>;

/**
 * `placeOf`: where a resource of the response is; undefined where the format has no lines. It holds the text. `indexOf`: its
 * index in the file, as others may have been left out. `places`: worked out already, where that costs little.
 */
function parsedFile(
  bytes: Uint8Array,
  placeOf: (index: number) => Place | undefined,
  indexOf = (index: number) => index,
) {
  const places: readonly (Place | undefined)[] = [];
  return { response: fromBinary(DiscoveryResponseSchema, bytes), placeOf, indexOf, places };
}

function parseBinary(bytes: Uint8Array): Parsed {
  const parsed = attempt(() => parsedFile(bytes, () => undefined), errorMessage);
  return parsed.ok ? parsed : refuse(`not an encoded DiscoveryResponse: ${parsed.error}`);
}

function parseText(bytes: Uint8Array): Parsed {
  const text = utf8(bytes);
  if (!text.ok) return refuse(text.error);
  const encoded = textToBytes(DiscoveryResponseSchema.typeName, text.value);
  return encoded.ok ? parseBinary(encoded.value) : refuse(encoded.error);
}

/** `placeIn`: of a position in the text. */
function readLayout(text: string) {
  const lines = new LineCounter();
  const document = parseDocument(text, {
    merge: true,
    prettyErrors: false,
    uniqueKeys: false,
    lineCounter: lines,
  });
  const placeIn = (position: number): Place => {
    const { line, col } = lines.linePos(position);
    return { line, column: col };
  };
  const targets = new Map<Alias, unknown>();
  const targetOf = (node: unknown): unknown =>
    isAlias(node) ? getOrMake(targets, node, () => node.resolve(document)) : node;
  const placeAt: PlaceAt = (path) => {
    const position = positionOf(document.contents, path, targetOf);
    return position === undefined ? undefined : placeIn(position);
  };
  return { document, placeIn, placeAt };
}

/** Where the deepest part of the path is that is there: keys that a merge (`<<`) brought are elsewhere. */
function positionOf(
  contents: unknown,
  path: JsonPath,
  targetOf: (node: unknown) => unknown,
): number | undefined {
  let node = contents;
  let place: unknown = node;
  for (const segment of path) {
    const pair = entryAt(targetOf(node), segment);
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
  const decoder = new TextDecoder('utf-8', { fatal: true });
  return attempt(
    () => decoder.decode(bytes),
    () => 'the file is not UTF-8 text',
  );
}

function refuse(message: string, place?: Place): Parsed {
  return fail({ problems: [{ place, message }], rest: undefined, isOther: false });
}

/** Something wrong with one file, for the log, for `status` and for `validate`. */
export interface FileProblem {
  /** As found below the configured path. */
  readonly file: string;
  /** From 1, as editors count. Undefined where the format has no lines or the place is not known; or only the column. */
  readonly place: { readonly line: number; readonly column?: number | undefined } | undefined;
  readonly message: string;
  /** The types of which something is refused. */
  readonly types: readonly TypeUrl[];
}

/** `path:line:column: message`, as editors and compilers write it. */
export function formatProblem({ file, place, message }: FileProblem): string {
  const at = [file, ...[place?.line, place?.column].filter((part) => part !== undefined)];
  return `${at.join(':')}: ${message}`;
}

/** One resource of one file. */
export interface FileResource {
  /** As found below the configured path. */
  readonly file: string;
  /** Of the file; empty: it has none. */
  readonly versionInfo: string;
  /** In the file, where that is known. */
  readonly place: Place | undefined;
  readonly type: TypeUrl;
  readonly put: Put;
  /** A digest of all that a subscriber could see of it: equal digests, nothing changed. */
  readonly digest: string;
}

/**
 * The resources of a DiscoveryResponse file. Each is an Any of its own type, or an Any of
 * `envoy.service.discovery.v3.Resource` around it, which can give name, version, constraints, aliases and TTL. Without
 * a `type_url` one file may hold several types; with it, all must be of that type. The version of a resource is its
 * own, else the file's `version_info`, else a hash of its content (protocol §7). Without problems all of it is good;
 * notes say what will not do what is meant nevertheless.
 */
export function readResources(file: string, parsed: ParsedFile, maxConstraintDepth: number) {
  const { response, placeOf, indexOf, places } = parsed;
  const resources: FileResource[] = [];
  const problems: Located[] = [];
  const notes: FileProblem[] = [];
  const seen = new Map<TypeUrl, VariantSet>();
  for (const [index, any] of response.resources.entries()) {
    const wrong = (what: string): void => {
      problems.push({ place: placeOf(index), message: `resources[${indexOf(index)}]: ${what}` });
    };
    const read = readResource(any, response, maxConstraintDepth);
    if (!read.ok) {
      wrong(read.error);
      continue;
    }
    const { type, put } = read.value;
    if (!getOrMake(seen, type, () => new VariantSet()).add(put))
      wrong(`${describe(type, put)} is in this file twice with the same constraints`);
    const usual = `type.googleapis.com/${messageName(type)}`;
    if (type !== usual && isKnownType(usual)) {
      const message = `${describe(type, put)}: clients ask for ${usual}, and nobody for ${type}`;
      notes.push({ file, place: placeOf(index), message, types: [] });
    }
    // Files send no heartbeats, so that it ends, at clients too, and does not come again.
    if (put.ttlMilliseconds !== undefined) {
      const message = `${describe(type, put)} has a ttl: it ends ${put.ttlMilliseconds / 1000} s after the file is read, because nothing renews it; leave ttl out`;
      notes.push({ file, place: placeOf(index), message, types: [] });
    }
    resources.push({ file, versionInfo: response.versionInfo, place: places[index], ...read.value });
  }
  const { typeUrl: none, versionInfo } = response;
  const empty = resources.length === 0 && none !== '' ? { type: typeUrl(none), versionInfo } : undefined;
  return { resources, empty, problems, notes };
}

/** For messages: type, name and whether it is a variant. */
export function describe(type: TypeUrl, put: Put): string {
  const variant = put.constraints.key === UNCONSTRAINED.key ? '' : ` with constraints ${put.constraints.key}`;
  return `${messageName(type)} ${JSON.stringify(put.name)}${variant}`;
}

function readResource(
  given: Any,
  response: DiscoveryResponse,
  maxConstraintDepth: number,
): Result<Pick<FileResource, 'type' | 'put' | 'digest'>> {
  const opened = open(given);
  if (!opened.ok) return opened;
  const { any, anyType, version, ttlMilliseconds, doNotCache, metadata } = opened.value;
  const type = typeUrl(anyType);
  if (response.typeUrl !== '' && response.typeUrl !== type) {
    return fail(`it is a ${messageName(type)}, but the file's type_url is ${response.typeUrl}`);
  }
  const constraints = parseConstraints(opened.value.constraints, maxConstraintDepth);
  if (!constraints.ok) return fail(`its dynamic_parameter_constraints: ${constraints.error}`);
  const said = readName(opened.value);
  if (!said.ok) return said;
  const name = canonicalName(said.value, type);
  if (!name.ok) return name;
  const aliases = canonicalNames(opened.value.aliases, type);
  if (!aliases.ok) return fail(`alias of ${JSON.stringify(said.value)}: ${aliases.error}`);
  const unversioned: Put = {
    name: name.value,
    constraints: constraints.value,
    version: version || response.versionInfo,
    any: ownBytes(any),
    aliases: aliases.value,
    ttlMilliseconds,
    doNotCache,
    metadata: metadata && ownBytes(metadata),
  };
  const digest = digestOf(unversioned);
  const put = unversioned.version === '' ? { ...unversioned, version: digest } : unversioned;
  return ok({ type, put, digest });
}

type Opened = IncomingResource & { readonly any: Buffer };

/** As a control plane sends it: by itself, or in a Resource. */
function open(given: Any): Result<Opened> {
  if (given.typeUrl === '') return fail('it has no type ("@type")');
  if (!isWrapper(given.typeUrl))
    return ok({ ...plain, any: asBuffer(toBinary(AnySchema, given)), anyType: given.typeUrl });
  const read = attempt(() => readDeltaResource(asBuffer(given.value)), errorMessage);
  if (!read.ok) return fail(`the Resource cannot be used: ${read.error}`);
  const { any, anyType } = read.value;
  if (any === undefined || anyType === '') return fail('the Resource holds no `resource`');
  return isWrapper(anyType) ? fail('it is a Resource inside a Resource') : ok({ ...read.value, any });
}

const isWrapper = (url: string): boolean => messageName(url) === ResourceSchema.typeName;

/** What the Resource around it says, or else its body. */
function readName({ name, any, anyType }: Opened): Result<string> {
  if (name !== '') return ok(name);
  const message = messageName(anyType);
  if (!isNamed(anyType))
    return fail(`where a ${message} has its name is not known; wrap it in a Resource with a name`);
  const read = (): string => ownName(readAny(any));
  const own = attempt(read, (thrown) => `not an encoded ${message}: ${errorMessage(thrown)}`);
  if (!own.ok || own.value !== '') return own;
  return fail(`this ${message} has no name; give it one, or wrap it in a Resource with a name`);
}

const leds = typeByName('leds');

/** In every named xDS resource the name is field 1, a string (`cluster_name` in endpoints). */
function isNamed(url: string): boolean {
  // Most files have only known types: the descriptors need not be read. Of these only LEDS has no name.
  if (isKnownType(url) && url !== leds) return true;
  const desc = envoyRegistry().getMessage(messageName(url));
  const field = desc?.fields.find(({ number }) => number === 1);
  return field?.fieldKind === 'scalar' && field.scalar === ScalarType.STRING;
}

function digestOf(put: Put): string {
  const { name, constraints, version, aliases, ttlMilliseconds = -1, doNotCache } = put;
  const hash = createHash('sha256');
  hash.update(JSON.stringify([name, constraints.key, version, aliases, ttlMilliseconds, doNotCache]));
  hash.update(put.any ?? '').update('\0');
  hash.update(put.metadata ?? '');
  return hash.digest('hex').slice(0, 16);
}
