import { create, fromBinary, type JsonValue, toBinary } from '@bufbuild/protobuf';
import { type Any, AnySchema } from '@bufbuild/protobuf/wkt';
import type { Config } from '../config/config.ts';
import {
  type Change as ChangeMessage,
  ChangeSchema,
  type DiffSide,
  type NameDifference,
  NameDifferenceSchema,
  type VariantDifference,
  VariantDifferenceSchema,
} from '../gen/distributary/admin/v1/changes_pb.ts';
import { GetClientRequestSchema, GetClientResponseSchema } from '../gen/distributary/admin/v1/fleet_pb.ts';
import {
  ClientConfig_GenericXdsConfigSchema,
  ClientStatusRequestSchema,
} from '../gen/envoy/service/status/v3/csds_pb.ts';
import type { Cohort } from '../model/access.ts';
import { type ResourceName, type TypeUrl, typeUrl } from '../model/brand.ts';
import { isVariant } from '../model/catalog.ts';
import { type Change, type Content, contentHash } from '../model/change.ts';
import { systemClock } from '../model/clock.ts';
import { formatConstraints } from '../model/constraints.ts';
import { getOrMake } from '../model/maps.ts';
import { internParameters, type Parameters } from '../model/parameters.ts';
import { contentHash as payloadHash } from '../model/payloads.ts';
import type { Variant } from '../model/resource.ts';
import type { PendingName } from '../model/rollout.ts';
import { counted, unknownWord } from '../model/text.ts';
import { type Pace, sortedInSlices, TimeSlices } from '../model/time-slices.ts';
import { gatedByDefault, typeInfo } from '../model/types.ts';
import type { HeldRemovals } from '../model/upstream.ts';
import type { Log } from '../observe/log.ts';
import type { LogLevels } from '../observe/log-levels.ts';
import { yamlText } from '../observe/yaml-text.ts';
import type { Relay } from '../relay.ts';
import type { Checks } from '../releases/checks.ts';
import {
  backTo,
  type History,
  isReleased,
  isWhole,
  noSuchRevision,
  reachable,
  releasedAt,
  type StateAt,
  verdictOf,
} from '../releases/history.ts';
import type { Rollout } from '../releases/rollout.ts';
import { statusClients } from '../wire/client-status.ts';
import { invalid, rpcError } from '../wire/connect.ts';
import { Code, type GrpcStatus } from '../wire/grpc-status.ts';
import { redactedJson } from '../wire/redaction.ts';
import { isJsonObject, isJsonValue } from '../wire/registry.ts';
import { collected, Listed, nextOffset } from './answers.ts';
import { ALL_CLIENTS } from './csds.ts';
import { type ClientsView, noSuchClient } from './local-clients.ts';
import { canonicalOf } from './missing.ts';
import type { problemsOf } from './problems.ts';
import { canonicalGiven, optionalType, type Request, valueOf } from './requests.ts';
import { waitingState } from './rollout-status.ts';
import type { Answer, Inspector, Plain } from './service.ts';
import type { Staleness } from './staleness.ts';

/** Of a comparison, in one answer. */
const maxDifferences = 10_000;

/** What has changed, what differs, and the way back. */
export function inspectChanges(inspected: InspectedProcess) {
  const { history, relay, rollout, clients } = inspected;
  const slices = new TimeSlices(systemClock);

  return {
    revision: () => history.lastRevision,
    history({ type, name, limit, before }) {
      const only = optionalType(type);
      const named = name === '' ? undefined : canonicalGiven(name, only);
      const found = [...history.changes()]
        .toReversed()
        .filter(({ type: of }) => only === undefined || of === only)
        .filter(({ revision }) => before === 0 || revision < before)
        .filter(({ names }) => named === undefined || names.some((one) => one.name === named))
        .slice(0, limit === 0 ? undefined : limit);
      const report = rollout.report();
      const judged = new Map(report.pending.map((one) => [one.key, history.judgedRevision(one)]));
      const rows = Iterator.from(found).map((change) =>
        create(ChangeSchema, changeMessage(change, waitingState(change, report, judged))),
      );
      return new Listed({}, { field: 'changes', rows }, (written, more) => ({
        revision: history.lastRevision,
        nextBefore: more ? (found[written - 1]?.revision ?? 0) : 0,
      }));
    },
    /** NOT_FOUND: no such revision; FAILED_PRECONDITION: of these names it was discarded. No names: of any. */
    change(revision: number, names: ReadonlySet<string>): Change {
      const change = history.get(revision);
      if (change === undefined) return valueOf(noSuchRevision(history, revision));
      const asked = change.names.filter(({ name }) => names.size === 0 || names.has(name));
      if (verdictOf({ names: asked }) !== 'DISCARDED') return change;
      const message = `revision ${revision} was discarded: nobody will get it`;
      throw rpcError({ code: Code.FAILED_PRECONDITION, message });
    },
    async diff(request) {
      const { to, type, name, offset } = request;
      const only = optionalType(type);
      const named = name === '' ? undefined : canonicalGiven(name, only);
      const sides = await compared(request);
      // What waits until the change before it has ended, against what canaries have.
      const queued = pendingNames((one) => one.queued);
      const behind = to?.of.case === 'pending' ? [columnOf('canary', queued), columnOf('said', queued)] : [];
      const found = await slices.run(async (pace) => [
        ...(await differencesOf(sides, false, pace)),
        ...(await differencesOf(behind, true, pace)),
      ]);
      const page = found.slice(offset, offset + maxDifferences);
      const rows = named === undefined ? Iterator.from(page).map(differenceRow) : withFields(page);
      return new Listed({ total: found.length }, { field: 'differences', rows }, (written) => ({
        nextOffset: nextOffset(offset, written, found.length),
      }));

      /** By type, in the order of ADS, and by name. `queued`: nobody has it before the change that is judged has ended. */
      async function differencesOf(compared: readonly ComparedSide[], queued: boolean, pace: Pace) {
        const [from, to] = compared;
        if (from === undefined || to === undefined) return [];
        const types = new Set([...from.names.keys(), ...to.names.keys()]);
        const differences: (readonly Difference[])[] = [];
        for (const type of [...types].toSorted((a, b) => typeInfo(a).order - typeInfo(b).order)) {
          if (only !== undefined && only !== type) continue;
          const found: Difference[] = [];
          const names = compared.flatMap((side) => [...(side.names.get(type)?.keys() ?? [])]);
          for (const name of new Set(names)) {
            await pace.yieldIfDue();
            if (named !== undefined && name !== named) continue;
            const difference = differenceOf(type, name, from.of(type, name), to.of(type, name));
            if (difference !== undefined) found.push({ ...difference, queued });
          }
          differences.push(await sortedInSlices(found, (a, b) => (a.name < b.name ? -1 : 1), pace));
        }
        return differences.flat();
      }
    },
    rollback: (request, { operator }) => rollback(inspected, request, operator),
  } satisfies Partial<Inspector> & { change: unknown };

  /** Made when the ones before are written. */
  async function* withFields(differences: readonly Difference[]) {
    for (const difference of differences) {
      const variants = await slices.run((pace) => fieldsOf(difference, pace));
      yield [Object.assign(differenceRow(difference), { variants })];
    }
  }

  /** Only states of the cache are compared with each other, and only clients with clients. */
  async function compared({ from: one, to: other }: Request<'diff'>): Promise<readonly ComparedSide[]> {
    const [from, to] = [ofSide('from', one), ofSide('to', other)];
    if (isState(from) && isState(to)) return [stateOf(from), stateOf(to)];
    if (isState(from) || isState(to)) {
      const message =
        'from and to must be of one kind: two of revision, released and pending, or two of client and parameters';
      throw invalid(message);
    }
    return [await receivedBy(from), await receivedBy(to)];
  }

  /** Of the names that differ from what is released now. */
  function stateOf(query: StateQuery): ComparedSide {
    switch (query.case) {
      case 'released':
        return columnOf('released', new Map());
      case 'pending': {
        const queued = pendingNames((one) => one.queued);
        const [canaries, said] = [columnOf('canary', queued), columnOf('said', queued)];
        return {
          names: pendingNames(() => true),
          of: (type, name) => (queued.get(type)?.has(name) === true ? canaries : said).of(type, name),
        };
      }
      case 'revision': {
        const names = revisionState(query.value);
        const released = columnOf('released', names);
        const of: ComparedSide['of'] = (type, name) => {
          const content = names.get(type)?.get(name);
          return content === undefined ? released.of(type, name) : comparablesOf(content);
        };
        return { names, of };
      }
      default:
        return query satisfies never;
    }
  }

  function columnOf(column: Cohort | 'said', names: ComparedSide['names']): ComparedSide {
    return { names, of: (type, name) => comparablesOf(relay.gate.contentOf(type, name, column)) };
  }

  function pendingNames(isMeant: (one: PendingName) => boolean): Map<TypeUrl, Set<ResourceName>> {
    const names = new Map<TypeUrl, Set<ResourceName>>();
    for (const { type, name } of relay.gate.pending.filter(isMeant))
      getOrMake(names, type, () => new Set()).add(name);
    return names;
  }

  /** Of a change that was not released, what upstream said then. */
  function revisionState(revision: number): StateAt {
    valueOf(reachable(history, revision));
    const released = releasedAt(history, revision);
    const state = new Map([...released].map(([type, names]) => [type, new Map(names)]));
    for (const { type, names, revision: of } of history.changes()) {
      if (of > revision) break;
      for (const { name, verdict, content } of names) {
        const shown = of === revision ? verdict !== 'RELEASED' : verdict === 'PENDING';
        if (!shown || content === undefined) continue;
        getOrMake(state, type, () => new Map<ResourceName, Content>()).set(name, content.after);
      }
    }
    return state;
  }

  function receivedBy(query: Exclude<Of, StateQuery>): Promise<ComparedSide> {
    if (query.case === 'client') return heldBy(query.value);
    const parameters = internParameters(Object.entries(query.value.values));
    return slices.run((pace) => matching(parameters, pace));
  }

  /** What a client with these parameters gets of everything that is cached, if it is no canary. */
  async function matching(parameters: Parameters, pace: Pace): Promise<ComparedSide> {
    const side: Received = new Map();
    // Upstream may have removed what waits.
    const pending = pendingNames(() => true);
    for (const [type, table] of relay.store.tables) {
      const values = new Map<ResourceName, Comparables>();
      for (const name of new Set([...table.resources.keys(), ...(pending.get(type) ?? [])])) {
        await pace.yieldIfDue();
        const value = relay.store.cohorts.released.peek(type, name, parameters);
        if (isVariant(value)) values.set(name, comparableOf(value));
      }
      side.set(type, values);
    }
    return sideOf(side);
  }

  /** What a client was sent, by CSDS: its stream may be in another process. */
  async function heldBy(client: string): Promise<ComparedSide> {
    const asked = clients();
    const found = await asked.getClient(create(GetClientRequestSchema, { id: client, limit: 1 }));
    const { nodeId } = await collected(GetClientResponseSchema, found);
    // CSDS for the streams of one node.
    const matcher = { nodeId: { matchPattern: { case: 'exact' as const, value: nodeId } } };
    const request = create(ClientStatusRequestSchema, { nodeMatchers: [matcher] });
    const maxBytes = inspected.config().limits.maxResponseBytes;
    const configs = valueOf(await asked.configs({ scope: ALL_CLIENTS, request, maxBytes, whole: true }));
    return slices.run(async (pace) => {
      const own = statusClients(configs).find(({ rest }) => rest.clientScope === client);
      if (own === undefined) return noSuchClient(client);
      const side: Received = new Map();
      for (const bytes of own.entries) {
        await pace.yieldIfDue();
        const entry = fromBinary(ClientConfig_GenericXdsConfigSchema, bytes);
        const { typeUrl: url, name, versionInfo, xdsConfig } = entry;
        if (versionInfo === '' && xdsConfig === undefined) continue;
        const type = typeUrl(url);
        const values = getOrMake(side, type, () => new Map<ResourceName, Comparables>());
        values.set(canonicalOf(type, name), receivedComparable(versionInfo, xdsConfig));
      }
      return sideOf(side);
    });
  }
}

/** The process that has the relay, as operators see it. */
export interface InspectedProcess {
  readonly relay: Relay;
  readonly staleness: Staleness;
  readonly history: History;
  readonly rollout: Rollout;
  readonly checks: Checks;
  readonly log: Log;
  readonly logLevels: LogLevels;
  readonly version: string;
  /** In force. */
  readonly config: () => Config;
  /** Called each time: there are none before the relay listens. */
  readonly clients: () => ClientsView;
  /** Whether a restart keeps the resources of this type. */
  readonly isPersisted: (type: TypeUrl) => boolean;
  /** Why the relay does not serve, whatever its upstreams; undefined while it does. */
  readonly notReadyReason: () => string | undefined;
  /** What only the process with the whole relay can answer. */
  readonly own: Pick<Inspector, 'compareConfiguration' | 'configDump' | 'metricsText' | 'notKept' | 'page'>;
  /** Called with each list of problems that is made, when somebody asks and now and then: each says since when. */
  readonly found: (problems: ReturnType<typeof problemsOf>) => ReturnType<typeof problemsOf>;
  readonly heldRemovals: (upstream: string) => readonly HeldRemovals[];
  /** Removes what max_removal_percent holds back of an upstream: how many variants; undefined: there is no such upstream. */
  readonly releaseRemovals: (upstream: string, type: TypeUrl | undefined) => number | undefined;
}

/** Names of a change that are listed. */
const maxNames = 1000;

/** A change as History shows it. `state`: of the rollout, while it waits. */
function changeMessage(change: Change, state: string | undefined): Plain<ChangeMessage> {
  const { at, type, names, releasedAt } = change;
  return {
    ...change,
    since: new Date(at).toISOString(),
    type: typeInfo(type).short,
    names: names
      .slice(0, maxNames)
      .map((one) => ({ name: one.name, change: one.change, bytes: BigInt(one.bytes) })),
    bytes: BigInt(names.reduce((sum, { bytes }) => sum + bytes, 0)),
    bodies: isWhole(change),
    verdict: verdictOf(change),
    ...(state === undefined ? {} : { state }),
    ...change.course,
    released: releasedAt === undefined ? '' : new Date(releasedAt).toISOString(),
    canariesSeconds: (change.canariesMs ?? 0) / 1000,
    clientsSeconds: (change.clientsMs ?? 0) / 1000,
    accepted: (change.canaries?.accepted ?? 0) + (change.answers?.accepted ?? 0),
    rejected: (change.canaries?.rejected ?? 0) + (change.answers?.rejected ?? 0),
  };
}

/** What is compared, in one of two states or of one of two clients. */
interface ComparedSide {
  /** Those that may differ from the other side. */
  readonly names: ReadonlyMap<TypeUrl, { keys(): Iterable<ResourceName> }>;
  readonly of: (type: TypeUrl, name: ResourceName) => Comparables;
}

type Received = Map<TypeUrl, Map<ResourceName, Comparables>>;

const sideOf = (names: Received): ComparedSide => ({
  names,
  of: (type, name) => names.get(type)?.get(name) ?? [],
});

type Of = Exclude<DiffSide['of'], { readonly case: undefined }>;

/** A state of the cache, or what a client gets of it. */
type StateQuery = Extract<Of, { readonly case: 'revision' | 'released' | 'pending' }>;

function ofSide(field: string, side: DiffSide | undefined): Of {
  if (side !== undefined && side.of.case !== undefined) return side.of;
  throw invalid(`${field} is missing: expected revision, released, pending, client or parameters`);
}

const isState = (query: Of): query is StateQuery => query.case !== 'client' && query.case !== 'parameters';

/** Gives everybody what there was at an earlier revision, and freezes it. Nothing is changed if anything is wrong. */
function rollback(
  inspected: InspectedProcess,
  request: Request<'rollback'>,
  operator: string,
): Answer<'rollback'> {
  const { relay, history, rollout, log } = inspected;
  const query = rollbackQuery(inspected, request);
  const { to, upstream, types, reason } = query;
  const audited = { who: operator, what: 'rollback', to, upstream: upstream ?? 'all', reason };
  const refusal = refusalOf(inspected, query);
  if (refusal !== undefined) {
    log.warn('a rollback was refused', { ...audited, error: refusal.message });
    throw rpcError(refusal);
  }
  const said = `rollback to revision ${to}: ${reason}`;
  let changed = 0;
  rollout.rollsBack(types.map((type) => ({ type, upstream })));
  for (const type of types) {
    const contents = new Map<ResourceName, Content>();
    for (const [name, content] of backTo(history, to, type, relay.store.releasedContents(type))) {
      const own = content.filter(({ variant }) => upstream === undefined || variant.upstream === upstream);
      if (own.length > 0) contents.set(name, own);
    }
    const filter = { type, upstream };
    const last = history.lastRevision;
    relay.gate.replace(type, contents, filter, said);
    changed += history.get(last + 1)?.names.length ?? 0;
    rollout.freeze(filter, { operator, reason: said });
  }
  if (changed === 0) history.add(nothingChanged(inspected, query, said));
  const revision = history.lastRevision;
  log.info('an operator has rolled back', { ...audited, revision, changed });
  return { revision, changed };
}

/** Everybody has that already, and it is frozen from now on: the history says so all the same. */
function nothingChanged(inspected: InspectedProcess, { types }: RollbackQuery, reason: string) {
  // A change is of one type: of those that are frozen, one that clients have something of.
  const [first = ''] = types;
  const type = types.find((one) => inspected.relay.store.releasedContents(one).size > 0) ?? typeUrl(first);
  const at = systemClock.now();
  const counts = { added: 0, changed: 0, removed: 0 };
  return { type, upstream: '', ...counts, names: [], first: false, at, releasedAt: at, reason };
}

type RollbackQuery = ReturnType<typeof rollbackQuery>;

/** Without an upstream: every one. Without a type: every gated one, which goes to canaries first, in the order of ADS. */
function rollbackQuery({ config }: InspectedProcess, request: Request<'rollback'>) {
  const { to, reason } = request;
  const upstream = request.upstream === '' ? undefined : request.upstream;
  const type = optionalType(request.type);
  const gated = [...new Set(config().rollout?.types ?? gatedByDefault)];
  const ordered = gated.toSorted((a, b) => typeInfo(a).order - typeInfo(b).order);
  return { to, reason, upstream, gated, types: type === undefined ? ordered : [type] };
}

function refusalOf(inspected: InspectedProcess, query: RollbackQuery): GrpcStatus | undefined {
  const { history, relay } = inspected;
  const { to, reason, upstream, gated, types } = query;
  if (reason.trim() === '') return refused('a reason is missing: it is logged, and shown in the history');
  if (to === 0) return refused('to is missing: the revision to go back to');
  if (!hasUpstream(relay, upstream)) return noSuchUpstream(relay, upstream);
  const ungated = types.find((type) => !gated.includes(type));
  if (ungated !== undefined) {
    const others = gated.map((url) => typeInfo(url).short).join(', ');
    return refused(`${typeInfo(ungated).short} is not gated; gated types (rollout.types): ${others}`);
  }
  const reached = reachable(history, to);
  if (!reached.ok) return reached.error;
  const forgotten = forgottenTypes(inspected, query);
  if (forgotten.length > 0) {
    const message = `the state of ${forgotten.join(', ')} at revision ${to} is not known: secrets are not kept across a restart (cache.persistence.secrets), and the last restart was after revision ${history.restoredRevision}; roll back other types one by one (type)`;
    return { code: Code.FAILED_PRECONDITION, message };
  }
  const change = history.get(to);
  if (change === undefined || isReleased(change)) return undefined;
  const verdict = verdictOf(change);
  const message = `revision ${to} was never released (${verdict}): roll back to an earlier one`;
  return { code: Code.FAILED_PRECONDITION, message };
}

/** Undefined: every one. */
export const hasUpstream = ({ upstreams }: Relay, upstream: string | undefined): boolean =>
  upstream === undefined || upstreams.some(({ name }) => name === upstream);

export function noSuchUpstream({ upstreams }: Relay, upstream = ''): GrpcStatus {
  const names = upstreams.map(({ name }) => name);
  return { code: Code.NOT_FOUND, message: unknownWord('upstream', upstream, names) };
}

/** What clients have of these types was never persisted, and the relay was started after the revision. */
function forgottenTypes(
  { history, isPersisted, relay }: InspectedProcess,
  { to, types }: RollbackQuery,
): readonly string[] {
  if (to > history.restoredRevision) return [];
  return types
    .filter((type) => !isPersisted(type) && relay.store.releasedContents(type).size > 0)
    .map((type) => typeInfo(type).short);
}

const refused = (message: string): GrpcStatus => ({ code: Code.INVALID_ARGUMENT, message });

/** Of a resource's JSON that is compared field by field: it is parsed at once. */
const maxCharacters = 2 << 20;

/** The variants of a name as they are compared. */
type Comparables = ReturnType<typeof comparablesOf>;

function comparablesOf(content: Content) {
  return content.map(({ variant }) => ({
    /** Variants with the same text are compared. */
    constraints: formatConstraints(variant.constraints.expression),
    /** Equal: nothing differs. */
    hash: contentHash(variant),
    /** The encoded Any; undefined: not there, or not shown. */
    body: variant.payload?.bytes,
  }));
}

/** What one client gets: its constraints do not matter, because another client has others. */
function comparableOf(variant: Variant): Comparables {
  const { constraints, payload } = variant;
  const text = formatConstraints(constraints.expression);
  return [{ constraints: text, hash: payload?.hash ?? '', body: payload?.bytes }];
}

/** What a client was sent. Without a body (secrets) the version is compared. */
function receivedComparable(version: string, body: Any | undefined): Comparables {
  const bytes = body === undefined ? undefined : toBinary(AnySchema, body);
  const hash = bytes === undefined ? version : payloadHash(bytes);
  return [{ constraints: '', hash, body: bytes }];
}

/** A name that is not the same on both sides. */
type Difference = NonNullable<ReturnType<typeof differenceOf>> & { readonly queued: boolean };

type ChangeKind = 'ADDED' | 'CHANGED' | 'REMOVED';

/** Undefined: nothing differs. */
function differenceOf(type: TypeUrl, name: string, from: Comparables, to: Comparables) {
  const variants = compared(from, to).filter((one) => one.from?.hash !== one.to?.hash);
  if (variants.length === 0) return undefined;
  return { type, name, change: changeOf(from.length > 0, to.length > 0), variants };
}

export function compared(from: Comparables, to: Comparables) {
  const [before] = from;
  const [after] = to;
  // One variant on each side: what differs are its fields, even if it is for others now.
  if (before !== undefined && after !== undefined && from.length === 1 && to.length === 1) {
    const constraints =
      before.constraints === after.constraints
        ? after.constraints
        : `${before.constraints} → ${after.constraints}`;
    return [{ constraints, from: before, to: after }];
  }
  const [older, newer] = [byConstraints(from), byConstraints(to)];
  const all = new Set([...older.keys(), ...newer.keys()]);
  return Array.from(all, (constraints) => ({
    constraints,
    from: older.get(constraints),
    to: newer.get(constraints),
  }));
}

/** Of several with the same text the first one. */
function byConstraints(side: Comparables): ReadonlyMap<string, Comparables[number]> {
  const found = new Map<string, Comparables[number]>();
  for (const one of side) getOrMake(found, one.constraints, () => one);
  return found;
}

const differenceRow = ({ type, name, change, queued }: Difference): NameDifference =>
  create(NameDifferenceSchema, { type: typeInfo(type).short, name, change, queued });

/** What differs in each variant. */
async function fieldsOf({ type, variants }: Difference, pace: Pace): Promise<VariantDifference[]> {
  const found: VariantDifference[] = [];
  for (const { constraints, from, to } of variants) {
    const change = changeOf(from !== undefined, to !== undefined);
    const yaml = await yamlOf(type, from?.body, to?.body, pace);
    found.push(create(VariantDifferenceSchema, { constraints, change, yaml }));
  }
  return found;
}

function changeOf(before: boolean, after: boolean): ChangeKind {
  if (before && after) return 'CHANGED';
  return after ? 'ADDED' : 'REMOVED';
}

async function yamlOf(
  type: TypeUrl,
  from: Uint8Array | undefined,
  to: Uint8Array | undefined,
  pace: Pace,
): Promise<string> {
  if (typeInfo(type).short === 'sds') return '# secrets are not shown\n';
  const before = await jsonOf(from, pace);
  const after = await jsonOf(to, pace);
  if (before === undefined || after === undefined) {
    return `# more than ${maxCharacters} characters as JSON are not compared: distributary get shows both\n`;
  }
  const fields = await fieldDifferences(before, after, pace);
  return fields === '' ? '# nothing that is shown differs\n' : fields;
}

async function jsonOf(body: Uint8Array | undefined, pace: Pace): Promise<JsonValue | undefined> {
  const text = body === undefined ? '{}' : await redactedJson(body, pace, maxCharacters);
  const value: unknown = text === undefined ? undefined : JSON.parse(text);
  return value === undefined || isJsonValue(value) ? value : {};
}

/** What is shown of a difference: YAML costs most, so each field is written by itself. */
const most = { fields: 10_000, characters: 4 << 20 };

/**
 * The fields that differ, as YAML: each path with what it was and what it is. What one side does not have is shown field by
 * field, too: it has no `from` or no `to`.
 *
 *     connect_timeout: { from: 1s, to: 5s }
 */
export async function fieldDifferences(from: JsonValue, to: JsonValue, pace: Pace): Promise<string> {
  const parts: string[] = [];
  let [characters, left] = [0, 0];
  for (const [path, difference] of differences('', from, to)) {
    await pace.yieldIfDue();
    if (parts.length >= most.fields || characters >= most.characters) {
      left++;
      continue;
    }
    const text = yamlText(new Map([[path, difference]]));
    parts.push(text);
    characters += text.length;
  }
  return left === 0 ? parts.join('') : `${parts.join('')}# and ${counted(left, 'more field')}\n`;
}

type Found = readonly [path: string, { readonly from?: JsonValue; readonly to?: JsonValue }];

/** Part by part where both sides have parts, or one of them has nothing at all. */
function* differences(path: string, from: JsonValue | undefined, to: JsonValue | undefined): Iterable<Found> {
  const [before, after] = [partsOf(path, from), partsOf(path, to)];
  if (before !== undefined && after !== undefined && before.size + after.size > 0) {
    for (const part of new Set([...before.keys(), ...after.keys()]))
      yield* differences(part, before.get(part), after.get(part));
  } else if (JSON.stringify(from) !== JSON.stringify(to)) {
    yield [path, { ...(from === undefined ? {} : { from }), ...(to === undefined ? {} : { to }) }];
  }
}

/** Those of an object or an array, by their paths; nothing has none. Undefined: it cannot have any. */
function partsOf(path: string, value: JsonValue = []): ReadonlyMap<string, JsonValue> | undefined {
  if (Array.isArray(value)) return new Map(value.map((part, at) => [`${path}[${at}]`, part]));
  if (!isJsonObject(value)) return undefined;
  return new Map(Object.entries(value).map(([key, part]) => [path === '' ? key : `${path}.${key}`, part]));
}
