import { BinaryWriter, WireType } from '@bufbuild/protobuf/wire';
import { bytesTag, MessageReader } from '../protobuf/message-reader.ts';
import type { Expression } from './expression.ts';
import { assertNever, errorMessage, fail, ok, type Result } from './result.ts';

/** Recursion ends here whatever the configuration allows: decoding, compiling and matching each use some stack. */
const maxDepthEver = 1000;

/**
 * What has been read so far of a message. Protobuf lets a message come in pieces: of a oneof the last member wins,
 * but the same member again is merged into the first, so nothing can be judged before the end of the bytes.
 */
interface Draft {
  body: Body | undefined;
  unknown: boolean;
}

type Body =
  | { readonly kind: 'single'; readonly single: SingleDraft }
  | { readonly kind: 'or' | 'and'; readonly of: Draft[] }
  | { readonly kind: 'not'; readonly of: Draft };

interface SingleDraft {
  key: string;
  test: { readonly kind: 'value'; readonly value: string } | { readonly kind: 'exists' } | undefined;
  unknown: boolean;
}

const emptyDraft = (): Draft => ({ body: undefined, unknown: false });

/**
 * Decodes a DynamicParameterConstraints. By hand and not with the generated schema, because the depth has to be
 * bounded, invalid UTF-8 refused, and unknown fields seen at every level (protocol §5). The outermost expression is
 * at depth 1.
 */
export function decodeExpression(bytes: Uint8Array, maxDepth: number): Result<Expression> {
  const limit = Math.min(maxDepth, maxDepthEver);
  try {
    const draft = emptyDraft();
    readExpression(draft, new MessageReader(bytes), 1, limit);
    const poison = { found: false };
    const expression = finish(draft, poison);
    return ok(poison.found ? { kind: 'never' } : expression);
  } catch (error) {
    // The reader of the wire format throws on malformed bytes; this is where its errors become values.
    return fail(`constraints: ${errorMessage(error)}`);
  }
}

function readExpression(draft: Draft, reader: MessageReader, depth: number, limit: number): void {
  if (depth > limit) throw new Error(`nested deeper than ${limit}`);
  while (reader.next()) {
    switch (reader.tag) {
      case bytesTag(1):
        if (draft.body?.kind !== 'single')
          draft.body = { kind: 'single', single: { key: '', test: undefined, unknown: false } };
        readSingle(draft.body.single, reader.message());
        break;
      case bytesTag(2):
      case bytesTag(3): {
        const kind = reader.tag === bytesTag(2) ? 'or' : 'and';
        if (draft.body?.kind !== kind) draft.body = { kind, of: [] };
        readList(draft.body.of, reader.message(), depth + 1, limit);
        break;
      }
      case bytesTag(4):
        if (draft.body?.kind !== 'not') draft.body = { kind: 'not', of: emptyDraft() };
        readExpression(draft.body.of, reader.message(), depth + 1, limit);
        break;
      default:
        draft.unknown = true;
    }
  }
}

function readList(children: Draft[], reader: MessageReader, depth: number, limit: number): void {
  while (reader.next()) {
    // A list has no oneof: fields that it may gain one day do not change what it says today.
    if (reader.tag !== bytesTag(1)) continue;
    const child = emptyDraft();
    readExpression(child, reader.message(), depth, limit);
    children.push(child);
  }
}

function readSingle(single: SingleDraft, reader: MessageReader): void {
  while (reader.next()) {
    if (reader.tag === bytesTag(1)) single.key = reader.text();
    else if (reader.tag === bytesTag(2)) single.test = { kind: 'value', value: reader.text() };
    else if (reader.tag === bytesTag(3)) {
      for (const exists = reader.message(); exists.next(); ); // what is malformed is refused here, too
      single.test = { kind: 'exists' };
    } else single.unknown = true;
  }
}

/** The whole is poisoned by one unknown kind: under NOT or OR, "does not match" would turn into a wrong match. */
function finish(draft: Draft, poison: { found: boolean }): Expression {
  const { body } = draft;
  if (body === undefined) {
    if (draft.unknown) poison.found = true;
    return { kind: 'all' };
  }
  switch (body.kind) {
    case 'single':
      return finishSingle(body.single, poison);
    case 'not':
      return { kind: 'not', of: finish(body.of, poison) };
    case 'or':
    case 'and':
      return { kind: body.kind, of: body.of.map((child) => finish(child, poison)) };
    default:
      return assertNever(body);
  }
}

function finishSingle({ key, test, unknown }: SingleDraft, poison: { found: boolean }): Expression {
  if (test !== undefined)
    return test.kind === 'value' ? { kind: 'value', key, value: test.value } : { kind: 'exists', key };
  if (!unknown) throw new Error(`the one for key ${JSON.stringify(key)} has neither value nor exists`);
  poison.found = true;
  return { kind: 'all' };
}

/** Encodes AND(key == value …), with not(exists key) where the value is undefined. */
export function encodeStamp(
  pairs: readonly (readonly [key: string, value: string | undefined])[],
): Uint8Array {
  const writer = new BinaryWriter();
  writer.tag(3, WireType.LengthDelimited).fork();
  for (const [key, value] of pairs) {
    writer.tag(1, WireType.LengthDelimited).fork();
    if (value === undefined) writer.tag(4, WireType.LengthDelimited).fork();
    writer.tag(1, WireType.LengthDelimited).fork();
    if (key !== '') writer.tag(1, WireType.LengthDelimited).string(key);
    if (value === undefined) writer.tag(3, WireType.LengthDelimited).fork().join();
    else writer.tag(2, WireType.LengthDelimited).string(value);
    writer.join();
    if (value === undefined) writer.join();
    writer.join();
  }
  return writer.join().finish();
}
