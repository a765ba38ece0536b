import type { Access } from '../model/access.ts';
import { type ResourceName, resourceName, type TypeUrl } from '../model/brand.ts';
import type { Parameters } from '../model/parameters.ts';
import type { Variant } from '../model/resource.ts';
import type { HeldVariant } from '../model/rollout.ts';
import { isCollection, type Selection, type SelectionEntry } from '../model/selection.ts';
import { type Selector, WILDCARD } from '../model/transaction.ts';
import { parentGlob } from '../model/xdstp.ts';
import type { Relay } from '../relay.ts';
import { nameKey } from '../rollout/waiting.ts';

/** What waits under one name. */
interface Difference {
  readonly name: ResourceName;
  /** Its `nameKey`, alone. */
  readonly key: ReadonlySet<string>;
  /** The name, and its aliases. */
  readonly selectors: readonly ResourceName[];
  /** The variants that come, go or change. */
  readonly variants: readonly Variant[];
}

/** What a subscription shows of what waits, by `nameKey`. Equal subscriptions share the sets. */
export type Parts = readonly ReadonlySet<string>[];

/** Undefined where nothing is shown. */
type PartsBySelector = Map<Selector, ReadonlySet<string> | undefined>;

const nothing: Parts = [];

/** The names of one type that wait, found by what clients subscribe to: a client costs what it subscribes to of them. */
export class WaitingIndex {
  readonly #relay: Pick<Relay, 'variantsOf'>;
  readonly #type: TypeUrl;
  /** Kept while neither side of the name changes. */
  readonly #differences = new Map<ResourceName, Difference>();
  /** By each name and alias. */
  #bySelector = new Map<Selector, Difference[]>();
  #byGlob = new Map<Selector, Difference[]>();
  /** Names that are not in the index yet. */
  #rest: Iterator<ResourceName> | undefined;
  /**
   * By parameters, and what rules allow. Clients can name anything: it has only selectors that something waits under,
   * and only parameters that are in use.
   */
  #parts = new WeakMap<Parameters, Map<string, PartsBySelector>>();
  #bySelection = new WeakMap<Selection, Map<string, Parts>>();

  constructor(relay: Pick<Relay, 'variantsOf'>, type: TypeUrl) {
    this.#relay = relay;
    this.#type = type;
  }

  /** These names wait now. They are read by `step`. */
  begin(names: ReadonlySet<ResourceName>): void {
    this.#rest = names.values();
    this.#bySelector = new Map();
    this.#byGlob = new Map();
    this.#parts = new WeakMap();
    this.#bySelection = new WeakMap();
    for (const name of this.#differences.keys()) if (!names.has(name)) this.#differences.delete(name);
  }

  /** Reads one more name; false: all have been read. */
  step(): boolean {
    const next = this.#rest?.next();
    if (next === undefined || next.done === true) return false;
    const difference = this.#differenceOf(next.value);
    for (const selector of difference.selectors) {
      add(this.#bySelector, selector, difference);
      const glob = parentGlob(selector);
      if (glob !== undefined) add(this.#byGlob, glob, difference);
    }
    return true;
  }

  /** What either side has under these names is another now. */
  changed(names: Iterable<ResourceName>): void {
    for (const name of names) this.#differences.delete(name);
  }

  /** What a client with this access sees of it by this selection. */
  shown(selection: Selection, access: Access): Parts {
    const rules = access.unrestricted ? '' : access.key;
    const byRules = this.#bySelection.get(selection) ?? new Map<string, Parts>();
    this.#bySelection.set(selection, byRules);
    const known = byRules.get(rules);
    if (known !== undefined) return known;
    const parts = new Set<ReadonlySet<string>>();
    for (const entry of this.#candidates(selection)) {
      const part = this.#part(entry, access, rules);
      if (part !== undefined) parts.add(part);
    }
    const shown = parts.size === 0 ? nothing : [...parts];
    byRules.set(rules, shown);
    return shown;
  }

  /** Looked up from the smaller side. */
  *#candidates(selection: Selection): Iterable<SelectionEntry> {
    if (selection.size <= this.#bySelector.size) {
      yield* selection.entries.values();
      return;
    }
    yield* selection.collections;
    for (const selector of this.#bySelector.keys()) yield* selection.entriesFor(selector);
  }

  #part({ selector, parameters }: SelectionEntry, access: Access, rules: string) {
    const differences = this.#under(selector);
    if (differences === undefined) return undefined;
    const byRules = this.#parts.get(parameters) ?? new Map<string, PartsBySelector>();
    this.#parts.set(parameters, byRules);
    const known: PartsBySelector = byRules.get(rules) ?? new Map<Selector, ReadonlySet<string>>();
    byRules.set(rules, known);
    if (known.has(selector)) return known.get(selector);
    const isShown = ({ variants }: Difference): boolean =>
      variants.some(
        (one) =>
          one.constraints.matches(parameters) && (access.unrestricted || access.admits(one, parameters)),
      );
    const shown = new Set<Difference>();
    if (isCollection(selector) || access.unrestricted || access.allows(this.#type, selector))
      for (const one of differences) if (isShown(one)) shown.add(one);
    const [only] = shown;
    const names = (): ReadonlySet<string> => new Set([...shown].map(({ name }) => nameKey(this.#type, name)));
    const part = shown.size <= 1 ? only?.key : names();
    known.set(selector, part);
    return part;
  }

  /** Undefined: nothing waits there. */
  #under(selector: Selector): Iterable<Difference> | undefined {
    if (selector === WILDCARD) return this.#differences.values();
    return (isCollection(selector) ? this.#byGlob : this.#bySelector).get(selector);
  }

  #differenceOf(name: ResourceName): Difference {
    const known = this.#differences.get(name);
    if (known !== undefined) return known;
    const before = this.#relay.variantsOf(this.#type, name, 'released');
    const after = this.#relay.variantsOf(this.#type, name, 'canary');
    const variants = [
      ...before.filter((one) => !after.some((other) => isSame(one, other))),
      ...after.filter((one) => !before.some((other) => isSame(one, other))),
    ].map(({ variant }) => variant);
    const aliases = variants.flatMap((variant) => variant.aliases.map(resourceName));
    const created: Difference = {
      name,
      key: new Set([nameKey(this.#type, name)]),
      selectors: aliases.length === 0 ? [name] : [...new Set([name, ...aliases])],
      variants,
    };
    this.#differences.set(name, created);
    return created;
  }
}

const isSame = (a: HeldVariant, b: HeldVariant): boolean =>
  a.variant === b.variant ||
  (a.variant.constraints.key === b.variant.constraints.key && a.variant.payload === b.variant.payload);

function add(index: Map<Selector, Difference[]>, selector: Selector, difference: Difference): void {
  const known = index.get(selector);
  if (known === undefined) index.set(selector, [difference]);
  else known.push(difference);
}
