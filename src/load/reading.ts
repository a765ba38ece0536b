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
  type Plan,
  placeOf,
  REPORT,
  Reporter,
  type Row,
  Rows,
  rowPlace,
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
/** More clusters of one report are in its totals only: a cluster may have two bytes. */
const mostClusters = 10_000;
/** What a client's last report costs, for each gauge and each row. */
const gaugeBytes = 32;
const orderBytes = 12;
/** And while it is read: an entry of lists that grow, and a view with its own entry. */
const noteBytes = 24;
const latestBytes = 200;

type RowsField = FieldPlan & { kind: 'rows' };

export class TooMuchNoted extends Error {}

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
  /** The rows of its client's last report, or before its first one those of another client: it has the same as a rule. */
  readonly #expected: readonly number[];
  /** So many rows it names. */
  #named = 0;
  /** Which, once one is another than was expected. */
  #others: number[] | undefined;
  /** Places in `Rows.numbers`, each with what is to be added there. */
  readonly #counted: number[] = [];
  readonly #gauges: number[] = [];
  readonly #latest: [Row, Buffer][] = [];
  #reader = noReader;
  /** Looks at keys. */
  #keyReader = noReader;
  #words = noWords;
  /** Bytes that its peer pays for what is noted. */
  #paid = 0;
  /** Clusters that count. */
  #begun = 0;
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
    this.#expected = reporter.order.length > 0 ? reporter.order : this.#rows.lastOrder;
    this.#rows.readings++;
  }

  /**
   * From `start` on. Throws a RangeError or a TypeError where it is malformed, or what every decoder upstream would
   * refuse; TooMuchNoted where it has so many numbers that its peer may not hold them.
   */
  *read(report: Buffer, start = 0): InTurns<void> {
    this.#reader = new MessageReader(report, start);
    this.#keyReader = new MessageReader(report);
    this.#words = viewOf(report);
    if (report.length - start <= turnBytes) this.#readFields(this.#top, REPORT);
    else yield* this.#readInTurns(this.#top, REPORT);
  }

  /** Returns how many clusters were left out, or parts of them, as it has too many, or as its peer holds too much. */
  apply(): number {
    const { numbers, columns } = this.#rows;
    const counted = this.#counted;
    for (let at = 0; at < counted.length; at += 2) {
      const place = counted[at] ?? 0;
      numbers[place] = addedUp(numbers[place], counted[at + 1]);
    }
    const order = this.#order();
    for (const id of order) columns.reported[id] = 1;
    const { payer } = this.#reporter;
    for (const [row, bytes] of this.#latest) {
      if (payer.hold(bytes.length) !== undefined) continue;
      row.latest?.payer.hold(-row.latest.bytes.length);
      row.latest = { bytes: Buffer.from(bytes), payer };
    }
    remember(this.#rows, this.#reporter, this.#gauges, order);
    return this.#left;
  }

  /** The same list for all clients that have the same rows: they are a fleet as a rule. */
  #order(): readonly number[] {
    if (this.#others === undefined && this.#named === this.#expected.length) return this.#expected;
    const order = this.#others?.slice() ?? this.#expected.slice(0, this.#named);
    if (order.length > 0) this.#rows.lastOrder = order;
    return order;
  }

  close(): void {
    this.#rows.readings--;
    this.#reporter.payer.hold(-this.#paid);
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
        this.#readFields(id, plan);
        reader.leave(outer);
      }
      if (end < this.#turnEnds) continue;
      this.#turnEnds = end + turnBytes;
      this.#payForNotes();
      yield;
    }
  }

  #payForNotes(): void {
    const entries = this.#named + (this.#counted.length + this.#gauges.length) / 2;
    const bytes = noteBytes * entries + latestBytes * this.#latest.length;
    const excess = this.#reporter.payer.hold(bytes - this.#paid);
    if (excess !== undefined) throw new TooMuchNoted(excess);
    this.#paid = bytes;
  }

  #readFields(id: number, { byTag }: Plan): void {
    const reader = this.#reader;
    const first = this.#rows.firstOf(id);
    while (reader.next()) {
      const field = byTag[reader.tag];
      if (field === undefined) continue;
      switch (field.kind) {
        case 'counter':
          this.#readCounter(first, field);
          break;
        case 'gauge':
          if (first !== none) note(this.#gauges, first + field.slot, wholeNumber(reader));
          break;
        case 'rows':
          this.#readRow(id, field);
          break;
        case 'latest':
          this.#readLatest(id, field);
          break;
        default:
      }
    }
  }

  /** `first`: of the row's numbers. */
  #readCounter(first: number, { slot, double, outcome }: FieldPlan & { kind: 'counter' }): void {
    const value = double ? finite(this.#reader.double()) : wholeNumber(this.#reader);
    if (outcome !== undefined) addOutcome(this.#cluster, outcome, value);
    if (first !== none) note(this.#counted, first + slot, value);
  }

  #readRow(parent: number, field: RowsField): void {
    const reader = this.#reader;
    const { start, end } = reader;
    const outer = reader.enter(start, end);
    const id = this.#enter(parent, field, start, end);
    if (id !== none || field.plan.hasOutcomes) this.#readFields(id, field.plan);
    reader.leave(outer);
    if (isCluster(field)) this.#addTotals();
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
    if (this.#wanted?.endpoints === false && field.plan.name === ENDPOINT_STATS) return none;
    const expected = parent === none ? none : this.#expectedRow(parent, field, start, end);
    if (isCluster(field)) {
      const known = this.#rows.names[expected];
      const name = known ?? clusterName(this.#keysOf(start, end));
      this.#isPart = false;
      this.#cluster = this.#counts?.(name) === false ? undefined : noRequests(name);
      // Before it takes the place of one that is wanted.
      if (this.#cluster === undefined || this.#wanted?.clusters?.has(name) === false) return none;
    }
    if (parent === none) return none;
    const id = expected === none ? this.#rowByKey(parent, field, start, end) : expected;
    const hasPlace = !isCluster(field) || this.#begun < this.#reporter.maxClusters;
    if (id !== none && hasPlace) {
      if (isCluster(field)) this.#begun++;
      this.#names(id);
      return id;
    }
    if (!this.#isPart) this.#left++;
    this.#isPart = true;
    return none;
  }

  #names(id: number): void {
    if (this.#others === undefined && this.#expected[this.#named] !== id)
      this.#others = this.#expected.slice(0, this.#named);
    this.#others?.push(id);
    this.#named++;
  }

  /** Reports have their rows in the same order as a rule. That is quicker than to make a key of a message first. */
  #expectedRow(parent: number, { number, plan }: RowsField, start: number, end: number): number {
    const { places, keyEnds } = this.#rows.columns;
    const id = this.#expected[this.#named] ?? none;
    if (places[id] !== placeOf(parent, number)) return none;
    let key = this.#rows.keyStartOf(id);
    const reader = this.#keysOf(start, end);
    while (reader.next()) {
      if (plan.byTag[reader.tag]?.kind !== 'key' || isDefault(reader)) continue;
      if (!this.#isInKeys(reader, key)) return none;
      key += reader.end - reader.fieldStart;
    }
    return key === keyEnds[id] ? id : none;
  }

  /** The whole field is in the rows' keys from `position` on. By words of four bytes; the last one may overlap. */
  #isInKeys({ fieldStart, end }: MessageReader, position: number): boolean {
    const words = this.#words;
    const { keys } = this.#rows;
    const by = position - fieldStart;
    const last = end - wordBytes;
    if (end + by > keys.byteLength) return false;
    for (let at = fieldStart; at < last; at += wordBytes)
      if (words.getInt32(at, true) !== keys.getInt32(at + by, true)) return false;
    if (last >= fieldStart) return words.getInt32(last, true) === keys.getInt32(last + by, true);
    for (let at = fieldStart; at < end; at++) if (words.getUint8(at) !== keys.getUint8(at + by)) return false;
    return true;
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

function note(notes: number[], place: number, amount: number): void {
  if (amount !== 0) notes.push(place, amount);
}

export const addedUp = (sum = 0, more = 0): number => clipped(sum + more, largest);

/** What this client has said last. What its peer may not hold is not counted. */
function remember(rows: Rows, reporter: Reporter, gauges: number[], order: readonly number[]): void {
  const { numbers } = rows;
  const bytes = order.length * orderBytes + (gauges.length / 2) * gaugeBytes;
  const isHeld =
    bytes === reporter.heldBytes || reporter.payer.hold(bytes - reporter.heldBytes) === undefined;
  if (!isHeld) {
    forget(rows, reporter);
    return;
  }
  for (let at = 0; at < gauges.length; at += 2) {
    const place = gauges[at] ?? 0;
    const sum = numbers[place] ?? 0;
    const more = Math.min(gauges[at + 1] ?? 0, largestGauge - sum);
    numbers[place] = sum + more;
    gauges[at + 1] = more;
  }
  takeAway(numbers, reporter.gauges);
  // A list that has grown has room for more.
  reporter.gauges = gauges.slice();
  reporter.order = order;
  reporter.heldBytes = bytes;
}

/** Nothing that it has said last counts. */
export function forget({ numbers }: Rows, reporter: Reporter): void {
  takeAway(numbers, reporter.gauges);
  reporter.gauges = [];
  reporter.order = [];
  reporter.payer.hold(-reporter.heldBytes);
  reporter.heldBytes = 0;
}

function takeAway(numbers: Float64Array, gauges: readonly number[]): void {
  for (let at = 0; at < gauges.length; at += 2) {
    const place = gauges[at] ?? 0;
    numbers[place] = (numbers[place] ?? 0) - (gauges[at + 1] ?? 0);
  }
}

/** Field by field: a name that V8 has to look up costs as much as all the rest. */
function addOutcome(to: Counts | undefined, outcome: LoadOutcome, value: number): void {
  if (to === undefined) return;
  if (outcome === 'success') to.success = clipped(to.success + value, largestSaid);
  else if (outcome === 'error') to.error = clipped(to.error + value, largestSaid);
  else to.dropped = clipped(to.dropped + value, largestSaid);
}
