import { hostname } from 'node:os';
import type { Operation } from '../admin/operations.ts';
import type { PageSource } from '../admin/page-ports.ts';
import type { Awaitable, Plain } from '../admin/plain.ts';
import {
  type ExplainQuery,
  explainQuery,
  matchesQuery,
  optionalType,
  type Request,
  resourceQuery,
  resourcesQuery,
  valueOf,
} from '../admin/requests.ts';
import type { Answer, Call, Inspector, ReadinessReport } from '../admin/service.ts';
import type { TapMessage } from '../gen/distributary/admin/v1/delivery_pb.ts';
import type { Problem } from '../gen/distributary/admin/v1/problems_pb.ts';
import type { ClientStatusRequest } from '../gen/envoy/service/status/v3/csds_pb.ts';
import type { TypeUrl } from '../model/brand.ts';
import { systemClock } from '../model/clock.ts';
import { fail, ok, type Result } from '../model/result.ts';
import { unknownWord } from '../model/suggest.ts';
import { Paced, TimeSlices } from '../model/time-slices.ts';
import { typeInfo } from '../model/types.ts';
import type { UpstreamState } from '../model/upstream.ts';
import type { Log } from '../observe/log.ts';
import type { LogLevels } from '../observe/log-levels.ts';
import type { Relay } from '../relay.ts';
import type { Rollout } from '../rollout/rollout.ts';
import type { HeldRemovals } from '../upstream/shrink-guard.ts';
import { type EncodedStatus, sizeOf } from '../wire/client-status.ts';
import { rpcError } from '../wire/connect.ts';
import { Code, type GrpcStatus } from '../wire/grpc-status.ts';
import type { ChangesInspection } from './changes.ts';
import { answerTooLarge, type ClientStatusQuery, ownConfig } from './client-configs.ts';
import { ALL_CLIENTS } from './client-status-scope.ts';
import type { ClientsView } from './clients-view.ts';
import { DeliveryInspection } from './delivery.ts';
import { explain } from './explain.ts';
import { setLogLevel } from './log-level.ts';
import { matchesOf } from './matches.ts';
import { canonicalOf, explainMissing, whoHas } from './missing-resources.ts';
import { type KnownStatus, problemsOf } from './problems.ts';
import { cachedVariants } from './resource-contents.ts';
import { listResources } from './resource-list.ts';
import { operate } from './rollout-operations.ts';
import { rolloutStatus, rolloutSummary } from './rollout-status.ts';
import { staleReason } from './stale-reason.ts';
import type { Staleness } from './staleness.ts';
import { typeRows } from './type-rows.ts';

/** Milliseconds. A probe of Kubernetes waits for a second. */
const longestProbeMs = 500;

export interface InspectionOptions {
  readonly relay: Relay;
  readonly staleness: Staleness;
  /** Called each time: there are none before the relay listens. */
  readonly clients: () => ClientsView;
  readonly changes: ChangesInspection;
  readonly version: string;
  readonly startedAt: number;
  /** Why the relay does not serve, whatever its upstreams; undefined while it does. */
  readonly notReadyReason: () => string | undefined;
  /** upstreams[].required. */
  readonly isRequired: (upstream: string) => boolean;
  readonly compareConfiguration: Inspector['compareConfiguration'];
  readonly configDump: () => unknown;
  /** What is dangerous about the configuration in force. */
  readonly warnings: () => readonly string[];
  /** Called with each list of problems that somebody has asked for. */
  readonly found: (problems: ReturnType<typeof problemsOf>) => void;
  readonly metricsText: () => Promise<string>;
  /** Of an answer of CSDS. */
  readonly maxResponseBytes: () => number;
  readonly heldRemovals: (upstream: string) => readonly HeldRemovals[];
  /** Undefined: there is no such upstream. */
  readonly releaseRemovals: (upstream: string, type: TypeUrl | undefined) => number | undefined;
  readonly rollout: Rollout;
  readonly notKept: () => string | undefined;
  readonly log: Log;
  readonly logLevels: LogLevels;
  readonly page: PageSource;
}

/** The state of the relay for operators, read for each request. */
export class Inspection implements Inspector {
  readonly #options: InspectionOptions;
  readonly #delivery: DeliveryInspection;
  readonly changes: ChangesInspection;
  readonly page: PageSource;
  readonly compareConfiguration: Inspector['compareConfiguration'];
  readonly #slices = new TimeSlices(systemClock);
  /** Probes ask often, and a status looks at every stream. */
  readonly #paced = new Paced(systemClock, () => this.status());

  constructor(options: InspectionOptions) {
    this.#options = options;
    this.changes = options.changes;
    this.page = options.page;
    this.compareConfiguration = options.compareConfiguration;
    this.#delivery = new DeliveryInspection({ ...options, clock: systemClock });
  }

  ready(): ReadinessReport {
    const upstreams = this.#options.relay.upstreams.map((upstream) => {
      const state = upstream.state();
      const { connected, lastError, refusedStreams, warning = '' } = state;
      const staleSince = this.#options.staleness.since(upstream);
      return {
        name: upstream.name,
        required: this.#options.isRequired(upstream.name),
        connected,
        stale: staleSince !== undefined,
        since: staleSince,
        staleReason: staleSince === undefined ? '' : staleReason(state),
        fromSiblingsSince: state.fromSiblingsSince,
        lastError,
        refusedStreams,
        warning,
        suspectTypes: (upstream.suspects?.() ?? []).map(({ type }) => typeInfo(type).short),
      };
    });
    const { relay, staleness, isRequired } = this.#options;
    const waiting = relay.upstreams.filter(
      (upstream) => isRequired(upstream.name) && !staleness.isRestored && !upstream.state().everConnected,
    );
    const reason =
      this.#options.notReadyReason() ??
      (waiting.length === 0
        ? ''
        : `not connected yet: ${waiting.map((upstream) => describe(upstream.name, upstream.state())).join(', ')}`);
    return {
      ready: reason === '',
      reason,
      rollout: rolloutSummary(this.#options.rollout.report()),
      upstreams,
    };
  }

  async status(): Promise<Answer<'status'>> {
    // A worker that does not answer is waited for once.
    const [status, classes] = await Promise.all([this.#known(), this.listClasses()]);
    const facts = this.page.facts();
    const found = problemsOf({ status, classes, facts, now: systemClock.now() });
    this.#options.found(found);
    return { ...status, ...found };
  }

  /** As of a few seconds ago; a worker that does not answer keeps no probe waiting. */
  async problems(): Promise<readonly Plain<Problem>[] | undefined> {
    return (await this.#paced.within(longestProbeMs))?.problems;
  }

  async #known(): Promise<KnownStatus> {
    const { relay, staleness, version, startedAt, rollout } = this.#options;
    const { ready, reason, upstreams } = this.ready();
    const ofUpstreams = upstreams
      .filter(({ warning }) => warning !== '')
      .map(({ name, warning }) => `upstream ${name}: ${warning}`);
    const clients = await this.#options.clients().status();
    return {
      version,
      uptimeSeconds: (Date.now() - startedAt) / 1000,
      ready,
      reason,
      upstreams: relay.upstreams.map((upstream) => {
        const state = upstream.state();
        const staleSince = staleness.since(upstream);
        return {
          name: upstream.name,
          kind: state.kind,
          connected: state.connected,
          endpoint: state.endpoint,
          sessions: state.sessions,
          stale: staleSince !== undefined,
          staleSince: staleSince === undefined ? '' : timestamp(staleSince),
          staleReason: staleSince === undefined ? '' : staleReason(state),
          fromSiblingsSince: state.fromSiblingsSince === undefined ? '' : timestamp(state.fromSiblingsSince),
          lastError: state.lastError,
          heldRemovals: this.#options.heldRemovals(upstream.name).map(({ type, count, since }) => ({
            type: typeInfo(type).short,
            count,
            since: timestamp(since),
          })),
          refusedStreams: state.refusedStreams,
          suspectTypes: (upstream.suspects?.() ?? []).map(({ type, since, reason: why }) => ({
            type: typeInfo(type).short,
            since: timestamp(since),
            reason: why,
          })),
        };
      }),
      ...clients,
      types: typeRows(relay, clients.types),
      warnings: [...this.#options.warnings(), ...ofUpstreams, ...clients.warnings],
      cacheBytes: BigInt(relay.store.bytes),
      nodeId: relay.nodeId,
      host: hostname(),
      rollout: rolloutStatus(rollout.report()),
    };
  }

  async explain(request: Request<'explain'>): Promise<Answer<'explain'>> {
    const query = explainQuery(request);
    const client = query.client === undefined ? undefined : await this.#options.clients().explain(request);
    const explained = explain(this.#options.relay, query, client);
    return explained.matchFound ? explained : { ...explained, otherClasses: await this.#classesWith(query) };
  }

  listResources(request: Request<'listResources'>): Promise<Answer<'listResources'>> {
    return listResources(this.#options.relay, resourcesQuery(request), this.#slices);
  }

  getResource(request: Request<'getResource'>): Awaitable<Answer<'getResource'>> {
    const query = resourceQuery(request);
    if (request.client === '') return cachedVariants(this.#options.relay, query, this.#slices);
    return this.#options.clients().getResource(request);
  }

  listClients(request: Request<'listClients'>): Awaitable<Answer<'listClients'>> {
    return this.#options.clients().listClients(request);
  }

  getClient(request: Request<'getClient'>): Awaitable<Answer<'getClient'>> {
    return this.#options.clients().getClient(request);
  }

  async listClasses(): Promise<Answer<'listClasses'>> {
    const answer = await this.#options.clients().listClasses();
    return this.#slices.run((pace) => explainMissing(this.#options.relay, answer, pace));
  }

  async listMatches(request: Request<'listMatches'>): Promise<Answer<'listMatches'>> {
    const query = matchesQuery(request);
    const classes = await this.listClasses();
    return this.#slices.run((pace) => matchesOf(this.#options.relay, classes, query, pace));
  }

  /** How many classes of connected clients get a resource. */
  async #classesWith({ type, name }: ExplainQuery): Promise<number> {
    const { relay, clients } = this.#options;
    const answer = await clients().listClasses();
    const selector = canonicalOf(type, name);
    const { sets } = await this.#slices.run((pace) => whoHas(relay, type, selector, answer, pace));
    return sets.size;
  }

  wait(request: Request<'wait'>, call: Call): Promise<Answer<'wait'>> {
    return this.#delivery.wait(request, call);
  }

  tap(request: Request<'tap'>, call: Call): AsyncIterable<Plain<TapMessage>> {
    return this.#options.clients().tap(request, call);
  }

  clientStatus(request: ClientStatusRequest, most: number): Promise<Result<EncodedStatus, GrpcStatus>> {
    const maxBytes = Math.min(most, this.#options.maxResponseBytes());
    return this.clientStatusOf({ scope: ALL_CLIENTS, request, maxBytes });
  }

  /** CSDS within a scope. The relay's own view is only in answers about all clients. */
  async clientStatusOf(query: ClientStatusQuery): Promise<Result<EncodedStatus, GrpcStatus>> {
    const clients = await this.#options.clients().configs(query);
    if (!clients.ok || query.scope.kind !== 'all') return clients;
    const rest = { ...query, maxBytes: query.maxBytes - sizeOf(clients.value) };
    const own = await ownConfig(this.#options.relay, rest, this.#slices);
    if (own.ok) return ok([...clients.value, ...own.value]);
    return own.error.code === Code.RESOURCE_EXHAUSTED ? fail(answerTooLarge(query.maxBytes)) : own;
  }

  releaseRemovals({ upstream, type }: Request<'releaseRemovals'>): Answer<'releaseRemovals'> {
    const removed = this.#options.releaseRemovals(upstream, optionalType(type));
    if (removed !== undefined) return { removed };
    const names = this.#options.relay.upstreams.map(({ name }) => name);
    throw rpcError({ code: Code.NOT_FOUND, message: unknownWord('upstream', upstream, names) });
  }

  operate(operation: Operation): number {
    const { relay, rollout, releaseRemovals, log } = this.#options;
    const upstreams = () => relay.upstreams.map(({ name }) => name);
    return valueOf(operate(operation, { rollout, releaseRemovals, upstreams, log }));
  }

  notKept(): string | undefined {
    return this.#options.notKept();
  }

  setLogLevel(request: Request<'setLogLevel'>, { operator }: Call): Answer<'setLogLevel'> {
    return setLogLevel(request, operator, this.#options.logLevels, this.#options.log);
  }

  configDump(): unknown {
    return this.#options.configDump();
  }

  metricsText(): Promise<string> {
    return this.#options.metricsText();
  }
}

/** The error names the endpoint that it is of: another one may be tried now. */
function describe(name: string, { lastError }: UpstreamState): string {
  return lastError === '' ? name : `${name} (${lastError})`;
}

const timestamp = (milliseconds: number): string => new Date(milliseconds).toISOString();
