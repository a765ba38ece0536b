import type { TypeUrl } from '../model/brand.ts';
import { keptError } from '../model/error-text.ts';
import { NO_PARAMETERS } from '../model/parameters.ts';
import { ok, type Result } from '../model/result.ts';
import { EMPTY_SELECTION, Selection, type SelectionEntry } from '../model/selection.ts';
import {
  type EarlierState,
  type Encoding,
  encoding,
  type RequestKind,
  type ResendItems,
  type Subscriber,
  type Subscription,
} from '../model/subscription.ts';
import { WILDCARD } from '../model/transaction.ts';
import type { InTurns } from '../model/turns.ts';
import { type TypeInfo, typeInfo } from '../model/types.ts';
import {
  type DeltaRequest,
  readVersions,
  type SelectorFields,
  type SotwRequest,
  sotwSelectors,
  subscribed,
  unsubscribed,
} from '../wire/requests.ts';
import { type Admission, excessOfNames } from './admission.ts';
import {
  knownSelections,
  legacyWildcard,
  nothingNamed,
  reselect,
  selectAll,
  selectInTurns,
  selectState,
} from './selecting.ts';
import type { ClientContext, DownstreamServices } from './services.ts';
import { SotwNames, type Step, stepDelta, stepTo } from './steps.ts';

/**
 * Envoy's listeners wait for these until they come, or until initial_fetch_timeout. A response that removes one that
 * never came ends that time, and is ignored: the listener waits for ever, and so does an Envoy that starts (E, 1.40).
 */
const waitedFor: ReadonlySet<string> = new Set(['rds', 'ecds']);

/** What `readAhead` has read for one client, until the request is handled. */
const readBefore = new WeakMap<Buffer, Result<readonly SelectionEntry[]>>();

/** The bytes that a selection was read from, so that whoever sends the same needs no reading. */
const sources = new WeakMap<Selection, Buffer>();

export type Request = SotwRequest | DeltaRequest;

export interface Handled {
  readonly kind: RequestKind;
  /** The subscription changed: it counts against the rate limit. */
  readonly changed: boolean;
  /** The names were read, though they are the same in another order: that counts if they are many. */
  readonly reread: boolean;
}

/** What a stream gives to each of its types. */
export interface StreamContext extends Subscriber {
  readonly services: DownstreamServices;
  readonly limits: Admission;
}

/**
 * One type on one stream: what the client's requests make of its subscription. A SotW request says all that the client
 * subscribes to (protocol §3), a delta request what changes in it (§4): either is a step from one selection to the next.
 */
export class TypeStream {
  readonly info: TypeInfo;
  readonly #context: StreamContext;
  #encoding: Encoding;
  #subscription: Subscription | undefined;
  /** The limits allow it: `readAhead` has asked. */
  #admitted: Selection | undefined;
  /** Of a request that is read ahead. */
  #ahead: readonly [request: Request, step: Result<Step>] | undefined;
  /** Of SotW requests. */
  readonly #names = new SotwNames();
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
      unknownNames: protocol === 'sotw' && client.unknownNames,
      absencesUnsaid: protocol === 'delta' && client.isEnvoy && waitedFor.has(this.info.short),
    });
  }

  /** Undefined before the first request. */
  get subscription(): Subscription | undefined {
    return this.#subscription;
  }

  get selection(): Selection {
    return this.#subscription?.selection ?? EMPTY_SELECTION;
  }

  /** Some of its locators came with dynamic parameters. */
  get hasOwnParameters(): boolean {
    return this.selection.entries
      .values()
      .some(({ locatorParameters = NO_PARAMETERS }) => locatorParameters !== NO_PARAMETERS);
  }

  /** Whether equal bytes show that a request names what the one before named, or nothing as that did. */
  repeats(request: Request): boolean {
    if (request.kind === 'delta' || this.#subscription === undefined) return false;
    const { selectors } = request;
    if (selectors === undefined || this.#namedNothing) return this.#namedNothing && selectors === undefined;
    return sources.get(this.#subscription.selection)?.equals(selectors) === true;
  }

  /**
   * Reads a large request before `handle` is called with it, a part in each turn of the event loop, and makes what it
   * subscribes to. What is returned must be called after that.
   */
  *readAhead(request: Request, client: ClientContext): InTurns<(() => void) | undefined> {
    const limits = this.#context.services.limits();
    for (const [range, fields] of listsOf(request)) {
      // `handle` refuses it.
      if (!client.exempt && excessOfNames(range, fields, limits) !== undefined) return undefined;
      if (range !== undefined)
        readBefore.set(range, yield* selectInTurns(range, fields, this.info.url, client));
    }
    yield;
    // What a stale SotW request names does not count.
    const lastNonce = this.#subscription?.responses.lastNonce;
    if (request.kind === 'sotw' && lastNonce !== undefined && lastNonce !== request.nonce) return undefined;
    const step = this.#step(request, client);
    this.#ahead = [request, step];
    if (!step.ok || !step.value.changed || step.value.selection.equals(this.selection)) return undefined;
    const { selection } = step.value;
    yield;
    if (!this.#context.limits.selection(this, selection, client)) return undefined;
    this.#admitted = selection;
    yield;
    return yield* this.#context.services.prepare(this.info.url, selection, client.access);
  }

  /** `request` is one of the stream's protocol. */
  handle(request: Request, client: ClientContext): Result<Handled> {
    const kind = this.#kindOf(request);
    // In delta the nonce does not gate what it subscribes to (§4.3); it answers only an outstanding response.
    if (kind === 'stale' && request.kind === 'sotw') return unchanged.stale;
    // Most requests are ACKs that repeat the selection: equal bytes show that without reading the names.
    if (this.repeats(request) || !this.#admitsLists(request, client)) return unchanged[kind];
    if (request.kind === 'sotw') this.#namedNothing = request.selectors === undefined;
    const step = this.#takeAhead(request) ?? this.#step(request, client);
    return step.ok ? this.#apply(step.value, request, kind, client) : step;
  }

  #takeAhead(request: Request): Result<Step> | undefined {
    const [ahead, step] = this.#ahead ?? [];
    this.#ahead = undefined;
    return ahead === request ? step : undefined;
  }

  #apply(step: Step, request: Request, kind: RequestKind, client: ClientContext): Result<Handled> {
    const earlier = this.#subscription === undefined ? this.#earlierState(request, step, client) : none;
    if (!earlier.ok) return earlier;
    if (!step.changed) {
      if (request.kind === 'delta') return unchanged[kind];
      // The node has changed since, and with it what the bytes select.
      rememberSource(this.selection, request.selectors);
      return ok({ kind, changed: false, reread: true });
    }
    const subscription = this.#select(step, client);
    if (subscription === undefined) return unchanged[kind];
    if (request.kind === 'sotw') rememberSource(subscription.selection, request.selectors);
    if (earlier.value !== undefined) subscription.resume(earlier.value);
    return ok({ kind: kind === 'stale' ? 'subscribe' : kind, changed: true, reread: false });
  }

  /** The client's node or its access has changed: the same names are selected again with the new parameters. */
  reselect(client: ClientContext): void {
    // The client features may have changed. Whether constraints are sent does not change: a removal must be in the
    // form in which the resource was sent.
    this.#encoding = encoding({ ...this.#encoding, wrapped: client.wrapped, ttl: client.ttl });
    if (this.#subscription === undefined) return;
    this.#subscription.encoding = this.#encoding;
    const selected = [...this.selection.entries.values()].map((one) => reselect(one, client));
    this.#subscription.select(Selection.of(selected), client.access, new Set(), []);
  }

  /** EDS that a change of clusters calls for (protocol §10.1). */
  resend(ids: ResendItems): void {
    this.#subscription?.resend(ids);
  }

  close(): void {
    this.#subscription?.close();
  }

  #kindOf({ kind: protocol, nonce, error }: Request): RequestKind {
    if (protocol === 'delta' && nonce === '') return 'subscribe';
    const { clock } = this.#context.services;
    const said = error && { code: error.code, message: keptError(error.message), at: clock.now() };
    const kind = this.#subscription?.answer(nonce, said) ?? 'first';
    if (kind === 'ack' || kind === 'nack' || kind === 'stale') return kind;
    return protocol === 'sotw' ? 'subscribe' : 'stale';
  }

  #admitsLists(request: Request, client: ClientContext): boolean {
    const { limits } = this.#context;
    if (request.kind === 'sotw') return limits.names(request.selectors, sotwSelectors, client);
    return (
      limits.names(request.subscribe, subscribed, client) &&
      limits.names(request.unsubscribe, unsubscribed, client) &&
      limits.versions(request.initialVersions, client)
    );
  }

  /** What a request makes of the subscription. */
  #step(request: Request, client: ClientContext): Result<Step> {
    if (request.kind === 'sotw') {
      const read = this.#state(request.selectors, client);
      return read.ok ? ok(stepTo(this.#subscription?.selection, read.value)) : read;
    }
    if (this.#subscription !== undefined || request.unsubscribe !== undefined)
      return this.#stepDelta(request, client);
    // If many clients send the same first request, it is read once.
    const bytes = request.subscribe ?? nothingNamed;
    const known = knownSelections.find(client.selectionGroup, this.info.url, bytes);
    if (known !== undefined) return ok(stepTo(undefined, known));
    const step = this.#stepDelta(request, client);
    if (step.ok) knownSelections.add(client.selectionGroup, this.info.url, bytes, step.value.selection);
    return step;
  }

  /** All that a SotW request selects. */
  #state(selectors: Buffer | undefined, client: ClientContext): Result<Selection> {
    if (selectors === undefined && this.#names.hasNamed) return ok(EMPTY_SELECTION);
    const read = selectors && readBefore.get(selectors);
    return selectState(selectors, this.info.url, client, this.#context.services, this.#names, read);
  }

  #stepDelta(request: DeltaRequest, client: ClientContext): Result<Step> {
    const { url } = this.info;
    const select = (range: Buffer | undefined, fields: SelectorFields) =>
      (range && readBefore.get(range)) ?? selectAll(range, fields, url, client);
    const subscribe = select(request.subscribe, subscribed);
    if (!subscribe.ok) return subscribe;
    const unsubscribe = select(request.unsubscribe, unsubscribed);
    if (!unsubscribe.ok) return unsubscribe;
    return ok(
      stepDelta(this.selection, {
        first: this.#subscription === undefined,
        subscribe: subscribe.value,
        unsubscribe: unsubscribe.value,
        wildcard: legacyWildcard(url, client, this.#context.services),
      }),
    );
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
    for (const { spelling } of selection.entries.values()) possiblyHeld.add(spelling);
    const everything = selection.size === 1 && selection.collections[0]?.selector === WILDCARD;
    const isComparable =
      this.#encoding.contentVersions && this.info.fullState && everything && version !== '';
    return { possiblyHeld, contentVersion: isComparable ? version : undefined };
  }

  /** Subscribes to this from now on; undefined: the limits do not allow it, and the stream is over. */
  #select({ selection, resend, mustAnswer }: Step, client: ClientContext): Subscription | undefined {
    const { limits, services } = this.#context;
    const isAdmitted = this.#admitted === selection;
    this.#admitted = undefined;
    if (!isAdmitted && !limits.selection(this, selection, client)) return undefined;
    const { access } = client;
    if (this.#subscription === undefined)
      this.#subscription = services.open(this.info.url, this.#encoding, selection, access, this.#context);
    else this.#subscription.select(selection, access, resend, mustAnswer);
    return this.#subscription;
  }
}

/** The names and locators of a request, with the numbers of their fields. */
const listsOf = (
  request: Request,
): readonly (readonly [range: Buffer | undefined, fields: SelectorFields])[] =>
  request.kind === 'sotw'
    ? [[request.selectors, sotwSelectors]]
    : [
        [request.subscribe, subscribed],
        [request.unsubscribe, unsubscribed],
      ];

function rememberSource(selection: Selection, selectors: Buffer | undefined): void {
  if (selectors === undefined || sources.has(selection)) return;
  sources.set(selection, Buffer.from(selectors));
}

const none: Result<undefined, never> = ok(undefined);

const nothingChanged = (kind: RequestKind): Result<Handled, never> =>
  ok({ kind, changed: false, reread: false });

/** What requests come to that change nothing. Most are ACKs. */
const unchanged = {
  subscribe: nothingChanged('subscribe'),
  ack: nothingChanged('ack'),
  nack: nothingChanged('nack'),
  stale: nothingChanged('stale'),
} as const;
