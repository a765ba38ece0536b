import { Counter, Gauge, Histogram, type Registry } from 'prom-client';
import { z } from 'zod';

/** A metric without its values. */
export interface MetricDescription {
  readonly name: string;
  readonly kind: 'counter' | 'gauge' | 'histogram' | 'summary';
  readonly help: string;
  readonly labels: readonly string[];
}

/** What a registry tells of each metric; prom-client's types leave the labels out. */
const described = z.object({
  name: z.string(),
  help: z.string(),
  labelNames: z.array(z.string()).default([]),
});

export function descriptions(registry: Registry): readonly MetricDescription[] {
  return registry.getMetricsAsArray().map((metric) => {
    const { name, help, labelNames } = described.parse(metric);
    return { name, kind: kindOf(metric), help, labels: labelNames };
  });
}

function kindOf(metric: object): MetricDescription['kind'] {
  if (metric instanceof Counter) return 'counter';
  if (metric instanceof Gauge) return 'gauge';
  return metric instanceof Histogram ? 'histogram' : 'summary';
}
