import { Gauge, type Registry } from 'prom-client';

/** What is true of the relay as a whole, whatever its number of processes. */
export interface RelayFacts {
  readonly ready: boolean;
  /** Removals that are held back (max_removal_percent), by upstream. */
  readonly heldRemovals: ReadonlyMap<string, number>;
  /** Names of which an operator has discarded what upstream says. */
  readonly discarded: number;
  /** The bounds of the configuration in force by their keys: counts, bytes and seconds. */
  readonly limits: ReadonlyMap<string, number>;
  /** What clients ask for and do not get, by the type's label: subscriptions, and of them those that others could have. */
  readonly missing: ReadonlyMap<string, { readonly all: number; readonly elsewhere: number }>;
  /** Milliseconds since the epoch: when the configuration in force was read. */
  readonly configuredAt: number;
  /** False: the last new version of it was refused. */
  readonly isConfigured: boolean;
}

/** Of a relay that has nothing yet: for the reference of the metrics. */
export const NO_FACTS: RelayFacts = {
  ready: true,
  heldRemovals: new Map(),
  discarded: 0,
  limits: new Map(),
  missing: new Map(),
  configuredAt: 0,
  isConfigured: true,
};

/** Gauges of the relay as a whole; their values are gathered when metrics are asked for. */
export class RelayGauges {
  readonly #facts: () => RelayFacts | Promise<RelayFacts>;
  readonly #ready: Gauge;
  readonly #held: Gauge;
  readonly #discarded: Gauge;
  readonly #limits: Gauge;
  readonly #configured: Gauge;
  readonly #isConfigured: Gauge;
  readonly #missing: Gauge;
  readonly #unmatched: Gauge;

  /** `version`: the product's. */
  constructor(registry: Registry, version: string, facts: () => RelayFacts | Promise<RelayFacts>) {
    this.#facts = facts;
    const gauge = (name: string, help: string, labelNames: readonly string[] = []): Gauge =>
      new Gauge({ name: `distributary_${name}`, help, labelNames: [...labelNames], registers: [registry] });
    gauge('build_info', '1; the versions of the relay and of Node.js', ['version', 'node']).set(
      { version, node: process.version },
      1,
    );
    this.#ready = gauge('ready', '1 while /ready answers 200, else 0');
    this.#held = gauge(
      'held_removals',
      'Removals of an upstream that are held back because they are too many at once (max_removal_percent)',
      ['upstream'],
    );
    this.#discarded = gauge(
      'discarded_names',
      'Names of which nobody gets what their upstream says, because an operator has discarded it',
    );
    this.#limits = gauge('limit', 'Limits of the configuration in force, by key: counts, bytes and seconds', [
      'name',
    ]);
    this.#configured = gauge(
      'config_last_reload_timestamp_seconds',
      'When the configuration in force was read, in seconds since the epoch',
    );
    this.#isConfigured = gauge(
      'config_last_reload_successful',
      '1 while the configuration in force is the last one that was read, 0 after a new version was refused',
    );
    this.#missing = gauge(
      'missing_subscriptions',
      'Subscriptions of clients to what does not exist for them: asked for, and known to be absent',
      ['type'],
    );
    this.#unmatched = gauge(
      'unmatched_subscriptions',
      'Of distributary_missing_subscriptions, those to what exists for other clients',
      ['type'],
    );
  }

  async show(): Promise<void> {
    const { ready, heldRemovals, discarded, limits, configuredAt, isConfigured, missing } =
      await this.#facts();
    this.#ready.set(ready ? 1 : 0);
    this.#discarded.set(discarded);
    this.#configured.set(configuredAt / 1000);
    this.#isConfigured.set(isConfigured ? 1 : 0);
    for (const gauge of [this.#held, this.#limits, this.#missing, this.#unmatched]) gauge.reset();
    for (const [type, { all, elsewhere }] of missing) {
      this.#missing.set({ type }, all);
      this.#unmatched.set({ type }, elsewhere);
    }
    for (const [upstream, count] of heldRemovals) this.#held.set({ upstream }, count);
    for (const [name, value] of limits) this.#limits.set({ name }, value);
  }
}
