import { AggregatorRegistry, Counter, Gauge, Histogram, type Registry } from 'prom-client';
import * as z from 'zod';
import { getOrMake } from '../model/maps.ts';

/** What a metric shows now: a value, then one value for each of its labels. Undefined: without this label. */
export type Reading = readonly [value: number, ...labels: readonly (string | undefined)[]];

/** One series of a counter or gauge. Counting is an addition: prom-client sees the number when it is asked for the metrics. */
export class Tally {
  value = 0;

  inc(by = 1): void {
    const next = this.value + by;
    // Beyond this, small numbers would no longer add up. From 0 again is a restart to rate() and increase().
    this.value = next <= Number.MAX_SAFE_INTEGER ? next : by;
  }
}

/** One series of a histogram. prom-client's own costs a lookup by labels for each value; here a value costs additions. */
export class Distribution {
  readonly bounds: readonly number[];
  /** How many values each bucket has; the last one is what is above all bounds. */
  readonly counts: number[];
  sum = 0;

  constructor(bounds: readonly number[]) {
    this.bounds = bounds;
    this.counts = [...bounds, Infinity].map(() => 0);
  }

  observe(value: number): void {
    let index = 0;
    while (value > (this.bounds[index] ?? value)) index += 1;
    this.counts[index] = (this.counts[index] ?? 0) + 1;
    this.sum += value;
  }
}

/** The series of a metric by the values of its labels. Take one once and keep it where the counting is hot. */
export class Family<T> {
  readonly #make: () => T;
  readonly #series = new Map<string, { readonly labels: readonly string[]; readonly series: T }>();

  constructor(make: () => T) {
    this.#make = make;
  }

  /** The same object for the same values. */
  of(...labels: readonly string[]): T {
    return getOrMake(this.#series, JSON.stringify(labels), () => ({ labels, series: this.#make() })).series;
  }

  /** Those whose first label has this value. */
  forget(value: string): void {
    for (const [key, { labels }] of this.#series) if (labels[0] === value) this.#series.delete(key);
  }

  all(): readonly { readonly labels: readonly string[]; readonly series: T }[] {
    return [...this.#series.values()];
  }
}

/** A metric without its values. */
export interface Description {
  readonly labels: readonly string[];
  readonly help: string;
}

type Labels = Readonly<Record<string, string>>;

const labelled = (names: readonly string[], values: readonly (string | undefined)[]): Labels =>
  Object.fromEntries(
    names.flatMap((name, index) => {
      const value = values[index];
      return value === undefined ? [] : [[name, value] as const];
    }),
  );

/** Readings with equal labels are added up. What ends in `_total` is a counter, anything else a gauge. */
export function show(
  registry: Registry,
  name: string,
  { labels: labelNames, help }: Description,
  read: () => Iterable<Reading>,
): void {
  const collect = function (this: Counter | Gauge): void {
    this.reset();
    for (const [value, ...labels] of read()) this.inc(labelled(labelNames, labels), value);
  };
  const options = { name, help, labelNames, registers: [], collect };
  registry.registerMetric(name.endsWith('_total') ? new Counter(options) : new Gauge(options));
}

type Samples = Awaited<ReturnType<Histogram['get']>>;

/** A histogram of these series. */
export class ShownHistogram extends Histogram {
  readonly #name: string;
  readonly #labels: readonly string[];
  readonly #family: Family<Distribution>;
  readonly #shape: Histogram;

  constructor(name: string, help: string, labels: readonly string[], family: Family<Distribution>) {
    super({ name, help, labelNames: [...labels], registers: [] });
    this.#name = name;
    this.#labels = labels;
    this.#family = family;
    this.#shape = new Histogram({ name, help, registers: [] });
  }

  override async get(): Promise<Samples> {
    const values = this.#family
      .all()
      .flatMap(({ labels, series }) => this.#samples(labelled(this.#labels, labels), series));
    return { ...(await this.#shape.get()), values };
  }

  /** A registry calls this where it exists; the inherited one would show empty buckets. */
  getForPromString(): Promise<Samples> {
    return this.get();
  }

  /** As the Prometheus format has them: each bucket counts those below it too. */
  #samples(labels: Labels, { bounds, counts, sum }: Distribution): Samples['values'] {
    const name = this.#name;
    let value = 0;
    const buckets = [...bounds, '+Inf'].map((le, index) => {
      value += counts[index] ?? 0;
      return { metricName: `${name}_bucket`, labels: { ...labels, le }, value };
    });
    return [
      ...buckets,
      { metricName: `${name}_sum`, labels, value: sum },
      { metricName: `${name}_count`, labels, value },
    ];
  }
}

const schema = z.array(
  z.object({
    name: z.string(),
    help: z.string(),
    type: z.string(),
    values: z.array(
      z.object({
        // Quantiles without observations are NaN, which JSON writes as null.
        value: z.union([z.number(), z.nan(), z.null().transform(() => Number.NaN)]),
        labels: z.record(z.string(), z.union([z.string(), z.number()])),
        /** Of a histogram's parts; else the metric's name. */
        metricName: z.string().optional(),
      }),
    ),
  }),
);

/** A metric with its values, as plain data: it can go to another process. */
export type Series = z.infer<typeof schema>[number];

/** Throws if it is something else. */
export function readSeries(value: unknown): readonly Series[] {
  return schema.parse(value);
}

export async function seriesOf(registry: Registry): Promise<readonly Series[]> {
  return readSeries(await registry.getMetricsAsJSON());
}

/** The sums of what has the same name and labels; of points in time the earliest, of success the least. */
export async function sumSeries(lists: readonly (readonly Series[])[]): Promise<readonly Series[]> {
  return seriesOf(summed(lists));
}

/** The same in the Prometheus text format. */
export function formatSum(lists: readonly (readonly Series[])[]): Promise<string> {
  return summed(lists).metrics();
}

/** Points in time are not added up: the earliest counts. Neither is success: the relay has it if all processes have it. */
const leastCounts = /_(timestamp_seconds|successful)$/;

function summed(lists: readonly (readonly Series[])[]): Registry {
  return AggregatorRegistry.aggregate(
    lists.map((list) =>
      list.map((series) => ({ ...series, aggregator: leastCounts.test(series.name) ? 'min' : 'sum' })),
    ),
  );
}
