import type { LoadOutcome } from '../model/load.ts';
import { type InTurns, ReadingPace } from '../model/time-slices.ts';
import { bytesTag, checkMessage, MessageReader } from '../protobuf/message-reader.ts';
import type { Wanted } from './instruction.ts';
import {
  CLUSTER_STATS,
  clusterName,
  ENDPOINT_STATS,
  type FieldPlan,
  mostRows,
  none,
  noOrder,
  type Plan,
  placeOf,
  REPORT,
  Reporter,
  type Row,
  Rows,
  rowAbove,
  rowPlace,
  Values,
  viewOf,
} from './rows.ts';

const nodeTag = bytesTag(1);
/** So many fields are skipped in one turn: a few milliseconds. */
const skippedPerTurn = 100_000;

/** Encoders put it first. 0: it is not there, or malformed, and who reads the report says so. */
export function lengthOfFirstNode(report: Buffer): number {
  const reader = new MessageReader(report);
  try {
    return reader.next() && reader.tag === nodeTag ? reader.end : 0;
  } catch {
    return 0;
  }
}

export function* nodeOf(report: Buffer): InTurns<Buffer | undefined> {
  const pace = new ReadingPace(skippedPerTurn);
  let node: Buffer | undefined;
  for (const reader = new MessageReader(report); reader.next(); ) {
    if (reader.tag === nodeTag) node = reader.view();
    if (pace.isTurnOver(0)) yield;
  }
  return node;
}

export type Counts = Record<LoadOutcome, number>;
export type ReadCluster = Counts & { readonly name: string };

export function addCounts(to: Counts, { success, error, dropped }: Readonly<Counts>): void {
  to.success += success;
  to.error += error;
  to.dropped += dropped;
}

/** No sum may become a varint that no decoder takes. */
const largest = 2 ** 63;
/** Whole numbers that one report may add are this at most: a larger one would make a counter of doubles stand still. */
const largestSaid = 2 ** 40;
/** A gauge is this at most: beyond it doubles round, and what was added could not be taken away again. */
const largestGauge = Number.MAX_SAFE_INTEGER;
/** Others get their turn after so many bytes of a report, which may be 3,000 new rows. */
const turnBytes = 16 * 1024;
/** So many numbers are added up in one turn. */
const valuesPerTurn = 20_000;
/** More clusters of one report are in its totals only: a cluster may have two bytes. */
const mostClusters = 10_000;
/** What a client's last report costs, for each gauge and each row. */
const gaugeBytes = 32;
const orderBytes = 12;
/** And while it is read: an entry of two lists that grow, and a view with its own entry. */
const noteBytes = 24;
const latestBytes = 200;

type RowsField = FieldPlan & { kind: 'rows' };

export class TooMuchNoted extends Error {}

/** What a report says, as it is read: memory that the next report uses again. */
class Notes {
  /** Rows that it names, as often as it names them. */
  readonly order: number[] = [];
  named = 0;
  readonly counted = new Values();
  readonly gauges = new Values();
}

const spareNotes: Notes[] = [];
/** As many as a client needs that reports to so many upstreams. What a large report has filled is given up. */
const mostSpare = 4;
const mostNoted = 10_000;

/** Of a report that is not there yet. */
const noReader = new MessageReader(Buffer.alloc(0));
const noWords = viewOf(Buffer.alloc(0));

/** Nobody takes what is read without rows. */
const noRows = new Rows();
const nobody = new Reporter(
  { hold: () => undefined, count: () => 0, enter() {}, leave() {}, exempt: true },
  0,
);

/**
 * A LoadStatsRequest while it is read. Nothing of it counts before `apply`. The sums may be taken in between, and other
 * reports read. It must be closed.
 */
export class Reading {
  /** What it says of requests. */
  readonly totals = { clusters: 0, success: 0, error: 0, dropped: 0 };
  /** As often as the report names them. */
  readonly clusters: ReadCluster[] = [];
  readonly #rows: Rows;
  readonly #top: number;
  readonly #reporter: Reporter;
  readonly #wanted: Wanted | undefined;
  readonly #counts: ((cluster: string) => boolean) | undefined;
  /** Which rows are expected: those of its client's last report, or before its first one those of others. */
  readonly #expected: Reporter['order'];
  /** Another row came than was expected. */
  #hasOthers = false;
  /** The report that is expected was read for the same, so no name is looked up again. */
  readonly #areExpectedWanted: boolean;
  #reader = noReader;
  /** Looks at keys. */
  #keyReader = noReader;
  #words = noWords;
  readonly #notes = spareNotes.pop() ?? new Notes();
  /** So many of the rows that it names are kept where they are. */
  #kept = 0;
  readonly #latest: [Row, Buffer][] = [];
  /** Bytes that its peer pays for what is noted. */
  #paid = 0;
  /** Clusters that count, and which ones, where these may be too many. */
  #begun = 0;
  #distinct: Set<number> | undefined;
  /** Something of the cluster that is read was left out. */
  #isPart = false;
  #left = 0;
  /** Of the cluster that is read; undefined: nothing of it counts. */
  #cluster: ReadCluster | undefined;
  #turnEnds = turnBytes;

  /** Without rows it is read for its totals. */
  constructor(
    rows?: Rows,
    reporter: Reporter = nobody,
    wanted?: Wanted,
    counts?: (cluster: string) => boolean,
  ) {
    this.#rows = rows ?? noRows;
    this.#top = rows === undefined ? none : rows.root.id;
    this.#reporter = reporter;
    this.#wanted = wanted;
    this.#counts = counts;
    this.#expected = reporter.order.ids.length > 0 ? reporter.order : this.#rows.lastOrder;
    this.#areExpectedWanted =
      counts === undefined && (wanted?.clusters === undefined || wanted === this.#expected.of);
  }

  /**
   * From `start` on. Throws a RangeError or a TypeError where it is malformed, or what every decoder upstream would
   * refuse; TooMuchNoted where it has so many numbers that its peer may not hold them.
   */
  *read(report: Buffer, start = 0): InTurns<void> {
    this.#reader = new MessageReader(report, start);
    this.#keyReader = new MessageReader(report);
    this.#words = viewOf(report);
    if (report.length - start <= turnBytes) {
      this.#readFields(this.#top, REPORT, false);
      return;
    }
    yield* this.#readInTurns(this.#top, REPORT);
    // Until it is applied others may have their turn.
    this.#keepNotes();
  }

  /** Returns how many clusters were left out, or parts of them, as it has too many, or as its peer holds too much. */
  *apply(): InTurns<number> {
    const { order, named, counted } = this.#notes;
    for (let from = 0; from < counted.length; from += valuesPerTurn) {
      if (from > 0) yield* this.#othersTurn();
      addUp(this.#rows.numbers, counted, from, from + valuesPerTurn);
    }
    const { reported } = this.#rows.columns;
    for (let at = 0; at < named; at++) reported[order[at] ?? 0] = 1;
    const { payer } = this.#reporter;
    for (const [row, bytes] of this.#latest) {
      if (payer.hold(bytes.length) !== undefined) continue;
      row.latest?.payer.hold(-row.latest.bytes.length);
      row.latest = { bytes: Buffer.from(bytes), payer };
    }
    remember(this.#rows, this.#reporter, this.#notes, this.#newOrder());
    return this.#left;
  }

  #newOrder(): Reporter['order'] {
    const { named, order } = this.#notes;
    const { ids, of } = this.#expected;
    if (!this.#hasOthers && named === ids.length && this.#wanted === of) return this.#expected;
    const made = { ids: order.slice(0, named), of: this.#wanted };
    if (named > 0) this.#rows.lastOrder = made;
    return made;
  }

  close(): void {
    const notes = this.#notes;
    for (const id of notes.order.slice(0, this.#kept)) this.#keep(id, -1);
    this.#reporter.payer.hold(-this.#paid);
    notes.named = 0;
    notes.counted.length = 0;
    notes.gauges.length = 0;
    const { order, counted, gauges } = notes;
    const isLarge = Math.max(order.length, counted.places.length, gauges.places.length) > mostNoted;
    if (!isLarge && spareNotes.length < mostSpare) spareNotes.push(notes);
  }

  /** A large row field by field, and those of its fields that are small at once. */
  *#readInTurns(id: number, plan: Plan): InTurns<void> {
    const reader = this.#reader;
    while (reader.next()) {
      const field = plan.byTag[reader.tag];
      const { fieldStart, start, end } = reader;
      if (field?.kind === 'rows' && end - start > turnBytes) {
        const outer = reader.enter(start, end);
        yield* this.#readInTurns(this.#enter(id, field, start, end), field.plan);
        reader.leave(outer);
        if (isCluster(field)) this.#addTotals();
      } else if (field !== undefined) {
        const outer = reader.enter(fieldStart, end);
        this.#readFields(id, plan, false);
        reader.leave(outer);
      }
      if (end < this.#turnEnds) continue;
      this.#turnEnds = end + turnBytes;
      yield* this.#othersTurn();
    }
  }

  /** They may take the sums: rows of this report stay. */
  *#othersTurn(): InTurns<void> {
    this.#keepNotes();
    yield;
  }

  #keepNotes(): void {
    const { order, named, counted, gauges } = this.#notes;
    const bytes = noteBytes * (named + counted.length + gauges.length) + latestBytes * this.#latest.length;
    const excess = this.#reporter.payer.hold(bytes - this.#paid);
    if (excess !== undefined) throw new TooMuchNoted(excess);
    this.#paid = bytes;
    for (const id of order.slice(this.#kept, named)) this.#keep(id, 1);
    this.#kept = named;
  }

  #keep(id: number, readers: number): void {
    const row = this.#rows.row(id);
    if (row !== undefined) row.readers += readers;
  }

  /**
   * Reads fields of a row. `isExpected`: it may be another one. It is this one if its key is in the message, and if all
   * below it is what is expected in its place. If not, false.
   */
  #readFields(id: number, { byTag }: Plan, isExpected: boolean): boolean {
    const reader = this.#reader;
    const first = this.#rows.firstOf(id);
    let key = this.#rows.keyStartOf(id);
    while (reader.next()) {
      const field = byTag[reader.tag];
      if (field === undefined) continue;
      switch (field.kind) {
        case 'counter':
          this.#readCounter(first, field);
          break;
        case 'gauge':
          this.#readGauge(first, field);
          break;
        case 'key':
          if (!isExpected || isDefault(reader)) break;
          if (!this.#isInKeys(key)) return false;
          key += reader.end - reader.fieldStart;
          break;
        case 'rows':
          if (!isExpected) this.#readRow(id, field);
          else if (!this.#readExpected(id, field)) return false;
          break;
        case 'latest':
          this.#readLatest(id, field);
          break;
        default:
      }
    }
    return !isExpected || key === this.#rows.columns.keyEnds[id];
  }

  /** `first`: of the row's numbers. */
  #readCounter(first: number, { slot, double, outcome }: FieldPlan & { kind: 'counter' }): void {
    const value = double ? finite(this.#reader.double()) : wholeNumber(this.#reader);
    if (outcome !== undefined) addOutcome(this.#cluster, outcome, value);
    if (first !== none) this.#notes.counted.pushUnless0(first + slot, value);
  }

  #readGauge(first: number, { slot }: FieldPlan & { kind: 'gauge' }): void {
    if (first !== none) this.#notes.gauges.pushUnless0(first + slot, wholeNumber(this.#reader));
  }

  /** The whole field is in the rows' keys from `position` on. By words of four bytes; the last one may overlap. */
  #isInKeys(position: number): boolean {
    const words = this.#words;
    const { keys } = this.#rows;
    const { fieldStart, end } = this.#reader;
    const by = position - fieldStart;
    const last = end - wordBytes;
    if (end + by > keys.byteLength) return false;
    for (let at = fieldStart; at < last; at += wordBytes)
      if (words.getInt32(at, true) !== keys.getInt32(at + by, true)) return false;
    if (last >= fieldStart) return words.getInt32(last, true) === keys.getInt32(last + by, true);
    for (let at = fieldStart; at < end; at++) if (words.getUint8(at) !== keys.getUint8(at + by)) return false;
    return true;
  }

  /** The row that is expected in this place, if it is that one. */
  #readExpected(parent: number, field: RowsField): boolean {
    if (this.#isUnwanted(field)) return true;
    const reader = this.#reader;
    const notes = this.#notes;
    const id = this.#expected.ids[notes.named] ?? 0;
    if (this.#rows.columns.places[id] !== placeOf(parent, field.number)) return false;
    notes.order[notes.named++] = id;
    const outer = reader.enter(reader.start, reader.end);
    const isIt = this.#readFields(id, field.plan, true);
    reader.leave(outer);
    return isIt;
  }

  /**
   * A row below one that is known. Reports have their rows in the same order as a rule: it is read as if it were the same
   * row as last time, and again if it is not. That is quicker than to make a key of it first.
   */
  #readRow(parent: number, field: RowsField): void {
    const reader = this.#reader;
    const { start, end } = reader;
    if (parent === none || !this.#wasExpected(parent, field)) {
      const outer = reader.enter(start, end);
      const id = this.#enter(parent, field, start, end);
      if (id !== none || field.plan.hasOutcomes) this.#readFields(id, field.plan, false);
      reader.leave(outer);
    }
    if (isCluster(field)) this.#addTotals();
  }

  /** It is read. If not, nothing is noted of it. */
  #wasExpected(parent: number, field: RowsField): boolean {
    const notes = this.#notes;
    const { named } = notes;
    const counted = notes.counted.length;
    const gauges = notes.gauges.length;
    const latest = this.#latest.length;
    const expected = this.#expected.ids[named] ?? none;
    if (isCluster(field)) this.#cluster = noRequests(this.#rows.names[expected] ?? '');
    const { success = 0, error = 0, dropped = 0 } = this.#cluster ?? nothing;
    const isIt = this.#readExpected(parent, field);
    if (isIt && (!isCluster(field) || (this.#isWanted(expected) && this.#begin(expected, named))))
      return true;
    notes.named = named;
    notes.counted.length = counted;
    notes.gauges.length = gauges;
    this.#latest.length = latest;
    if (this.#cluster !== undefined) Object.assign(this.#cluster, { success, error, dropped });
    return false;
  }

  /** A known row of a cluster. */
  #isWanted(id: number): boolean {
    if (this.#areExpectedWanted) return true;
    const name = this.#rows.names[id] ?? '';
    return this.#counts?.(name) !== false && this.#wanted?.clusters?.has(name) !== false;
  }

  #addTotals(): void {
    const cluster = this.#cluster;
    if (cluster === undefined) return;
    const { totals } = this;
    totals.clusters++;
    addOutcome(totals, 'success', cluster.success);
    addOutcome(totals, 'error', cluster.error);
    addOutcome(totals, 'dropped', cluster.dropped);
    if (this.clusters.length < mostClusters) this.clusters.push(cluster);
  }

  #readLatest(id: number, { message: desc }: FieldPlan & { kind: 'latest' }): void {
    const row = this.#rows.row(id);
    const view = this.#reader.view();
    // What is the same is not copied.
    if (row === undefined || (row.latest !== undefined && view.equals(row.latest.bytes))) return;
    checkMessage(desc, view, deepest);
    this.#latest.push([row, view]);
  }

  /** The row of a message; `none`: it does not count, but for the totals. */
  #enter(parent: number, field: RowsField, start: number, end: number): number {
    if (isCluster(field)) {
      const name = clusterName(this.#keysOf(start, end));
      this.#isPart = false;
      this.#cluster = this.#counts?.(name) === false ? undefined : noRequests(name);
      // Before it takes the place of one that is wanted.
      if (this.#cluster === undefined || this.#wanted?.clusters?.has(name) === false) return none;
    }
    if (parent === none || this.#isUnwanted(field)) return none;
    const notes = this.#notes;
    const id = this.#rowByKey(parent, field, start, end);
    if (id !== none && (!isCluster(field) || this.#begin(id, notes.named))) {
      notes.order[notes.named++] = id;
      this.#hasOthers = true;
      return id;
    }
    if (!this.#isPart) this.#left++;
    this.#isPart = true;
    return none;
  }

  #isUnwanted({ plan }: RowsField): boolean {
    return this.#wanted?.endpoints === false && plan.name === ENDPOINT_STATS;
  }

  /** The next cluster, before which the report names so many rows. False: it has too many. */
  #begin(id: number, named: number): boolean {
    const { maxClusters } = this.#reporter;
    if (this.#begun < maxClusters) {
      this.#begun++;
      return true;
    }
    // It may name some of them again.
    const { places } = this.#rows.columns;
    const isTop = (one: number): boolean => rowAbove(places[one] ?? none) === this.#top;
    this.#distinct ??= new Set(this.#notes.order.slice(0, named).filter(isTop));
    if (this.#distinct.size < maxClusters) this.#distinct.add(id);
    return this.#distinct.has(id);
  }

  #keysOf(start: number, end: number): MessageReader {
    this.#keyReader.enter(start, end);
    return this.#keyReader;
  }

  /** Found, or made. `none`: whoever reports it may not make another one. */
  #rowByKey(parent: number, { number, plan }: RowsField, start: number, end: number): number {
    const rows = this.#rows;
    const above = rows.row(parent);
    if (above === undefined) return none;
    const key = keyOf(plan, this.#keysOf(start, end)) ?? sortedKey(plan, this.#keysOf(start, end));
    const known = rows.find(above, number, key);
    if (known !== undefined) return known.id;
    const { payer, clusters, maxClusters, maxRows } = this.#reporter;
    if (plan.name === CLUSTER_STATS && clusters >= maxClusters) return none;
    if ((!payer.exempt && payer.count(rowPlace) >= mostRows) || rows.size >= maxRows) return none;
    checkKey(plan, new MessageReader(Buffer.from(key, 'latin1')));
    return rows.add(plan, above, number, key, this.#reporter)?.id ?? none;
  }
}

const wordBytes = 4;
/** Messages that are passed on unread are so many levels below the top of a report, or fewer: the metadata of an endpoint. */
const deepest = 4;

const isCluster = ({ plan }: RowsField): boolean => plan.name === CLUSTER_STATS;

const nothing: Partial<Counts> = {};

const noRequests = (name: string): ReadCluster => ({ name, success: 0, error: 0, dropped: 0 });

const clipped = (value: number, most: number): number => Math.max(-most, Math.min(most, value));

const finite = (value: number): number => (Number.isFinite(value) ? value : 0);

const wholeNumber = (reader: MessageReader): number => Math.min(reader.uint64(), largestSaid);

/** The encoded key fields in the order of their numbers; what is empty is left out, as decoders cannot tell. */
function keyOf({ byTag }: Plan, reader: MessageReader): string | undefined {
  let key = '';
  let last = 0;
  while (reader.next()) {
    const field = byTag[reader.tag];
    if (field?.kind !== 'key' || isDefault(reader)) continue;
    if (field.number <= last) return undefined;
    last = field.number;
    key += reader.encoded();
  }
  return key;
}

/** Of a message whose fields are in no order, or several times there: the last one counts. */
function sortedKey({ byTag }: Plan, reader: MessageReader): string {
  const starts = new Map<number, number>();
  while (reader.next()) {
    const field = byTag[reader.tag];
    if (field?.kind === 'key') starts.set(field.number, reader.fieldStart);
  }
  const { end } = reader;
  let key = '';
  for (const [, start] of [...starts].toSorted(([a], [b]) => a - b)) {
    reader.enter(start, end);
    reader.next();
    if (!isDefault(reader)) key += reader.encoded();
  }
  return key;
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
    if (field.message !== undefined) checkMessage(field.message, reader.view(), deepest);
    else if (!isNumber(reader)) reader.text();
  }
}

function addUp(numbers: Float64Array, { places, amounts, length }: Values, from: number, to: number): void {
  const end = Math.min(to, length);
  for (let at = from; at < end; at++) {
    const place = places[at] ?? 0;
    numbers[place] = addedUp(numbers[place], amounts[at]);
  }
}

export const addedUp = (sum = 0, more = 0): number => clipped(sum + more, largest);

/** What this client has said last. What its peer may not hold is not counted. */
function remember(
  rows: Rows,
  reporter: Reporter,
  { named, gauges: said }: Notes,
  order: Reporter['order'],
): void {
  const { payer, gauges } = reporter;
  const { numbers } = rows;
  const bytes = named * orderBytes + said.length * gaugeBytes;
  const isHeld = bytes === reporter.heldBytes || payer.hold(bytes - reporter.heldBytes) === undefined;
  if (!isHeld) {
    forget(rows, reporter);
    return;
  }
  reporter.heldBytes = bytes;
  for (let at = 0; at < said.length; at++) {
    const place = said.places[at] ?? 0;
    const sum = numbers[place] ?? 0;
    const more = Math.min(said.amounts[at] ?? 0, largestGauge - sum);
    numbers[place] = sum + more;
    said.amounts[at] = more;
  }
  takeAway(numbers, gauges);
  copy(said.places, said.length, gauges.places);
  copy(said.amounts, said.length, gauges.amounts);
  gauges.length = said.length;
  reporter.order = order;
}

/** Nothing that it has said last counts. */
export function forget({ numbers }: Rows, reporter: Reporter): void {
  takeAway(numbers, reporter.gauges);
  reporter.gauges.length = 0;
  reporter.gauges.places.length = 0;
  reporter.gauges.amounts.length = 0;
  reporter.order = noOrder;
  reporter.payer.hold(-reporter.heldBytes);
  reporter.heldBytes = 0;
}

function takeAway(numbers: Float64Array, { places, amounts, length }: Values): void {
  for (let at = 0; at < length; at++) {
    const place = places[at] ?? 0;
    numbers[place] = (numbers[place] ?? 0) - (amounts[at] ?? 0);
  }
}

/** In place: thousands of clients have such lists, and each of their reports changes them a little. */
function copy(from: readonly number[], length: number, to: number[]): void {
  for (let at = 0; at < length; at++) to[at] = from[at] ?? 0;
  if (to.length > length) to.length = length;
}

/** Field by field: a name that V8 has to look up costs as much as all the rest. */
function addOutcome(to: Counts | undefined, outcome: LoadOutcome, value: number): void {
  if (to === undefined) return;
  if (outcome === 'success') to.success = clipped(to.success + value, largestSaid);
  else if (outcome === 'error') to.error = clipped(to.error + value, largestSaid);
  else to.dropped = clipped(to.dropped + value, largestSaid);
}
