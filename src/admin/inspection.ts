import { hostname } from 'node:os';
import { create } from '@bufbuild/protobuf';
import { sameVariantContent } from '../cache/cached-resource.ts';
import { warnings } from '../config/warnings.ts';
import type { TypeStatus, VariantExplanation } from '../gen/distributary/admin/v1/admin_pb.ts';
import { GetClientRequestSchema, GetClientResponseSchema } from '../gen/distributary/admin/v1/fleet_pb.ts';
import type { Problem } from '../gen/distributary/admin/v1/problems_pb.ts';
import { type ResourceName, type TypeUrl, typeUrl } from '../model/brand.ts';
import { isVariant } from '../model/catalog.ts';
import { type Clock, Paced, systemClock } from '../model/clock.ts';
import { type Constraints, explainMatch, formatConstraints } from '../model/constraints.ts';
import { getOrMake } from '../model/maps.ts';
import { internParameters } from '../model/parameters.ts';
import type { Variant } from '../model/resource.ts';
import { fail, ok, type Result } from '../model/result.ts';
import type { HeldVariant } from '../model/rollout.ts';
import { type Pace, TimeSlices } from '../model/time-slices.ts';
import { typeByName, typeInfo } from '../model/types.ts';
import type { Upstream, UpstreamState } from '../model/upstream.ts';
import { Conditions } from '../observe/conditions.ts';
import type { Log } from '../observe/log.ts';
import { type LogLevels, maxOverrides } from '../observe/log-levels.ts';
import { typeLabels } from '../observe/metrics.ts';
import { notAllowed, wrongOnes } from '../observe/problems.ts';
import type { Relay } from '../relay.ts';
import type { Promoted } from '../releases/rollout.ts';
import { sizeOf } from '../wire/client-status.ts';
import { invalid, rpcError } from '../wire/connect.ts';
import { Code, type GrpcStatus } from '../wire/grpc-status.ts';
import { collected } from './answers.ts';
import { hasUpstream, type InspectedProcess, inspectChanges, noSuchUpstream } from './changes.ts';
import { answerTooLarge, type ClientStatusQuery, type ClientStatusResult, ownConfig } from './csds.ts';
import { inspectDelivery } from './delivery.ts';
import { freshMs } from './fleet-survey.ts';
import type { ClientsStatus } from './local-clients.ts';
import { canonicalOf, explainClient, explainMissing, onlyCanaries, whoHas, whyHeld } from './missing.ts';
import { type KnownStatus, problemsOf, timestamp } from './problems.ts';
import {
  canonicalGiven,
  type ExplainQuery,
  explainClientQuery,
  explainQuery,
  logLevelChange,
  matchesQuery,
  type Operation,
  optionalType,
  type Request,
  resourceQuery,
  resourcesQuery,
  valueOf,
} from './requests.ts';
import { cachedVariants, listResources, matchesOf, nameOf, variantId, variantSummary } from './resources.ts';
import { rolloutStatus, rolloutSummary } from './rollout-status.ts';
import type { Answer, Inspector, Plain, ReadinessReport } from './service.ts';
import { staleReason } from './staleness.ts';

/** Milliseconds. A probe of Kubernetes waits for a second. */
const longestProbeMs = 500;

/** The state of the relay for operators, read for each request. */
export function inspection(inspected: InspectedProcess): Inspector {
  const { relay, staleness, rollout, config, clients } = inspected;
  const isRequired = (upstream: string): boolean =>
    config().upstreams.find(({ name }) => name === upstream)?.required !== false;
  const started = systemClock.monotonic();
  const slices = new TimeSlices(systemClock);
  const changes = inspectChanges(inspected);
  /** For the gauges and `status`, which wait for nothing else that operators ask. */
  const classSlices = new TimeSlices(systemClock);
  const explained = async (): Promise<Answer<'listClasses'>> => {
    const answer = await clients().listClasses();
    return classSlices.run((pace) => explainMissing(relay, answer, pace));
  };
  const classes = new Paced(systemClock, explained, freshMs);
  const listClasses = () => classes.current();
  /** Probes ask often, and a status looks at every stream. */
  const paced = new Paced(systemClock, status);

  return {
    ...inspected.own,
    ...changes,
    ready,
    status,
    /** As of a few seconds ago; a worker that does not answer keeps no probe waiting. */
    problems: async () => (await paced.within(longestProbeMs))?.problems,
    async explain(request) {
      const query = explainQuery(request);
      const client = query.client === undefined ? undefined : await clients().explain(request);
      const upstream = relay.servedBy(query.type, canonicalOf(query.type, query.name));
      const explained = {
        ...(await slices.run((pace) => explain(relay, query, client, pace))),
        staleUpstreams: staleness.stale.filter(({ name }) => name === upstream),
      };
      if (explained.matchFound) return explained;
      return { ...explained, otherClasses: await classesWith(query, explained.parameters) };
    },
    async explainClient(request) {
      const asked = create(GetClientRequestSchema, explainClientQuery(request));
      const client = await collected(GetClientResponseSchema, await clients().getClient(asked));
      const classes = await clients().listClasses();
      return slices.run((pace) => explainClient(relay, staleness, client, classes, pace));
    },
    listResources: (request) => listResources(relay, resourcesQuery(request), slices),
    getResource(request) {
      const query = resourceQuery(request);
      return request.client === '' ? cachedVariants(relay, query, slices) : clients().getResource(request);
    },
    listClients: (request) => clients().listClients(request),
    getClient: (request) => clients().getClient(request),
    load: (request) => clients().load(request),
    listClasses,
    async listMatches(request) {
      const query = matchesQuery(request);
      const classes = await listClasses();
      return slices.run((pace) => matchesOf(relay, classes, query, pace));
    },
    wait: inspectDelivery(inspected, changes),
    tap: (request, call) => clients().tap(request, call),
    clientStatus,
    releaseRemovals({ upstream, type }) {
      if (upstream === '') throw invalid('upstream is missing');
      const removed = inspected.releaseRemovals(upstream, optionalType(type));
      if (removed !== undefined) return { removed };
      throw rpcError(noSuchUpstream(relay, upstream));
    },
    operate(operation) {
      const { bakes } = rollout.report();
      return { ...valueOf(operate(operation, inspected)), waves: bakes.length };
    },
    /** NOT_FOUND: there is no such check. */
    async check({ name }) {
      if (name === '') throw invalid('name is missing');
      const asked = await inspected.checks.askNow(name);
      if (!asked.ok) throw rpcError({ code: Code.NOT_FOUND, message: asked.error });
      const { state, value, reason } = asked.value;
      return { check: { name, state, value, reason, recent: [] } };
    },
    setLogLevel: (request, { operator }) =>
      setLogLevel(request, operator, inspected.logLevels, inspected.log),
  };

  function ready(): ReadinessReport {
    const waiting = relay.upstreams.filter(
      (upstream) => isRequired(upstream.name) && !staleness.hasServed(upstream),
    );
    const reason =
      inspected.notReadyReason() ??
      (waiting.length === 0
        ? ''
        : `not connected yet: ${waiting.map((upstream) => describe(upstream.name, upstream.state())).join(', ')}`);
    return {
      ready: reason === '',
      reason,
      rollout: rolloutSummary(rollout.report()),
      upstreams: relay.upstreams.map(upstreamStatus),
    };
  }

  function upstreamStatus(upstream: Upstream) {
    const { name } = upstream;
    const state = upstream.state();
    const staleSince = staleness.since(upstream);
    return {
      ...state,
      name,
      required: isRequired(name),
      stale: staleSince !== undefined,
      staleSince: staleSince === undefined ? '' : timestamp(staleSince),
      staleReason: staleSince === undefined ? '' : staleReason(state),
      fromSiblingsSince: state.fromSiblingsSince === undefined ? '' : timestamp(state.fromSiblingsSince),
      suspectTypes: (upstream.suspects?.() ?? []).map(({ type, since, reason }) => ({
        type: typeInfo(type).short,
        since: timestamp(since),
        reason,
      })),
      heldRemovals: inspected.heldRemovals(name).map(({ type, count, since }) => ({
        type: typeInfo(type).short,
        count,
        since: timestamp(since),
      })),
    };
  }

  async function status(): Promise<Answer<'status'>> {
    // A worker that does not answer is waited for once.
    const [status, classes] = await Promise.all([knownStatus(), listClasses()]);
    const facts = inspected.own.page.facts();
    const found = problemsOf({ status, classes, facts, now: systemClock.now() });
    const nacks = classes.problems.filter(({ kind }) => kind === 'REJECTED');
    const rejecting = new Map(classes.classes.map((one) => [one.id, one.rejecting]));
    const listed = new Set(rejecting.keys());
    // Of classes that are not listed only the problems are known.
    for (const { class: of, clients } of nacks)
      if (!listed.has(of)) rejecting.set(of, Math.max(clients, rejecting.get(of) ?? 0));
    const rejectingClients = rejecting.values().reduce((sum, count) => sum + count, 0);
    return { ...status, ...inspected.found(found), nacks, rejectingClients };
  }

  async function knownStatus(): Promise<KnownStatus> {
    const { ready: isReady, reason, upstreams } = ready();
    const ofClients = await clients().status();
    return {
      version: inspected.version,
      uptimeSeconds: (systemClock.monotonic() - started) / 1000,
      ready: isReady,
      reason,
      upstreams: [...upstreams],
      ...ofClients,
      types: typeRows(relay, ofClients.types),
      warnings: [
        ...warnings(config()).map(({ path, message }) => `${path}: ${message}`),
        ...ofClients.warnings,
      ],
      cacheBytes: BigInt(relay.store.bytes),
      nodeId: relay.nodeId,
      host: hostname(),
      rollout: rolloutStatus(rollout.report(), inspected.history),
    };
  }

  /** How many classes of connected clients get a resource, beside the one with these parameters. */
  async function classesWith({ type, name }: ExplainQuery, own: Answer<'explain'>['parameters']) {
    const answer = await clients().listClasses();
    const selector = canonicalOf(type, name);
    const { sets } = await slices.run((pace) => whoHas(relay, type, selector, answer, pace));
    return sets.size - Number(sets.has(internParameters(Object.entries(own))));
  }

  async function clientStatus(asked: ClientStatusQuery): Promise<ClientStatusResult> {
    const query = { ...asked, maxBytes: Math.min(asked.maxBytes, config().limits.maxResponseBytes) };
    const ofClients = await clients().configs(query);
    if (!ofClients.ok || query.scope.kind !== 'all') return ofClients;
    const rest = { ...query, maxBytes: query.maxBytes - sizeOf(ofClients.value) };
    const own = await ownConfig(relay, rest, slices);
    if (own.ok) return ok([...ofClients.value, ...own.value]);
    return own.error.code === Code.RESOURCE_EXHAUSTED ? fail(answerTooLarge(query.maxBytes)) : own;
  }
}

/** The error names the endpoint that it is of: another one may be tried now. */
function describe(name: string, { lastError }: UpstreamState): string {
  return lastError === '' ? name : `${name} (${lastError})`;
}

/**
 * Which variant a client gets. While a change waits, it is what the client's side sees (without a client: what all but
 * canaries see), and what waits is listed behind it.
 */
async function explain(relay: Relay, query: ExplainQuery, client: Answer<'explain'> | undefined, pace: Pace) {
  const { type } = query;
  const name = canonicalGiven(query.name, type);
  const parameters = query.parameters ?? internParameters(Object.entries(client?.parameters ?? {}));
  const cohort = client?.canary === true ? 'canary' : 'released';
  const { isDenied, admits } = admittedTo(client, name);
  const value = relay.catalogOf(cohort).peek(type, name, parameters, { admits });
  const seen = relay.catalogOf(cohort).named(type, name);
  const pending = waiting(relay, type, name, seen);
  const reasonOf = ({ variant }: HeldVariant) => {
    const found = explainMatch(variant.constraints.expression, parameters);
    return found.matches && !admits(variant) ? { matches: false, reason: notAllowed } : found;
  };
  const variants = await eachShown(
    seen.map((held) => [held, () => reasonOf(held)]),
    name,
    pace,
  );
  const isWithheld = isDenied || variants.some(({ reason }) => reason === notAllowed);
  const got = isVariant(value) ? value : undefined;
  return {
    match: got === undefined ? '' : formatConstraints(got.constraints.expression),
    matchFound: got !== undefined,
    variants: [...variants, ...(await eachShown(pending, name, pace))],
    parameters: Object.fromEntries(parameters.entries),
    // Of several resources with the same alias the first is meant.
    ambiguous:
      seen.filter(({ variant }, at) => variant.name === got?.name && variants[at]?.matches).length > 1,
    state: isVariant(value) ? 'present' : isWithheld ? 'denied' : value,
    canary: cohort === 'canary',
    otherClasses: 0,
    staleUpstreams: [],
    ...(client?.client === undefined ? {} : { client: client.client }),
  };
}

/** What xds.authorization lets a client have of a name, by what the process with the client says. */
function admittedTo(client: Answer<'explain'> | undefined, name: ResourceName) {
  const isDenied = client?.state === 'denied';
  const withheld = new Set(client?.variants.map((one) => `${one.name} ${one.constraints}`));
  const admits = (variant: Variant): boolean => {
    if (isDenied || withheld.size === 0) return !isDenied;
    const one = variantId({ variant }, name);
    return !withheld.has(`${one.name} ${one.constraints}`);
  };
  return { isDenied, admits };
}

/** With what says whether it matches, and why. */
type Explained = readonly [held: HeldVariant, why: () => ReturnType<typeof explainMatch>];

async function eachShown(
  variants: readonly Explained[],
  name: ResourceName,
  pace: Pace,
): Promise<readonly Plain<VariantExplanation>[]> {
  const explained: Plain<VariantExplanation>[] = [];
  for (const [held, why] of variants) {
    await pace.yieldIfDue();
    explained.push({ ...variantSummary(held), name: nameOf(held, name), ...why() });
  }
  return explained;
}

/** What canaries have and what upstream says, as far as this cohort does not see it yet. */
function waiting(
  relay: Relay,
  type: TypeUrl,
  name: ResourceName,
  seen: readonly HeldVariant[],
): readonly Explained[] {
  const because = (one: HeldVariant, reason: string) => [one, () => ({ matches: false, reason })] as const;
  const canary = relay.catalogOf('canary').named(type, name);
  const said = unseen(relay.store.named(type, name), [...seen, ...canary]);
  const pending = relay.gate.pending.filter((one) => one.type === type);
  const reasons = new Map(pending.map((one) => [one.name, whyHeld(one)]));
  return [
    ...unseen(canary, seen).map((one) => because(one, onlyCanaries)),
    ...said.map((one) => because(one, reasons.get(one.variant.name) ?? '')),
  ];
}

/** Those that are not known. Each is looked up, and not compared with each of the known (docs/adr/0187). */
export function unseen(all: readonly HeldVariant[], known: readonly HeldVariant[]): readonly HeldVariant[] {
  const variants = new Map<ResourceName, Map<Constraints, Variant[]>>();
  for (const { variant } of known) {
    const ofName = getOrMake(variants, variant.name, () => new Map());
    getOrMake(ofName, variant.constraints, () => []).push(variant);
  }
  return all.filter(({ variant }) => {
    const same = variants.get(variant.name)?.get(variant.constraints) ?? [];
    return !same.some((one) => sameVariantContent(one, variant));
  });
}

/** Clients can name any type: unknown types after the first few share a row. */
function typeRows(relay: Relay, subscribed: ClientsStatus['types']): Plain<TypeStatus>[] {
  const labelOf = typeLabels((type) => relay.store.variants(type) > 0);
  const rows = new Map<string, Plain<TypeStatus>>();
  const rowOf = (type: string): Plain<TypeStatus> =>
    getOrMake(rows, type, () => ({ type, resources: 0, variants: 0, subscriptions: 0, ambiguous: 0 }));
  for (const [type, table] of relay.store.tables) {
    const row = rowOf(labelOf(type));
    row.resources += table.resourceCount;
    row.variants += table.variants;
    row.ambiguous += table.ambiguousCount;
  }
  for (const { type, subscriptions } of subscribed) {
    // Each worker names the first unknown types that it met: others than this process, perhaps.
    rowOf(labelOf(typeByName(type) ?? typeUrl(type))).subscriptions += subscriptions;
  }
  return [...rows.values()];
}

/** How many names that was for; nothing: it is about no names. */
type Run = (operation: Operation, inspected: InspectedProcess) => Result<Promoted | number | undefined>;

const operations: Readonly<Record<Operation['verb'], readonly [done: string, run: Run]>> = {
  freeze: [
    'an operator has frozen changes',
    ({ type, upstream, reason, operator }, { rollout }) =>
      rollout.freeze({ type, upstream }, { operator, reason }),
  ],
  unfreeze: [
    'an operator has ended a freeze',
    ({ type, upstream }, { rollout }) => {
      const ended = rollout.unfreeze({ type, upstream });
      return ended.ok ? ok(rollout.report().pending.length) : ended;
    },
  ],
  promote: [
    'an operator has ended a wave',
    ({ type, upstream, reason, wave }, { rollout }) => rollout.promote({ type, upstream }, reason, wave),
  ],
  release: ['an operator has released changes', release],
  discard: [
    'an operator has discarded changes',
    ({ type, upstream, reason }, { rollout }) => rollout.discard({ type, upstream }, reason),
  ],
};

/** What operators do to changes: done at once, or refused whole, and written to the log with who and why. */
function operate(operation: Operation, inspected: InspectedProcess): Result<Promoted, GrpcStatus> {
  const { relay, log } = inspected;
  const { verb, type, upstream, reason, operator } = operation;
  if (!hasUpstream(relay, upstream)) return fail(noSuchUpstream(relay, upstream));
  const [done, run] = operations[verb];
  const result = run(operation, inspected);
  const said = {
    who: operator,
    what: verb,
    type: type === undefined ? 'all' : typeInfo(type).short,
    upstream: upstream ?? 'all',
    reason,
  };
  if (!result.ok) {
    log.warn('an operation on changes was refused', { ...said, error: result.error });
    return fail({ code: Code.FAILED_PRECONDITION, message: result.error });
  }
  const { value = 0 } = result;
  const promoted = typeof value === 'number' ? { names: value, wave: 0 } : value;
  log.info(done, { ...said, names: promoted.names });
  return ok(promoted);
}

/** What waits for canaries, and what is held back because it removes too much. The error: neither waits. */
function release(
  { type, upstream, reason }: Operation,
  { rollout, relay, releaseRemovals }: InspectedProcess,
): Result<number> {
  const released = rollout.release({ type, upstream }, reason);
  const removed = relay.upstreams
    .filter(({ name }) => upstream === undefined || name === upstream)
    .reduce((sum, { name }) => sum + (releaseRemovals(name, type) ?? 0), 0);
  return removed === 0 ? released : ok(removed + (released.ok ? released.value : 0));
}

/** An operator changes the log level for a time; the log says who has done so. */
export function setLogLevel(
  request: Request<'setLogLevel'>,
  operator: string,
  levels: LogLevels,
  log: Log,
): Answer<'setLogLevel'> {
  const { level, node, milliseconds } = logLevelChange(request);
  // The field is not called `node`: the line is about the log, and not written by the level for this node.
  const said = { who: operator, log_level: level ?? levels.initial, for_node: node ?? 'all' };
  if (level === undefined) {
    levels.end(node);
    log.info('an operator has reset the log level', said);
    return inForce(levels);
  }
  const say = (): void =>
    log.info('an operator changes the log level', { ...said, seconds: milliseconds / 1000 });
  // Once, by the level that writes more: before a change to `error`, after a change to `debug`.
  const isWritten = levels.enables('info');
  if (isWritten) say();
  if (!levels.override({ node, level, milliseconds })) {
    const message = `${maxOverrides} nodes have a log level of their own, the maximum: reset one of them, or wait`;
    log.warn('a log level was refused', { ...said, error: message });
    throw rpcError({ code: Code.RESOURCE_EXHAUSTED, message });
  }
  if (!isWritten) say();
  return inForce(levels);
}

function inForce(levels: LogLevels): Answer<'setLogLevel'> {
  return {
    level: levels.initial,
    overrides: levels.overrides().map(({ node, level, milliseconds }) => ({
      node: node ?? '',
      level,
      until: new Date(Date.now() + milliseconds).toISOString(),
    })),
  };
}

/**
 * Looks at each list of problems that is made. It says in the log when a problem begins and when it ends, in the words of
 * the page, and it remembers since when a problem is listed that does not say by itself when it began. The same list, in
 * which each problem says since when. `startedAt`: milliseconds since the epoch. `isQuiet`: nothing is logged any more.
 */
export function problemLog(
  log: Log,
  clock: Pick<Clock, 'now'>,
  startedAt: number,
  isQuiet: () => boolean = () => false,
): (list: ReturnType<typeof problemsOf>) => ReturnType<typeof problemsOf> {
  const conditions = new Conditions(log);
  let known: ReadonlyMap<string, Plain<Problem>> = new Map();
  /** What the first list has was there from the start. */
  let firstSince: string | undefined = timestamp(startedAt);

  return ({ problems: found, moreProblems }) => {
    const listed = firstSince ?? timestamp(clock.now());
    firstSince = undefined;
    const problems = found.map((one) => ({ ...one, since: one.since || known.get(one.id)?.since || listed }));
    if (!isQuiet()) say(problems, moreProblems > 0);
    known = new Map(problems.map((one) => [one.id, one]));
    return { problems, moreProblems };
  };

  function say(now: readonly Plain<Problem>[], isCut: boolean): void {
    const wrong = wrongOnes(now);
    for (const one of wrong) {
      const { id, title, kind, severity, since, detail, clients, runbook } = one;
      const fields = { kind, severity, since, detail, clients, runbook };
      conditions.set(id, 'is', 'warn', `problem: ${title}`, fields, linesOf(one));
    }
    // What a list has no room for is not over.
    if (isCut) return;
    const wrongIds = new Set(wrong.map(({ id }) => id));
    for (const one of wrongOnes([...known.values()])) {
      const { id, title, kind, since } = one;
      if (!wrongIds.has(id))
        conditions.set(id, 'was', 'info', `resolved: ${title}`, { kind, since }, linesOf(one));
    }
  }
}

/** Clients can make any number of problems of a kind, which share its lines: those of all others are their own. */
const linesOf = ({ classes, kind }: Plain<Problem>): string | undefined =>
  classes.length > 0 ? kind : undefined;
