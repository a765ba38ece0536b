import { referenceFields } from '../gen/reference-fields.ts';
import { onceFor } from '../model/maps.ts';
import { type Reference, type References, reference, type Variant } from '../model/resource.ts';
import { bytesTag, MessageReader } from '../protobuf/message-reader.ts';

/** What a field leads to: the name of a resource of this type, an Any, or a message. The entries of a map are messages. */
type Parts = ReadonlyMap<number, { readonly to: string; readonly inMap: boolean }>;

const [typeUrlTag, valueTag] = [bytesTag(1), bytesTag(2)];
/** As deep as protobuf itself reads. */
const deepest = 100;
/** More of one resource are not read: they are taken in one turn. */
const most = 100_000;
const nothing: References = new Set();

/** By message, as text until the first body has such a message. Of others nothing is kept: a control plane names them. */
let tables: Map<string, string | Parts> | undefined;

/** What a resource refers to, read once for all that have the same body. */
export function referencesOf({ payload }: Pick<Variant, 'payload'>): References {
  return payload === undefined ? nothing : referencesIn(payload.bytes);
}

const referencesIn = onceFor((any: Uint8Array): References => {
  const found = new Set<Reference>();
  try {
    readAny(new MessageReader(any), found, 0);
  } catch {
    // What was read of it before the fault counts.
  }
  return found.size === 0 ? nothing : found;
});

function readAny(reader: MessageReader, found: Set<Reference>, depth: number): void {
  let type = '';
  let value: MessageReader | undefined;
  while (reader.next()) {
    if (reader.tag === typeUrlTag) type = reader.lossyText();
    else if (reader.tag === valueTag) value = reader.message();
  }
  const parts = partsOf(type.slice(type.lastIndexOf('/') + 1));
  if (parts !== undefined && value !== undefined) readMessage(value, parts, found, depth);
}

function readMessage(reader: MessageReader, parts: Parts, found: Set<Reference>, depth: number): void {
  if (depth > deepest) return;
  while (reader.next()) {
    const part = parts.get(reader.field);
    if (part === undefined || reader.tag !== bytesTag(reader.field)) continue;
    if (!part.inMap) readPart(reader, part.to, found, depth + 1);
    else
      for (const entry = reader.message(); entry.next(); )
        if (entry.tag === valueTag) readPart(entry, part.to, found, depth + 1);
  }
}

function readPart(reader: MessageReader, to: string, found: Set<Reference>, depth: number): void {
  if (to === 'any') readAny(reader.message(), found, depth);
  else if (to.includes('.')) {
    const parts = partsOf(to);
    if (parts !== undefined) readMessage(reader.message(), parts, found, depth);
  } else {
    if (found.size >= most) throw new RangeError(`more than ${most} references`);
    found.add(reference(to, reader.lossyText()));
  }
}

/** Undefined: this message refers to nothing. */
function partsOf(message: string): Parts | undefined {
  tables ??= new Map(
    referenceFields
      .trim()
      .split('\n')
      .map((line) => [line.slice(0, line.indexOf(' ')), line.slice(line.indexOf(' ') + 1)]),
  );
  const known = tables.get(message);
  if (typeof known !== 'string') return known;
  const parts = new Map(known.split(' ').map(partOf));
  tables.set(message, parts);
  return parts;
}

function partOf(text: string) {
  const [number = '', to = ''] = text.split(':');
  return [Number(number), { to: to.replace('*', ''), inMap: to.startsWith('*') }] as const;
}
