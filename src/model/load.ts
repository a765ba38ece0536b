import type { Parameters } from './parameters.ts';

/** The gRPC method of load reports (LRS). */
export const LOAD_PATH = '/envoy.service.load_stats.v3.LoadReportingService/StreamLoadStats';

/** What became of requests: as metrics count what clients report. */
export const loadOutcomes = ['success', 'error', 'dropped'] as const;
export type LoadOutcome = (typeof loadOutcomes)[number];

/** What a client's report says of requests, over all clusters that it names. */
export type LoadTotals = Readonly<Record<LoadOutcome | 'clusters', number>>;

/** Whose reports a client passes on: its own, or those of clients of its own, if it is a relay. */
export interface LoadOrigin {
  /**
   * How often they were added up on their way. With each time they are as much older as an interval: so many more reports
   * after a change are in part about the time before it. 0: they are its own.
   */
  readonly stages: number;
  /** Something waits there that it has accepted: not all of its clients have it. */
  readonly isPartial: boolean;
}

/** A client that is no relay. */
export const itsOwn: LoadOrigin = { stages: 0, isPartial: false };

/** What a client has reported of its traffic. */
export interface ReportedTraffic {
  /** Its stream of reports: an id that no other one has. */
  readonly stream: string;
  /** As rollouts know it: its node, with the identity that its certificate vouches for. */
  readonly node: string;
  readonly classKey: string;
  /** Of its class, for people: `env=prod`. */
  readonly classLabel: string;
  readonly origin: LoadOrigin;
  /** Successes and errors. */
  readonly requests: number;
  readonly errors: number;
  /** Since its last report. */
  readonly milliseconds: number;
}

/** A session of an upstream, to whose control plane clients report their load. */
export interface LoadTarget {
  /** The upstream's configured name. */
  readonly upstream: string;
  /** What decides the session. */
  readonly parameters: Parameters;
}

/** What the owner of a `LoadStream` is called for. */
export interface LoadStreamHandler {
  /** Of what is reported now. */
  origin(): LoadOrigin;
  /** A LoadStatsResponse: from now on reports are taken, until `down`. The bytes are this handler's own. */
  asked(response: Buffer): void;
  /** The stream has ended, and another one is opened in time. What `report` has not taken so far is not taken. */
  down(): void;
}

/** A stream of LRS to a control plane, opened again for as long as it is wanted. */
export interface LoadStream {
  /** A LoadStatsRequest. `taken`: it was handed over whole, on a stream that was still open then. */
  report(bytes: Uint8Array, taken: () => void): void;
  /** Nothing more comes. Resolves when what was reported is taken, or will not be. */
  finish(): Promise<void>;
}

/** Where such streams are opened. */
export interface LoadUpstream {
  openLoadStream(target: LoadTarget, handler: LoadStreamHandler): LoadStream;
}
