import {
  create,
  type DescField,
  type DescMessage,
  fromBinary,
  type JsonObject,
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
import type { TimeSlices } from '../model/time-slices.ts';
import { undecoded } from '../wire/client-status.ts';

/** What an answer of the admin listener has at most, in the encoding that is sent. What a list has beyond that is cut. */
export const maxAnswerBytes = 8 << 20;
/** Written at once: the next ones when the client has taken these. */
const chunkBytes = 64 << 10;

/**
 * The rows of a list, made when they are written; in batches where another process is asked for them. Undefined: no row,
 * but work was done.
 */
export type Rows = Iterable<Message | undefined> | AsyncIterable<Iterable<Message | undefined>>;

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

/** An answer of the relay: most lists are short. */
export type Long<Desc extends DescMessage> = MessageInitShape<Desc> | Listed<Desc>;

/** All of it as a message, for lists that were asked for in part. */
export async function collected<Desc extends DescMessage>(
  desc: Desc,
  answer: Long<Desc>,
): Promise<MessageShape<Desc>> {
  if (!(answer instanceof Listed)) return create(desc, answer);
  const rows: Message[] = [];
  for await (const batch of batches(answer.list.rows))
    for (const row of batch) if (row !== undefined) rows.push(row);
  const message = create(desc, { ...answer.known, ...answer.last(rows.length, false) });
  const field = desc.field[answer.list.field];
  if (field?.fieldKind !== 'list' || field.listKind !== 'message') return message;
  const list = reflect(desc, message).get(field);
  for (const row of rows) list.add(reflect(field.message, row));
  return message;
}

/** Where a server takes an answer's body, which its handler has answered with an empty message instead. */
export interface BodyTaker {
  body?: AsyncIterable<Uint8Array>;
}

/** A server that takes bodies puts a taker here. Without one, answers are messages. */
export const takerKey = createContextKey<BodyTaker | undefined>(undefined, { description: 'body taker' });

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
    taker.body = new AnswerWriter(desc, listed, type.includes('json') ? json : binary, slices).chunks();
    return create(desc);
  }
  const chunks: Uint8Array[] = [];
  for await (const chunk of new AnswerWriter(desc, listed, binary, slices).chunks()) chunks.push(chunk);
  const bytes = Buffer.concat(chunks);
  return type.includes('json') ? fromBinary(desc, bytes) : undecoded(desc, bytes);
}

/** An answer that is made already, as a body: a piece goes out when the client has taken the one before. */
export async function* written(pieces: Iterable<Uint8Array>): AsyncIterable<Uint8Array> {
  yield* pieces;
}

/** How a message is written: rows of its lists first, as they come. */
interface Format {
  readonly open: string;
  /** `first`: of the list. */
  row(field: DescField, message: Uint8Array | string, first: boolean): string | Uint8Array;
  encode(desc: DescMessage, message: Message): Uint8Array | string;
  /** `sep`: something was written before. */
  begin(field: DescField, sep: boolean): string;
  readonly end: string;
  rest(desc: DescMessage, message: Message, lists: ReadonlySet<string>, sep: boolean): string | Uint8Array;
}

const json: Format = {
  open: '{',
  encode: (desc, message) => JSON.stringify(toJson(desc, message, answerJson)),
  begin: ({ name }, sep) => `${sep ? ',' : ''}${JSON.stringify(name)}:[`,
  row: (_field, text, first) => (first ? text : `,${String(text)}`),
  end: ']',
  rest(desc, message, lists, sep) {
    const value = toJson(desc, message, answerJson);
    const fields = isObject(value) ? Object.entries(value).filter(([name]) => !lists.has(name)) : [];
    const text = JSON.stringify(Object.fromEntries(fields)).slice(1);
    return fields.length > 0 && sep ? `,${text}` : text;
  },
};

const isObject = (value: unknown): value is JsonObject =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

const binary: Format = {
  open: '',
  encode: (desc, message) => toBinary(desc, message),
  begin: () => '',
  row: ({ number }, bytes) =>
    new BinaryWriter().tag(number, WireType.LengthDelimited).bytes(Buffer.from(bytes)).finish(),
  end: '',
  rest: (desc, message) => toBinary(desc, message),
};

interface List {
  readonly field: DescField & { readonly message: DescMessage };
  readonly rows: Rows;
}

class AnswerWriter<Desc extends DescMessage> {
  readonly #desc: Desc;
  readonly #answer: Listed<Desc>;
  readonly #format: Format;
  readonly #slices: TimeSlices;
  readonly #lists: readonly List[];
  #parts: Uint8Array[] = [];
  #size = 0;
  #left = maxAnswerBytes;
  #truncated = false;

  constructor(desc: Desc, answer: Listed<Desc>, format: Format, slices: TimeSlices) {
    this.#desc = desc;
    this.#answer = answer;
    this.#format = format;
    this.#slices = slices;
    const { lists, size } = this.#known();
    this.#lists = lists;
    this.#left -= size;
    if (this.#left > 0) return;
    const message = `without its lists the answer has ${size} bytes: the maximum is ${maxAnswerBytes}`;
    throw new ConnectError(message, Code.ResourceExhausted);
  }

  async *chunks(): AsyncIterable<Uint8Array> {
    this.#push(this.#format.open);
    let [written, more, sep] = [0, false, false];
    for (const [index, list] of this.#lists.entries()) {
      this.#push(this.#format.begin(list.field, sep));
      sep = true;
      const budget = { left: Math.floor(this.#left / (this.#lists.length - index)), written: 0, cut: false };
      const before = budget.left;
      for await (const batch of batches(list.rows)) {
        const rows = batch[Symbol.iterator]();
        while (!(await this.#slices.run((pace) => this.#fill(list, rows, budget, pace)))) yield this.#take();
        if (budget.cut) break;
      }
      this.#left -= before - budget.left;
      this.#push(this.#format.end);
      if (list.field.localName === this.#answer.list.field) {
        written = budget.written;
        more = budget.cut;
      } else if (budget.cut) this.#truncated = true;
    }
    this.#push(this.#rest(written, more, sep));
    yield this.#take();
  }

  /** The lists that are known before, and how much the other fields have. */
  #known(): { readonly lists: readonly List[]; readonly size: number } {
    const desc: DescMessage = this.#desc;
    // A copy: nobody else's lists are cleared.
    const message = reflect(desc, create(this.#desc, { ...this.#answer.known }));
    const lists: List[] = [];
    for (const field of this.#desc.fields) {
      if (field.fieldKind !== 'list' || field.listKind !== 'message') continue;
      const known = [...message.get(field)].flatMap((row) => (isReflectMessage(row) ? [row.message] : []));
      const isLong = field.localName === this.#answer.list.field;
      lists.push({ field, rows: isLong ? this.#answer.list.rows : known });
      message.clear(field);
    }
    return { lists, size: toBinary(desc, message.message).length };
  }

  /** True: all rows are written, or no more of them fit. False: a chunk is full. */
  async #fill(
    { field }: List,
    rows: Iterator<Message | undefined>,
    budget: { left: number; written: number; cut: boolean },
    pace: { yieldIfDue(): Promise<void> | undefined },
  ): Promise<boolean> {
    for (let next = rows.next(); next.done !== true; next = rows.next()) {
      if (next.value !== undefined) {
        const row = this.#row(field.message, next.value, budget.left, budget.written === 0);
        if (row === undefined) {
          budget.cut = true;
          return true;
        }
        const bytes = this.#push(this.#format.row(field, row, budget.written === 0));
        budget.left -= bytes;
        budget.written++;
      }
      if (this.#size >= chunkBytes) return false;
      await pace.yieldIfDue();
    }
    return true;
  }

  /** Undefined: it does not fit. One that fits no answer is shown without its own lists. */
  #row(desc: DescMessage, message: Message, left: number, first: boolean): Uint8Array | string | undefined {
    const whole = this.#format.encode(desc, message);
    if (Buffer.byteLength(whole) <= left) return whole;
    if (!first) return undefined;
    this.#truncated = true;
    const short = reflect(desc, message);
    for (const field of desc.fields) if (field.fieldKind === 'list') short.clear(field);
    const text = this.#format.encode(desc, message);
    return Buffer.byteLength(text) <= left ? text : this.#format.encode(desc, create(desc));
  }

  #rest(written: number, more: boolean, sep: boolean): string | Uint8Array {
    const { known, last } = this.#answer;
    const names = new Set<string>();
    const message = reflect(this.#desc, create(this.#desc, { ...known, ...last(written, more) }));
    for (const { field } of this.#lists) {
      message.clear(field);
      names.add(field.name);
    }
    const truncated = this.#desc.field['truncated'];
    if (this.#truncated && truncated?.fieldKind === 'scalar') message.set(truncated, true);
    return this.#format.rest(this.#desc, message.message, names, sep);
  }

  #push(part: string | Uint8Array): number {
    const bytes = typeof part === 'string' ? Buffer.from(part) : part;
    if (bytes.length > 0) this.#parts.push(bytes);
    this.#size += bytes.length;
    return bytes.length;
  }

  #take(): Uint8Array {
    const chunk = Buffer.concat(this.#parts);
    this.#parts = [];
    this.#size = 0;
    return chunk;
  }
}

const batches = (
  rows: Rows,
): AsyncIterable<Iterable<Message | undefined>> | readonly Iterable<Message | undefined>[] =>
  Symbol.asyncIterator in rows ? rows : [rows];
