import type { ResourceName, TypeUrl } from '../model/brand.ts';
import type { Content } from '../model/change.ts';
import type { TypedName } from '../model/holds.ts';
import type { Variant } from '../model/resource.ts';
import type { PendingName } from '../model/rollout.ts';
import { shorten } from '../model/text.ts';
import type { Verdict } from './judge.ts';
import { keysOf, nameKey } from './waiting.ts';

/** What of a variant is kept: equal for equal content. The disk shows it, so nobody may guess a secret by it. */
export type HashOf = (variant: Pick<Variant, 'deltaVersion'>) => string;

/** What upstream said under a name. */
interface SavedContent extends TypedName {
  /** Of each variant; none if the name was removed. */
  readonly hashes: readonly string[];
}

/** What an operator has discarded, and why. */
interface SavedDiscard extends SavedContent {
  readonly reason: string;
}

/** A verdict, and the content that it is about. */
interface SavedVerdict extends Pick<Verdict, 'cause' | 'reason'> {
  readonly contents: readonly SavedContent[];
}

/** What a restart must not forget: what was found bad, and what operators have discarded. */
export interface SavedVerdicts {
  readonly verdicts: readonly SavedVerdict[];
  readonly discards: readonly SavedDiscard[];
}

/** What a restart remembers: the newest verdicts, names of each, hashes of each, and the newest names discarded, with so much of why. */
const most = { verdicts: 100, names: 1000, hashes: 10_000, discards: 10_000, reason: 300 };

/**
 * What is known to be bad over a restart, until upstream says something else there, or an operator decides. The canary
 * that rejected it may never come back. What an operator has discarded may have been accepted by canaries: judged anew,
 * it would reach everybody.
 */
export class Verdicts {
  readonly #contentOf: (type: TypeUrl, name: ResourceName) => Content;
  readonly #hashOf: HashOf;
  /** From before a restart. */
  #restored: readonly (SavedVerdict & Verdict)[];
  /** Of before a restart and since, by `nameKey`. */
  readonly #discards: Map<string, SavedDiscard>;
  /** Those from before a restart of which upstream has not said all again yet. */
  readonly #awaited: Set<string>;
  /** Which variants upstream has said again since. */
  readonly #said = new WeakMap<SavedContent, ReadonlySet<string>>();
  /** Of this process. */
  #found: readonly Verdict[] = [];
  #saved: SavedVerdicts;
  /** What `saved` is not yet. */
  readonly #unsaved = { verdicts: false, discards: false };

  /** `contentOf`: what canaries see. `hashOf`: as in `restored`. */
  constructor(
    restored: SavedVerdicts,
    contentOf: (type: TypeUrl, name: ResourceName) => Content,
    hashOf: HashOf,
  ) {
    const { verdicts, discards } = restored;
    this.#saved = { verdicts, discards };
    this.#restored = verdicts.map((one) => ({ ...one, names: keysOf(one.contents) }));
    this.#discards = new Map(discards.map((one) => [nameKey(one.type, one.name), one]));
    this.#awaited = new Set(this.#discards.keys());
    this.#contentOf = contentOf;
    this.#hashOf = hashOf;
  }

  /** For the disk. */
  get saved(): SavedVerdicts {
    return this.#saved;
  }

  /** What was found bad before a restart, and what upstream has not said anything else for; the same values until then. */
  restored(): readonly Verdict[] {
    this.#keep(({ contents }) => !contents.some((one) => this.#isOther(one)));
    return this.#restored;
  }

  /** These names do not wait any more, or an operator has decided. `pending`: what is held now. */
  left(type: TypeUrl, names: readonly ResourceName[], pending: Iterable<PendingName>): void {
    if (this.#restored.length > 0) {
      const gone = new Set(names);
      this.#keep(({ contents }) => !contents.some((one) => one.type === type && gone.has(one.name)));
    }
    const known = names.map((name) => nameKey(type, name)).filter((key) => this.#discards.has(key));
    if (known.length === 0) return;
    const discarded = new Set<string>();
    for (const one of pending) if (one.masked === 'discarded') discarded.add(nameKey(one.type, one.name));
    for (const key of known) if (!discarded.has(key)) this.#forget(key);
  }

  /** Must be called before canaries go back to what is released. */
  discard(names: readonly TypedName[], reason: string): void {
    const kept = shorten(reason, most.reason);
    for (const one of names) {
      const key = nameKey(one.type, one.name);
      this.#discards.delete(key);
      this.#discards.set(key, { ...this.#contentNow(one), reason: kept });
      this.#awaited.delete(key);
    }
    this.#unsaved.discards = true;
  }

  /** Why operators have discarded these. */
  whyDiscarded(names: Iterable<TypedName>): string {
    const reasons = Iterator.from(names).map(
      ({ type, name }) => this.#discards.get(nameKey(type, name))?.reason,
    );
    return [...new Set(reasons)].filter((reason) => reason !== undefined && reason !== '').join('; ');
  }

  /** Which of the names that wait now were discarded before a restart, with the same content. */
  discardedAgain(type: TypeUrl, joined: readonly ResourceName[]): ReadonlySet<ResourceName> {
    if (this.#discards.size === 0) return new Set();
    return new Set(joined.filter((name) => this.#isAgain(nameKey(type, name))));
  }

  /** What is found bad now. `pendingNames`: those that canaries see. True: something else has to be saved. */
  record(found: readonly Verdict[], pendingNames: () => readonly PendingName[]): boolean {
    const isSame = found.length === this.#found.length && found.every((one, at) => one === this.#found[at]);
    const { verdicts, discards } = this.#unsaved;
    if (!isSame || verdicts)
      this.#saved = { ...this.#saved, verdicts: this.#verdictsNow(found, pendingNames) };
    if (discards)
      this.#saved = { ...this.#saved, discards: [...this.#discards.values()].slice(-most.discards) };
    this.#found = found;
    Object.assign(this.#unsaved, { verdicts: false, discards: false });
    return !isSame || verdicts || discards;
  }

  #verdictsNow(
    found: readonly Verdict[],
    pendingNames: () => readonly PendingName[],
  ): readonly SavedVerdict[] {
    const pending = found.length === 0 ? [] : pendingNames();
    const fresh = found.slice(-most.verdicts).map((one) => this.#withContents(one, pending));
    // A canary that came back may have said the same again.
    const known = this.#restored.map(({ cause, reason, contents }) => ({ cause, reason, contents }));
    const all = [...known, ...fresh].filter(({ contents }) => contents.length > 0);
    const distinct = new Map(all.map((one) => [JSON.stringify(one.contents), one]));
    return [...distinct.values()].slice(-most.verdicts);
  }

  #keep(isKept: (verdict: SavedVerdict) => boolean): void {
    const kept = this.#restored.filter(isKept);
    if (kept.length === this.#restored.length) return;
    this.#restored = kept;
    this.#unsaved.verdicts = true;
  }

  #withContents({ cause, reason, names }: Verdict, pending: readonly PendingName[]): SavedVerdict {
    const contents: SavedContent[] = [];
    let left = most.hashes;
    for (const one of pending) {
      if (!names.has(nameKey(one.type, one.name))) continue;
      const content = this.#contentNow(one);
      left -= content.hashes.length;
      if (left < 0 || contents.length >= most.names) break;
      contents.push(content);
    }
    return { cause, reason, contents };
  }

  #contentNow({ type, name }: TypedName): SavedContent {
    return { type, name, hashes: this.#contentOf(type, name).map(({ variant }) => this.#hashOf(variant)) };
  }

  /** What is restored and not confirmed says nothing: the sessions of other parameters may not have answered yet. */
  #saidNow({ type, name }: TypedName): ReadonlySet<string> {
    const said = this.#contentOf(type, name).filter(
      ({ holders }) => !holders.every(({ restored }) => restored),
    );
    return new Set(said.map(({ variant }) => this.#hashOf(variant)));
  }

  /** Upstream says something else than what was found bad. */
  #isOther(content: SavedContent): boolean {
    const before = this.#said.get(content);
    const now = this.#saidNow(content);
    this.#said.set(content, now);
    return before?.isSubsetOf(now) === false || !now.isSubsetOf(new Set(content.hashes));
  }

  #isAgain(key: string): boolean {
    const discarded = this.#discards.get(key);
    if (discarded === undefined) return false;
    const before = new Set(discarded.hashes);
    const isRemoved = this.#contentOf(discarded.type, discarded.name).length === 0;
    const now = this.#saidNow(discarded);
    const isSame = isRemoved ? before.size === 0 : now.isSubsetOf(before);
    if (!this.#awaited.has(key) || !isSame) {
      this.#forget(key);
      return false;
    }
    if (now.size === before.size) this.#awaited.delete(key);
    return true;
  }

  #forget(key: string): void {
    this.#discards.delete(key);
    this.#awaited.delete(key);
    this.#unsaved.discards = true;
  }
}
