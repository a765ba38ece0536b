import { BinaryReader, BinaryWriter, WireType } from '@bufbuild/protobuf/wire';
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
    readExpression(draft, bytes, 1, limit);
    const poison = { found: false };
    const expression = finish(draft, poison);
    return ok(poison.found ? { kind: 'never' } : expression);
  } catch (error) {
    // The reader of the wire format throws on malformed bytes; this is where its errors become values.
    return fail(`constraints: ${errorMessage(error)}`);
  }
}

function readExpression(draft: Draft, bytes: Uint8Array, depth: number, limit: number): void {
  if (depth > limit) throw new Error(`nested deeper than ${limit}`);
  for (const { field, reader } of messageFields(bytes, draft, 4)) {
    const content = reader.bytes();
    if (field === 1) {
      if (draft.body?.kind !== 'single')
        draft.body = { kind: 'single', single: { key: '', test: undefined, unknown: false } };
      readSingle(draft.body.single, content);
    } else if (field === 4) {
      if (draft.body?.kind !== 'not') draft.body = { kind: 'not', of: emptyDraft() };
      readExpression(draft.body.of, content, depth + 1, limit);
    } else {
      const kind = field === 2 ? 'or' : 'and';
      if (draft.body?.kind !== kind) draft.body = { kind, of: [] };
      readList(draft.body.of, content, depth + 1, limit);
    }
  }
}

function readList(children: Draft[], bytes: Uint8Array, depth: number, limit: number): void {
  // A list has no oneof: fields that it may gain one day do not change what it says today.
  for (const { reader } of messageFields(bytes, { unknown: false }, 1)) {
    const child = emptyDraft();
    readExpression(child, reader.bytes(), depth, limit);
    children.push(child);
  }
}

function readSingle(single: SingleDraft, bytes: Uint8Array): void {
  for (const { field, reader } of messageFields(bytes, single, 3)) {
    if (field === 1) single.key = reader.string(true);
    else if (field === 2) single.test = { kind: 'value', value: reader.string(true) };
    else {
      for (const { reader: inner } of messageFields(reader.bytes(), { unknown: false }, 0)) inner.bytes();
      single.test = { kind: 'exists' };
    }
  }
}

/**
 * Each field numbered 1 to `last`, its length and content to be read by the caller. All fields that are known here
 * are length-delimited: a known number with another wire type is an unknown field, as protobuf has it.
 */
function* messageFields(
  bytes: Uint8Array,
  seen: { unknown: boolean },
  last: number,
): Generator<{ readonly field: number; readonly reader: BinaryReader }> {
  const reader = new BinaryReader(bytes);
  while (reader.pos < reader.len) {
    const [field, wireType] = reader.tag();
    if (field <= last && wireType === WireType.LengthDelimited) yield { field, reader };
    else {
      reader.skip(wireType, field);
      seen.unknown = true;
    }
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
