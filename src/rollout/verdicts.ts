import type { ResourceName, TypeUrl } from '../model/brand.ts';
import type { Content } from '../model/change.ts';
import { isRestored } from '../model/restored-holder.ts';
import type { PendingName } from '../model/rollout.ts';
import type { HashOf, SavedContent } from './discards.ts';
import { nameKey } from './pending-names.ts';

/** Why these names were found bad. */
export interface Verdict {
  readonly cause: 'rejection' | 'disconnects';
  readonly reason: string;
  /** By `nameKey`. Any of these may be at fault. */
  readonly names: ReadonlySet<string>;
}

/** A verdict, and the content that it is about. */
export interface SavedVerdict extends Pick<Verdict, 'cause' | 'reason'> {
  readonly contents: readonly SavedContent[];
}

/** What a restart remembers: the newest verdicts, names of each, and hashes of each. */
const most = { verdicts: 100, names: 1000, hashes: 10_000 };

/**
 * What was found bad before a restart stays so until upstream says something else there, or an operator decides: the
 * canary that said so may never come back.
 */
export class Verdicts {
  readonly #contentOf: (type: TypeUrl, name: ResourceName) => Content;
  readonly #hashOf: HashOf;
  /** From before a restart. */
  #restored: readonly SavedVerdict[];
  readonly #verdicts = new WeakMap<SavedVerdict, Verdict>();
  /** Which variants upstream has said again since. */
  readonly #said = new WeakMap<SavedContent, ReadonlySet<string>>();
  /** Of this process. */
  #found: readonly Verdict[] = [];
  #saved: readonly SavedVerdict[];
  /** Something from before a restart does not hold any more, and this is not saved yet. */
  #dropped = false;

  /** `contentOf`: what canaries see. `hashOf`: as in `restored`. */
  constructor(
    restored: readonly SavedVerdict[],
    contentOf: (type: TypeUrl, name: ResourceName) => Content,
    hashOf: HashOf,
  ) {
    this.#restored = restored;
    this.#saved = restored;
    this.#contentOf = contentOf;
    this.#hashOf = hashOf;
  }

  /** For the disk. */
  get saved(): readonly SavedVerdict[] {
    return this.#saved;
  }

  /** What was found bad before a restart, and what upstream has not said anything else for; the same values until then. */
  restored(): readonly Verdict[] {
    this.#keep(({ contents }) => !contents.some((one) => this.#isOther(one)));
    return this.#restored.map((one) => {
      const known = this.#verdicts.get(one);
      if (known !== undefined) return known;
      const names = new Set(one.contents.map(({ type, name }) => nameKey(type, name)));
      const created: Verdict = { cause: one.cause, reason: one.reason, names };
      this.#verdicts.set(one, created);
      return created;
    });
  }

  /** These names do not wait any more, or an operator has decided. */
  left(type: TypeUrl, names: readonly ResourceName[]): void {
    if (this.#restored.length === 0) return;
    const gone = new Set(names);
    this.#keep(({ contents }) => !contents.some((one) => one.type === type && gone.has(one.name)));
  }

  /** What is found bad now. `pendingNames`: those that canaries see. True: something else has to be saved. */
  record(found: readonly Verdict[], pendingNames: () => readonly PendingName[]): boolean {
    const isSame = found.length === this.#found.length && found.every((one, at) => one === this.#found[at]);
    if (isSame && !this.#dropped) return false;
    this.#found = found;
    this.#dropped = false;
    const pending = found.length === 0 ? [] : pendingNames();
    const fresh = found.slice(-most.verdicts).map((one) => this.#withContents(one, pending));
    // A canary that came back may have said the same again.
    const all = [...this.#restored, ...fresh].filter(({ contents }) => contents.length > 0);
    const distinct = new Map(all.map((one) => [JSON.stringify(one.contents), one]));
    this.#saved = [...distinct.values()].slice(-most.verdicts);
    return true;
  }

  #keep(isKept: (verdict: SavedVerdict) => boolean): void {
    const kept = this.#restored.filter(isKept);
    if (kept.length === this.#restored.length) return;
    this.#restored = kept;
    this.#dropped = true;
  }

  #withContents({ cause, reason, names }: Verdict, pending: readonly PendingName[]): SavedVerdict {
    const contents: SavedContent[] = [];
    let left = most.hashes;
    for (const { type, name } of pending) {
      if (!names.has(nameKey(type, name))) continue;
      const hashes = this.#contentOf(type, name).map(({ variant }) => this.#hashOf(variant));
      left -= hashes.length;
      if (left < 0 || contents.length >= most.names) break;
      contents.push({ type, name, hashes });
    }
    return { cause, reason, contents };
  }

  /** Upstream says something else than what was found bad. Until it has answered, what is restored says nothing. */
  #isOther(content: SavedContent): boolean {
    const said = this.#contentOf(content.type, content.name)
      .filter(({ holders }) => !holders.every(isRestored))
      .map(({ variant }) => this.#hashOf(variant));
    const before = this.#said.get(content);
    const now = new Set(said);
    this.#said.set(content, now);
    return before?.isSubsetOf(now) === false || !now.isSubsetOf(new Set(content.hashes));
  }
}
