import type { ResourceName } from '../model/brand.ts';
import { type Freeze, includes, nameKey, type Scope, type TypedName } from '../model/holds.ts';
import { areSame, countIn, getOrMake, isEqual } from '../model/maps.ts';
import type { Gate, HeldVariant, PendingChange, PendingName } from '../model/rollout.ts';
import { shorten } from '../model/text.ts';
import type { Transaction } from '../model/transaction.ts';
import type { HoldCause, JudgeSettings, Verdict } from './judge.ts';
import type { HashOf, SavedRollout } from './rollout-file.ts';
import { type CanaryStream, type Standing, subscribesTo } from './waiting.ts';

type Contents = Pick<Gate, 'contentOf' | 'judgedContent' | 'pending' | 'revision'>;
/** What a variant is, by whom it is for. Both are hashes; empty: others had one there, and it was removed. */
type Known = ReadonlyMap<string, string>;

/** What a restart must not forget: what was found bad, and what operators have discarded. */
type SavedVerdicts = Pick<SavedRollout, 'verdicts' | 'discards'>;
type SavedVerdict = SavedVerdicts['verdicts'][number];
type SavedDiscard = SavedVerdicts['discards'][number];
type SavedContent = SavedVerdict['contents'][number];

/** What a restart remembers: the newest verdicts, names of each, hashes of each, and the newest names discarded, with so much of why. */
const most = { verdicts: 100, names: 1000, hashes: 10_000, discards: 10_000, reason: 300 };

/**
 * What is known to be bad over a restart, until upstream says something else there, or an operator decides. The canary
 * that rejected it may never come back. What an operator has discarded may have been accepted by canaries: judged anew,
 * it would reach everybody.
 */
export class Verdicts {
  readonly #gate: Contents;
  #frozen: readonly Freeze[] | undefined;
  readonly #hashOf: HashOf;
  /** From before a restart or a rollback. */
  #restored: readonly (SavedVerdict & Verdict)[];
  /** At which revision they were compared. */
  #compared: number | undefined;
  /** Of before a restart and since, by `nameKey`. */
  readonly #discards: Map<string, SavedDiscard>;
  /** Those from before a restart or a rollback of which upstream has not said all again yet. */
  readonly #awaited: Set<string>;
  readonly #known = new WeakMap<SavedContent, Known>();
  /** What of it upstream has said again since. */
  readonly #said = new WeakMap<SavedContent, ReadonlySet<string>>();
  /** What was recorded last: at first what the file has, of which nothing need be saved. */
  #found: readonly Verdict[];
  /** For the disk. */
  saved: SavedVerdicts;
  /** What `saved` is not yet. */
  readonly #unsaved = { verdicts: false, discards: false };

  /** `hashOf`: as in `restored`. */
  constructor(restored: SavedVerdicts, gate: Contents, hashOf: HashOf) {
    const { verdicts, discards } = restored;
    this.saved = { verdicts, discards };
    this.#restored = verdicts.map(withNames);
    this.#found = this.#restored;
    this.#discards = new Map(discards.map((one) => [nameKey(one.type, one.name), one]));
    this.#awaited = new Set(this.#discards.keys());
    this.#gate = gate;
    this.#hashOf = hashOf;
  }

  /** What was found bad before a restart, and what upstream has not said anything else for; the same values until then. */
  restored(): readonly Verdict[] {
    const { revision, pending } = this.#gate;
    if (this.#compared === revision || this.#restored.length === 0) return this.#restored;
    this.#compared = revision;
    // Of these nobody sees what upstream says.
    const away = new Set(pending.flatMap(({ key, masked }) => (masked === 'rolledBack' ? key : [])));
    const isOther = (one: SavedContent): boolean =>
      !away.has(nameKey(one.type, one.name)) && this.#isOther(one);
    this.#keep(({ contents }) => !contents.some(isOther));
    return this.#restored;
  }

  /** Before a rollback of what these mean: what was found bad of it is so when it waits again. */
  rollsBack(found: readonly Verdict[], filters: readonly Scope[]): void {
    const isMeant = (one: PendingName): boolean => filters.some((filter) => includes(filter, one));
    const names = this.#gate.pending.filter((one) => isJudged(one) && isMeant(one));
    this.#restore(found, names);
  }

  /** In a freeze upstream says something else than canaries have: what was found bad of that is so when it waits again. */
  #freezes(found: readonly Verdict[], left: ReadonlySet<string>): void {
    const bad = found.filter(({ names }) => !names.isDisjointFrom(left));
    if (bad.length === 0) return;
    const { pending } = this.#gate;
    const isFrozen = ({ masked }: PendingName): boolean => masked === 'frozen';
    const keys = new Set(pending.flatMap((one) => (isFrozen(one) && left.has(one.key) ? one.key : [])));
    this.#restore(
      bad.filter(({ names }) => !names.isDisjointFrom(keys)),
      pending.filter((one) => isJudged(one) || isFrozen(one)),
    );
  }

  #restore(found: readonly Verdict[], names: readonly PendingName[]): void {
    const fresh = this.#freshOf(found, names).map(withNames);
    if (fresh.length === 0) return;
    const said = fresh.flatMap(({ contents }) => contents);
    for (const one of said) this.#said.set(one, new Set(this.#knownOf(one).values().filter(Boolean)));
    this.#restored = distinct([...this.#restored, ...fresh]);
    this.#unsaved.verdicts = true;
  }

  /**
   * Names wait with another content now, which may be bad for the same reason, or wait no more. Returns which of those
   * that wait were discarded before a restart, with the same content. `found`: what was found bad until now.
   */
  changed({ type, joined, left }: PendingChange, found: () => readonly Verdict[]): ReadonlySet<string> {
    const keysOf = (names: readonly ResourceName[]): string[] => names.map((name) => nameKey(type, name));
    const keys = new Set(keysOf([...joined, ...left]));
    this.#unsaved.verdicts ||= this.#found.some(({ names }) => !names.isDisjointFrom(keys));
    this.#left(keysOf(left));
    if (left.length > 0) this.#freezes(found(), new Set(keysOf(left)));
    return new Set(keysOf(joined).filter((key) => this.#isAgain(key)));
  }

  /**
   * These names do not wait any more, or an operator has decided. Of those that are frozen, rolled back or queued nobody
   * knows anything new: what is known from before stays for when they wait again.
   */
  #left(keys: readonly string[]): void {
    if (this.#restored.length + this.#discards.size === 0) return;
    const masks = new Map(this.#gate.pending.map(({ key, masked }) => [key, masked]));
    const gone = new Set(keys.filter((key) => !isUndecided(masks.get(key))));
    this.#keep((verdict) => verdict.names.isDisjointFrom(gone));
    for (const key of keys) {
      if (masks.get(key) === 'rolledBack' && this.#discards.has(key)) this.#awaited.add(key);
      if (masks.get(key) === 'discarded') this.#follow(key);
      else if (this.#discards.has(key) && (gone.has(key) || !this.#awaited.has(key))) this.#forget(key);
    }
  }

  /**
   * Endpoints that were stopped before a restart, and are not confirmed yet: the guard may find nothing wrong with them,
   * where they come one by one or its bounds are others.
   */
  stops({ type, holder, puts }: Transaction): boolean {
    if (this.#restored.length + this.#awaited.size === 0 || holder.restored === true) return false;
    return puts.some(({ name }) => this.isKnown({ type, name }));
  }

  /** Something of it was found bad or discarded before a restart, and may be what upstream says. */
  isKnown({ type, name }: TypedName): boolean {
    const key = nameKey(type, name);
    return this.#awaited.has(key) || this.#restored.some(({ names }) => names.has(key));
  }

  /** Who had something else when it was discarded, and was away, may be told the same as the others since. */
  #follow(key: string): void {
    const discarded = this.#discards.get(key);
    if (discarded === undefined) return;
    const known = this.#knownOf(discarded);
    const said = this.#saidNow(discarded, 'said').map(({ variant }) => this.#hashOf(variant));
    const others = said.filter(([where, what]) => known.has(where) && known.get(where) !== what);
    if (others.length === 0) return;
    const hashes = [...new Map([...known, ...others])].map((hash) => hash.join('.'));
    this.#discards.set(key, { ...discarded, hashes });
    this.#unsaved.discards = true;
  }

  /** Must be called before canaries go back to what is released. */
  discard(names: readonly PendingName[], reason: string, cause?: HoldCause): void {
    const kept = shorten(reason, most.reason);
    for (const one of names) {
      const { key } = one;
      this.#discards.delete(key);
      this.#discards.set(key, { ...this.#contentNow(one), reason: kept, cause });
      this.#awaited.delete(key);
    }
    this.#unsaved.discards = true;
  }

  /** Why operators have discarded these. */
  whyDiscarded(keys: ReadonlySet<string>): string {
    const reasons = keys.values().map((key) => this.#discards.get(key)?.reason);
    return [...new Set(reasons)].filter((reason) => reason !== undefined && reason !== '').join('; ');
  }

  /** Why the first of these was found bad; undefined: operators have discarded them. */
  causeOf(keys: ReadonlySet<string>): HoldCause | undefined {
    const causes = keys.values().map((key) => this.#discards.get(key)?.cause);
    return causes.find((cause) => cause !== undefined);
  }

  /** What is known to be bad now, and frozen: a reload may give an upstream another name. True: it has to be saved. */
  record(found: readonly Verdict[], freezes: readonly Freeze[]): boolean {
    const isFrozen = this.#frozen !== undefined && this.#frozen !== freezes;
    this.#frozen = freezes;
    const isSame = areSame(this.#found, found);
    const { verdicts, discards } = this.#unsaved;
    if (!isSame || verdicts) this.saved = { ...this.saved, verdicts: this.#verdictsNow(found) };
    if (discards)
      this.saved = { ...this.saved, discards: [...this.#discards.values()].slice(-most.discards) };
    this.#found = found;
    Object.assign(this.#unsaved, { verdicts: false, discards: false });
    return !isSame || verdicts || discards || isFrozen;
  }

  #verdictsNow(all: readonly Verdict[]): readonly SavedVerdict[] {
    const known = this.#restored.map(({ cause, reason, contents }) => ({ cause, reason, contents }));
    return distinct([...known, ...this.#freshOf(all, this.#gate.pending.filter(isJudged))]);
  }

  /** Those that are not from before, with what they are about of these names. */
  #freshOf(all: readonly Verdict[], names: readonly PendingName[]): readonly SavedVerdict[] {
    const before = new Set<Verdict>(this.#restored);
    const found = all.filter((one) => !before.has(one));
    const fresh = found.slice(-most.verdicts).map((one) => this.#withContents(one, names));
    return fresh.filter(({ contents }) => contents.length > 0);
  }

  #keep(isKept: (verdict: SavedVerdict & Verdict) => boolean): void {
    const kept = this.#restored.filter(isKept);
    if (kept.length === this.#restored.length) return;
    this.#restored = kept;
    this.#unsaved.verdicts = true;
  }

  #withContents({ cause, reason, names }: Verdict, pending: readonly PendingName[]): SavedVerdict {
    const contents: SavedContent[] = [];
    let left = most.hashes;
    for (const one of pending) {
      if (!names.has(one.key)) continue;
      const content = this.#contentNow(one);
      left -= content.hashes.length;
      if (left < 0 || contents.length >= most.names) break;
      contents.push(content);
    }
    return { cause, reason, contents };
  }

  #contentNow({ type, name, masked }: PendingName): SavedContent {
    // What is queued nobody has yet.
    const judged =
      masked === 'queued' ? this.#gate.contentOf(type, name, 'said') : this.#gate.judgedContent(type, name);
    const kept = new Set(judged.map(({ variant }) => variant.constraints.key));
    const released = this.#gate.contentOf(type, name, 'released').map(({ variant }) => variant);
    const removed = released.filter(({ constraints }) => !kept.has(constraints.key));
    const hashes = [
      ...judged.map(({ variant }) => this.#hashOf(variant).join('.')),
      ...removed.map((variant) => `${this.#hashOf(variant)[0]}.`),
    ];
    return { type, name, hashes };
  }

  /** What is restored and not confirmed says nothing: the sessions of other parameters may not have answered yet. */
  #saidNow({ type, name }: TypedName, column: 'canary' | 'said' = 'canary'): readonly HeldVariant[] {
    return this.#gate.contentOf(type, name, column).filter(isConfirmed);
  }

  #knownOf(content: SavedContent): Known {
    return getOrMake(this.#known, content, () => new Map(content.hashes.map(partsOf)));
  }

  #whatOf({ variant }: HeldVariant): string {
    return this.#hashOf(variant)[1];
  }

  /**
   * Of these, what is not what there was: another content for the same clients, or for others something that was not
   * there and that not everybody has. Clients with other parameters may have come, and the rules of parameters may be
   * others.
   */
  #hasOthers(content: SavedContent, said: readonly HeldVariant[]): boolean {
    const known = this.#knownOf(content);
    const all = new Set(known.values());
    const released = this.#gate.contentOf(content.type, content.name, 'released');
    const everybodys: Known = new Map(released.map(({ variant }) => this.#hashOf(variant)));
    return said.some(({ variant }) => {
      const [where, what] = this.#hashOf(variant);
      const before = known.get(where);
      return before === undefined ? !all.has(what) && everybodys.get(where) !== what : before !== what;
    });
  }

  /** Upstream says something else than what was found bad. That clients have left is nothing that it has said. */
  #isOther(content: SavedContent): boolean {
    const now = this.#saidNow(content);
    const there = this.#gate.judgedContent(content.type, content.name);
    const before = this.#said.get(content) ?? new Set();
    const bad = new Set(this.#knownOf(content).values());
    this.#said.set(content, before.union(bad.intersection(new Set(now.map((one) => this.#whatOf(one))))));
    return (
      this.#hasOthers(content, now) || !before.isSubsetOf(new Set(there.map((one) => this.#whatOf(one))))
    );
  }

  #isAgain(key: string): boolean {
    const discarded = this.#discards.get(key);
    if (discarded === undefined) return false;
    const before = new Set(
      this.#knownOf(discarded)
        .values()
        .filter((what) => what !== ''),
    );
    // That clients have left is no removal.
    const judged = this.#gate.judgedContent(discarded.type, discarded.name);
    const said = judged.filter(isConfirmed);
    const isSame = judged.length === 0 ? before.size === 0 : !this.#hasOthers(discarded, said);
    if (!this.#awaited.has(key) || !isSame) {
      this.#forget(key);
      return false;
    }
    if (before.isSubsetOf(new Set(said.map((one) => this.#whatOf(one))))) this.#awaited.delete(key);
    return true;
  }

  #forget(key: string): void {
    this.#discards.delete(key);
    this.#awaited.delete(key);
    this.#unsaved.discards = true;
  }
}

const isConfirmed = ({ holders }: HeldVariant): boolean => holders.some(({ restored }) => !restored);

function withNames({ cause, reason, contents }: SavedVerdict): SavedVerdict & Verdict {
  const names = new Set(contents.map(({ type, name }) => nameKey(type, name)));
  return { cause, reason, contents, names };
}

/** A canary that came back may have said the same again, or have left then: the first is the reason that was told. */
function distinct<T extends SavedVerdict>(all: readonly T[]): readonly T[] {
  const byContents = Map.groupBy(all, ({ contents }) => JSON.stringify(contents));
  return [...byContents.values()].flatMap((same) => same.slice(0, 1)).slice(-most.verdicts);
}

/** Of a hash as it is on the disk. */
function partsOf(hash: string): ReturnType<HashOf> {
  const [where = '', what = ''] = hash.split('.');
  return [where, what];
}

/** Canaries see it, or the guard has seen it before them. */
const isJudged = ({ masked }: PendingName): boolean => masked === undefined || masked === 'queued';
const isUndecided = (masked: PendingName['masked']): boolean =>
  masked === 'frozen' || masked === 'rolledBack' || masked === 'queued';

/** So many rejections of streams that are gone are kept apart. */
const mostLeft = 100;
/** Who takes back a rejection that often rejects it: each time the change is held, and goes on. */
const mostTakenBack = 3;

type Rejected = Extract<Standing, { readonly kind: 'rejected' }>;

/**
 * What canaries reject of what waits. A rejection lasts until its stream accepts what it rejected, or upstream says
 * something else there. That the stream ends, unsubscribes, or is no canary any more does not end it: the next canary
 * of the class would be shown what is known to be bad. Nor does it if a stream accepts and rejects it in turn.
 */
export class Rejections {
  readonly #live = new Map<CanaryStream['stream'], Rejected>();
  /** Of streams that have ended, or do not subscribe any more. */
  #left: Rejected[] = [];
  /** The names of those that were too many. */
  #more: Rejected | undefined;
  /** How often streams have taken one back, since upstream has said something else. */
  readonly #takenBack = new Map<CanaryStream['stream'], number>();
  /** Undefined: to be made anew. */
  #verdicts: readonly Verdict[] | undefined;

  /** What is rejected, the same values until something changes. */
  get verdicts(): readonly Verdict[] {
    if (this.#verdicts !== undefined) return this.#verdicts;
    const verdicts: Verdict[] = [];
    const known = new Set<ReadonlySet<string>>();
    /** Thousands of clients may each reject something of their own: only those with the rarest of the names are compared. */
    const byName = new Map<string, ReadonlySet<string>[]>();
    for (const { reason, names } of this.#all()) {
      if (known.has(names)) continue;
      known.add(names);
      const candidates = names.values().map((name) => byName.get(name) ?? []);
      if (fewest(candidates).some((one) => names.isSubsetOf(one))) continue;
      for (const name of names) getOrMake(byName, name, () => []).push(names);
      verdicts.push({ cause: 'rejected', reason, names });
    }
    this.#verdicts = verdicts;
    return verdicts;
  }

  /** These names wait with another content now, or wait no more. */
  changed(names: ReadonlySet<string>): void {
    this.#takenBack.clear();
    const isOver = (one: Rejected): boolean => !one.names.isDisjointFrom(names);
    const left = this.#left.filter((one) => !isOver(one));
    if (left.length < this.#left.length) this.#verdicts = undefined;
    this.#left = left;
    // Each name counts for itself: the others were rejected apart from these.
    if (this.#more !== undefined && isOver(this.#more)) {
      const rest = this.#more.names.difference(names);
      this.#more = rest.size === 0 ? undefined : { ...this.#more, names: rest };
      this.#verdicts = undefined;
    }
    for (const [stream, one] of this.#live) if (isOver(one)) this.#forget(stream);
  }

  /** `waiting`: the names that wait. */
  observe(canaries: readonly CanaryStream[], waiting: ReadonlySet<string>): void {
    const seen = new Map(canaries.map((one) => [one.stream, one]));
    for (const [stream, rejected] of this.#live) {
      if (rejected.names.isDisjointFrom(waiting)) continue;
      const now = seen.get(stream);
      if (now === undefined || !subscribesTo(now, rejected.names)) this.#leave(stream, rejected);
      else if (now.standing.kind === 'accepted') this.#takeBack(stream, rejected);
    }
    for (const { stream, standing } of canaries) {
      if (standing.kind !== 'rejected' || !standing.isFinal) continue;
      const known = this.#live.get(stream);
      if (known !== undefined && isSame(known, standing)) continue;
      this.#live.set(stream, standing);
      this.#verdicts = undefined;
    }
  }

  ended(stream: CanaryStream['stream'], standing: Standing): void {
    if (standing.kind === 'rejected' && standing.isFinal) this.#leave(stream, standing);
  }

  #takeBack(stream: CanaryStream['stream'], rejected: Rejected): void {
    countIn(this.#takenBack, stream, 1);
    if ((this.#takenBack.get(stream) ?? 0) < mostTakenBack) this.#forget(stream);
    else this.#leave(stream, rejected);
  }

  /** A client that comes and goes adds nothing. */
  #leave(stream: CanaryStream['stream'], rejected: Rejected): void {
    this.#forget(stream);
    if (this.#left.some(({ names }) => isWithin(rejected.names, names))) return;
    if (this.#left.length < mostLeft) this.#left.push(rejected);
    else this.#more = { ...rejected, names: rejected.names.union(this.#more?.names ?? new Set()) };
  }

  #all(): readonly Rejected[] {
    return [...this.#live.values(), ...this.#left, ...(this.#more === undefined ? [] : [this.#more])];
  }

  #forget(stream: CanaryStream['stream']): void {
    this.#live.delete(stream);
    this.#verdicts = undefined;
  }
}

function fewest<T>(lists: Iterable<readonly T[]>): readonly T[] {
  let fewest: readonly T[] | undefined;
  for (const list of lists) {
    if (fewest === undefined || list.length < fewest.length) fewest = list;
    if (list.length === 0) break;
  }
  return fewest ?? [];
}

const isWithin = (inner: ReadonlySet<string>, outer: ReadonlySet<string>): boolean =>
  inner === outer || inner.isSubsetOf(outer);

const isSame = (a: Rejected, b: Rejected): boolean =>
  a.reason === b.reason && a.names.size === b.names.size && isWithin(a.names, b.names);

/** A node may come back so soon that nobody has to know: Envoy tries again after half a second. Milliseconds. */
const returnMs = 1000;
/** A node that ends so often within one bake ends because of what it was sent, though it comes back each time. */
const mostReturns = 2;
/** The oldest are forgotten: who may be a canary may also come under ever new names. */
const mostKept = 50_000;

/** A node of one class, of which no stream subscribes any more to what it was a canary of. */
interface End {
  readonly node: string;
  readonly classKey: string;
  /** What it subscribed to of what waited, as its stream had it: thousands share these sets. */
  readonly names: CanaryStream['names'];
  /** When it ended, within the longest bake: the last ones, as many as decide. */
  readonly times: readonly number[];
  readonly isBack: boolean;
  /** It counts as an end. */
  readonly isJudged: boolean;
}

/**
 * The nodes of canaries that have ended, for each class (protocol §8.5a). An end that is followed by a return within the bake
 * is none, unless it happens again and again. A finding stays until upstream says something else under one of its names.
 */
export class Ends {
  /** By class and node. */
  #ends: ReadonlyMap<string, End> = new Map();
  /** Not looked at yet: the node may have other streams. */
  #fresh: { readonly stream: CanaryStream; readonly at: number }[] = [];
  /** At the last look. */
  #seen: readonly CanaryStream[] = [];
  /**
   * Classes of which too many nodes have ended, the same values until something changes. They may come back until `finalAt`:
   * it is no finding any more if enough do.
   */
  verdicts: readonly (Verdict & { readonly classKey: string; readonly finalAt: number })[] = [];

  ended(stream: CanaryStream, now: number): void {
    if (this.#fresh.length < mostKept) this.#fresh.push({ stream, at: now });
  }

  /** These names wait with another content now, or wait no more. */
  changed(names: ReadonlySet<string>): void {
    const isAbout = subscribedTo(names);
    this.#keep((end) => !isAbout(end));
    this.verdicts = this.verdicts.filter((one) => one.names.isDisjointFrom(names));
  }

  /** Nothing waits for a verdict: what was found stays, and who has ended counts when what is frozen waits again. */
  over(frozen: ReadonlySet<string>): void {
    this.#keep(subscribedTo(frozen));
    this.#seen = [];
  }

  #keep(isKept: (end: Pick<End, 'names'>) => boolean): void {
    this.#ends = new Map(this.#ends.entries().filter(([, end]) => isKept(end)));
    this.#fresh = this.#fresh.filter(({ stream }) => isKept(stream));
  }

  /** All canaries that are there. */
  observe(canaries: readonly CanaryStream[], settings: JudgeSettings, now: number): void {
    const { bakeMs, maxDisconnects } = settings;
    const within = Math.max(bakeMs, ...settings.waves.map((wave) => wave.bakeMs ?? 0));
    const seen = this.#seen;
    this.#seen = canaries;
    if (this.#fresh.length + this.#ends.size + this.verdicts.length === 0) return;
    const present = streamsOf(canaries);
    const isThere = (classKey: string, node: string): boolean => present.get(classKey)?.has(node) === true;
    const ends = new Map(this.#ends);
    const before = this.#fresh.length === 0 ? undefined : streamsOf(seen);
    for (const all of Map.groupBy(this.#fresh, ({ stream }) => keyOf(stream)).values())
      for (const { stream, at } of all.slice(-1)) {
        const { classKey, node } = stream;
        const others = (before?.get(classKey)?.get(node) ?? 0) - all.length;
        // If no other was there, it has come back before this look.
        if (others > 0 && isThere(classKey, node)) continue;
        const names = [...new Set(all.flatMap((one) => one.stream.names))];
        add(ends, { classKey, node, names }, at);
      }
    this.#fresh = [];
    for (const [key, end] of ends) {
      const isBack = isThere(end.classKey, end.node);
      const recent = end.times.filter((at) => at > now - within);
      const times = recent.length === 0 ? end.times : recent;
      if (recent.length === 0 && (end.isJudged || isBack)) ends.delete(key);
      else ends.set(key, { ...end, times, isBack, isJudged: counts({ times, isBack }, bakeMs, now) });
    }
    this.#ends = ends;
    const open = [...Map.groupBy(ends.values(), (end) => end.classKey)].flatMap(([classKey, of]) => {
      const counted = of.filter(({ isJudged }) => isJudged);
      const nodes = new Set([...(present.get(classKey)?.keys() ?? []), ...counted.map(({ node }) => node)]);
      if (counted.length * 100 <= maxDisconnects * nodes.size) return [];
      const reason = `${counted.length} of ${nodes.size} canary streams ended within the bake: max_disconnects is ${maxDisconnects} percent`;
      const sets = new Set(counted.flatMap((end) => end.names));
      const names = new Set([...sets].flatMap((set) => Array.from(set)));
      const finalAt = counted.reduce((last, { times }) => Math.max(last, times.at(-1) ?? 0), 0) + within;
      const known = this.verdicts.find((one) => one.classKey === classKey && isEqual(one.names, names));
      return [known ?? { cause: 'disconnects' as const, reason, names, classKey, finalAt }];
    });
    this.verdicts = [...new Set([...this.verdicts.filter(({ finalAt }) => finalAt <= now), ...open])];
  }

  /** Of these names: a node may come back at once, and nothing is decided until then. */
  mayReturn(names: ReadonlySet<string>): boolean {
    const isAbout = subscribedTo(names);
    return this.#ends.values().some((end) => !end.isBack && !end.isJudged && isAbout(end));
  }

  /** When the first of them counts, if it does not come back; infinite: none may. */
  nextAt({ bakeMs }: JudgeSettings): number {
    let first = Number.POSITIVE_INFINITY;
    for (const { times, isBack, isJudged } of this.#ends.values())
      if (!isBack && !isJudged) first = Math.min(first, (times.at(-1) ?? 0) + patienceOf(bakeMs));
    return first;
  }

  /** How many nodes that subscribed to any of these names have ended within the last bake, and are not back. */
  count(names: ReadonlySet<string>): number {
    const isAbout = subscribedTo(names);
    return [...this.#ends.values()].filter((end) => !end.isBack && isAbout(end)).length;
  }
}

type Node = Pick<CanaryStream, 'classKey' | 'node'>;

const keyOf = ({ classKey, node }: Node): string => JSON.stringify([classKey, node]);

/** How many, by class and node. */
function streamsOf(canaries: readonly CanaryStream[]): ReadonlyMap<string, ReadonlyMap<string, number>> {
  const streams = new Map<string, Map<string, number>>();
  for (const { classKey, node } of canaries)
    countIn(
      getOrMake(streams, classKey, () => new Map()),
      node,
      1,
    );
  return streams;
}

function add(ends: Map<string, End>, one: Pick<End, 'node' | 'classKey' | 'names'>, at: number): void {
  const key = keyOf(one);
  const times = [...(ends.get(key)?.times ?? []), at].slice(-mostReturns - 1);
  ends.delete(key);
  ends.set(key, { ...one, times, isBack: false, isJudged: false });
  const [oldest] = ends.keys();
  if (ends.size > mostKept && oldest !== undefined) ends.delete(oldest);
}

/** Of any of these names. A set that many share is compared once. */
function subscribedTo(names: ReadonlySet<string>): (end: Pick<End, 'names'>) => boolean {
  const known = new Map<ReadonlySet<string>, boolean>();
  const isAbout = (one: ReadonlySet<string>): boolean => !one.isDisjointFrom(names);
  return (end) => end.names.some((one) => getOrMake(known, one, () => isAbout(one)));
}

function counts({ times, isBack }: Pick<End, 'times' | 'isBack'>, bakeMs: number, now: number): boolean {
  return times.length > mostReturns || (!isBack && now - (times.at(-1) ?? now) >= patienceOf(bakeMs));
}

const patienceOf = (bakeMs: number): number => Math.min(returnMs, bakeMs / 2);
