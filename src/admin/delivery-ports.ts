import type { TapMessage, WaitResponse } from '../gen/distributary/admin/v1/delivery_pb.ts';
import type { TypeUrl } from '../model/brand.ts';
import type { Result } from '../model/result.ts';
import type { GrpcStatus } from '../wire/grpc-status.ts';
import type { Awaitable, Plain } from './plain.ts';

export interface WaitQuery {
  /** Undefined: every type. */
  readonly type: TypeUrl | undefined;
  /** Empty: everything of the type. */
  readonly names: ReadonlySet<string>;
  /** Only what this revision changed; undefined: everything. */
  readonly revision: number | undefined;
  /** 0: the answer comes at once. */
  readonly timeoutMs: number;
  /** Upstreams may be out of date. */
  readonly allowStale: boolean;
  /** So many streams must subscribe. */
  readonly minClients: number;
}

export interface TapQuery {
  /** A stream's id; undefined: all streams. */
  readonly client: string | undefined;
  /** Undefined: every type. */
  readonly type: TypeUrl | undefined;
}

/** What clients are sent, and what they make of it. */
export interface Delivery {
  /** Answers when all have accepted it, at the timeout, or when `signal` aborts. NOT_FOUND: there is no such revision. */
  wait(query: WaitQuery, signal: AbortSignal): Awaitable<Result<Plain<WaitResponse>, GrpcStatus>>;
  /** Until `signal` aborts. NOT_FOUND: there is no such client; RESOURCE_EXHAUSTED: too many read along. */
  tap(query: TapQuery, signal: AbortSignal): Result<AsyncIterable<Plain<TapMessage>>, GrpcStatus>;
}
