import type { ResourceName } from '../../model/brand.ts';
import type { Locator } from '../../wire/requests.ts';
import type { PreviousResponse } from './previous-response.ts';
import type { TypeState } from './stream-protocol.ts';
import type { SubscribedAgain } from './subscribed-again.ts';

/** One type on a SotW stream. */
export interface SotwState extends TypeState {
  /** The last response, where the next one can be compared with it. */
  previous: PreviousResponse | undefined;
  /** A full state was applied: the store has nothing from this holder but what this stream delivered. */
  storeSwept: boolean;
  /** Something was named on this stream: from then on an empty list subscribes to nothing (protocol §3.6). */
  hasNamed: boolean;
  names: readonly string[];
  locators: readonly Locator[];
  /**
   * The newest request that upstream has seen for certain: a response had something that only this request subscribed
   * to.
   */
  lastRequestSeen: number;
  /**
   * Something was unsubscribed on this stream. A resource may still come for it, so it does not prove which request
   * upstream has seen.
   */
  attributionAmbiguous: boolean;
  readonly subscribedAgain: SubscribedAgain;
  /** Names of which the last response said that a relay above does not know them yet (protocol §3.13). */
  unknownAbove: ReadonlySet<ResourceName>;
}

/** Absence deletes (protocol §3.7). */
export function isFull(state: SotwState): boolean {
  return state.info.fullState || state.holder.role === 'wildcard';
}
