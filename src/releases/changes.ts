import { nameKey, type Scope, scopeText, type TypedName } from '../model/holds.ts';
import { areSame, getOrMake, isEqual } from '../model/maps.ts';
import type { PendingName } from '../model/rollout.ts';
import type { Member } from './canaries.ts';
import { type HoldCause, Judge, type JudgeSettings, type Verdict, type WaitingState } from './judge.ts';
import type { CanaryStream, WaitingNames } from './waiting.ts';

/** What an operator may do about a change that is held. */
export const operations =
  '"distributary release" (everybody gets it) or "distributary discard" (canaries go back)';

/** One change that waits: names that are judged together, and the classes of clients that subscribe to any of them. */
export interface Change {
  readonly names: readonly PendingName[];
  /** By `nameKey`. */
  readonly keys: ReadonlySet<string>;
  readonly classes: ReadonlySet<string>;
  readonly judge: Judge;
}

/** What of a change is frozen, and who had come to it. */
type Frozen = Pick<Change, 'keys' | 'classes' | 'judge'>;

/** One that is held. */
type Hold = Pick<Change, 'names' | 'keys'> & { readonly cause: HoldCause };

/** What has just come is in the first one; 0: nothing waits. */
export const waveOf = (shown: Pick<Change, 'judge'> | undefined, waits: boolean): number =>
  shown?.judge.wave ?? (waits ? 1 : 0);

type Component = Readonly<Record<'keys' | 'classes', Set<string>>>;

/**
 * The changes that wait, one row each. Two names are of one change if a class subscribes to both, directly or over other
 * names and classes, or if one verdict is about both. Names to which nobody subscribes are one change.
 */
export class Changes {
  rows: readonly Change[] = [];
  /** What the guard finds bad though nobody has it: a change before it is still judged. */
  queued: Change | undefined;
  #frozen: readonly Frozen[] = [];
  /** At the last call of `endedHolds`. */
  #held: readonly Hold[] = [];
  /** What the rows were made of. */
  #made: readonly unknown[] = [];
  /** What canaries had before a restart, by `nameKey`, until it has gone past its first wave again, or waits no more. */
  readonly #before: Map<string, TypedName>;
  /** What canaries have while some of them are of a later wave, by `nameKey`: a restart shows it to them again, and nothing else. */
  #shownLater: ReadonlyMap<string, TypedName>;
  #pending: readonly PendingName[] | undefined;
  /** Of all that canaries have. */
  #judges: ReadonlyMap<string, Judge> = new Map();

  /** `before`: `shownLater` of before a restart. */
  constructor(before: readonly TypedName[] = []) {
    this.#before = new Map(before.map((one) => [nameKey(one.type, one.name), one]));
    this.#shownLater = new Map(this.#before);
  }

  get shownLater(): readonly TypedName[] {
    return [...this.#shownLater.values()];
  }

  /** The names of that, if the state is of it. */
  get queuedHeld(): readonly PendingName[] | undefined {
    return this.queued?.judge.state === this.state ? this.queued?.names : undefined;
  }

  /** The first change that is held, else the first that waits. */
  get first(): Change | undefined {
    const held = this.rows.filter(({ judge }) => judge.state.kind === 'HELD');
    const own = held.length > 0 ? held : this.rows;
    return own.toSorted((a, b) => a.judge.state.since - b.judge.state.since)[0];
  }

  /** Of what is held first, else of the first that waits; undefined: nothing waits. */
  get state(): WaitingState | undefined {
    const first = this.first?.judge.state;
    const queued = this.queued?.judge.state;
    return queued === undefined || (first?.kind === 'HELD' && first.since <= queued.since) ? first : queued;
  }

  /** All that canaries have, be it frozen or not. */
  get shown(): readonly Frozen[] {
    return [...this.rows, ...this.#frozen];
  }

  /** Of whom some have something that is frozen. */
  get frozenClasses(): ReadonlySet<string> {
    return new Set(this.#frozen.flatMap(({ classes }) => [...classes]));
  }

  /** How far the change of each class has come, though its clients came later: the wave, where it is not the first. */
  reached(): ReadonlyMap<string, number> {
    const reached = new Map<string, number>();
    for (const { judge, classes } of this.shown)
      for (const [classKey, wave] of judge.reach(classes))
        reached.set(classKey, Math.max(wave, reached.get(classKey) ?? 0));
    return reached;
  }

  /** All of which there is something to say. */
  get all(): readonly Change[] {
    return this.queued === undefined ? this.rows : [...this.rows, this.queued];
  }

  /** Of what waits, be it frozen or queued. */
  get judges(): readonly Judge[] {
    return [...this.all, ...this.#frozen].map(({ judge }) => judge);
  }

  /**
   * `frozen`: what canaries have of it, by `nameKey`. `stopped`: what is queued, and bad. `members`: the same values as
   * long as they do not change, and so `bonds`, the sets of names of one verdict. `joined`: names with a content that is new.
   */
  arrange(
    { names, keys }: WaitingNames,
    frozen: ReadonlySet<string>,
    stopped: WaitingNames,
    members: readonly Member[],
    bonds: readonly ReadonlySet<string>[],
    joined: ReadonlySet<string>,
    settings: JudgeSettings,
    now: number,
  ): void {
    const made = [keys, frozen, stopped, members, ...bonds];
    if (!areSame(this.#made, made)) {
      this.#made = made;
      const { queued } = this;
      const known = [...this.#frozen, ...this.rows];
      const resumed = partsIn(keys, this.#frozen).map(({ keys: own, judge }) => ({
        keys: own,
        judge: Judge.resumed(judge, settings, now),
      }));
      const components = componentsOf(keys, members, bonds);
      this.rows = arranged(names, components, [...this.all, ...resumed], settings, now);
      this.#frozen = partsIn(frozen, known);
      this.#judges = judgesOf(this.shown);
      const judge = queued?.judge ?? new Judge(settings, now);
      this.queued =
        stopped.names.length === 0
          ? undefined
          : { names: stopped.names, keys: stopped.keys, classes: new Set(), judge };
    }
    if (joined.size === 0) return;
    for (const { keys: own, judge } of this.rows) if (!own.isDisjointFrom(joined)) judge.joined(now);
  }

  get #isAnyPastFirst(): boolean {
    return this.rows.some(({ judge }) => judge.isPastFirst);
  }

  /**
   * A change goes to those who have what they judge, and to the first wave: later waves get nothing that nobody has judged.
   * `isKnown`: something of the name was found bad or discarded before a restart, and waits for it.
   */
  isQueued({ type, name }: TypedName, isKnown: boolean): boolean {
    const key = nameKey(type, name);
    const isResuming = this.#before.size > 0 && !this.#isAnyPastFirst;
    // Its parts may come one by one.
    if (isResuming && (isKnown || this.#before.has(key))) return false;
    // What was frozen until now is judged on from where it was.
    const own = this.#judges.get(key);
    return own?.isOpen !== true;
  }

  /** Whether what is queued stays so. `isRestarting`: upstream may not have said yet what canaries had before a restart. */
  keepsQueue(isRestarting: boolean): boolean {
    if (this.#before.size > 0) {
      const judges = judgesOf(this.rows);
      for (const key of this.#before.keys()) {
        const judge = judges.get(key);
        if (judge === undefined ? !isRestarting : judge.isPastFirst) this.#before.delete(key);
      }
    }
    return this.#isAnyPastFirst || this.#before.size > 0;
  }

  /** `pending`: undefined if nothing is queued. True: `shownLater` is another. */
  remember(pending: readonly PendingName[] | undefined): boolean {
    if (this.#pending === pending) return false;
    this.#pending = pending;
    const seen = (pending ?? []).filter((one) => one.seen);
    const now = seen.map(({ key, type, name }) => [key, { type, name }] as const);
    const before = new Set(this.#shownLater.keys());
    this.#shownLater = new Map([...this.#before, ...now]);
    return !isEqual(before, new Set(this.#shownLater.keys()));
  }

  /** What was held when this was called last, and of which nothing is held any more. */
  endedHolds(): readonly Hold[] {
    const held = this.all.flatMap(({ names, keys, judge: { state } }) =>
      state.kind === 'HELD' ? { names, keys, cause: state.cause } : [],
    );
    const still = new Set(held.flatMap(({ keys }) => [...keys]));
    const ended = this.#held.filter(({ keys }) => keys.isDisjointFrom(still));
    this.#held = held;
    return ended;
  }

  /** Nobody has what is queued, and nobody will before the change before it has ended. */
  judgeQueued(guard: { objectionTo(keys: ReadonlySet<string>): Verdict | undefined }, now: number): void {
    const found = this.queued && guard.objectionTo(this.queued.keys);
    if (found === undefined) return;
    const reason = `${found.reason}; nobody has it: it is queued`;
    this.queued?.judge.hold(now, { cause: found.cause, reason });
  }
}

/** By `nameKey`. */
function judgesOf(all: readonly Pick<Change, 'keys' | 'judge'>[]): ReadonlyMap<string, Judge> {
  const judges = new Map<string, Judge>();
  for (const { keys, judge } of all) for (const key of keys) judges.set(key, judge);
  return judges;
}

/** What of these is under any of the names, by `nameKey`. */
const partsIn = (names: ReadonlySet<string>, all: readonly Frozen[]): readonly Frozen[] =>
  all.flatMap(({ keys, classes, judge }) => {
    const own = keys.intersection(names);
    return own.size === 0 ? [] : { keys: own, classes, judge };
  });

function arranged(
  names: readonly PendingName[],
  components: readonly Component[],
  known: readonly Pick<Change, 'keys' | 'judge'>[],
  settings: JudgeSettings,
  now: number,
): readonly Change[] {
  const before = judgesOf(known);
  const byKey = new Map<string, Component>();
  for (const component of components) for (const key of component.keys) byKey.set(key, component);
  const namesOf = Map.groupBy(names, ({ key }) => byKey.get(key));
  return components.map((component) => {
    const judges = new Set([...component.keys].flatMap((key) => before.get(key) ?? []));
    const judge = Judge.of([...judges], settings, now);
    return { ...component, names: namesOf.get(component) ?? [], judge };
  });
}

function componentsOf(
  keys: ReadonlySet<string>,
  members: readonly Member[],
  bonds: readonly ReadonlySet<string>[],
): readonly Component[] {
  /** With which names each one is joined, itself among them. */
  const joined = new Map<string, Set<string>>();
  /** Names that do not wait are left out. Returns one of those that do. */
  const join = (sets: Iterable<ReadonlySet<string>>): string | undefined => {
    let any: string | undefined;
    for (const names of sets)
      for (const name of names) {
        if (!keys.has(name)) continue;
        any ??= name;
        const before = joined.get(any);
        if (before?.size === keys.size) return any;
        const others = joined.get(name) ?? new Set([name]);
        const [more, fewer] =
          before === undefined || before.size < others.size ? [others, before] : [before, others];
        if (more !== fewer) for (const one of fewer ?? others) joined.set(one, more.add(one));
      }
    return any;
  };
  for (const bond of bonds) join([bond]);
  const anyOf = [...Map.groupBy(members, ({ classKey }) => classKey)].map(
    ([classKey, peers]) =>
      [classKey, join(new Set(peers.flatMap(({ subscribed }) => [...subscribed])))] as const,
  );
  const components = new Map<ReadonlySet<string> | undefined, Component>();
  const of = (key: string): Component =>
    getOrMake(components, joined.get(key), () => ({ keys: new Set(), classes: new Set() }));
  for (const [classKey, any] of anyOf) if (any !== undefined) of(any).classes.add(classKey);
  for (const bond of bonds) for (const key of bond) if (keys.has(key)) of(key);
  // What is of no class and no verdict is together.
  for (const key of keys) of(key).keys.add(key);
  return [...components.values()];
}

/** Of changes that all are held, or in another wave than the one that is to end. */
export function whyNotPromoted(changes: readonly { readonly judge: Judge }[], filter: Scope): string {
  const [other] = changes.flatMap(({ judge }) => (judge.state.kind === 'HELD' ? [] : [judge]));
  if (other !== undefined) return `it is in wave ${other.wave}: nothing is in the wave that is to end`;
  const [held] = changes.flatMap(({ judge: { state } }) => (state.kind === 'HELD' ? [state] : []));
  if (held !== undefined) return `it is held (${held.reason}): ${operations} decides`;
  return `${scopeText(filter)} is frozen: unfreeze it first`;
}

/** A change that waits, and who is to have it. */
export interface HeardChange {
  readonly change: Change;
  /** Undefined: that is not known for a moment. */
  readonly canaries: readonly CanaryStream[] | undefined;
  /** Upstream has said something else of it since the last look. */
  readonly isNew: boolean;
}

/** What a source says of one change now. */
export interface Opinion {
  /** It is bad. What was measured stays so until upstream says something else under one of its names. */
  readonly verdict?: Verdict | undefined;
  /** Since when it is good, by `Clock.monotonic()`; undefined: it is not yet. */
  readonly goodSince: number | undefined;
  /** Why it is not; empty if it is. */
  readonly waitsFor: string;
}

/** Of a source that waits for nothing: undefined is nothing. */
export const objection = (verdict: Verdict | undefined): Opinion | undefined =>
  verdict && { verdict, goodSince: 0, waitsFor: '' };

/** The change itself shows it, and is bad for as long as it does. All else is measured. */
const isObjection = ({ cause }: Verdict): boolean => cause === 'removals' || cause === 'content';

/** All of them together: the first verdict, since when all find it good, and why one does not. */
export function together(all: readonly Opinion[]): Opinion {
  const isGood = all.every(({ goodSince }) => goodSince !== undefined);
  return {
    verdict: all.find(({ verdict }) => verdict !== undefined)?.verdict,
    goodSince: isGood ? Math.max(0, ...all.flatMap(({ goodSince }) => goodSince ?? [])) : undefined,
    waitsFor: all.flatMap(({ waitsFor }) => (waitsFor === '' ? [] : waitsFor)).join('; '),
  };
}

/** What may find a change bad whatever its canaries say: the guard, limits of removals, checks, traffic. */
export interface VerdictSource {
  /**
   * At every look: of each change that waits, in their order; undefined, or left out: it says nothing of it. `frozen`:
   * classes of which some clients have something that is frozen.
   */
  look(
    changes: readonly HeardChange[],
    frozen: ReadonlySet<string>,
    now: number,
  ): readonly (Opinion | undefined)[];
}

/** What all sources say. */
export class Sources {
  readonly #sources: readonly VerdictSource[];
  #opinions: ReadonlyMap<Change, readonly Opinion[]> = new Map();
  /** What was measured, the same values until something changes. */
  verdicts: readonly Verdict[] = [];

  constructor(sources: readonly VerdictSource[]) {
    this.#sources = sources;
  }

  look(changes: readonly HeardChange[], frozen: ReadonlySet<string>, now: number): void {
    const said = this.#sources.map((source) => source.look(changes, frozen, now));
    this.#opinions = new Map(changes.map(({ change }, at) => [change, said.flatMap((all) => all[at] ?? [])]));
    for (const { verdict } of said.flat().filter((one) => one !== undefined)) {
      if (verdict === undefined || isObjection(verdict)) continue;
      if (!this.verdicts.some(({ names }) => verdict.names.isSubsetOf(names)))
        this.verdicts = [...this.verdicts, verdict];
    }
  }

  /** These names wait with another content now, or wait no more. */
  changed(names: ReadonlySet<string>): void {
    this.verdicts = this.verdicts.filter((one) => one.names.isDisjointFrom(names));
  }

  /** Its verdict is an objection: the others are in `verdicts`. */
  opinionOn(change: Change): Opinion {
    const all = this.#opinions.get(change) ?? [];
    const objecting = all.find(({ verdict }) => verdict !== undefined && isObjection(verdict));
    return { ...together(all), verdict: objecting?.verdict };
  }
}
