import type { Interest, Removal, Transaction } from '../../model/transaction.ts';
import type { IncomingSotw } from '../../wire/response-reader.ts';
import type { ProtocolStrategy, StreamStatus } from './protocol-strategy.ts';
import type { StepEffects } from './step-effects.ts';
import type { StreamProtocolOptions, TypeState } from './stream-protocol.ts';
import { removeUnconfirmed } from './type-state.ts';
import { markResolved, type UpstreamSubscription, waitingCollections } from './upstream-subscriptions.ts';

/**
 * Some control planes split the first answer to a wildcard. It is complete when nothing more has come for this long
 * (protocol §5b).
 */
const quietPeriodMs = 300;
const longestQuietWaitMs = 3000;
/**
 * A fifteenth of resource_timeout is added where the upstream may be a relay that does not know yet: 16 s instead of 15 s. The relay above
 * waits 15 s for its own control plane, and its answer must arrive first.
 */
const extensionShare = 15;

/** What follows from silence: the answer to a wildcard is complete, a name is absent, or a stream is useless. */
export class Silence<S extends TypeState, R extends IncomingSotw> {
  readonly #options: StreamProtocolOptions;
  readonly #strategy: ProtocolStrategy<S, R>;
  readonly #stream: StreamStatus;
  readonly #effects: StepEffects;

  constructor(
    options: StreamProtocolOptions,
    strategy: ProtocolStrategy<S, R>,
    stream: StreamStatus,
    effects: StepEffects,
  ) {
    this.#options = options;
    this.#strategy = strategy;
    this.#stream = stream;
    this.#effects = effects;
  }

  /** These were sent just now. */
  asked(state: S, subscriptions: readonly UpstreamSubscription[]): void {
    const unanswered = subscriptions.filter(({ resolvedOnThisStream }) => !resolvedOnThisStream);
    const wildcards = unanswered.filter(({ kind }) => kind === 'wildcard');
    const suffix = `${state.requestCount} ${state.type}`;
    if (wildcards.length > 0) this.#awaitWildcards(state, `overdue ${suffix}`, wildcards);
    const expiring = unanswered.filter((one) => this.#strategy.absentAfterTimeout(state, one));
    if (expiring.length > 0) {
      this.#effects.arm(`expire ${suffix}`, this.#options.resourceTimeoutMs, () =>
        this.#expire(state, `expire ${suffix}`, expiring, false),
      );
    }
  }

  /** A response has come: a wildcard or glob that it may answer is answered when no more follow. */
  heard(state: S, said: Transaction): void {
    const { sweepPending, subscriptions, type } = state;
    const waiting = waitingCollections(sweepPending ? subscriptions.all() : subscriptions.unresolved);
    const answered = this.#strategy.answeredBy(state, said, waiting);
    for (const subscription of answered) subscription.responseSeen = true;
    if (state.holder.exactParameters !== undefined) this.#resolveWildcards(state, answered);
    if (!sweepPending && !subscriptions.unresolved.values().some(({ responseSeen }) => responseSeen)) return;
    this.#effects.arm(`quiet ${type}`, quietPeriodMs, () => this.#resolveAfterQuiet(state));
    // A busy control plane is never quiet.
    if (!this.#effects.isArmed(`enough ${type}`)) {
      this.#effects.arm(`enough ${type}`, longestQuietWaitMs, () => this.#resolveAfterQuiet(state));
    }
  }

  #resolveWildcards(state: S, answered: ReadonlySet<UpstreamSubscription>): void {
    const resolved: Interest[] = [];
    for (const subscription of answered)
      if (subscription.kind === 'wildcard') markResolved(state.subscriptions, subscription, resolved);
    this.#conclude(state, resolved, []);
  }

  #awaitWildcards(state: S, timer: string, subscriptions: readonly UpstreamSubscription[]): void {
    const { resourceTimeoutMs } = this.#options;
    this.#effects.arm(timer, resourceTimeoutMs, () => {
      const waiting = subscriptions.filter(
        (subscription) => !subscription.resolvedOnThisStream && state.subscriptions.has(subscription),
      );
      if (waiting.length === 0) return;
      // The wildcard was subscribed later than other things on this stream, so its answer cannot be recognised. On a
      // new stream it is in the first request, and the first response answers it.
      if (state.nonce !== '' && waiting.some(({ requestNumber }) => requestNumber > 1)) {
        const reason = `no answer to the wildcard of ${state.type} within ${resourceTimeoutMs / 1000} s`;
        this.#effects.add({ kind: 'renew', reason });
        return;
      }
      this.#effects.add({ kind: 'overdue' });
      this.#awaitWildcards(state, timer, waiting);
    });
  }

  #expire(
    state: S,
    timer: string,
    subscriptions: readonly UpstreamSubscription[],
    isExtended: boolean,
  ): void {
    const { resourceTimeoutMs } = this.#options;
    // The rejected response may have been the answer, so nothing is concluded yet.
    if (state.lastNack !== undefined) {
      this.#effects.arm(timer, resourceTimeoutMs, () => this.#expire(state, timer, subscriptions, false));
      return;
    }
    const resolved: Interest[] = [];
    const removals: Removal[] = [];
    const extended: UpstreamSubscription[] = [];
    for (const subscription of subscriptions) {
      if (!state.subscriptions.has(subscription)) continue;
      const outcome = this.#strategy.onTimeout(state, subscription, isExtended);
      if (outcome === 'extend') extended.push(subscription);
      if (typeof outcome === 'string') continue;
      removals.push(...outcome);
      markResolved(state.subscriptions, subscription, resolved);
    }
    this.#conclude(state, resolved, removals);
    if (extended.length === 0) return;
    this.#effects.arm(timer, resourceTimeoutMs / extensionShare, () =>
      this.#expire(state, timer, extended, true),
    );
  }

  #resolveAfterQuiet(state: S): void {
    this.#effects.cancel(`quiet ${state.type}`);
    this.#effects.cancel(`enough ${state.type}`);
    // A part of the answer was rejected, so it is not complete.
    if (state.lastNack !== undefined) return;
    const resolved: Interest[] = [];
    for (const subscription of [...state.subscriptions.unresolved])
      if (subscription.responseSeen) markResolved(state.subscriptions, subscription, resolved);
    this.#conclude(state, resolved, state.sweepPending ? this.#sweep(state) : []);
  }

  /** Removes what the answered wildcards and globs have from earlier streams. */
  #sweep(state: S): Removal[] {
    const collections = state.subscriptions.all().filter(({ kind }) => kind !== 'name');
    const { answered = [], waiting = [] } = Object.groupBy(collections, ({ responseSeen }) =>
      responseSeen ? 'answered' : 'waiting',
    );
    state.sweepPending = waiting.length > 0;
    return answered.flatMap((subscription) =>
      removeUnconfirmed(state, subscription, this.#stream.number, this.#options.locators),
    );
  }

  #conclude(state: S, resolved: readonly Interest[], removals: readonly Removal[]): void {
    if (resolved.length > 0 || removals.length > 0) this.#effects.applyPart(state, { resolved, removals });
  }
}
