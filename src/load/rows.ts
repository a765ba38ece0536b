import { type DescField, type DescMessage, ScalarType } from '@bufbuild/protobuf';
import { LoadStatsRequestSchema } from '../gen/envoy/service/load_stats/v3/lrs_pb.ts';
import type { LoadOutcome } from '../model/load.ts';
import { getOrMake } from '../model/maps.ts';
import { bytesTag, doubleTag, MessageReader, varintTag } from '../protobuf/message-reader.ts';
import type { Account } from '../wire/accounts.ts';
import type { Wanted } from './instruction.ts';

/** What a field of a load report is to its sums. `slot`: which of a row's numbers it is. */
export type FieldPlan =
  /** Says what the numbers are of. */
  | { readonly kind: 'key'; readonly number: number; readonly message: DescMessage | undefined }
  /** Counts since the last report. */
  | {
      readonly kind: 'counter';
      readonly number: number;
      readonly slot: number;
      readonly double: boolean;
      readonly outcome: LoadOutcome | undefined;
    }
  /** What is open now. */
  | { readonly kind: 'gauge'; readonly number: number; readonly slot: number }
  /** Messages with numbers of their own: one row for each key. */
  | { readonly kind: 'rows'; readonly number: number; readonly plan: Plan }
  /** Of what was said last. */
  | { readonly kind: 'latest'; readonly number: number; readonly message: DescMessage }
  /** Since the last report: that of the sums is their own. */
  | { readonly kind: 'interval'; readonly number: number };

/** How the numbers of a message add up. */
export interface Plan {
  readonly name: string;
  /** By `MessageReader.tag`. */
  readonly byTag: readonly (FieldPlan | undefined)[];
  readonly fields: readonly FieldPlan[];
  /** Counters and gauges. */
  readonly numbers: number;
  /** It says what became of requests, or something below it does. */
  readonly hasOutcomes: boolean;
}

const gauges: ReadonlySet<string> = new Set(['total_requests_in_progress', 'total_active_connections']);
/** Numbers that name something. */
const names: ReadonlySet<string> = new Set(['priority']);
const localityStats = 'envoy.config.endpoint.v3.UpstreamLocalityStats';
const outcomes: ReadonlyMap<string, LoadOutcome> = new Map([
  [`${localityStats}.total_successful_requests`, 'success'],
  [`${localityStats}.total_error_requests`, 'error'],
  ['envoy.config.endpoint.v3.ClusterStats.total_dropped_requests', 'dropped'],
]);

/** The plan of endpoints' numbers, which a control plane asks for apart. */
export const ENDPOINT_STATS = 'envoy.config.endpoint.v3.UpstreamEndpointStats';
export const CLUSTER_STATS = 'envoy.config.endpoint.v3.ClusterStats';

/** By the descriptor, so a counter of a later version of the API is added up as well. */
function planOf(desc: DescMessage): Plan {
  const byTag: (FieldPlan | undefined)[] = [];
  const fields: FieldPlan[] = [];
  const count = { numbers: 0 };
  for (const field of desc.fields) {
    const found = fieldPlan(desc, field, count);
    if (found === undefined) continue;
    const plan: FieldPlan = { ...shape, ...found };
    fields.push(plan);
    const isDouble = plan.kind === 'counter' && plan.double;
    const isBytes = field.message !== undefined || field.scalar === ScalarType.STRING;
    byTag[(isDouble ? doubleTag : isBytes ? bytesTag : varintTag)(field.number)] = plan;
  }
  return {
    name: desc.typeName,
    byTag,
    fields,
    numbers: count.numbers,
    hasOutcomes: fields.some((field) =>
      field.kind === 'rows'
        ? field.plan.hasOutcomes
        : field.kind === 'counter' && field.outcome !== undefined,
    ),
  };
}

function fieldPlan(
  { typeName }: DescMessage,
  { number, name, message, fieldKind, scalar }: DescField,
  count: { numbers: number },
): FieldPlan | undefined {
  if (message?.typeName === 'google.protobuf.Duration') return { kind: 'interval', number };
  if (message?.typeName === 'google.protobuf.Struct') return { kind: 'latest', number, message };
  if (message !== undefined) {
    // Who reports is not part of what the sums are of.
    if (message.typeName === 'envoy.config.core.v3.Node') return undefined;
    if (message.fields.some((inner) => isNumber(inner)) || fieldKind === 'list') {
      return { kind: 'rows', number, plan: planOf(message) };
    }
    return { kind: 'key', number, message };
  }
  if (scalar === ScalarType.STRING || names.has(name)) return { kind: 'key', number, message: undefined };
  if (gauges.has(name)) return { kind: 'gauge', number, slot: count.numbers++ };
  const outcome = outcomes.get(`${typeName}.${name}`);
  return { kind: 'counter', number, slot: count.numbers++, double: scalar === ScalarType.DOUBLE, outcome };
}

/** Each field of each report is looked up here, and V8 does that several times as fast if these objects have one shape. */
const shape = { slot: 0, double: false, outcome: undefined, message: undefined, plan: undefined };

const isNumber = ({ scalar }: DescField): boolean =>
  scalar === ScalarType.UINT64 || scalar === ScalarType.DOUBLE;

/** Of a whole report. */
export const REPORT: Plan = planOf(LoadStatsRequestSchema);

/** Who pays for what its reports make new. */
export type Payer = Pick<Account, 'hold' | 'count' | 'enter' | 'leave' | 'exempt'>;

/** A row costs about so much beside its key. */
const rowBytes = 400;
/** So many rows one account may make: all of them are looked at for each report of the sums, in one turn. */
export const mostRows = 50_000;
/** Rows of one session: all of them are encoded in one turn. A peer makes half of them. */
const mostRowsOfSession = 2 * mostRows;
/** A place of an account. */
export const rowPlace = 'load rows';

/** Numbers, each for a place in `Rows.numbers`. */
export class Values {
  readonly places: number[] = [];
  readonly amounts: number[] = [];
  /** So many count. */
  length = 0;

  pushUnless0(place: number, amount: number): void {
    if (amount === 0) return;
    this.places[this.length] = place;
    this.amounts[this.length++] = amount;
  }
}

/** The rows of a report, by id, and what was wanted of it. Some of the rows may not be there any more. */
interface Order {
  readonly ids: readonly number[];
  readonly of: Wanted | undefined;
}

export const noOrder: Order = { ids: [], of: undefined };

/** What one client has made in the sums, and what its last report said. */
export class Reporter {
  readonly payer: Payer;
  /** A reload may change it. */
  maxClusters: number;
  /** What it reports makes no more rows where its session has so many. */
  readonly maxRows: number;
  /** Rows of clusters that its reports have made. */
  clusters = 0;
  /** Of its last report: the next one has the same as a rule. */
  order = noOrder;
  /** The gauges of its last report that are not 0. */
  readonly gauges = new Values();
  /** Paid for these two. */
  heldBytes = 0;

  constructor(payer: Payer, maxClusters: number, maxRows = mostRowsOfSession) {
    this.payer = payer;
    this.maxRows = maxRows;
    this.maxClusters = maxClusters;
  }
}

/** Numbers of one cluster, one locality, one endpoint …: what reports seldom touch of it. */
export class Row {
  readonly id: number;
  readonly plan: Plan;
  /** Who made it; undefined: nobody pays for it. */
  readonly reporter: Reporter | undefined;
  /** The number of the field that it is in the row above. */
  readonly field: number;
  readonly bytes: number;
  /** By field and key. */
  below: Map<string, Row> | undefined;
  /** What was said last, and who pays for it. */
  latest: { readonly bytes: Uint8Array; readonly payer: Payer } | undefined;
  /** Somebody had reported it before the last report of the sums: it will be reported again as a rule. */
  wasReported = false;
  /** Reports that have it and are not read to their ends yet. */
  readers = 0;
  /** A gauge was not 0 in the last report of the sums: it will be once. */
  wasShown = false;

  constructor(id: number, plan: Plan, field: number, keyBytes: number, reporter?: Reporter) {
    this.id = id;
    this.plan = plan;
    this.field = field;
    this.bytes = bytesOf(keyBytes);
    this.reporter = reporter;
  }
}

/** The id of no row, and its place. */
export const none = -1;
/** No message of a report has a field with such a number. */
const mostFields = 16;
const leastRows = 64;
const leastNumbers = 256;
const leastBytes = 1024;

/** What reports touch of rows, by id: for so many. */
const columnsFor = (rows: number) => ({
  /** `placeOf()` where a row is; -1: there is none of this id. */
  places: new Int32Array(rows),
  /** The first of its numbers. */
  firsts: new Int32Array(rows),
  /** Its encoded key fields in `keys`. */
  keyStarts: new Int32Array(rows),
  keyEnds: new Int32Array(rows),
  /** 1: somebody has reported it since the last report of the sums. */
  reported: new Uint8Array(rows),
});

/**
 * The rows of sums. What every report touches of them is in columns, side by side: reports name rows in the order in
 * which they were made, or nearly so, and between two reports all of them have left the processor's caches.
 */
export class Rows {
  readonly root: Row;
  columns = columnsFor(leastRows);
  /** Counters and gauges. */
  numbers = new Float64Array(leastNumbers);
  /** Encoded key fields, one row behind the other. */
  keys: DataView;
  #keyBytes: Buffer = Buffer.allocUnsafeSlow(leastBytes);
  /** Of clusters. */
  readonly names: string[] = [];
  readonly #rows: (Row | undefined)[] = [];
  /** Of the last report that had another one than its client expected: clients of a fleet have the same as a rule. */
  lastOrder = noOrder;
  /** Ids of rows that are gone, with their numbers. */
  readonly #free = new Map<Plan, number[]>();
  #numbersEnd = 0;
  #keysEnd = 0;
  #count = 0;

  constructor() {
    this.keys = viewOf(this.#keyBytes);
    this.root = this.#make(REPORT, none, 0, '');
  }

  /** Rows below the root. */
  get size(): number {
    return this.#count - 1;
  }

  row(id: number): Row | undefined {
    return this.#rows[id];
  }

  find(parent: Row, field: number, key: string): Row | undefined {
    return parent.below?.get(String.fromCharCode(field) + key);
  }

  /** `key`: its encoded key fields, a character for each byte. Undefined: its reporter may not hold so much. */
  add(plan: Plan, parent: Row, field: number, key: string, reporter: Reporter): Row | undefined {
    const { payer } = reporter;
    if (payer.hold(bytesOf(key.length)) !== undefined) return undefined;
    payer.enter(rowPlace);
    if (plan.name === CLUSTER_STATS) reporter.clusters++;
    const row = this.#make(plan, placeOf(parent.id, field), field, key, reporter);
    parent.below ??= new Map();
    parent.below.set(String.fromCharCode(field) + key, row);
    return row;
  }

  /** Those below are gone that this says: nobody pays for them any more. */
  removeBelow(row: Row, isGone: (below: Row) => boolean): void {
    for (const [key, below] of row.below ?? []) {
      if (!isGone(below)) continue;
      row.below?.delete(key);
      this.#remove(below);
    }
  }

  /** Gives memory back that rows had which are gone. */
  trim(): void {
    const end = this.#rows.findLastIndex((row) => row !== undefined) + 1;
    if (this.columns.places.length <= Math.max(leastRows, 4 * end)) return;
    const last = this.#rows[end - 1];
    this.#rows.length = end;
    this.names.length = end;
    for (const [plan, ids] of this.#free)
      this.#free.set(
        plan,
        ids.filter((id) => id < end),
      );
    this.#resize(Math.max(leastRows, 2 * end), end);
    this.#numbersEnd = last === undefined ? 0 : (this.columns.firsts[last.id] ?? 0) + last.plan.numbers;
    this.numbers = resized(this.numbers, this.#numbersEnd);
    this.#moveKeys(0);
  }

  /** Where its numbers begin, and its key in `keys`; `none` of `none`. */
  firstOf(id: number): number {
    return id === none ? none : (this.columns.firsts[id] ?? none);
  }
  keyStartOf(id: number): number {
    return id === none ? none : (this.columns.keyStarts[id] ?? none);
  }

  /** Where one of its numbers is. */
  placeOf({ id }: Row, slot: number): number {
    return this.firstOf(id) + slot;
  }

  numberOf(row: Row, slot: number): number {
    return this.numbers[this.placeOf(row, slot)] ?? 0;
  }

  numbersOf(row: Row): Float64Array {
    const first = this.placeOf(row, 0);
    return this.numbers.subarray(first, first + row.plan.numbers);
  }

  /** Its encoded key fields: valid until another row is made. */
  keyOf({ id }: Row): Buffer {
    const { keyStarts, keyEnds } = this.columns;
    return this.#keyBytes.subarray(keyStarts[id], keyEnds[id]);
  }

  #make(plan: Plan, place: number, field: number, key: string, reporter?: Reporter): Row {
    const id = this.#free.get(plan)?.pop() ?? this.#newId(plan);
    const row = new Row(id, plan, field, key.length, reporter);
    if (this.#keysEnd + key.length > this.#keyBytes.length) this.#moveKeys(key.length);
    const { places, reported, keyStarts, keyEnds } = this.columns;
    this.#rows[id] = row;
    this.#count++;
    places[id] = place;
    reported[id] = 0;
    keyStarts[id] = this.#keysEnd;
    this.#keysEnd += this.#keyBytes.write(key, this.#keysEnd, 'latin1');
    keyEnds[id] = this.#keysEnd;
    this.names[id] = plan.name === CLUSTER_STATS ? clusterName(new MessageReader(this.keyOf(row))) : '';
    return row;
  }

  #newId({ numbers }: Plan): number {
    const id = this.#rows.length;
    if (id === this.columns.places.length) this.#resize(2 * id, id);
    this.columns.firsts[id] = this.#numbersEnd;
    this.#numbersEnd += numbers;
    if (this.#numbersEnd > this.numbers.length) this.numbers = resized(this.numbers, 2 * this.#numbersEnd);
    return id;
  }

  /** The columns of the first `count` stay. */
  #resize(rows: number, count: number): void {
    const columns = columnsFor(rows);
    for (const each of ['places', 'firsts', 'keyStarts', 'keyEnds', 'reported'] as const)
      columns[each].set(this.columns[each].subarray(0, count));
    this.columns = columns;
  }

  #remove(row: Row): void {
    this.removeBelow(row, () => true);
    const { id, plan, reporter, latest } = row;
    this.numbersOf(row).fill(0);
    this.columns.places[id] = none;
    this.names[id] = '';
    this.#rows[id] = undefined;
    this.#count--;
    getOrMake(this.#free, plan, () => []).push(id);
    latest?.payer.hold(-latest.bytes.length);
    reporter?.payer.hold(-row.bytes);
    reporter?.payer.leave(rowPlace);
    if (reporter !== undefined && plan.name === CLUSTER_STATS) reporter.clusters--;
  }

  /** To where there are no gaps, and room for so many bytes more. */
  #moveKeys(more: number): void {
    const { keyStarts, keyEnds } = this.columns;
    const rows = this.#rows.filter((row) => row !== undefined);
    const used = rows.reduce((sum, { id }) => sum + (keyEnds[id] ?? 0) - (keyStarts[id] ?? 0), more);
    const keys = Buffer.allocUnsafeSlow(Math.max(leastBytes, 2 * used));
    let end = 0;
    for (const row of rows) {
      const start = end;
      end += this.keyOf(row).copy(keys, start);
      keyStarts[row.id] = start;
      keyEnds[row.id] = end;
    }
    this.keys = viewOf(keys);
    this.#keyBytes = keys;
    this.#keysEnd = end;
  }
}

export const viewOf = (bytes: Buffer): DataView => new DataView(bytes.buffer, bytes.byteOffset, bytes.length);

/** In which row, and in which of its fields. */
export const placeOf = (parent: number, field: number): number => parent * mostFields + field;
export const rowAbove = (place: number): number => Math.floor(place / mostFields);

const bytesOf = (keyBytes: number): number => rowBytes + 2 * keyBytes;

function resized(numbers: Float64Array<ArrayBuffer>, length: number): Float64Array<ArrayBuffer> {
  const other = new Float64Array(Math.max(leastNumbers, length));
  other.set(numbers.subarray(0, other.length));
  return other;
}

/** ClusterStats.cluster_name. */
const nameTag = bytesTag(1);

/** Of the fields of a ClusterStats. Of several names the last one counts: a hostile report may have a million of them. */
export function clusterName(cluster: MessageReader): string {
  let last = none;
  while (cluster.next()) if (cluster.tag === nameTag) last = cluster.fieldStart;
  if (last === none) return '';
  cluster.enter(last, cluster.end);
  cluster.next();
  return cluster.text();
}
