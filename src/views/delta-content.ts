import type { StoredResourceError } from '../model/catalog.ts';
import type { Variant } from '../model/resource.ts';
import { Code } from '../wire/grpc-status.ts';
import type { RemovedName } from '../wire/responses.ts';
import type { Item } from './item.ts';
import { OtherParameterSets } from './other-parameter-sets.ts';
import {
  type CompositionInput,
  constrainedKey,
  nameOf,
  noConstraints,
  ResponseContent,
} from './response-content.ts';
import { unresolvableAlias } from './unresolvable-alias.ts';

/** Gathers a delta response's parts; a removal, too, is in it once. */
export class DeltaContent extends ResponseContent {
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

  has(id: string): boolean {
    return this.#seen.has(id);
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
