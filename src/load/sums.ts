import {
  bytes,
  double,
  encoded,
  type Field,
  message,
  sizeOf,
  varint,
  write,
} from '../protobuf/field-writer.ts';
import { checkMessage, MessageReader } from '../protobuf/message-reader.ts';
import type { Account } from '../wire/accounts.ts';
import { CLUSTER_STATS, ENDPOINT_STATS, type FieldPlan, type Plan, REPORT } from './plan.ts';
import { clusterName } from './totals.ts';

/** Who pays for what its reports make new. */
export type Payer = Pick<Account, 'hold' | 'count' | 'enter' | 'leave' | 'exempt'>;

/** What of a report counts. */
export interface Wanted {
  /** Undefined: all. */
  readonly clusters: ReadonlySet<string> | undefined;
  readonly endpoints: boolean;
}

/** A row costs about so much beside its key. */
const rowBytes = 400;
/** The gauges of a row in a client's last report. */
const gaugeBytes = 150;
/** So many rows one account may make: all of them are looked at for each report of the sums, in one turn. */
const mostRows = 50_000;
/** A place of an account. */
const rowPlace = 'load rows';
/** No sum may become a varint that no decoder takes. */
const largest = 2 ** 63;

/** What was said last, and who pays for it. */
interface Latest {
  readonly bytes: Uint8Array;
  readonly payer: Payer;
}

const none: readonly Map<string, Row>[] = [];
const sixteen = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
/** No message has as many numbers as sixteen; a copy is quicker than a loop. */
const zeros = (count: number): number[] => sixteen.slice(0, count);

/** Numbers of one cluster, one locality, one endpoint …, and those below it. */
class Row {
  readonly plan: Plan;
  /** The encoded key fields, a character for each byte. */
  readonly key: string;
  readonly reporter: Reporter | undefined;
  counters: number[];
  readonly gauges: number[];
  /** By slot and key. */
  readonly rows: readonly Map<string, Row>[];
  latest: Latest | undefined;
  /** Somebody has reported it since the last report of the sums. */
  isReported = false;
  /** Somebody had, before the last report of the sums: it will be reported again as a rule. */
  wasReported = false;
  /** Clients in whose last report a gauge of it is not 0. */
  holders = 0;
  /** A gauge was not 0 in the last report of the sums: it will be once. */
  wasShown = false;
  /** It is not in the sums any more, though another row may know it as the next one. */
  isGone = false;
  /** The row that followed in the last report that had it. */
  next: Row | undefined;
  /** By slot: the first row of the last report, and the one that was read last. */
  readonly firsts: (Row | undefined)[];
  readonly lasts: (Row | undefined)[];
  readonly #keyBytes: Buffer;
  #keyField: Field | undefined;

  constructor(plan: Plan, key: string, reporter: Reporter | undefined) {
    this.plan = plan;
    this.key = key;
    this.reporter = reporter;
    this.counters = zeros(plan.counters);
    this.gauges = zeros(plan.gauges);
    this.rows = plan.rows === 0 ? none : Array.from({ length: plan.rows }, () => new Map());
    this.firsts = this.rows.map(() => undefined);
    this.lasts = this.rows.map(() => undefined);
    this.#keyBytes = Buffer.from(key, 'latin1');
  }

  /** A report of it begins. */
  begin(): void {
    if (this.lasts.length > 0) this.lasts.fill(undefined);
  }

  /** It is of this message: its key fields are there, in their order and no others. */
  isOf(message: MessageReader): boolean {
    const { byTag } = this.plan;
    let at = 0;
    while (message.next()) {
      if (byTag[message.tag]?.kind !== 'key' || isDefault(message)) continue;
      if (!message.isIn(this.#keyBytes, at)) return false;
      at += message.end - message.fieldStart;
    }
    return at === this.#keyBytes.length;
  }

  /** Encoded once: a row is in many reports. */
  get keyField(): Field {
    this.#keyField ??= encoded(this.#keyBytes);
    return this.#keyField;
  }

  get bytes(): number {
    return rowBytes + 2 * this.key.length;
  }

  /** It is there no longer: nobody pays for it. */
  release(): void {
    const { reporter, plan, latest } = this;
    this.isGone = true;
    this.next = undefined;
    latest?.payer.hold(-latest.bytes.length);
    if (reporter === undefined) return;
    reporter.payer.hold(-this.bytes);
    reporter.payer.leave(rowPlace);
    if (plan.name === CLUSTER_STATS) reporter.clusters--;
  }
}

/** What one client has made in the sums, and what its last report said. */
export class Reporter {
  readonly payer: Payer;
  readonly maxClusters: number;
  /** Rows of clusters that its reports have made. */
  clusters = 0;
  /** The gauges of its last report that are not 0. */
  gauges: Gauges = new Map();

  constructor(payer: Payer, maxClusters: number) {
    this.payer = payer;
    this.maxClusters = maxClusters;
  }
}

/** Of each row a value for each slot. */
type Gauges = Map<Row, number[]>;

/** Sums that were encoded. One of the two must be called. */
export interface TakenSums {
  /** LoadStatsRequests, one as a rule: gRPC servers take 4 MiB. They are taken or given back together. */
  readonly messages: readonly Buffer[];
  /** The control plane has them. */
  confirm(): void;
  /** It does not: they are part of the next. */
  giveBack(): void;
}

/** The sums of what clients report: counters since they were taken last, gauges as clients said last. */
export class LoadSums {
  readonly #root = new Row(REPORT, '', undefined);
  /** Since when counters count, by `Clock.monotonic()`, as are all times here. */
  #since: number;

  constructor(now: number) {
    this.#since = now;
  }

  /** There is nothing that the control plane has not been told. */
  get isEmpty(): boolean {
    return !hasNews(this.#root);
  }

  /** The first report counts from now on. */
  begin(now: number): void {
    this.#since = now;
  }

  /**
   * A LoadStatsRequest. Throws a RangeError or a TypeError where it is malformed, or what every decoder upstream would
   * refuse: nothing of it counts then. Returns how many clusters were left out, or parts of them, as it has too many, or
   * as its peer holds too much.
   */
  add(report: Buffer, reporter: Reporter, wanted: Wanted | undefined): number {
    const reading = new Reading(reporter, wanted);
    reading.read(this.#root, new MessageReader(report));
    return reading.apply();
  }

  /** Its gauges count no longer. What it has counted was counted. */
  leave(reporter: Reporter): void {
    replaceGauges(reporter, new Map());
  }

  /** Nobody takes them any more. */
  clear(): void {
    release(this.#root);
  }

  take(now: number): TakenSums {
    const taken: TakenRow[] = [];
    const seconds = (now - this.#since) / 1000;
    const interval = message(4, [varint(1, Math.floor(seconds)), varint(2, Math.floor((seconds % 1) * 1e9))]);
    return {
      messages: inMessages(encode(this.#root, interval, taken) ?? []),
      confirm: () => {
        this.#since = now;
        for (const { row, isShown } of taken) row.wasShown = isShown;
        prune(this.#root);
      },
      giveBack: () => {
        for (const { row, counters } of taken) {
          row.isReported = true;
          for (const [slot, value] of counters.entries())
            row.counters[slot] = (row.counters[slot] ?? 0) + value;
        }
      },
    };
  }
}

/** A larger message is several. Bytes. */
const largestMessage = 2 * 1024 * 1024;

function inMessages(fields: readonly Field[]): readonly Buffer[] {
  const messages: Field[][] = [[]];
  let size = 0;
  for (const field of fields) {
    const own = sizeOf([field]);
    if (size > 0 && size + own > largestMessage) {
      messages.push([]);
      size = 0;
    }
    size += own;
    messages.at(-1)?.push(field);
  }
  return messages.map((part) => {
    const target = Buffer.allocUnsafe(sizeOf(part));
    write(target, 0, part);
    return target;
  });
}

/** A report while it is read: nothing is applied before it is read to its end. */
class Reading {
  readonly #reporter: Reporter;
  readonly #wanted: Wanted | undefined;
  readonly #clusters = new Set<Row>();
  /** Something of the one that is read was left out. */
  #isPart = false;
  #left = 0;
  readonly #reported: Row[] = [];
  /** A row, a slot and what is added, in turn. */
  readonly #rows: Row[] = [];
  readonly #slots: number[] = [];
  readonly #values: number[] = [];
  readonly #latest: [Row, Latest][] = [];
  readonly #gauges: Gauges = new Map();

  constructor(reporter: Reporter, wanted: Wanted | undefined) {
    this.#reporter = reporter;
    this.#wanted = wanted;
  }

  read(row: Row, reader: MessageReader): void {
    const { byTag } = row.plan;
    row.begin();
    while (reader.next()) {
      const field = byTag[reader.tag];
      if (field === undefined) continue;
      switch (field.kind) {
        case 'counter':
          this.#count(row, field, field.double ? reader.double() : reader.uint64());
          break;
        case 'gauge':
          this.#gauge(row, field, reader.uint64());
          break;
        case 'rows':
          this.#readRow(row, field, reader);
          break;
        case 'latest':
          this.#keep(row, field, reader);
          break;
        default:
      }
    }
  }

  /** All of it at once. */
  apply(): number {
    for (const row of this.#reported) row.isReported = true;
    for (const [at, row] of this.#rows.entries()) {
      const slot = this.#slots[at] ?? 0;
      row.counters[slot] = Math.min(largest, (row.counters[slot] ?? 0) + (this.#values[at] ?? 0));
    }
    for (const [row, latest] of this.#latest) {
      if (latest.payer.hold(latest.bytes.length) !== undefined) continue;
      row.latest?.payer.hold(-row.latest.bytes.length);
      row.latest = latest;
    }
    replaceGauges(this.#reporter, this.#gauges);
    return this.#left;
  }

  #count(row: Row, { slot }: FieldPlan & { kind: 'counter' }, value: number): void {
    if (value === 0 || !Number.isFinite(value)) return;
    this.#rows.push(row);
    this.#slots.push(slot);
    this.#values.push(value);
  }

  #gauge(row: Row, { slot }: FieldPlan & { kind: 'gauge' }, value: number): void {
    if (value === 0) return;
    const values = this.#gauges.get(row) ?? zeros(row.plan.gauges);
    this.#gauges.set(row, values);
    values[slot] = (values[slot] ?? 0) + value;
  }

  /** What is the same is not copied. */
  #keep(row: Row, { message: desc }: FieldPlan & { kind: 'latest' }, reader: MessageReader): void {
    const view = reader.view();
    if (row.latest !== undefined && view.equals(row.latest.bytes)) return;
    checkMessage(desc, view);
    this.#latest.push([row, { bytes: Buffer.from(view), payer: this.#reporter.payer }]);
  }

  #readRow(parent: Row, { slot, plan }: FieldPlan & { kind: 'rows' }, at: MessageReader): void {
    if (plan.name === ENDPOINT_STATS && this.#wanted?.endpoints === false) return;
    const isCluster = plan.name === CLUSTER_STATS;
    if (isCluster) this.#isPart = false;
    // Before it takes the place of one that is wanted.
    if (isCluster && this.#wanted?.clusters?.has(clusterName(at.message())) === false) return;
    const row = this.#row(parent, slot, plan, at);
    if (row === undefined || (isCluster && !this.#begin(row))) {
      if (!this.#isPart) this.#left++;
      this.#isPart = true;
      return;
    }
    this.#reported.push(row);
    this.read(row, at.message());
  }

  /** The next cluster. False: the report has too many. */
  #begin(row: Row): boolean {
    if (!this.#clusters.has(row) && this.#clusters.size >= this.#reporter.maxClusters) return false;
    this.#clusters.add(row);
    return true;
  }

  /**
   * Found, or made. Undefined: whoever reports it may not make another one. Reports have their rows in the same order as
   * a rule: to compare bytes is quicker than to make a key.
   */
  #row(parent: Row, slot: number, plan: Plan, at: MessageReader): Row | undefined {
    const last = parent.lasts[slot];
    const expected = last === undefined ? parent.firsts[slot] : last.next;
    if (expected?.isGone === false && expected.isOf(at.message())) {
      parent.lasts[slot] = expected;
      return expected;
    }
    const row = this.#rowByKey(parent, slot, plan, at);
    if (row === undefined) return undefined;
    if (last === undefined) parent.firsts[slot] = row;
    else last.next = row;
    parent.lasts[slot] = row;
    return row;
  }

  #rowByKey(parent: Row, slot: number, plan: Plan, at: MessageReader): Row | undefined {
    const key = keyOf(plan, at);
    const rows = parent.rows[slot];
    const known = rows?.get(key);
    if (known !== undefined || rows === undefined) return known;
    const reporter = this.#reporter;
    const isCluster = plan.name === CLUSTER_STATS;
    if (isCluster && reporter.clusters >= reporter.maxClusters) return undefined;
    const { payer } = reporter;
    if (!payer.exempt && payer.count(rowPlace) >= mostRows) return undefined;
    checkKey(plan, at.message());
    const row = new Row(plan, key, reporter);
    if (payer.hold(row.bytes) !== undefined) return undefined;
    payer.enter(rowPlace);
    if (isCluster) reporter.clusters++;
    rows.set(key, row);
    return row;
  }
}

/** The encoded key fields in the order of their numbers; what is empty is left out, as decoders cannot tell. */
function keyOf({ byTag }: Plan, at: MessageReader): string {
  let key = '';
  let last = 0;
  for (const reader = at.message(); reader.next(); ) {
    const field = byTag[reader.tag];
    if (field?.kind !== 'key' || isDefault(reader)) continue;
    if (field.number <= last) return sortedKey(byTag, at.message());
    last = field.number;
    key += reader.encoded();
  }
  return key;
}

/** Of a message whose fields are in no order, or several times there: the last one counts. */
function sortedKey(byTag: Plan['byTag'], reader: MessageReader): string {
  const parts = new Map<number, string>();
  while (reader.next()) {
    const field = byTag[reader.tag];
    if (field?.kind === 'key') parts.set(field.number, isDefault(reader) ? '' : reader.encoded());
  }
  return [...parts]
    .toSorted(([a], [b]) => a - b)
    .map(([, text]) => text)
    .join('');
}

/** Empty, or the number 0. */
const isDefault = (reader: MessageReader): boolean =>
  reader.end === reader.start || (isNumber(reader) && reader.uint64() === 0);

const isNumber = ({ tag }: MessageReader): boolean => (tag & 7) === 0;

/** Throws if a decoder would refuse the key of a new row: it is passed on as it is. */
function checkKey({ byTag }: Plan, reader: MessageReader): void {
  while (reader.next()) {
    const field = byTag[reader.tag];
    if (field?.kind !== 'key') continue;
    if (field.message !== undefined) checkMessage(field.message, reader.view());
    else if (!isNumber(reader)) reader.text();
  }
}

/** What its peer may not hold is not counted. */
function replaceGauges(reporter: Reporter, gauges: Gauges): void {
  const { payer, gauges: before } = reporter;
  const isHeld = payer.hold(gauges.size * gaugeBytes) === undefined;
  const now: Gauges = isHeld ? gauges : new Map();
  for (const [row, values] of now) {
    row.holders++;
    for (const [slot, value] of values.entries()) row.gauges[slot] = (row.gauges[slot] ?? 0) + value;
  }
  for (const [row, values] of before) {
    row.holders--;
    for (const [slot, value] of values.entries())
      row.gauges[slot] = row.holders === 0 ? 0 : Math.max(0, (row.gauges[slot] ?? 0) - value);
  }
  payer.hold(-before.size * gaugeBytes);
  reporter.gauges = now;
}

/** A row of the sums that were taken, with the counters it had; `isShown`: a gauge of it is not 0. */
interface TakenRow {
  readonly row: Row;
  readonly counters: readonly number[];
  readonly isShown: boolean;
}

/** What a row has to say; undefined: nothing. Its counters begin at 0 again. */
function encode(row: Row, interval: Field, taken: TakenRow[]): Field[] | undefined {
  const fields: Field[] = [row.keyField];
  for (const field of row.plan.fields)
    if (field.kind === 'rows') pushRows(fields, row, field, interval, taken);
  if (fields.length === 1 && !saysSomething(row)) return undefined;
  taken.push({ row, counters: row.counters, isShown: row.holders > 0 });
  for (const field of row.plan.fields) pushValue(fields, row, field, interval);
  row.counters = zeros(row.plan.counters);
  row.wasReported = row.isReported;
  row.isReported = false;
  return fields;
}

function pushRows(
  fields: Field[],
  row: Row,
  { number, slot }: FieldPlan & { kind: 'rows' },
  interval: Field,
  taken: TakenRow[],
): void {
  for (const below of row.rows[slot]?.values() ?? []) {
    const inner = encode(below, interval, taken);
    if (inner !== undefined) fields.push(message(number, inner));
  }
}

function pushValue(fields: Field[], row: Row, field: FieldPlan, interval: Field): void {
  if (field.kind === 'counter' || field.kind === 'gauge') {
    const value = (field.kind === 'counter' ? row.counters : row.gauges)[field.slot] ?? 0;
    if (value === 0) return;
    const isDouble = field.kind === 'counter' && field.double;
    fields.push(isDouble ? double(field.number, value) : varint(field.number, Math.min(value, largest)));
  } else if (field.kind === 'interval') {
    fields.push(interval);
  } else if (field.kind === 'latest' && row.latest !== undefined) {
    fields.push(bytes(field.number, row.latest.bytes));
  }
}

/** All that is below it is gone. */
function release(row: Row): void {
  for (const rows of row.rows) {
    for (const below of rows.values()) {
      release(below);
      below.release();
    }
    rows.clear();
  }
}

const saysSomething = (row: Row): boolean =>
  row.isReported || row.holders > 0 || row.wasShown || row.counters.some((value) => value !== 0);

function hasNews(row: Row): boolean {
  return saysSomething(row) || row.rows.some((rows) => rows.values().some(hasNews));
}

/** True: nothing is left of it to say, and nobody has reported it of late. */
function prune(row: Row): boolean {
  let isEmpty = !row.wasReported && !saysSomething(row);
  row.wasReported &&= row.isReported;
  for (const rows of row.rows) {
    for (const below of rows.values()) {
      if (!prune(below)) {
        isEmpty = false;
        continue;
      }
      rows.delete(below.key);
      below.release();
    }
  }
  return isEmpty;
}
