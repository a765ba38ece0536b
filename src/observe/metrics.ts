import { collectDefaultMetrics, Gauge, Registry } from 'prom-client';
import type { TypeUrl } from '../model/brand.ts';
import { isKnownType } from '../model/types.ts';
import { Certificates } from './certificates.ts';
import type { Counters, OwnCounters } from './counters.ts';
import { descriptions, type MetricDescription } from './descriptions.ts';
import { type Distribution, HistogramFamily } from './distribution.ts';
import { rejections } from './rejections.ts';
import { type RelayFacts, RelayGauges } from './relay-gauges.ts';
import { RolloutMetrics } from './rollout-metrics.ts';
import { type Sample, SampledGauges } from './sample.ts';
import { type Series, seriesOf } from './series.ts';
import { type Tally, TallyFamily } from './tally.ts';
import { OTHER_TYPES, TypeLabels } from './type-label.ts';

export type TransportLabel = 'sotw' | 'delta' | 'rest' | 'fetch';
/** What was waited for in vain. */
export type OverdueLabel = 'removal' | 'warming' | 'missing';
export type RequestKindLabel = 'subscribe' | 'ack' | 'nack' | 'stale';

/** Seconds. Inside a process: from a tenth of a millisecond; behind a slow client: to a minute. */
export const delayBuckets = [
  0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60,
];

/** Gauges of prom-client with the name of a counter. Each is the sum of one without `_total`. */
const wronglyNamed = [
  'nodejs_active_handles_total',
  'nodejs_active_requests_total',
  'nodejs_active_resources_total',
];

export interface MetricsOptions {
  /** prom-client's metrics of the process and its event loop; they go on measuring until the process ends. */
  readonly process?: boolean;
  /** An unknown type has a label of its own only if there is a resource of it. Left out: always. */
  readonly isServed?: (type: TypeUrl) => boolean;
}

/**
 * Every metric of docs/operations.md. A method returns the series with these labels; hot paths keep it. Labels never
 * hold names of resources or nodes.
 */
export class Metrics {
  readonly #registry = new Registry();
  readonly #types: TypeLabels;
  readonly #gauges: SampledGauges;
  readonly #requests = this.#family('downstream_requests_total', 'Requests of clients, by kind', [
    'type',
    'kind',
  ]);
  readonly #responses = this.#family('downstream_responses_total', 'Responses handed to streams of clients', [
    'type',
    'transport',
  ]);
  readonly #responseBytes = this.#family(
    'downstream_response_bytes_total',
    'Bytes of responses handed to streams of clients',
    ['type'],
  );
  readonly #coalesced = this.#family(
    'downstream_coalesced_total',
    'Updates overtaken by a newer one before a slow client took them',
    ['type'],
  );
  readonly #overdue = this.#family(
    'downstream_order_timeouts_total',
    'Sent to clients before what it waited for: a removal (removal), or routes whose clusters have not arrived (missing) or are not accepted (warming)',
    ['type', 'what'],
  );
  readonly #rejected = this.#family(
    'downstream_rejected_total',
    'Streams and requests of clients that were refused',
    ['reason'],
  );
  readonly #propagation = new HistogramFamily(
    this.#registry,
    'distributary_propagation_seconds',
    "From the receipt of an update to its handover to a client's stream",
    [],
    delayBuckets,
  );
  readonly #acknowledged = new HistogramFamily(
    this.#registry,
    'distributary_acknowledged_seconds',
    "From the receipt of an update to a client's ACK of it",
    ['type'],
    delayBuckets,
  );
  readonly #updates = this.#family(
    'upstream_updates_total',
    'Responses of control planes and scans of files',
    ['upstream', 'type', 'result'],
  );
  readonly #reconnects = this.#family('upstream_reconnects_total', 'Attempts to connect again', ['upstream']);
  readonly #streamEnds = this.#family(
    'upstream_stream_ends_total',
    'Streams to control planes that ended, other than by the relay itself',
    ['upstream', 'code'],
  );
  readonly #lastUpdate = new Gauge({
    name: 'distributary_upstream_last_update_timestamp_seconds',
    help: 'When the last accepted update arrived, in seconds since the epoch',
    labelNames: ['upstream', 'type'],
    registers: [this.#registry],
  });
  readonly #heldRemovals = new Gauge({
    name: 'distributary_upstream_held_removals',
    help: 'Removals that are held back because they are too many at once (max_removal_percent)',
    labelNames: ['upstream', 'type'],
    registers: [this.#registry],
  });
  readonly #lookups = this.#family('cache_lookups_total', 'Lookups of a name with a set of parameters', [
    'type',
    'result',
  ]);
  readonly #evictions = this.#family(
    'cache_evictions_total',
    'Variants that were dropped from the cache although the upstream has not removed them',
    ['reason'],
  );
  readonly #ambiguous = this.#family(
    'ambiguous_matches_total',
    'Lookups that more than one variant matched',
    ['type'],
  );
  readonly #reloads = this.#family('config_reloads_total', 'Attempts to load a changed configuration', [
    'result',
  ]);
  readonly #workerRestarts = this.#family(
    'worker_restarts_total',
    'Serving processes started in place of one that exited',
    [],
  );
  readonly #persistenceErrors = this.#family(
    'persistence_errors_total',
    'Errors of the disk that keeps the cache',
    ['reason'],
  );
  readonly certificates = new Certificates(this.#registry);
  readonly rollout = new RolloutMetrics(this.#registry);
  /** Why the last response or file was refused, by `refusalKey`: as many as the metric has series. */
  readonly #refusals = new Map<string, string>();
  #sample: (() => Sample) | undefined;
  #relay: RelayGauges | undefined;

  constructor(options: MetricsOptions = {}) {
    this.#types = new TypeLabels(options.isServed ?? (() => true));
    this.#gauges = new SampledGauges(this.#registry, this.#types);
    if (options.process === true) {
      collectDefaultMetrics({ register: this.#registry });
      for (const name of wronglyNamed) this.#registry.removeSingleMetric(name);
    }
    // A series that appears with its first increment hides that increment from rate() and increase().
    for (const result of ['accepted', 'rejected'] as const) this.reloads(result);
    for (const reason of rejections.keys()) this.rejected(reason);
    for (const reason of ['size', 'idle', 'ttl']) this.evictions(reason);
    this.workerRestarts();
  }

  /** A name for a type where the number of names must be bounded: labels, conditions, tables. */
  typeLabel(type: TypeUrl): string {
    return this.#types.of(type);
  }

  requests(type: TypeUrl, kind: RequestKindLabel): Tally {
    return this.#requests.labels(this.#types.of(type), kind);
  }

  responses(type: TypeUrl, transport: TransportLabel): Tally {
    return this.#responses.labels(this.#types.of(type), transport);
  }

  responseBytes(type: TypeUrl): Tally {
    return this.#responseBytes.labels(this.#types.of(type));
  }

  coalesced(type: TypeUrl): Tally {
    return this.#coalesced.labels(this.#types.of(type));
  }

  overdue(type: TypeUrl, what: OverdueLabel): Tally {
    return this.#overdue.labels(this.#types.of(type), what);
  }

  /** `reason` comes from a fixed list, never from a peer. */
  rejected(reason: string): Tally {
    return this.#rejected.labels(reason);
  }

  /** In seconds. */
  propagation(): Distribution {
    return this.#propagation.of();
  }

  /** In seconds. */
  acknowledged(type: TypeUrl): Distribution {
    // Each label is twenty series here: types that only clients know share one.
    return this.#acknowledged.of(isKnownType(type) ? this.#types.of(type) : OTHER_TYPES);
  }

  updates(upstream: string, type: TypeUrl, result: 'accepted' | 'rejected'): Tally {
    const label = this.#types.of(type);
    // Both begin at 0, see the constructor.
    this.#updates.labels(upstream, label, result === 'accepted' ? 'rejected' : 'accepted');
    return this.#updates.labels(upstream, label, result);
  }

  /** A response or a file is refused. `reason` says which resource, and why. */
  refusedUpdate(upstream: string, type: TypeUrl, reason: string): void {
    this.updates(upstream, type, 'rejected').inc();
    this.#refusals.set(refusalKey(upstream, this.#types.of(type)), reason);
  }

  reconnects(upstream: string): Tally {
    return this.#reconnects.labels(upstream);
  }

  /** `code` is the name of a gRPC status. */
  streamEnds(upstream: string, code: string): Tally {
    return this.#streamEnds.labels(upstream, code);
  }

  /** `milliseconds` since the epoch. */
  lastUpdate(upstream: string, type: TypeUrl, milliseconds: number): void {
    this.#lastUpdate.set({ upstream, type: this.#types.of(type) }, milliseconds / 1000);
  }

  heldRemovals(upstream: string, type: TypeUrl, count: number): void {
    this.#heldRemovals.set({ upstream, type: this.#types.of(type) }, count);
  }

  lookups(type: TypeUrl, result: 'hit' | 'miss'): Tally {
    return this.#lookups.labels(this.#types.of(type), result);
  }

  /** `reason` comes from a fixed list. */
  evictions(reason: string): Tally {
    return this.#evictions.labels(reason);
  }

  ambiguous(type: TypeUrl): Tally {
    return this.#ambiguous.labels(this.#types.of(type));
  }

  workerRestarts(): Tally {
    return this.#workerRestarts.labels();
  }

  reloads(result: 'accepted' | 'rejected'): Tally {
    return this.#reloads.labels(result);
  }

  /** `reason` comes from a fixed list. */
  persistenceErrors(reason: string): Tally {
    return this.#persistenceErrors.labels(reason);
  }

  /** Gauges that there are only where the cache is persisted. `lastWrite`: milliseconds since the epoch. */
  persistence(state: () => { readonly lagSeconds: number; readonly lastWrite: number | undefined }): void {
    const gauge = (name: string, help: string, value: () => number): void => {
      const collect = function (this: Gauge): void {
        this.set(value());
      };
      this.#registry.registerMetric(
        new Gauge({ name: `distributary_persistence_${name}`, help, registers: [], collect }),
      );
    };
    gauge('lag_seconds', 'For how long a change has been waiting to be written', () => state().lagSeconds);
    gauge(
      'last_write_timestamp_seconds',
      'When the cache was last written, in seconds since the epoch; 0: not since the start',
      () => (state().lastWrite ?? 0) / 1000,
    );
  }

  /** For the charts of the status page and for problems: sums over all types. */
  counted(): Omit<Counters, keyof OwnCounters | 'streams' | 'connections'> {
    return {
      responses: this.#responses.total,
      acknowledged: [...this.#acknowledged.counts()],
      rejections: sumOf(this.#requests.counted().filter(([[, kind]]) => kind === 'nack')),
      turnedAway: this.#rejected.counted().map(([[reason = ''], count]) => [reason, count]),
      refusedUpdates: this.#updates
        .counted()
        .flatMap(([[upstream = '', type = '', result], count]) =>
          result === 'rejected'
            ? [[upstream, type, count, this.#refusals.get(refusalKey(upstream, type)) ?? '']]
            : [],
        ),
      restarts: this.#workerRestarts.total,
      certificates: this.certificates.states(),
    };
  }

  /** Gauges of the relay as a whole: only one of its processes has them. `version`: the product's. */
  relay(version: string, facts: () => RelayFacts | Promise<RelayFacts>): void {
    this.#relay = new RelayGauges(this.#registry, version, facts);
  }

  /** Where the gauges get what they show, each time the metrics are asked for. */
  sampleFrom(sample: () => Sample): void {
    this.#sample = sample;
  }

  /** The Prometheus text format. */
  async text(): Promise<string> {
    await this.#gather();
    return this.#registry.metrics();
  }

  /** The same as values, for another process to add up (series.ts). */
  async series(): Promise<readonly Series[]> {
    await this.#gather();
    return seriesOf(this.#registry);
  }

  async #gather(): Promise<void> {
    if (this.#sample !== undefined) this.#gauges.show(this.#sample());
    await this.#relay?.show();
  }

  /** Every metric without its values, for the reference. */
  describe(): readonly MetricDescription[] {
    return descriptions(this.#registry);
  }

  /** Of `text`, for the HTTP header. */
  get contentType(): string {
    return this.#registry.contentType;
  }

  #family<Label extends string>(name: string, help: string, labels: readonly Label[]): TallyFamily<Label> {
    return new TallyFamily(this.#registry, `distributary_${name}`, help, labels);
  }
}

const refusalKey = (upstream: string, type: string): string => JSON.stringify([upstream, type]);

const sumOf = (counts: readonly (readonly [readonly string[], number])[]): number =>
  counts.reduce((sum, [, count]) => sum + count, 0);
