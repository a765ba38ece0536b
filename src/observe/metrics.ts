import { collectDefaultMetrics, Registry } from 'prom-client';
import * as z from 'zod';
import { type TypeUrl, typeUrl } from '../model/brand.ts';
import { type LoadOutcome, loadOutcomes } from '../model/load.ts';
import type { RequestKind } from '../model/subscription.ts';
import { printable } from '../model/text.ts';
import { isKnownType, longestTypeUrl, typeInfo } from '../model/types.ts';
import { Certificates, type FollowedCertificate } from './certificates.ts';
import { rejections } from './rejections.ts';
import {
  bucketsOf,
  type Description,
  Distribution,
  Family,
  formatSum,
  type Reading,
  type Series,
  seriesOf,
  Tally,
  valuesOf,
} from './series.ts';

/** Seconds. Inside a process: from a tenth of a millisecond; behind a slow client: to a minute. */
export const delayBuckets = [
  0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60,
];
/** Seconds: from a change without anybody to protect to one that somebody had to repair. */
const rolloutBuckets = [1, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 14_400, 86_400];

export const rolloutStates = ['IDLE', 'CANARY', 'HELD', 'FROZEN'] as const;
const rolloutResults = [
  'released',
  'held',
  'discarded',
  'timeout',
  'failed_check',
  'failed_traffic',
] as const;
type RolloutResult = (typeof rolloutResults)[number];

/**
 * What is told when the metrics are asked for, by the names of these tables, so it costs nothing otherwise. Of what is left
 * out nothing is shown.
 */
type Told<Table> = { readonly [Name in keyof Table]?: readonly Reading[] };

/** What a process has now. */
export type Sample = Told<typeof sampled>;
/** What is true of the relay as a whole, whatever its number of processes. */
export type RelayFacts = Told<typeof ofRelay>;

// biome-ignore format: a table, one metric a line
const sampled = {
  downstream_connections: { labels: [], help: 'Open connections of clients, including those in their TLS handshake' },
  peer_accounts: { labels: [], help: 'Peers that have something open, or an overdrawn account' },
  peer_waiting: { labels: [], help: 'Peers that wait for their turn, because their account is used up' },
  peer_held_bytes: { labels: [], help: 'Bytes that are held for single peers' },
  downstream_streams: { labels: ['transport', 'service'], help: 'Open xDS streams of clients' },
  downstream_subscriptions: { labels: ['type'], help: 'Subscriptions of clients' },
  classes: { labels: ['type'], help: 'Classes of clients, whose subscriptions and parameters are equal' },
  downstream_unacknowledged: { labels: ['type'], help: 'Streams of clients that have not answered what they were sent last' },
  downstream_rejecting: { labels: ['type'], help: 'Streams of clients that have rejected something and have not accepted it since' },
  upstream_connected: { labels: ['upstream'], help: '1 while connected (files: scanned), else 0' },
  upstream_sessions: { labels: ['upstream'], help: 'Sessions with a control plane' },
  upstream_kept_bytes: { labels: ['upstream'], help: 'Bytes of the last SotW responses of each session and type, which the next ones are compared with: they are beside those of the cache' },
  upstream_stale_seconds: { labels: ['upstream'], help: 'Seconds since the cached resources of this upstream may be out of date; 0 while they are current' },
  upstream_from_siblings: { labels: ['upstream'], help: "1 while siblings' answers are served in place of this upstream's own, else 0" },
  cache_resources: { labels: ['type'], help: 'Cached resources, whatever their variants' },
  cache_variants: { labels: ['type'], help: 'Cached variants of resources' },
  load_report_streams: { labels: ['direction'], help: 'Open streams of load reports: of clients (received), and to control planes that take them (sent)' },
  cache_bytes: { labels: [], help: 'Bytes of cached resources' },
} as const satisfies Record<string, Description>;

const certificateLabels = ['listener', 'upstream', 'siblings'];
const ofCertificate = (value: number, { owner: of }: FollowedCertificate, result?: string): Reading =>
  'listener' in of
    ? [value, of.listener, undefined, undefined, result]
    : [value, undefined, of.upstream, of.siblings, result];

// biome-ignore format: a table, one metric a line
const ofCertificates = {
  certificate_expiry_timestamp_seconds: { labels: certificateLabels, help: 'When the certificate expires that a listener presents, or the relay presents to an upstream, in seconds since the epoch' },
  certificate_not_before_timestamp_seconds: { labels: certificateLabels, help: 'When that certificate became valid, in seconds since the epoch: how near its end is too near depends on its lifetime' },
  certificate_last_reload_successful: { labels: certificateLabels, help: '1 while the certificate, key and ca in force are those in the files, 0 after new files were refused' },
  certificate_reloads_total: { labels: [...certificateLabels, 'result'], help: 'Changed files of a certificate, key or ca that were taken (success) or refused. Each worker reads those of xds and rest' },
} as const satisfies Record<string, Description>;

const certificatesTold = (all: readonly FollowedCertificate[]): Told<typeof ofCertificates> => ({
  certificate_expiry_timestamp_seconds: all.flatMap((one) =>
    one.expiresAt === undefined ? [] : [ofCertificate(one.expiresAt / 1000, one)],
  ),
  certificate_not_before_timestamp_seconds: all.flatMap((one) =>
    one.validFrom === undefined ? [] : [ofCertificate(one.validFrom / 1000, one)],
  ),
  certificate_last_reload_successful: all.map((one) => ofCertificate(one.refused === undefined ? 1 : 0, one)),
  certificate_reloads_total: all.flatMap((one) =>
    Object.entries(one.reloads).map(([result, count]) => ofCertificate(count, one, result)),
  ),
});

// biome-ignore format: a table, one metric a line
const ofRelay = {
  build_info: { labels: ['version', 'node'], help: '1; the versions of the relay and of Node.js' },
  ready: { labels: [], help: '1 while /ready answers 200, else 0' },
  held_removals: { labels: ['upstream'], help: 'Removals of an upstream that are held back because they are too many at once (max_removal_percent), those that a rollout holds included' },
  discarded_names: { labels: [], help: 'Names of which nobody gets what their upstream says, because it was discarded' },
  rollout_state: { labels: ['state'], help: 'State of the rollout: 1 for the current state, 0 for the others' },
  rollout_wave: { labels: [], help: 'In which wave a change is that goes to some clients first, from 1; 0: none waits' },
  frozen: { labels: [], help: 'Whether an operator has frozen something' },
  rollout_check_state: { labels: ['name', 'state'], help: 'What a check of the rollout says: 1 for its current state, 0 for the others' },
  limit: { labels: ['name'], help: 'Limits of the configuration in force, by key: counts, bytes and seconds' },
  config_last_reload_timestamp_seconds: { labels: [], help: 'When the configuration in force was read, in seconds since the epoch' },
  config_last_reload_successful: { labels: [], help: '1 while the configuration in force is the last one that was read, 0 after a new version was refused' },
  missing_subscriptions: { labels: ['type'], help: 'Subscriptions of clients to what does not exist for them: asked for, and known to be absent' },
  unmatched_subscriptions: { labels: ['type'], help: 'Of distributary_missing_subscriptions, those to what exists for other clients' },
} as const satisfies Record<string, Description>;

// biome-ignore format: a table, one metric a line
const ofPersistence = {
  persistence_lag_seconds: { labels: [], help: 'For how long a change has been waiting to be written' },
  persistence_last_write_timestamp_seconds: { labels: [], help: 'When the cache was last written, in seconds since the epoch; 0: not since the start' },
} as const satisfies Record<string, Description>;

/** Gauges of prom-client with the name of a counter. Each is the sum of one without `_total`. */
const wronglyNamed = [
  'nodejs_active_handles_total',
  'nodejs_active_requests_total',
  'nodejs_active_resources_total',
];

/** What a registry tells of each metric; prom-client's types leave the type and the labels out. */
const described = z.object({
  name: z.string(),
  type: z.string(),
  help: z.string(),
  labelNames: z.array(z.string()).default([]),
});

/** How often, and what. ACKs by the bound of their delay, clients that were refused by the reason, updates by upstream and type. */
export type Happened = readonly [
  count: number,
  what: 'responses' | 'acknowledged' | 'rejections' | 'turned away' | 'refused' | 'restarts',
  ...of: readonly string[],
];

const results = ['accepted', 'rejected'] as const;
type Result = (typeof results)[number];
/** What the labels are called whose values these are. */
type NamesOf<Labels extends readonly string[]> = { readonly [Index in keyof Labels]: string };

/**
 * Every metric of docs/operations.md. A function of a metric returns the series with these labels; hot paths keep it.
 * Labels never hold names of resources or nodes.
 */
export class Metrics {
  /** A name for a type where the number of names must be bounded: labels, conditions, tables. */
  readonly typeLabel: (type: TypeUrl) => string;
  /** The process's, by prom-client. */
  readonly #registry = new Registry();
  readonly #own: (z.infer<typeof described> & { readonly values: () => Series['values'] })[] = [];
  readonly #families = new Map<string, Family<Tally>>();
  /** What is counted here, or set. Reasons come from fixed lists, never from a peer; `code` is the name of a gRPC status. */
  // biome-ignore format: a table, one metric a line
  readonly count = {
    requests: this.#count<[TypeUrl, RequestKind]>('downstream_requests_total', ['type', 'kind'], 'Requests of clients, by kind'),
    responses: this.#count<[TypeUrl, 'sotw' | 'delta' | 'rest' | 'fetch']>('downstream_responses_total', ['type', 'transport'], 'Responses handed to streams of clients'),
    responseBytes: this.#count<[TypeUrl]>('downstream_response_bytes_total', ['type'], 'Bytes of responses handed to streams of clients'),
    coalesced: this.#count<[TypeUrl]>('downstream_coalesced_total', ['type'], 'Updates overtaken by a newer one before a slow client took them'),
    overdue: this.#count<[TypeUrl, 'removal' | 'warming' | 'missing']>('downstream_order_timeouts_total', ['type', 'what'], 'Sent to clients before what it waited for: a removal (removal), or routes whose clusters have not arrived (missing) or are not accepted (warming)'),
    rejected: this.#count<[reason: string]>('downstream_rejected_total', ['reason'], 'Streams and requests of clients that were refused', [...rejections.keys()]),
    reconnects: this.#count<[upstream: string]>('upstream_reconnects_total', ['upstream'], 'Attempts to connect again'),
    streamEnds: this.#count<[upstream: string, code: string]>('upstream_stream_ends_total', ['upstream', 'code'], 'Streams to control planes that ended, other than by the relay itself'),
    lookups: this.#count<[TypeUrl, 'hit' | 'miss']>('cache_lookups_total', ['type', 'result'], 'Lookups of a name with a set of parameters'),
    evictions: this.#count<[reason: string]>('cache_evictions_total', ['reason'], 'Variants that were dropped from the cache although the upstream has not removed them', ['size', 'idle', 'ttl']),
    ambiguous: this.#count<[TypeUrl]>('ambiguous_matches_total', ['type'], 'Lookups that more than one variant matched'),
    reloads: this.#count<[Result]>('config_reloads_total', ['result'], 'Attempts to load a changed configuration', results),
    workerRestarts: this.#count<[]>('worker_restarts_total', [], 'Serving processes started in place of one that exited'),
    persistenceErrors: this.#count<[reason: string]>('persistence_errors_total', ['reason'], 'Errors of the disk that keeps the cache'),
    loadReports: this.#count<['received' | 'sent', upstream: string]>('load_reports_total', ['direction', 'upstream'], 'Load reports of clients (received), and sums that were sent to control planes (sent)'),
    loadRequests: this.#count<[LoadOutcome]>('load_requests_total', ['outcome'], 'Requests that clients have reported, by what became of them', loadOutcomes),
    loadClustersDropped: this.#count<[]>('load_report_clusters_dropped_total', [], 'Clusters of load reports that were left out, because of limits.max_load_report_clusters or what their peer holds'),
    rolloutNotifications: this.#count<[result: 'sent' | 'failed']>('rollout_notifications_total', ['result'], 'Notifications of what becomes of changes (rollout.notify): sent, or given up after half a minute (failed)', ['sent', 'failed']),
    rollouts: this.#count<[RolloutResult]>('rollouts_total', ['result'], 'Changes that went to canaries first, by result', rolloutResults),
    handshakes: this.#count<[listener: string, kind: 'full' | 'resumed']>('downstream_tls_handshakes_total', ['listener', 'kind'], 'TLS handshakes of clients that were completed: full, or by a session that was resumed (resumed)', ['full', 'resumed']),
    updates: this.#count<[upstream: string, TypeUrl, Result]>('upstream_updates_total', ['upstream', 'type', 'result'], 'Responses of control planes and scans of files', results),
  };
  /** Gauges, which are set. */
  // biome-ignore format: a table, one metric a line
  readonly set = {
    lastUpdate: this.#count<[upstream: string, TypeUrl]>('upstream_last_update_timestamp_seconds', ['upstream', 'type'], 'When the last accepted update arrived, in seconds since the epoch'),
    heldRemovals: this.#count<[upstream: string, TypeUrl]>('upstream_held_removals', ['upstream', 'type'], 'Removals that are held back because they are too many at once (max_removal_percent), of types that no rollout gates'),
  };
  readonly #distributions = new Map<string, Family<Distribution>>();
  /** In seconds. */
  // biome-ignore format: a table, one metric a line
  readonly observe = {
    propagation: this.#histogram<[]>('propagation_seconds', [], delayBuckets, "From the receipt of an update to its handover to a client's stream"),
    acknowledged: this.#histogram<[type: string]>('acknowledged_seconds', ['type'], delayBuckets, "From the receipt of an update to a client's ACK of it"),
    rolloutDuration: this.#histogram<[]>('rollout_duration_seconds', [], rolloutBuckets, 'How long changes waited until everybody got them'),
  };
  readonly certificates = new Certificates();
  /** Why the last response or file was refused, by upstream and type: as many as the metric has series. */
  readonly #refusals = new Map<string, string>();
  #takeSample = (): Sample => ({});
  /**
   * Called when the metrics are asked for: each keeps what its table is told. The last that was declared comes first: what
   * of the relay others have to be asked for takes time, and what this process knows is read after that.
   */
  readonly #gather: (() => Promise<void>)[] = [];

  /**
   * `isServed`: there is a resource of this type, see typeLabels. `process`: prom-client's metrics of the process and its
   * event loop; they go on measuring until the process ends.
   */
  constructor(
    isServed: (type: TypeUrl) => boolean = () => true,
    { process = false }: { readonly process?: boolean } = {},
  ) {
    this.typeLabel = typeLabels(isServed);
    this.#show(ofCertificates, () => certificatesTold(this.certificates.followed()));
    this.#show(sampled, () => this.#takeSample(), true);
    if (process) {
      collectDefaultMetrics({ register: this.#registry });
      for (const name of wronglyNamed) this.#registry.removeSingleMetric(name);
    }
    this.observe.rolloutDuration();
  }

  acknowledged(type: TypeUrl): Distribution {
    // Each label is twenty series here: types that only clients know share one.
    return this.observe.acknowledged(isKnownType(type) ? this.typeLabel(type) : OTHER_TYPES);
  }

  /** A response or a file is refused. `reason` says which resource, and why. */
  refusedUpdate(upstream: string, type: TypeUrl, reason: string): void {
    this.count.updates(upstream, type, 'rejected').inc();
    this.#refusals.set(JSON.stringify([upstream, this.typeLabel(type)]), reason);
  }

  /** This upstream is gone: nobody changes its gauges any more. Its counters stay. */
  forgetUpstream(upstream: string): void {
    for (const name of ['upstream_last_update_timestamp_seconds', 'upstream_held_removals'])
      this.#families.get(name)?.forget(upstream);
  }

  /** Gauges that there are only where the cache is persisted. */
  persistence(told: () => Told<typeof ofPersistence>): void {
    this.#show(ofPersistence, told);
  }

  /** For the charts of the status page and for problems. */
  counted() {
    const delays = this.#distributions.get('acknowledged_seconds')?.all() ?? [];
    const happened: Happened[] = [[this.count.workerRestarts().value, 'restarts']];
    for (const [count] of this.#counted('downstream_responses_total')) happened.push([count, 'responses']);
    for (const [index, bound] of [...delayBuckets, Infinity].entries())
      for (const { series } of delays)
        happened.push([series.counts[index] ?? 0, 'acknowledged', String(bound)]);
    for (const [count, , kind] of this.#counted('downstream_requests_total'))
      if (kind === 'nack') happened.push([count, 'rejections']);
    for (const [count, reason = ''] of this.#counted('downstream_rejected_total'))
      happened.push([count, 'turned away', reason]);
    for (const [count, upstream = '', type = '', result] of this.#counted('upstream_updates_total'))
      if (result === 'rejected') happened.push([count, 'refused', upstream, type]);
    return { happened, refusals: [...this.#refusals], certificates: this.certificates.states() };
  }

  /** Gauges of the relay as a whole: only one of its processes has them. `version`: the product's. */
  relay(version: string, facts: () => RelayFacts | Promise<RelayFacts>): void {
    this.#show(ofRelay, async () => ({ ...(await facts()), build_info: [[1, version, process.version]] }));
  }

  /** Where the gauges get what they show, each time the metrics are asked for. */
  sampleFrom(sample: () => Sample): void {
    this.#takeSample = sample;
  }

  /** The Prometheus text format. */
  async text(): Promise<string> {
    return formatSum([await this.series()]);
  }

  /** The same as values, for another process to add up (series.ts). */
  async series(): Promise<readonly Series[]> {
    for (const gather of this.#gather) await gather();
    const own = this.#own.map((metric) => ({ ...metric, values: metric.values() }));
    return [...own, ...(await seriesOf(this.#registry))];
  }

  /** Every metric without its values, for the reference. */
  describe() {
    return [...this.#own, ...this.#registry.getMetricsAsArray().map((metric) => described.parse(metric))];
  }

  /** The series that have counted something. */
  #counted(name: string): readonly Reading[] {
    const family = this.#families.get(name);
    if (family === undefined) throw new Error(`there is no metric ${name}`);
    return [...readingsOf(family)].filter(([count]) => count !== 0);
  }

  /**
   * `name` is without `distributary_`; what ends in `_total` is a counter. `known`: values of the last label that begin at 0.
   * A series that appears with its first increment hides that increment from rate() and increase().
   */
  #count<Labels extends readonly string[]>(
    name: string,
    labels: NamesOf<Labels>,
    help: string,
    known: readonly string[] = [],
  ) {
    const family = new Family(() => new Tally());
    this.#families.set(name, family);
    this.#add(name, { labels, help }, () => readingsOf(family));
    const begin = (...others: readonly string[]): void => {
      for (const value of known) family.of(...others, value);
    };
    if (labels.length === 1) begin();
    return (...values: Labels): Tally => {
      const own = values.map((value, index) =>
        labels[index] === 'type' ? this.typeLabel(typeUrl(value)) : value,
      );
      if (own.length > 1) begin(...own.slice(0, -1));
      return family.of(...own);
    };
  }

  #histogram<Labels extends readonly string[]>(
    name: string,
    labels: NamesOf<Labels>,
    buckets: readonly number[],
    help: string,
  ) {
    const family = new Family(() => new Distribution(buckets));
    this.#distributions.set(name, family);
    const shown = `distributary_${name}`;
    const values = () => bucketsOf(shown, labels, family);
    this.#own.push({ name: shown, type: 'histogram', help, labelNames: [...labels], values });
    return (...values: Labels): Distribution => family.of(...values);
  }

  #add(name: string, { labels, help }: Description, read: () => Iterable<Reading>): void {
    const type = name.endsWith('_total') ? 'counter' : 'gauge';
    const values = () => valuesOf(labels, read());
    this.#own.push({ name: `distributary_${name}`, type, help, labelNames: [...labels], values });
  }

  /** `typed`: the label `type` is read as a type's URL. */
  #show<Table extends Record<string, Description>>(
    table: Table,
    tell: () => Told<Table> | Promise<Told<Table>>,
    typed = false,
  ): void {
    let told: Told<Table> = {};
    this.#gather.unshift(async () => {
      told = await tell();
    });
    for (const name in table) {
      const row = table[name];
      if (row === undefined) continue;
      this.#add(name, row, () => {
        const readings = told[name] ?? [];
        if (!typed || row.labels[0] !== 'type') return readings;
        return readings.map(([value, type = '']): Reading => [value, this.typeLabel(typeUrl(type))]);
      });
    }
  }
}

function* readingsOf(family: Family<Tally>): Iterable<Reading> {
  for (const { labels, series } of family.all()) yield [series.value, ...labels];
}

/** Only so many unknown types get a label of their own, because each label is a series for ever. */
const mostUnknown = 32;
/** Clients can name any type: those of which no upstream has a resource leave the other places free. */
const mostUnserved = 8;
/** The label of the rest. */
const OTHER_TYPES = 'other';

/**
 * A name for a type as a label: the short name, an unknown type's URL, `other` past the first unknown ones and where the
 * type cannot be told. A type keeps its URL once it has it. `isServed`: there is a resource of this type.
 */
export function typeLabels(isServed: (type: TypeUrl) => boolean): (type: TypeUrl) => string {
  const unknown = new Set<TypeUrl>();
  const hasPlace = (type: TypeUrl): boolean => {
    if (type === '' || type.length > longestTypeUrl || unknown.size >= mostUnknown) return false;
    if (unknown.size < mostUnserved || isServed(type)) return true;
    const unserved = [...unknown].filter((one) => !isServed(one));
    return unserved.length < mostUnserved;
  };
  return (type) => {
    const { short } = typeInfo(type);
    // What a worker tells of its other types takes no place here.
    if (short !== type || type === OTHER_TYPES) return short;
    if (!unknown.has(type) && !hasPlace(type)) return OTHER_TYPES;
    unknown.add(type);
    return printable(short);
  };
}
