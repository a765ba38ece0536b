import type { Selection } from '../model/selection.ts';
import type { Holding, ShownState } from '../model/subscription.ts';
import type { TypeInfo } from '../model/types.ts';
import type { Peer } from '../wire/server-stream.ts';
import type { ClientContext } from './services.ts';

/** One type of a client, for inspection. */
export interface ListedType {
  readonly info: TypeInfo;
  readonly selection: Selection;
  /** Undefined: before the first request. */
  readonly subscription:
    | {
        readonly responses: ShownState;
        holdings(): Iterable<Holding>;
      }
    | undefined;
  /** Of a client that polls: when it did so last, in milliseconds since the epoch. */
  readonly polledAt?: number;
}

/** A client, for inspection: a stream, or one that polls. */
export interface ListedClient {
  readonly id: string;
  readonly route: { readonly protocol: string; readonly service: string };
  readonly transport: { readonly peer: Pick<Peer, 'address'> };
  /** Undefined: it has not said yet who it is. */
  readonly client: ClientContext | undefined;
  readonly types: readonly ListedType[];
}
