import type { Access } from './access.ts';
import type { TypeUrl } from './brand.ts';
import type { Selection } from './selection.ts';
import type { Encoding, Response, Subscriber } from './subscription.ts';

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
  /** Everything that is known now. Pollers of one class get the same object until something changes. */
  take(): Response;
  /** Others read it too: nobody pays for it alone. */
  share(): void;
  close(): void;
}

export type OpenWholeState = (
  type: TypeUrl,
  encoding: Encoding,
  selection: Selection,
  access: Access,
  subscriber: Subscriber,
) => WholeState;
