import { create } from '@bufbuild/protobuf';
import type { TypeTable } from '../cache/type-table.ts';
import type { XdsStream } from '../downstream/xds-server.ts';
import type { MissingClient, WaitResponse } from '../gen/distributary/admin/v1/delivery_pb.ts';
import {
  type ClassProblem,
  ClassProblemSchema,
  type ClientHolding,
  type GetClientResponse,
  type ListClassesResponse,
} from '../gen/distributary/admin/v1/fleet_pb.ts';
import { type ResourceName, resourceName, type TypeUrl, typeUrl } from '../model/brand.ts';
import { isVariant } from '../model/catalog.ts';
import type { Constraints } from '../model/constraints.ts';
import { getOrMake } from '../model/maps.ts';
import { nearestParameters } from '../model/nearest-parameters.ts';
import { internParameters, type Parameters } from '../model/parameters.ts';
import { isHeldByWildcard, type MaskReason, type PendingName } from '../model/rollout.ts';
import { covers, isCollection, type Selection } from '../model/selection.ts';
import type { ClientState, Holding, MissingEntry, Subscription } from '../model/subscription.ts';
import type { Pace, TimeSlices } from '../model/time-slices.ts';
import { type Selector, WILDCARD } from '../model/transaction.ts';
import { typeByName, typeInfo } from '../model/types.ts';
import { canonicalName, parentGlob } from '../model/xdstp.ts';
import { missingText, nearestText } from '../observe/problems.ts';
import type { Relay } from '../relay.ts';
import type { History } from '../releases/history.ts';
import { missingOf, summed } from './client-list.ts';
import type { WaitQuery } from './requests.ts';
import type { Answer, Plain } from './service.ts';
import type { Staleness } from './staleness.ts';

/** The most that an answer lists. */
const maxListed = 100;

/** What clients are to have accepted. */
export type AcceptanceQuery = Pick<WaitQuery, 'type' | 'names'>;

/** Who has not accepted what was sent, or is to be sent. */
export type Acceptance = Pick<Plain<WaitResponse>, 'clients' | 'missing' | 'missingClients'>;

export const NOBODY_MISSING: Acceptance = { clients: 0, missing: 0, missingClients: [] };

/** Why something is not accepted. */
type Missing = Pick<Plain<MissingClient>, 'name' | 'state' | 'why'>;

/**
 * The streams that end in this process. Clients that poll say later what they made of it: they do not count. `areWorkers`:
 * they ask for what their clients have polled for, too, and that may not be there, or not be answered yet.
 */
export function acceptanceOf(
  relay: Relay,
  query: AcceptanceQuery,
  slices: TimeSlices,
  areWorkers = false,
): Promise<Acceptance> {
  return slices.run(async (pace) => {
    let [clients, missing] = [0, 0];
    const listed: Plain<MissingClient>[] = [];
    const sought = soughtBy(query.names);
    const counts = ({ state, why }: Missing) => !areWorkers || (state !== 'MISSING' && why !== unanswered);
    for (const stream of [...relay.server.values()]) {
      await pace.yieldIfDue();
      const found = looked(stream, sought)?.filter(counts);
      if (found === undefined) continue;
      clients++;
      if (found.length > 0) missing++;
      listed.push(...found);
      if (listed.length > 2 * maxListed) listed.splice(0, Infinity, ...worstOf(listed));
    }
    return { clients, missing, missingClients: worstOf(listed) };
  });

  /** Undefined: this stream does not subscribe to it. */
  function looked(stream: XdsStream, sought: Sought): Plain<MissingClient>[] | undefined {
    let subscribes = false;
    const found: Plain<MissingClient>[] = [];
    for (const type of stream.types) {
      if (query.type !== undefined && type.info.url !== query.type) continue;
      const { subscription } = type;
      if (subscription === undefined || subscription.view.selection.size === 0) continue;
      const missing = notAccepted(subscription, sought);
      if (missing === undefined) continue;
      subscribes = true;
      const absent = missingOf(type, relay).filter(sought.covers).slice(0, maxListed);
      const about = { client: stream.id, node: stream.client?.nodeId ?? '', type: type.info.short };
      for (const one of [...missing, ...absent.map(({ name }) => notThere(name))])
        found.push({ ...about, ...one });
    }
    return subscribes ? found : undefined;
  }
}

/** It is cached, or asked for by its name. */
export function isKnown({ store }: Relay, type: TypeUrl | undefined, name: ResourceName): boolean {
  const types = type === undefined ? store.tables.keys() : [type];
  return Iterator.from(types).some((one) => knows(store.tables.get(one), name));
}

const knows = (table: TypeTable | undefined, name: ResourceName): boolean =>
  table !== undefined &&
  ((table.resources.get(name)?.variants.size ?? 0) > 0 ||
    table.interests.named(name) !== undefined ||
    !Iterator.from(table.aliased(name)).next().done);

/** Types that have had the names that are waited for: see pastNames. */
export type PastNames = ReadonlyMap<TypeUrl, ReadonlySet<string>>;

/**
 * The one type that all these names are of. Undefined: it is not certain. What is nowhere any more may still be at clients,
 * and a name that one type has may have been another's, too.
 */
export async function onlyTypeOf(
  { store }: Relay,
  names: ReadonlySet<string>,
  past: PastNames,
  pace: Pace,
): Promise<TypeUrl | undefined> {
  const known = new Set<TypeUrl>();
  for (const name of names) {
    await pace.yieldIfDue();
    const having = [...store.tables].flatMap(([url, table]) => (knows(table, resourceName(name)) ? url : []));
    if (having.length === 0) return undefined;
    for (const url of having) known.add(url);
  }
  const [only, ...others] = known.size === 1 ? known.union(past) : [];
  return others.length === 0 ? only : undefined;
}

/** Which types have had which of some names, by the history as it is. A type without any may have had each of them. */
export async function pastNames(history: Pick<History, 'changes'>, names: ReadonlySet<string>, pace: Pace) {
  const had = new Map<TypeUrl, Set<string>>();
  for (const change of history.changes()) {
    await pace.yieldIfDue();
    const { type, names: changed } = change;
    const found = changed.filter(({ name }) => names.has(name));
    // Of a large change without bodies only the first names are kept.
    const isCut = changed.length < change.added + change.changed + change.removed;
    const all = isCut || found.length > 0 ? getOrMake(had, type, () => new Set()) : undefined;
    for (const { name } of found) all?.add(name);
  }
  return had;
}

/** Of workers that do not answer, in answers about clients; none: nothing. */
export const noAnswer = (workers: Iterable<number>): { readonly noAnswer?: string } => {
  const said = [...workers].map((worker) => `worker ${worker} does not answer`).join(', ');
  return said === '' ? {} : { noAnswer: said };
};

/** Of a worker that does not answer. */
export function noAnswerOf(worker: number): Acceptance {
  const why = noAnswer([worker]).noAnswer ?? '';
  const row = { client: '', node: '', type: '', name: '', state: 'NOT_SENT', why };
  return { clients: 0, missing: 1, missingClients: [row] };
}

export function mergeAcceptances(all: readonly Acceptance[]): Acceptance {
  return {
    ...all.reduce(summed('clients', 'missing'), NOBODY_MISSING),
    missingClients: worstOf(all.flatMap(({ missingClients }) => missingClients)),
  };
}

/** Rejections do not go away by waiting. */
function worstOf(listed: readonly Plain<MissingClient>[]): Plain<MissingClient>[] {
  const rejects = ({ state }: Plain<MissingClient>): boolean => state === 'ERROR';
  return listed.toSorted((a, b) => Number(rejects(b)) - Number(rejects(a))).slice(0, maxListed);
}

/** Undefined: it does not subscribe to any of these names. */
function notAccepted(subscription: Subscription, sought: Sought): readonly Missing[] | undefined {
  const { selection } = subscription.view;
  const whole = ofWhole(subscription);
  if (sought.isAll) return whole;
  const mayShow = selection.collections.some(({ selector }) =>
    sought.covers({ name: selector, canonical: selector }),
  );
  if (!mayShow && !sought.isIn(selection)) return undefined;
  // Nearly always, and it has everything: no single resource is looked at.
  if (whole.length === 0) return [];
  const asked = [...subscription.holdings()].filter(sought.isNamed);
  const missing = asked.flatMap(ofName);
  // What a wildcard no longer shows may still be at the client, until it has taken everything.
  return mayShow && asked.length < sought.count && missing.length === 0 ? whole : missing;
}

type Sought = ReturnType<typeof soughtBy>;
type Selected = Pick<MissingEntry, 'name' | 'canonical'>;

/** Names, or everything; there may be 20,000 names, and a client may lack thousands of globs. */
function soughtBy(names: ReadonlySet<string>) {
  const isAll = names.size === 0;
  const globs = new Set([...names].map((one) => parentGlob(resourceName(one))));
  const isNamed = ({ name, canonical }: Selected): boolean => names.has(name) || names.has(canonical);
  // Streams of a class share a selection.
  const known = new WeakMap<Selection, boolean>();
  return {
    isAll,
    count: names.size,
    isNamed,
    /** It is one of the names, or a wildcard or glob over one. */
    covers: (one: Selected): boolean =>
      isAll || isNamed(one) || one.canonical === WILDCARD || globs.has(one.canonical),
    /** Whether one of the names is asked for by itself. */
    isIn: (selection: Selection): boolean =>
      getOrMake(known, selection, () =>
        selection.entries
          .values()
          .some(({ requestedName, selector }) => isNamed({ name: requestedName, canonical: selector })),
      ),
  };
}

/** Everything of one type of a stream: looks at no single resource. */
function ofWhole(subscription: Subscription): readonly Missing[] {
  const { responses } = subscription;
  const rejections = [...responses.rejections];
  if (rejections.length > 0) {
    return rejections.map(({ name, message }) => ({ name, state: 'ERROR', why: `rejected: ${message}` }));
  }
  if (subscription.view.allUnknown) return [unknownYet('')];
  if (subscription.pending || subscription.hasDeferredRemovals) return [notSent('')];
  return responses.state === 'STALE' ? [notAnswered('')] : [];
}

function ofName({ name, value, state, current, rejection }: Holding): readonly Missing[] {
  if (state === 'ERROR') return [{ name, state, why: `rejected: ${rejection?.message ?? ''}` }];
  if (value === 'unknown') return [unknownYet(name)];
  if (!current) return [notSent(name)];
  return state === 'STALE' ? [notAnswered(name)] : [];
}

const lacking =
  (state: ClientState, why: string) =>
  (name: string): Missing => ({ name, state, why });

const notAcknowledged = 'it was sent, and the client has not acknowledged it';
const unanswered = 'upstream has not answered yet';
const unknownYet = lacking('NOT_SENT', unanswered);
const notSent = lacking('NOT_SENT', 'the newest version has not been sent yet');
const notThere = lacking('MISSING', 'the client subscribes to it, and it does not exist for this client');
const notAnswered = lacking('STALE', notAcknowledged);

const reasons: Readonly<Record<MaskReason, string>> = {
  discarded: 'what upstream has now was discarded',
  frozen: 'changes are frozen, and upstream has a newer version',
  rolledBack: 'it was rolled back and frozen',
  queued: 'nobody has it yet: it waits until the change before it has ended',
};

/**
 * What the relay itself holds back: no client can accept that. `released`: of these names everybody was given what is asked
 * for, and what waits under them is newer. `whyNot`: empty if it does not.
 */
export function heldBack(
  relay: Relay,
  query: AcceptanceQuery & { readonly released: ReadonlySet<string> },
  whyNot: (pending: PendingName) => string = whyHeld,
): Acceptance {
  const listed: Plain<MissingClient>[] = [];
  for (const pending of relay.gate.pending) {
    if (query.type !== undefined && query.type !== pending.type) continue;
    if (query.names.size > 0 && !query.names.has(pending.name)) continue;
    const { type, name } = pending;
    if (query.released.has(name)) continue;
    const why = whyNot(pending);
    if (why === '') continue;
    listed.push({ client: '', node: '', type: typeInfo(type).short, name, state: 'HELD', why });
  }
  return { clients: 0, missing: listed.length, missingClients: listed };
}

/** Why not everybody sees what upstream says under a name, or under some name of a wildcard or glob. */
function whyHeldBack(relay: Relay, type: TypeUrl, selector: Selector): string {
  for (const pending of relay.gate.pending)
    if (pending.type === type && covers(selector, pending.name)) return whyHeld(pending);
  return '';
}

export const onlyCanaries = 'only canaries have it yet';

/** Why not all have what upstream says. */
export function whyHeld({ masked, queued }: PendingName): string {
  if (queued) return reasons.queued;
  return masked === undefined ? onlyCanaries : reasons[masked];
}

/** So many of the largest classes are asked whether they have what another one lacks. */
const mostClasses = 100;

/** Who has something that others lack: `sets` are the parameters of classes that have it. */
type Elsewhere = Awaited<ReturnType<typeof whoHas>>;

/**
 * Says of each MISSING why, unless the process with the client has said so, and who else has it: the process with the whole
 * cache knows that.
 */
export async function explainMissing(
  relay: Relay,
  answer: Plain<ListClassesResponse>,
  pace: Pace,
): Promise<Plain<ListClassesResponse>> {
  const known = new Map<string, Sample & Elsewhere>();
  const missing: Plain<ClassProblem>[] = [];
  const isMissing = ({ kind }: Plain<ClassProblem>): boolean => kind === 'MISSING';
  for (const problem of answer.problems.filter(isMissing)) {
    await pace.yieldIfDue();
    const type = typeByName(problem.type) ?? typeUrl(problem.type);
    const key = `${problem.type} ${problem.name}`;
    const selector = canonicalOf(type, problem.name);
    const found = known.get(key) ?? {
      ...(await whoHas(relay, type, selector, answer, pace)),
      ...sampleOf(relay, type, selector),
    };
    known.set(key, found);
    const own = internParameters(Object.entries(problem.parameters));
    const isThere = getOrMake(found.looked, own, () => has(relay, type, selector, own));
    const why = problem.why || whyMissing(relay, type, selector, { isThere, elsewhere: found.exists });
    const said = {
      ...problem,
      why,
      nearest: why === noMatch ? nearestOf(found, selector, own) : '',
      elsewhere: found.exists,
      otherClasses: found.sets.size - Number(found.sets.has(own)),
    };
    missing.push(said);
  }
  const others = answer.problems.filter((problem) => !isMissing(problem));
  return { ...answer, problems: [...others, ...missing.toSorted(byElsewhere)] };
}

/** What others could have is a mistake more often than what nobody has. */
const byElsewhere = (a: Plain<ClassProblem>, b: Plain<ClassProblem>): number =>
  Number(b.elsewhere) - Number(a.elsewhere) || b.clients - a.clients;

/** Which of the classes have a name, or something of a wildcard or glob. */
export async function whoHas(
  relay: Relay,
  type: TypeUrl,
  selector: Selector,
  { classes }: Plain<ListClassesResponse>,
  pace: Pace,
) {
  const looked = new Map<Parameters, boolean>();
  for (const { parameters } of classes.slice(0, mostClasses)) {
    await pace.yieldIfDue();
    const set = internParameters(Object.entries(parameters));
    getOrMake(looked, set, () => has(relay, type, selector, set));
  }
  const sets = new Set([...looked].flatMap(([set, hasIt]) => (hasIt ? set : [])));
  return { looked, sets, exists: sets.size > 0 || exists(relay, type, selector) };
}

function has(relay: Relay, type: TypeUrl, selector: Selector, parameters: Parameters): boolean {
  if (!isCollection(selector)) return isVariant(relay.store.peek(type, selector, parameters));
  // Of some there is only an error.
  return Iterator.from(relay.store.members(type, selector, parameters)).some((name) =>
    relay.store.isMember(type, selector, name, parameters),
  );
}

function exists({ store }: Relay, type: TypeUrl, selector: Selector): boolean {
  const table = store.tables.get(type);
  const hasVariant = (name: ResourceName): boolean => (table?.resources.get(name)?.variants.size ?? 0) > 0;
  if (!isCollection(selector)) return hasVariant(selector);
  return Iterator.from(table?.names(selector) ?? []).some(hasVariant);
}

/** `isThere`: upstream says something that matches this class. `elsewhere`: or some other one. */
function whyMissing(
  relay: Relay,
  type: TypeUrl,
  selector: Selector,
  { isThere, elsewhere }: Readonly<Record<'isThere' | 'elsewhere', boolean>>,
): string {
  // What waits under other names than its own is no reason for a class that would get none of them.
  const held = isThere || !isCollection(selector) ? whyHeldBack(relay, type, selector) : '';
  if (held !== '') return held;
  if (elsewhere) return noMatch;
  const upstream = relay.servedBy(type, selector);
  return upstream === undefined ? 'no upstream claims it' : `upstream ${upstream} does not have it`;
}

const noMatch = 'no variant matches';

/** So many variants are looked at, with constraints of so many bytes; and so many sets of parameters are told. */
const most = { sampled: 300, bytes: 32 << 10, nearest: 3 };

/** The constraints of the variants of a name, or of some names of a wildcard or glob. `isCut`: there are more. */
type Sample = ReturnType<typeof sampleOf>;

function sampleOf({ store }: Relay, type: TypeUrl, selector: Selector) {
  const table = store.tables.get(type);
  const names: (readonly Constraints[])[] = [];
  let [looked, sampled, bytes] = [0, 0, 0];
  let isCut = false;
  const covered = isCollection(selector) ? table?.names(selector) : table?.namesOf(selector);
  for (const name of covered ?? []) {
    const isOver = looked++ === most.sampled || sampled >= most.sampled;
    if (isOver) return { names, isCut: true };
    const variants = table?.resources.get(name)?.variants.all() ?? [];
    const shown = selector === WILDCARD ? variants.filter(isHeldByWildcard) : variants;
    const fitting = shown.slice(0, most.sampled).filter(({ constraints }) => {
      // One may list thousands of values, and each is compared with what the client has.
      const isFitting = bytes + constraints.bytes.length <= most.bytes;
      if (isFitting) bytes += constraints.bytes.length;
      else isCut = true;
      return isFitting;
    });
    names.push(fitting.map(({ constraints }) => constraints));
    sampled += variants.length;
  }
  return { names, isCut };
}

/** Empty: no other parameters are known that have something. */
function nearestOf({ names, isCut }: Sample, selector: Selector, own: Parameters): string {
  return nearestText(nearestParameters(names, own, most.nearest), !isCollection(selector), isCut);
}

/** Says of each name of a client why it has nothing of it, or has not said anything to it. */
export async function explainClient(
  relay: Relay,
  staleness: Staleness,
  client: GetClientResponse,
  classes: Plain<ListClassesResponse>,
  pace: Pace,
): Promise<Answer<'explainClient'>> {
  // As the answer about classes has it.
  const problems = client.holdings
    .filter(({ state }) => state === 'MISSING')
    .map(({ type, name, parameters, why }) => {
      const about = { type, name, what: name, parameters, why, class: client.class };
      return create(ClassProblemSchema, { ...about, kind: 'MISSING', clients: 1 });
    });
  const explained = await explainMissing(relay, { ...classes, problems }, pace);
  const whyMissing = new Map(explained.problems.map((one) => [keyOf(one), missingText(one)]));
  const serving = new Set<string | undefined>();
  const holdings = client.holdings.map((one) => {
    const type = typeByName(one.type) ?? typeUrl(one.type);
    const upstream = relay.servedBy(type, canonicalOf(type, one.name));
    serving.add(upstream);
    return { ...one, why: whyMissing.get(keyOf(one)) ?? whyUnanswered(relay, one, upstream) };
  });
  const staleUpstreams = staleness.stale.filter(({ name }) => serving.has(name));
  return { ...client, client: client.id, holdings, staleUpstreams };
}

/** A client may ask for one name with several sets of parameters. */
const keyOf = ({ type, name, parameters }: Pick<ClientHolding, 'type' | 'name' | 'parameters'>): string =>
  JSON.stringify([type, name, parameters]);

function whyUnanswered(
  relay: Relay,
  { type: short, name, state, sent }: ClientHolding,
  upstream: string | undefined,
): string {
  if (state === 'STALE') return notAcknowledged;
  if (state !== 'NOT_SENT') return '';
  const type = typeByName(short) ?? typeUrl(short);
  const selector = canonicalOf(type, name);
  const held = isCollection(selector) ? '' : whyHeldBack(relay, type, selector);
  if (held !== '') return held;
  const isCached = (relay.store.tables.get(type)?.resources.get(selector)?.variants.size ?? 0) > 0;
  if (sent !== '' || isCached) return 'it has not been sent yet';
  return `upstream ${upstream ?? ''} has not answered yet`;
}

/** A name, or a wildcard or glob, by the spelling of a client that was accepted. */
export function canonicalOf(type: TypeUrl, requestedName: string): Selector {
  const name = canonicalName(requestedName, type);
  return name.ok ? name.value : resourceName(requestedName);
}
