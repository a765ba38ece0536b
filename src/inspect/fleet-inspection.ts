import type { Long } from '../admin/answers.ts';
import type { ClientQuery, Fleet, MatchesQuery } from '../admin/fleet-ports.ts';
import type { Awaitable, ExplainQuery, Plain } from '../admin/ports.ts';
import type {
  GetClientResponseSchema,
  ListClassesResponse,
  ListMatchesResponseSchema,
} from '../gen/distributary/admin/v1/fleet_pb.ts';
import type { Result } from '../model/result.ts';
import type { TimeSlices } from '../model/time-slices.ts';
import type { Relay } from '../relay.ts';
import type { GrpcStatus } from '../wire/grpc-status.ts';
import type { ClientsView } from './clients-view.ts';
import { matchesOf } from './matches.ts';
import { canonicalOf, explainMissing, whoHas } from './missing-resources.ts';

/** The clients as a whole, and one of them in detail, wherever they are served. */
export class FleetInspection implements Fleet {
  readonly #relay: Relay;
  readonly #clients: () => ClientsView;
  readonly #slices: TimeSlices;

  constructor(relay: Relay, clients: () => ClientsView, slices: TimeSlices) {
    this.#relay = relay;
    this.#clients = clients;
    this.#slices = slices;
  }

  async classes(): Promise<Plain<ListClassesResponse>> {
    const answer = await this.#clients().classes();
    return this.#slices.run((pace) => explainMissing(this.#relay, answer, pace));
  }

  /** How many classes of connected clients get a resource. */
  async classesWith({ type, name }: Pick<ExplainQuery, 'type' | 'name'>): Promise<number> {
    const answer = await this.#clients().classes();
    const selector = canonicalOf(type, name);
    const { sets } = await this.#slices.run((pace) => whoHas(this.#relay, type, selector, answer, pace));
    return sets.size;
  }

  async matches(query: MatchesQuery): Promise<Long<typeof ListMatchesResponseSchema>> {
    const classes = await this.classes();
    return this.#slices.run((pace) => matchesOf(this.#relay, classes, query, pace));
  }

  client(query: ClientQuery): Awaitable<Result<Long<typeof GetClientResponseSchema>, GrpcStatus>> {
    return this.#clients().client(query);
  }
}
