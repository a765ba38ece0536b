import type { ResourceName, TypeUrl } from '../model/brand.ts';
import { Settling, type Timer, WallTime } from '../model/clock.ts';
import { type Decision, nameKey, type Scope, scopeText, type TypedName } from '../model/holds.ts';
import { getOrMake, isEqual, onceFor } from '../model/maps.ts';
import { fail, ok, type Result } from '../model/result.ts';
import type { PendingChange, PendingName } from '../model/rollout.ts';
import type { HeldRemovals } from '../model/upstream.ts';
import { Canaries, type Member, type Moved } from './canaries.ts';
import { type Change, Changes, Sources, waveOf, whyNotPromoted } from './changes.ts';
import { Guard, RemovalLimits } from './guard.ts';
import {
  type HoldCause,
  type Judgement,
  type Observation,
  type RolloutSettings,
  type RolloutState,
  unjudged,
  type Verdict,
  verdictOn,
} from './judge.ts';
import { Needed } from './needed.ts';
import { plainHash } from './rollout-file.ts';
import { neededObjection, type RolloutOptions, reloadObjection, resultOf } from './seams.ts';
import { Ends, Rejections, Verdicts } from './verdicts.ts';
import {
  answersOf,
  type CanaryStream,
  isAbout,
  Judged,
  keysOf,
  matching,
  nothingOf,
  rejectionBy,
  type Survey,
  unknownCanary,
  type Waiting,
  type WaitingNames,
  waitingNames,
} from './waiting.ts';

/** While a change waits the clients are looked at so often, in milliseconds: some may have come. */
const lookMs = 1000;
/** While clients go back to their cohort. */
const moveMs = 50;
/** Answers of many canaries arrive together. */
const settling = { quiet: 10, longest: 100 };

const nobody: Survey = { complete: true, members: [], canaries: [] };

/** How many names, and the wave that has ended: the first, if they were in several. */
export type Promoted = Readonly<Record<'names' | 'wave', number>>;

/** Where a rollout is, for operators. */
export type RolloutReport = Readonly<ReturnType<Rollout['report']>>;

/**
 * Takes changes through their rollout: chooses canaries, hears what they say, and releases what they accept. Without
 * settings every change goes to everybody at once, but for what an operator freezes.
 */
export class Rollout {
  readonly #options: RolloutOptions;
  readonly #changes: Changes;
  readonly canaries: Canaries;
  readonly #rejections = new Rejections();
  readonly #ends = new Ends();
  readonly #verdicts: Verdicts;
  readonly #removals: RemovalLimits;
  readonly #guard: Guard;
  readonly #sources: Sources;
  readonly #settling: Settling;
  readonly #wallTime: WallTime;
  readonly #forget: () => void;
  #settings: RolloutSettings | undefined;
  #survey = nobody;
  readonly #canariesByClass = onceFor(({ canaries }: Survey) =>
    Map.groupBy(canaries, ({ classKey }) => classKey),
  );
  /** Of the last survey that was complete. */
  #members: readonly Member[] = [];
  /** Of whom canaries were elected last, but for these classes. */
  #staffed: { readonly members: readonly Member[]; readonly closed: ReadonlySet<string> } | undefined;
  /** Names that wait with another content since the last look, by `nameKey`. */
  readonly #joined = new Set<string>();
  #state: RolloutState;
  /** Of that state; 0: nothing waits. */
  #wave = 0;
  readonly #judged: Judged;
  #isOver = false;
  /** What everybody has been given, or what was taken back, since the state was told last, by `nameKey`. */
  readonly #decided = new Set<string>();
  /** What is queued, and the guard finds bad: the same value until it changes. */
  #stopped: WaitingNames = waitingNames([]);
  readonly #needed: Needed;
  /** A change has gone past its first wave, and what upstream has said since may be queued. */
  #queues = false;
  #timer: Timer | undefined;

  constructor(settings: RolloutSettings | undefined, options: RolloutOptions) {
    const { clock, gate, saved, hashOf = plainHash } = options;
    this.#options = options;
    this.#settings = settings;
    this.#wallTime = new WallTime(clock);
    this.#state = { kind: 'IDLE', since: clock.monotonic() };
    this.#changes = new Changes(saved?.shown);
    this.#queues = this.#changes.shownLater.length > 0;
    this.canaries = new Canaries(settings?.waves ?? [], saved?.canaries, clock.monotonic());
    this.#verdicts = new Verdicts(saved ?? { verdicts: [], discards: [] }, gate, hashOf);
    this.#judged = new Judged(gate);
    this.#needed = new Needed(gate);
    this.#removals = new RemovalLimits(gate, options.removalLimits);
    this.#guard = new Guard(gate, clock);
    const outside = [options.checks ?? [], options.traffic ?? []];
    this.#sources = new Sources([this.#removals, this.#guard, ...outside.flat()]);
    this.#settling = new Settling(clock, settling, () => this.#look());
    this.#gate(settings);
    const guards = [this.#verdicts, this.#guard];
    gate.guarding((one) => this.#settings !== undefined && guards.some((by) => by.stops(one)));
    const isQueued = (name: TypedName): boolean =>
      this.#queues && this.#changes.isQueued(name, this.#verdicts.isKnown(name));
    gate.queueing((name, isRemoved) => isQueued(name) || (isRemoved && this.#needed.mayBe(name)));
    gate.holds.restore(saved?.freezes ?? [], saved?.withheld ?? []);
    this.#forget = gate.onChanged((change) => this.#changed(change));
    this.#look();
    options.events.stateChanged(this.#state);
  }

  /** Why a reload with these settings must be refused; undefined: it need not be. */
  objectionTo(settings: RolloutSettings | undefined): string | undefined {
    this.#look();
    const state = this.#changes.first?.judge.state;
    // What is frozen too: its verdict is only not shown. And what is queued, which nobody has judged.
    const { seen, queued } = this.#judged;
    const names = this.#queues ? [...seen, ...queued] : seen;
    const reason = state?.kind === 'HELD' ? state.reason : verdictOn(this.#found(), keysOf(seen))?.reason;
    if (this.#settings === undefined) return undefined;
    const objection = reloadObjection(reason, names, this.#settings, settings);
    return objection ?? (this.#queues ? undefined : neededObjection(queued, this.#settings, settings));
  }

  /** Before the clients' rules are applied again. */
  reload(settings: RolloutSettings | undefined): void {
    this.#settings = settings;
    this.#needed.reload();
    for (const judge of this.#changes.judges) judge.configure(settings ?? unjudged);
    this.canaries.waves = settings?.waves ?? [];
    this.#gate(settings);
    this.#settling.touch();
  }

  #gate(settings: RolloutSettings | undefined): void {
    this.#guard.configure(settings);
    this.#options.gate.gatedTypes(new Set(settings?.types));
  }

  stop(): void {
    this.#isOver = true;
    this.#options.checks?.waiting(false);
    this.#timer?.cancel();
    this.#settling.cancel();
    this.#forget();
  }

  /** A canary has answered something, or a check. */
  answered(): void {
    if (this.#waits || (!this.#isOver && this.#needed.dependsOnClients)) this.#settling.touch();
  }

  /** What of an upstream's removals waits because it is too much. */
  heldRemovals(upstream: string): readonly HeldRemovals[] {
    return this.#removals.held(upstream).map((one) => this.#wallTime.shown(one));
  }

  /** Lets removals that are too many go on to the canaries. How many names. */
  releaseRemovals(upstream: string, type: TypeUrl | undefined): number {
    const count = this.#removals.waive(upstream, type);
    if (count > 0) this.#look();
    return count;
  }

  /** The stream of a canary has ended that subscribed to what waits. */
  canaryEnded(stream: CanaryStream): void {
    if (!this.#waits) return;
    const { node: nodeKey, classKey } = stream;
    // No survey may have seen it: when it comes back it has what waits.
    if (this.canaries.remember([{ nodeKey, classKey, cohort: 'canary' }])) this.#save();
    this.#rejections.ended(stream.stream, stream.standing);
    this.#ends.ended(stream, this.#options.clock.monotonic());
    this.#settling.touch();
  }

  /** What waits for a verdict: canaries see it, and it is not frozen. */
  waiting(): Waiting {
    return this.#waits ? this.#judged.waiting.byType : new Map();
  }

  /** Its times are milliseconds since the epoch. */
  report() {
    const shown = this.#changes.first;
    const canaries = shown === undefined ? [] : this.#canariesOf(shown);
    const { pending, holds } = this.#options.gate;
    const discarded = keysOf(pending.filter(({ masked }) => masked === 'discarded'));
    const { queuedHeld } = this.#changes;
    return {
      /** `rollout` is configured. */
      enabled: this.#settings !== undefined,
      state: this.#wallTime.shown(this.#state),
      /** Names that wait for a verdict, and those that nobody sees. Of several changes `state` and `canaries` are those of the first that is held, or of the first. */
      pending,
      /** Of those, the names of that change, and those that nobody sees. */
      shown: pending.filter(
        ({ key, masked }) => masked !== undefined || shown === undefined || shown.keys.has(key),
      ),
      /** In which wave that change is, from 1, where what has just come is; 0: nothing waits. */
      wave: waveOf(shown, this.#waits),
      /** The bake of each wave, in milliseconds. */
      bakes: (this.#settings?.waves ?? []).map((one) => one.bakeMs ?? this.#settings?.bakeMs ?? 0),
      /** When its wave is over, if nothing else happens. */
      bakedAt: shown?.judge.bakedAt && this.#wallTime.of(shown.judge.bakedAt),
      checks: this.#options.checks?.states() ?? [],
      /** What the traffic of its clients says; undefined: nothing waits, or `rollout.traffic` is left out. */
      traffic: shown && this.#options.traffic?.verdictOn(shown),
      changes: this.#changes.rows.map(({ judge, names, keys }) => ({
        names,
        state: this.#wallTime.shown(judge.state),
        wave: judge.wave,
        isPastFirst: judge.isPastFirst,
        /** As of its judge; 0: not that of the first. What has just come nobody has accepted. */
        acceptedWave: keys.isDisjointFrom(this.#joined) ? judge.acceptedWave : 0,
      })),
      /** The state is that of these, which the guard finds bad and nobody has; undefined: it is of something else. */
      queuedHeld,
      canaries: {
        total: canaries.length,
        ...answersOf(canaries),
        ended: shown === undefined ? 0 : this.#ends.count(shown.keys),
      },
      /** What waits was not rejected, and none of its canaries is connected. */
      noCanary:
        shown !== undefined && queuedHeld === undefined && canaries.length === 0 && this.#lacksCanary(shown),
      /** Why what was discarded was. */
      whyDiscarded: this.#verdicts.whyDiscarded(discarded),
      /** Why it is held, or was discarded by `on_failure`; undefined: neither. */
      cause: this.#state.kind === 'HELD' ? this.#state.cause : this.#verdicts.causeOf(discarded),
      freezes: holds.freezes,
    };
  }

  /** Everybody gets what waits, whatever the canaries say. How many names; the error: nothing waits. */
  release(filter: Scope, reason: string): Result<number> {
    const found = matching(this.#options.gate.pending, filter);
    if (!found.ok) return found;
    const names = found.value.filter((pending) => !this.#judged.isFrozen(pending));
    if (names.length === 0) return fail(`${scopeText(filter)} is frozen: unfreeze it first`);
    const keys = keysOf(names);
    const own = this.#changes.rows.filter((row) => !row.keys.isDisjointFrom(keys));
    this.#options.events.decided(names, reason);
    const started = Math.min(this.#options.clock.monotonic(), ...own.map(({ judge }) => judge.startedAt));
    this.#release([{ names, started }]);
    this.#look();
    return ok(names.length);
  }

  /** Ends the wave of what waits, but for what is held. The error: nothing waits (in that wave), or all is held. */
  promote(filter: Scope, reason: string, only?: number): Result<Promoted> {
    const found = matching(this.#options.gate.pending, filter);
    if (!found.ok) return found;
    this.#look();
    const keys = keysOf(found.value);
    const all = this.#changes.rows.filter((row) => !row.keys.isDisjointFrom(keys));
    const rows = all.filter(
      ({ judge }) => judge.state.kind !== 'HELD' && judge.wave === (only ?? judge.wave),
    );
    if (rows.length === 0) return fail(whyNotPromoted(all, filter));
    const names = rows.flatMap((row) => row.names);
    const wave = Math.min(...rows.map(({ judge }) => judge.wave));
    this.#options.events.decided(names, reason);
    this.#pass(rows, this.#options.clock.monotonic());
    this.#look();
    return ok({ names: names.length, wave });
  }

  /** Canaries go back to what is released. How many names; the error: nothing waits. */
  discard(filter: Scope, reason: string): Result<number> {
    const names = matching(this.#options.gate.pending, filter);
    if (!names.ok) return names;
    const keys = keysOf(names.value);
    const found = this.#changes.rows.find(
      (row) => row.judge.state.kind === 'HELD' && !row.keys.isDisjointFrom(keys),
    );
    // What was found bad must not be lost with the state.
    const why = found === undefined ? reason : `${reason} (it was held: ${found.judge.state.reason})`;
    this.#verdicts.discard(names.value, why);
    this.#tellDiscarded(names.value, undefined, why);
    this.#options.gate.discard(filter, why);
    this.#look();
    return ok(names.value.length);
  }

  /** Must be called before the gate replaces what these mean. */
  rollsBack(filters: readonly Scope[]): void {
    this.#verdicts.rollsBack(this.#found(), filters);
  }

  /** The error: it is frozen already. */
  freeze(filter: Scope, decision: Decision): Result<undefined> {
    const added = this.#options.gate.freeze(filter, decision);
    // A rollback of what is frozen already has changed which names are removed.
    if (added.ok) this.#frozen();
    else this.#save();
    return added;
  }

  /** What has changed meanwhile goes to canaries now. The error: it is not frozen. */
  unfreeze(filter: Scope): Result<undefined> {
    const ended = this.#options.gate.unfreeze(filter);
    if (!ended.ok) return ended;
    this.#frozen();
    return ok(undefined);
  }

  #frozen(): void {
    this.#options.fleet.waitingChanged();
    this.#look();
    this.#save();
  }

  #changed(change: PendingChange): void {
    const { fleet, gate } = this.#options;
    const { type, joined: all, left } = change;
    const keyOf = (name: ResourceName): string => nameKey(type, name);
    const discarded = this.#verdicts.changed(change, () => this.#found());
    // The views have heard of it, and no client has yet.
    if (discarded.size > 0) gate.discard({}, this.#verdicts.whyDiscarded(discarded), discarded);
    this.#needed.look(this.#settings !== undefined, this.#queues);
    const joined = new Set(all.map(keyOf)).difference(discarded);
    fleet.waitingChanged();
    const names = joined.union(new Set(left.map(keyOf)));
    this.#rejections.changed(names);
    this.#ends.changed(names);
    this.#sources.changed(names);
    for (const key of joined) this.#joined.add(key);
    this.#settling.touch();
  }

  get #waits(): boolean {
    return !this.#isOver && this.#judged.waiting.names.length > 0;
  }

  get #goesOn(): boolean {
    return !this.#isOver && (this.#queues || this.canaries.areExpected || this.#needed.dependsOnClients);
  }

  /** What was found bad before the start, and since. */
  #found(): readonly Verdict[] {
    const before = this.#verdicts.restored();
    return [...before, ...this.#rejections.verdicts, ...this.#ends.verdicts, ...this.#sources.verdicts];
  }

  /** Looks at the canaries and passes on what they say. */
  #look(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
    const { checks, clock, saved } = this.#options;
    const now = clock.monotonic();
    this.#needed.look(this.#settings !== undefined, this.#queues);
    this.#passUngated();
    const waiting = this.#judged.waiting;
    this.#observe(now, waiting);
    let nextAt = now + lookMs;
    // What is over already was seen in this look.
    const lookAt = (at: number): void => {
      if (at > now) nextAt = Math.min(nextAt, at);
    };
    lookAt(this.#ends.nextAt(this.#settings ?? unjudged));
    const passed = this.#changes.rows.filter((row) => {
      const { passes, nextAt: at = nextAt } = this.#judge(row, now);
      lookAt(at);
      return passes !== undefined;
    });
    this.#changes.judgeQueued(this.#guard, now);
    if (saved) this.#remember();
    this.#discardHeld();
    if (this.#pass(passed, now) || this.#judged.waiting.names.length < waiting.names.length) {
      this.#look();
      return;
    }
    this.#tellState(now);
    // They are told of the state.
    checks?.waiting(this.#waits && this.#settings !== undefined);
    if (!this.#waits) this.#overAt(now);
    if (this.#queues && !this.#isOver && !this.#unqueue()) nextAt = now + moveMs;
    else if (!this.#waits && !this.#goesOn) return;
    this.#timer = clock.after(nextAt - now, () => this.#look());
  }

  /** What a restart must not forget. */
  #remember(): void {
    const isShown = this.#changes.remember(this.#queues ? this.#options.gate.pending : undefined);
    const found = [...this.#found(), ...this.#guard.objections];
    if (this.#verdicts.record(found, this.#options.gate.holds.freezes) || isShown) this.#save();
  }

  /** With `on_failure: DISCARD`: who has what was found bad goes back. What is bad for one reason is told and counted once. */
  #discardHeld(): void {
    if (this.#settings?.onFailure !== 'DISCARD') return;
    const all = new Map<string, { cause: HoldCause; reason: string; parts: PendingName[][] }>();
    const known = [...this.#guard.objections, ...this.#verdicts.restored()];
    for (const row of this.#changes.rows) {
      const { state } = row.judge;
      if (state.kind !== 'HELD' || state.cause === 'timeout') continue;
      const { cause, reason } = state;
      // What waits with it is not to blame for its content.
      const found = cause === 'content' ? known.filter((one) => one.reason === reason) : [];
      const atFault = verdictOn(found, row.keys)?.names ?? row.keys;
      const bad = row.names.filter(({ key }) => atFault.has(key));
      this.#verdicts.discard(bad, reason, cause);
      getOrMake(all, `${cause} ${reason}`, () => ({ cause, reason, parts: [] })).parts.push(bad);
    }
    for (const { cause, reason, parts } of all.values()) {
      const names = parts.flat(); // too many for arguments
      this.#tellDiscarded(names, cause, reason);
      this.#options.gate.discard({}, reason, keysOf(names));
    }
  }

  #tellDiscarded(names: readonly PendingName[], cause: HoldCause | undefined, reason: string): void {
    const { events } = this.#options;
    events.counted(cause === 'check' || cause === 'traffic' ? `failed_${cause}` : 'discarded');
    events.discarded(names, cause, reason);
    for (const { key } of names) this.#decided.add(key);
  }

  /** The wave of these changes is over. True: one has gone to the next wave. */
  #pass(rows: readonly Change[], now: number): boolean {
    const byEnd = Map.groupBy(rows, ({ judge }) => judge.isLastWave);
    const [last = [], others = []] = [byEnd.get(true), byEnd.get(false)];
    for (const row of others) {
      row.judge.advance(this.#nodesOf(row), now);
      this.#queues ||= row.judge.isPastFirst;
    }
    this.#release(last.map(({ names, judge }) => ({ names, started: judge.startedAt })));
    return others.length > 0;
  }

  /** True: some clients may be in another cohort. */
  #reach(): boolean {
    const moved = this.canaries.reach(this.#changes.reached());
    if (moved === undefined) return false;
    this.#staffed = undefined;
    this.#options.fleet.moved(moved);
    return true;
  }

  /** Once no change is past its first wave, and who was in a later one is back. False: not yet. */
  #unqueue(): boolean {
    const { fleet, gate, clock } = this.#options;
    const isKept = this.#changes.keepsQueue(this.canaries.isRestarting(clock.monotonic()));
    // Who was in its first wave may be away.
    if (isKept || this.canaries.reached.size > 0) return true;
    if (this.#settings !== undefined) {
      // What waits has its own survey.
      const { complete } = this.#waits ? this.#survey : fleet.survey(nothingOf(this.#settings.types));
      if (!complete || fleet.isMoving) return false;
    }
    this.#queues = false;
    if (!this.#waits) fleet.waitingChanged();
    gate.unqueue((name) => !this.#needed.has(name));
    return true;
  }

  #judge(row: Change, now: number): Judgement {
    const { judge, names } = row;
    const judgement = judge.judge(now, this.#observation(row, now));
    const canaries = this.#canariesOf(row);
    const areAll = judge.acceptedAt !== undefined;
    if (canaries.length > 0) this.#options.events.canariesSaid(names, { ...answersOf(canaries), areAll });
    if (judgement.passes !== 'timeout' || this.#settings === undefined) return judgement;
    const rejection = rejectionBy(canaries, true);
    if (rejection === undefined) this.#options.events.counted('timeout');
    else judge.hold(now, { cause: 'timeout', reason: `no verdict within max_wait: ${rejection.reason}` });
    return rejection === undefined ? judgement : { passes: undefined, nextAt: undefined };
  }

  /** Endpoints that the guard does not stop any more go to everybody, whatever they waited with. */
  #passUngated(): void {
    const { gate } = this.#options;
    const waiting = this.#judged.waiting;
    const queued = this.#queues ? this.#judged.queued : [];
    const stopped = this.#guard.weigh(waiting, queued);
    const bad = queued.filter(({ key }) => stopped.has(key));
    if (!isEqual(keysOf(bad), this.#stopped.keys)) this.#stopped = waitingNames(bad);
    if (this.#settings === undefined) return;
    const { types } = this.#settings;
    const all = [stopped, ...this.#verdicts.restored().map(({ names }) => names)];
    const isFree = ({ type, key }: PendingName): boolean =>
      !types.includes(type) && !all.some((keys) => keys.has(key));
    const unqueued = keysOf(queued.filter((one) => isFree(one) && !this.#needed.has(one)));
    if (unqueued.size > 0) gate.unqueue(({ type, name }) => unqueued.has(nameKey(type, name)));
    const free = keysOf(waiting.names.filter(isFree)).union(unqueued);
    if (free.size > 0) gate.release({}, free);
  }

  /** Who the canaries are, what they say, and which changes there are. */
  #observe(now: number, waiting: WaitingNames): void {
    if (!this.#waits || this.#settings === undefined) {
      this.#survey = nobody;
      if (this.#waits) this.#members = [];
      else {
        this.#staffed = undefined;
        this.#ends.over(this.#judged.frozen);
      }
      this.#arrange(waiting, now);
      this.#reach();
      return;
    }
    this.#take(waiting, now);
    if (this.#reach()) this.#take(waiting, now);
    const bad = this.#changes.rows.filter((row) => this.#foundBad(row) !== undefined);
    if (!this.#survey.complete) return;
    const open = this.#changes.rows
      .filter((row) => !bad.includes(row))
      .flatMap(({ classes }) => Array.from(classes));
    if (this.#restrict(bad.length === 0 ? undefined : new Set(open))) this.#take(waiting, now);
    // Who left may have left because of it: nobody else gets it before that is known.
    const unsure = this.#changes.rows.filter(({ keys }) => this.#ends.mayReturn(keys));
    const closed = new Set([...bad, ...unsure].flatMap(({ classes }) => Array.from(classes)));
    const { members } = this.#survey;
    const isStaffed = this.#staffed?.members === members && isEqual(this.#staffed.closed, closed);
    if (isStaffed && !this.canaries.areExpected) return;
    const nodes = this.canaries.elect(members.filter(({ classKey }) => !closed.has(classKey)));
    if (this.#survey.complete) this.#staffed = { members, closed };
    if (nodes.size === 0) return;
    this.#movedAre(nodes);
    this.#take(waiting, now);
  }

  #take(waiting: WaitingNames, now: number): void {
    const { fleet } = this.#options;
    this.#survey = fleet.survey(waiting.byType);
    const { complete, canaries, members } = this.#survey;
    this.#rejections.observe(canaries, waiting.keys);
    if (complete) {
      this.#members = members;
      this.#ends.observe(canaries, this.#settings ?? unjudged, now);
      const isNew = this.canaries.remember(members);
      const expired = this.canaries.expire(now);
      if (isNew || expired.size > 0) this.#save();
      this.#movedAre(expired);
    }
    this.#arrange(waiting, now);
  }

  #arrange(waiting: WaitingNames, now: number): void {
    const bonds = this.#found().map(({ names }) => names);
    const settings = this.#settings ?? unjudged;
    const { frozen } = this.#judged;
    this.#changes.arrange(waiting, frozen, this.#stopped, this.#members, bonds, this.#joined, settings, now);
    const rows = this.#settings === undefined ? [] : this.#changes.rows;
    const heard = rows.map((change) => ({
      change,
      canaries: this.#survey.complete ? this.#canariesOf(change) : undefined,
      isNew: !change.keys.isDisjointFrom(this.#joined),
    }));
    this.#sources.look(heard, this.#changes.frozenClasses, now);
    this.#joined.clear();
  }

  /** Of a survey that is not complete: what is unknown, and who rejected something before. */
  #canariesOf({ classes, keys }: Change): readonly CanaryStream[] {
    const byClass = this.#canariesByClass(this.#survey);
    const all = [...classes].flatMap((classKey) => byClass.get(classKey) ?? []);
    const known = all.filter((one) => isAbout(one, keys));
    return this.#survey.complete ? known : [unknownCanary, ...known];
  }

  /** Who has a change, by node. */
  #nodesOf(row: Change): ReadonlySet<string> {
    return new Set(this.#canariesOf(row).flatMap(({ node }) => (node === '' ? [] : node)));
  }

  /** Of a change without a connected canary: that is what it waits for. */
  #lacksCanary({ judge: { state }, classes }: Change): boolean {
    if (state.kind === 'HELD') return state.cause === 'disconnects' || state.cause === 'timeout';
    return this.canaries.absent(classes, []) > 0;
  }

  /** Why what waits is shown to no other client; undefined: it may be. */
  #foundBad(row: Change): Observation['found'] {
    // It may be the change before that a canary rejects: nothing is taken back because of that.
    const takesBack = this.#settings?.onFailure === 'DISCARD';
    return rejectionBy(this.#canariesOf(row), !takesBack) ?? verdictOn(this.#found(), row.keys);
  }

  #observation(row: Change, now: number): Observation {
    const { keys, classes } = row;
    const canaries = this.#canariesOf(row);
    const { verdict: objection, goodSince, waitsFor } = this.#sources.opinionOn(row);
    return {
      total: canaries.length + this.canaries.absent(classes, canaries),
      accepted: answersOf(canaries).accepted,
      found: this.#foundBad(row),
      mayReturn: this.#ends.mayReturn(keys),
      objection,
      goodSince,
      waitsFor,
      clientsMayComeBack: this.canaries.mayComeBack(now, row.judge.shownSince),
      nodes: this.#survey.complete && this.canaries.waves.length > 1 ? this.#nodesOf(row) : undefined,
    };
  }

  /**
   * What was found bad is for the canaries that have it, and for nobody else of its classes, whatever the rules say.
   * True: some classes may have other canaries now.
   */
  #restrict(open: ReadonlySet<string> | undefined): boolean {
    const before = this.canaries.open;
    this.canaries.open = open;
    if (before === open || (before !== undefined && open !== undefined && isEqual(before, open)))
      return false;
    const isOpened = ({ classKey }: Moved): boolean =>
      before?.has(classKey) === false && open?.has(classKey) !== false;
    this.#options.fleet.moved(isOpened);
    return before !== undefined;
  }

  /** All of these names, and nothing that is frozen, as one commit for each type. `started`: when they began to wait. */
  #release(all: readonly { readonly names: readonly PendingName[]; readonly started: number }[]): void {
    if (all.length === 0) return;
    const { events, clock, gate } = this.#options;
    const [withheld] = gate.holds.withheld();
    const keys = keysOf(all.flatMap(({ names }) => names));
    gate.release({}, keys);
    if (withheld !== undefined) this.#save();
    if (this.#settings === undefined) return;
    for (const { names, started } of all) {
      events.counted('released');
      events.released(names, Math.round(clock.monotonic() - started));
    }
    for (const key of keys) this.#decided.add(key);
  }

  /** Canaries that see what is frozen stay canaries, and nobody joins them: their cohort must not change under them. */
  #overAt(now: number): void {
    if (this.#options.gate.size > 0) return;
    this.#restrict(undefined);
    const nodes = this.canaries.over(now);
    if (nodes === undefined) return;
    this.#save();
    this.#movedAre(nodes);
  }

  /** These nodes may be in another cohort now. */
  #movedAre(nodes: ReadonlySet<string>): void {
    if (nodes.size > 0) this.#options.fleet.moved(({ nodeKey }) => nodes.has(nodeKey));
  }

  #tellState(now: number): void {
    const { events } = this.#options;
    const wave = this.#changes.first?.judge.wave ?? 0;
    this.#tellResolved();
    for (const { judge, names } of this.#changes.all) {
      const state = judge.news();
      if (state === undefined) continue;
      const result = resultOf(state, this.#settings?.onFailure);
      if (result !== undefined) events.counted(result);
      events.changeIs(state, names, judge);
    }
    const before = this.#state;
    const calm = this.#options.gate.holds.freezes.length > 0 ? 'FROZEN' : 'IDLE';
    const since = before.kind === calm ? before.since : now;
    this.#state = this.#changes.state ?? { kind: calm, since };
    const isSame = this.#state.kind === before.kind && this.#state.since === before.since;
    if (isSame && wave === this.#wave) return;
    this.#wave = wave;
    events.stateChanged(this.#state);
  }

  /** What was held was neither released nor discarded, and is held no more. */
  #tellResolved(): void {
    for (const { names: all, keys, cause } of this.#changes.endedHolds()) {
      const names = all.filter(({ key }) => !this.#decided.has(key));
      if (names.length === 0) continue;
      const isJudged = this.#changes.all.some((one) => !one.keys.isDisjointFrom(keys));
      const isFrozen = names.some((one) => this.#judged.isFrozen(one));
      const gone = isFrozen ? 'it is frozen' : 'nothing of it waits any more';
      this.#options.events.resolved(names, cause, isJudged ? 'it is judged again' : gone);
    }
    this.#decided.clear();
  }

  #save(): void {
    this.#options.events.save({
      freezes: this.#options.gate.holds.freezes,
      canaries: this.canaries.remembered,
      ...this.#verdicts.saved,
      withheld: [...this.#options.gate.holds.withheld()],
      shown: this.#changes.shownLater,
    });
  }
}
