import { AggregatorRegistry, type Registry } from 'prom-client';
import { z } from 'zod';

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
function aggregatorOf({ name }: Series): 'min' | 'sum' {
  return name.endsWith('_timestamp_seconds') || name.endsWith('_successful') ? 'min' : 'sum';
}

function summed(lists: readonly (readonly Series[])[]): Registry {
  return AggregatorRegistry.aggregate(
    lists.map((list) => list.map((series) => ({ ...series, aggregator: aggregatorOf(series) }))),
  );
}
