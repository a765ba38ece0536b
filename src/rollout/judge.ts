import { assertNever } from '../model/result.ts';
import type { Verdict } from './verdicts.ts';

/** As configured (`rollout`). Times are milliseconds. */
export interface JudgeSettings {
  readonly bakeMs: number;
  readonly maxWaitMs: number;
  readonly onTimeout: 'HOLD' | 'PROCEED';
  /** Percent of the canary streams that may end within the bake. */
  readonly maxDisconnects: number;
  readonly mode: 'AUTOMATIC' | 'MANUAL';
}

/** Without `rollout` nothing waits for a verdict. */
export const unjudged: JudgeSettings = {
  bakeMs: 0,
  maxWaitMs: 0,
  onTimeout: 'PROCEED',
  maxDisconnects: 100,
  mode: 'AUTOMATIC',
};

/** What can be seen of a rollout at one moment. */
export interface Observation {
  /** The names that wait for a verdict. */
  readonly names: ReadonlySet<string>;
  /** Streams of canaries that subscribe to what changed. */
  readonly total: number;
  readonly accepted: number;
  /** What one of them rejects, and why; undefined: none rejects anything. */
  readonly rejection: string | undefined;
  /** What a canary said of it before a restart; undefined: nothing. */
  readonly foundBefore: Pick<Verdict, 'cause' | 'reason'> | undefined;
  /** Why the change removes too much; undefined: it does not. */
  readonly removals: string | undefined;
  /** After a restart the clients may not be back yet: that nobody subscribes to a change says nothing. */
  readonly clientsMayComeBack: boolean;
}

export type HoldCause = 'rejection' | 'disconnects' | 'removals' | 'timeout';

/** `since`: when the state began, in milliseconds since the epoch. */
export type RolloutState =
  | { readonly kind: 'IDLE'; readonly since: number }
  | { readonly kind: 'FROZEN'; readonly since: number }
  | { readonly kind: 'CANARY'; readonly since: number; readonly reason: string }
  | { readonly kind: 'HELD'; readonly since: number; readonly reason: string; readonly cause: HoldCause };

export interface Judgement {
  /** Why what waits may go to everybody now; undefined: it may not. */
  readonly release: 'accepted' | 'timeout' | undefined;
  /** The verdict may be another one then, though nothing happens; undefined: it will not. */
  readonly nextAt: number | undefined;
}

/** One change that waits, with what has joined it. */
interface Attempt {
  readonly startedAt: number;
  /** `max_wait` counts from here. */
  waitsSince: number;
  /** Since when all canaries have accepted what waits; undefined: not yet. `bake` counts from here. */
  acceptedAt: number | undefined;
  /** When streams of canaries ended. */
  ends: readonly number[];
}

const wait = (nextAt: number | undefined): Judgement => ({ release: undefined, nextAt });

/**
 * Decides when a change that canaries have goes to everybody. Pure: no I/O, no clock; the caller observes the canaries
 * and passes the time.
 *
 *     IDLE ── a change waits ──▶ CANARY ── all canaries accepted it, and the bake is over ──▶ released, IDLE
 *                                 │  ▲
 *              a canary rejects,  ▼  │  upstream sends something that the canaries accept
 *              many leave, …     HELD
 */
export class Judge {
  #settings: JudgeSettings;
  #state: RolloutState;
  #attempt: Attempt | undefined;
  /** It stays so until upstream says something else under one of the names, over a freeze too. */
  #tooManyEnds: Verdict | undefined;
  #frozen = false;

  constructor(settings: JudgeSettings, now: number) {
    this.#settings = settings;
    this.#state = { kind: 'IDLE', since: now };
  }

  get state(): RolloutState {
    return this.#state;
  }

  /** When the change that waits began to wait; undefined: none does. */
  get startedAt(): number | undefined {
    return this.#attempt?.startedAt;
  }

  /** Since when all canaries have accepted what waits; undefined: they have not. */
  get acceptedAt(): number | undefined {
    return this.#attempt?.acceptedAt;
  }

  /** How many streams of canaries have ended within the last bake. */
  get ended(): number {
    return this.#attempt?.ends.length ?? 0;
  }

  /** What was found bad by clients that left; undefined: nothing was. */
  get tooManyEnds(): Verdict | undefined {
    return this.#tooManyEnds;
  }

  /** What waits was found bad, by a rejection or by clients that left: it is shown to no other client. */
  mayNotSpread(now: number, seen: Observation): boolean {
    const attempt = this.#begun(now);
    this.#dropOldEnds(attempt, now);
    const objection = this.#objection(attempt, seen);
    return objection !== undefined && objection.cause !== 'removals';
  }

  configure(settings: JudgeSettings): void {
    this.#settings = settings;
  }

  /** Some types or upstreams are frozen, or none is any more. */
  freeze(frozen: boolean): void {
    this.#frozen = frozen;
  }

  /** Upstream has sent something that now waits: the bake starts again, `max_wait` does not. */
  joined(now: number): void {
    const attempt = this.#begun(now);
    attempt.acceptedAt = undefined;
    // What was held was judged. This is judged anew.
    if (this.#state.kind === 'HELD') attempt.waitsSince = now;
  }

  /** These names wait with another content now, or wait no more. */
  changed(names: ReadonlySet<string>): void {
    if (this.#tooManyEnds?.names.isDisjointFrom(names) !== false) return;
    this.#tooManyEnds = undefined;
    if (this.#attempt !== undefined) this.#attempt.ends = [];
  }

  /** The stream of a canary has ended that subscribed to what waits. */
  canaryEnded(now: number): void {
    if (this.#attempt !== undefined) this.#attempt.ends = [...this.#attempt.ends, now];
  }

  judge(now: number, seen: Observation): Judgement {
    if (seen.names.size === 0) {
      this.#attempt = undefined;
      this.#enter(this.#frozen ? { kind: 'FROZEN', since: now } : { kind: 'IDLE', since: now });
      return wait(undefined);
    }
    const attempt = this.#begun(now);
    this.#dropOldEnds(attempt, now);
    const objection = this.#objection(attempt, seen);
    if (objection !== undefined) {
      attempt.acceptedAt = undefined;
      this.#enter({ kind: 'HELD', since: now, ...objection });
      return wait(undefined);
    }
    if (seen.accepted === seen.total && (seen.total > 0 || !seen.clientsMayComeBack))
      attempt.acceptedAt ??= now;
    return this.#settings.mode === 'MANUAL'
      ? this.#manual(now, attempt, seen)
      : this.#automatic(now, attempt, seen);
  }

  #manual(now: number, { acceptedAt }: Attempt, { total }: Observation): Judgement {
    const accepted = acceptedAt === undefined || total === 0 ? '' : 'the canaries have accepted it, and ';
    this.#enter({ kind: 'CANARY', since: now, reason: `${accepted}mode: MANUAL waits for release` });
    return wait(undefined);
  }

  #automatic(now: number, attempt: Attempt, { total, accepted }: Observation): Judgement {
    const { bakeMs, maxWaitMs, onTimeout } = this.#settings;
    const bakedAt = attempt.acceptedAt === undefined ? undefined : attempt.acceptedAt + bakeMs;
    // A client that has come since may still have to answer.
    if (bakedAt !== undefined && bakedAt <= now && accepted === total)
      return { release: 'accepted', nextAt: undefined };
    const deadline = attempt.waitsSince + maxWaitMs;
    if (now >= deadline) {
      if (onTimeout === 'PROCEED') return { release: 'timeout', nextAt: undefined };
      const reason = `no verdict within max_wait: ${accepted} of ${total} canary streams have accepted it`;
      this.#enter({ kind: 'HELD', since: now, cause: 'timeout', reason });
      return wait(bakedAt);
    }
    this.#enter({ kind: 'CANARY', since: now, reason: '' });
    return wait(bakedAt === undefined || bakedAt <= now ? deadline : Math.min(bakedAt, deadline));
  }

  #objection(
    attempt: Attempt,
    { names, rejection, foundBefore, removals, total }: Observation,
  ): { readonly cause: HoldCause; readonly reason: string } | undefined {
    if (rejection !== undefined) return { cause: 'rejection', reason: rejection };
    const { maxDisconnects } = this.#settings;
    const ended = attempt.ends.length;
    if (ended * 100 > maxDisconnects * (total + ended)) {
      const reason = `${ended} of ${total + ended} canary streams ended within the bake: max_disconnects is ${maxDisconnects} percent`;
      this.#tooManyEnds ??= { cause: 'disconnects', reason, names };
    }
    if (this.#tooManyEnds?.names.isDisjointFrom(names) === false)
      return { cause: 'disconnects', reason: this.#tooManyEnds.reason };
    if (foundBefore !== undefined) return foundBefore;
    return removals === undefined ? undefined : { cause: 'removals', reason: removals };
  }

  #dropOldEnds(attempt: Attempt, now: number): void {
    attempt.ends = attempt.ends.filter((at) => at > now - this.#settings.bakeMs);
  }

  #begun(now: number): Attempt {
    this.#attempt ??= {
      startedAt: now,
      waitsSince: now,
      acceptedAt: undefined,
      ends: [],
    };
    return this.#attempt;
  }

  /** `since` stays while the state is the same. */
  #enter(state: RolloutState): void {
    const since = isSame(this.#state, state) ? this.#state.since : state.since;
    this.#state = { ...state, since };
  }
}

function isSame(before: RolloutState, after: RolloutState): boolean {
  switch (after.kind) {
    case 'IDLE':
    case 'FROZEN':
    case 'CANARY':
      return before.kind === after.kind;
    case 'HELD':
      return before.kind === 'HELD' && before.cause === after.cause;
    default:
      return assertNever(after);
  }
}
