import type {
  DiffResponseSchema,
  HistoryResponseSchema,
  RollbackResponse,
} from '../gen/distributary/admin/v1/changes_pb.ts';
import type { TypeUrl } from '../model/brand.ts';
import type { Change } from '../model/change.ts';
import type { Parameters } from '../model/parameters.ts';
import type { Result } from '../model/result.ts';
import type { GrpcStatus } from '../wire/grpc-status.ts';
import type { Long } from './answers.ts';
import type { Awaitable, Plain } from './plain.ts';

export interface HistoryQuery {
  /** Undefined: every type. */
  readonly type: TypeUrl | undefined;
  /** Empty: every name. */
  readonly name: string;
  readonly limit: number;
  /** Only changes before this revision; 0: all. */
  readonly before?: number;
}

/** One side of a comparison. */
export type DiffSideQuery =
  | { readonly kind: 'revision'; readonly revision: number }
  | { readonly kind: 'released' }
  | { readonly kind: 'pending' }
  /** A stream's id. */
  | { readonly kind: 'client'; readonly client: string }
  | { readonly kind: 'parameters'; readonly parameters: Parameters };

export interface DiffQuery {
  readonly from: DiffSideQuery;
  readonly to: DiffSideQuery;
  /** Undefined: every type. */
  readonly type: TypeUrl | undefined;
  /** Empty: every name, and no fields. */
  readonly name: string;
  /** So many differences are left out. */
  readonly offset: number;
}

export interface RollbackQuery {
  /** A revision. */
  readonly to: number;
  readonly reason: string;
  /** Undefined: every upstream. */
  readonly upstream: string | undefined;
  /** Undefined: every gated type. */
  readonly type: TypeUrl | undefined;
  /** Who. */
  readonly operator: string;
}

/** What has changed. */
export interface Changes {
  history(query: HistoryQuery): Long<typeof HistoryResponseSchema>;
  /** Of the newest change; 0: there was none yet. */
  readonly revision: number;
  /** NOT_FOUND: no such revision; FAILED_PRECONDITION: it was discarded. */
  change(revision: number): Result<Change, GrpcStatus>;
  /** NOT_FOUND: no such revision or client; FAILED_PRECONDITION: its bodies are not kept; INVALID_ARGUMENT. */
  diff(query: DiffQuery): Awaitable<Result<Long<typeof DiffResponseSchema>, GrpcStatus>>;
  /** NOT_FOUND, FAILED_PRECONDITION: nothing was changed. */
  rollback(query: RollbackQuery): Awaitable<Result<Plain<RollbackResponse>, GrpcStatus>>;
}
