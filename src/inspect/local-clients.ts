import { create } from '@bufbuild/protobuf';
import type { Plain } from '../admin/plain.ts';
import {
  clientQuery,
  clientsQuery,
  explainQuery,
  type Request,
  resourceQuery,
  waitQuery,
} from '../admin/requests.ts';
import type { Answer, Call } from '../admin/service.ts';
import type { ListedClient, ListedType } from '../downstream/services.ts';
import {
  type ClientTypeState,
  ExplainResponseSchema,
  type NackStatus,
  TypeStatusSchema,
} from '../gen/distributary/admin/v1/admin_pb.ts';
import { type TapMessage, WaitResponseSchema } from '../gen/distributary/admin/v1/delivery_pb.ts';
import { isVariant } from '../model/catalog.ts';
import { systemClock } from '../model/clock.ts';
import { formatConstraints } from '../model/constraints.ts';
import { NO_PARAMETERS, type Parameters } from '../model/parameters.ts';
import type { Result } from '../model/result.ts';
import { covers } from '../model/selection.ts';
import type { Holding, Rejection } from '../model/subscription.ts';
import { type Pace, TimeSlices } from '../model/time-slices.ts';
import { canonicalName } from '../model/xdstp.ts';
import { TypeLabels } from '../observe/metrics.ts';
import type { Relay } from '../relay.ts';
import { type CanaryRules, unmetMatches } from '../rollout/canaries.ts';
import type { Accounts } from '../wire/accounts.ts';
import type { EncodedStatus } from '../wire/client-status.ts';
import type { GrpcStatus } from '../wire/grpc-status.ts';
import { type ClientStatusQuery, clientConfigs } from './client-configs.ts';
import { clientDetail } from './client-detail.ts';
import { clientList, typeState } from './client-list.ts';
import { missingOf } from './client-state.ts';
import {
  type ClientsStatus,
  type ClientsView,
  keyOfNack,
  mergeNacks,
  mostRecent,
  noSuchClient,
  shownAccounts,
} from './clients-view.ts';
import { FleetSurvey } from './fleet-survey.ts';
import { subscriptionsOf } from './gauge-sample.ts';
import { acceptanceOf } from './missing-clients.ts';
import { sentVariants } from './resource-contents.ts';
import { rejectedVersions, versionsOf } from './resource-list.ts';
import { tapMessages } from './tap-messages.ts';

/** What a reload would change for the clients of this process. */
export type ReloadPreview = (text: string, pace: Pace) => Promise<Answer<'compareConfiguration'>>;

/** The clients whose streams end in this process, and those that poll it: read when asked for. */
export class LocalClients implements ClientsView {
  readonly inWorkers = false;
  readonly #relay: Relay;
  readonly #accounts: Accounts;
  readonly #preview: ReloadPreview;
  readonly #canaryRules: () => CanaryRules | undefined;
  readonly #slices = new TimeSlices(systemClock);
  readonly #survey: FleetSurvey;

  constructor(
    relay: Relay,
    accounts: Accounts,
    preview: ReloadPreview,
    canaryRules: () => CanaryRules | undefined,
  ) {
    this.#relay = relay;
    this.#accounts = accounts;
    this.#survey = new FleetSurvey(relay, this.#slices, systemClock);
    this.#preview = preview;
    this.#canaryRules = canaryRules;
  }

  status(): ClientsStatus {
    const { server, polls, store } = this.#relay;
    const labels = new TypeLabels((type) => store.variants(type) > 0);
    const types = new Map<string, number>();
    for (const [type, count] of subscriptionsOf(this.#relay)) {
      const label = labels.of(type);
      types.set(label, (types.get(label) ?? 0) + count);
    }
    return {
      clients: server.size,
      pollingClients: polls.clients.size,
      types: [...types].map(([type, subscriptions]) => create(TypeStatusSchema, { type, subscriptions })),
      ...this.#rejections(),
      warnings: [...this.#warnings()],
      accounts: this.#accounts
        .heaviest(shownAccounts)
        .map((one) => Object.assign(one, { heldBytes: BigInt(one.heldBytes) })),
      workers: [],
    };
  }

  listClients(request: Request<'listClients'>): Promise<Answer<'listClients'>> {
    const query = clientsQuery(request);
    return this.#slices.run((pace) => clientList([...this.#relay.clients()], query, this.#relay, pace));
  }

  listClasses(): Promise<Answer<'listClasses'>> {
    return this.#survey.classes();
  }

  getClient(request: Request<'getClient'>): Promise<Answer<'getClient'>> {
    const stream = this.#streamOf(request.id);
    return this.#slices.run((pace) => clientDetail(stream, clientQuery(request), this.#relay, pace));
  }

  explain(request: Request<'explain'>): Answer<'explain'> {
    const { type, name, parameters } = explainQuery(request);
    const stream = this.#streamOf(request.client);
    const asked = stream.types.find(({ info }) => info.url === type);
    const canary = stream.client?.access.side === 'canary';
    const holding = asked && holdingOf(asked, name, parameters);
    const own = holding?.parameters ?? (asked && parametersOf(asked, name)) ?? derivedOf(stream);
    const known = { parameters: Object.fromEntries(own.entries), canary };
    if (asked === undefined) return create(ExplainResponseSchema, known);
    const client = {
      ...typeState(asked, this.#relay),
      ...heldOf(asked, holding, name),
      missing: isMissing(asked, holding, name, this.#relay),
    };
    return create(ExplainResponseSchema, { ...known, client });
  }

  getResource(request: Request<'getResource'>): Answer<'getResource'> {
    return sentVariants(this.#streamOf(request.client), resourceQuery(request), this.#slices);
  }

  compareConfiguration({ text }: Request<'compareConfiguration'>): Promise<Answer<'compareConfiguration'>> {
    return this.#slices.run((pace) => this.#preview(text, pace));
  }

  async wait(request: Request<'wait'>): Promise<Answer<'wait'>> {
    return create(WaitResponseSchema, await acceptanceOf(this.#relay, waitQuery(request), this.#slices));
  }

  tap(request: Request<'tap'>, { signal }: Call): AsyncIterable<Plain<TapMessage>> {
    return tapMessages(this.#relay, request, signal);
  }

  configs(query: ClientStatusQuery): Promise<Result<EncodedStatus, GrpcStatus>> {
    return clientConfigs(this.#relay, query, this.#slices);
  }

  #streamOf(id: string): ListedClient {
    return this.#relay.client(id) ?? noSuchClient(id);
  }

  #warnings(): readonly string[] {
    const rules = this.#canaryRules();
    if (rules === undefined || rules.match.length === 0) return [];
    const clients = new Set(Iterator.from(this.#relay.server.streams()).map(derivedOf));
    return clients.size === 0 ? [] : unmetMatches(rules, clients);
  }

  #rejections(): Pick<ClientsStatus, 'nacks' | 'rejectingClients'> {
    const found = new Map<string, Plain<NackStatus>>();
    let rejecting = 0;
    for (const stream of this.#relay.clients()) {
      // A stream may have rejected the same thing of several parameter sets.
      const own = new Map(rejectionsOf(stream).map((nack) => [keyOfNack(nack), nack]));
      if (own.size > 0) rejecting++;
      for (const [key, nack] of own) {
        const known = found.get(key);
        found.set(key, known === undefined ? nack : mergeNacks(known, nack));
      }
    }
    return { nacks: mostRecent(found.values()), rejectingClients: rejecting };
  }
}

function nackOf(type: string, rejection: Rejection): Plain<NackStatus> {
  const { name, version, message, at, changes } = rejection;
  return {
    type,
    name,
    version,
    clients: 1,
    error: message,
    since: new Date(at).toISOString(),
    names: [...changes.names],
    changed: changes.total,
    removal: changes.removal,
    ...rejectedVersions(rejection),
  };
}

function rejectionsOf(stream: ListedClient): readonly Plain<NackStatus>[] {
  return stream.types.flatMap(({ info, subscription }) =>
    [...(subscription?.responses.rejections ?? [])].map((rejection) => nackOf(info.short, rejection)),
  );
}

/** What the client was last sent of a name, and whether it accepted it. */
function heldOf(
  type: ListedType,
  holding: Holding | undefined,
  name: string,
): Pick<Plain<ClientTypeState>, 'held' | 'removalState'> {
  if (holding === undefined || holding.state === 'NOT_SENT') {
    // What a wildcard has no more leaves no holding behind.
    const rejected = type.subscription?.responses.rejectedWhole?.changes;
    const isRejected = rejected?.removal === true && rejected.names.includes(name);
    return { removalState: isRejected ? 'ERROR' : '' };
  }
  const { value, state, rejection } = holding;
  // What a client that polls was sent is known until it is due something newer.
  if (value === undefined) return { removalState: '' };
  if (!isVariant(value)) return { removalState: state };
  const { constraints, cachedSince } = value;
  const held = {
    constraints: formatConstraints(constraints.expression),
    ...versionsOf(value),
    since: new Date(cachedSince).toISOString(),
    state,
    error: rejection?.message ?? '',
  };
  return { held, removalState: '' };
}

/** The client asks for this, by its name or by a wildcard or glob that shows nothing. */
function isMissing(
  type: ListedType,
  holding: Holding | undefined,
  name: string,
  relay: Pick<Relay, 'isServed'>,
): boolean {
  if (holding !== undefined) return holding.missing;
  const canonical = canonicalName(name, type.info.url);
  if (!canonical.ok) return false;
  return missingOf(type, relay).some((one) => covers(one.canonical, canonical.value));
}

/** By a name in any spelling. Under several parameter sets: that of `parameters`, else one that the client has. */
function holdingOf(type: ListedType, name: string, parameters: Parameters | undefined): Holding | undefined {
  const canonical = canonicalName(name, type.info.url);
  const found: Holding[] = [];
  for (const holding of type.subscription?.holdings() ?? []) {
    if (holding.name === name || (canonical.ok && holding.canonical === canonical.value)) found.push(holding);
  }
  return (
    found.find((one) => one.parameters === parameters) ??
    found.find(({ value }) => isVariant(value)) ??
    found.find(({ state }) => state !== 'NOT_SENT')
  );
}

/** Those that it asks for the name with. Undefined: it does not ask for it by name. */
function parametersOf(type: ListedType, name: string): Parameters | undefined {
  return [...type.selection.entries.values()].find(({ spelling }) => spelling === name)?.parameters;
}

const derivedOf = ({ client }: ListedClient): Parameters => client?.derived(undefined) ?? NO_PARAMETERS;
