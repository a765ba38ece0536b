import type { Clock } from '../../model/clock.ts';
import type { UpdateMetrics } from '../../model/upstream.ts';
import type { Log } from '../../observe/log.ts';
import type { Address } from '../../wire/address.ts';
import type { Code } from '../../wire/grpc-status.ts';
import type { ClaimOptions } from '../claims.ts';
import type { Transport } from './channel.ts';
import type { AdsTls, StreamHeaders } from './grpc-channel.ts';
import type { RelayNode, SessionRule } from './node.ts';
import type { Services } from './suspicion.ts';

/** What is counted (docs/operations.md, metrics); what is left out is not. */
interface AdsMetrics extends UpdateMetrics {
  reconnect?(): void;
  /** A stream ended, and not because the relay closed it. */
  streamEnd?(code: Code): void;
  /** A subscription was refused, because max_upstream_sessions are open. */
  refused?(): void;
}

/** Times are milliseconds. */
export interface AdsUpstreamOptions extends StreamHeaders {
  readonly name: string;
  readonly claims: ClaimOptions;
  /** In order of preference; at least one. */
  readonly endpoints: readonly Address[];
  readonly protocol: 'DELTA' | 'SOTW';
  /** Undefined: AGGREGATED. */
  readonly services?: Services;
  readonly variants: 'PER_PARAMETERS' | 'NATIVE';
  /** NATIVE, and a relay of ours answers: see `SessionPerParameters`. */
  readonly sessionPerParameters?: boolean;
  /** How an endpoint is reached; undefined: by gRPC, with `tls`, `connectTimeoutMs` and `keepalive`. */
  readonly transport?: Transport | undefined;
  /** Undefined: plaintext. */
  readonly tls: AdsTls | undefined;
  readonly connectTimeoutMs: number;
  /** limits.max_response_bytes; undefined: 64 MiB. */
  readonly maxResponseBytes?: number;
  /** Protocol §3.9. An endpoint that answers nothing at all for so long has failed. */
  readonly resourceTimeoutMs: number;
  readonly keepalive: { readonly timeMs: number; readonly timeoutMs: number };
  readonly backoff: { readonly initialMs: number; readonly maxMs: number };
  /** How long a preferred endpoint must hold a connection before the sessions go back to it. */
  readonly failbackAfterMs: number;
  /** For PER_PARAMETERS; none: one session, nothing is stamped. */
  readonly rules: readonly SessionRule[];
  /** Who the relay is to the control plane. */
  readonly node: RelayNode;
  /** The product's, for the node's user_agent_version. */
  readonly version: string;
  /** `x-distributary-via`, asked for each new stream: this relay's id and those that it passes on. */
  readonly via: () => string;
  readonly maxConstraintDepth: number;
  /** How many entries of a response are read in one turn of the event loop; undefined: 1000. */
  readonly entriesPerTurn?: number;
  /** limits.max_upstream_sessions. */
  readonly maxSessions: number;
  readonly clock: Clock;
  /** 0 ≤ x < 1, for jitter. */
  readonly random: () => number;
  /** With the upstream's name in each line. */
  readonly log: Log;
  readonly metrics: AdsMetrics;
}
