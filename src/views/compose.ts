import { hash } from 'node:crypto';
import { type Serial, serial } from '../model/brand.ts';
import { isVariant, type Value } from '../model/catalog.ts';
import type { Payload, Variant } from '../model/resource.ts';
import type { Encoding } from '../model/subscription.ts';
import {
  encodeDeltaResponse,
  encodeSotwResponse,
  type OutgoingError,
  type OutgoingResource,
  type RemovedName,
} from '../wire/responses.ts';
import { Code } from '../wire/status.ts';
import type { Composed, Frame, Kept } from './frame.ts';
import type { Item } from './item.ts';
import { plainState } from './plain-state.ts';
import { Siblings } from './siblings.ts';
import { unresolved } from './unresolved.ts';
import type { View } from './view.ts';

/** What one item means to one taker. */
export interface Change {
  readonly item: Item;
  readonly now: Value;
  /** What it was sent. */
  readonly held: Value | undefined;
  /** The version that it says it has (initial_resource_versions). */
  readonly claimed: string | undefined;
  /** To be sent even if it has it. */
  readonly forced: boolean;
}

export interface Composition {
  readonly view: View;
  readonly encoding: Encoding;
  readonly now: number;
  readonly controlPlane: string;
  /** The taker stands elsewhere, or nowhere yet. */
  readonly newcomer: boolean;
  /** The revision up to which the taker was told of an item's faults. */
  readonly told: (item: Item) => number;
  /** Removals wait: SotW gets the union of old and new, delta only the additions. */
  readonly keepRemoved: boolean;
  /** What earlier responses kept back; it goes now unless `keepRemoved`. */
  readonly kept: ReadonlyMap<string, Kept> | undefined;
  /** What is to be told as removed unless a resource of that name is told; delta only. */
  readonly gone: readonly { readonly id: string; readonly name: string; readonly locator: boolean }[];
  /** The first response of a subscription is due even if there is nothing in it (protocol §3.9, §4.7). */
  readonly first: boolean;
  /** The taker's last nonce: it takes none below. */
  readonly lastSerial: number;
}

let lastSerial = 0;

const nextSerial = (): Serial => serial(++lastSerial);

/** Whether the taker lacks what the view shows. */
function lacks({ held, claimed, forced }: Change, now: Variant, ttl: boolean): boolean {
  if (forced) return true;
  if (claimed !== undefined) return !sameSuffix(claimed, now.tag);
  if (!isVariant(held)) return true;
  if (held === now) return false;
  return !sameVariant(held, now) || (ttl && held.ttl?.deadline !== now.ttl?.deadline);
}

export function sameVariant(a: Variant, b: Variant): boolean {
  return (
    samePayload(a.payload, b.payload) &&
    a.constraints.key === b.constraints.key &&
    suffix(a.tag) === suffix(b.tag)
  );
}

/** Interned while it is cached; what went and came back is another object. */
function samePayload(a: Payload | undefined, b: Payload | undefined): boolean {
  if (a === undefined || b === undefined) return a === b;
  return a === b || (a.hash === b.hash && Buffer.compare(a.bytes, b.bytes) === 0);
}

/** It may have come under other constraints: a client that reads the name only sees the same again. */
const hasBody = (held: Value | undefined, now: Variant): boolean =>
  isVariant(held) && samePayload(held.payload, now.payload);

const suffix = (tag: string): string => tag.slice(tag.lastIndexOf('@') + 1);

/** Only the digest counts, and only where there is one (protocol §4.1). */
function sameSuffix(claimed: string, tag: string): boolean {
  return claimed.includes('@') && suffix(claimed) === suffix(tag);
}

/** The delta response for these changes. */
export function composeDelta(parts: Composition, changes: Iterable<Change>): Composed {
  const { view, encoding } = parts;
  const content = new Content(parts);
  const kept = new Map<string, Kept>();
  for (const change of changes) {
    const { item, now, held, claimed, forced } = change;
    if (isVariant(now)) {
      if (lacks(change, now, encoding.ttl)) {
        const hasIt = !forced && isVariant(held) && sameVariant(held, now);
        content.note(item, now, !forced && hasBody(held, now));
        content.add(item, now, hasIt);
      }
      if (isVariant(held)) content.swap(item, held, now);
      else if (item.named && held === 'unknown') content.lackOthers(item);
      // What a client claims by name alone has no constraints, unless its version tells that it is this.
      if (
        (item.locator || encoding.constrained) &&
        claimed !== undefined &&
        now.constraints.key !== '' &&
        !sameSuffix(claimed, now.tag)
      )
        content.miss(item);
    } else if (now === 'absent') {
      if (isVariant(held)) {
        if (parts.keepRemoved) kept.set(item.id, { item, variant: held, told: parts.told(item) });
        else content.remove(item, held);
      } else if (claimed !== undefined) {
        content.remove(item, undefined);
      } else if (item.named && (forced || held !== 'absent') && parts.kept?.has(item.id) !== true) {
        content.lack(item); // of what was kept back its removal is said in its time
      }
    }
    if (!kept.has(item.id) && parts.kept?.has(item.id) !== true) content.faults(item);
  }
  const back = [...kept.keys(), ...(parts.kept?.keys() ?? [])];
  for (const [id, entry] of parts.kept ?? []) {
    const now = view.items.get(id)?.last.value;
    if (content.has(id) && isVariant(now)) content.swap(entry.item, entry.variant, now);
    else if (parts.keepRemoved) kept.set(id, entry);
    else content.remove(entry.item, entry.variant);
  }
  content.gone(parts.gone.filter(({ id }) => !kept.has(id)));
  content.settle(kept);
  content.faultsOfKept(back, kept);
  const { empty } = content;
  const keptBack = kept.size > 0 ? kept : undefined;
  if (empty && !parts.first) return { frame: undefined, kept: keptBack };
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
  return { frame: content.frame(id, bytes, view.version), kept: keptBack };
}

/** The SotW response: the whole selection if absence deletes, else what changed (protocol §3.7). */
export function composeSotw(parts: Composition, changes: Iterable<Change>): Composed {
  const { view, encoding } = parts;
  const content = new Content(parts);
  const kept = new Map<string, Kept>(parts.keepRemoved ? parts.kept : undefined);
  let visible = parts.first || (!parts.keepRemoved && parts.kept !== undefined);
  // What a client may not see any more is not sent again, whatever leads to it.
  for (const [id, { item, variant }] of kept) {
    if (!view.permitted.admits(variant, item.parameters)) visible = kept.delete(id);
  }
  for (const change of changes) {
    const { item, now, held, forced } = change;
    if (isVariant(now)) {
      if (lacks(change, now, encoding.ttl)) {
        visible = true;
        const hasIt = !forced && isVariant(held) && sameVariant(held, now);
        content.note(item, now, !forced && hasBody(held, now));
        if (!view.complete) content.add(item, now, hasIt);
      }
      kept.delete(item.id);
    } else if (now === 'absent' && view.complete) {
      if (isVariant(held) && parts.keepRemoved && view.permitted.admits(held, item.parameters))
        kept.set(item.id, { item, variant: held, told: parts.told(item) });
      else if (held !== 'absent' && (isVariant(held) || item.named)) visible = true;
    }
    if (!kept.has(item.id) && parts.kept?.has(item.id) !== true) content.faults(item);
  }
  content.faultsOfKept(parts.kept?.keys() ?? [], kept);
  const keptBack = kept.size > 0 ? kept : undefined;
  if (!visible && content.errors.length === 0) return { frame: undefined, kept: keptBack };
  const shareable = view.complete && kept.size === 0 && content.errors.length === 0;
  const whole = shareable ? view.frames.whole(encoding, parts.lastSerial) : undefined;
  // The same bytes for everybody, wherever they come from: only what was new to them differs.
  if (whole !== undefined) return { frame: content.again(whole), kept: undefined };
  const plain = shareable ? plainState(view, encoding) : undefined;
  if (plain === undefined && view.complete) {
    for (const item of view.items.values()) {
      if (isVariant(item.last.value)) content.add(item, item.last.value, false);
    }
    for (const { item, variant } of kept.values()) content.add(item, variant, false);
  }
  const id = nextSerial();
  const version = sotwVersion(view, encoding, kept.size > 0 ? content : undefined);
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
  if (shareable && !frame.fleeting) view.frames.addWhole(encoding, frame);
  return { frame, kept: keptBack };
}

/** The upstream's, verbatim; where it gives none, a digest of what is visible (protocol §3.10). */
function sotwVersion(view: View, encoding: Encoding, union: Content | undefined): string {
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
      visible.push(JSON.stringify([name, last.value.constraints.key, suffix(last.value.tag)]));
  }
  return hash('sha256', visible.toSorted().join('\n'), 'hex').slice(0, 16);
}

/** Gathers a response's parts; a resource or a removal is in it once, whatever number of items show it. */
class Content {
  readonly resources: OutgoingResource[] = [];
  readonly removed: string[] = [];
  readonly removedNames: RemovedName[] = [];
  readonly errors: OutgoingError[] = [];
  readonly #news: Kept[] = [];
  readonly #lost: Kept[] = [];
  readonly #changed: Variant[] = [];
  readonly #seen = new Set<string>();
  /** What is told by name alone, by that; and the rest by `constrainedKey`. */
  readonly #named = new Set<string>();
  readonly #present = new Set<string>();
  /** `removed`, to be looked up. */
  readonly #gone = new Set<string>();
  readonly #siblings: Siblings;
  readonly #removals: (() => void)[] = [];
  readonly #parts: Composition;
  #fleeting = false;

  constructor(parts: Composition) {
    this.#parts = parts;
    this.#siblings = new Siblings(parts.view);
  }

  get empty(): boolean {
    this.#settleRemovals();
    return this.resources.length + this.removed.length + this.removedNames.length + this.errors.length === 0;
  }

  has(id: string): boolean {
    return this.#seen.has(id);
  }

  /** Something that the taker did not have so; `hasBody`: but the same content. */
  note(item: Item, variant: Variant, hasBody: boolean): void {
    this.#news.push({ item, variant });
    if (!hasBody) this.#changed.push(variant);
  }

  /** `hasIt`: the taker has this content, and only its time to live is new. */
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
      this.#fleeting = true;
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
      if (held === undefined) this.miss(item);
      else this.removeVariant(item, held);
    } else if (this.#parts.encoding.constrained && held !== undefined && held.constraints.key !== '') {
      this.removeVariant(item, held);
    } else {
      const name = held === undefined ? item.spelling : nameOf(item, held);
      if (held !== undefined) this.#lost.push({ item, variant: held });
      this.#removals.push(() => {
        if (held === undefined || !this.#shownElsewhere(item, held)) this.#removeName(name);
      });
    }
  }

  /** A subscribed name that is not there. */
  lack(item: Item): void {
    const { view } = this.#parts;
    // It does not say for which parameter set: it waits until that is known of all.
    if (this.#siblings.others(item, 'unknown')) return;
    if (item.locator || view.info.short !== 'vhds') {
      this.remove(item, undefined);
      return;
    }
    this.#seen.add(item.id);
    this.#named.add(item.spelling);
    this.resources.push(unresolved(view, item));
  }

  /** It was unknown for one of a locator client's parameter sets: what is not there for others has not been said yet. */
  lackOthers(item: Item): void {
    if (this.#siblings.others(item, 'absent') && !this.#siblings.others(item, 'unknown')) this.miss(item);
  }

  /**
   * One resource in another's place: where constraints were sent the one before is removed by them (protocol §5), and
   * so is one of another name that an alias led to.
   */
  swap(item: Item, held: Variant, now: Variant): void {
    if (held.name === now.name) {
      const constrained = item.locator || this.#parts.encoding.constrained;
      if (constrained && held.constraints.key !== now.constraints.key) this.removeVariant(item, held);
    } else this.remove(item, held);
  }

  /** There is nothing for one of a locator client's parameter sets (protocol §5): said once, whatever their number. */
  miss({ spelling }: Pick<Item, 'spelling'>): void {
    this.#removals.push(() => {
      const key = constrainedKey('', spelling);
      if (this.#present.has(key)) return;
      this.#present.add(key);
      this.removedNames.push({ name: spelling, constraints: noConstraints });
    });
  }

  /** A locator client loses one variant, unless another of its parameter sets still shows it. */
  removeVariant(item: Item, held: Variant): void {
    this.#lost.push({ item, variant: held });
    this.#removals.push(() => {
      const name = nameOf(item, held);
      const key = constrainedKey(held.constraints.key, name);
      if (this.#present.has(key) || this.#shownElsewhere(item, held)) return;
      this.#present.add(key);
      this.removedNames.push({ name, constraints: held.constraints.bytes });
    });
  }

  /** Of what was kept back nothing is left to be said where it is removed, or there for another parameter set. */
  settle(kept: Map<string, Kept>): void {
    this.#settleRemovals();
    for (const [id, { item, variant }] of kept) {
      if (item.locator && this.#present.has(constrainedKey(variant.constraints.key, nameOf(item, variant))))
        kept.delete(id);
    }
  }

  gone(entries: Composition['gone']): void {
    for (const { id, name, locator } of entries) {
      if (this.#seen.has(id)) continue;
      if (locator) this.miss({ spelling: name });
      else this.#removeName(name);
    }
  }

  /** Of what was kept back: with its removal, not before, as in delta NOT_FOUND is one (protocol §8). */
  faultsOfKept(ids: Iterable<string>, kept: ReadonlyMap<string, Kept>): void {
    for (const id of ids) {
      const item = kept.has(id) ? undefined : this.#parts.view.items.get(id);
      if (item !== undefined) this.faults(item);
    }
  }

  faults(item: Item): void {
    const told = this.#parts.kept?.get(item.id)?.told ?? this.#parts.told(item);
    const isDelta = this.#parts.encoding.protocol === 'delta';
    for (const fault of this.#parts.view.faults(item)) {
      if (fault.revision <= told) continue;
      // For others than this one: in delta it would be a removal (protocol §8), and is said for no parameter set.
      const removes = fault.code === Code.NOT_FOUND && isDelta;
      if (removes && (item.last.value !== 'absent' || this.#siblings.others(item, 'unknown'))) continue;
      const constraints = item.locator ? fault.constraints.bytes : noConstraints;
      this.errors.push({ name: item.spelling, constraints, status: fault.status });
    }
  }

  digest(): string {
    const lines = this.resources.map(({ name, variant }) =>
      JSON.stringify([name, variant.constraints.key, suffix(variant.tag)]),
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
      told: { news: this.#news, lost: this.#lost },
      resources,
      changed: this.#changed,
      fleeting: this.#fleeting,
    };
  }

  again(whole: Frame): Frame {
    return {
      ...whole,
      told: { news: this.#news, lost: this.#lost },
      changed: this.#changed,
      receivedAt: this.#receivedAt(),
    };
  }

  /** Only updates have a way behind them: what a newcomer gets first may be old. */
  #receivedAt(): number | undefined {
    return this.#parts.newcomer ? undefined : this.#parts.view.headAt;
  }

  /** Never both in resources and in removed_resources: Envoy rejects such a response (protocol §4.9). */
  #removeName(name: string): void {
    if (this.#named.has(name) || this.#gone.has(name)) return;
    this.#gone.add(name);
    this.removed.push(name);
  }

  #settleRemovals(): void {
    for (const remove of this.#removals.splice(0)) remove();
  }

  /** By another parameter set, its name or an alias. */
  #shownElsewhere(item: Item, held: Variant): boolean {
    return this.#siblings.show(item, held, item.locator || this.#parts.encoding.constrained);
  }
}

/** By name and by resource_name are two things, though there be no constraints. */
const constrainedKey = (constraints: string, name: string): string => `=${constraints} ${name}`;

const noConstraints = new Uint8Array(0);

/** The subscriber's spelling, unless it subscribed by an alias: then the resource's own name. */
function nameOf(item: Item, variant: Variant): string {
  return item.name === variant.name ? item.spelling : variant.name;
}
