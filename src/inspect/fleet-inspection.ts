import type { ClientQuery, Fleet, MatchesQuery } from '../admin/fleet-ports.ts';
import type { Awaitable, Plain } from '../admin/ports.ts';
import type {
  GetClientResponse,
  ListClassesResponse,
  ListMatchesResponse,
} from '../gen/distributary/admin/v1/fleet_pb.ts';
import type { Result } from '../model/result.ts';
import type { Relay } from '../relay.ts';
import type { GrpcStatus } from '../wire/grpc-status.ts';
import type { ClientsView } from './clients-view.ts';
import { matchesOf } from './matches.ts';

/** The clients as a whole, and one of them in detail, wherever they are served. */
export class FleetInspection implements Fleet {
  readonly #relay: Relay;
  readonly #clients: () => ClientsView;

  constructor(relay: Relay, clients: () => ClientsView) {
    this.#relay = relay;
    this.#clients = clients;
  }

  classes(): Promise<Plain<ListClassesResponse>> {
    return this.#clients().classes();
  }

  async matches(query: MatchesQuery): Promise<Plain<ListMatchesResponse>> {
    return matchesOf(this.#relay, await this.classes(), query);
  }

  client(query: ClientQuery): Awaitable<Result<Plain<GetClientResponse>, GrpcStatus>> {
    return this.#clients().client(query);
  }
}
