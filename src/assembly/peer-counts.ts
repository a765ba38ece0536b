import { peerKey } from '../wire/peer-identity.ts';
import type { Peer } from '../wire/server-stream.ts';

/**
 * Counts something for each peer. It counts only while a limit is set, because the key of a peer costs a system call.
 */
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
