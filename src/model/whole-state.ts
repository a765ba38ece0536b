import type { Access } from './access.ts';
import type { TypeUrl } from './brand.ts';
import type { Selection } from './selection.ts';
import type { Encoding, Holding, ItemState, MissingEntry, Response, Subscriber } from './subscription.ts';

/** What one class of polling clients sees. Unlike a `Subscription`, each answer holds all of it (protocol §7.3). */
export interface WholeState {
  readonly selection: Selection;
  /** Everything that it subscribes to is present or absent. */
  readonly resolved: boolean;
  /** Everything that it subscribes to is unknown. */
  readonly allUnknown: boolean;
  /** A response deletes what is missing from it (protocol §3.7). */
  readonly complete: boolean;
  /** Every wildcard and glob is answered. */
  readonly collectionsResolved: boolean;
  /** `<upstream's>@<hash of the view>`: equal versions, equal content. */
  readonly version: string;
  /** For inspection: what somebody has who was answered with this version, and what it said to that. */
  holdings(said: ItemState, version: string): Iterable<Holding>;
  /** As of a `Subscription`. */
  readonly missing: readonly MissingEntry[];
  /** Everything that is known now. Where it is kept, the same object until something changes. */
  take(): Response;
  /** It is read on several connections: its response is kept until something changes. Else it is made each time. */
  keep(): void;
  /** Others read it too: nobody pays for it alone. */
  share(): void;
  close(): void;
}

export interface StateReader extends Subscriber {
  /** So many bytes more (or fewer) are kept for what it reads. */
  readonly kept: (bytes: number) => void;
}

export type OpenWholeState = (
  type: TypeUrl,
  encoding: Encoding,
  selection: Selection,
  access: Access,
  reader: StateReader,
) => WholeState;
