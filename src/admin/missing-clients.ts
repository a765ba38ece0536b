import type { TypeTable } from '../cache/type-table.ts';
import type { TypeStream } from '../downstream/type-stream.ts';
import type { XdsStream } from '../downstream/xds-server.ts';
import type { MissingClient, WaitResponse } from '../gen/distributary/admin/v1/delivery_pb.ts';
import { type ResourceName, resourceName, type TypeUrl } from '../model/brand.ts';
import type { Change } from '../model/change.ts';
import type { MaskReason, PendingName } from '../model/rollout.ts';
import { covers } from '../model/selection.ts';
import type { ClientState, Holding, MissingEntry, Subscription } from '../model/subscription.ts';
import type { Pace, TimeSlices } from '../model/time-slices.ts';
import { type Selector, WILDCARD } from '../model/transaction.ts';
import { typeInfo } from '../model/types.ts';
import { parentGlob } from '../model/xdstp.ts';
import type { Relay } from '../relay.ts';
import { missingOf } from './client-list.ts';
import type { Plain } from './service.ts';

/** The most that an answer lists. */
const maxListed = 100;

/** What clients are to have accepted. */
export interface AcceptanceQuery {
  /** Undefined: every type. */
  readonly type: TypeUrl | undefined;
  /** Empty: everything of the type. */
  readonly names: ReadonlySet<string>;
}

/** Who has not accepted what was sent, or is to be sent. */
export type Acceptance = Pick<Plain<WaitResponse>, 'clients' | 'missing' | 'missingClients'>;

export const NOBODY_MISSING: Acceptance = { clients: 0, missing: 0, missingClients: [] };

/** Why something is not accepted. */
interface Missing {
  readonly name: string;
  readonly state: ClientState;
  readonly why: string;
}

/**
 * The streams that end in this process. Clients that poll say later what they made of it: they do not count. `lacks`:
 * who asks for something and gets nothing, or no answer yet, has not accepted it. Streams of workers ask for what their
 * clients have polled for, too.
 */
export function acceptanceOf(
  relay: Relay,
  query: AcceptanceQuery,
  slices: TimeSlices,
  lacks = true,
): Promise<Acceptance> {
  return slices.run(async (pace) => {
    let [clients, missing] = [0, 0];
    const listed: Plain<MissingClient>[] = [];
    const isMeant = isAbout(query.names);
    const absentOf = (type: TypeStream): readonly Missing[] =>
      missingOf(type, relay)
        .filter(isMeant)
        .slice(0, maxListed)
        .map(({ name }) => notThere(name));
    for (const stream of [...relay.server.values()]) {
      await pace.yieldIfDue();
      const found = looked(stream, query, isMeant, lacks ? absentOf : undefined);
      if (found === undefined) continue;
      clients++;
      if (found.length > 0) missing++;
      listed.push(...found);
      if (listed.length > 2 * maxListed) listed.splice(0, Infinity, ...worstOf(listed));
    }
    return { clients, missing, missingClients: worstOf(listed) };
  });
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

/**
 * The one type that all these names are of. Undefined: it is not certain. What is nowhere any more may still be at clients,
 * and a name that one type has may have been another's, too.
 */
export async function onlyTypeOf(
  { store }: Relay,
  names: ReadonlySet<string>,
  changes: Iterable<Change>,
  pace: Pace,
): Promise<TypeUrl | undefined> {
  const known = new Set<TypeUrl>();
  for (const name of names) {
    await pace.yieldIfDue();
    const having = [...store.tables].flatMap(([url, table]) => (knows(table, resourceName(name)) ? url : []));
    if (having.length === 0) return undefined;
    for (const url of having) known.add(url);
  }
  const [only, ...others] = known;
  if (only === undefined || others.length > 0) return undefined;
  for (const change of changes) {
    await pace.yieldIfDue();
    if (change.type === only) continue;
    // Of a large change without bodies only the first names are kept.
    const isCut = change.names.length < change.added + change.changed + change.removed;
    if (isCut || change.names.some(({ name }) => names.has(name))) return undefined;
  }
  return only;
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
    clients: all.reduce((sum, { clients }) => sum + clients, 0),
    missing: all.reduce((sum, { missing }) => sum + missing, 0),
    missingClients: worstOf(all.flatMap(({ missingClients }) => missingClients)),
  };
}

/** Rejections do not go away by waiting. */
function worstOf(listed: readonly Plain<MissingClient>[]): Plain<MissingClient>[] {
  const rejects = ({ state }: Plain<MissingClient>): boolean => state === 'ERROR';
  return listed.toSorted((a, b) => Number(rejects(b)) - Number(rejects(a))).slice(0, maxListed);
}

/** Undefined: this stream does not subscribe to it. */
function looked(
  stream: XdsStream,
  query: AcceptanceQuery,
  isMeant: ReturnType<typeof isAbout>,
  absentOf: ((type: TypeStream) => readonly Missing[]) | undefined,
): Plain<MissingClient>[] | undefined {
  let subscribes = false;
  const found: Plain<MissingClient>[] = [];
  for (const type of stream.types) {
    if (query.type !== undefined && type.info.url !== query.type) continue;
    const { subscription } = type;
    if (subscription === undefined || subscription.selection.size === 0) continue;
    const missing = notAccepted(subscription, query.names, isMeant);
    if (missing === undefined) continue;
    subscribes = true;
    const more =
      absentOf === undefined
        ? missing.filter(({ why }) => why !== unanswered)
        : [...missing, ...absentOf(type)];
    for (const one of more) found.push(row(stream, type, one));
  }
  return subscribes ? found : undefined;
}

function row(stream: XdsStream, { info }: TypeStream, { name, state, why }: Missing): Plain<MissingClient> {
  return { client: stream.id, node: stream.client?.nodeId ?? '', type: info.short, name, state, why };
}

/** Undefined: it does not subscribe to any of these names. */
function notAccepted(
  subscription: Subscription,
  names: ReadonlySet<string>,
  isMeant: ReturnType<typeof isAbout>,
): readonly Missing[] | undefined {
  const whole = ofWhole(subscription);
  if (names.size === 0) return whole;
  const { collections } = subscription.selection;
  const mayShow = collections.some(({ selector }) => isMeant({ name: selector, canonical: selector }));
  // Nearly always, and it has everything: what a wildcard shows of 2,000 names is not looked at.
  if (whole.length === 0 && mayShow) return [];
  const asked = [...subscription.holdings()].filter(
    ({ name, canonical }) => names.has(name) || names.has(canonical),
  );
  // What a wildcard no longer shows may still be at the client, until it has taken everything.
  const gone = mayShow && asked.length < names.size;
  if (asked.length === 0 && !gone) return undefined;
  if (whole.length === 0) return [];
  const missing = asked.flatMap(ofName);
  return gone && missing.length === 0 ? whole : missing;
}

/** A name, or a wildcard or glob over it: a client may lack thousands of globs, and there may be 20,000 names. */
function isAbout(
  names: ReadonlySet<string>,
): (selected: Pick<MissingEntry, 'name' | 'canonical'>) => boolean {
  if (names.size === 0) return () => true;
  const globs = new Set([...names].map((one) => parentGlob(resourceName(one))));
  return ({ name, canonical }) =>
    names.has(name) || names.has(canonical) || canonical === WILDCARD || globs.has(canonical);
}

/** Everything of one type of a stream: looks at no single resource. */
function ofWhole(subscription: Subscription): readonly Missing[] {
  const { responses } = subscription;
  const rejections = [...responses.rejections];
  if (rejections.length > 0) {
    return rejections.map(({ name, message }) => ({ name, state: 'ERROR', why: `rejected: ${message}` }));
  }
  if (subscription.allUnknown) return [unknownYet('')];
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

export const notAcknowledged = 'it was sent, and the client has not acknowledged it';
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

export interface HeldBackQuery extends AcceptanceQuery {
  /** Of these names everybody was given what is asked for: what waits under them is newer. */
  readonly released: ReadonlySet<string>;
}

/** What the relay itself holds back: no client can accept that. `whyNot`: empty if it does not. */
export function heldBack(
  relay: Relay,
  query: HeldBackQuery,
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
export function whyHeldBack(relay: Relay, type: TypeUrl, selector: Selector): string {
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
