import { peerKey } from '../wire/peer-identity.ts';
import type { Peer } from '../wire/server-stream.ts';

/** How many each peer has of something. Nothing is counted while nothing bounds it: a key costs a system call. */
export class PeerCounts {
  #counts: Map<string, number> | undefined;

  /** Counts from now on; `peers` are those that have one already, once for each. */
  begin(peers: Iterable<Peer>): void {
    if (this.#counts !== undefined) return;
    this.#counts = new Map();
    for (const peer of peers) this.add(peer);
  }

  stop(): void {
    this.#counts = undefined;
  }

  of(peer: Peer): number {
    return this.#counts?.get(peerKey(peer)) ?? 0;
  }

  add(peer: Peer): void {
    if (this.#counts === undefined) return;
    const key = peerKey(peer);
    this.#counts.set(key, (this.#counts.get(key) ?? 0) + 1);
  }

  remove(peer: Peer): void {
    if (this.#counts === undefined) return;
    const key = peerKey(peer);
    const left = (this.#counts.get(key) ?? 0) - 1;
    if (left > 0) this.#counts.set(key, left);
    else this.#counts.delete(key);
  }
}
