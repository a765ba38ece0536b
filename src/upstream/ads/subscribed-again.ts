import type { UpstreamSubscription, UpstreamSubscriptions } from './upstream-subscriptions.ts';

/** A server may answer each request although it does not have the name. */
const attempts = 3;

/**
 * SotW where absence means nothing: names that one request left out and a later one names again. Upstream sends them again
 * if it has seen the request without them. A response that is on its way makes requests outdated (protocol §3.3), and then
 * upstream knows nothing of it:
 *
 *     → [a, b]   ← n1 {a, b}   → n1 []   → n1 [a, b]   ← n2 {b}, sent before these two arrived   → n2 [a, b], no change
 *
 * What the next responses lack is left out and named once more.
 */
export class SubscribedAgain {
  readonly #leftOut = new Set<string>();
  readonly #waiting = new Map<UpstreamSubscription, number>();

  leave(subscription: UpstreamSubscription): void {
    this.#leftOut.add(keyOf(subscription));
  }

  /** `leaving`: the request before leaves these out. */
  subscribe(subscriptions: readonly UpstreamSubscription[], leaving: readonly UpstreamSubscription[]): void {
    if (this.#leftOut.size + leaving.length === 0) return;
    const left = new Set(leaving);
    for (const subscription of subscriptions) {
      if (subscription.kind !== 'name' || this.#waiting.has(subscription)) continue;
      if (left.has(subscription) || this.#leftOut.has(keyOf(subscription)))
        this.#waiting.set(subscription, attempts);
    }
  }

  received(subscription: UpstreamSubscription): void {
    this.#waiting.delete(subscription);
  }

  /** A response has come: those that it may have made outdated. */
  unanswered(subscriptions: UpstreamSubscriptions): readonly UpstreamSubscription[] {
    const unanswered: UpstreamSubscription[] = [];
    for (const [subscription, left] of this.#waiting) {
      if (left === 0 || !subscriptions.has(subscription)) this.#waiting.delete(subscription);
      else {
        this.#waiting.set(subscription, left - 1);
        unanswered.push(subscription);
      }
    }
    return unanswered;
  }

  /** No response is on its way any more that was sent before the names were left out. */
  forgetLeft(): void {
    this.#leftOut.clear();
  }

  clear(): void {
    this.#leftOut.clear();
    this.#waiting.clear();
  }
}

const keyOf = ({ selector, parameters }: UpstreamSubscription): string => `${parameters.id} ${selector}`;
