import {
  bytes,
  double,
  encoded,
  encode as encodeFields,
  type Field,
  message,
  sizeOf,
  varint,
} from '../protobuf/field-writer.ts';
import type { Wanted } from './instruction.ts';
import { addedUp, forget, Reading } from './reading.ts';
import { type FieldPlan, type Reporter, type Row, Rows } from './rows.ts';

/** Sums that were encoded. */
export type TakenSums = Readonly<ReturnType<LoadSums['take']>>;

/** A row of the sums that were taken; `isShown`: a gauge of it is not 0. */
type TakenRow = readonly [row: Row, isShown: boolean];

/** The sums of what clients report: counters since they were taken last, gauges as clients said last. */
export class LoadSums {
  readonly #rows = new Rows();
  /** Since when counters count, by `Clock.monotonic()`, as are all times here. */
  #since = 0;

  /** There is nothing that the control plane has not been told. */
  get isEmpty(): boolean {
    return !hasNews(this.#rows, this.#rows.root);
  }

  /** The first report counts from now on. */
  begin(now: number): void {
    this.#since = now;
  }

  /** Who reads a report into them. `counts`: whether anything of a cluster does; undefined: of all. */
  reading(reporter: Reporter, wanted: Wanted | undefined, counts?: (cluster: string) => boolean): Reading {
    return new Reading(this.#rows, reporter, wanted, counts);
  }

  /** Its gauges count no longer. What it has counted was counted. */
  leave(reporter: Reporter): void {
    forget(this.#rows, reporter);
  }

  /** Nobody takes them any more. */
  clear(): void {
    this.#rows.removeBelow(this.#rows.root, () => true);
  }

  /** Of what it returns, `confirm` or `giveBack` must be called. What is larger is several messages. */
  take(now: number, largestMessage = largestForServers) {
    const rows = this.#rows;
    const taken: TakenRow[] = [];
    const before = rows.numbers.slice();
    const seconds = (now - this.#since) / 1000;
    const interval = message(4, [varint(1, Math.floor(seconds)), varint(2, Math.floor((seconds % 1) * 1e9))]);
    return {
      /** LoadStatsRequests, one as a rule: gRPC servers take 4 MiB. They are taken or given back together. */
      messages: inMessages(encode(rows, rows.root, interval, taken) ?? [], largestMessage),
      /** The control plane has them. */
      confirm: () => {
        this.#since = now;
        for (const [row, isShown] of taken) row.wasShown = isShown;
        prune(rows, rows.root);
        rows.trim();
      },
      /** It does not: they are part of the next. */
      giveBack: () => {
        for (const [row] of taken) giveBack(rows, row, before);
      },
    };
  }
}

/** Bytes. */
const largestForServers = 2 * 1024 * 1024;

function inMessages(fields: readonly Field[], largestMessage: number): readonly Buffer[] {
  let last: Field[] = [];
  let size = 0;
  const messages = [last];
  for (const field of fields) {
    const length = sizeOf([field]);
    size += length;
    if (last.length > 0 && size > largestMessage) {
      [last, size] = [[], length];
      messages.push(last);
    }
    last.push(field);
  }
  return messages.map(encodeFields);
}

/** What a row has to say; undefined: nothing. Its counters begin at 0 again. */
function encode(rows: Rows, row: Row, interval: Field, taken: TakenRow[]): Field[] | undefined {
  const fields: Field[] = [encoded(rows.keyOf(row))];
  for (const below of row.below?.values() ?? []) {
    const inner = encode(rows, below, interval, taken);
    if (inner !== undefined) fields.push(message(below.field, inner));
  }
  if (fields.length === 1 && !saysSomething(rows, row)) return undefined;
  const { reported } = rows.columns;
  taken.push([
    row,
    row.plan.fields.some((field) => field.kind === 'gauge' && rows.numberOf(row, field.slot) !== 0),
  ]);
  for (const field of row.plan.fields) pushValue(fields, rows, row, field, interval);
  row.wasReported = reported[row.id] === 1;
  reported[row.id] = 0;
  return fields;
}

function pushValue(fields: Field[], rows: Rows, row: Row, field: FieldPlan, interval: Field): void {
  if (field.kind === 'counter' || field.kind === 'gauge') {
    const value = rows.numberOf(row, field.slot);
    if (value === 0) return;
    const isDouble = field.kind === 'counter' && field.double;
    fields.push(isDouble ? double(field.number, value) : varint(field.number, value));
    if (field.kind === 'counter') rows.numbers[rows.placeOf(row, field.slot)] = 0;
  } else if (field.kind === 'interval') {
    fields.push(interval);
  } else if (field.kind === 'latest' && row.latest !== undefined) {
    fields.push(bytes(field.number, row.latest.bytes));
  }
}

/** What its counters were comes on top of what they are. */
function giveBack(rows: Rows, row: Row, before: Float64Array): void {
  rows.columns.reported[row.id] = 1;
  for (const field of row.plan.fields) {
    if (field.kind !== 'counter') continue;
    const place = rows.placeOf(row, field.slot);
    rows.numbers[place] = addedUp(rows.numbers[place], before[place]);
  }
}

function saysSomething(rows: Rows, row: Row): boolean {
  return (
    rows.columns.reported[row.id] === 1 || row.wasShown || rows.numbersOf(row).some((value) => value !== 0)
  );
}

function hasNews(rows: Rows, row: Row): boolean {
  return saysSomething(rows, row) || (row.below?.values().some((below) => hasNews(rows, below)) ?? false);
}

/** True: nothing is left of it to say, and nobody has reported it of late. */
function prune(rows: Rows, row: Row): boolean {
  const isReported = rows.columns.reported[row.id] === 1;
  const isEmpty = row.readers === 0 && !row.wasReported && !saysSomething(rows, row);
  row.wasReported &&= isReported;
  rows.removeBelow(row, (below) => prune(rows, below));
  return isEmpty && (row.below?.size ?? 0) === 0;
}
