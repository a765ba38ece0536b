import { LRUCache } from 'lru-cache';
import type { Clock } from '../../model/clock.ts';
import { peerKey } from '../../wire/peer-identity.ts';
import type { Peer } from '../../wire/server-stream.ts';
import { Rate } from '../rate.ts';

/** More peers than that do not poll for the first time within seconds. */
const maxPeers = 10_000;

/** How often peers change what they poll: a poll has no stream whose reading could pause, so too many are refused. */
export class PeerRates {
  readonly #clock: Clock;
  readonly #perSecond: () => number;
  readonly #rates = new LRUCache<string, Rate>({ max: maxPeers });

  constructor(clock: Clock, perSecond: () => number) {
    this.#clock = clock;
    this.#perSecond = perSecond;
  }

  /** False: it is too much now. Nothing is spent then. */
  spend(peer: Peer, cost: number): boolean {
    const now = this.#clock.now();
    const key = peerKey(peer);
    const rate = this.#rates.get(key) ?? new Rate(this.#perSecond(), now);
    this.#rates.set(key, rate);
    return rate.trySpend(now, cost);
  }

  /** The configuration may have another rate; a bucket is full again after a second. */
  forget(): void {
    this.#rates.clear();
  }
}
