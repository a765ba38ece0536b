import { hash } from 'node:crypto';
import { resourceName, type Serial, serial } from '../model/brand.ts';
import { isVariant, type StoredResourceError, type Value } from '../model/catalog.ts';
import { contentHash } from '../model/change.ts';
import { type Constraints, UNCONSTRAINED } from '../model/constraints.ts';
import { onceFor } from '../model/maps.ts';
import type { Variant } from '../model/resource.ts';
import { isCollection } from '../model/selection.ts';
import type { ChangedVariant, Encoding } from '../model/subscription.ts';
import { exactly, UNKNOWN_STATUS } from '../wire/between-relays.ts';
import { Code } from '../wire/grpc-status.ts';
import {
  encodeDeltaResponse,
  encodeSotwResponse,
  type OutgoingError,
  type OutgoingResource,
  type RemovedName,
} from '../wire/responses.ts';
import {
  type Change,
  changesOf,
  hasBody,
  isHeartbeat,
  needsSending,
  type Stand,
  sameSuffix,
  updatedBy,
} from './changes.ts';
import { type Item, isConstrained, nameOf, sentName, withoutBody } from './item.ts';
import { type NamedRemoval, OtherParameterSets } from './position.ts';
import type { SentResponses } from './sent-responses.ts';
import {
  type Composed,
  type EncodedResponse,
  type Has,
  isDeferred,
  isResource,
  onceAtHead,
  overlayOf,
  type ResponseHeader,
  type RetainedResource,
  sharedOverlay,
} from './shared-responses.ts';
import type { View } from './view.ts';

/** What a response is composed for: a cursor, on its way to the head of its view. */
export interface CompositionInput extends Stand {
  readonly responses: Pick<SentResponses, 'lastSerial' | 'isRejected' | 'oldestOutstanding'>;
  readonly controlPlane: string;
  /** Whether a removal is deferred: SotW sends the old and the new resources, delta only the additions. */
  readonly defers: (removed: RetainedResource) => boolean;
  /** Whether it waits for what is unknown. */
  readonly waits: (removed: RetainedResource) => boolean;
  /** The first response of a subscription is due even if there is nothing in it (protocol §3.9, §4.7). */
  readonly firstResponseDue: boolean;
  /** Delta: what must be in the response as removed, unless a resource of that name is in it. */
  readonly mustRemove: readonly NamedRemoval[];
}

/** The response for what has changed; with `retried` for that and nothing else. */
export function compose(input: CompositionInput, retried?: Change): Composed {
  const content = new ResponseContent(input);
  for (const change of retried === undefined ? changesOf(input) : [retried]) content.take(change);
  content.addRequiredRemovals();
  content.dropAlreadyRemoved();
  if (retried === undefined) content.writeErrors();
  if (!content.isDue) return content.composed(undefined);
  return content.composed(input.encoding.protocol === 'delta' ? encodeDelta(content) : encodeSotw(content));
}

function encodeDelta(content: ResponseContent): EncodedResponse {
  const { view, encoding, controlPlane } = content.input;
  const id = nextSerial();
  const bytes = encodeDeltaResponse({
    type: view.type,
    version: view.version,
    nonce: String(id),
    resources: content.resources,
    errors: encoding.unknownNames ? [...content.errors, ...unknownCollections(view)] : content.errors,
    controlPlane,
    removed: content.removed,
    removedNames: content.removedNames,
  });
  return content.response(id, bytes, view.version);
}

/** The whole selection if absence deletes, else what changed (protocol §3.7). */
function encodeSotw(content: ResponseContent): EncodedResponse {
  const { view, encoding, responses } = content.input;
  const isShareable = view.complete && content.deferred.size === 0 && content.errors.length === 0;
  if (!isShareable) return encodeState(content, undefined);
  // The complete state is the same for every subscriber. Only the record of what was new differs.
  const shown = encoding.unknownNames ? view : view.shown;
  const whole = shown.shared.whole(encoding, responses.lastSerial);
  if (whole !== undefined) return content.reuse(whole);
  const response = encodeState(content, plainState(shown, encoding));
  if (!content.timeDependent && shown.isShared) shown.shared.addWhole(encoding, response);
  return response;
}

function encodeState(content: ResponseContent, plain: readonly Uint8Array[] | undefined): EncodedResponse {
  const { view, encoding, controlPlane } = content.input;
  if (plain === undefined && view.complete) {
    for (const item of view.items.values()) {
      if (isVariant(item.last.value)) content.add(item, item.last.value, false);
    }
    for (const { item, variant } of content.deferred.values()) content.add(item, variant, false);
  }
  const id = nextSerial();
  const version = sotwVersion(view, encoding, content.deferred.size > 0 ? content.resources : undefined);
  const bytes = encodeSotwResponse({
    type: view.type,
    version,
    nonce: String(id),
    plain,
    resources: content.resources,
    errors:
      encoding.unknownNames && view.complete ? [...content.errors, ...unknownNames(view)] : content.errors,
    controlPlane,
  });
  return content.response(id, bytes, version, plain?.length);
}

/** To a relay below, what this lacks would be absent (protocol §3.13). */
function unknownNames({ unresolvedNames }: View): readonly OutgoingError[] {
  const names = new Set(Iterator.from(unresolvedNames).map(({ requestedName }) => requestedName));
  return Array.from(names, (name) => ({ name, constraints: UNCONSTRAINED.bytes, status: UNKNOWN_STATUS }));
}

/**
 * A relay below would take a response for the answer to all wildcards and globs of the request (protocol §3.13). It knows
 * them by its own parameters, not by those that count for it here.
 */
const unknownCollections = onceAtHead((view: View): readonly OutgoingError[] =>
  [...view.selection.listed.values()]
    .filter((one) => isCollection(one.selector) && !view.isResolved(one))
    .map(({ requestedName, locator, parameters, locatorParameters = parameters }) => {
      const { bytes: constraints } = locator ? exactly(locatorParameters) : UNCONSTRAINED;
      return { name: requestedName, constraints, status: UNKNOWN_STATUS };
    }),
);

/**
 * The bodies of a complete SotW state, if a response needs nothing else: one wildcard or glob, and no constraints,
 * wrappers or TTLs. Most clients subscribe like this, and each class of clients needs its own response. Undefined: some
 * resource needs more than its body.
 */
function plainState({ items, selection }: View, encoding: Encoding): readonly Uint8Array[] | undefined {
  const [collection] = selection.collections;
  // With more than one entry two items may show the same resource.
  if (collection === undefined || selection.size > 1 || collection.locator) return undefined;
  if (encoding.wrapped || encoding.constrained) return undefined;
  const bodies: Uint8Array[] = [];
  for (const { name, last } of items.values()) {
    const { value } = last;
    if (!isVariant(value)) continue;
    if (value.name !== name || value.payload === undefined) return undefined;
    if (encoding.ttl && value.ttl !== undefined) return undefined;
    bodies.push(value.payload.bytes);
  }
  return bodies;
}

let lastSerial = 0;

const nextSerial = (): Serial => serial(++lastSerial);

/**
 * Gathers a response's parts. A resource is in it once, whatever number of items show it; so is a removal, which only a
 * delta response has.
 */
class ResponseContent {
  readonly resources: OutgoingResource[] = [];
  readonly errors: OutgoingError[] = [];
  readonly removed: string[] = [];
  readonly removedNames: RemovedName[] = [];
  /** What the client has then that the head does not say. */
  readonly #beside = new Map<string, Has>();
  /** Resources among it that a later response removes (protocol §8, Order on ADS). */
  readonly deferred = new Map<string, RetainedResource>();
  readonly input: CompositionInput;
  readonly #isDelta: boolean;
  /** SotW: absence deletes. */
  readonly #tellsAll: boolean;
  /** When the view's head arrived, if the subscriber has a position in this view and the head is newer. */
  readonly #headAt: number | undefined;
  /** SotW: what is not in it is news. */
  #isNews = false;
  /** SotW: something that the client has is not in it any more. */
  #removes = false;
  /** What is in it by its name alone. */
  readonly #named = new Set<string>();
  /** What is in it with constraints, by `constrainedKey`. */
  readonly #constrained = new Set<string>();
  readonly #removals: RetainedResource[] = [];
  readonly #additions: RetainedResource[] = [];
  readonly #changed: ChangedVariant[] = [];
  /** Of what errors are told. They are written last: those of what is kept for now are sent with its removal. */
  readonly #told: Change[] = [];
  /** Delta: what the client keeps as it is unknown again, by `constrainedKey`. */
  readonly #retained = new Set<string>();
  /** Delta: items that it shows or removes. */
  readonly #seen = new Set<string>();
  readonly #others: OtherParameterSets;
  /** SotW: items whose errors are for the next response. */
  #untold: ReadonlySet<string> | undefined;
  /** It depends on what the client has rejected. */
  #isOwn = false;
  /** Its errors with which a full state removes nothing (protocol §8.2), by item. */
  readonly #keeping = new Map<OutgoingError, string>();
  /** The errors of locators in it, by `constrainedKey`. */
  readonly #errors = new Set<string>();
  /** Removals are written last: only then is it known what else is in the response. */
  readonly #postponed: (() => void)[] = [];
  /** It holds remaining TTLs, so it must not be shared later. */
  timeDependent = false;

  constructor(input: CompositionInput) {
    this.input = input;
    const { view, encoding, position } = input;
    this.#isDelta = encoding.protocol === 'delta';
    this.#tellsAll = !this.#isDelta && view.complete;
    this.#headAt = position?.view === view && position.revision < view.head ? view.headAt : undefined;
    this.#others = new OtherParameterSets(view);
  }

  get isDue(): boolean {
    const { resources, removed, removedNames, errors } = this;
    const size =
      resources.length + this.#additions.length + removed.length + removedNames.length + errors.length;
    return this.input.firstResponseDue || this.#isNews || size > 0;
  }

  take(change: Change): void {
    const { now } = change;
    this.#told.push(change);
    if (isVariant(now)) this.#takeVariant(change, now);
    else if (now === 'absent') this.#takeAbsence(change);
    else this.#takeUnknown(change);
  }

  /** What the view shows now, unless the client has it; and in delta the removal of what it had instead. */
  #takeVariant(change: Change, now: Variant): void {
    const { item, lastSent, clientVersion } = change;
    this.#addChanged(change, now);
    if (!this.#isDelta) return;
    if (isVariant(lastSent)) this.#replace(item, lastSent, now);
    if (clientVersion === undefined || now.constraints.key === '') return;
    // initial_resource_versions has names without constraints. The client has the unconstrained resource, unless the
    // version shows that it has exactly this variant.
    const constrained = item.locator || this.input.encoding.constrained;
    if (constrained && !sameSuffix(clientVersion, now.deltaVersion)) this.#addMissing(item.requestedName);
  }

  /** The view does not show it any more, or has come to know that it is not there. */
  #takeAbsence(change: Change): void {
    const { item, lastSent } = change;
    if (!isVariant(lastSent)) this.#takeNothing(change);
    // It is taken back by a removal, or by its absence.
    else if ((this.#isDelta || this.#tellsAll) && !this.#keep(change, lastSent)) this.#remove(item, lastSent);
  }

  #takeNothing({ item, lastSent, clientVersion, resend, has }: Change): void {
    const isTold = lastSent === 'absent';
    // The removal, or an error, does not say for which parameter set: it waits until all are resolved.
    const waits = !isTold && this.#others.anyUnknown(item);
    if (waits) this.#beside.set(item.id, withheld(item));
    const isStill = waits && has?.variant === 'unknown';
    const { absencesUnsaid } = this.input.encoding;
    if (!this.#isDelta) this.#isNews ||= this.#tellsAll && !isTold && !isStill && item.named;
    else if (clientVersion !== undefined) this.#remove(item, undefined);
    else if (!absencesUnsaid && item.named && (resend || !isTold)) this.#addAbsent(item);
  }

  /** What is new to the subscriber, or must be sent again. A complete state has it anyway. */
  #addChanged(change: Change, now: Variant): void {
    if (!needsSending(change, now, this.input.encoding.ttl)) return;
    const { item, lastSent, resend } = change;
    const isPart = !this.#tellsAll;
    // Only its TTL is new: the client has another content, and would reject the response again.
    if (isPart && !resend && isVariant(lastSent) && this.#isRejected(item, now)) return;
    // A version that it may reject yet is none that a heartbeat may have (protocol §4.11).
    const isBeat =
      this.#isDelta && isHeartbeat(change, now) && this.input.responses.oldestOutstanding === undefined;
    this.#additions.push({ item, variant: now });
    // With the same body under other constraints its content is not new.
    if (resend || !hasBody(lastSent, now)) this.#changed.push({ now, before: updatedBy(change) });
    if (isPart) this.add(item, now, isBeat);
  }

  /** `hasIt`: a delta subscriber has this content, and only the TTL is new. */
  add(item: Item, variant: Variant, hasIt: boolean): void {
    const { encoding, view, now } = this.input;
    this.#seen.add(item.id);
    const constrained = isConstrained(item, variant, encoding);
    if (!this.#isNew(sentName(item, variant, encoding), constrained ? variant.constraints : undefined))
      return;
    let ttl: number | undefined;
    if (encoding.ttl && variant.ttl !== undefined) {
      ttl = Math.max(1, Math.ceil(variant.ttl.deadline - now));
      this.timeDependent = true;
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

  /**
   * Nothing is both in resources and in removed_resources: Envoy rejects such a response (protocol §4.9). A resource by
   * its name is another one than the same by resource_name, even without constraints.
   */
  #isNew(name: string, constraints: Constraints | undefined): boolean {
    const present = constraints === undefined ? this.#named : this.#constrained;
    const key = constraints === undefined ? name : constrainedKey(constraints, name);
    if (present.has(key)) return false;
    present.add(key);
    return true;
  }

  /**
   * Whether the client keeps a resource for now that is gone: its removal is deferred, or waits. It gets its errors then. Of
   * what is deferred already nothing changes.
   */
  #keep({ item, has, resend }: Change, variant: Variant): boolean {
    const isKnown = has !== undefined && isDeferred(has) && isResource(has);
    const { defers, waits, now: deferredAt } = this.input;
    const removed = isKnown ? has : { item, variant };
    const isKept = defers(removed);
    if (!isKept && !waits(removed)) return false;
    const kept: RetainedResource = isKnown
      ? has
      : {
          ...removed,
          errorsSentUpTo: this.#errorsSentUpTo(item),
          receivedAt: this.#headAt,
          deferredAt,
          ...(resend || this.#isRejected(item, variant) ? { mayBeDropped: true } : {}),
        };
    this.#beside.set(item.id, kept);
    if (isKept) this.deferred.set(item.id, kept);
    return true;
  }

  #isRejected({ id }: Item, variant: Variant): boolean {
    const isRejected = this.input.responses.isRejected(id, variant);
    this.#isOwn ||= isRejected;
    return isRejected;
  }

  /**
   * It is unknown again, so the client keeps what it has for it (protocol §3.9), also if another of its parameter sets has
   * something else now: a removal does not say for which it is. (`leavesDoubtful`: another variant that waits for this one.)
   * A SotW client is sent what becomes known: it may have unsubscribed it and subscribed to it again (§3.5). A complete
   * state does not have it any more, unless it is kept there for now.
   */
  #takeUnknown(change: Change): void {
    const { item, lastSent, has } = change;
    if (!isVariant(lastSent)) return;
    if (this.#tellsAll) {
      if (has !== undefined && isDeferred(has) && !this.#keep(change, lastSent)) this.#remove(item, lastSent);
      return;
    }
    this.#retained.add(constrainedKey(lastSent.constraints, nameOf(item, lastSent)));
    const kept = has ?? { item, variant: lastSent };
    this.#beside.set(item.id, this.#isDelta || kept.mayBeDropped ? kept : { ...kept, mayBeDropped: true });
  }

  composed(response: EncodedResponse | undefined): Composed {
    const { view, overlay } = this.input;
    const left = overlayOf(this.#beside);
    return {
      response,
      overlay: left && sharedOverlay(view, overlay, left),
      isDeferring: this.deferred.size > 0,
      untold: this.#untold,
      isOwn: this.#isOwn || this.timeDependent,
    };
  }

  /**
   * `before`: what the client has; undefined: nothing that is known. A locator client loses one variant, unless another of
   * its parameter sets still shows it.
   */
  #remove(item: Item, before: Variant | undefined): void {
    if (!this.#isDelta) {
      [this.#isNews, this.#removes] = [true, true];
      return;
    }
    this.#seen.add(item.id);
    const constrained =
      this.input.encoding.constrained && before !== undefined && before.constraints.key !== '';
    if (before !== undefined) this.#removeVariant(item, before, item.locator || constrained);
    else if (item.locator) {
      if (!this.#others.anyUnknown(item)) this.#addMissing(item.requestedName);
    } else this.#postponed.push(() => this.#write(item.requestedName, undefined));
  }

  #removeVariant(item: Item, before: Variant, constrained: boolean): void {
    this.#removals.push({ item, variant: before });
    const exactly = item.locator || this.input.encoding.constrained;
    this.#postponed.push(() => {
      // By another parameter set, its name or an alias.
      if (this.#others.anyShows(item, before, exactly)) return;
      const name = nameOf(item, before);
      if (item.locator && this.#retained.has(constrainedKey(before.constraints, name))) return;
      this.#write(name, constrained ? before.constraints : undefined);
    });
  }

  /**
   * One variant replaces another. A client that got constraints also gets the removal of the old variant (protocol
   * §5). If an alias led to a resource of another name before, that resource is removed too.
   */
  #replace(item: Item, before: Variant, now: Variant): void {
    const constrained = item.locator || this.input.encoding.constrained;
    if (before.name !== now.name || (constrained && before.constraints.key !== now.constraints.key))
      this.#remove(item, before);
  }

  /** A subscribed name that is not there. */
  #addAbsent(item: Item): void {
    const { view } = this.input;
    if (this.#others.anyUnknown(item)) return;
    if (item.locator || view.info.short !== 'vhds') {
      this.#remove(item, undefined);
      return;
    }
    this.#seen.add(item.id);
    this.#named.add(item.requestedName);
    this.resources.push(unresolvableAlias(view, item));
  }

  /**
   * No variant matches one of the parameter sets of a locator client: removed_resource_names gets the name without
   * constraints (protocol §5). Once, even if several sets have no match.
   */
  #addMissing(requestedName: string): void {
    this.#postponed.push(() => this.#write(requestedName, UNCONSTRAINED));
  }

  /** A deferred removal is dropped if this response removes the variant already, or shows it for another parameter set. */
  dropAlreadyRemoved(): void {
    this.#writeRemovals();
    for (const [id, has] of this.#beside) {
      if (!has.item.locator || !isDeferred(has) || !isResource(has)) continue;
      const key = constrainedKey(has.variant.constraints, nameOf(has.item, has.variant));
      // What is unknown again stays.
      if (!this.#constrained.has(key) || this.#retained.has(key)) continue;
      this.#beside.delete(id);
      this.deferred.delete(id);
    }
  }

  /** What must be in the response as removed, unless it is in it already or deferred. */
  addRequiredRemovals(): void {
    for (const { id, requestedName, locator } of this.input.mustRemove) {
      if (this.#seen.has(id) || this.#beside.has(id)) continue;
      if (locator) this.#addMissing(requestedName);
      else this.#write(requestedName, undefined);
    }
  }

  #writeRemovals(): void {
    for (const write of this.#postponed.splice(0)) write();
  }

  #write(name: string, constraints: Constraints | undefined): void {
    if (!this.#isNew(name, constraints)) return;
    if (constraints === undefined) this.removed.push(name);
    else this.removedNames.push({ name, constraints: constraints.bytes });
  }

  writeErrors(): void {
    const { view, overlay } = this.input;
    for (const told of this.#told) {
      const kept = this.#beside.get(told.item.id);
      const isListed = overlay === undefined || view.items.has(told.item.id);
      if (isListed && (kept === undefined || !isDeferred(kept))) this.#addNewErrors(told);
    }
    if (this.#removes) this.#withholdErrors();
  }

  /** Who takes an error for what keeps a resource would not remove what this full state lacks (protocol §8.2). */
  #withholdErrors(): void {
    if (this.#keeping.size === 0) return;
    this.#untold = new Set(this.#keeping.values());
    const told = this.errors.filter((error) => !this.#keeping.has(error));
    this.errors.splice(0, this.errors.length, ...told);
  }

  #errorsSentUpTo(item: Item): number {
    const { view, position } = this.input;
    return position?.errorsSentUpTo(view, item) ?? -1;
  }

  /** The errors that the subscriber has not got yet. */
  #addNewErrors({ item, lastSent, has }: Change): void {
    const { view } = this.input;
    const errors = view.resourceErrors(item);
    // Nearly always: this is on the way of each item of a client that moves.
    if (errors.length === 0) return;
    const held = has !== undefined && isDeferred(has) ? has.errorsSentUpTo : undefined;
    const sent = held ?? this.#errorsSentUpTo(item);
    for (const error of errors) {
      const isNew = error.revision[view.access.cohort] > sent || this.#isOwed(error, item, lastSent);
      if (!isNew) continue;
      if (this.#maySend(error, item)) this.#addError(error, item);
      // It is owed until no other parameter set is unknown.
      else if (item.last.value === 'absent') this.#beside.set(item.id, withheld(item));
    }
  }

  #addError({ status, code, constraints }: StoredResourceError, item: Item): void {
    // Several parameter sets may have it.
    const key = constrainedKey(constraints, item.requestedName);
    if (item.locator && this.#errors.has(key)) return;
    if (item.locator) this.#errors.add(key);
    const { bytes } = item.locator ? constraints : UNCONSTRAINED;
    for (const name of this.input.view.requestedNamesOf(item)) {
      const told = { name, constraints: bytes, status };
      this.errors.push(told);
      if (code !== Code.NOT_FOUND && !isVariant(item.last.value)) this.#keeping.set(told, item.id);
    }
  }

  /**
   * A NOT_FOUND error is read as the absence for all parameter sets (protocol §5.10), and in delta is a removal (protocol §8).
   * It waits until the name is unknown for none of them.
   */
  #maySend(error: StoredResourceError, item: Item): boolean {
    if (error.code !== Code.NOT_FOUND) return true;
    if (isVariant(item.last.value)) return this.input.encoding.protocol === 'sotw';
    return !this.#others.anyUnknown(item);
  }

  /** It was kept from the subscriber until now, when the absence of the item is new to it. */
  #isOwed(error: StoredResourceError, { last }: Item, lastSent: Value | undefined): boolean {
    const { view, encoding } = this.input;
    if (last.value !== 'absent' || lastSent === 'absent') return false;
    if (encoding.protocol === 'delta') return error.code === Code.NOT_FOUND;
    return lastSent !== undefined && view.isKeptBeside(lastSent, error);
  }

  /** `bytes` are the response with this serial. */
  response(
    serial: Serial,
    bytes: Buffer,
    version: string,
    resources = this.resources.length,
  ): EncodedResponse {
    const nonce = String(serial);
    const header = {
      serial,
      nonce,
      version,
      complete: this.#tellsAll,
      resources,
      receivedAt: this.#receivedAt(),
    };
    return this.#record(header, { ...header, bytes, removed: this.removed });
  }

  /** The same response as another one; only the record of what is new to the subscriber differs. */
  reuse(whole: EncodedResponse): EncodedResponse {
    return this.#record({ ...whole.sent.header, receivedAt: this.#receivedAt() }, whole);
  }

  #record(
    header: ResponseHeader,
    response: Omit<EncodedResponse, 'sent' | 'changed' | 'receivedAt'>,
  ): EncodedResponse {
    const sent = { header, additions: this.#additions, removals: this.#removals };
    return { ...response, receivedAt: header.receivedAt, changed: this.#changed, sent };
  }

  /**
   * Of the newest update in it. What is sent again and what a newcomer gets may be old, so it has no time. The removals
   * that earlier responses deferred have the time of their own updates.
   */
  #receivedAt(): number | undefined {
    const { overlay } = this.input;
    if (this.#headAt !== undefined || overlay === undefined) return this.#headAt;
    let newest: number | undefined;
    for (const [id, { receivedAt = 0 }] of overlay) {
      if (receivedAt > (newest ?? 0) && !this.#beside.has(id)) newest = receivedAt;
    }
    return newest;
  }
}

/**
 * What a VHDS client gets for a name that does not exist. Envoy holds a request until a resource with this alias comes,
 * and lets it go if the resource has no body (protocol §4.8).
 */
function unresolvableAlias({ type }: View, { requestedName }: Item): OutgoingResource {
  return {
    variant: withoutBody(type, resourceName(requestedName), [requestedName]),
    name: requestedName,
    constrained: false,
    wrapped: false,
    ttl: undefined,
    bodiless: true,
  };
}

/** An absence that a client is not told of yet: it is the same for all. */
const withheld = onceFor((item: Item): Has => ({ item, variant: 'unknown' }));

const constrainedKey = ({ key }: Constraints, name: string): string => `=${key} ${name}`;

type Shown = Pick<OutgoingResource, 'name' | 'variant'>;

/**
 * The version_info of a SotW response: the upstream's, verbatim; where it gives none, a digest of what is visible (protocol
 * §3.10). `union`: what is in it, if that is more than what is visible.
 */
function sotwVersion(view: View, encoding: Encoding, union: Iterable<Shown> | undefined): string {
  if (!encoding.contentVersions && view.version !== '') return view.version;
  // A union with deferred removals must not have the version of what is visible.
  const digest = union === undefined ? viewDigest(view) : digestOf(Array.from(union, lineOf));
  return encoding.contentVersions ? `${view.version}@${digest}` : digest;
}

/** `<upstream's>@<hash of the view>`: equal versions, equal content. */
export function contentVersionOf({ shown }: View): string {
  return `${shown.version}@${viewDigest(shown)}`;
}

/** What remains of a TTL is told to each client at its time. */
export const showsTtls = onceAtHead((view: View): boolean =>
  view.items.values().some(({ last }) => isVariant(last.value) && last.value.ttl !== undefined),
);

/** Whether a version (CONTENT) says that a client has exactly what a view shows, and nothing with a time to live. */
export function showsAll(view: View, version: string): boolean {
  return view.resolved && !showsTtls(view) && version.endsWith(`@${viewDigest(view)}`);
}

/** Digest of everything that a view shows, resource errors included. */
const digestAtHead = onceAtHead((shown: View) => {
  const lines: string[] = [];
  for (const item of shown.items.values()) {
    const { name, last } = item;
    if (isVariant(last.value)) lines.push(lineOf({ name, variant: last.value }));
    // Another error is news, or it would hide behind a 304 (protocol §7.3).
    for (const { constraints, status } of shown.resourceErrors(item))
      lines.push(JSON.stringify([name, constraints.key, 'error', Buffer.from(status).toString('base64')]));
  }
  return digestOf(lines);
});

const viewDigest = ({ shown }: View): string => digestAtHead(shown);

const lineOf = ({ name, variant }: Shown): string =>
  JSON.stringify([name, variant.constraints.key, contentHash(variant)]);

/** 16 hex digits. */
const digestOf = (lines: readonly string[]): string =>
  hash('sha256', lines.toSorted().join('\n'), 'hex').slice(0, 16);
