import type { ResourceName, TypeUrl } from '../model/brand.ts';
import type { Content } from '../model/change.ts';
import type { Variant } from '../model/resource.ts';
import { isRestored } from '../model/restored-holder.ts';
import type { PendingName } from '../model/rollout.ts';
import { nameKey } from './pending-names.ts';

/** What of a variant is kept: equal for equal content. The disk shows it, so nobody may guess a secret by it. */
export type HashOf = (variant: Pick<Variant, 'deltaVersion'>) => string;

/** What upstream said under a name. */
export interface SavedContent {
  readonly type: TypeUrl;
  readonly name: ResourceName;
  /** Of each variant; none if the name was removed. */
  readonly hashes: readonly string[];
}

/** What a restart remembers: the newest names. */
const most = 10_000;

/**
 * What operators have discarded stays away over a restart, until upstream says something else there. Canaries may have
 * accepted it: judged anew, it would reach everybody.
 */
export class Discards {
  readonly #contentOf: (type: TypeUrl, name: ResourceName) => Content;
  readonly #hashOf: HashOf;
  readonly #all: Map<string, SavedContent>;
  /** From before a restart: upstream has not said all of it again yet. */
  readonly #awaited: Set<string>;
  #saved: readonly SavedContent[];
  #isSaved = true;

  /** `contentOf`: what canaries see. `hashOf`: as in `restored`. */
  constructor(
    restored: readonly SavedContent[],
    contentOf: (type: TypeUrl, name: ResourceName) => Content,
    hashOf: HashOf,
  ) {
    this.#contentOf = contentOf;
    this.#hashOf = hashOf;
    this.#all = new Map(restored.map((one) => [nameKey(one.type, one.name), one]));
    this.#awaited = new Set(this.#all.keys());
    this.#saved = restored;
  }

  /** For the disk. */
  get saved(): readonly SavedContent[] {
    return this.#saved;
  }

  /** Must be called before canaries go back to what is released. */
  add(names: readonly PendingName[]): void {
    for (const { type, name } of names) {
      const key = nameKey(type, name);
      const hashes = this.#contentOf(type, name).map(({ variant }) => this.#hashOf(variant));
      this.#all.delete(key);
      this.#all.set(key, { type, name, hashes });
      this.#awaited.delete(key);
      this.#isSaved = false;
    }
  }

  /** Which of the names that wait now were discarded before a restart, with the same content. */
  again(type: TypeUrl, joined: readonly ResourceName[]): ReadonlySet<ResourceName> {
    return new Set(this.#all.size === 0 ? [] : joined.filter((name) => this.#isAgain(type, name)));
  }

  /** Names that do not wait any more. `pending`: what is held now. */
  left(type: TypeUrl, names: readonly ResourceName[], pending: Iterable<PendingName>): void {
    const known = names.filter((name) => this.#all.has(nameKey(type, name)));
    if (known.length === 0) return;
    const discarded = new Set<string>();
    for (const one of pending) if (one.masked === 'discarded') discarded.add(nameKey(one.type, one.name));
    for (const name of known) {
      const key = nameKey(type, name);
      if (!discarded.has(key)) this.#forget(key);
    }
  }

  /** True: `saved` is another than before, and has to be written. */
  record(): boolean {
    if (this.#isSaved) return false;
    this.#isSaved = true;
    this.#saved = [...this.#all.values()].slice(-most);
    return true;
  }

  #isAgain(type: TypeUrl, name: ResourceName): boolean {
    const key = nameKey(type, name);
    const discarded = this.#all.get(key);
    if (discarded === undefined) return false;
    const content = this.#contentOf(type, name);
    // What is restored and not confirmed says nothing: the sessions of other parameters may not have answered yet.
    const said = content.filter(({ holders }) => !holders.every(isRestored));
    const hashes = new Set(said.map(({ variant }) => this.#hashOf(variant)));
    const before = new Set(discarded.hashes);
    const isRemoved = content.length === 0;
    const isSame = isRemoved ? before.size === 0 : hashes.isSubsetOf(before);
    if (!this.#awaited.has(key) || !isSame) {
      this.#forget(key);
      return false;
    }
    if (hashes.size === before.size) this.#awaited.delete(key);
    return true;
  }

  #forget(key: string): void {
    this.#all.delete(key);
    this.#awaited.delete(key);
    this.#isSaved = false;
  }
}
