import type { Interest } from '../model/transaction.ts';
import type { RelayOptions } from '../relay.ts';
import type { Load } from './admission.ts';
import type { RolloutRole } from './relay-rollout.ts';

/** The role of this process: the only one, the primary of workers, or a worker. */
export interface ProcessRole {
  /** The beginning of stream ids, so that those of several processes differ. */
  readonly streamPrefix: string;
  /** What clients have open in other processes of this relay. */
  readonly loadElsewhere: () => Load;
  /** The number of streams or connections of this process has changed. */
  readonly loadChanged: () => void;
  /** See DownstreamServices; undefined: by the relay's own upstreams. */
  readonly isUnavailable: RelayOptions['isUnavailable'];
  readonly refusal: RelayOptions['refusal'];
  /** The relay's id in `x-distributary-via`; undefined: a new one. */
  readonly relayId: string | undefined;
  /** The primary reports ambiguous matches, so this process does not. */
  readonly ambiguityReportedElsewhere: boolean;
  /** The first client subscribed to this. */
  readonly subscribed: (interest: Interest) => void;
  /** Which clients a rollout is about; undefined: those of this process. */
  readonly rollout: RolloutRole | undefined;
  /** See RelayOptions. */
  readonly isServed: RelayOptions['isServed'];
  readonly upstreamPerSide: boolean;
}

/** A relay of one process. */
export const SINGLE_PROCESS: ProcessRole = {
  streamPrefix: '',
  loadElsewhere: () => ({ streams: 0, connections: 0 }),
  loadChanged: () => {},
  isUnavailable: undefined,
  refusal: undefined,
  relayId: undefined,
  ambiguityReportedElsewhere: false,
  subscribed: () => {},
  rollout: undefined,
  isServed: undefined,
  upstreamPerSide: false,
};
