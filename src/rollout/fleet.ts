import type { ResourceName, TypeUrl } from '../model/brand.ts';
import type { Member } from './election.ts';

/** The names that wait and that canaries see, by type. */
export type Waiting = ReadonlyMap<TypeUrl, ReadonlySet<ResourceName>>;

/** What the stream of a canary says to what waits. */
export type Standing =
  | { readonly kind: 'accepted' }
  | { readonly kind: 'waiting' }
  /** `reason`: which resource, and the client's words. */
  | { readonly kind: 'rejected'; readonly reason: string };

export interface Survey {
  /** The nodes that subscribe to something of it. */
  readonly members: readonly Member[];
  /** Each stream of a canary that subscribes to something of it. */
  readonly canaries: readonly Standing[];
}

/** The clients, as a rollout sees them. */
export interface Fleet {
  survey(waiting: Waiting): Survey;
  /** Something else waits now: what was remembered of subscriptions does not hold any more. */
  waitingChanged(): void;
  /** These nodes are on another side now. */
  moved(nodeIds: ReadonlySet<string>): void;
}
