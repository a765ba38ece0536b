import {
  create,
  type DescField,
  type DescMessage,
  fromBinary,
  type JsonWriteOptions,
  type Message,
  type MessageInitShape,
  type MessageShape,
  toBinary,
  toJson,
} from '@bufbuild/protobuf';
import { isReflectMessage, reflect } from '@bufbuild/protobuf/reflect';
import { BinaryWriter, WireType } from '@bufbuild/protobuf/wire';
import { Code, ConnectError, createContextKey, type HandlerContext } from '@connectrpc/connect';
import type { UniversalServerResponse } from '@connectrpc/connect/protocol';
import type { TimeSlices } from '../model/time-slices.ts';
import { undecoded } from '../wire/client-status.ts';
import { isJsonObject } from '../wire/registry.ts';

/** What an answer of the admin listener has at most, in the encoding that is sent. What a list has beyond that is cut. */
export const maxAnswerBytes = 8 << 20;
/** Written at once: the next ones when the client has taken these. */
const chunkBytes = 64 << 10;
/** Left for what is known only after the list: a page token has the name of a resource in it. */
const lastBytes = 64 << 10;

/** The rows of a list, made when they are written; in batches where another process is asked for them. */
export type Rows = Iterable<Message> | AsyncIterable<Iterable<Message>>;

/** An answer with a list that may be long. */
export class Listed<Desc extends DescMessage> {
  /** All that is known before the list is written. */
  readonly known: MessageInitShape<Desc>;
  /** By the local name of its field. */
  readonly list: { readonly field: string; readonly rows: Rows };
  /** The other fields, once so many rows are written. `more`: the answer holds no more of them. */
  readonly last: (written: number, more: boolean) => MessageInitShape<Desc>;

  constructor(
    known: MessageInitShape<Desc>,
    list: Listed<Desc>['list'],
    last: (written: number, more: boolean) => MessageInitShape<Desc>,
  ) {
    this.known = known;
    this.list = list;
    this.last = last;
  }
}

/** Where the next part of a list begins, of which so many rows from an offset on are written; 0: it was the last part. */
export const nextOffset = (offset: number, written: number, total: number): number =>
  written > 0 && offset + written < total ? offset + written : 0;

/** An answer of the relay: most lists are short. */
export type Long<Desc extends DescMessage> = MessageInitShape<Desc> | Listed<Desc>;

/** All of it as a message, for lists that were asked for in part. */
export async function collected<Desc extends DescMessage>(
  desc: Desc,
  answer: Long<Desc>,
): Promise<MessageShape<Desc>> {
  if (!(answer instanceof Listed)) return create(desc, answer);
  const rows: Message[] = [];
  for await (const batch of batches(answer.list.rows)) rows.push(...batch);
  const message = create(desc, { ...answer.known, ...answer.last(rows.length, false) });
  const field = desc.field[answer.list.field];
  if (field?.fieldKind !== 'list' || field.listKind !== 'message') return message;
  const list = reflect(desc, message).get(field);
  for (const row of rows) list.add(reflect(field.message, row));
  return message;
}

/**
 * A server that takes bodies puts here where it takes an answer's, which its handler has answered with an empty message
 * instead. Without that, answers are messages.
 */
export const takerKey = createContextKey<Pick<UniversalServerResponse, 'body'> | undefined>(undefined, {
  description: 'body taker',
});

/** Fields are in snake_case, as on Envoy's admin pages; what is false or 0 is shown. */
export const answerJson: Partial<JsonWriteOptions> = { useProtoFieldName: true, alwaysEmitImplicit: true };

/**
 * Writes an answer row by row in slices, each chunk when the client has taken the one before: nobody makes the relay hold
 * a long answer, or stand still for one (docs/adr/0145). RESOURCE_EXHAUSTED: it is too large beside its lists.
 */
export async function answered<Desc extends DescMessage>(
  desc: Desc,
  answer: Long<Desc>,
  { values, requestHeader }: Pick<HandlerContext, 'values' | 'requestHeader'>,
  slices: TimeSlices,
): Promise<MessageShape<Desc>> {
  const taker = values.get(takerKey);
  const type = requestHeader.get('content-type') ?? '';
  const listed =
    answer instanceof Listed ? answer : new Listed(answer, { field: '', rows: [] }, () => answer);
  if (taker !== undefined && !type.startsWith('application/grpc')) {
    taker.body = chunksOf(desc, listed, type.includes('json') ? json : binary, slices);
    return create(desc);
  }
  const chunks: Uint8Array[] = [];
  for await (const chunk of chunksOf(desc, listed, binary, slices)) chunks.push(chunk);
  const bytes = Buffer.concat(chunks);
  return type.includes('json') ? fromBinary(desc, bytes) : undecoded(desc, bytes);
}

/** What is made already, as a body: a piece goes out when the other end has taken the one before. */
export async function* written(pieces: Iterable<Uint8Array>): AsyncIterable<Uint8Array> {
  yield* pieces;
}

/** How a message is written: rows of its lists first, as they come. */
interface Format {
  /** `first`: of the list. */
  row(field: DescField, message: Encoded, first: boolean): Encoded;
  encode(desc: DescMessage, message: Message): Encoded;
  /** `sep`: something was written before. */
  begin(field: DescField, sep: boolean): string;
  readonly end: string;
  rest(desc: DescMessage, message: Message, lists: ReadonlySet<string>, sep: boolean): Encoded;
}

type Encoded = string | Uint8Array;

const json: Format = {
  encode: (desc, message) => JSON.stringify(toJson(desc, message, answerJson)),
  begin: ({ name }, sep) => `${sep ? ',' : '{'}${JSON.stringify(name)}:[`,
  row: (_field, text, first) => (first ? text : `,${String(text)}`),
  end: ']',
  rest(desc, message, lists, sep) {
    const value = toJson(desc, message, answerJson);
    const fields = isJsonObject(value) ? Object.entries(value).filter(([name]) => !lists.has(name)) : [];
    const text = JSON.stringify(Object.fromEntries(fields));
    return sep ? `${fields.length > 0 ? ',' : ''}${text.slice(1)}` : text;
  },
};

const binary: Format = {
  encode: (desc, message) => toBinary(desc, message),
  begin: () => '',
  row: ({ number }, bytes) =>
    new BinaryWriter().tag(number, WireType.LengthDelimited).bytes(Buffer.from(bytes)).finish(),
  end: '',
  rest: (desc, message) => toBinary(desc, message),
};

type List = ReturnType<typeof listsOf>[number];

function chunksOf<Desc extends DescMessage>(
  desc: Desc,
  answer: Listed<Desc>,
  format: Format,
  slices: TimeSlices,
): AsyncIterable<Uint8Array> {
  const { known, list: long, last } = answer;
  const lists = listsOf(desc, answer);
  let isTruncated = false;
  const size = Buffer.byteLength(rest(known));
  let left = maxAnswerBytes - lastBytes - size;
  if (left <= 0) {
    const message = `without its lists the answer has ${size} bytes: the maximum is ${maxAnswerBytes - lastBytes}`;
    throw new ConnectError(message, Code.ResourceExhausted);
  }
  let parts: Uint8Array[] = [];
  let filled = 0;
  return chunks();

  async function* chunks(): AsyncIterable<Uint8Array> {
    let [written, more, sep] = [0, false, false];
    for (const [index, list] of lists.entries()) {
      push(format.begin(list.field, sep));
      sep = true;
      const budget = { left: Math.floor(left / (lists.length - index)), written: 0, cut: false };
      const before = budget.left;
      for await (const batch of batches(list.rows)) {
        const rows = batch[Symbol.iterator]();
        while (!(await slices.run((pace) => fill(list, rows, budget, pace)))) yield take();
        if (budget.cut) break;
      }
      left -= before - budget.left;
      push(format.end);
      if (list.field.localName === long.field) {
        written = budget.written;
        more = budget.cut;
      } else if (budget.cut) isTruncated = true;
    }
    push(rest({ ...known, ...last(written, more) }, sep));
    yield take();
  }

  /** True: all rows are written, or no more of them fit. False: a chunk is full. */
  async function fill(
    { field }: List,
    rows: Iterator<Message>,
    budget: { left: number; written: number; cut: boolean },
    pace: { yieldIfDue(): Promise<void> | undefined },
  ): Promise<boolean> {
    for (let next = rows.next(); next.done !== true; next = rows.next()) {
      const encoded = row(field, next.value, budget.left, budget.written === 0);
      if (encoded === undefined) {
        budget.cut = true;
        return true;
      }
      budget.left -= push(encoded);
      budget.written++;
      if (filled >= chunkBytes) return false;
      await pace.yieldIfDue();
    }
    return true;
  }

  /** Undefined: it does not fit. One that fits no answer is shown without its own lists. */
  function row(field: List['field'], row: Message, room: number, first: boolean): Encoded | undefined {
    const of = field.message;
    const encoded = (message: Message) => format.row(field, format.encode(of, message), first);
    const whole = encoded(row);
    if (Buffer.byteLength(whole) <= room) return whole;
    if (!first) return undefined;
    isTruncated = true;
    const short = reflect(of, row);
    for (const own of of.fields) if (own.fieldKind === 'list') short.clear(own);
    const text = encoded(row);
    return Buffer.byteLength(text) <= room ? text : encoded(create(of));
  }

  function rest(fields: MessageInitShape<Desc>, sep = false): Encoded {
    const names = new Set<string>();
    const message = reflect(desc, create(desc, { ...fields }));
    for (const { field } of lists) {
      message.clear(field);
      names.add(field.name);
    }
    const truncated = desc.field['truncated'];
    if (isTruncated && truncated?.fieldKind === 'scalar') message.set(truncated, true);
    return format.rest(desc, message.message, names, sep);
  }

  function push(part: Encoded): number {
    const bytes = typeof part === 'string' ? Buffer.from(part) : part;
    if (bytes.length > 0) parts.push(bytes);
    filled += bytes.length;
    return bytes.length;
  }

  function take(): Uint8Array {
    const chunk = Buffer.concat(parts);
    parts = [];
    filled = 0;
    return chunk;
  }
}

function listsOf<Desc extends DescMessage>(desc: Desc, { known, list: long }: Listed<Desc>) {
  const message = reflect(desc, create(desc, { ...known }));
  return desc.fields.flatMap((field) => {
    if (field.fieldKind !== 'list' || field.listKind !== 'message') return [];
    const rows = [...message.get(field)].flatMap((row) => (isReflectMessage(row) ? [row.message] : []));
    return [{ field, rows: field.localName === long.field ? long.rows : rows }];
  });
}

const batches = (rows: Rows): AsyncIterable<Iterable<Message>> | readonly Iterable<Message>[] =>
  Symbol.asyncIterator in rows ? rows : [rows];
