import type { ResourceName, TypeUrl } from '../model/brand.ts';
import { contentHash } from '../model/change.ts';
import type { Timer } from '../model/clock.ts';
import { fail, ok, type Result } from '../model/result.ts';
import type { GateFilter, PendingChange, PendingName, SidedClient } from '../model/rollout.ts';
import { Settling } from '../model/settling.ts';
import type { Side } from '../model/side.ts';
import { Canaries } from './canaries.ts';
import type { CanaryRules } from './canary-choice.ts';
import { Discards } from './discards.ts';
import type { CanaryStream, Standing, Survey, Waiting } from './fleet.ts';
import { Freezes, scopeText } from './freezes.ts';
import { Judge, type Observation, type RolloutState, unjudged } from './judge.ts';
import { filterOf, filtersOf, keysOf, matching, nameKey, WaitingNames } from './pending-names.ts';
import { Rejections } from './rejections.ts';
import { reloadObjection } from './reload-objection.ts';
import type { RolloutOptions, RolloutReport, RolloutSettings } from './rollout-options.ts';
import { Staffing } from './staffing.ts';
import { type Verdict, Verdicts } from './verdicts.ts';

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
  readonly #judge: Judge;
  readonly #freezes: Freezes;
  readonly #canaries: Canaries;
  readonly #staffing: Staffing;
  readonly #rejections = new Rejections();
  readonly #verdicts: Verdicts;
  readonly #discards: Discards;
  readonly #settling: Settling;
  readonly #forget: () => void;
  #settings: RolloutSettings | undefined;
  #survey = nobody;
  /** What waits for a verdict, with the size of the gate then; undefined: to be read again. */
  #names: { readonly size: number; readonly all: WaitingNames } | undefined;
  /** Something waits for a verdict. */
  #waits = false;
  #timer: Timer | undefined;

  constructor(settings: RolloutSettings | undefined, options: RolloutOptions) {
    const { clock, gate, saved, hashOf = contentHash } = options;
    this.#options = options;
    this.#settings = settings;
    this.#judge = new Judge(settings ?? unjudged, clock.now());
    this.#freezes = new Freezes(saved?.freezes);
    this.#canaries = new Canaries(settings?.canary, saved?.canaries, clock.now());
    this.#staffing = new Staffing({
      canaries: this.#canaries,
      fleet: options.fleet,
      save: () => this.#save(),
    });
    const contentOf = (type: TypeUrl, name: ResourceName) => gate.contentOf(type, name, 'canary');
    this.#verdicts = new Verdicts(saved?.verdicts ?? [], contentOf, hashOf);
    this.#discards = new Discards(saved?.discards ?? [], contentOf, hashOf);
    this.#settling = new Settling(clock, settling, () => this.#look());
    gate.gatedTypes(new Set(settings?.types));
    for (const freeze of this.#freezes.all) gate.freeze(filterOf(freeze));
    for (const name of saved?.withheld ?? []) gate.withheld.set(name, true);
    this.#judge.freeze(this.#freezes.all.length > 0);
    this.#forget = gate.onChanged((change) => this.#changed(change));
    this.#look();
    options.events.stateChanged(this.#judge.state, this.#judged().names);
  }

  sideOf(client: SidedClient): Side {
    return this.#canaries.sideOf(client);
  }

  /** The rules that make canaries now. */
  get canaryRules(): CanaryRules | undefined {
    return this.#canaries.rules;
  }

  /** The nodes that are canaries though none of these rules says so. */
  get namedCanaries(): ReadonlySet<string> {
    return this.#canaries.named;
  }

  /** Why a reload with these settings must be refused; undefined: it need not be. */
  objectionTo(settings: RolloutSettings | undefined): string | undefined {
    this.#look();
    const { state } = this.#judge;
    // What is frozen too: its verdict is only not shown.
    const names = this.#seenByCanaries();
    const keys = keysOf(names);
    const known =
      this.#found().find((one) => !one.names.isDisjointFrom(keys)) ?? this.#verdicts.restored(keys);
    const reason = state.kind === 'HELD' ? state.reason : known?.reason;
    if (names.length === 0 || this.#settings === undefined) return undefined;
    return reloadObjection({ reason, names }, this.#settings, settings);
  }

  /** Before the clients' rules are applied again. */
  reload(settings: RolloutSettings | undefined): void {
    this.#settings = settings;
    this.#judge.configure(settings ?? unjudged);
    this.#canaries.configure(settings?.canary);
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

  /** The limits that hold a change are others now. */
  reconsider(): void {
    this.#look();
  }

  /** The stream of a canary has ended. `standingOf` gives undefined if it did not subscribe to what waits. */
  canaryEnded(stream: CanaryStream['stream'], standingOf: () => Standing | undefined): void {
    const standing = this.#waits ? standingOf() : undefined;
    if (standing === undefined) return;
    this.#rejections.ended(stream, standing);
    this.#judge.canaryEnded(this.#options.clock.now());
    this.#settling.touch();
  }

  /** What waits for a verdict: canaries see it, and it is not frozen. */
  waiting(): Waiting {
    return this.#waits ? this.#judged().byType : new Map();
  }

  report(): RolloutReport {
    const { canaries } = this.#survey;
    const count = (kind: Standing['kind']): number =>
      canaries.filter(({ standing }) => standing.kind === kind).length;
    return {
      enabled: this.#settings !== undefined,
      state: this.#judge.state,
      pending: [...this.#options.gate.pending],
      canaries: {
        total: canaries.length,
        accepted: count('accepted'),
        rejected: count('rejected'),
        ended: this.#judge.ended,
      },
      freezes: this.#freezes.all,
      ...this.#options.revisions(),
    };
  }

  /** Everybody gets what waits, whatever the canaries say. How many names; the error: nothing waits. */
  release(filter: GateFilter): Result<number> {
    const found = matching(this.#options.gate.pending, filter);
    if (!found.ok) return found;
    const names = found.value.filter((pending) => !this.#freezes.covers(pending));
    if (names.length === 0) return fail(`${scopeText(filter)} is frozen: unfreeze it first`);
    this.#release(names);
    this.#look();
    return ok(names.length);
  }

  /** Canaries go back to what is released. How many names; the error: nothing waits. */
  discard(filter: GateFilter): Result<number> {
    const names = matching(this.#options.gate.pending, filter);
    if (!names.ok) return names;
    this.#options.events.counted('discarded');
    this.#discards.add(names.value);
    this.#options.gate.discard(filter);
    this.#look();
    return ok(names.value.length);
  }

  /** The error: it is frozen already. */
  freeze(filter: GateFilter, reason: string): Result<undefined> {
    const added = this.#freezes.add({ ...filterOf(filter), reason, since: this.#options.clock.now() });
    // A rollback of what is frozen already has changed what is withheld.
    if (!added.ok) this.#save();
    if (!added.ok) return added;
    this.#options.gate.freeze(filterOf(filter));
    this.#frozen();
    return added;
  }

  /** What has changed meanwhile goes to canaries now. The error: it is not frozen. */
  unfreeze(filter: GateFilter): Result<undefined> {
    const removed = this.#freezes.remove(filter);
    if (!removed.ok) return removed;
    for (const freeze of removed.value) this.#options.gate.unfreeze(filterOf(freeze));
    this.#judge.joined(this.#options.clock.now());
    this.#waits = true;
    this.#frozen();
    return ok(undefined);
  }

  #frozen(): void {
    this.#names = undefined;
    this.#judge.freeze(this.#freezes.all.length > 0);
    this.#save();
    this.#options.fleet.waitingChanged();
    this.#look();
  }

  #changed({ type, joined: all, left }: PendingChange): void {
    const { fleet, gate } = this.#options;
    this.#names = undefined;
    this.#discards.left(type, left, gate.pending);
    const discarded = this.#discards.again(type, all);
    // The views have heard of it, and no client has yet.
    if (discarded.size > 0) gate.discard({ type }, discarded);
    const joined = all.filter((name) => !discarded.has(name));
    fleet.waitingChanged();
    const names = new Set([...joined, ...left].map((name) => nameKey(type, name)));
    this.#rejections.changed(names);
    this.#judge.changed(names);
    this.#verdicts.left(type, left);
    if (joined.length > 0) {
      this.#judge.joined(this.#options.clock.now());
      this.#waits = true;
    }
    this.#settling.touch();
  }

  #judged(): WaitingNames {
    const { size } = this.#options.gate;
    // Without a word a name goes for want of room, and others may have come back to what is released.
    if (this.#names?.size !== size) {
      const all = this.#seenByCanaries().filter((pending) => !this.#freezes.covers(pending));
      this.#names = { size, all: new WaitingNames(all) };
    }
    return this.#names.all;
  }

  #seenByCanaries(): readonly PendingName[] {
    return [...this.#options.gate.pending].filter(({ masked }) => masked === undefined);
  }

  /** What was found bad since the start. */
  #found(): readonly Verdict[] {
    const { tooManyEnds } = this.#judge;
    const { verdicts } = this.#rejections;
    return tooManyEnds === undefined ? verdicts : [...verdicts, tooManyEnds];
  }

  /** Looks at the canaries and passes on what they say. */
  #look(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
    const now = this.#options.clock.now();
    const { state: before, acceptedAt } = this.#judge;
    const waiting = this.#judged();
    const { names } = waiting;
    this.#waits = names.length > 0;
    this.#survey = this.#waits && this.#settings !== undefined ? this.#staffed(now, waiting) : nobody;
    const { release, nextAt } = this.#judge.judge(now, this.#observe(now, waiting, this.#survey));
    if (this.#survey.canaries.length > 0 && acceptedAt === undefined && this.#judge.acceptedAt !== undefined)
      this.#options.events.accepted(names);
    this.#saveIfNew();
    if (release !== undefined) {
      if (release === 'timeout' && this.#settings !== undefined) this.#options.events.counted('timeout');
      this.#release(names);
      if (this.#judged().names.length < names.length) this.#look();
      return;
    }
    this.#tellState(before);
    if (!this.#waits) {
      if (this.#seenByCanaries().length === 0) this.#staffing.showToOthers(true);
      this.#overAt(now);
      return;
    }
    const wait = Math.min(lookMs, (nextAt ?? Number.POSITIVE_INFINITY) - now);
    this.#timer = this.#options.clock.after(Math.max(0, wait), () => this.#look());
  }

  #staffed(now: number, waiting: WaitingNames): Survey {
    return this.#staffing.survey(waiting.byType, now, (survey) =>
      this.#judge.mayNotSpread(now, this.#observe(now, waiting, survey)),
    );
  }

  #observe(now: number, { keys, byType }: WaitingNames, { canaries, members }: Survey): Observation {
    this.#rejections.observe(canaries, keys);
    const rejected = canaries.map(({ standing }) => standing).find((one) => one.kind === 'rejected');
    return {
      names: keys,
      total: canaries.length + this.#canaries.absent(members),
      accepted: canaries.filter(({ standing }) => standing.kind === 'accepted').length,
      rejection: rejected?.reason ?? this.#rejections.reason(keys),
      foundBefore: this.#verdicts.restored(keys),
      removals:
        this.#settings === undefined
          ? undefined
          : this.#options.tooManyRemovals(byType.keys(), this.#judge.startedAt ?? now),
      clientsMayComeBack: this.#canaries.mayComeBack(now),
    };
  }

  /** All of these names, and nothing that is frozen. */
  #release(names: readonly PendingName[]): void {
    const { events, clock, gate } = this.#options;
    const started = this.#judge.startedAt ?? clock.now();
    const withheld = [...gate.withheld].length;
    for (const filter of filtersOf(names)) gate.release(filter);
    if (withheld > 0) this.#save();
    if (this.#settings === undefined) return;
    events.counted('released');
    events.released(names, clock.now() - started);
  }

  /** Canaries that see what is frozen stay canaries: their side must not change under them. */
  #overAt(now: number): void {
    if (this.#options.gate.size > 0) return;
    const nodes = this.#canaries.over(now);
    if (nodes === undefined) return;
    this.#save();
    if (nodes.size > 0) this.#options.fleet.moved(nodes);
  }

  #tellState(before: RolloutState): void {
    const { state } = this.#judge;
    if (state.kind === before.kind && state.since === before.since) return;
    if (state.kind === 'HELD') this.#options.events.counted(state.cause === 'timeout' ? 'timeout' : 'held');
    this.#options.events.stateChanged(state, this.#judged().names);
  }

  #saveIfNew(): void {
    if (this.#options.saved === undefined) return;
    const isNewVerdict = this.#verdicts.record(this.#found(), () => this.#seenByCanaries());
    const isNewDiscard = this.#discards.record();
    if (isNewVerdict || isNewDiscard) this.#save();
  }

  #save(): void {
    this.#options.events.save({
      freezes: this.#freezes.all,
      canaries: this.#canaries.remembered,
      verdicts: this.#verdicts.saved,
      discards: this.#discards.saved,
      withheld: [...this.#options.gate.withheld],
    });
  }
}
