import { Store } from '../cache/store.ts';
import { resourceName } from '../model/brand.ts';
import { type Catalog, isVariant } from '../model/catalog.ts';
import type { Clock, Timer } from '../model/clock.ts';
import { UNCONSTRAINED } from '../model/constraints.ts';
import { isCollection } from '../model/selection.ts';
import { type Holder, type Interest, type Put, transaction } from '../model/transaction.ts';
import type { Relay } from '../relay.ts';
import type { Views } from '../views/views.ts';
import { ALL_INTERESTS, INTERESTS_TYPE, nameOfInterest } from '../wire/sibling.ts';

/** How often the list of interests is made anew while a sibling reads it. Milliseconds. */
const listIntervalMs = 1000;

const LISTED: Holder = { key: 'interests', upstream: '', role: 'wildcard' };

/** What this relay can answer, as resources: so a new replica learns what it will be asked for. */
export class InterestList {
  readonly #relay: Relay;
  readonly #clock: Clock;
  readonly #store: Store;
  readonly #views: Views;
  #timer: Timer | undefined;

  constructor(relay: Relay, clock: Clock, viewsOf: (catalog: Catalog) => Views) {
    this.#relay = relay;
    this.#clock = clock;
    this.#store = new Store({ clock, ambiguous: () => {}, expiring: () => {} });
    this.#store.addInterest(ALL_INTERESTS);
    this.#views = viewsOf(this.#store);
  }

  /** The views of the list, which is up to date now and kept so while somebody reads it. */
  read(): Views {
    if (this.#timer === undefined) this.#renew();
    return this.#views;
  }

  stop(): void {
    this.#timer?.cancel();
    this.#views.stop();
  }

  #renew(): void {
    const puts = [...this.#answerable()].map(listed);
    // A relay without anything is no better than none: who asks it hears nothing.
    if (puts.length > 0) {
      const all = { puts, complete: true, resolved: [ALL_INTERESTS] };
      this.#views.publish(this.#store.apply(transaction({ holder: LISTED, type: INTERESTS_TYPE, ...all })));
    }
    this.#timer = this.#clock.after(listIntervalMs, () => {
      this.#timer = undefined;
      if (!this.#views.all()[Symbol.iterator]().next().done) this.#renew();
    });
  }

  *#answerable(): Iterable<Interest> {
    const { released } = this.#relay.store.sides;
    for (const interest of this.#relay.views.interests().all()) {
      const { type, selector, parameters } = interest;
      const isAnswered = isCollection(selector)
        ? released.isResolved(interest)
        : isVariant(released.peek(type, selector, parameters));
      if (isAnswered) yield interest;
    }
  }
}

function listed(interest: Interest): Put {
  return {
    name: resourceName(nameOfInterest(interest)),
    constraints: UNCONSTRAINED,
    version: '1',
    any: anyOfNothing,
    aliases: [],
    ttlMilliseconds: undefined,
    doNotCache: false,
    metadata: undefined,
  };
}

/** An Any of this type without a value: field 1, the type URL. */
const anyOfNothing = Buffer.concat([Buffer.from([0x0a, INTERESTS_TYPE.length]), Buffer.from(INTERESTS_TYPE)]);
