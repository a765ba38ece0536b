import { randomBytes } from 'node:crypto';
import type { ResourceName } from './brand.ts';
import { getOrMake } from './maps.ts';
import type { Parameters } from './parameters.ts';
import { type Selector, WILDCARD } from './transaction.ts';
import { globMatches, isGlob, parentGlob } from './xdstp.ts';

/** One thing that a client subscribes to. */
export interface SelectionEntry {
  /** Canonical; `*` is the wildcard. */
  readonly selector: Selector;
  /** As the client wrote it: it is answered so (protocol §6). */
  readonly requestedName: string;
  /** Subscribed by a TP2 locator: answered with constraints. */
  readonly locator: boolean;
  readonly parameters: Parameters;
  /** The parameters that the locator came with; undefined for a plain name. */
  readonly locatorParameters: Parameters | undefined;
}

/**
 * The id of one entry of a selection. For a plain name the parameters are not part of the id, because the response
 * has only the name.
 */
export function itemId(locator: boolean, parameters: Parameters, requestedName: string): string {
  return locator ? `${parameters.id} ${requestedName}` : ` ${requestedName}`;
}

/** The spelling in an id. */
export function requestedNameOf(id: string): string {
  return id.slice(id.indexOf(' ') + 1);
}

export function entryId(selected: SelectionEntry): string {
  return itemId(selected.locator, selected.parameters, selected.requestedName);
}

export const noIds: ReadonlySet<string> = new Set();

/** These ids, and those of entries. Nearly always there are none: then it is the same object. */
export const withIds = (ids: ReadonlySet<string>, entries: readonly SelectionEntry[]): ReadonlySet<string> =>
  entries.length > 0 ? ids.union(new Set(entries.map(entryId))) : ids;

/** What the client unsubscribes it by. A trusted parameter may make two locators one entry. */
export function ownId({
  locator,
  parameters,
  requestedName,
  locatorParameters = parameters,
}: SelectionEntry): string {
  return itemId(locator, locatorParameters, requestedName);
}

/** Characters of its name, and of the parameters that its locator came with. */
export function lengthOf({ requestedName, locatorParameters }: SelectionEntry): number {
  return requestedName.length + (locatorParameters?.key.length ?? 0);
}

/** Whether it is a wildcard or a glob, not a name. */
export function isCollection(selector: Selector): boolean {
  return selector === WILDCARD || isGlob(selector);
}

/** Whether a selector covers a name: it is the name, the glob over it or the wildcard. */
export function covers(selector: Selector, name: ResourceName): boolean {
  return selector === WILDCARD || selector === name || globMatches(selector, name);
}

/** Whether a selector covers a resource: by its name, or as one of its aliases. */
export function coversResource(
  selector: Selector,
  { name, aliases }: { readonly name: ResourceName; readonly aliases: readonly string[] },
): boolean {
  return covers(selector, name) || aliases.includes(selector);
}

/** Whether a wildcard or glob covers a name. Both must be plain names, or both locators with the same parameters. */
export function collectionCovers(
  collection: SelectionEntry,
  { selector, locator, parameters }: Pick<SelectionEntry, 'selector' | 'locator' | 'parameters'>,
): boolean {
  if (collection.locator !== locator || (locator && collection.parameters !== parameters)) return false;
  return !isCollection(selector) && covers(collection.selector, selector);
}

/** What a client subscribes to in one type. Immutable. */
export class Selection {
  /** By `entryId`. */
  readonly entries: ReadonlyMap<string, SelectionEntry>;
  /** All that it has subscribed to, by `ownId`: the entries, unless what is known of the client makes several locators one. */
  readonly listed: ReadonlyMap<string, SelectionEntry>;
  /** Sum of the hashes of what is listed: whatever the order, equal selections have equal sums. */
  readonly hash: number;
  /** Characters of all names and of the parameters that locators came with. */
  readonly length: number;
  readonly collections: readonly SelectionEntry[];
  /** By selector; made when it is needed. */
  #collections: ReadonlyMap<Selector, readonly SelectionEntry[]> | undefined;
  #collecting: Selection | undefined;
  #named: ReadonlyMap<Selector, readonly SelectionEntry[]> | undefined;

  private constructor(
    entries: ReadonlyMap<string, SelectionEntry>,
    listed: ReadonlyMap<string, SelectionEntry>,
    hash: number,
    length: number,
  ) {
    this.entries = entries;
    this.listed = listed;
    this.hash = hash;
    this.length = length;
    this.collections = [...entries.values()].filter(({ selector }) => isCollection(selector));
  }

  static of(list: Iterable<SelectionEntry>): Selection {
    const listed = new Map<string, SelectionEntry>();
    let [hash, length, isChanged] = [0, 0, false];
    for (const selected of list) {
      const id = ownId(selected);
      if (listed.has(id)) continue;
      listed.set(id, selected);
      const { parameters, locatorParameters = parameters } = selected;
      hash = (hash + keyedHash(parameters.id, id)) % modulus;
      length += lengthOf(selected);
      isChanged ||= locatorParameters !== parameters;
    }
    const entries = isChanged ? new Map<string, SelectionEntry>() : listed;
    if (isChanged) for (const one of listed.values()) getOrMake(entries, entryId(one), () => one);
    return new Selection(entries, listed, hash, length);
  }

  get size(): number {
    return this.entries.size;
  }

  /** With a wildcard or glob: SotW responses are complete then (protocol §3.7). */
  get hasCollection(): boolean {
    return this.collections.length > 0;
  }

  has(id: string): boolean {
    return this.entries.has(id);
  }

  /** Its wildcards and globs without its names; undefined: it has none of one or the other. */
  get collecting(): Selection | undefined {
    if (this.collections.length === 0 || this.collections.length === this.size) return undefined;
    this.#collecting ??= Selection.of(this.collections);
    return this.#collecting;
  }

  /** Whether a wildcard or glob is in it, in whatever form. */
  hasCollectionSelector(collection: Selector): boolean {
    return this.#bySelector().has(collection);
  }

  /**
   * The entries with the wildcard or the glob that covers a name, or is it: errors may be about all of it. At most two
   * selectors, perhaps with several parameter sets.
   */
  collectionsOver(name: Selector): readonly SelectionEntry[] {
    if (this.collections.length === 0) return none;
    const bySelector = this.#bySelector();
    const all = bySelector.get(WILDCARD) ?? none;
    if (all.length === this.collections.length) return all;
    const glob = isGlob(name) ? name : parentGlob(name);
    const globs = (glob === undefined ? undefined : bySelector.get(glob)) ?? none;
    return all.length === 0 ? globs : [...all, ...globs];
  }

  /** All that may show a resource of this name. */
  entriesFor(name: Selector): readonly SelectionEntry[] {
    this.#named ??= Map.groupBy(this.entries.values(), ({ selector }) => selector);
    return [...(isCollection(name) ? none : (this.#named.get(name) ?? none)), ...this.collectionsOver(name)];
  }

  #bySelector(): ReadonlyMap<Selector, readonly SelectionEntry[]> {
    this.#collections ??= Map.groupBy(this.collections, ({ selector }) => selector);
    return this.#collections;
  }

  equals(other: Selection): boolean {
    if (this === other) return true;
    if (this.hash !== other.hash || this.listed.size !== other.listed.size) return false;
    for (const [id, { parameters }] of this.listed)
      if (other.listed.get(id)?.parameters !== parameters) return false;
    return true;
  }
}

const none: readonly never[] = [];
/** Sums of many stay exact in a double. */
const modulus = 2 ** 48;

export const EMPTY_SELECTION: Selection = Selection.of([]);

/** Of this process: nobody outside can tell which texts have equal hashes, or equal sums of hashes. */
const seed = randomBytes(8);
const [key0, key1] = [seed.readInt32LE(0), seed.readInt32LE(4)];

/** HalfSipHash-1-3 of a 32-bit number and a text's UTF-16 units: 48 bits. Unlike seeded FNV, it stands chosen texts. */
export function keyedHash(number: number, text: string): number {
  const { length } = text;
  const pairs = length >>> 1;
  let v0 = key0;
  let v1 = key1 ^ 0xee;
  let v2 = key0 ^ 0x6c796765;
  let v3 = key1 ^ 0x74656462;
  let low = 0;
  // The number, the pairs of units, what is left of them with the length, and twice three rounds at the end.
  for (let step = -1; step <= pairs + 6; step++) {
    let word = 0;
    if (step < 0) word = number;
    else if (step < pairs) word = text.charCodeAt(2 * step) | (text.charCodeAt(2 * step + 1) << 16);
    else if (step === pairs) word = ((length & 1) === 0 ? 0 : text.charCodeAt(length - 1)) | (length << 16);
    else if (step === pairs + 1) v2 ^= 0xee;
    else if (step === pairs + 4) {
      low = (v1 ^ v3) >>> 0;
      v1 ^= 0xdd;
    }
    v3 ^= word;
    v0 = (v0 + v1) | 0;
    v1 = ((v1 << 5) | (v1 >>> 27)) ^ v0;
    v0 = (v0 << 16) | (v0 >>> 16);
    v2 = (v2 + v3) | 0;
    v3 = ((v3 << 8) | (v3 >>> 24)) ^ v2;
    v0 = (v0 + v3) | 0;
    v3 = ((v3 << 7) | (v3 >>> 25)) ^ v0;
    v2 = (v2 + v1) | 0;
    v1 = ((v1 << 13) | (v1 >>> 19)) ^ v2;
    v2 = (v2 << 16) | (v2 >>> 16);
    v0 ^= word;
  }
  return low + ((v1 ^ v3) & 0xffff) * 2 ** 32;
}
