import type { Constraints } from '../../model/constraints.ts';
import type { Parameters } from '../../model/parameters.ts';
import type { Selector } from '../../model/transaction.ts';
import type { UpstreamSubscription } from './upstream-subscriptions.ts';

const none: readonly never[] = [];

/** Names that were taken back before they were answered: their answers are on the way, and in order. */
export class UnansweredUnsubscribed {
  readonly #bySelector = new Map<Selector, Set<UpstreamSubscription>>();
  /** Of those that a resource has answered. The same that is subscribed again has its own answer still to come. */
  readonly #answered = new Map<Selector, Set<Parameters>>();

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

  /** A resource has come: it answers all of these that it is for; if there are none, those that are subscribed again. */
  received(name: Selector, constraints: Constraints): void {
    if (this.#bySelector.size + this.#answered.size === 0) return;
    const former = this.of(name).filter(({ parameters }) => constraints.matches(parameters));
    const answered = this.#answered.get(name) ?? new Set();
    for (const one of former) {
      this.delete(one);
      answered.add(one.parameters);
    }
    if (former.length === 0)
      for (const parameters of answered) if (constraints.matches(parameters)) answered.delete(parameters);
    if (answered.size > 0) this.#answered.set(name, answered);
    else this.#answered.delete(name);
  }

  /** Whether what came for this subscription may have answered the one before it. */
  mayHaveTakenAnswerOf({ selector, parameters }: UpstreamSubscription): boolean {
    return this.#answered.get(selector)?.has(parameters) === true;
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
    this.#answered.clear();
  }
}
