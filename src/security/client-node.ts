import { BinaryReader, WireType } from '@bufbuild/protobuf/wire';
import { errorMessage, fail, ok, type Result } from '../model/result.ts';
import { fieldsOf, textOf } from '../wire/fields.ts';

/** What of a client's node the relay looks at. Empty strings where it says nothing, as in the proto. */
export interface ClientNode {
  readonly id: string;
  readonly cluster: string;
  readonly metadata: Metadata;
  readonly locality: Locality;
  readonly userAgentName: string;
  /** The string, or `1.40.0` of a build version. */
  readonly userAgentVersion: string;
  readonly clientFeatures: readonly string[];
}

/** Strings, numbers and booleans as text, and what they are nested in; of nulls and lists nothing can be derived. */
export type Metadata = ReadonlyMap<string, string | Metadata>;

interface Locality {
  readonly region: string;
  readonly zone: string;
  readonly subZone: string;
}

const NO_LOCALITY: Locality = { region: '', zone: '', subZone: '' };
const NO_METADATA: Metadata = new Map();

/** Of a client that has sent no node. */
export const NO_NODE: ClientNode = {
  id: '',
  cluster: '',
  metadata: NO_METADATA,
  locality: NO_LOCALITY,
  userAgentName: '',
  userAgentVersion: '',
  clientFeatures: [],
};

/**
 * Reads an encoded envoy.config.core.v3.Node. Nearly all of Envoy's 61 KB are its extensions, which nobody here asks
 * for: they are skipped, not decoded (protocol §3.1). Nor is metadata whose key is not `wanted`; undefined: all of it.
 */
export function readClientNode(bytes: Buffer, wanted?: ReadonlySet<string>): Result<ClientNode> {
  try {
    return ok(readNode(bytes, wanted));
  } catch (error) {
    return fail(`node cannot be decoded: ${errorMessage(error)}`);
  }
}

/** Envoy has two dozen. */
const mostFeatures = 1000;

// By hand, because each client of a fleet that reconnects at once brings one.
function readNode(bytes: Buffer, wanted: ReadonlySet<string> | undefined): ClientNode {
  let { id, cluster, locality, userAgentName, userAgentVersion } = NO_NODE;
  const clientFeatures: string[] = [];
  const metadata = new Map<string, string | Metadata>();
  fieldsOf(bytes, 0, bytes.length, (field, start, end) => {
    switch (field) {
      case 1:
        id = textOf(bytes, start, end);
        break;
      case 2:
        cluster = textOf(bytes, start, end);
        break;
      case 3:
        readStruct(bytes, start, end, wanted, metadata, 0);
        break;
      case 4:
        locality = readLocality(bytes, start, end);
        break;
      case 6:
        userAgentName = textOf(bytes, start, end);
        break;
      case 7:
        userAgentVersion = textOf(bytes, start, end);
        break;
      case 8:
        userAgentVersion = readBuildVersion(bytes, start, end);
        break;
      case 10:
        if (clientFeatures.length < mostFeatures) clientFeatures.push(textOf(bytes, start, end));
        break;
      default:
    }
  });
  return { id, cluster, metadata, locality, userAgentName, userAgentVersion, clientFeatures };
}

/** As deep as protobuf's own readers go. */
const maxDepth = 100;

/** The tag of google.protobuf.Value.string_value. */
const stringValue = (3 << 3) | WireType.LengthDelimited;

/** google.protobuf.Struct { map<string, Value> fields = 1 }. */
function readStruct(
  bytes: Buffer,
  start: number,
  end: number,
  wanted: ReadonlySet<string> | undefined,
  into: Map<string, string | Metadata>,
  depth: number,
): void {
  if (depth > maxDepth) throw new RangeError(`metadata is nested deeper than ${maxDepth} levels`);
  fieldsOf(bytes, start, end, (field, from, to) => {
    if (field !== 1) return;
    let key = '';
    let valueStart = 0;
    let valueEnd = 0;
    fieldsOf(bytes, from, to, (part, partStart, partEnd) => {
      if (part === 1) key = textOf(bytes, partStart, partEnd);
      else if (part === 2) [valueStart, valueEnd] = [partStart, partEnd];
    });
    if (wanted?.has(key) === false) return;
    // Nearly all of them are short strings and nothing else.
    const length = valueEnd - valueStart - 2;
    const isShortString =
      length < 0x80 && bytes[valueStart] === stringValue && bytes[valueStart + 1] === length;
    const value = isShortString
      ? textOf(bytes, valueStart + 2, valueEnd)
      : readValue(bytes.subarray(valueStart, valueEnd), depth + 1);
    if (value === undefined) into.delete(key);
    else into.set(key, value);
  });
}

/** google.protobuf.Value: of its one-of the last counts. */
function readValue(bytes: Buffer, depth: number): string | Metadata | undefined {
  let value: string | Metadata | undefined;
  const reader = new BinaryReader(bytes);
  while (reader.pos < reader.len) {
    const [field, wire] = reader.tag();
    if (field === 2 && wire === WireType.Bit64) {
      const number = reader.double();
      value = Number.isFinite(number) ? JSON.stringify(number) : undefined;
    } else if (field === 3 && wire === WireType.LengthDelimited) {
      value = reader.string();
    } else if (field === 4 && wire === WireType.Varint) {
      value = JSON.stringify(reader.bool());
    } else if (field === 5 && wire === WireType.LengthDelimited) {
      const nested = new Map<string, string | Metadata>();
      const length = reader.uint32();
      readStruct(bytes, reader.pos, reader.pos + length, undefined, nested, depth);
      reader.pos += length;
      value = nested;
    } else {
      reader.skip(wire, field);
      if (field === 1 || field === 6) value = undefined;
    }
  }
  return value;
}

function readLocality(bytes: Buffer, start: number, end: number): Locality {
  let { region, zone, subZone } = NO_LOCALITY;
  fieldsOf(bytes, start, end, (field, from, to) => {
    if (field === 1) region = textOf(bytes, from, to);
    else if (field === 2) zone = textOf(bytes, from, to);
    else if (field === 3) subZone = textOf(bytes, from, to);
  });
  return { region, zone, subZone };
}

/** BuildVersion { SemanticVersion version = 1 { major_number 1, minor_number 2, patch 3 } }. */
function readBuildVersion(bytes: Buffer, start: number, end: number): string {
  let version = '';
  fieldsOf(bytes, start, end, (field, from, to) => {
    if (field === 1) version = readSemanticVersion(new BinaryReader(bytes.subarray(from, to)));
  });
  return version;
}

function readSemanticVersion(reader: BinaryReader): string {
  const numbers = [0, 0, 0];
  while (reader.pos < reader.len) {
    const [field, wire] = reader.tag();
    if (wire === WireType.Varint && field >= 1 && field <= 3) numbers[field - 1] = reader.uint32();
    else reader.skip(wire, field);
  }
  return numbers.join('.');
}
