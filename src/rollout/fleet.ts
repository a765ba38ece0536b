import type { ResourceName, TypeUrl } from '../model/brand.ts';
import type { Member } from './canaries.ts';

/** The names that wait and that canaries see, by type. */
export type Waiting = ReadonlyMap<TypeUrl, ReadonlySet<ResourceName>>;

/** What the stream of a canary says to what waits. */
export type Standing =
  | { readonly kind: 'accepted' }
  | { readonly kind: 'waiting' }
  | {
      readonly kind: 'rejected';
      /** Which resource, and the client's words. */
      readonly reason: string;
      /** Of what waits, by `nameKey`: any of these may be at fault. */
      readonly names: ReadonlySet<string>;
      /** It has been sent all that waits. If not, it may reject what upstream has mended since. */
      readonly isFinal: boolean;
    };

/** The stream of a canary that subscribes to something that waits. */
export interface CanaryStream {
  /** Its id. */
  readonly stream: string;
  /** Its node, with the identity that its certificate vouches for. */
  readonly node: string;
  readonly classKey: string;
  readonly standing: Standing;
  /** What it subscribes to of it, by `nameKey`: streams with equal subscriptions share the sets. */
  readonly names: readonly ReadonlySet<string>[];
}

/** Who a client is. */
export type Moved = Pick<Member, 'nodeId' | 'classKey'>;

export interface Survey {
  /** False: some of the clients have not been asked yet. */
  readonly complete: boolean;
  /** The nodes that subscribe to something of it. */
  readonly members: readonly Member[];
  readonly canaries: readonly CanaryStream[];
}

/** There may be canaries, of which nothing is known yet. */
export const unknownCanary: CanaryStream = {
  stream: '',
  node: '',
  classKey: '',
  standing: { kind: 'waiting' },
  names: [],
};

/** Who rejected something is still there, and may say something else to what waits now. */
export function outdated(stream: CanaryStream): CanaryStream {
  const { standing } = stream;
  return {
    ...stream,
    standing: standing.kind === 'rejected' ? { ...standing, isFinal: false } : { kind: 'waiting' },
  };
}

/** The clients, as a rollout sees them. */
export interface Fleet {
  survey(waiting: Waiting): Survey;
  /** Something else waits now: what was remembered of subscriptions does not hold any more. */
  waitingChanged(): void;
  /** Other nodes are canaries now: these clients may be on another side. */
  moved(isMoved: (client: Moved) => boolean): void;
}
