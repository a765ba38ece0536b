import type { TypeUrl } from '../model/brand.ts';
import type { Wave } from '../model/rollout.ts';

export type HoldCause = 'rejected' | 'disconnects' | 'check' | 'traffic' | 'removals' | 'content' | 'timeout';

/** Why these names are bad. */
export interface Verdict {
  readonly cause: HoldCause;
  readonly reason: string;
  /** By `nameKey`. Any of these may be at fault. */
  readonly names: ReadonlySet<string>;
}

/** The first that is about any of these names. */
export const verdictOn = (verdicts: readonly Verdict[], keys: ReadonlySet<string>): Verdict | undefined =>
  verdicts.find(({ names }) => !names.isDisjointFrom(keys));

/** As configured (`rollout`). Times are milliseconds. */
export interface RolloutSettings {
  /** One or more, one after the other; `bakeMs` is of those that have none of their own. */
  readonly waves: readonly Wave[];
  readonly bakeMs: number;
  readonly maxWaitMs: number;
  readonly onTimeout: 'HOLD' | 'PROCEED';
  /** What becomes of a change that was found bad. */
  readonly onFailure: 'HOLD' | 'DISCARD';
  /** Percent of the canary streams that may end within the bake. */
  readonly maxDisconnects: number;
  readonly mode: 'AUTOMATIC' | 'MANUAL';
  /** Who may be a canary; empty: anybody. */
  readonly canaryPrincipals: readonly string[];
  readonly types: readonly TypeUrl[];
  /** In percent. Undefined: there is no bound. */
  readonly guard: {
    /** Of the assignments of a session: so many may lose all their endpoints. */
    readonly maxEmptiedPercent: number;
    /** Of the endpoints of one assignment. */
    readonly maxLostEndpointsPercent?: number | undefined;
    /** Of the bytes of a type in a session. */
    readonly maxGrowthPercent?: number | undefined;
    /** Of the names of a type in a session. */
    readonly maxChangedPercent?: number | undefined;
  };
  /** Undefined: nobody is judged by its traffic. */
  readonly traffic?:
    | {
        /** How often clients are asked to report. */
        readonly intervalMs: number;
        /** Percentage points. */
        readonly maxErrorIncrease: number;
        /** Percent of the requests of one client in one second. */
        readonly maxRequestDrop: number;
        readonly minRequests: number;
      }
    | undefined;
}

/** What of it a judge goes by. */
export type JudgeSettings = Omit<
  RolloutSettings,
  'waves' | 'onFailure' | 'canaryPrincipals' | 'types' | 'guard' | 'traffic'
> & { readonly waves: readonly Pick<Wave, 'bakeMs'>[] };

/** Without `rollout` nothing waits for a verdict. */
export const unjudged: JudgeSettings = {
  bakeMs: 0,
  waves: [{ bakeMs: undefined }],
  maxWaitMs: 0,
  onTimeout: 'PROCEED',
  maxDisconnects: 100,
  mode: 'AUTOMATIC',
};

/** What can be seen of a rollout at one moment. */
export interface Observation {
  /** Streams of canaries that subscribe to what changed. */
  readonly total: number;
  readonly accepted: number;
  /** What was found bad: a canary rejects it, or did, clients have left, … It is shown to no other client. Undefined: nothing. */
  readonly found: Pick<Verdict, 'cause' | 'reason'> | undefined;
  /** Canaries have left that may come back at once: nothing is decided until then. */
  readonly mayReturn: boolean;
  /** What the change itself shows, whatever canaries say; undefined: nothing. */
  readonly objection: Pick<Verdict, 'cause' | 'reason'> | undefined;
  /** After a restart the clients may not be back yet: that nobody subscribes to a change says nothing. */
  readonly clientsMayComeBack: boolean;
  /** Who has the change now, by node; undefined: it is not known, or there is one wave and nobody asks. */
  readonly nodes: ReadonlySet<string> | undefined;
  /** Since when every check is good; undefined: one is not. */
  readonly goodSince: number | undefined;
  /** Why not; empty if it is. */
  readonly waitsFor: string;
}

/** Of a change that waits. `since`: when the state began. */
export type WaitingState =
  | { readonly kind: 'CANARY'; readonly since: number; readonly reason: string }
  | { readonly kind: 'HELD'; readonly since: number; readonly reason: string; readonly cause: HoldCause };

/** Of all: of the first change that is held, or of the first that waits, if any does. */
export type RolloutState =
  | WaitingState
  | { readonly kind: 'IDLE'; readonly since: number }
  | { readonly kind: 'FROZEN'; readonly since: number };

export interface Judgement {
  /** Why the wave is over: what waits may go to the next one, or to everybody; undefined: it may not. */
  readonly passes: 'accepted' | 'timeout' | undefined;
  /** The verdict may be another one then, though nothing happens; undefined: it will not. */
  readonly nextAt: number | undefined;
}

const wait = (nextAt: number | undefined): Judgement => ({ passes: undefined, nextAt });

/**
 * Decides when one change that canaries have goes to the next wave, and to everybody. Pure: no I/O, no clock; the caller
 * observes the canaries and passes the time, that of `Clock.monotonic()`: nobody can set that.
 *
 *     a change waits ──▶ CANARY ── all canaries accepted it, and the bake is over ──▶ the next wave, or released
 *                         │  ▲
 *      a canary rejects,  ▼  │  upstream sends something that the canaries accept
 *      many leave, …     HELD
 */
export class Judge {
  #settings: JudgeSettings;
  #state: WaitingState;
  /** When the change began to wait. */
  startedAt: number;
  /** `max_wait` counts from here: it does not run while anything else holds the change, or with MANUAL. */
  #waitsSince: number;
  /** Since when all canaries have accepted what waits; undefined: they have not. */
  acceptedAt: number | undefined;
  /** When the wave is over, if nothing else happens; undefined: that is not known, or an operator ends it. */
  bakedAt: number | undefined;
  /** From 1. */
  wave = 1;
  /** What waits now was accepted in the waves up to this one, or has passed them. */
  #passedWave = 0;
  /** Since when the clients of the wave may have what waits now. */
  shownSince: number;
  /** Who had all of the change when this wave began, by node. */
  #before: ReadonlySet<string> = new Set();
  /** This wave has added somebody, who may have left since. */
  #hasMet = false;
  /** The last look has found that it adds nobody. */
  #meetsNobody = false;
  /** An earlier wave has ended. Waves that met nobody are none: what comes in the first that met somebody joins. */
  isPastFirst = false;
  /** What comes under its names goes to who has it: nobody had judged that before this wave, or it was found bad in it. */
  isOpen = true;
  /** The classes that have come further than the first wave, with the wave: they keep what they have. */
  readonly #reached = new Map<string, number>();
  /** The state that was told last. */
  #told: Pick<WaitingState, 'kind' | 'since'> | undefined;

  constructor(settings: JudgeSettings, now: number) {
    this.#settings = settings;
    this.#state = { kind: 'CANARY', since: now, reason: '' };
    this.startedAt = now;
    this.#waitsSince = now;
    this.shownSince = now;
  }

  /** Of a change that was these before: they are one now, or it is a part of one. None: it begins to wait. */
  static of(before: readonly Judge[], settings: JudgeSettings, now: number): Judge {
    const created = new Judge(settings, now);
    const [oldest, ...others] = before.toSorted((a, b) => a.startedAt - b.startedAt);
    if (oldest === undefined) return created;
    const worst = [oldest, ...others].find(({ state }) => state.kind === 'HELD') ?? oldest;
    created.#state = worst.#state;
    const waits = before.map((one) => one.#waitsSince);
    const acceptedAt = Math.max(...before.map((one) => one.acceptedAt ?? Number.POSITIVE_INFINITY));
    created.startedAt = oldest.startedAt;
    // What was held was judged. Together they are judged anew.
    created.#waitsSince = created.#state.kind === 'HELD' ? Math.max(...waits) : Math.min(...waits);
    created.acceptedAt = Number.isFinite(acceptedAt) ? acceptedAt : undefined;
    created.#told = worst.#told;
    // Together they are where the one is that fewer have seen. What nobody has judged yet joins what nobody has judged.
    // Somebody is in its wave, or was let into it: that they have the change is not known at once.
    const hasMet = (one: Judge): boolean => one.#hasMet || one.#reached.size > 0;
    const met = before.some((one) => one.isPastFirst) ? [] : before.filter(hasMet);
    const first = (met.length === 0 ? before : met).toSorted((a, b) => a.wave - b.wave)[0] ?? oldest;
    created.#goOnFrom(first);
    created.isOpen = before.some(({ isOpen }) => isOpen);
    created.shownSince = Math.max(...before.map((one) => one.shownSince));
    created.#passedWave = Math.min(...before.map((one) => one.#passedWave));
    for (const one of before) for (const [classKey, wave] of one.#reached) created.#reach(classKey, wave);
    return created;
  }

  /** Of a change that was frozen meanwhile: it is judged anew, by those who have it. */
  static resumed(before: Judge, settings: JudgeSettings, now: number): Judge {
    const created = new Judge(settings, now);
    created.#goOnFrom(before);
    for (const [classKey, wave] of before.#reached) created.#reach(classKey, wave);
    return created;
  }

  #goOnFrom(before: Judge): void {
    this.wave = before.wave;
    this.#passedWave = before.#passedWave;
    this.#before = before.#before;
    this.#hasMet = before.#hasMet;
    this.isPastFirst = before.isPastFirst;
    this.isOpen = before.isOpen;
  }

  /** The clients of the waves up to this one have accepted what waits now, or nobody is there, or an operator has ended them. */
  get acceptedWave(): number {
    return this.acceptedAt === undefined ? this.#passedWave : this.wave;
  }

  /** How many there are. */
  get waves(): number {
    return this.#settings.waves.length;
  }

  get isLastWave(): boolean {
    return this.wave >= this.#settings.waves.length;
  }

  /** `classes`: those of which somebody is there now. Each class that has come further than the first wave, with the wave. */
  reach(classes: ReadonlySet<string>): ReadonlyMap<string, number> {
    if (this.wave > 1) for (const classKey of classes) this.#reach(classKey, this.wave);
    return this.#reached;
  }

  #reach(classKey: string, wave: number): void {
    this.#reached.set(classKey, Math.max(wave, this.#reached.get(classKey) ?? 0));
  }

  /** The next wave begins. `nodes`: who has the change. */
  advance(nodes: ReadonlySet<string>, now: number): void {
    this.#passedWave = this.wave++;
    this.#before = this.#before.union(nodes);
    this.isPastFirst ||= !this.#meetsNobody;
    this.isOpen &&= this.#meetsNobody;
    this.#meetsNobody = false;
    this.#hasMet = false;
    this.acceptedAt = undefined;
    this.#waitsSince = now;
    this.shownSince = now;
    this.#state = { kind: 'CANARY', since: now, reason: '' };
  }

  get #bakeMs(): number {
    const { waves, bakeMs } = this.#settings;
    return waves[this.wave - 1]?.bakeMs ?? bakeMs;
  }

  get state(): WaitingState {
    return this.#state;
  }

  /** The state, if it is another than this gave last. */
  news(): WaitingState | undefined {
    const { kind, since } = this.#state;
    if (this.#told?.kind === kind && this.#told.since === since) return undefined;
    this.#told = { kind, since };
    return this.#state;
  }

  configure(settings: JudgeSettings): void {
    this.#settings = settings;
    this.wave = Math.min(this.wave, this.waves);
    this.#passedWave = Math.min(this.#passedWave, this.wave - 1);
    for (const [classKey, wave] of this.#reached) this.#reached.set(classKey, Math.min(wave, this.waves));
  }

  /** Upstream has sent something that now waits: the bake starts again, `max_wait` does not. */
  joined(now: number): void {
    this.acceptedAt = undefined;
    // No earlier wave has judged what is new.
    this.#before = new Set();
    if (this.#reached.size === 0 && !this.#hasMet) {
      // It went on because nobody was there. Who was there and has left may have left because of it.
      this.wave = 1;
      this.#hasMet = false;
      this.isPastFirst = false;
      this.isOpen = true;
    }
    // Before the first that met somebody they have nothing to say.
    this.#passedWave = this.isPastFirst ? 0 : this.wave - 1;
    this.shownSince = now;
    // What was held was judged. This is judged anew.
    if (this.#state.kind === 'HELD') this.#waitsSince = now;
  }

  hold(now: number, { cause, reason }: Pick<Verdict, 'cause' | 'reason'>): void {
    this.acceptedAt = undefined;
    this.#enter({ kind: 'HELD', since: now, cause, reason });
  }

  judge(now: number, seen: Observation): Judgement {
    const objection = objectionOf(seen, this.#state);
    this.#meetsNobody = this.#addsNobody(seen) && objection === undefined;
    this.bakedAt = undefined;
    if (objection !== undefined) {
      this.hold(now, objection);
      return wait(undefined);
    }
    if (this.#state.kind === 'HELD' && this.#state.cause !== 'timeout') this.#waitsSince = now;
    if (this.#meetsNobody) return { passes: 'accepted', nextAt: undefined };
    if (hasAccepted(seen) && (seen.total > 0 || !seen.clientsMayComeBack)) this.acceptedAt ??= now;
    if (this.#settings.mode === 'MANUAL') return this.#manual(now, seen);
    if (this.acceptedAt !== undefined && seen.goodSince !== undefined)
      this.bakedAt = Math.max(this.acceptedAt, seen.goodSince) + this.#bakeMs;
    return this.#automatic(now, seen);
  }

  /**
   * The wave adds nobody, so it says nothing. What no wave meets bakes once, in the last one. Who was added and has left may
   * have left because of the change.
   */
  #addsNobody({ nodes, mayReturn, clientsMayComeBack }: Observation): boolean {
    this.#hasMet ||= nodes?.isSubsetOf(this.#before) === false;
    if (nodes === undefined || mayReturn || clientsMayComeBack || this.#state.kind === 'HELD') return false;
    if (this.isLastWave && (this.#before.size === 0 || this.#settings.mode === 'MANUAL')) return false;
    return !this.#hasMet;
  }

  #manual(now: number, { total }: Observation): Judgement {
    this.#waitsSince = now;
    const accepted =
      this.acceptedAt === undefined || total === 0 ? '' : 'the canaries have accepted it, and ';
    this.#enter({
      kind: 'CANARY',
      since: now,
      reason: `${accepted}mode: MANUAL waits for ${this.#settings.waves.length > 1 ? 'promote' : 'release'}`,
    });
    return wait(undefined);
  }

  #automatic(now: number, seen: Observation): Judgement {
    const { total, accepted } = seen;
    const { maxWaitMs, onTimeout } = this.#settings;
    const bakedAt = this.bakedAt;
    // A client that has come since may still have to answer.
    if (bakedAt !== undefined && bakedAt <= now && hasAccepted(seen))
      return { passes: 'accepted', nextAt: undefined };
    const deadline = this.#waitsSince + maxWaitMs;
    if (now >= deadline && !seen.mayReturn) {
      if (onTimeout === 'PROCEED') return { passes: 'timeout', nextAt: undefined };
      const said = `${accepted} of ${total} canary streams have accepted it`;
      const reason = `no verdict within max_wait: ${[said, seen.waitsFor].filter((one) => one !== '').join('; ')}`;
      this.#enter({ kind: 'HELD', since: now, cause: 'timeout', reason });
      return wait(bakedAt);
    }
    this.#enter({ kind: 'CANARY', since: now, reason: seen.waitsFor });
    return wait(bakedAt === undefined || bakedAt <= now ? deadline : Math.min(bakedAt, deadline));
  }

  /** `since` stays while the state is the same. */
  #enter(state: WaitingState): void {
    const since = isSame(this.#state, state) ? this.#state.since : state.since;
    this.#state = { ...state, since };
    // What mends it may come in parts.
    this.isOpen ||= state.kind === 'HELD';
  }
}

/** What held it first, as long as that is so: it may have led to the rest. */
function objectionOf({ found, objection }: Observation, state: WaitingState): Observation['found'] {
  const isFirst = state.kind === 'HELD' && state.cause === objection?.cause;
  return isFirst ? objection : (found ?? objection);
}

const hasAccepted = ({ accepted, total, mayReturn }: Observation): boolean =>
  accepted === total && !mayReturn;

function isSame(before: WaitingState, after: WaitingState): boolean {
  if (before.kind === 'CANARY' || after.kind === 'CANARY') return before.kind === after.kind;
  return before.cause === after.cause;
}
