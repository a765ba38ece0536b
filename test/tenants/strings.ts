import { BinaryReader, WireType } from '@bufbuild/protobuf/wire';

const deepest = 12;

/** Every text in a message, in whatever field and however deep, as no schema is needed for it. */
export function stringsIn(bytes: Uint8Array, found = new Set<string>(), depth = 0): Set<string> {
  try {
    const reader = new BinaryReader(bytes);
    while (reader.pos < reader.len) {
      const [field, wire] = reader.tag();
      if (wire !== WireType.LengthDelimited) {
        reader.skip(wire, field);
        continue;
      }
      const chunk = reader.bytes();
      found.add(Buffer.from(chunk).toString());
      if (depth < deepest) stringsIn(chunk, found, depth + 1);
    }
  } catch {
    // no message: a text, or other bytes
  }
  return found;
}
