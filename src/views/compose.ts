import { hash } from 'node:crypto';
import { type Serial, serial } from '../model/brand.ts';
import { isVariant, type Value } from '../model/catalog.ts';
import type { Payload, Variant } from '../model/resource.ts';
import type { Encoding } from '../model/subscription.ts';
import { Code } from '../wire/grpc-status.ts';
import {
  encodeDeltaResponse,
  encodeSotwResponse,
  type OutgoingError,
  type OutgoingResource,
  type RemovedName,
} from '../wire/responses.ts';
import type { Composed, Frame, RetainedResource } from './frame.ts';
import type { Item } from './item.ts';
import { OtherParameterSets } from './other-parameter-sets.ts';
import { plainState } from './plain-state.ts';
import { unresolvableAlias } from './unresolvable-alias.ts';
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

export interface CompositionInput {
  readonly view: View;
  readonly encoding: Encoding;
  readonly now: number;
  readonly controlPlane: string;
  /** The subscriber has no position in this view yet. */
  readonly newcomer: boolean;
  /** The revision up to which the subscriber has got the errors of an item. */
  readonly errorsToldUpTo: (item: Item) => number;
  /** Removals are deferred: SotW sends the old and the new resources, delta only the additions. */
  readonly deferRemovals: boolean;
  /** What earlier responses kept back; it goes now unless `deferRemovals`. */
  readonly deferredRemovals: ReadonlyMap<string, RetainedResource> | undefined;
  /** What is to be told as removed unless a resource of that name is told; delta only. */
  readonly removals: readonly { readonly id: string; readonly name: string; readonly locator: boolean }[];
  /** The first response of a subscription is due even if there is nothing in it (protocol §3.9, §4.7). */
  readonly firstResponseDue: boolean;
  /** The subscriber's last serial: the next one must be higher. */
  readonly lastSerial: number;
}

let lastSerial = 0;

const nextSerial = (): Serial => serial(++lastSerial);

/** Whether the variant must be sent to this subscriber. */
function needsSending({ lastSent, clientVersion, resend }: Change, now: Variant, ttl: boolean): boolean {
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
    suffix(a.deltaVersion) === suffix(b.deltaVersion)
  );
}

/** Interned while it is cached; what went and came back is another object. */
function samePayload(a: Payload | undefined, b: Payload | undefined): boolean {
  if (a === undefined || b === undefined) return a === b;
  return a === b || (a.hash === b.hash && Buffer.compare(a.bytes, b.bytes) === 0);
}

/** The constraints may have changed. A client that reads only the name sees no change then. */
const hasBody = (held: Value | undefined, now: Variant): boolean =>
  isVariant(held) && samePayload(held.payload, now.payload);

const suffix = (tag: string): string => tag.slice(tag.lastIndexOf('@') + 1);

/** Only the digest counts, and only where there is one (protocol §4.1). */
function sameSuffix(claimed: string, tag: string): boolean {
  return claimed.includes('@') && suffix(claimed) === suffix(tag);
}

/** The delta response for these changes. */
export function composeDelta(parts: CompositionInput, changes: Iterable<Change>): Composed {
  const { view, encoding } = parts;
  const content = new ResponseContent(parts);
  const retained = new Map<string, RetainedResource>();
  for (const change of changes) {
    const { item, now, lastSent, clientVersion, resend } = change;
    if (isVariant(now)) {
      if (needsSending(change, now, encoding.ttl)) {
        const hasIt = !resend && isVariant(lastSent) && sameVariant(lastSent, now);
        content.noteChange(item, now, !resend && hasBody(lastSent, now));
        content.add(item, now, hasIt);
      }
      if (isVariant(lastSent)) content.replace(item, lastSent, now);
      else if (item.named && lastSent === 'unknown') content.addAbsentForOthers(item);
      // initial_resource_versions has names without constraints. The client has the unconstrained resource, unless
      // the version shows that it has exactly this variant.
      if (
        (item.locator || encoding.constrained) &&
        clientVersion !== undefined &&
        now.constraints.key !== '' &&
        !sameSuffix(clientVersion, now.deltaVersion)
      )
        content.addMissing(item);
    } else if (now === 'absent') {
      if (isVariant(lastSent)) {
        if (parts.deferRemovals)
          retained.set(item.id, { item, variant: lastSent, errorsToldUpTo: parts.errorsToldUpTo(item) });
        else content.remove(item, lastSent);
      } else if (clientVersion !== undefined) {
        content.remove(item, undefined);
      } else if (
        item.named &&
        (resend || lastSent !== 'absent') &&
        parts.deferredRemovals?.has(item.id) !== true
      ) {
        content.addAbsent(item); // of what was kept back its removal is said in its time
      }
    }
    if (!retained.has(item.id) && parts.deferredRemovals?.has(item.id) !== true) content.addErrors(item);
  }
  const back = [...retained.keys(), ...(parts.deferredRemovals?.keys() ?? [])];
  for (const [id, entry] of parts.deferredRemovals ?? []) {
    const now = view.items.get(id)?.last.value;
    if (content.has(id) && isVariant(now)) content.replace(entry.item, entry.variant, now);
    else if (parts.deferRemovals) retained.set(id, entry);
    else content.remove(entry.item, entry.variant);
  }
  content.addRemovals(parts.removals.filter(({ id }) => !retained.has(id)));
  content.dropAlreadyRemoved(retained);
  content.addErrorsOfDeferred(back, retained);
  const { empty } = content;
  const keptBack = retained.size > 0 ? retained : undefined;
  if (empty && !parts.firstResponseDue) return { frame: undefined, deferredRemovals: keptBack };
  const id = nextSerial();
  const bytes = encodeDeltaResponse({
    type: view.type,
    version: view.version,
    nonce: String(id),
    resources: content.resources,
    errors: content.errors,
    controlPlane: parts.controlPlane,
    removed: content.removed,
    removedNames: content.removedNames,
  });
  return { frame: content.frame(id, bytes, view.version), deferredRemovals: keptBack };
}

/** The SotW response: the whole selection if absence deletes, else what changed (protocol §3.7). */
export function composeSotw(parts: CompositionInput, changes: Iterable<Change>): Composed {
  const { view, encoding } = parts;
  const content = new ResponseContent(parts);
  const retained = new Map<string, RetainedResource>(
    parts.deferRemovals ? parts.deferredRemovals : undefined,
  );
  let visible = parts.firstResponseDue || (!parts.deferRemovals && parts.deferredRemovals !== undefined);
  // A resource that the client may not see any more is not sent again, not even as a deferred removal.
  for (const [id, { item, variant }] of retained) {
    if (!view.permitted.admits(variant, item.parameters)) visible = retained.delete(id);
  }
  for (const change of changes) {
    const { item, now, lastSent, resend } = change;
    if (isVariant(now)) {
      if (needsSending(change, now, encoding.ttl)) {
        visible = true;
        const hasIt = !resend && isVariant(lastSent) && sameVariant(lastSent, now);
        content.noteChange(item, now, !resend && hasBody(lastSent, now));
        if (!view.complete) content.add(item, now, hasIt);
      }
      retained.delete(item.id);
    } else if (now === 'absent' && view.complete) {
      if (isVariant(lastSent) && parts.deferRemovals && view.permitted.admits(lastSent, item.parameters))
        retained.set(item.id, { item, variant: lastSent, errorsToldUpTo: parts.errorsToldUpTo(item) });
      else if (lastSent !== 'absent' && (isVariant(lastSent) || item.named)) visible = true;
    }
    if (!retained.has(item.id) && parts.deferredRemovals?.has(item.id) !== true) content.addErrors(item);
  }
  content.addErrorsOfDeferred(parts.deferredRemovals?.keys() ?? [], retained);
  const keptBack = retained.size > 0 ? retained : undefined;
  if (!visible && content.errors.length === 0) return { frame: undefined, deferredRemovals: keptBack };
  const shareable = view.complete && retained.size === 0 && content.errors.length === 0;
  const whole = shareable ? view.frames.whole(encoding, parts.lastSerial) : undefined;
  // The complete state is the same for every subscriber. Only the record of what was new differs.
  if (whole !== undefined) return { frame: content.reuse(whole), deferredRemovals: undefined };
  const plain = shareable ? plainState(view, encoding) : undefined;
  if (plain === undefined && view.complete) {
    for (const item of view.items.values()) {
      if (isVariant(item.last.value)) content.add(item, item.last.value, false);
    }
    for (const { item, variant } of retained.values()) content.add(item, variant, false);
  }
  const id = nextSerial();
  const version = sotwVersion(view, encoding, retained.size > 0 ? content : undefined);
  const bytes = encodeSotwResponse({
    type: view.type,
    version,
    nonce: String(id),
    plain,
    resources: content.resources,
    errors: content.errors,
    controlPlane: parts.controlPlane,
  });
  const frame = content.frame(id, bytes, version, plain?.length);
  if (shareable && !frame.timeDependent) view.frames.addWhole(encoding, frame);
  return { frame, deferredRemovals: keptBack };
}

/** The upstream's, verbatim; where it gives none, a digest of what is visible (protocol §3.10). */
function sotwVersion(view: View, encoding: Encoding, union: ResponseContent | undefined): string {
  if (!encoding.contentVersions && view.version !== '') return view.version;
  // A union with what is gone must not pass for what is visible.
  const digest = union === undefined ? viewDigest(view) : union.digest();
  return encoding.contentVersions ? `${view.version}@${digest}` : digest;
}

const digests = new WeakMap<View, { readonly generation: number; readonly digest: string }>();

/** Digest of everything that a view shows: 16 hex digits. */
export function viewDigest(view: View): string {
  const known = digests.get(view);
  if (known?.generation === view.generation) return known.digest;
  const digest = digestOf(view);
  digests.set(view, { generation: view.generation, digest });
  return digest;
}

function digestOf(view: View): string {
  const visible: string[] = [];
  for (const { name, last } of view.items.values()) {
    if (isVariant(last.value))
      visible.push(JSON.stringify([name, last.value.constraints.key, suffix(last.value.deltaVersion)]));
  }
  return hash('sha256', visible.toSorted().join('\n'), 'hex').slice(0, 16);
}

/** Gathers a response's parts; a resource or a removal is in it once, whatever number of items show it. */
class ResponseContent {
  readonly resources: OutgoingResource[] = [];
  readonly removed: string[] = [];
  readonly removedNames: RemovedName[] = [];
  readonly errors: OutgoingError[] = [];
  readonly #additions: RetainedResource[] = [];
  readonly #removals: RetainedResource[] = [];
  readonly #changed: Variant[] = [];
  readonly #seen = new Set<string>();
  /** What is told by name alone, by that; and the rest by `constrainedKey`. */
  readonly #named = new Set<string>();
  readonly #present = new Set<string>();
  /** `removed`, to be looked up. */
  readonly #removedNames = new Set<string>();
  readonly #siblings: OtherParameterSets;
  readonly #postponed: (() => void)[] = [];
  readonly #parts: CompositionInput;
  #timeDependent = false;

  constructor(parts: CompositionInput) {
    this.#parts = parts;
    this.#siblings = new OtherParameterSets(parts.view);
  }

  get empty(): boolean {
    this.#writeRemovals();
    return this.resources.length + this.removed.length + this.removedNames.length + this.errors.length === 0;
  }

  has(id: string): boolean {
    return this.#seen.has(id);
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
    this.#seen.add(item.id);
    const { encoding, view } = this.#parts;
    const constrained = item.locator || (encoding.constrained && variant.constraints.key !== '');
    // In SotW the name is the one in the body, however the client spells it (protocol §6).
    const inBody = encoding.protocol === 'sotw' && !encoding.wrapped && !constrained;
    const name = inBody ? variant.name : nameOf(item, variant);
    const present = constrained ? this.#present : this.#named;
    const key = constrained ? constrainedKey(variant.constraints.key, name) : name;
    if (present.has(key)) return;
    present.add(key);
    let ttl: number | undefined;
    if (encoding.ttl && variant.ttl !== undefined) {
      ttl = Math.max(1, variant.ttl.deadline - this.#parts.now);
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

  remove(item: Item, held: Variant | undefined): void {
    this.#seen.add(item.id);
    if (item.locator) {
      if (held === undefined) this.addMissing(item);
      else this.removeVariant(item, held);
    } else if (this.#parts.encoding.constrained && held !== undefined && held.constraints.key !== '') {
      this.removeVariant(item, held);
    } else {
      const name = held === undefined ? item.spelling : nameOf(item, held);
      if (held !== undefined) this.#removals.push({ item, variant: held });
      this.#postponed.push(() => {
        if (held === undefined || !this.#shownElsewhere(item, held)) this.#removeName(name);
      });
    }
  }

  /** A subscribed name that is not there. */
  addAbsent(item: Item): void {
    const { view } = this.#parts;
    // It does not say for which parameter set: it waits until that is known of all.
    if (this.#siblings.anyOther(item, 'unknown')) return;
    if (item.locator || view.info.short !== 'vhds') {
      this.remove(item, undefined);
      return;
    }
    this.#seen.add(item.id);
    this.#named.add(item.spelling);
    this.resources.push(unresolvableAlias(view, item));
  }

  /**
   * A locator client has several parameter sets for one name. Absence is told only when it is known for all of them.
   * This one was unknown until now, so the absence for the others is told now.
   */
  addAbsentForOthers(item: Item): void {
    if (this.#siblings.anyOther(item, 'absent') && !this.#siblings.anyOther(item, 'unknown'))
      this.addMissing(item);
  }

  /**
   * One variant replaces another. A client that got constraints also gets the removal of the old variant (protocol
   * §5). If an alias led to a resource of another name before, that resource is removed too.
   */
  replace(item: Item, held: Variant, now: Variant): void {
    if (held.name === now.name) {
      const constrained = item.locator || this.#parts.encoding.constrained;
      if (constrained && held.constraints.key !== now.constraints.key) this.removeVariant(item, held);
    } else this.remove(item, held);
  }

  /**
   * No variant matches one of the parameter sets of a locator client: removed_resource_names gets the name without
   * constraints (protocol §5). Once, even if several sets have no match.
   */
  addMissing({ spelling }: Pick<Item, 'spelling'>): void {
    this.#postponed.push(() => {
      const key = constrainedKey('', spelling);
      if (this.#present.has(key)) return;
      this.#present.add(key);
      this.removedNames.push({ name: spelling, constraints: noConstraints });
    });
  }

  /** A locator client loses one variant, unless another of its parameter sets still shows it. */
  removeVariant(item: Item, held: Variant): void {
    this.#removals.push({ item, variant: held });
    this.#postponed.push(() => {
      const name = nameOf(item, held);
      const key = constrainedKey(held.constraints.key, name);
      if (this.#present.has(key) || this.#shownElsewhere(item, held)) return;
      this.#present.add(key);
      this.removedNames.push({ name, constraints: held.constraints.bytes });
    });
  }

  /**
   * A deferred removal is dropped if this response removes the variant already, or shows it for another parameter
   * set.
   */
  dropAlreadyRemoved(retained: Map<string, RetainedResource>): void {
    this.#writeRemovals();
    for (const [id, { item, variant }] of retained) {
      if (item.locator && this.#present.has(constrainedKey(variant.constraints.key, nameOf(item, variant))))
        retained.delete(id);
    }
  }

  addRemovals(entries: CompositionInput['removals']): void {
    for (const { id, name, locator } of entries) {
      if (this.#seen.has(id)) continue;
      if (locator) this.addMissing({ spelling: name });
      else this.#removeName(name);
    }
  }

  /**
   * Errors of a resource whose removal was deferred are sent together with the removal. In delta a NOT_FOUND error is
   * a removal itself (protocol §8).
   */
  addErrorsOfDeferred(ids: Iterable<string>, retained: ReadonlyMap<string, RetainedResource>): void {
    for (const id of ids) {
      const item = retained.has(id) ? undefined : this.#parts.view.items.get(id);
      if (item !== undefined) this.addErrors(item);
    }
  }

  addErrors(item: Item): void {
    const told =
      this.#parts.deferredRemovals?.get(item.id)?.errorsToldUpTo ?? this.#parts.errorsToldUpTo(item);
    const isDelta = this.#parts.encoding.protocol === 'delta';
    for (const error of this.#parts.view.resourceErrors(item)) {
      if (error.revision <= told) continue;
      // In delta a NOT_FOUND error removes the name for all parameter sets (protocol §8). It is sent only if the name
      // is absent for all of them.
      const removes = error.code === Code.NOT_FOUND && isDelta;
      if (removes && (item.last.value !== 'absent' || this.#siblings.anyOther(item, 'unknown'))) continue;
      const constraints = item.locator ? error.constraints.bytes : noConstraints;
      this.errors.push({ name: item.spelling, constraints, status: error.status });
    }
  }

  digest(): string {
    const lines = this.resources.map(({ name, variant }) =>
      JSON.stringify([name, variant.constraints.key, suffix(variant.deltaVersion)]),
    );
    return hash('sha256', lines.toSorted().join('\n'), 'hex').slice(0, 16);
  }

  frame(id: Serial, bytes: Buffer, version: string, resources = this.resources.length): Frame {
    return {
      serial: id,
      nonce: String(id),
      bytes,
      version,
      receivedAt: this.#receivedAt(),
      changes: { additions: this.#additions, removals: this.#removals },
      resources,
      changed: this.#changed,
      timeDependent: this.#timeDependent,
    };
  }

  reuse(whole: Frame): Frame {
    return {
      ...whole,
      changes: { additions: this.#additions, removals: this.#removals },
      changed: this.#changed,
      receivedAt: this.#receivedAt(),
    };
  }

  /** Propagation is measured for updates only. The first response of a subscriber may hold old content. */
  #receivedAt(): number | undefined {
    return this.#parts.newcomer ? undefined : this.#parts.view.headAt;
  }

  /** Never both in resources and in removed_resources: Envoy rejects such a response (protocol §4.9). */
  #removeName(name: string): void {
    if (this.#named.has(name) || this.#removedNames.has(name)) return;
    this.#removedNames.add(name);
    this.removed.push(name);
  }

  #writeRemovals(): void {
    for (const remove of this.#postponed.splice(0)) remove();
  }

  /** By another parameter set, its name or an alias. */
  #shownElsewhere(item: Item, held: Variant): boolean {
    return this.#siblings.anyShows(item, held, item.locator || this.#parts.encoding.constrained);
  }
}

/** By name and by resource_name are two things, though there be no constraints. */
const constrainedKey = (constraints: string, name: string): string => `=${constraints} ${name}`;

const noConstraints = new Uint8Array(0);

/** The subscriber's spelling, unless it subscribed by an alias: then the resource's own name. */
function nameOf(item: Item, variant: Variant): string {
  return item.name === variant.name ? item.spelling : variant.name;
}
