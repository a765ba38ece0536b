import { Counter, type Registry } from 'prom-client';

/** One series of a counter. Counting is an addition: prom-client sees the number when it is asked for the metrics. */
export class Tally {
  #value = 0;

  inc(by = 1): void {
    this.#value += by;
  }

  get value(): number {
    return this.#value;
  }
}

/** A counter by its label values. Take a series once and keep it where the counting is hot. */
export class TallyFamily<Label extends string> {
  readonly #labelNames: readonly Label[];
  readonly #series = new Map<string, { readonly values: readonly string[]; readonly tally: Tally }>();

  constructor(registry: Registry, name: string, help: string, labelNames: readonly Label[]) {
    this.#labelNames = labelNames;
    const copy = (counter: Counter): void => this.#copyTo(counter);
    const collect = function (this: Counter): void {
      copy(this);
    };
    registry.registerMetric(new Counter({ name, help, labelNames, registers: [], collect }));
  }

  /** As many values as there are labels. The same object for the same values. */
  labels(...values: readonly string[]): Tally {
    const key = JSON.stringify(values);
    const known = this.#series.get(key);
    if (known !== undefined) return known.tally;
    const tally = new Tally();
    this.#series.set(key, { values, tally });
    return tally;
  }

  /** Of all series. */
  get total(): number {
    let total = 0;
    for (const { tally } of this.#series.values()) total += tally.value;
    return total;
  }

  /** Those that have counted something. */
  counted(): readonly (readonly [values: readonly string[], count: number])[] {
    return [...this.#series.values()].flatMap(({ values, tally }) =>
      tally.value === 0 ? [] : [[values, tally.value] as const],
    );
  }

  #copyTo(counter: Counter): void {
    counter.reset();
    for (const { values, tally } of this.#series.values()) {
      const labels = Object.fromEntries(this.#labelNames.map((name, index) => [name, values[index] ?? '']));
      counter.inc(labels, tally.value);
    }
  }
}
