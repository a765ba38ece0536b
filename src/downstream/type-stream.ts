import type { TypeUrl } from '../model/brand.ts';
import { NO_PARAMETERS } from '../model/parameters.ts';
import { fail, ok, type Result } from '../model/result.ts';
import { EMPTY_SELECTION, Selection, type SelectionEntry } from '../model/selection.ts';
import {
  type Encoding,
  encoding,
  type ResendItems,
  type Response,
  type Subscription,
} from '../model/subscription.ts';
import { shorten } from '../model/text.ts';
import { WILDCARD } from '../model/transaction.ts';
import { type TypeInfo, typeInfo } from '../model/types.ts';
import { longestText } from '../observe/format.ts';
import {
  type DeltaRequest,
  type ErrorDetail,
  readSelectors,
  readVersions,
  type SelectorFields,
  type SotwRequest,
  sotwSelectors,
  subscribed,
  unsubscribed,
} from '../wire/requests.ts';
import { type DeltaStep, stepDelta } from './delta.ts';
import { KnownSelections } from './known-selections.ts';
import { reselect, selectLocator, selectName } from './selecting.ts';
import type { ClientContext, DownstreamServices, RequestKind } from './services.ts';
import { SotwConversation } from './sotw.ts';

/** The bytes that a selection was read from, so that whoever sends the same needs no reading. */
const sources = new WeakMap<Selection, Buffer>();

const knownSelections = new KnownSelections();

/** The bytes of a request that names nothing. */
const nothingNamed = Buffer.alloc(0);

/** Whether the client has accepted or rejected the last response (protocol §9). */
export type SyncState = 'SYNCED' | 'NOT_SENT' | 'STALE' | 'ERROR';

/** What a client said against a response. */
export interface Rejection extends ErrorDetail {
  /** Milliseconds since the epoch. */
  readonly at: number;
  /** The resource, where the response brought only one; else empty. */
  readonly names: string;
}

export interface Handled {
  readonly kind: RequestKind;
  /** The subscription changed: it counts against the rate limit. */
  readonly changed: boolean;
  /** The names were read, though they are the same in another order: that counts if they are many. */
  readonly reread: boolean;
}

/** The stream's limits, asked before they are passed. False: this was too much, and the stream is over. */
export interface SubscriptionLimits {
  /** Before names are read. */
  names(range: Buffer | undefined, fields: SelectorFields, client: ClientContext): boolean;
  /** Before initial_resource_versions are read. */
  versions(range: Buffer | undefined, client: ClientContext): boolean;
  /** Before a selection is acted on. */
  selection(type: TypeStream, selection: Selection, client: ClientContext): boolean;
}

/** One type on one stream: the conversation, and the client's share of what the relay holds. */
export class TypeStream {
  readonly info: TypeInfo;
  readonly #services: DownstreamServices;
  readonly #wake: () => void;
  readonly #limits: SubscriptionLimits;
  readonly #sotw: SotwConversation | undefined;
  #encoding: Encoding;
  #subscription: Subscription | undefined;
  /** The last SotW request named nothing. */
  #namedNothing = false;
  /** Of what was sent last; empty if nothing was. */
  #nonce = '';
  #serial = 0;
  #version = '';
  /** The resource in it, if it brought only one. */
  #singleResource = '';
  #state: SyncState = 'NOT_SENT';
  #lastNack: Rejection | undefined;

  constructor(
    type: TypeUrl,
    protocol: 'sotw' | 'delta',
    client: ClientContext,
    services: DownstreamServices,
    wake: () => void,
    admission: SubscriptionLimits,
  ) {
    this.info = typeInfo(type);
    this.#services = services;
    this.#wake = wake;
    this.#limits = admission;
    this.#sotw = protocol === 'sotw' ? new SotwConversation() : undefined;
    this.#encoding = encoding({
      protocol,
      wrapped: client.wrapped,
      ttl: client.ttl,
      constrained: services.constrained(),
      contentVersions: protocol === 'sotw' && services.contentVersions(),
    });
  }

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

  get version(): string {
    return this.#version;
  }

  get state(): SyncState {
    return this.#state;
  }

  get lastNack(): Rejection | undefined {
    return this.#lastNack;
  }

  handleSotw(request: SotwRequest, client: ClientContext): Result<Handled> {
    const conversation = this.#sotw;
    if (conversation === undefined) return fail('a SotW request on a delta stream');
    const kind = conversation.classify(request.nonce, request.error !== undefined);
    if (kind === 'stale') return unchanged.stale;
    this.#acknowledge(kind, request.error, request.nonce);
    const counted: RequestKind = kind === 'ack' || kind === 'nack' ? kind : 'subscribe';
    // Most requests are ACKs that repeat the selection: the bytes tell without reading the names.
    if (this.#repeatsSelection(request.selectors)) return unchanged[counted];
    if (!this.#limits.names(request.selectors, sotwSelectors, client)) return unchanged[counted];
    this.#namedNothing = request.selectors === undefined;
    const read = this.#sotwSelection(conversation, request.selectors, client);
    if (!read.ok) return read;
    const selection = read.value;
    const before = this.selection;
    const first = this.#subscription === undefined;
    if (!first && selection.equals(before)) {
      // The node has changed since, and with it what the bytes select.
      if (request.selectors !== undefined && !sources.has(before)) {
        sources.set(before, Buffer.from(request.selectors));
      }
      return ok({ kind: counted, changed: false, reread: true });
    }
    const again = first ? new Set<string>() : added(before, selection);
    const subscription = this.#select(selection, client, again, []);
    if (subscription === undefined) return unchanged[counted];
    if (request.selectors !== undefined && !sources.has(subscription.selection)) {
      sources.set(subscription.selection, Buffer.from(request.selectors));
    }
    if (first && (request.version !== '' || client.relay)) {
      this.#resume(subscription, selection, request.version);
    }
    return ok({ kind: first || kind === 'change' ? 'subscribe' : counted, changed: true, reread: false });
  }

  handleDelta(request: DeltaRequest, client: ClientContext): Result<Handled> {
    const first = this.#subscription === undefined;
    const kind = this.#deltaKind(request);
    if (!this.#admitsLists(request, client)) return unchanged[kind];
    const only = first && request.unsubscribe === undefined ? (request.subscribe ?? nothingNamed) : undefined;
    const known =
      only === undefined ? undefined : knownSelections.find(client.selectionGroup, this.info.url, only);
    const step = known === undefined ? this.#deltaStep(request, client) : ok(firstStep(known));
    if (!step.ok) return step;
    const claimed =
      first && request.initialVersions !== undefined ? readVersions(request.initialVersions) : undefined;
    if (claimed?.ok === false) return claimed;
    const { selection, resend, mustAnswer, changed } = step.value;
    if (!changed) return unchanged[kind];
    if (only !== undefined && known === undefined)
      knownSelections.add(client.selectionGroup, this.info.url, only, selection);
    const subscription = this.#select(selection, client, resend, mustAnswer);
    if (subscription === undefined) return unchanged[kind];
    if (first) subscription.resume({ initialVersions: claimed?.value, waitForAll: client.relay });
    return ok({ kind: kind === 'stale' ? 'subscribe' : kind, changed: true, reread: false });
  }

  #admitsLists({ subscribe, unsubscribe, initialVersions }: DeltaRequest, client: ClientContext): boolean {
    return (
      this.#limits.names(subscribe, subscribed, client) &&
      this.#limits.names(unsubscribe, unsubscribed, client) &&
      this.#limits.versions(initialVersions, client)
    );
  }

  #deltaStep(request: DeltaRequest, client: ClientContext): Result<DeltaStep> {
    const subscribe = this.#selected(request.subscribe, subscribed, client);
    if (!subscribe.ok) return subscribe;
    const unsubscribe = this.#selected(request.unsubscribe, unsubscribed, client);
    if (!unsubscribe.ok) return unsubscribe;
    return ok(
      stepDelta(this.selection, {
        first: this.#subscription === undefined,
        subscribe: subscribe.value,
        unsubscribe: unsubscribe.value,
        wildcard: this.#legacyWildcard(client),
      }),
    );
  }

  /** What the names and locators in a range of a request select for this client. */
  #selected(
    range: Buffer | undefined,
    fields: SelectorFields,
    client: ClientContext,
  ): Result<readonly SelectionEntry[]> {
    const read = readSelectors(range, fields);
    if (!read.ok) return read;
    const list: SelectionEntry[] = [];
    for (const name of read.value.names) {
      const selected = selectName(name, this.info.url, client);
      if (!selected.ok) return selected;
      list.push(selected.value);
    }
    for (const locator of read.value.locators) {
      const selected = selectLocator(locator, this.info.url, client);
      if (!selected.ok) return selected;
      list.push(selected.value);
    }
    return ok(list);
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

  take(keepRemoved: boolean): Response | undefined {
    const response = this.#subscription?.take(keepRemoved);
    if (response === undefined) return undefined;
    this.#sotw?.sent(response.nonce);
    this.#nonce = response.nonce;
    this.#serial = response.serial;
    this.#version = response.version;
    this.#singleResource = response.changed.length === 1 ? (response.changed[0]?.name ?? '') : '';
    this.#state = 'STALE';
    return response;
  }

  close(): void {
    this.#subscription?.close();
  }

  /** Whether a SotW request names what the one before named, or nothing as that did. */
  #repeatsSelection(selectors: Buffer | undefined): boolean {
    if (this.#subscription === undefined) return false;
    if (selectors === undefined || this.#namedNothing) return this.#namedNothing && selectors === undefined;
    return sources.get(this.#subscription.selection)?.equals(selectors) === true;
  }

  /** The nonce does not gate what it subscribes to (§4.3); it answers only what waits for an answer. */
  #deltaKind({ nonce, error }: DeltaRequest): RequestKind {
    if (nonce === '') return 'subscribe';
    const kind = error === undefined ? 'ack' : 'nack';
    return this.#acknowledge(kind, error, nonce) ? kind : 'stale';
  }

  /** False: it answers nothing. */
  #acknowledge(
    kind: 'first' | 'ack' | 'nack' | 'change',
    error: ErrorDetail | undefined,
    nonce: string,
  ): boolean {
    const current = nonce === this.#nonce;
    const serial = current ? this.#serial : Number(nonce);
    if (kind === 'ack') {
      const waited = this.#subscription?.ack(serial) === true;
      if (current) this.#state = 'SYNCED';
      return waited || current;
    }
    if (kind === 'nack') {
      const waited = this.#subscription?.nack(serial) === true;
      if (!waited && !current) return false;
      const { code = 0, message = '' } = error ?? {};
      this.#lastNack = {
        code,
        message: shorten(message, longestText),
        at: this.#services.clock.now(),
        names: this.#singleResource,
      };
      if (current) this.#state = 'ERROR';
    }
    return true;
  }

  #select(
    selection: Selection,
    client: ClientContext,
    again: ReadonlySet<string>,
    answer: readonly SelectionEntry[],
  ): Subscription | undefined {
    if (!this.#limits.selection(this, selection, client)) return undefined;
    if (this.#subscription === undefined) {
      const { open } = this.#services;
      this.#subscription = open(this.info.url, this.#encoding, selection, client.access, this.#wake);
    } else {
      this.#subscription.select(selection, client.access, again, answer);
    }
    return this.#subscription;
  }

  #sotwSelection(
    conversation: SotwConversation,
    selectors: Buffer | undefined,
    client: ClientContext,
  ): Result<Selection> {
    const { url } = this.info;
    if (selectors === undefined && conversation.hasNamed) return ok(EMPTY_SELECTION);
    const bytes = selectors ?? nothingNamed;
    const known = knownSelections.find(client.selectionGroup, url, bytes);
    if (known !== undefined) {
      if (selectors !== undefined) conversation.named();
      return ok(known);
    }
    const selected = this.#selected(bytes, sotwSelectors, client);
    if (!selected.ok) return selected;
    const selection = conversation.selection(selected.value, this.#legacyWildcard(client));
    knownSelections.add(client.selectionGroup, url, bytes, selection);
    return ok(selection);
  }

  /**
   * A SotW client reconnects. What it may have must not be deleted while its state is unknown, and need not be sent
   * if it has it. A relay may have nothing yet, but its clients may.
   */
  #resume(subscription: Subscription, selection: Selection, version: string): void {
    const names = new Set<string>();
    for (const { spelling } of selection.entries.values()) names.add(spelling);
    const everything = selection.size === 1 && selection.collections[0]?.selector === WILDCARD;
    const comparable = this.#encoding.contentVersions && this.info.fullState && everything && version !== '';
    subscription.resume({ possiblyHeld: names, contentVersion: comparable ? version : undefined });
  }

  #legacyWildcard(client: ClientContext): SelectionEntry | undefined {
    if (!this.#services.legacyWildcard(this.info.url)) return undefined;
    const selected = selectName(WILDCARD, this.info.url, client);
    return selected.ok ? selected.value : undefined;
  }
}

const nothingChanged = (kind: RequestKind): Result<Handled, never> =>
  ok({ kind, changed: false, reread: false });
const unchanged = {
  subscribe: nothingChanged('subscribe'),
  ack: nothingChanged('ack'),
  nack: nothingChanged('nack'),
  stale: nothingChanged('stale'),
} as const;

/** What a first delta request comes to that only subscribes. */
const firstStep = (selection: Selection): DeltaStep => ({
  selection,
  resend: new Set(),
  mustAnswer: [],
  changed: true,
});

/** Ids of a selection that the one before did not have: they are sent even if unchanged (protocol §3.5). */
function added(before: Selection, after: Selection): ReadonlySet<string> {
  const ids = new Set<string>();
  for (const id of after.entries.keys()) if (!before.has(id)) ids.add(id);
  return ids;
}
