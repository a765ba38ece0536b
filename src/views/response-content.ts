import { type Serial, serial } from '../model/brand.ts';
import type { StoredResourceError } from '../model/catalog.ts';
import type { Variant } from '../model/resource.ts';
import type { Encoding } from '../model/subscription.ts';
import type { OutgoingError, OutgoingResource } from '../wire/responses.ts';
import type { Item } from './item.ts';
import type { EncodedResponse, ResponseHeader, RetainedResource, SentResponse } from './shared-responses.ts';
import type { View } from './view.ts';

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
