import { LRUCache } from 'lru-cache';
import type { TypeUrl } from '../model/brand.ts';
import { numbering } from '../model/maps.ts';
import { internParameters, NO_PARAMETERS, type Parameters } from '../model/parameters.ts';
import { fail, ok, type Result } from '../model/result.ts';
import {
  collectionCovers,
  EMPTY_SELECTION,
  entryId,
  ownId,
  Selection,
  type SelectionEntry,
} from '../model/selection.ts';
import {
  type EarlierState,
  type Encoding,
  encoding,
  type RequestKind,
  type ResendItems,
  type Subscriber,
  type Subscription,
} from '../model/subscription.ts';
import { keptError, quote } from '../model/text.ts';
import { type InTurns, ReadingPace } from '../model/time-slices.ts';
import { type Selector, WILDCARD } from '../model/transaction.ts';
import { type TypeInfo, typeInfo } from '../model/types.ts';
import { authorityOf, canonicalName, isXdstp } from '../model/xdstp.ts';
import {
  type Locator,
  type Request,
  readSelectorsInTurns,
  readVersions,
  type SelectorFields,
  sotwSelectors,
  subscribed,
  unsubscribed,
} from '../wire/requests.ts';
import type { Quota } from './admission.ts';
import type { ClientContext, DownstreamServices } from './services.ts';

/**
 * Envoy's listeners wait for these until they come, or until initial_fetch_timeout. A response that removes one that
 * never came ends that time, and is ignored: the listener waits for ever, and so does an Envoy that starts (E, 1.40).
 */
const waitedFor: ReadonlySet<string> = new Set(['rds', 'ecds']);

/** The bytes that a selection was read from, so that whoever sends the same needs no reading. */
const sources = new WeakMap<Selection, Buffer>();

export interface Handled {
  readonly kind: RequestKind;
  /** The subscription changed: it counts against the rate limit. */
  readonly changed: boolean;
  /** The names were read, though they are the same in another order: that counts if they are many. */
  readonly reread: boolean;
  /** Of this type on the stream. */
  readonly isFirst: boolean;
}

/** What a stream gives to each of its types. */
export interface StreamContext extends Subscriber {
  readonly services: DownstreamServices;
  readonly quota: Quota;
  /** One of its types is about to subscribe to something else. */
  readonly changing: () => void;
}

/**
 * One type on one stream: what the client's requests make of its subscription. A SotW request says all that the client
 * subscribes to (protocol §3), a delta request what changes in it (§4): either is a step from one selection to the next.
 */
export class TypeStream {
  readonly info: TypeInfo;
  readonly #context: StreamContext;
  #encoding: Encoding;
  /** Undefined before the first request. */
  subscription: Subscription | undefined;
  /** A request named something, which counts in SotW. */
  #hasNamed = false;
  /** The last SotW request named nothing. */
  #namedNothing = false;

  constructor(type: TypeUrl, protocol: Encoding['protocol'], client: ClientContext, context: StreamContext) {
    this.info = typeInfo(type);
    this.#context = context;
    const { services } = context;
    this.#encoding = encoding({
      protocol,
      wrapped: client.wrapped,
      ttl: client.ttl,
      constrained: services.constrained(),
      contentVersions: protocol === 'sotw' && services.contentVersions(),
      unknownNames: client.unknownNames,
      absencesUnsaid: protocol === 'delta' && client.isEnvoy && waitedFor.has(this.info.short),
    });
  }

  get selection(): Selection {
    return this.subscription?.view.selection ?? EMPTY_SELECTION;
  }

  /**
   * Whether a request changes nothing of what is subscribed, as its bytes show: in SotW they name what the request before
   * named, or nothing as that did; in delta they name nothing.
   */
  repeats(request: Request): boolean {
    if (this.subscription === undefined) return false;
    const { kind, subscribe, unsubscribe, initialVersions } = request;
    if (kind === 'delta')
      return subscribe === undefined && unsubscribe === undefined && initialVersions === undefined;
    if (subscribe === undefined || this.#namedNothing) return this.#namedNothing && subscribe === undefined;
    return sources.get(this.subscription.view.selection)?.equals(subscribe) === true;
  }

  /**
   * `request` is one of the stream's protocol. A large one is read a part in each turn of the event loop, and what it
   * subscribes to is made in turns.
   */
  *handle(request: Request, client: ClientContext, isLarge = false): InTurns<Result<Handled>> {
    if (this.#mayTakeBack(request)) this.#context.changing();
    const kind = this.#kindOf(request);
    // In delta the nonce does not gate what it subscribes to (§4.3); it answers only an outstanding response.
    if (kind === 'stale' && request.kind === 'sotw') return unchanged.stale;
    // Most requests are ACKs.
    if (this.repeats(request) || !this.#admitsLists(request, client)) return unchanged[kind];
    if (request.kind === 'sotw') this.#namedNothing = request.subscribe === undefined;
    const step = yield* this.#step(request, client);
    if (!step.ok) return step;
    yield;
    return yield* this.#apply(step.value, request, kind, client, isLarge);
  }

  /**
   * With the nonce of what it rejects a request is an ACK of that (§3.4), though it may only unsubscribe it. Others cost
   * no look here: they leave what was rejected as it is, at least until `#select`.
   */
  #mayTakeBack(request: Request): boolean {
    const { responses } = this.subscription ?? {};
    const kind = responses?.classify(request.nonce, request.error !== undefined);
    return kind === 'ack' && !this.repeats(request) && responses?.state === 'ERROR';
  }

  *#apply(
    step: Step,
    request: Request,
    kind: RequestKind,
    client: ClientContext,
    isLarge: boolean,
  ): InTurns<Result<Handled>> {
    const isFirst = this.subscription === undefined;
    const earlier = isFirst ? this.#earlierState(request, step, client) : none;
    if (!earlier.ok) return earlier;
    if (!step.changed) {
      if (request.kind === 'delta') return unchanged[kind];
      // The node has changed since, and with it what the bytes select.
      rememberSource(this.selection, request.subscribe);
      return ok({ kind, changed: false, reread: true, isFirst });
    }
    if (!this.#context.quota.step(this, step, client)) return unchanged[kind];
    yield;
    const { services } = this.#context;
    const prepared = isLarge && (yield* services.prepare(this.info.url, step.selection, client.access));
    let subscription: Subscription;
    try {
      yield;
      subscription = this.#select(step, client);
    } finally {
      if (prepared !== false) prepared();
    }
    if (request.kind === 'sotw') rememberSource(subscription.view.selection, request.subscribe);
    if (earlier.value !== undefined) subscription.resume(earlier.value);
    return ok({ kind: kind === 'stale' ? 'subscribe' : kind, changed: true, reread: false, isFirst });
  }

  /**
   * The client's node or its access has changed: the same names are selected again with the new parameters. False: a locator
   * would have others too, by a trusted rule. The client has to ask anew.
   */
  reselect(client: ClientContext): boolean {
    // The client features may have changed. Whether constraints are sent does not change: a removal must be in the
    // form in which the resource was sent.
    this.#encoding = encoding({ ...this.#encoding, wrapped: client.wrapped, ttl: client.ttl });
    if (this.subscription === undefined) return true;
    this.subscription.encoding = this.#encoding;
    const before = [...this.selection.listed.values()];
    const selected = before.map((one) => reselect(one, client));
    const changed = selected.filter((one, index) => one.parameters !== before[index]?.parameters);
    if (changed.some(({ locator }) => locator)) return false;
    const selection = changed.length === 0 ? this.selection : Selection.of(selected);
    this.subscription.select(selection, client.access, nothing, []);
    return true;
  }

  /** EDS that a change of clusters calls for (protocol §10.1). */
  resend(ids: ResendItems): void {
    this.subscription?.resend(ids);
  }

  close(): void {
    this.subscription?.close();
  }

  #kindOf({ kind: protocol, nonce, error }: Request): RequestKind {
    if (protocol === 'delta' && nonce === '') return 'subscribe';
    const { clock } = this.#context.services;
    const said = error && { code: error.code, message: keptError(error.message), at: clock.now() };
    const kind = this.subscription?.answer(nonce, said) ?? 'first';
    if (kind === 'ack' || kind === 'nack' || kind === 'stale') return kind;
    return protocol === 'sotw' ? 'subscribe' : 'stale';
  }

  #admitsLists(request: Request, client: ClientContext): boolean {
    const { quota } = this.#context;
    if (request.kind === 'sotw') return quota.names(request.subscribe, sotwSelectors, client);
    return (
      quota.names(request.subscribe, subscribed, client) &&
      quota.names(request.unsubscribe, unsubscribed, client) &&
      quota.versions(request.initialVersions, client)
    );
  }

  /** What a request makes of the subscription. The first delta request says everything, unless it unsubscribes something. */
  *#step(request: Request, client: ClientContext): InTurns<Result<Step>> {
    const { kind, subscribe } = request;
    const before = this.subscription?.view.selection;
    if (kind === 'delta' && (before !== undefined || request.unsubscribe !== undefined))
      return yield* this.#stepDelta(request, client);
    if (kind === 'sotw' && subscribe === undefined && this.#hasNamed)
      return ok(stepTo(before, EMPTY_SELECTION));
    if (subscribe !== undefined) this.#hasNamed = true;
    const read = yield* selectState(subscribe, this.info.url, client, this.#context.services, kind);
    return read.ok ? ok(stepTo(before, read.value)) : read;
  }

  *#stepDelta(request: Request, client: ClientContext): InTurns<Result<Step>> {
    const { url } = this.info;
    const subscribe = yield* selectInTurns(request.subscribe, subscribed, url, client);
    if (!subscribe.ok) return subscribe;
    const unsubscribe = yield* selectInTurns(request.unsubscribe, unsubscribed, url, client);
    if (!unsubscribe.ok) return unsubscribe;
    yield;
    const isFirst = this.subscription === undefined;
    const wildcard = legacyWildcard(url, client, this.#context.services);
    return ok(stepDelta(this.selection, isFirst, subscribe.value, unsubscribe.value, wildcard));
  }

  /** What the first request says of earlier streams; undefined: nothing. */
  #earlierState(
    request: Request,
    { selection }: Step,
    client: ClientContext,
  ): Result<EarlierState | undefined> {
    if (request.kind === 'sotw') return ok(this.#earlierNames(selection, request.version, client));
    const { initialVersions } = request;
    const versions = initialVersions && readVersions(initialVersions);
    if (versions?.ok === false) return versions;
    return ok({ initialVersions: versions?.value, waitForAll: client.relay });
  }

  /**
   * The client reconnects. Resources that it may have must not be deleted while they are unknown. If its version shows that
   * it has everything, nothing is sent. A relay may have nothing itself, but its clients may.
   */
  #earlierNames(selection: Selection, version: string, { relay }: ClientContext): EarlierState | undefined {
    if (version === '' && !relay) return undefined;
    const possiblyHeld = new Set<string>();
    for (const { requestedName } of selection.entries.values()) possiblyHeld.add(requestedName);
    const everything = selection.size === 1 && selection.collections[0]?.selector === WILDCARD;
    const isComparable =
      this.#encoding.contentVersions && this.info.fullState && everything && version !== '';
    return { possiblyHeld, contentVersion: isComparable ? version : undefined };
  }

  /** Subscribes to this from now on. */
  #select({ selection, resend, mustAnswer }: Step, { access }: ClientContext): Subscription {
    const { services } = this.#context;
    if (this.subscription === undefined)
      this.subscription = services.open(this.info.url, this.#encoding, selection, access, this.#context);
    else {
      this.#context.changing();
      this.subscription.select(selection, access, resend, mustAnswer);
    }
    return this.subscription;
  }
}

function rememberSource(selection: Selection, selectors: Buffer | undefined): void {
  if (selectors === undefined || sources.has(selection)) return;
  sources.set(selection, Buffer.from(selectors));
}

const none: Result<undefined, never> = ok(undefined);

const nothingChanged = (kind: RequestKind): Result<Handled, never> =>
  ok({ kind, changed: false, reread: false, isFirst: false });

/** What requests come to that change nothing. Most are ACKs. */
const unchanged = {
  subscribe: nothingChanged('subscribe'),
  ack: nothingChanged('ack'),
  nack: nothingChanged('nack'),
  stale: nothingChanged('stale'),
} as const;

/** More on one locator is no locator but an attack. */
const maxParameters = 128;
const maxParameterLength = 4096;
/** A name with 128 parameters takes 0.1 ms. */
const selectedPerTurn = 500;

/** What a plain name selects for this client. */
export function selectName(name: string, type: TypeUrl, client: ClientContext): Result<SelectionEntry> {
  return select(name, client.passesVariants ? NO_PARAMETERS : undefined, type, client);
}

/** What a TP2 locator selects for this client. */
export function selectLocator(
  { name, parameters }: Locator,
  type: TypeUrl,
  client: ClientContext,
): Result<SelectionEntry> {
  if (parameters.length > maxParameters) {
    return fail(
      `locator ${quote(name, 80)} has ${parameters.length} dynamic parameters: at most ${maxParameters} are accepted`,
    );
  }
  for (const [key, value] of parameters) {
    if (key.length > maxParameterLength || value.length > maxParameterLength) {
      return fail(
        `dynamic parameter ${quote(key, 80)} of locator ${quote(name, 80)} is too long: at most ${maxParameterLength} characters are accepted`,
      );
    }
  }
  return select(name, internParameters(parameters), type, client);
}

function select(
  requestedName: string,
  locatorParameters: Parameters | undefined,
  type: TypeUrl,
  client: ClientContext,
): Result<SelectionEntry> {
  const canonical = requestedName === WILDCARD ? ok(WILDCARD) : canonicalName(requestedName, type);
  if (!canonical.ok) return canonical;
  const locator = locatorParameters !== undefined;
  const parameters = parametersOf(requestedName, locatorParameters, client);
  return ok({ selector: canonical.value, requestedName, locator, parameters, locatorParameters });
}

function parametersOf(requestedName: string, own: Parameters | undefined, client: ClientContext): Parameters {
  const authority = requestedName === WILDCARD ? undefined : authorityOf(requestedName);
  return own === undefined ? client.derived(authority) : client.merged(own, authority);
}

/** What the names and locators in a range of a request select for this client, a part in each turn of the event loop. */
function* selectInTurns(
  range: Buffer | undefined,
  fields: SelectorFields,
  type: TypeUrl,
  client: ClientContext,
): InTurns<Result<readonly SelectionEntry[]>> {
  const read = yield* readSelectorsInTurns(range, fields);
  if (!read.ok) return read;
  const pace = new ReadingPace(selectedPerTurn);
  const list: SelectionEntry[] = [];
  const { names, locators } = read.value;
  for (const some of [names, locators]) {
    for (const one of some) {
      if (pace.isTurnOver(0)) yield;
      const selected =
        typeof one === 'string' ? selectName(one, type, client) : selectLocator(one, type, client);
      if (!selected.ok) return selected;
      list.push(selected.value);
    }
  }
  return ok(list);
}

/** The same subscription of a client whose node, certificate or rules have changed. */
export function reselect(selected: SelectionEntry, client: ClientContext): SelectionEntry {
  const { requestedName, locatorParameters } = selected;
  return { ...selected, parameters: parametersOf(requestedName, locatorParameters, client) };
}

/** The bytes of a request that names nothing. */
const nothingNamed = Buffer.alloc(0);

/** What an empty first request selects; undefined: nothing. */
function legacyWildcard(
  type: TypeUrl,
  client: ClientContext,
  services: Pick<DownstreamServices, 'legacyWildcard'>,
): SelectionEntry | undefined {
  if (!services.legacyWildcard(type)) return undefined;
  const selected = selectName(WILDCARD, type, client);
  return selected.ok ? selected.value : undefined;
}

/**
 * What the names of a request subscribe to that says everything. Nothing named means everything, for types that have a legacy
 * wildcard; in SotW and polls empty names alone mean nothing (§3.6).
 */
export function namedSelection(
  selected: readonly SelectionEntry[],
  wildcard: SelectionEntry | undefined,
  protocol: Encoding['protocol'] = 'sotw',
): Selection {
  if (selected.length === 0 && wildcard !== undefined) return Selection.of([wildcard]);
  const isNothing = protocol === 'sotw' && selected.every(({ requestedName }) => requestedName === '');
  return isNothing ? EMPTY_SELECTION : Selection.of(selected);
}

/** What a request selects that says everything: SotW, the first one in delta, or a poll. */
export function* selectState(
  selectors: Buffer | undefined,
  type: TypeUrl,
  client: ClientContext,
  services: Pick<DownstreamServices, 'legacyWildcard'>,
  protocol: Encoding['protocol'] = 'sotw',
): InTurns<Result<Selection>> {
  const bytes = selectors ?? nothingNamed;
  const key = keyOf(client, type, bytes);
  const known = knownSelections[protocol].get(key)?.deref();
  if (known !== undefined) return ok(known);
  const fields = protocol === 'sotw' ? sotwSelectors : subscribed;
  const selected = yield* selectInTurns(bytes, fields, type, client);
  if (!selected.ok) return selected;
  yield;
  const selection = namedSelection(selected.value, legacyWildcard(type, client, services), protocol);
  if (key !== '') knownSelections[protocol].set(key, new WeakRef(selection));
  return ok(selection);
}

const numberOf = numbering();

/** Of the bytes that selections are known by, in all. */
const mostKnownBytes = 4 << 20;

/**
 * Selections by the bytes that they were read from. When a fleet reconnects, its clients send the same names: they are
 * read once, and all clients share one selection, which may go when no stream has it any more. The bytes stay then; requests
 * of a fleet that names more are read each time.
 */
const selections = () =>
  new LRUCache<string, WeakRef<Selection>>({
    max: 32,
    maxSize: mostKnownBytes,
    sizeCalculation: (_, bytes) => bytes.length,
  });

/** For clients of one selection group, the same bytes select the same. Empty: it is not kept, as nobody would find it again. */
const keyOf = ({ selectionGroup, passesVariants }: ClientContext, type: TypeUrl, bytes: Buffer): string =>
  // Of a relay of variants the group is the client alone.
  passesVariants || bytes.length >= mostKnownBytes
    ? ''
    : `${numberOf(selectionGroup)} ${type} ${bytes.toString('latin1')}`;

/** An empty name is a name in delta, and nothing in SotW (§3.6). */
const knownSelections = { sotw: selections(), delta: selections() };

/** What a request changes. */
interface Step {
  readonly selection: Selection;
  /** Ids of items to be sent even if the client has them: a subscribe must be answered (protocol §4.2). */
  readonly resend: ReadonlySet<string>;
  /** Names that were unsubscribed while a wildcard or glob covers them: the response says whether they exist (§4.5). */
  readonly mustAnswer: readonly SelectionEntry[];
  readonly changed: boolean;
}

const nothing: ReadonlySet<string> = new Set();

/** The step to a selection that is said as a whole. What is added is sent even if it is unchanged (protocol §3.5). */
function stepTo(before: Selection | undefined, selection: Selection): Step {
  if (before === undefined) return { selection, resend: nothing, mustAnswer: [], changed: true };
  if (selection.equals(before)) return { selection: before, resend: nothing, mustAnswer: [], changed: false };
  const added = new Set<string>();
  for (const id of selection.entries.keys()) if (!before.has(id)) added.add(id);
  return { selection, resend: added, mustAnswer: [], changed: true };
}

/**
 * What a delta request of one type makes of the subscription. Nonces have no part in it (§4.3).
 * Pure. Subscribes are applied before unsubscribes (§4.4). `first`: on the stream, of this type. `wildcard`: what an empty
 * first request subscribes to; undefined for types without a legacy wildcard.
 */
function stepDelta(
  before: Selection,
  first: boolean,
  subscribe: readonly SelectionEntry[],
  unsubscribe: readonly SelectionEntry[],
  wildcard: SelectionEntry | undefined,
): Step {
  const implied = first && subscribe.length === 0 ? wildcard : undefined;
  if (implied === undefined && subscribe.length === 0 && unsubscribe.length === 0) {
    return { selection: before, resend: nothing, mustAnswer: [], changed: first };
  }
  const listed = new Map(implied === undefined ? before.listed : [[ownId(implied), implied]]);
  for (const selected of subscribe) listed.set(ownId(selected), selected);
  const unlisted = drop(listed, unsubscribe);
  const selection = Selection.of(listed.values());
  const dropped = unlisted.filter((selected) => !selection.has(entryId(selected)));
  // Also if it is not subscribed now: a name that was unsubscribed counts as never sent (§4.5).
  const again = first ? [] : subscribe.map(entryId).filter((id) => selection.has(id));
  const mustAnswer = dropped.filter((selected) =>
    selection.collectionsOver(selected.selector).some((collection) => collectionCovers(collection, selected)),
  );
  return { selection, resend: new Set(again), mustAnswer, changed: true };
}

/**
 * Takes the one with this spelling, else the equal ones: the order of context parameters does not count (protocol §6).
 * Unknown names are ignored (§4.5). An entry is unsubscribed with the last locator that leads to it.
 */
function drop(
  listed: Map<string, SelectionEntry>,
  unsubscribe: readonly SelectionEntry[],
): readonly SelectionEntry[] {
  const dropped: SelectionEntry[] = [];
  let bySelector: ReadonlyMap<Selector, readonly SelectionEntry[]> | undefined;
  for (const selected of unsubscribe) {
    const exact = listed.get(ownId(selected));
    let meant = exact === undefined ? [] : [exact];
    if (exact === undefined && isXdstp(selected.requestedName)) {
      bySelector ??= Map.groupBy(listed.values(), ({ selector }) => selector);
      meant = (bySelector.get(selected.selector) ?? []).filter(
        ({ locatorParameters }) => locatorParameters === selected.locatorParameters,
      );
    }
    for (const one of meant) if (listed.delete(ownId(one))) dropped.push(one);
  }
  return dropped;
}

/** With fewer bytes of names, locators and versions a request is handled at once. */
export const largeBytes = 32 * 1024;

/** `bytes`: of the whole message. Nearly every request is an ACK: it is told by that alone. */
export function isLarge(request: Request, bytes: number, from = largeBytes): boolean {
  return bytes >= from && bytesOf(request) >= from;
}

/** The buffer of a request is used again when `message` returns, so what is read later is copied. */
export function copyOf(request: Request): Request {
  const { subscribe, unsubscribe, initialVersions } = request;
  return {
    ...request,
    subscribe: copied(subscribe),
    unsubscribe: copied(unsubscribe),
    initialVersions: copied(initialVersions),
  };
}

/** Of its names, locators and versions. */
export const bytesOf = ({ subscribe, unsubscribe, initialVersions }: Request): number =>
  [subscribe, unsubscribe, initialVersions].reduce((sum, list) => sum + (list?.length ?? 0), 0);

const copied = (range: Buffer | undefined): Buffer | undefined => range && Buffer.from(range);
