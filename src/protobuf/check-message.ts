import { type DescField, type DescMessage, ScalarType } from '@bufbuild/protobuf';
import { bytesTag, MessageReader } from './message-reader.ts';

/** As deep as C++ and Java decode: deeper messages would be refused by clients. */
const maxDepth = 100;

/**
 * Checks that every decoder takes these bytes: what is passed on unread must not make a client refuse the response
 * that it is in. Looks at nested messages, and at strings for UTF-8. Throws a RangeError or a TypeError if not.
 */
export function checkMessage(desc: DescMessage, bytes: Uint8Array): void {
  check(desc, new MessageReader(bytes), maxDepth);
}

function check(desc: DescMessage, reader: MessageReader, depth: number): void {
  if (depth <= 0) throw new RangeError(`nested more than ${maxDepth} levels deep`);
  const fields = fieldsOf(desc);
  while (reader.next()) {
    const field = fields.get(reader.tag);
    if (field === undefined) continue;
    if (field.fieldKind === 'map') checkEntry(field, reader.message(), depth - 1);
    else if (field.message === undefined) reader.text();
    else check(field.message, reader.message(), depth - 1);
  }
}

/** An entry of a map is a message: the key is its field 1, the value its field 2. */
function checkEntry(field: DescField & { fieldKind: 'map' }, reader: MessageReader, depth: number): void {
  while (reader.next()) {
    if (reader.tag === bytesTag(1) && field.mapKey === ScalarType.STRING) reader.text();
    else if (reader.tag !== bytesTag(2)) continue;
    else if (field.message !== undefined) check(field.message, reader.message(), depth - 1);
    else if (field.scalar === ScalarType.STRING) reader.text();
  }
}

const known = new WeakMap<DescMessage, ReadonlyMap<number, DescField>>();

/** The fields that hold strings or messages, by tag. */
function fieldsOf(desc: DescMessage): ReadonlyMap<number, DescField> {
  const found = known.get(desc);
  if (found !== undefined) return found;
  const fields = new Map(
    desc.fields
      .filter((field) => field.message !== undefined || field.fieldKind === 'map' || isText(field))
      .map((field) => [bytesTag(field.number), field] as const),
  );
  known.set(desc, fields);
  return fields;
}

const isText = (field: DescField): boolean => 'scalar' in field && field.scalar === ScalarType.STRING;
