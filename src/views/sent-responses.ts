import { isVariant, type Value } from '../model/catalog.ts';
import { MapInUse } from '../model/maps.ts';
import type { Variant } from '../model/resource.ts';
import type {
  AnswerKind,
  ChangedVariant,
  ClientError,
  ItemState,
  Rejection,
  SentState,
  SyncState,
} from '../model/subscription.ts';
import { isStill, sameVariant } from './changes.ts';
import { nameOf } from './item.ts';
import {
  type Composed,
  type EncodedResponse,
  isDeferred,
  type ResponseHeader,
  type RetainedResource,
  type SentResponse,
} from './shared-responses.ts';

/** A client that never answers must not fill the memory. */
const maxOutstanding = 32;
/** Names that a rejection keeps: enough to recognise a change by. */
const maxNames = 5;

const noRejections: ReadonlySet<Rejection> = new Set();

/** The cursor that the responses belong to. */
export interface SentItems {
  /** What the client was last sent of an item; undefined: nothing, or the view does not show the item any more. */
  sentOf(id: string): Value | undefined;
  /** The client has something. It need not have been sent on this stream: its first request may say what it has. */
  readonly hasSomething: boolean;
}

/** A change of one item that the client has rejected. */
interface RejectedItem {
  /** Undefined: the removal. */
  readonly variant: Variant | undefined;
  readonly rejection: Rejection;
}

/**
 * What a client was sent of one type, and what it said to it: which responses are outstanding, and which resources it
 * has rejected. Pure: no I/O, no clock.
 *
 *     sent n1 {a, b}   NACK n1   sent n2 {a}   NACK n2   sent n3 {b}   ACK n3   →  a is rejected, b is accepted
 *
 * Nearly always one response or none is outstanding. It changes twice with every update of every client, so the last
 * one is kept without a list.
 */
export class SentResponses implements SentState {
  readonly #items: SentItems;
  readonly #isDelta: boolean;
  #last: ResponseHeader | undefined;
  /** The last response, until it is answered. */
  #unanswered: SentResponse | undefined;
  /** Outstanding responses before it. */
  #earlier: SentResponse[] | undefined;
  /** There were too many: until the others are answered, it is not known what the client has accepted. */
  #hasForgotten = false;
  /** By item: a rejection lasts until the item is accepted, removed, or sent with another content. */
  #rejected: MapInUse<string, RejectedItem> | undefined;
  /** A rejection of a response as a whole: it does not say which resource is at fault. */
  rejectedWhole: Rejection | undefined;
  lastNack: Rejection | undefined;
  /** SotW: the nonces that were accepted and rejected last. */
  #acceptedNonce = '';
  #rejectedNonce: string | undefined;

  constructor(items: SentItems, isDelta: boolean) {
    this.#items = items;
    this.#isDelta = isDelta;
  }

  /**
   * What an answer with this nonce is. In delta the nonce gates nothing; a late answer to an earlier outstanding response
   * counts (protocol §4.3).
   *
   * In SotW the current nonce is the last one sent; after a NACK of it the last accepted one is current too, because
   * Envoy's unified mux changes its subscription with that one (§3.3). Before anything was sent any nonce will do: old
   * Envoys leaked the last stream's (§3.2). A stale answer is neither ACK nor NACK. But it may make its nonce the
   * accepted one. For a partial type it also says whether the client accepted the resources of its response, if the
   * newer one does not have them.
   */
  classify(nonce: string, hasError: boolean): AnswerKind {
    const answer = hasError ? 'nack' : 'ack';
    if (nonce === this.lastNonce) return answer;
    if (this.#isDelta) return this.isOutstanding(nonce) ? answer : 'stale';
    if (this.lastNonce === undefined) return 'first';
    // A client that has accepted nothing yet names no nonce.
    return this.#rejectedNonce === this.lastNonce && nonce === this.#acceptedNonce ? 'change' : 'stale';
  }

  get lastSerial(): number {
    return this.#last?.serial ?? 0;
  }

  get lastNonce(): string | undefined {
    return this.#last?.nonce;
  }

  get version(): string {
    return this.#last?.version ?? '';
  }

  get awaitsAnswer(): boolean {
    return this.#unanswered !== undefined;
  }

  get oldestOutstanding(): ResponseHeader | undefined {
    return (this.#earlier?.[0] ?? this.#unanswered)?.header;
  }

  isOutstanding(nonce: string): boolean {
    return this.#unanswered?.header.nonce === nonce || this.#indexOf(nonce) >= 0;
  }

  /** By item, what the outstanding responses add, unless a later one of them removes this variant. */
  outstandingAdditions(): ReadonlyMap<string, RetainedResource> {
    const added = new Map<string, RetainedResource>();
    for (const { additions, removals } of this.#outstanding) {
      for (const { item, variant } of removals) {
        if (added.get(item.id)?.variant.constraints.key === variant.constraints.key) added.delete(item.id);
      }
      for (const addition of additions) added.set(addition.item.id, addition);
    }
    return added;
  }

  /** A response was sent, and the cursor has moved behind it. */
  sent(response: SentResponse): void {
    const { header } = response;
    if (header.complete) {
      // It makes the ones before it pointless (protocol §3.11).
      this.#forgetEarlier();
      this.#rejected = undefined;
      this.rejectedWhole = undefined;
    } else if (this.#unanswered !== undefined) this.#remember(this.#unanswered);
    this.#last = header;
    this.#unanswered = response;
    if (this.#rejected === undefined) return;
    for (const [id] of changesOf(response)) this.#forgetIfOutdated(id);
  }

  /** The client has answered. Returns the response; undefined if it was not outstanding. */
  answered(nonce: string, error: ClientError | undefined): SentResponse | undefined {
    if (!this.#isDelta) this.#answeredNonce(nonce, error === undefined);
    const response = this.#takeOutstanding(nonce);
    const header = response?.header ?? (this.#last?.nonce === nonce ? this.#last : undefined);
    if (header === undefined) return undefined;
    if (error === undefined) this.#accept(header, response);
    else this.#reject(header, response, error);
    return response;
  }

  #answeredNonce(nonce: string, isAccepted: boolean): void {
    if (nonce === this.lastNonce) {
      this.#forgetEarlier();
      this.#rejectedNonce = isAccepted ? undefined : nonce;
    } else if (!this.#isOvertaken(Number(nonce))) return;
    if (isAccepted) this.#acceptedNonce = nonce;
  }

  /** Sent since the accepted one, and not the last. */
  #isOvertaken(serial: number): boolean {
    return serial > Number(this.#acceptedNonce) && serial < this.lastSerial;
  }

  /** Outstanding responses before the last one will not be answered any more. */
  #forgetEarlier(): void {
    this.#earlier = undefined;
    this.#hasForgotten = false;
  }

  /** The cursor has moved into another view: what the client has left there, it cannot have rejected any more. */
  moved(lastSent: (id: string) => Value | undefined): void {
    for (const [id, { variant }] of this.#rejected ?? [])
      if (!isThis(variant, lastSent(id))) this.#rejected?.delete(id);
    if (this.#rejected?.size === 0) this.#rejected = undefined;
  }

  get state(): SyncState {
    if (this.#last === undefined) return this.#items.hasSomething ? 'SYNCED' : 'NOT_SENT';
    if (this.rejectedWhole !== undefined) return 'ERROR';
    if (this.#rejected !== undefined && this.#stillRejected().some(() => true)) return 'ERROR';
    return this.#unanswered !== undefined || this.#earlier !== undefined ? 'STALE' : 'SYNCED';
  }

  /** Of what it was last sent. It may have rejected all of it, and each look at a stream asks for the first. */
  *#stillRejected(): IteratorObject<Rejection, undefined> {
    for (const [id, { variant, rejection }] of this.#rejected ?? [])
      if (isThis(variant, this.#items.sentOf(id))) yield rejection;
  }

  get rejections(): ReadonlySet<Rejection> {
    // Asked of every stream when clients are counted: nearly none has rejected anything.
    if (this.rejectedWhole === undefined && this.#rejected === undefined) return noRejections;
    const found = new Set(this.#stillRejected());
    return this.rejectedWhole === undefined ? found : new Set([this.rejectedWhole, ...found]);
  }

  /** Whether the client has rejected this content of an item, and nothing newer was sent. */
  isRejected(id: string, variant: Variant): boolean {
    const rejected = this.#rejected?.get(id)?.variant;
    return rejected !== undefined && sameVariant(rejected, variant);
  }

  /** What the client has rejected it does not have: an update of that is new to it. Others share the response. */
  asNews(response: EncodedResponse): EncodedResponse {
    if (this.#rejected === undefined) return response;
    const rejected = Map.groupBy(
      this.#rejected.values().map(({ variant }) => variant),
      (variant) => variant?.name,
    );
    const isRejected = ({ before }: ChangedVariant): boolean =>
      isVariant(before) &&
      rejected.get(before.name)?.some((one) => one !== undefined && sameVariant(one, before)) === true;
    if (!response.changed.some(isRejected)) return response;
    const changed = response.changed.map((one) => (isRejected(one) ? { ...one, before: undefined } : one));
    return { ...response, changed };
  }

  /** Whether the client has rejected something that others are sent so, or keep for now; it may have another TTL there. */
  rejects({ response, overlay }: Composed): boolean {
    if (this.#rejected === undefined) return false;
    const kept = overlay?.values().filter((one) => isDeferred(one) && one.mayBeDropped !== true) ?? [];
    return [...(response?.sent.additions ?? []), ...kept].some(
      ({ item, variant }) => isVariant(variant) && this.isRejected(item.id, variant),
    );
  }

  /** The state of each item, given what the client was last sent of it. Valid until something is sent or answered. */
  itemStates(): (id: string, lastSent: Value | undefined) => ItemState {
    const outstanding = new Map<string, Variant | undefined>();
    for (const response of this.#outstanding) {
      for (const [id, variant] of changesOf(response)) outstanding.set(id, variant);
    }
    const complete = this.#last?.complete === true;
    const rejectedWhole = complete ? this.rejectedWhole : undefined;
    const allOutstanding = complete && this.awaitsAnswer;
    return (id, lastSent) => {
      const rejected = this.#rejected?.get(id);
      if (rejected !== undefined && isThis(rejected.variant, lastSent))
        return { state: 'ERROR', rejection: rejected.rejection };
      if (isVariant(lastSent)) {
        if (rejectedWhole !== undefined) return { state: 'ERROR', rejection: rejectedWhole };
        if (allOutstanding) return stale;
      }
      if (this.#hasForgotten && lastSent !== undefined) return stale;
      if (outstanding.has(id) && isThis(outstanding.get(id), lastSent)) return stale;
      return isVariant(lastSent) ? synced : notSent;
    };
  }

  #accept(header: ResponseHeader, response: SentResponse | undefined): void {
    if (header === this.#last) this.rejectedWhole = undefined;
    if (this.#rejected === undefined || response === undefined) return;
    for (const [id, variant] of changesOf(response)) {
      const rejected = this.#rejected.get(id);
      if (rejected !== undefined && isThis(rejected.variant, variant ?? 'absent')) this.#rejected.delete(id);
    }
    if (this.#rejected.size === 0) this.#rejected = undefined;
  }

  #reject(
    header: ResponseHeader,
    response: SentResponse | undefined,
    { code, message, at }: ClientError,
  ): void {
    const changes = response === undefined ? noChanges : namesOf(response);
    // If there are several, any of them may be at fault.
    const isOne = header.resources <= 1 && changes.total === 1;
    const [name = ''] = isOne ? changes.names : [];
    const variant = name === '' ? undefined : onlyVariantIn(response);
    const rejection = { code, message, at, version: header.version, name, variant, changes };
    this.lastNack = rejection;
    const isOfItems = response !== undefined && !header.complete && this.#rejectItems(response, rejection);
    if (!isOfItems && header === this.#last) this.rejectedWhole = rejection;
  }

  /** False: the response has no changes of items that the client could have rejected. */
  #rejectItems(response: SentResponse, rejection: Rejection): boolean {
    let found = false;
    const rejected = this.#rejected ?? new MapInUse<string, RejectedItem>(1);
    for (const [id, variant] of changesOf(response)) {
      const sent = this.#items.sentOf(id);
      found ||= variant !== undefined || sent === 'absent';
      // If something newer was sent since, the rejection is not about that.
      if (isThis(variant, sent)) rejected.set(id, { variant, rejection });
    }
    // Items that the view does not show any more leave their rejections behind.
    rejected.dropUnused(({ variant }, id) => !isThis(variant, this.#items.sentOf(id)));
    this.#rejected = rejected.size > 0 ? rejected : undefined;
    return found;
  }

  #forgetIfOutdated(id: string): void {
    const rejected = this.#rejected?.get(id);
    if (rejected === undefined || isThis(rejected.variant, this.#items.sentOf(id))) return;
    this.#rejected?.delete(id);
    if (this.#rejected?.size === 0) this.#rejected = undefined;
  }

  #takeOutstanding(nonce: string): SentResponse | undefined {
    let response = this.#unanswered;
    if (response?.header.nonce === nonce) this.#unanswered = undefined;
    else {
      const index = this.#indexOf(nonce);
      if (index < 0) return undefined;
      [response] = this.#earlier?.splice(index, 1) ?? [];
      if (this.#earlier?.length === 0) this.#earlier = undefined;
    }
    if (this.#earlier === undefined && this.#unanswered === undefined) this.#hasForgotten = false;
    return response;
  }

  /** The oldest first. */
  get #outstanding(): readonly SentResponse[] {
    return [...(this.#earlier ?? []), ...(this.#unanswered ? [this.#unanswered] : [])];
  }

  #indexOf(nonce: string): number {
    return this.#earlier?.findIndex(({ header }) => header.nonce === nonce) ?? -1;
  }

  #remember(response: SentResponse): void {
    this.#earlier ??= [];
    if (this.#earlier.push(response) < maxOutstanding) return;
    this.#earlier.shift();
    this.#hasForgotten = true;
  }
}

const stale: ItemState = { state: 'STALE', rejection: undefined };
const synced: ItemState = { state: 'SYNCED', rejection: undefined };
export const notSent: ItemState = { state: 'NOT_SENT', rejection: undefined };

/** Whether what was last sent is this change; undefined: a removal. */
function isThis(variant: Variant | undefined, lastSent: Value | undefined): boolean {
  if (variant === undefined) return lastSent === 'absent';
  return isStill(lastSent, variant);
}

/** By item; undefined: a removal. */
function* changesOf({
  additions,
  removals,
}: SentResponse): Iterable<readonly [id: string, variant: Variant | undefined]> {
  // One variant replaces another: the item is in both.
  for (const { item } of removals) yield [item.id, undefined];
  for (const { item, variant } of additions) yield [item.id, variant];
}

/** Without its body. */
function onlyVariantIn(response: SentResponse | undefined): Rejection['variant'] {
  const [first, ...others] = response?.additions ?? [];
  if (first === undefined || others.some(({ variant }) => variant !== first.variant)) return undefined;
  const { type, version, deltaVersion } = first.variant;
  return { type, version, deltaVersion };
}

const noChanges: Rejection['changes'] = { names: [], total: 0, removal: false };

function namesOf({ additions, removals }: SentResponse): Rejection['changes'] {
  // By item: what replaces another resource is what was rejected. Several aliases may lead to it.
  const byItem = new Map<string, string>();
  for (const { item, variant } of [...additions, ...removals])
    if (!byItem.has(item.id)) byItem.set(item.id, nameOf(item, variant));
  const names = new Set(byItem.values());
  const removal = additions.length === 0 && removals.length > 0;
  return { names: [...names].slice(0, maxNames), total: names.size, removal };
}
