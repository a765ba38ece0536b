import { Histogram, type Registry } from 'prom-client';

type Samples = Awaited<ReturnType<Histogram['get']>>;

/**
 * A histogram without labels that takes one value many times at once: a frame that goes to a thousand streams is one
 * observation of weight 1,000. prom-client's own counts one at a time, so only its shape is used.
 */
export class WeightedHistogram extends Histogram {
  readonly #name: string;
  readonly #bounds: readonly number[];
  /** One longer than the bounds: the last one is what is above them all. */
  readonly #counts: number[];
  readonly #shape: Histogram;
  #sum = 0;

  constructor(registry: Registry, name: string, help: string, bounds: readonly number[]) {
    super({ name, help, buckets: [...bounds], registers: [registry] });
    this.#name = name;
    this.#bounds = bounds;
    this.#counts = Array.from({ length: bounds.length + 1 }, () => 0);
    this.#shape = new Histogram({ name, help, buckets: [...bounds], registers: [] });
  }

  observeMany(value: number, weight: number): void {
    let index = 0;
    for (const bound of this.#bounds) {
      if (value <= bound) break;
      index += 1;
    }
    this.#counts[index] = (this.#counts[index] ?? 0) + weight;
    this.#sum += value * weight;
  }

  override async get(): Promise<Samples> {
    const values: Samples['values'] = [];
    let count = 0;
    for (const [index, bound] of [...this.#bounds, '+Inf'].entries()) {
      count += this.#counts[index] ?? 0;
      values.push({ metricName: `${this.#name}_bucket`, labels: { le: bound }, value: count });
    }
    values.push({ metricName: `${this.#name}_sum`, labels: {}, value: this.#sum });
    values.push({ metricName: `${this.#name}_count`, labels: {}, value: count });
    return { ...(await this.#shape.get()), values };
  }

  /** A registry calls this where it exists; the inherited one would show empty buckets. */
  getForPromString(): Promise<Samples> {
    return this.get();
  }
}
