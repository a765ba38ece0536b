import { itsOwn, type LoadOrigin } from '../../src/model/load.ts';
import {
  addTo,
  compareTraffic,
  noRequests,
  reported,
  type Tally,
  type TrafficSettings,
} from '../../src/releases/traffic.ts';
import { Random } from './random.ts';

const intervalSeconds = 10;
/** That count in a bake of a minute. */
const looks = 5;
/** Before the change. */
const reportsBefore = 20;

/** How errors come: `alike` at all clients and times; `differing`: each client has a rate of its own; `bursts`: each report. */
export type Errors = 'alike' | 'differing' | 'bursts';

export interface FleetSettings {
  /** Of all requests, so many fail. */
  readonly base: number;
  /** Requests of clients that have the change, within the bake, and of the others. */
  readonly canary: number;
  readonly released: number;
  /** That have the change. The others are as many for as many requests. */
  readonly clients: number;
  readonly errors: Errors;
  /** Of rates that are not the same: their standard deviation is 1 / sqrt(this) of the mean. */
  readonly shape: number;
}

interface Client {
  readonly requests: number;
  readonly rate: number;
  readonly usual: Tally;
  readonly counted: Tally;
  readonly origin: LoadOrigin;
}

/** Clients of one class, as they report their traffic in a bake of a minute. */
class TrafficFleet {
  readonly #random: Random;
  readonly #settings: FleetSettings;
  readonly #canaries: readonly Client[];
  readonly #others: readonly Client[];

  constructor(seed: number, settings: FleetSettings) {
    this.#random = new Random(seed);
    this.#settings = settings;
    const { canary, released, clients } = settings;
    this.#canaries = this.#clients(clients, canary);
    this.#others = this.#clients(Math.max(1, Math.round((clients * released) / canary)), released);
    for (let report = 0; report < reportsBefore; report++)
      for (const one of [...this.#canaries, ...this.#others]) addTo(one.usual, this.#report(one, 0), 1);
  }

  /** With so many more requests that fail where the change is. It is asked after each report. */
  isFoundBad(rise: number, bounds: Omit<TrafficSettings, 'intervalMs'>): boolean {
    for (let look = 0; look < looks; look++) {
      for (const one of this.#canaries) addTo(one.counted, this.#report(one, rise), 1);
      for (const one of this.#others) {
        const said = this.#report(one, 0);
        addTo(one.counted, said, 1);
        addTo(one.usual, said, 1);
      }
      const { state } = compareTraffic({ canaries: this.#canaries, others: this.#others }, bounds, 1);
      if (state === 'BAD') return true;
    }
    return false;
  }

  #clients(count: number, requests: number): readonly Client[] {
    const { base, errors, shape } = this.#settings;
    return Array.from({ length: count }, () => ({
      requests: requests / looks / count,
      rate: base * (errors === 'differing' ? this.#gamma(shape) : 1),
      usual: noRequests(),
      counted: noRequests(),
      origin: itsOwn,
    }));
  }

  #report({ requests, rate }: Client, rise: number): Tally {
    const { errors, shape } = this.#settings;
    const count = this.#random.poisson(requests);
    const now = Math.min(1, rate * (errors === 'bursts' ? this.#gamma(shape) : 1) + rise);
    return reported(count, this.#binomial(count, now), intervalSeconds);
  }

  /** Its mean is 1. */
  #gamma(shape: number): number {
    let sum = 0;
    for (let at = 0; at < shape; at++) sum -= Math.log(1 - this.#random.next());
    return sum / shape;
  }

  #binomial(count: number, rate: number): number {
    const mean = count * rate;
    if (mean > 20 && count - mean > 20)
      return Math.round(mean + Math.sqrt(mean * (1 - rate)) * this.#random.normal());
    let hits = 0;
    for (let at = 0; at < count; at++) if (this.#random.next() < rate) hits++;
    return hits;
  }
}

/** Of so many fleets, those with the seeds from 0 on: the part in which such a change is found bad. */
export function partFoundBad(
  fleets: number,
  settings: FleetSettings,
  rise: number,
  maxErrorIncrease: number,
): number {
  const bounds = { maxErrorIncrease, maxRequestDrop: 100, minRequests: 100 };
  let found = 0;
  for (let seed = 0; seed < fleets; seed++)
    if (new TrafficFleet(seed * 7919, settings).isFoundBad(rise, bounds)) found++;
  return found / fleets;
}
