import type { SelectionEntry } from '../model/selection.ts';
import { Selection } from '../model/selection.ts';

/** What a SotW request is, by its nonce (protocol §3.2–3.4). */
export type SotwKind = 'first' | 'ack' | 'nack' | 'change' | 'stale';

/** The SotW conversation of one type on one stream. Pure: no I/O, no clock. */
export class SotwConversation {
  #lastNonce: string | undefined;
  #acceptedNonce: string | undefined;
  #rejected = false;
  #named = false;

  /** A response was sent. */
  sent(nonce: string): void {
    this.#lastNonce = nonce;
    this.#rejected = false;
  }

  /**
   * The current nonce is the last one sent; after a NACK of it the last accepted one is current too, because Envoy's
   * unified mux changes its subscription with that one (§3.3). Before anything was sent any nonce will do: old Envoys
   * leaked the last stream's (§3.2).
   */
  classify(nonce: string, hasError: boolean): SotwKind {
    if (this.#lastNonce === undefined) return 'first';
    if (nonce === this.#lastNonce) {
      this.#rejected = hasError;
      if (hasError) return 'nack';
      this.#acceptedNonce = nonce;
      return 'ack';
    }
    // A client that has accepted nothing yet names no nonce.
    return this.#rejected && nonce === (this.#acceptedNonce ?? '') ? 'change' : 'stale';
  }

  get hasNamed(): boolean {
    return this.#named;
  }

  /** A request named something. */
  named(): void {
    this.#named = true;
  }

  /**
   * What the client subscribes to from now on, given the selected names and locators of its request. Nothing named yet
   * means everything, for types that have a legacy wildcard; after any explicit name it means nothing (§3.6).
   */
  selection(selected: readonly SelectionEntry[], wildcard: SelectionEntry | undefined): Selection {
    if (selected.length > 0) this.#named = true;
    else if (!this.#named && wildcard !== undefined) return Selection.of([wildcard]);
    return Selection.of(selected);
  }
}
