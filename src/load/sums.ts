import type { InTurns } from '../model/time-slices.ts';
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
import { bytesTag, checkMessage, MessageReader } from '../protobuf/message-reader.ts';
import type { Account } from '../wire/accounts.ts';
import type { Instruction } from './instruction.ts';
import { CLUSTER_STATS, ENDPOINT_STATS, type FieldPlan, type Plan, REPORT } from './plan.ts';

/** Who pays for what its reports make new. */
export type Payer = Pick<Account, 'hold' | 'count' | 'enter' | 'leave' | 'exempt'>;

/** What of a report counts. */
export type Wanted = Pick<Instruction, 'clusters' | 'endpoints'>;

/** A row costs about so much beside its key. */
const rowBytes = 400;
/** A gauge of a row in a client's last report. */
const gaugeBytes = 50;
/** So many rows one account may make: all of them are looked at for each report of the sums, in one turn. */
const mostRows = 50_000;
/** Rows of one session: all of them are encoded in one turn. A peer makes half of them. */
export const mostRowsOfSession = 2 * mostRows;
/** A place of an account. */
const rowPlace = 'load rows';
/** No sum may become a varint that no decoder takes. */
const largest = 2 ** 63;
/** Whole numbers that one report may add are this at most: a larger one would make a counter of doubles stand still. */
const largestSaid = 2 ** 40;
/** A gauge is this at most: beyond it doubles round, and what was added could not be taken away again. */
const largestGauge = Number.MAX_SAFE_INTEGER;

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
  /** Gauges of it that are not 0 in clients' last reports. */
  holders = 0;
  /** Reports that have it and are not read to their ends yet. */
  readers = 0;
  /** A gauge was not 0 in the last report of the sums: it will be once. */
  wasShown = false;
  /** It is not in the sums any more, though another row may know it as the next one. */
  isGone = false;
  /** The row that followed in the last report that had it. */
  next: Row | undefined;
  /** By slot: the first row of the last report, and the one that was read last. */
  readonly firsts: (Row | undefined)[];
  readonly lasts: (Row | undefined)[];
  /** The sums that it is in. */
  readonly sums: { rows: number };
  readonly #keyBytes: Buffer;
  #keyField: Field | undefined;
  #clusterName: string | undefined;

  /** `sums`: of which it is one; the root's are their own. */
  constructor(plan: Plan, key: string, reporter: Reporter | undefined, sums = { rows: 0 }) {
    this.sums = sums;
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

  /** Read once, where it is a cluster. */
  get clusterName(): string {
    this.#clusterName ??= clusterName(new MessageReader(this.#keyBytes));
    return this.#clusterName;
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
    this.sums.rows--;
    reporter.payer.hold(-this.bytes);
    reporter.payer.leave(rowPlace);
    if (plan.name === CLUSTER_STATS) reporter.clusters--;
  }
}

/** What one client has made in the sums, and what its last report said. */
export class Reporter {
  readonly payer: Payer;
  readonly maxClusters: number;
  /** What it reports makes no more rows where its session has so many. */
  readonly maxRows: number;
  /** Rows of clusters that its reports have made. */
  clusters = 0;
  /** The gauges of its last report that are not 0. */
  gauges = new Values();

  constructor(payer: Payer, maxClusters: number, maxRows = mostRowsOfSession) {
    this.payer = payer;
    this.maxRows = maxRows;
    this.maxClusters = maxClusters;
  }
}

/** Numbers of rows, each for a slot of its row. */
class Values {
  readonly #rows: Row[] = [];
  readonly #slots: number[] = [];
  readonly #values: number[] = [];

  push(row: Row, slot: number, value: number): void {
    this.#rows.push(row);
    this.#slots.push(slot);
    this.#values.push(value);
  }

  get length(): number {
    return this.#rows.length;
  }

  each(from: number, to: number, visit: (row: Row, slot: number, value: number) => void): void {
    const end = Math.min(to, this.#rows.length);
    for (let at = from; at < end; at++) {
      const row = this.#rows[at];
      if (row !== undefined) visit(row, this.#slots[at] ?? 0, this.#values[at] ?? 0);
    }
  }
}

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

  /** Who reads a report into them. `counts`: whether anything of a cluster does; undefined: of all. */
  reading(reporter: Reporter, wanted: Wanted | undefined, counts?: (cluster: string) => boolean): Reading {
    return new Reading(this.#root, reporter, wanted, counts);
  }

  /** Its gauges count no longer. What it has counted was counted. */
  leave(reporter: Reporter): void {
    replaceGauges(reporter, new Values());
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
        for (const [row, , isShown] of taken) row.wasShown = isShown;
        prune(this.#root);
      },
      giveBack: () => {
        for (const [row, counters] of taken) {
          row.isReported = true;
          for (const [slot, value] of counters.entries())
            row.counters[slot] = clipped((row.counters[slot] ?? 0) + value, largest);
        }
      },
    };
  }
}

/** A larger message is several. Bytes. */
const largestMessage = 2 * 1024 * 1024;

function inMessages(fields: readonly Field[]): readonly Buffer[] {
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

/** Others get their turn after so many bytes of a report, which may be 3,000 new rows. */
const turnBytes = 16 * 1024;
/** So many numbers are added up in one turn. */
const valuesPerTurn = 20_000;
/** Nobody takes what is read without sums. */
const nobody = { hold: () => undefined, count: () => 0, enter() {}, leave() {}, exempt: true };

/**
 * A LoadStatsRequest while it is read. Nothing of it counts before `apply`; what is not applied must be discarded. The
 * sums may be taken in between, and other reports read.
 */
export class Reading {
  /** What it says of requests. */
  readonly totals = { clusters: 0, success: 0, error: 0, dropped: 0 };
  /** As often as the report names them. */
  readonly clusters: ReadCluster[] = [];
  readonly #root: Row | undefined;
  readonly #reporter: Reporter;
  readonly #wanted: Wanted | undefined;
  readonly #counts: ((cluster: string) => boolean) | undefined;
  /** Nothing of the cluster that is read counts. */
  #isIgnored = false;
  readonly #begun = new Set<Row>();
  /** Something of the cluster that is read was left out. */
  #isPart = false;
  #left = 0;
  readonly #reported: Row[] = [];
  /** So many of these are kept. */
  #kept = 0;
  readonly #counted = new Values();
  readonly #gauges = new Values();
  readonly #latest: [Row, Latest][] = [];
  /** The cluster that is read. */
  #cluster: Counts = { success: 0, error: 0, dropped: 0 };
  #turnEnds = turnBytes;

  /** Without a root it is read for its totals. */
  constructor(
    root?: Row,
    reporter: Reporter = new Reporter(nobody, 0),
    wanted?: Wanted,
    counts?: (cluster: string) => boolean,
  ) {
    this.#root = root;
    this.#reporter = reporter;
    this.#wanted = wanted;
    this.#counts = counts;
  }

  /** Throws a RangeError or a TypeError where it is malformed, or what every decoder upstream would refuse. */
  read(report: Buffer): InTurns<void> {
    return this.#readInTurns(this.#root, REPORT, new MessageReader(report));
  }

  /** Returns how many clusters were left out, or parts of them, as it has too many, or as its peer holds too much. */
  *apply(): InTurns<number> {
    for (let from = 0; from < this.#counted.length; from += valuesPerTurn) {
      if (from > 0) yield* this.#othersTurn();
      this.#counted.each(from, from + valuesPerTurn, (row, slot, value) => {
        row.counters[slot] = clipped((row.counters[slot] ?? 0) + value, largest);
      });
    }
    for (const row of this.#reported) row.isReported = true;
    for (const [row, latest] of this.#latest) {
      if (latest.payer.hold(latest.bytes.length) !== undefined) continue;
      row.latest?.payer.hold(-row.latest.bytes.length);
      row.latest = latest;
    }
    replaceGauges(this.#reporter, this.#gauges);
    this.discard();
    return this.#left;
  }

  discard(): void {
    for (const row of this.#reported.slice(0, this.#kept)) row.readers--;
    this.#kept = 0;
  }

  /** Large rows field by field, small ones at once. A row that is met again goes on. */
  *#readInTurns(row: Row | undefined, plan: Plan, reader: MessageReader): InTurns<void> {
    row?.begin();
    while (reader.next()) {
      const field = plan.byTag[reader.tag];
      if (field?.kind === 'rows' && reader.end - reader.start > turnBytes) {
        const below = this.#enter(row, field, reader);
        yield* this.#readInTurns(below, field.plan, reader.message());
      } else if (field !== undefined) this.#readField(row, field, reader);
      if (reader.end < this.#turnEnds) continue;
      this.#turnEnds = reader.end + turnBytes;
      yield* this.#othersTurn();
    }
  }

  /** They may take the sums: rows of this report stay. */
  *#othersTurn(): InTurns<void> {
    for (const row of this.#reported.slice(this.#kept)) row.readers++;
    this.#kept = this.#reported.length;
    yield;
  }

  #readMessage(row: Row | undefined, { byTag }: Plan, reader: MessageReader): void {
    row?.begin();
    while (reader.next()) {
      const field = byTag[reader.tag];
      if (field !== undefined) this.#readField(row, field, reader);
    }
  }

  #readField(row: Row | undefined, field: FieldPlan, reader: MessageReader): void {
    switch (field.kind) {
      case 'counter':
        this.#count(row, field, field.double ? reader.double() : wholeNumber(reader));
        break;
      case 'gauge':
        this.#gauge(row, field.slot, wholeNumber(reader));
        break;
      case 'rows': {
        const below = this.#enter(row, field, reader);
        if (below !== undefined || field.plan.hasOutcomes)
          this.#readMessage(below, field.plan, reader.message());
        break;
      }
      case 'latest':
        if (row !== undefined) this.#keep(row, field, reader);
        break;
      default:
    }
  }

  #count(row: Row | undefined, { slot, outcome }: FieldPlan & { kind: 'counter' }, value: number): void {
    if (value === 0 || !Number.isFinite(value)) return;
    if (outcome !== undefined && !this.#isIgnored) {
      this.totals[outcome] = clipped(this.totals[outcome] + value, largestSaid);
      this.#cluster[outcome] = clipped(this.#cluster[outcome] + value, largestSaid);
    }
    if (row !== undefined) this.#counted.push(row, slot, value);
  }

  #gauge(row: Row | undefined, slot: number, value: number): void {
    if (row !== undefined && value !== 0) this.#gauges.push(row, slot, value);
  }

  /** What is the same is not copied. */
  #keep(row: Row, { message: desc }: FieldPlan & { kind: 'latest' }, reader: MessageReader): void {
    const view = reader.view();
    if (row.latest !== undefined && view.equals(row.latest.bytes)) return;
    checkMessage(desc, view);
    this.#latest.push([row, { bytes: Buffer.from(view), payer: this.#reporter.payer }]);
  }

  /** The row of a message; undefined: it does not count, but for the totals. */
  #enter(parent: Row | undefined, field: FieldPlan & { kind: 'rows' }, at: MessageReader): Row | undefined {
    const isCluster = field.plan.name === CLUSTER_STATS;
    if (isCluster) {
      this.#isPart = false;
      this.#isIgnored = this.#counts?.(clusterName(at.message())) === false;
      if (this.#isIgnored) return undefined;
    }
    const row = parent && this.#wantedRow(parent, field, at);
    if (row !== undefined) this.#reported.push(row);
    if (isCluster) this.#beginCluster(row?.clusterName ?? clusterName(at.message()));
    return row;
  }

  #beginCluster(name: string): void {
    const cluster = { name, success: 0, error: 0, dropped: 0 };
    this.#cluster = cluster;
    this.totals.clusters++;
    if (this.clusters.length < mostClusters) this.clusters.push(cluster);
  }

  #wantedRow(parent: Row, { slot, plan }: FieldPlan & { kind: 'rows' }, at: MessageReader): Row | undefined {
    if (plan.name === ENDPOINT_STATS && this.#wanted?.endpoints === false) return undefined;
    const isCluster = plan.name === CLUSTER_STATS;
    // Before it takes the place of one that is wanted.
    if (isCluster && this.#wanted?.clusters?.has(clusterName(at.message())) === false) return undefined;
    const row = this.#row(parent, slot, plan, at);
    if (row !== undefined && (!isCluster || this.#begin(row))) return row;
    if (!this.#isPart) this.#left++;
    this.#isPart = true;
    return undefined;
  }

  /** The next cluster. False: the report has too many. */
  #begin(row: Row): boolean {
    if (!this.#begun.has(row) && this.#begun.size >= this.#reporter.maxClusters) return false;
    this.#begun.add(row);
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
    if (parent.sums.rows >= reporter.maxRows) return undefined;
    checkKey(plan, at.message());
    const row = new Row(plan, key, reporter, parent.sums);
    if (payer.hold(row.bytes) !== undefined) return undefined;
    payer.enter(rowPlace);
    parent.sums.rows++;
    if (isCluster) reporter.clusters++;
    rows.set(key, row);
    return row;
  }
}

const clipped = (value: number, most: number): number => Math.max(-most, Math.min(most, value));

const wholeNumber = (reader: MessageReader): number => clipped(reader.uint64(), largestSaid);

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
function replaceGauges(reporter: Reporter, gauges: Values): void {
  const { payer, gauges: before } = reporter;
  const isHeld = payer.hold(gauges.length * gaugeBytes) === undefined;
  const added = new Values();
  gauges.each(0, isHeld ? gauges.length : 0, (row, slot, value) => {
    const sum = row.gauges[slot] ?? 0;
    const more = Math.min(value, largestGauge - sum);
    row.holders++;
    row.gauges[slot] = sum + more;
    added.push(row, slot, more);
  });
  before.each(0, before.length, (row, slot, value) => {
    row.holders--;
    row.gauges[slot] = (row.gauges[slot] ?? 0) - value;
  });
  reporter.gauges = added;
  payer.hold(-before.length * gaugeBytes);
}

/** A row of the sums that were taken, with the counters it had; `isShown`: a gauge of it is not 0. */
type TakenRow = readonly [row: Row, counters: readonly number[], isShown: boolean];

/** What a row has to say; undefined: nothing. Its counters begin at 0 again. */
function encode(row: Row, interval: Field, taken: TakenRow[]): Field[] | undefined {
  const fields: Field[] = [row.keyField];
  for (const field of row.plan.fields)
    if (field.kind === 'rows') pushRows(fields, row, field, interval, taken);
  if (fields.length === 1 && !saysSomething(row)) return undefined;
  taken.push([row, row.counters, row.holders > 0]);
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
    fields.push(isDouble ? double(field.number, value) : varint(field.number, value));
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
  let isEmpty = row.readers === 0 && !row.wasReported && !saysSomething(row);
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

export interface Counts {
  success: number;
  error: number;
  dropped: number;
}

export type ReadCluster = Counts & { readonly name: string };

/** More clusters of one report are in its totals only: a cluster may have two bytes. */
const mostClusters = 10_000;
/** ClusterStats.cluster_name. */
const nameTag = bytesTag(1);

export function addCounts(to: Counts, { success, error, dropped }: Readonly<Counts>): void {
  to.success += success;
  to.error += error;
  to.dropped += dropped;
}

/** Of a ClusterStats. */
function clusterName(cluster: MessageReader): string {
  let name = '';
  while (cluster.next()) if (cluster.tag === nameTag) name = cluster.text();
  return name;
}
