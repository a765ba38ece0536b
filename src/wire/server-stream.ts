import type { Charged } from '../model/brand.ts';
import type { Account } from './accounts.ts';
import type { GrpcStatus } from './grpc-status.ts';
import type { PeerNames } from './peer.ts';

/** Who is at the other end of a connection. Shared by all its streams. */
export interface Peer extends PeerNames {
  /** What is done for this peer, and for all others of its identity or address, is charged to it. */
  readonly account: Account;
}

/** As in metrics, where the status does not say it. */
export type FaultReason = 'half_sent' | 'held_bytes';
/** Of a request that no handler sees, or whose answer is not read. */
export type RefusedReason = FaultReason | 'request_bytes' | 'stalled' | 'waiting';

/**
 * What a stream's owner is called for. Every stream ends with exactly one `closed`; nothing comes after it, and after the
 * owner's `end` nothing but it.
 */
export interface StreamHandler {
  /** One request message, without its gRPC prefix. The bytes are only valid during the call: the buffer is used again. */
  message(bytes: Charged): void;
  /** The client will send nothing more. */
  ended(): void;
  /** The client reads again: `write` may be called again. */
  drained(): void;
  /** The client has read a part of a large frame. `drained` follows when it has read all of it. */
  progressed?(): void;
  /** The transport ends the call with this: its messages are too large, not sent to their ends, or no gRPC. `closed` follows. */
  faulted?(status: GrpcStatus, why?: FaultReason): void;
  closed(): void;
}

/** One gRPC call at the server's side: the seam to the transport. */
export interface ServerStream {
  /** `/package.Service/Method`. */
  readonly path: string;
  readonly peer: Peer;
  /** How long nothing of it was read because its peer had to wait for its turn, in milliseconds. */
  readonly waitedMilliseconds: number;
  /** Of a request header (lower case); undefined when it was not sent. After `handle` only `VIA_HEADER` is remembered. */
  header(name: string): string | undefined;
  /** Must be called synchronously when the stream is accepted. */
  handle(handler: StreamHandler): void;
  /**
   * Writes bytes that are framed already (gRPC prefix included); they must not change afterwards. False: they were
   * taken, but nothing more should be written until `drained`.
   */
  write(frame: Buffer): boolean;
  /**
   * Stops and continues the reading of requests: HTTP/2 flow control holds the client back. No message is delivered
   * in between, also not the ones that have arrived.
   */
  pause(): void;
  resume(): void;
  /** Sends trailers and closes. Later calls do nothing. */
  end(status: GrpcStatus): void;
}
