import { AggregatorRegistry, type Registry } from 'prom-client';
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

const labelled = (
  names: readonly string[],
  values: readonly (string | undefined)[],
): Record<string, string> =>
  Object.fromEntries(
    names.flatMap((name, index) => {
      const value = values[index];
      return value === undefined ? [] : [[name, value] as const];
    }),
  );

/** Those with equal labels are added up when they are shown. What has no labels has a value in any case. */
export function valuesOf(labels: readonly string[], readings: Iterable<Reading>): Series['values'] {
  const values = Array.from(readings, ([value, ...own]) => ({ value, labels: labelled(labels, own) }));
  return values.length === 0 && labels.length === 0 ? [{ value: 0, labels: {} }] : values;
}

/** As the Prometheus format has them: each bucket counts those below it too. */
export function bucketsOf(
  name: string,
  names: readonly string[],
  family: Family<Distribution>,
): Series['values'] {
  return family.all().flatMap(({ labels: own, series: { bounds, counts, sum } }) => {
    const labels = labelled(names, own);
    let value = 0;
    const buckets: Series['values'] = [...bounds, '+Inf'].map((le, index) => {
      value += counts[index] ?? 0;
      return { metricName: `${name}_bucket`, labels: { ...labels, le }, value };
    });
    return buckets.concat(
      { metricName: `${name}_sum`, labels, value: sum },
      { metricName: `${name}_count`, labels, value },
    );
  });
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
