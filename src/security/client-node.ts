import { mostNodeText, placeOf, type WantedMetadata } from '../model/node-path.ts';
import { attempt, errorMessage, type Result } from '../model/result.ts';
import { bytesTag, doubleTag, MessageReader, varintTag } from '../protobuf/message-reader.ts';

/** Strings, numbers and booleans as text, in nested mappings. Nulls and lists are left out. */
export type Metadata = ReadonlyMap<string, string | Metadata>;

type Locality = Readonly<Record<'region' | 'zone' | 'subZone', string>>;

const NO_LOCALITY: Locality = { region: '', zone: '', subZone: '' };
const NO_METADATA: Metadata = new Map();
const NO_FEATURES: readonly string[] = [];

class ReadNode {
  id = '';
  cluster = '';
  metadata: Metadata = NO_METADATA;
  locality = NO_LOCALITY;
  userAgentName = '';
  /** The string, or `1.40.0` of a build version. */
  userAgentVersion = '';
  clientFeatures: readonly string[] = NO_FEATURES;
  #place: number | undefined;

  /** Of its id among all (`placeOf`). Only rollouts ask for it, and these again and again. */
  get place(): number {
    this.#place ??= placeOf(this.id);
    return this.#place;
  }
}

/** The parts of a client's node that the relay uses. Empty strings where nothing was given, as in the proto. */
export type ClientNode = Readonly<ReadNode>;

/**
 * Reads an encoded envoy.config.core.v3.Node. Nearly all of Envoy's 61 KB are its extensions, which nobody here asks
 * for: they are skipped, not decoded (protocol §3.1). Nor is metadata that is not `wanted`; undefined: all of it.
 */
export function readClientNode(bytes: Buffer, wanted?: WantedMetadata): Result<ClientNode> {
  return attempt(
    () => readNode(bytes, wanted),
    (error) => (error instanceof TooLong ? error.message : `node cannot be decoded: ${errorMessage(error)}`),
  );
}

/** Of all mappings of its metadata together; Istio's proxies have a few hundred. */
const mostEntries = 20_000;
/** Envoy has two dozen. */
const mostFeatures = 1000;
/** In UTF-16 units. A longer value of a parameter counts as absent, because it would be kept as long as the stream. */
export const longestValue = 4096;
/** Of a text, and of all features together (§5.14). What is cut here is longer than any value. */
const mostTextBytes = 4 * (longestValue + 1);

// By hand, because each client of a fleet that reconnects at once brings one.
function readNode(bytes: Buffer, wanted: WantedMetadata | undefined): ClientNode {
  const node = new ReadNode();
  const clientFeatures: string[] = [];
  const room = { bytes: mostTextBytes };
  const metadata = new Map<string, string | Metadata>();
  const entries = { left: mostEntries };
  for (const reader = new MessageReader(bytes); reader.next(); ) {
    if (reader.tag === bytesTag(1)) node.id = shortText('node.id', reader);
    else if (reader.tag === bytesTag(2)) node.cluster = shortText('node.cluster', reader);
    else if (reader.tag === bytesTag(3)) readStruct(reader.message(), wanted, metadata, 0, entries);
    else if (reader.tag === bytesTag(4)) node.locality = readLocality(reader.message());
    else if (reader.tag === bytesTag(6)) node.userAgentName = reader.lossyText(mostTextBytes);
    else if (reader.tag === bytesTag(7)) node.userAgentVersion = reader.lossyText(mostTextBytes);
    else if (reader.tag === bytesTag(8)) node.userAgentVersion = readBuildVersion(reader.message());
    else if (reader.tag === bytesTag(10)) keepFeature(reader, clientFeatures, room);
  }
  if (clientFeatures.length > 0) node.clientFeatures = clientFeatures;
  if (metadata.size > 0) node.metadata = metadata;
  return node;
}

function keepFeature(reader: MessageReader, features: string[], room: { bytes: number }): void {
  room.bytes -= reader.end - reader.start;
  if (features.length < mostFeatures && room.bytes >= 0) features.push(reader.lossyText());
}

class TooLong extends Error {}

function shortText(where: string, reader: MessageReader): string {
  const length = reader.end - reader.start;
  if (length <= mostNodeText) return reader.lossyText();
  throw new TooLong(`${where} has ${length} bytes: at most ${mostNodeText} are accepted`);
}

/** As deep as protobuf's own readers go. */
const maxDepth = 100;

/** google.protobuf.Struct { map<string, Value> fields = 1 }. */
function readStruct(
  reader: MessageReader,
  wanted: WantedMetadata | undefined,
  into: Map<string, string | Metadata>,
  depth: number,
  entries: { left: number },
): void {
  if (depth > maxDepth) throw new RangeError(`metadata is nested deeper than ${maxDepth} levels`);
  while (reader.next()) {
    if (reader.tag !== bytesTag(1)) continue;
    if (--entries.left < 0) throw new RangeError(`metadata has more than ${mostEntries} entries`);
    let key = '';
    let value: MessageReader | undefined;
    for (const entry = reader.message(); entry.next(); ) {
      if (entry.tag === bytesTag(1)) key = entry.lossyText();
      else if (entry.tag === bytesTag(2)) value = entry.message();
    }
    const below = wanted?.get(key);
    if (wanted !== undefined && below === undefined) continue;
    const read = value === undefined ? undefined : readValue(value, below, depth + 1, entries);
    if (read === undefined) into.delete(key);
    else into.set(key, read);
  }
}

/** google.protobuf.Value: of its one-of the last counts. */
function readValue(
  reader: MessageReader,
  wanted: WantedMetadata | undefined,
  depth: number,
  entries: { left: number },
): string | Metadata | undefined {
  let value: string | Metadata | undefined;
  while (reader.next()) {
    switch (reader.tag) {
      case doubleTag(2): {
        const number = reader.double();
        value = Number.isFinite(number) ? JSON.stringify(number) : undefined;
        break;
      }
      case bytesTag(3):
        value = reader.lossyText(mostTextBytes);
        break;
      case varintTag(4):
        value = JSON.stringify(reader.bool());
        break;
      case bytesTag(5): {
        const nested = new Map<string, string | Metadata>();
        readStruct(reader.message(), wanted, nested, depth, entries);
        value = nested;
        break;
      }
      default:
        if (reader.field === 1 || reader.field === 6) value = undefined;
    }
  }
  return value;
}

function readLocality(reader: MessageReader): Locality {
  let { region, zone, subZone } = NO_LOCALITY;
  while (reader.next()) {
    if (reader.tag === bytesTag(1)) region = reader.lossyText(mostTextBytes);
    else if (reader.tag === bytesTag(2)) zone = reader.lossyText(mostTextBytes);
    else if (reader.tag === bytesTag(3)) subZone = reader.lossyText(mostTextBytes);
  }
  return { region, zone, subZone };
}

/** BuildVersion { SemanticVersion version = 1 { major_number 1, minor_number 2, patch 3 } }. */
function readBuildVersion(reader: MessageReader): string {
  let version = '';
  while (reader.next()) if (reader.tag === bytesTag(1)) version = readSemanticVersion(reader.message());
  return version;
}

function readSemanticVersion(reader: MessageReader): string {
  const numbers = [0, 0, 0];
  while (reader.next()) {
    if (reader.field <= 3 && reader.tag === varintTag(reader.field))
      numbers[reader.field - 1] = reader.uint32();
  }
  return numbers.join('.');
}
