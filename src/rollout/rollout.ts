import type { ResourceName, TypeUrl } from '../model/brand.ts';
import { contentHash } from '../model/change.ts';
import type { Clock, Timer } from '../model/clock.ts';
import { type Decision, type Freeze, type Scope, scopeText, type TypedName } from '../model/holds.ts';
import { fail, ok, type Result } from '../model/result.ts';
import type { Gate, PendingChange, PendingName, SidedClient } from '../model/rollout.ts';
import { Settling } from '../model/settling.ts';
import type { Side } from '../model/side.ts';
import { counted } from '../model/text.ts';
import { typeInfo } from '../model/types.ts';
import { Canaries, type CanaryRules, type Member } from './canaries.ts';
import { type Change, Changes } from './changes.ts';
import {
  foundBad,
  type Judgement,
  type JudgeSettings,
  type Observation,
  type RolloutState,
  unjudged,
  type Verdict,
  type WaitingState,
} from './judge.ts';
import { type RemovalLimit, RemovalLimits, type WaitingRemovals } from './removal-limits.ts';
import { Ends, type HashOf, Rejections, type SavedVerdicts, Verdicts } from './verdicts.ts';
import {
  type CanaryStream,
  type Fleet,
  filtersOf,
  isEqual,
  keysOf,
  type Moved,
  matching,
  nameKey,
  type Standing,
  type Survey,
  unknownCanary,
  type Waiting,
  type WaitingNames,
  waitingNames,
} from './waiting.ts';

/** While a change waits the clients are looked at so often, in milliseconds: some may have come. */
const lookMs = 1000;
/** Answers of many canaries arrive together. */
const settling = { quiet: 10, longest: 100 };

const nobody: Survey = { complete: true, members: [], canaries: [] };

/**
 * Takes changes through their rollout: chooses canaries, hears what they say, and releases what they accept. Without
 * settings every change goes to everybody at once, but for what an operator freezes.
 */
export class Rollout {
  readonly #options: RolloutOptions;
  readonly #changes = new Changes();
  readonly canaries: Canaries;
  readonly #rejections = new Rejections();
  readonly #ends = new Ends();
  readonly #verdicts: Verdicts;
  readonly #removals: RemovalLimits;
  readonly #settling: Settling;
  readonly #forget: () => void;
  #settings: RolloutSettings | undefined;
  #survey = nobody;
  /** Its canaries by class. */
  #canariesByClass: ReadonlyMap<string, readonly CanaryStream[]> = new Map();
  /** What was found bad before a restart. */
  #foundBefore: readonly Verdict[] = [];
  /** Of the last survey that was complete. */
  #members: readonly Member[] = [];
  /** Of whom canaries were elected last, but for these classes. */
  #staffed: { readonly members: readonly Member[]; readonly closed: ReadonlySet<string> } | undefined;
  /** Names that wait with another content since the last look, by `nameKey`. */
  readonly #joined = new Set<string>();
  #state: RolloutState;
  /** What waits for a verdict, with the size of the gate then; undefined: to be read again. */
  #names: { readonly size: number; readonly all: WaitingNames } | undefined;
  /** Something waits for a verdict. */
  #waits = false;
  #timer: Timer | undefined;

  constructor(settings: RolloutSettings | undefined, options: RolloutOptions) {
    const { clock, gate, saved, hashOf = contentHash } = options;
    this.#options = options;
    this.#settings = settings;
    this.#state = { kind: 'IDLE', since: clock.now() };
    this.canaries = new Canaries(settings?.canary, saved?.canaries, clock.now());
    const contentOf = (type: TypeUrl, name: ResourceName) => gate.contentOf(type, name, 'canary');
    this.#verdicts = new Verdicts(saved ?? { verdicts: [], discards: [] }, contentOf, hashOf);
    this.#removals = new RemovalLimits(gate, options.removalLimits);
    this.#settling = new Settling(clock, settling, () => this.#look());
    gate.gatedTypes(new Set(settings?.types));
    gate.holds.restore(saved?.freezes ?? [], saved?.withheld ?? []);
    this.#forget = gate.onChanged((change) => this.#changed(change));
    this.#look();
    options.events.stateChanged(this.#state);
  }

  sideOf(client: SidedClient): Side {
    return this.canaries.sideOf(client);
  }

  /** Why a reload with these settings must be refused; undefined: it need not be. */
  objectionTo(settings: RolloutSettings | undefined): string | undefined {
    this.#look();
    const state = this.#state;
    // What is frozen too: its verdict is only not shown.
    const names = this.#seenByCanaries();
    const keys = keysOf(names);
    const known = [...this.#found(), ...this.#verdicts.restored()].find(
      (one) => !one.names.isDisjointFrom(keys),
    );
    const reason = state.kind === 'HELD' ? state.reason : known?.reason;
    if (names.length === 0 || this.#settings === undefined) return undefined;
    return reloadObjection(reason, names, this.#settings, settings);
  }

  /** Before the clients' rules are applied again. */
  reload(settings: RolloutSettings | undefined): void {
    this.#settings = settings;
    for (const { judge } of this.#changes.rows) judge.configure(settings ?? unjudged);
    this.canaries.rules = settings?.canary;
    this.#options.gate.gatedTypes(new Set(settings?.types));
    this.#settling.touch();
  }

  stop(): void {
    this.#waits = false;
    this.#timer?.cancel();
    this.#settling.cancel();
    this.#forget();
  }

  /** A canary has answered something. */
  canaryAnswered(): void {
    if (this.#waits) this.#settling.touch();
  }

  heldRemovals(upstream: string): readonly WaitingRemovals[] {
    return this.#removals.held(upstream);
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
    this.#rejections.ended(stream.stream, stream.standing);
    this.#ends.ended(stream, this.#options.clock.now());
    this.#settling.touch();
  }

  /** What waits for a verdict: canaries see it, and it is not frozen. */
  waiting(): Waiting {
    return this.#waits ? this.#judged().byType : new Map();
  }

  report(): RolloutReport {
    const shown = this.#first();
    const canaries = shown === undefined ? [] : this.#canariesOf(shown);
    const pending = [...this.#options.gate.pending];
    return {
      enabled: this.#settings !== undefined,
      state: this.#state,
      pending,
      shown: pending.filter(
        (one) =>
          one.masked !== undefined || shown === undefined || shown.keys.has(nameKey(one.type, one.name)),
      ),
      changes: this.#changes.rows.map(({ judge: { state }, names }) => ({ state, names })),
      canaries: {
        total: canaries.length,
        accepted: countOf(canaries, 'accepted'),
        rejected: countOf(canaries, 'rejected'),
        ended: shown === undefined ? 0 : this.#ends.count(shown.keys),
      },
      noCanary: shown !== undefined && canaries.length === 0 && this.#lacksCanary(shown),
      whyDiscarded: this.#verdicts.whyDiscarded(pending.filter(({ masked }) => masked === 'discarded')),
      freezes: this.#options.gate.holds.freezes,
      ...this.#options.revisions(),
    };
  }

  /** Everybody gets what waits, whatever the canaries say. How many names; the error: nothing waits. */
  release(filter: Scope): Result<number> {
    const found = matching(this.#options.gate.pending, filter);
    if (!found.ok) return found;
    const names = found.value.filter((pending) => !this.#isFrozen(pending));
    if (names.length === 0) return fail(`${scopeText(filter)} is frozen: unfreeze it first`);
    const keys = keysOf(names);
    const own = this.#changes.rows.filter((row) => !row.keys.isDisjointFrom(keys));
    this.#release(names, Math.min(this.#options.clock.now(), ...own.map(({ judge }) => judge.startedAt)));
    this.#look();
    return ok(names.length);
  }

  /** Canaries go back to what is released. How many names; the error: nothing waits. */
  discard(filter: Scope, reason: string): Result<number> {
    const names = matching(this.#options.gate.pending, filter);
    if (!names.ok) return names;
    this.#options.events.counted('discarded');
    this.#verdicts.discard(names.value, reason);
    this.#options.gate.discard(filter, reason);
    this.#look();
    return ok(names.value.length);
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
    this.#waits = true;
    this.#frozen();
    return ok(undefined);
  }

  #isFrozen({ type, upstream }: PendingName): boolean {
    return this.#options.gate.holds.isFrozen(type, upstream);
  }

  #frozen(): void {
    this.#names = undefined;
    this.#save();
    this.#options.fleet.waitingChanged();
    this.#look();
  }

  #changed({ type, joined: all, left }: PendingChange): void {
    const { fleet, gate } = this.#options;
    this.#names = undefined;
    this.#verdicts.left(type, left, gate.pending);
    const discarded = this.#verdicts.discardedAgain(type, all);
    // The views have heard of it, and no client has yet.
    if (discarded.size > 0) {
      const why = this.#verdicts.whyDiscarded(Iterator.from(discarded).map((name) => ({ type, name })));
      gate.discard({ type }, why, discarded);
    }
    const joined = all.filter((name) => !discarded.has(name));
    fleet.waitingChanged();
    const names = new Set([...joined, ...left].map((name) => nameKey(type, name)));
    this.#rejections.changed(names);
    this.#ends.changed(names);
    for (const name of joined) this.#joined.add(nameKey(type, name));
    if (joined.length > 0) this.#waits = true;
    this.#settling.touch();
  }

  #judged(): WaitingNames {
    const { size } = this.#options.gate;
    // Without a word a name goes for want of room, and others may have come back to what is released.
    if (this.#names?.size !== size) {
      const all = this.#seenByCanaries().filter((pending) => !this.#isFrozen(pending));
      this.#names = { size, all: waitingNames(all) };
    }
    return this.#names.all;
  }

  #seenByCanaries(): readonly PendingName[] {
    return [...this.#options.gate.pending].filter(({ masked }) => masked === undefined);
  }

  /** What was found bad since the start. */
  #found(): readonly Verdict[] {
    return [...this.#rejections.verdicts, ...this.#ends.verdicts];
  }

  /** Looks at the canaries and passes on what they say. */
  #look(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
    const now = this.#options.clock.now();
    const waiting = this.#judged();
    this.#waits = waiting.names.length > 0;
    this.#observe(now, waiting);
    const { rows } = this.#changes;
    this.#removals.begin();
    let nextAt = Math.min(now + lookMs, this.#ends.nextAt(this.#settings ?? unjudged));
    const released = rows.filter((row) => {
      const judgement = this.#judge(row, now);
      nextAt = Math.min(nextAt, judgement.nextAt ?? nextAt);
      if (judgement.release === 'timeout' && this.#settings !== undefined)
        this.#options.events.counted('timeout');
      return judgement.release !== undefined;
    });
    this.#saveIfNew();
    for (const row of released) this.#release(row.names, row.judge.startedAt);
    if (released.length > 0 && this.#judged().names.length < waiting.names.length) {
      this.#look();
      return;
    }
    this.#tellState(now);
    if (!this.#waits) {
      if (this.#seenByCanaries().length === 0) this.#restrict(undefined);
      this.#overAt(now);
      return;
    }
    this.#timer = this.#options.clock.after(Math.max(0, nextAt - now), () => this.#look());
  }

  #judge(row: Change, now: number): Judgement {
    const { judge, names } = row;
    const { startedAt } = judge;
    const since = Math.min(startedAt, now);
    const removals = this.#settings === undefined ? undefined : this.#removals.objection(names, since, now);
    const judgement = judge.judge(now, this.#observation(row, removals, now));
    const canaries = this.#canariesOf(row);
    if (canaries.length > 0) {
      this.#options.events.canariesSaid(names, {
        accepted: countOf(canaries, 'accepted'),
        rejected: countOf(canaries, 'rejected'),
        areAll: judge.acceptedAt !== undefined,
      });
    }
    return judgement;
  }

  /** Who the canaries are, what they say, and which changes there are. */
  #observe(now: number, waiting: WaitingNames): void {
    if (!this.#waits || this.#settings === undefined) {
      this.#survey = nobody;
      this.#canariesByClass = new Map();
      if (this.#waits) this.#members = [];
      else {
        this.#staffed = undefined;
        this.#ends.over();
      }
      this.#arrange(waiting, now);
      return;
    }
    this.#take(waiting, now);
    const bad = this.#changes.rows.filter((row) => this.#isBad(row, now));
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
    this.#options.fleet.moved(({ nodeId }) => nodes.has(nodeId));
    this.#take(waiting, now);
  }

  #take(waiting: WaitingNames, now: number): void {
    const { fleet } = this.#options;
    this.#survey = fleet.survey(waiting.byType);
    const { complete, canaries, members } = this.#survey;
    this.#canariesByClass = Map.groupBy(canaries, ({ classKey }) => classKey);
    this.#rejections.observe(canaries, waiting.keys);
    if (complete) {
      this.#members = members;
      this.#ends.observe(canaries, this.#settings ?? unjudged, now);
      if (this.canaries.remember(members, now)) this.#save();
    }
    this.#arrange(waiting, now);
  }

  #arrange(waiting: WaitingNames, now: number): void {
    this.#foundBefore = this.#verdicts.restored();
    const verdicts = [...this.#found(), ...this.#foundBefore];
    const bonds = verdicts.map(({ names }) => names);
    const settings = this.#settings ?? unjudged;
    this.#changes.arrange(waiting, this.#members, bonds, this.#joined, settings, now);
    this.#joined.clear();
  }

  /** Of a survey that is not complete: what is unknown, and who rejected something before. */
  #canariesOf({ classes }: Change): readonly CanaryStream[] {
    const known = [...classes].flatMap((classKey) => this.#canariesByClass.get(classKey) ?? []);
    return this.#survey.complete ? known : [unknownCanary, ...known];
  }

  /** Of a change without a connected canary: that is what it waits for. */
  #lacksCanary({ judge: { state }, classes }: Change): boolean {
    if (state.kind === 'HELD') return state.cause === 'disconnects' || state.cause === 'timeout';
    return this.canaries.absent(classes, []) > 0;
  }

  #isBad(row: Change, now: number): boolean {
    return foundBad(this.#observation(row, undefined, now)) !== undefined;
  }

  #observation(row: Change, removals: string | undefined, now: number): Observation {
    const { keys, classes } = row;
    const canaries = this.#canariesOf(row);
    const rejected = canaries.map(({ standing }) => standing).find((one) => one.kind === 'rejected');
    const found = [...this.#ends.verdicts, ...this.#foundBefore].find(
      ({ names }) => !names.isDisjointFrom(keys),
    );
    return {
      total: canaries.length + this.canaries.absent(classes, canaries),
      accepted: countOf(canaries, 'accepted'),
      rejection: rejected?.reason ?? this.#rejections.reason(keys),
      found,
      mayReturn: this.#ends.mayReturn(keys),
      removals,
      clientsMayComeBack: this.canaries.mayComeBack(now),
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

  /** All of these names, and nothing that is frozen. */
  #release(names: readonly PendingName[], started: number): void {
    const { events, clock, gate } = this.#options;
    const [removed] = gate.holds.removed();
    const byType = Map.groupBy(names, ({ type }) => type);
    for (const filter of filtersOf(names)) {
      const own = byType.get(filter.type) ?? [];
      gate.release(filter, new Set(own.map(({ name }) => name)));
    }
    if (removed !== undefined) this.#save();
    if (this.#settings === undefined) return;
    events.counted('released');
    events.released(names, clock.now() - started);
  }

  /** Canaries that see what is frozen stay canaries: their side must not change under them. */
  #overAt(now: number): void {
    if (this.#options.gate.size > 0) return;
    const nodes = this.canaries.over(now);
    if (nodes === undefined) return;
    this.#save();
    if (nodes.size > 0) this.#options.fleet.moved(({ nodeId }) => nodes.has(nodeId));
  }

  /** The first change that is held, else the first that waits. */
  #first(): Change | undefined {
    const { rows } = this.#changes;
    const held = rows.filter(({ judge }) => judge.state.kind === 'HELD');
    return (held.length > 0 ? held : rows).toSorted((a, b) => a.judge.state.since - b.judge.state.since)[0];
  }

  #tellState(now: number): void {
    const { events } = this.#options;
    for (const { judge, names } of this.#changes.rows) {
      const state = judge.news();
      if (state === undefined) continue;
      if (state.kind === 'HELD') events.counted(state.cause === 'timeout' ? 'timeout' : 'held');
      events.changeIs(state, names);
    }
    const before = this.#state;
    const calm = this.#options.gate.holds.freezes.length > 0 ? 'FROZEN' : 'IDLE';
    const since = before.kind === calm ? before.since : now;
    this.#state = this.#first()?.judge.state ?? { kind: calm, since };
    if (this.#state.kind === before.kind && this.#state.since === before.since) return;
    if (this.#state.kind === calm) this.#removals.over();
    events.stateChanged(this.#state);
  }

  #saveIfNew(): void {
    if (this.#options.saved === undefined) return;
    if (this.#verdicts.record(this.#found(), () => this.#seenByCanaries())) this.#save();
  }

  #save(): void {
    this.#options.events.save({
      freezes: this.#options.gate.holds.freezes,
      canaries: this.canaries.remembered,
      ...this.#verdicts.saved,
      withheld: [...this.#options.gate.holds.removed()],
    });
  }
}

const countOf = (canaries: readonly CanaryStream[], kind: Standing['kind']): number =>
  canaries.filter(({ standing }) => standing.kind === kind).length;

/** As configured (`rollout`). */
interface RolloutSettings extends JudgeSettings {
  readonly canary: CanaryRules;
  /** Who may be a canary; empty: anybody. */
  readonly canaryPrincipals: readonly string[];
  readonly types: readonly TypeUrl[];
}

/** What a restart must not forget. */
export interface SavedRollout extends SavedVerdicts {
  readonly freezes: readonly Freeze[];
  /** The nodes that were canaries of what waited, each with its class. */
  readonly canaries: ReadonlyMap<string, string>;
  /** Names that a rollback has removed, and that stay away until they are released. */
  readonly withheld: readonly TypedName[];
}

type RolloutResult = 'released' | 'held' | 'discarded' | 'timeout';

/** For metrics, logs and the disk. */
export interface RolloutEvents {
  counted(result: RolloutResult): void;
  /** How many canaries have accepted these, or rejected something of them; `areAll`: they have accepted all of it. */
  canariesSaid(
    names: readonly PendingName[],
    said: { readonly accepted: number; readonly rejected: number; readonly areAll: boolean },
  ): void;
  /** Everybody gets these changes now. `milliseconds`: how long they have waited. */
  released(names: readonly PendingName[], milliseconds: number): void;
  /** Of all changes. */
  stateChanged(state: RolloutState): void;
  /** Of one change that waits. */
  changeIs(state: WaitingState, names: readonly PendingName[]): void;
  save(state: SavedRollout): void;
}

export interface RolloutOptions {
  readonly gate: Gate;
  readonly fleet: Fleet;
  readonly clock: Clock;
  readonly events: RolloutEvents;
  /** `max_removal_percent` of each upstream that has one. */
  readonly removalLimits: () => readonly RemovalLimit[];
  /** Of the last change that everybody has, and of the last change. */
  readonly revisions: () => Pick<RolloutReport, 'revision' | 'pendingRevision'>;
  /** What a restart compares contents by; left out: nothing is kept over restarts. */
  readonly hashOf?: HashOf | undefined;
  /** From before a restart; undefined: nothing is kept over restarts. */
  readonly saved: SavedRollout | undefined;
}

/** One change that waits. */
interface ReportedChange {
  readonly state: WaitingState;
  readonly names: readonly PendingName[];
}

export interface RolloutReport {
  /** `rollout` is configured. */
  readonly enabled: boolean;
  readonly state: RolloutState;
  /** Names that wait for a verdict, and those that nobody sees. Of several changes `state` and `canaries` are those of the first that is held, or of the first. */
  readonly pending: readonly PendingName[];
  /** Of those, the names of that change, and those that nobody sees. */
  readonly shown: readonly PendingName[];
  readonly changes: readonly ReportedChange[];
  readonly canaries: {
    readonly total: number;
    readonly accepted: number;
    readonly rejected: number;
    readonly ended: number;
  };
  /** What waits was not rejected, and none of its canaries is connected. */
  readonly noCanary: boolean;
  /** Why operators have discarded what of it was discarded. */
  readonly whyDiscarded: string;
  readonly freezes: readonly Freeze[];
  /** Of the last change that everybody has, and of the last change. */
  readonly revision: number;
  readonly pendingRevision: number;
}

type Gating = Pick<RolloutSettings, 'canary' | 'types'> & Partial<RolloutSettings>;

const operations = '"distributary release" (everybody gets it) or "distributary discard" (canaries go back)';

/**
 * Why a reload must not take effect while a change waits: it would show the change to clients that are protected from
 * it. Undefined: it would not. More canaries may see what nobody has found bad. `reason`: why it is held; undefined: its
 * canaries have not decided yet.
 */
export function reloadObjection(
  reason: string | undefined,
  names: readonly Pick<PendingName, 'type'>[],
  before: Gating,
  after: Gating | undefined,
): string | undefined {
  const refused = (path: string, why: string): string => {
    const types = [...new Set(names.map(({ type }) => typeInfo(type).short))].join(', ');
    const what = `${types}: ${counted(names.length, 'name')}`;
    return reason === undefined
      ? `${path}: ${why} while a change waits for canaries (${what}): wait until everybody has it, or run ${operations}, then send SIGHUP`
      : `${path}: ${why} while a change is held (${what}; ${reason}): run ${operations} first, then send SIGHUP`;
  };
  if (after === undefined) return refused('rollout', 'it cannot be taken out');
  const ungated = names.find(({ type }) => before.types.includes(type) && !after.types.includes(type));
  if (ungated !== undefined)
    return refused('rollout.types', `${typeInfo(ungated.type).short} cannot be taken out`);
  if (reason === undefined) return undefined;
  if (after.canary.percent > before.canary.percent) {
    const change = `${before.canary.percent} to ${after.canary.percent}`;
    return refused('rollout.canary.percent', `it cannot grow (${change})`);
  }
  const { canaryPrincipals: named = [] } = before;
  const { canaryPrincipals: principals = [] } = after;
  if (named.length > 0 && (principals.length === 0 || principals.some((one) => !named.includes(one))))
    return refused('rollout.canary_principals', 'it cannot name more clients');
  const added = after.canary.match.find(
    (one) => !before.canary.match.some(({ key, value }) => key === one.key && value === one.value),
  );
  if (added === undefined) return undefined;
  return refused('rollout.canary.match', `${added.key}: ${added.value} cannot be added`);
}
