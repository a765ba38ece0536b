import { type ResourceName, resourceName } from '../model/brand.ts';
import { isVariant, type StoredResourceError, type Value } from '../model/catalog.ts';
import type { Variant } from '../model/resource.ts';
import { Code } from '../wire/grpc-status.ts';
import { encodeDeltaResponse, type OutgoingResource, type RemovedName } from '../wire/responses.ts';
import { type Item, withoutBody } from './item.ts';
import { Coverage } from './overlay.ts';
import {
  type Change,
  type CompositionInput,
  constrainedKey,
  hasBody,
  nameOf,
  needsSending,
  nextSerial,
  noConstraints,
  ResponseContent,
  sameSuffix,
  sameVariant,
} from './response-content.ts';
import type { Composed } from './shared-responses.ts';
import type { View } from './view.ts';

/** The delta response for these changes. */
export function composeDelta(input: CompositionInput, changes: Iterable<Change>): Composed {
  const content = new DeltaContent(input);
  for (const change of changes) {
    const { item, now } = change;
    if (isVariant(now)) addVariant(content, input, change, now);
    else if (now === 'absent') addAbsence(content, input, change);
    content.addErrors(item);
  }
  addDeferred(content, input);
  content.addRequiredRemovals();
  content.dropAlreadyRemoved();
  content.addErrorsOfDeferred();
  const { deferredRemovals } = content;
  if (content.empty && !input.firstResponseDue) return { response: undefined, deferredRemovals };
  const { view, controlPlane } = input;
  const id = nextSerial();
  const bytes = encodeDeltaResponse({
    type: view.type,
    version: view.version,
    nonce: String(id),
    resources: content.resources,
    errors: content.errors,
    controlPlane,
    removed: content.removed,
    removedNames: content.removedNames,
  });
  return { response: content.response(id, bytes, view.version), deferredRemovals };
}

/** What the view shows now, unless the client has it; and the removal of what it had instead. */
function addVariant(
  content: DeltaContent,
  { encoding, allItems }: CompositionInput,
  change: Change,
  now: Variant,
): void {
  const { item, lastSent, clientVersion, resend } = change;
  if (needsSending(change, now, encoding.ttl)) {
    const hasIt = !resend && isVariant(lastSent) && sameVariant(lastSent, now);
    content.noteChange(item, now, !resend && hasBody(lastSent, now));
    content.add(item, now, hasIt);
  }
  if (isVariant(lastSent)) content.replace(item, lastSent, now);
  else if (!allItems && item.named && lastSent === 'unknown') content.addAbsentForOthers(item);
  if (clientVersion === undefined || now.constraints.key === '') return;
  // initial_resource_versions has names without constraints. The client has the unconstrained resource, unless the
  // version shows that it has exactly this variant.
  const constrained = item.locator || encoding.constrained;
  if (constrained && !sameSuffix(clientVersion, now.deltaVersion)) content.addMissing(item);
}

/** The view does not show it any more, or has come to know that it is not there. */
function addAbsence(
  content: DeltaContent,
  input: CompositionInput,
  { item, lastSent, clientVersion, resend }: Change,
): void {
  if (isVariant(lastSent)) {
    if (input.defers({ item, variant: lastSent })) content.defer(item, lastSent);
    else content.remove(item, lastSent);
    return;
  }
  // The removal of what was deferred is sent in its time, and that of what the client has from an earlier stream too.
  if (input.deferredRemovals?.has(item.id) === true) return;
  if (clientVersion !== undefined) content.remove(item, undefined);
  else if (!input.encoding.absencesUnsaid && item.named && (resend || lastSent !== 'absent'))
    content.addAbsent(item);
}

/** What earlier responses deferred is removed now, or deferred again: also if it is unknown by now (protocol §3.9). */
function addDeferred(content: DeltaContent, { view, defers, deferredRemovals }: CompositionInput): void {
  if (deferredRemovals === undefined) return;
  const coverage = new Coverage(view);
  for (const [id, entry] of deferredRemovals) {
    const now = view.items.get(id)?.last.value;
    // It has come back.
    if (isVariant(now)) continue;
    const isUnknown = now === undefined ? coverage.of(entry) === 'unresolved' : now === 'unknown';
    if (isUnknown || defers(entry)) content.keep(id, entry);
    else content.remove(entry.item, entry.variant);
  }
}

/** Gathers a delta response's parts; a removal, too, is in it once. */
class DeltaContent extends ResponseContent {
  readonly removedNames: RemovedName[] = [];
  readonly #removed = new Set<string>();
  readonly #seen = new Set<string>();
  readonly #others: OtherParameterSets;
  /** Removals are written last: only then is it known what else is in the response. */
  readonly #postponed: (() => void)[] = [];

  constructor(input: CompositionInput) {
    super(input);
    this.#others = new OtherParameterSets(input.view);
  }

  get removed(): readonly string[] {
    return [...this.#removed];
  }

  get empty(): boolean {
    this.#writeRemovals();
    return this.resources.length + this.#removed.size + this.removedNames.length + this.errors.length === 0;
  }

  override add(item: Item, variant: Variant, hasIt: boolean): void {
    this.#seen.add(item.id);
    super.add(item, variant, hasIt);
  }

  remove(item: Item, before: Variant | undefined): void {
    this.#seen.add(item.id);
    if (item.locator) {
      if (before === undefined) this.addMissing(item);
      else this.#removeVariant(item, before);
    } else if (this.input.encoding.constrained && before !== undefined && before.constraints.key !== '') {
      this.#removeVariant(item, before);
    } else {
      const name = before === undefined ? item.spelling : nameOf(item, before);
      if (before !== undefined) this.removals.push({ item, variant: before });
      this.#postponed.push(() => {
        if (before === undefined || !this.#shownElsewhere(item, before)) this.#removeName(name);
      });
    }
  }

  /** A subscribed name that is not there. */
  addAbsent(item: Item): void {
    const { view } = this.input;
    // The removal does not say for which parameter set: it waits until all are resolved.
    if (this.#others.anyOther(item, 'unknown')) return;
    if (item.locator || view.info.short !== 'vhds') {
      this.remove(item, undefined);
      return;
    }
    this.#seen.add(item.id);
    this.named.add(item.spelling);
    this.resources.push(unresolvableAlias(view, item));
  }

  /**
   * A locator client has several parameter sets for one name. The absence is sent once the name is resolved for all of
   * them. This one was unknown until now, so the absence for the others is due.
   */
  addAbsentForOthers(item: Item): void {
    if (this.#others.anyOther(item, 'absent') && !this.#others.anyOther(item, 'unknown'))
      this.addMissing(item);
  }

  /**
   * One variant replaces another. A client that got constraints also gets the removal of the old variant (protocol
   * §5). If an alias led to a resource of another name before, that resource is removed too.
   */
  replace(item: Item, before: Variant, now: Variant): void {
    if (before.name === now.name) {
      const constrained = item.locator || this.input.encoding.constrained;
      if (constrained && before.constraints.key !== now.constraints.key) this.#removeVariant(item, before);
    } else this.remove(item, before);
  }

  /**
   * No variant matches one of the parameter sets of a locator client: removed_resource_names gets the name without
   * constraints (protocol §5). Once, even if several sets have no match.
   */
  addMissing({ spelling }: Pick<Item, 'spelling'>): void {
    this.#postponed.push(() => {
      const key = constrainedKey('', spelling);
      if (this.constrained.has(key)) return;
      this.constrained.add(key);
      this.removedNames.push({ name: spelling, constraints: noConstraints });
    });
  }

  /**
   * A deferred removal is dropped if this response removes the variant already, or shows it for another parameter
   * set.
   */
  dropAlreadyRemoved(): void {
    this.#writeRemovals();
    for (const [id, { item, variant }] of this.deferred) {
      const key = constrainedKey(variant.constraints.key, nameOf(item, variant));
      if (item.locator && this.constrained.has(key)) this.deferred.delete(id);
    }
  }

  /** What must be in the response as removed, unless it is in it already or deferred. */
  addRequiredRemovals(): void {
    for (const { id, name, locator } of this.input.mustRemove) {
      if (this.#seen.has(id) || this.deferred.has(id)) continue;
      if (locator) this.addMissing({ spelling: name });
      else this.#removeName(name);
    }
  }

  /**
   * In delta a NOT_FOUND error removes the name for all parameter sets (protocol §8). It is sent only if the name is
   * absent for all of them.
   */
  protected override maySend({ code }: StoredResourceError, item: Item): boolean {
    if (code !== Code.NOT_FOUND) return true;
    return item.last.value === 'absent' && !this.#others.anyOther(item, 'unknown');
  }

  /** A locator client loses one variant, unless another of its parameter sets still shows it. */
  #removeVariant(item: Item, before: Variant): void {
    this.removals.push({ item, variant: before });
    this.#postponed.push(() => {
      const name = nameOf(item, before);
      const key = constrainedKey(before.constraints.key, name);
      if (this.constrained.has(key) || this.#shownElsewhere(item, before)) return;
      this.constrained.add(key);
      this.removedNames.push({ name, constraints: before.constraints.bytes });
    });
  }

  /** Never both in resources and in removed_resources: Envoy rejects such a response (protocol §4.9). */
  #removeName(name: string): void {
    if (!this.named.has(name)) this.#removed.add(name);
  }

  #writeRemovals(): void {
    for (const remove of this.#postponed.splice(0)) remove();
  }

  /** By another parameter set, its name or an alias. */
  #shownElsewhere(item: Item, before: Variant): boolean {
    return this.#others.anyShows(item, before, item.locator || this.input.encoding.constrained);
  }
}

/** What the items of one spelling show, over all parameter sets of locators, or of plain names. */
interface SpellingState {
  /** How many items are unknown. */
  readonly unknown: number;
  readonly absent: number;
  readonly names: ReadonlySet<ResourceName>;
  /** By `shownVariantKey`. */
  readonly variants: ReadonlySet<string>;
}

/**
 * What a view shows of one name for the other parameter sets of the same client. Computed once for each spelling,
 * because a client may subscribe to one name with thousands of parameter sets. Valid while the view does not change.
 */
class OtherParameterSets {
  readonly #view: View;
  readonly #plain = new Map<string, SpellingState>();
  readonly #located = new Map<string, SpellingState>();

  constructor(view: View) {
    this.#view = view;
  }

  /** Whether the same locator with other parameters is `unknown` or `absent`. */
  anyOther(item: Item, value: 'unknown' | 'absent'): boolean {
    if (!item.locator || this.#view.forms.length === 1) return false;
    const own: Value | undefined = this.#view.items.get(item.id)?.last.value;
    return this.#of(true, item.spelling, item.name)[value] > (own === value ? 1 : 0);
  }

  /** Whether another parameter set shows the resource, by its name or an alias; `constrained`: exactly this variant. */
  anyShows({ locator, spelling, name }: Item, variant: Variant, constrained: boolean): boolean {
    const shows = (spelled: string, canonical: ResourceName): boolean => {
      const [only, ...more] = this.#view.forms;
      if (only !== undefined && more.length === 0) {
        // Nearly every client has one parameter set.
        const now =
          only.locator === locator ? this.#view.itemOf(locator, only.parameters, spelled) : undefined;
        return isVariant(now?.last.value) && isSame(now.last.value, variant, constrained);
      }
      const { names, variants } = this.#of(locator, spelled, canonical);
      return constrained ? variants.has(shownVariantKey(variant)) : names.has(variant.name);
    };
    if (shows(spelling, name) || shows(variant.name, variant.name)) return true;
    // A resource that was found by an alias is sent under its own name, however the client spells the alias.
    return variant.aliases.some((alias) => {
      const canonical = resourceName(alias);
      if (shows(alias, canonical)) return true;
      return this.#view
        .respelled(canonical)
        .some(
          ({ locator: also, last }) =>
            also === locator && isVariant(last.value) && isSame(last.value, variant, constrained),
        );
    });
  }

  #of(locator: boolean, spelling: string, name: ResourceName): SpellingState {
    const known = locator ? this.#located : this.#plain;
    const shown = known.get(spelling) ?? this.#look(locator, spelling, name);
    known.set(spelling, shown);
    return shown;
  }

  #look(locator: boolean, spelling: string, name: ResourceName): SpellingState {
    let [unknown, absent] = [0, 0];
    const names = new Set<ResourceName>();
    const variants = new Set<string>();
    for (const { last } of this.#view.spelled(locator, spelling, name)) {
      if (last.value === 'unknown') unknown++;
      else if (last.value === 'absent') absent++;
      else {
        names.add(last.value.name);
        variants.add(shownVariantKey(last.value));
      }
    }
    return { unknown, absent, names, variants };
  }
}

const shownVariantKey = ({ name, constraints }: Variant): string => `${constraints.key} ${name}`;

const isSame = (a: Variant, b: Variant, constrained: boolean): boolean =>
  a.name === b.name && (!constrained || a.constraints.key === b.constraints.key);

/**
 * What a VHDS client gets for a name that does not exist. Envoy holds a request until a resource with this alias comes,
 * and lets it go if the resource has no body (protocol §4.8).
 */
function unresolvableAlias({ type }: View, { spelling }: Item): OutgoingResource {
  return {
    variant: withoutBody(type, resourceName(spelling), [spelling]),
    name: spelling,
    constrained: false,
    wrapped: false,
    ttl: undefined,
    bodiless: true,
  };
}
