import { Gauge, Histogram, type Registry } from 'prom-client';
import { type Tally, TallyFamily } from './tally.ts';

const states = ['IDLE', 'CANARY', 'HELD', 'FROZEN'] as const;
const results = ['released', 'held', 'discarded', 'timeout'] as const;

/** Seconds: from a change without anybody to protect to one that somebody had to repair. */
const durationBuckets = [1, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 14_400, 86_400];

/** What the metrics say of changes that go to canaries first. */
export class RolloutMetrics {
  readonly #state: Gauge;
  readonly #frozen: Gauge;
  readonly #results: TallyFamily<'result'>;
  readonly #duration: Histogram;

  constructor(registry: Registry) {
    const registers = [registry];
    this.#state = new Gauge({
      name: 'distributary_rollout_state',
      help: 'State of the rollout: 1 for the current state, 0 for the others',
      labelNames: ['state'],
      registers,
    });
    this.#frozen = new Gauge({
      name: 'distributary_frozen',
      help: 'Whether an operator has frozen something',
      registers,
    });
    this.#results = new TallyFamily(
      registry,
      'distributary_rollouts_total',
      'Changes that went to canaries first, by result',
      ['result'],
    );
    this.#duration = new Histogram({
      name: 'distributary_rollout_duration_seconds',
      help: 'How long changes waited until everybody got them',
      buckets: durationBuckets,
      registers,
    });
    this.state('IDLE');
    for (const result of results) this.ended(result);
  }

  state(now: (typeof states)[number]): void {
    for (const state of states) this.#state.set({ state }, state === now ? 1 : 0);
  }

  frozen(frozen: boolean): void {
    this.#frozen.set(frozen ? 1 : 0);
  }

  ended(result: (typeof results)[number]): Tally {
    return this.#results.labels(result);
  }

  duration(seconds: number): void {
    this.#duration.observe(seconds);
  }
}
