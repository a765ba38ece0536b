/** Why these names were found bad. */
export interface Verdict {
  readonly cause: 'rejection' | 'disconnects';
  readonly reason: string;
  /** By `nameKey`. Any of these may be at fault. */
  readonly names: ReadonlySet<string>;
}

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
  /** Streams of canaries that subscribe to what changed. */
  readonly total: number;
  readonly accepted: number;
  /** What one of them rejects, and why; undefined: none rejects anything. */
  readonly rejection: string | undefined;
  /** What was found bad without a canary that says so now: by clients that left, or before a restart; undefined: nothing. */
  readonly found: Pick<Verdict, 'cause' | 'reason'> | undefined;
  /** Canaries have left that may come back at once: nothing is decided until then. */
  readonly mayReturn: boolean;
  /** Why the change removes too much; undefined: it does not. */
  readonly removals: string | undefined;
  /** After a restart the clients may not be back yet: that nobody subscribes to a change says nothing. */
  readonly clientsMayComeBack: boolean;
}

type HoldCause = 'rejection' | 'disconnects' | 'removals' | 'timeout';

/** Of a change that waits. `since`: when the state began, in milliseconds since the epoch. */
export type WaitingState =
  | { readonly kind: 'CANARY'; readonly since: number; readonly reason: string }
  | { readonly kind: 'HELD'; readonly since: number; readonly reason: string; readonly cause: HoldCause };

/** Of all: of the first change that is held, or of the first that waits, if any does. */
export type RolloutState =
  | WaitingState
  | { readonly kind: 'IDLE'; readonly since: number }
  | { readonly kind: 'FROZEN'; readonly since: number };

export interface Judgement {
  /** Why what waits may go to everybody now; undefined: it may not. */
  readonly release: 'accepted' | 'timeout' | undefined;
  /** The verdict may be another one then, though nothing happens; undefined: it will not. */
  readonly nextAt: number | undefined;
}

const wait = (nextAt: number | undefined): Judgement => ({ release: undefined, nextAt });

/**
 * Decides when one change that canaries have goes to everybody. Pure: no I/O, no clock; the caller observes the canaries
 * and passes the time.
 *
 *     a change waits ──▶ CANARY ── all canaries accepted it, and the bake is over ──▶ released
 *                         │  ▲
 *      a canary rejects,  ▼  │  upstream sends something that the canaries accept
 *      many leave, …     HELD
 */
export class Judge {
  #settings: JudgeSettings;
  #state: WaitingState;
  #startedAt: number;
  /** `max_wait` counts from here. */
  #waitsSince: number;
  #acceptedAt: number | undefined;
  /** The state that was told last. */
  #told: Pick<WaitingState, 'kind' | 'since'> | undefined;

  constructor(settings: JudgeSettings, now: number) {
    this.#settings = settings;
    this.#state = { kind: 'CANARY', since: now, reason: '' };
    this.#startedAt = now;
    this.#waitsSince = now;
  }

  /** Of a change that was these before: they are one now, or it is a part of one. None: it begins to wait. */
  static of(before: readonly Judge[], settings: JudgeSettings, now: number): Judge {
    const created = new Judge(settings, now);
    const [oldest, ...others] = before.toSorted((a, b) => a.startedAt - b.startedAt);
    if (oldest === undefined) return created;
    const worst = [oldest, ...others].find(({ state }) => state.kind === 'HELD') ?? oldest;
    created.#state = worst.#state;
    const waits = before.map((one) => one.#waitsSince);
    const acceptedAt = Math.max(...before.map((one) => one.#acceptedAt ?? Number.POSITIVE_INFINITY));
    created.#startedAt = oldest.#startedAt;
    // What was held was judged. Together they are judged anew.
    created.#waitsSince = created.#state.kind === 'HELD' ? Math.max(...waits) : Math.min(...waits);
    created.#acceptedAt = Number.isFinite(acceptedAt) ? acceptedAt : undefined;
    created.#told = worst.#told;
    return created;
  }

  get state(): WaitingState {
    return this.#state;
  }

  /** When the change began to wait. */
  get startedAt(): number {
    return this.#startedAt;
  }

  /** Since when all canaries have accepted what waits; undefined: they have not. */
  get acceptedAt(): number | undefined {
    return this.#acceptedAt;
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
  }

  /** Upstream has sent something that now waits: the bake starts again, `max_wait` does not. */
  joined(now: number): void {
    this.#acceptedAt = undefined;
    // What was held was judged. This is judged anew.
    if (this.#state.kind === 'HELD') this.#waitsSince = now;
  }

  judge(now: number, seen: Observation): Judgement {
    const objection = objectionOf(seen);
    if (objection !== undefined) {
      this.#acceptedAt = undefined;
      this.#enter({ kind: 'HELD', since: now, ...objection });
      return wait(undefined);
    }
    if (hasAccepted(seen) && (seen.total > 0 || !seen.clientsMayComeBack)) this.#acceptedAt ??= now;
    return this.#settings.mode === 'MANUAL' ? this.#manual(now, seen) : this.#automatic(now, seen);
  }

  #manual(now: number, { total }: Observation): Judgement {
    const accepted =
      this.#acceptedAt === undefined || total === 0 ? '' : 'the canaries have accepted it, and ';
    this.#enter({ kind: 'CANARY', since: now, reason: `${accepted}mode: MANUAL waits for release` });
    return wait(undefined);
  }

  #automatic(now: number, seen: Observation): Judgement {
    const { total, accepted } = seen;
    const { bakeMs, maxWaitMs, onTimeout } = this.#settings;
    const bakedAt = this.#acceptedAt === undefined ? undefined : this.#acceptedAt + bakeMs;
    // A client that has come since may still have to answer.
    if (bakedAt !== undefined && bakedAt <= now && hasAccepted(seen))
      return { release: 'accepted', nextAt: undefined };
    const deadline = this.#waitsSince + maxWaitMs;
    if (now >= deadline && !seen.mayReturn) {
      if (onTimeout === 'PROCEED') return { release: 'timeout', nextAt: undefined };
      const reason = `no verdict within max_wait: ${accepted} of ${total} canary streams have accepted it`;
      this.#enter({ kind: 'HELD', since: now, cause: 'timeout', reason });
      return wait(bakedAt);
    }
    this.#enter({ kind: 'CANARY', since: now, reason: '' });
    return wait(bakedAt === undefined || bakedAt <= now ? deadline : Math.min(bakedAt, deadline));
  }

  /** `since` stays while the state is the same. */
  #enter(state: WaitingState): void {
    const since = isSame(this.#state, state) ? this.#state.since : state.since;
    this.#state = { ...state, since };
  }
}

/** Why what waits is shown to no other client; undefined: it may be. */
export function foundBad({
  rejection,
  found,
}: Observation): { cause: HoldCause; reason: string } | undefined {
  return rejection === undefined ? found : { cause: 'rejection', reason: rejection };
}

function objectionOf(seen: Observation): { readonly cause: HoldCause; readonly reason: string } | undefined {
  const bad = foundBad(seen);
  if (bad !== undefined) return bad;
  return seen.removals === undefined ? undefined : { cause: 'removals', reason: seen.removals };
}

const hasAccepted = ({ accepted, total, mayReturn }: Observation): boolean =>
  accepted === total && !mayReturn;

function isSame(before: WaitingState, after: WaitingState): boolean {
  if (before.kind === 'CANARY' || after.kind === 'CANARY') return before.kind === after.kind;
  return before.cause === after.cause;
}
