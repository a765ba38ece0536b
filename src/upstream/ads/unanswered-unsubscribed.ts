import type { Selector } from '../../model/transaction.ts';
import type { UpstreamSubscription } from './upstream-subscriptions.ts';

const none: readonly never[] = [];

/** Names that were taken back before they were answered: their answers are on the way, and in order. */
export class UnansweredUnsubscribed {
  readonly #bySelector = new Map<Selector, Set<UpstreamSubscription>>();

  add(subscription: UpstreamSubscription): void {
    const subscriptions = this.#bySelector.get(subscription.selector);
    if (subscriptions === undefined) this.#bySelector.set(subscription.selector, new Set([subscription]));
    else subscriptions.add(subscription);
  }

  /** Those that name it; it may change while this is read. */
  of(name: Selector): readonly UpstreamSubscription[] {
    const subscriptions = this.#bySelector.get(name);
    return subscriptions === undefined ? none : [...subscriptions];
  }

  /** False: it is none of them. */
  delete(subscription: UpstreamSubscription): boolean {
    const subscriptions = this.#bySelector.get(subscription.selector);
    if (subscriptions?.delete(subscription) !== true) return false;
    if (subscriptions.size === 0) this.#bySelector.delete(subscription.selector);
    return true;
  }

  clear(): void {
    this.#bySelector.clear();
  }
}
