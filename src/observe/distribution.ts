import { Histogram, type Registry } from 'prom-client';

type Samples = Awaited<ReturnType<Histogram['get']>>;

/** One series of a histogram. prom-client's own costs a lookup by labels for each value; here a value costs additions. */
export class Distribution {
  readonly #bounds: readonly number[];
  /** One longer than the bounds: the last one is what is above them all. */
  readonly #counts: number[];
  #sum = 0;

  constructor(bounds: readonly number[]) {
    this.#bounds = bounds;
    this.#counts = Array.from({ length: bounds.length + 1 }, () => 0);
  }

  observe(value: number): void {
    let index = 0;
    while (value > (this.#bounds[index] ?? value)) index += 1;
    this.#counts[index] = (this.#counts[index] ?? 0) + 1;
    this.#sum += value;
  }

  /** How many values each bucket has; the last one is what is above all bounds. */
  get counts(): readonly number[] {
    return this.#counts;
  }

  /** As the Prometheus format has them: each bucket counts those below it too. */
  samples(name: string, labels: Readonly<Record<string, string>>): Samples['values'] {
    const values: Samples['values'] = [];
    let count = 0;
    for (const [index, bound] of [...this.#bounds, '+Inf'].entries()) {
      count += this.#counts[index] ?? 0;
      values.push({ metricName: `${name}_bucket`, labels: { ...labels, le: bound }, value: count });
    }
    values.push({ metricName: `${name}_sum`, labels, value: this.#sum });
    values.push({ metricName: `${name}_count`, labels, value: count });
    return values;
  }
}

/** A histogram by its label values. Take a series once and keep it where the observing is hot. */
export class HistogramFamily<Label extends string> extends Histogram {
  readonly #name: string;
  readonly #bounds: readonly number[];
  readonly #labelNames: readonly Label[];
  readonly #series = new Map<string, { readonly values: readonly string[]; readonly series: Distribution }>();
  readonly #shape: Histogram;

  constructor(
    registry: Registry,
    name: string,
    help: string,
    labelNames: readonly Label[],
    bounds: readonly number[],
  ) {
    super({ name, help, labelNames: [...labelNames], buckets: [...bounds], registers: [registry] });
    this.#name = name;
    this.#bounds = bounds;
    this.#labelNames = labelNames;
    this.#shape = new Histogram({ name, help, buckets: [...bounds], registers: [] });
  }

  /** As many values as there are labels. The same object for the same values. */
  of(...values: readonly string[]): Distribution {
    const key = JSON.stringify(values);
    const known = this.#series.get(key);
    if (known !== undefined) return known.series;
    const series = new Distribution(this.#bounds);
    this.#series.set(key, { values, series });
    return series;
  }

  /** Of all series together, as `Distribution.counts`. */
  counts(): readonly number[] {
    const all = [...this.#series.values()].map(({ series }) => series.counts);
    const none = Array.from({ length: this.#bounds.length + 1 }, () => 0);
    return all.reduce((sum, counts) => sum.map((count, index) => count + (counts[index] ?? 0)), none);
  }

  override async get(): Promise<Samples> {
    const values = [...this.#series.values()].flatMap(({ values: given, series }) =>
      series.samples(
        this.#name,
        Object.fromEntries(this.#labelNames.map((name, index) => [name, given[index] ?? ''])),
      ),
    );
    return { ...(await this.#shape.get()), values };
  }

  /** A registry calls this where it exists; the inherited one would show empty buckets. */
  getForPromString(): Promise<Samples> {
    return this.get();
  }
}
