import type {
  GetClientResponseSchema,
  ListClassesResponse,
  ListMatchesResponseSchema,
} from '../gen/distributary/admin/v1/fleet_pb.ts';
import type { TypeUrl } from '../model/brand.ts';
import type { Result } from '../model/result.ts';
import type { GrpcStatus } from '../wire/grpc-status.ts';
import type { Long } from './answers.ts';
import type { Awaitable, Plain } from './plain.ts';

export interface MatchesQuery {
  readonly type: TypeUrl;
  /** Part of the name; empty: all names. */
  readonly name: string;
  readonly pageSize: number;
  readonly offset: number;
}

export interface ClientQuery {
  /** A stream's id. */
  readonly id: string;
  /** The most holdings that are listed. */
  readonly limit: number;
  /** So many holdings are left out. */
  readonly offset: number;
}

/** The clients as a whole, and one of them in detail. */
export interface Fleet {
  classes(): Awaitable<Plain<ListClassesResponse>>;
  matches(query: MatchesQuery): Awaitable<Long<typeof ListMatchesResponseSchema>>;
  /** NOT_FOUND: there is no such client. */
  client(query: ClientQuery): Awaitable<Result<Long<typeof GetClientResponseSchema>, GrpcStatus>>;
}
