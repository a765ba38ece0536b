import { type Serial, serial } from '../model/brand.ts';
import { isVariant, type StoredResourceError, type Value } from '../model/catalog.ts';
import { contentHash } from '../model/change.ts';
import type { Payload, Variant } from '../model/resource.ts';
import type { Encoding } from '../model/subscription.ts';
import type { OutgoingError, OutgoingResource } from '../wire/responses.ts';
import { type Item, valueAt } from './item.ts';
import { Coverage } from './overlay.ts';
import type { EncodedResponse, ResponseHeader, RetainedResource, SentResponse } from './shared-responses.ts';
import type { View } from './view.ts';

/** What changed of one item, for one subscriber. */
export interface Change {
  readonly item: Item;
  readonly now: Value;
  /** What it was sent. */
  readonly lastSent: Value | undefined;
  /** The version that it says it has (initial_resource_versions). */
  readonly clientVersion: string | undefined;
  /** To be sent even if it has it. */
  readonly resend: boolean;
}

/** Whether the variant must be sent to this subscriber. */
export function needsSending(
  { lastSent, clientVersion, resend }: Change,
  now: Variant,
  ttl: boolean,
): boolean {
  if (resend) return true;
  if (clientVersion !== undefined) return !sameSuffix(clientVersion, now.deltaVersion);
  if (!isVariant(lastSent)) return true;
  if (lastSent === now) return false;
  return !sameVariant(lastSent, now) || (ttl && lastSent.ttl?.deadline !== now.ttl?.deadline);
}

export function sameVariant(a: Variant, b: Variant): boolean {
  return (
    samePayload(a.payload, b.payload) &&
    a.constraints.key === b.constraints.key &&
    contentHash(a) === contentHash(b)
  );
}

/** Equal payloads are one object while they are cached. A payload that was removed and came back is another object. */
function samePayload(a: Payload | undefined, b: Payload | undefined): boolean {
  if (a === undefined || b === undefined) return a === b;
  return a === b || (a.hash === b.hash && Buffer.compare(a.bytes, b.bytes) === 0);
}

/** Only the constraints may differ: a client that reads no constraints sees no change. */
export const hasBody = (lastSent: Value | undefined, now: Variant): boolean =>
  isVariant(lastSent) && samePayload(lastSent.payload, now.payload);

/** Only the digest counts, and only where there is one (protocol §4.1). */
export function sameSuffix(claimed: string, deltaVersion: string): boolean {
  return claimed.includes('@') && contentHash({ deltaVersion: claimed }) === contentHash({ deltaVersion });
}

/** What comes back while its removal is deferred the client has, though its position says that it has gone. */
export function comingBack(
  changes: Iterable<Change>,
  deferred: ReadonlyMap<string, RetainedResource> | undefined,
): Iterable<Change> {
  return deferred === undefined ? changes : withDeferred(changes, deferred);
}

function* withDeferred(
  changes: Iterable<Change>,
  deferred: ReadonlyMap<string, RetainedResource>,
): Iterable<Change> {
  for (const change of changes) {
    const has = isVariant(change.now) ? deferred.get(change.item.id)?.variant : undefined;
    yield has === undefined ? change : { ...change, lastSent: has };
  }
}

/** The changes of a view since a revision (-1: all of it), and the items that must be resent. */
export function* changesSince(
  view: View,
  from: number,
  resend: ReadonlySet<string> | undefined,
): Iterable<Change> {
  const items = from < 0 ? view.items.values() : view.changedSince(from);
  for (const item of items) {
    const lastSent = from < 0 ? undefined : valueAt(item, from);
    yield {
      item,
      now: item.last.value,
      lastSent,
      clientVersion: undefined,
      resend: resend?.has(item.id) === true,
    };
  }
  if (resend === undefined || from < 0) return;
  for (const id of resend) {
    const item = view.items.get(id);
    if (item === undefined || item.last.revision > from) continue;
    yield {
      item,
      now: item.last.value,
      lastSent: valueAt(item, from),
      clientVersion: undefined,
      resend: true,
    };
  }
}

/** What a response is composed for: a cursor, on its way to the head of its view. */
export interface CompositionInput {
  readonly view: View;
  readonly encoding: Encoding;
  readonly now: number;
  readonly controlPlane: string;
  /** The changes are those of all items, with what this client was last sent, and not only of what has changed. */
  readonly allItems: boolean;
  /** When the view's head arrived, if the subscriber has a position in this view and the head is newer. */
  readonly headAt: number | undefined;
  /** The revision up to which the subscriber has got the errors of an item. */
  readonly errorsSentUpTo: (item: Item) => number;
  /** Whether a removal is deferred: SotW sends the old and the new resources, delta only the additions. */
  readonly defers: (removed: RetainedResource) => boolean;
  /** What earlier responses deferred; it goes now unless it is deferred again. */
  readonly deferredRemovals: ReadonlyMap<string, RetainedResource> | undefined;
  /** The first response of a subscription is due even if there is nothing in it (protocol §3.9, §4.7). */
  readonly firstResponseDue: boolean;
  /** Delta: what must be in the response as removed, unless a resource of that name is in it. */
  readonly mustRemove: readonly NamedRemoval[];
}

/** A name that a delta response must mention as removed. */
export interface NamedRemoval {
  readonly id: string;
  readonly name: string;
  readonly locator: boolean;
}

export const noConstraints = new Uint8Array(0);

let lastSerial = 0;

export const nextSerial = (): Serial => serial(++lastSerial);

/** Gathers a response's parts; a resource is in it once, whatever number of items show it. */
export class ResponseContent {
  readonly resources: OutgoingResource[] = [];
  readonly errors: OutgoingError[] = [];
  /** Resources that a later response removes (protocol §8, Order on ADS). */
  readonly deferred = new Map<string, RetainedResource>();
  protected readonly input: CompositionInput;
  /** What is in it by its name alone. */
  protected readonly named = new Set<string>();
  /** What is in it with constraints, by `constrainedKey`. */
  protected readonly constrained = new Set<string>();
  protected readonly removals: RetainedResource[] = [];
  readonly #additions: RetainedResource[] = [];
  readonly #changed: Variant[] = [];
  /** Items whose removal this response has deferred, though it may have dropped the deferral since. */
  readonly #newlyDeferred = new Set<string>();
  #timeDependent = false;

  constructor(input: CompositionInput) {
    this.input = input;
  }

  /**
   * Records a variant that is new to the subscriber. `hasBody`: it has the same content already, under other
   * constraints.
   */
  noteChange(item: Item, variant: Variant, hasBody: boolean): void {
    this.#additions.push({ item, variant });
    if (!hasBody) this.#changed.push(variant);
  }

  /** `hasIt`: the subscriber has this content, and only the TTL is new. */
  add(item: Item, variant: Variant, hasIt: boolean): void {
    const { encoding, view } = this.input;
    const constrained = item.locator || (encoding.constrained && variant.constraints.key !== '');
    // In SotW the name is the one in the body, however the client spells it (protocol §6).
    const inBody = encoding.protocol === 'sotw' && !encoding.wrapped && !constrained;
    const name = inBody ? variant.name : nameOf(item, variant);
    const present = constrained ? this.constrained : this.named;
    const key = constrained ? constrainedKey(variant.constraints.key, name) : name;
    if (present.has(key)) return;
    present.add(key);
    let ttl: number | undefined;
    if (encoding.ttl && variant.ttl !== undefined) {
      ttl = Math.max(1, variant.ttl.deadline - this.input.now);
      this.#timeDependent = true;
    }
    this.resources.push({
      variant,
      name: nameOf(item, variant),
      constrained,
      wrapped: encoding.wrapped || ttl !== undefined,
      ttl,
      // A client that has the content gets a heartbeat; for VHDS there are none (protocol §4.11).
      bodiless: hasIt && ttl !== undefined && view.info.short !== 'vhds',
    });
  }

  get deferredRemovals(): ReadonlyMap<string, RetainedResource> | undefined {
    return this.deferred.size > 0 ? this.deferred : undefined;
  }

  /** The client keeps this resource for now, and gets its errors with its removal. */
  defer(item: Item, variant: Variant): void {
    this.#newlyDeferred.add(item.id);
    const { headAt: receivedAt, errorsSentUpTo, now: deferredAt } = this.input;
    const retained = { item, variant, errorsSentUpTo: errorsSentUpTo(item), receivedAt, deferredAt };
    this.deferred.set(item.id, retained);
  }

  /** What was to be removed stays. Of what an earlier view showed, nothing was deferred before. */
  keep(id: string, entry: RetainedResource): void {
    const { deferredAt = this.input.now } = entry;
    this.deferred.set(id, entry.deferredAt === deferredAt ? entry : { ...entry, deferredAt });
  }

  /** The errors of an item, unless its removal is or was deferred. */
  addErrors(item: Item): void {
    if (this.deferred.has(item.id) || this.input.deferredRemovals?.has(item.id) === true) return;
    this.#addNewErrors(item);
  }

  /** Errors of a resource whose removal was deferred are sent together with the removal (protocol §8). */
  addErrorsOfDeferred(): void {
    for (const id of [...this.#newlyDeferred, ...(this.input.deferredRemovals?.keys() ?? [])]) {
      const item = this.deferred.has(id) ? undefined : this.input.view.items.get(id);
      if (item !== undefined) this.#addNewErrors(item);
    }
  }

  /** The errors that the subscriber has not got yet. */
  #addNewErrors(item: Item): void {
    const sent = this.input.deferredRemovals?.get(item.id)?.errorsSentUpTo ?? this.input.errorsSentUpTo(item);
    const { view } = this.input;
    for (const error of view.resourceErrors(item)) {
      // One that was released to the other side later is newer than all that this view has heard of.
      const isNew = error.revision > sent && error.revision <= view.head;
      if (!isNew || !this.maySend(error, item)) continue;
      const constraints = item.locator ? error.constraints.bytes : noConstraints;
      this.errors.push({ name: item.spelling, constraints, status: error.status });
    }
  }

  protected maySend(_error: StoredResourceError, _item: Item): boolean {
    return true;
  }

  /** `bytes` are the response with this serial. */
  response(
    serial: Serial,
    bytes: Buffer,
    version: string,
    resources = this.resources.length,
  ): EncodedResponse {
    const { encoding, view } = this.input;
    const nonce = String(serial);
    const complete = encoding.protocol === 'sotw' && view.complete;
    const receivedAt = this.#receivedAt();
    return {
      serial,
      nonce,
      bytes,
      version,
      receivedAt,
      sent: this.#sent({ serial, nonce, version, complete, resources, receivedAt }),
      resources,
      changed: this.#changed,
      timeDependent: this.#timeDependent,
    };
  }

  /** The same response as another one; only the record of what is new to the subscriber differs. */
  reuse(whole: EncodedResponse): EncodedResponse {
    const receivedAt = this.#receivedAt();
    const sent = this.#sent({ ...whole.sent.header, receivedAt });
    return { ...whole, sent, changed: this.#changed, receivedAt };
  }

  #sent(header: ResponseHeader): SentResponse {
    return { header, additions: this.#additions, removals: this.removals };
  }

  /**
   * Of the newest update in it. What is sent again and what a newcomer gets may be old, so it has no time. The removals
   * that earlier responses deferred have the time of their own updates.
   */
  #receivedAt(): number | undefined {
    const { headAt, deferredRemovals } = this.input;
    if (headAt !== undefined || deferredRemovals === undefined) return headAt;
    let newest: number | undefined;
    for (const [id, { receivedAt = 0 }] of deferredRemovals) {
      if (receivedAt > (newest ?? 0) && !this.deferred.has(id)) newest = receivedAt;
    }
    return newest;
  }
}

/** A resource by its name is another one than the same by resource_name, even without constraints. */
export const constrainedKey = (constraints: string, name: string): string => `=${constraints} ${name}`;

/** The subscriber's spelling, unless it subscribed by an alias: then the resource's own name. */
export function nameOf(item: Item, variant: Variant): string {
  return item.name === variant.name ? item.spelling : variant.name;
}

/** A change of a rejected response: it is sent once more, by itself (protocol §3.12). */
export interface RejectedChange {
  readonly item: Item;
  /** The rejected variant; undefined: a removal. */
  readonly shown: Variant | undefined;
  /** What was removed or replaced with it; undefined: nothing. */
  readonly removed: Variant | undefined;
}

/**
 * The changes of a rejected response, one by one. A removal is a change too: a client that rejected it still has the
 * resource. A change that several parameter sets share is listed once. Empty if the response had only one change:
 * then this one was rejected, and it is not sent again.
 */
export function rejectedChanges(rejected: SentResponse): readonly RejectedChange[] {
  const byItem = changesByItem(rejected);
  const swapped = new Set<string>();
  for (const { item, shown, removed } of byItem) {
    if (shown !== undefined && removed !== undefined) swapped.add(removalKey(item, removed));
  }
  const parts = new Map<string, RejectedChange>();
  for (const part of byItem) {
    const { item, shown, removed } = part;
    // The replacement for another parameter set removes the same variant: that change says it.
    if (shown === undefined && removed !== undefined && swapped.has(removalKey(item, removed))) continue;
    const constraints = item.locator ? (shown ?? removed)?.constraints.key : undefined;
    const key = JSON.stringify([item.spelling, shown !== undefined, constraints ?? '']);
    if (parts.get(key)?.removed === undefined) parts.set(key, part);
  }
  return parts.size < 2 ? [] : [...parts.values()];
}

function changesByItem({ additions, removals }: SentResponse): readonly RejectedChange[] {
  const byItem = new Map<string, RejectedChange>();
  for (const { item, variant } of additions)
    byItem.set(item.id, { item, shown: variant, removed: undefined });
  for (const { item, variant } of removals) {
    byItem.set(item.id, { item, shown: byItem.get(item.id)?.shown, removed: variant });
  }
  return [...byItem.values()];
}

const removalKey = ({ locator, spelling }: Item, { constraints }: Variant): string =>
  JSON.stringify([locator, spelling, constraints.key]);

/**
 * The change to send once more. Undefined: something newer is sent anyway, or the client does not subscribe to it any
 * more. `lastSent`: what the client was last sent.
 */
export function changeToResend(
  { item: rejected, shown, removed }: RejectedChange,
  view: View,
  lastSent: Value | undefined,
): Change | undefined {
  // The selection may have changed since: then another item stands for the same resource.
  const item = view.items.get(rejected.id);
  const now = item?.last.value;
  const shared = { clientVersion: undefined, resend: true };
  if (item !== undefined && isVariant(now)) {
    if (!isStill(shown, now) || !isStill(lastSent, now)) return undefined;
    return { item, now, lastSent: removed ?? lastSent, ...shared };
  }
  if (shown !== undefined || removed === undefined || now === 'unknown' || isVariant(lastSent))
    return undefined;
  if (item === undefined && new Coverage(view).of({ item: rejected, variant: removed }) !== 'resolved')
    return undefined;
  return { item: item ?? rejected, now: 'absent', lastSent: removed, ...shared };
}

/** Otherwise something newer was sent since, or will be. */
const isStill = (value: Value | undefined, now: Variant): boolean =>
  isVariant(value) && sameVariant(value, now);

/** A retry has its change and nothing else. */
export const retryInput = (input: CompositionInput): CompositionInput => ({
  ...input,
  headAt: undefined,
  errorsSentUpTo: () => input.view.head,
  deferredRemovals: undefined,
  firstResponseDue: false,
});
