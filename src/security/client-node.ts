import { create, mergeFromBinary } from '@bufbuild/protobuf';
import { BinaryReader, WireType } from '@bufbuild/protobuf/wire';
import { type Struct, StructSchema } from '@bufbuild/protobuf/wkt';
import { fail, ok, type Result } from '../model/result.ts';

/** What of a client's node the relay looks at. Empty strings where it says nothing, as in the proto. */
export interface ClientNode {
  readonly id: string;
  readonly cluster: string;
  readonly metadata: Struct | undefined;
  readonly locality: Locality;
  readonly userAgentName: string;
  /** The string, or `1.40.0` of a build version. */
  readonly userAgentVersion: string;
  readonly clientFeatures: readonly string[];
}

interface Locality {
  readonly region: string;
  readonly zone: string;
  readonly subZone: string;
}

const NO_LOCALITY: Locality = { region: '', zone: '', subZone: '' };

/** Of a client that has sent no node. */
export const NO_NODE: ClientNode = {
  id: '',
  cluster: '',
  metadata: undefined,
  locality: NO_LOCALITY,
  userAgentName: '',
  userAgentVersion: '',
  clientFeatures: [],
};

/**
 * Reads an encoded envoy.config.core.v3.Node. Nearly all of Envoy's 61 KB are its extensions, which nobody here asks
 * for: they are skipped, not decoded (protocol §3.1).
 */
export function readClientNode(bytes: Uint8Array): Result<ClientNode> {
  try {
    return ok(readNode(new BinaryReader(bytes)));
  } catch (error) {
    return fail(`node cannot be decoded: ${error instanceof Error ? error.message : String(error)}`);
  }
}

function readNode(reader: BinaryReader): ClientNode {
  let { id, cluster, metadata, locality, userAgentName, userAgentVersion } = NO_NODE;
  const clientFeatures: string[] = [];
  forEachField(reader, (field) => {
    switch (field) {
      case 1:
        id = reader.string();
        return true;
      case 2:
        cluster = reader.string();
        return true;
      case 3:
        metadata = mergeFromBinary(StructSchema, metadata ?? create(StructSchema), reader.bytes());
        return true;
      case 4:
        locality = readLocality(new BinaryReader(reader.bytes()));
        return true;
      case 6:
        userAgentName = reader.string();
        return true;
      case 7:
        userAgentVersion = reader.string();
        return true;
      case 8:
        userAgentVersion = readBuildVersion(new BinaryReader(reader.bytes()));
        return true;
      case 10:
        clientFeatures.push(reader.string());
        return true;
      default:
        return false;
    }
  });
  return { id, cluster, metadata, locality, userAgentName, userAgentVersion, clientFeatures };
}

/** Calls `read` for each length-delimited field; what it does not take is skipped. */
function forEachField(reader: BinaryReader, read: (field: number) => boolean): void {
  while (reader.pos < reader.len) {
    const [field, wire] = reader.tag();
    if (wire !== WireType.LengthDelimited || !read(field)) reader.skip(wire, field);
  }
}

function readLocality(reader: BinaryReader): Locality {
  let { region, zone, subZone } = NO_LOCALITY;
  forEachField(reader, (field) => {
    if (field === 1) region = reader.string();
    else if (field === 2) zone = reader.string();
    else if (field === 3) subZone = reader.string();
    else return false;
    return true;
  });
  return { region, zone, subZone };
}

/** BuildVersion { SemanticVersion version = 1 { major_number 1, minor_number 2, patch 3 } }. */
function readBuildVersion(reader: BinaryReader): string {
  let version = '';
  forEachField(reader, (field) => {
    if (field !== 1) return false;
    version = readSemanticVersion(new BinaryReader(reader.bytes()));
    return true;
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
