import type { Variant } from '../model/resource.ts';
import type { Batch, Encoding, Response } from '../model/subscription.ts';
import type { Item } from './item.ts';

/** What a response tells of, for those that reject it. */
export interface Told {
  /** As new. */
  readonly news: readonly Kept[];
  /** As gone, or as another variant than before: what it was. Delta only. */
  readonly lost: readonly Kept[];
}

/** A response as the views keep it. */
export interface Frame extends Response {
  readonly told: Told;
  /** Holds times that pass: not to be given to others later. */
  readonly fleeting: boolean;
}

/** What a cursor's way to the head comes to. */
export interface Composed {
  /** Undefined: there is nothing to say. */
  readonly frame: Frame | undefined;
  /** Removals kept back: what the taker still holds and must lose later (protocol §8, Order). */
  readonly kept: ReadonlyMap<string, Kept> | undefined;
}

/** A way to a view's head. Who takes the same way gets the same response. */
export interface Step {
  /** The revision where it begins; -1: from nothing. */
  readonly from: number;
  readonly owed: Batch | undefined;
  readonly keepRemoved: boolean;
  readonly first: boolean;
  readonly encoding: Encoding;
}

/** A resource that a client still has though the view shows it no longer. */
export interface Kept {
  readonly item: Item;
  readonly variant: Variant;
  /** Its removal waits, and what is said of why with it: the revision up to which the client was told of that. */
  readonly told?: number;
}
