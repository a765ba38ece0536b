import { Store } from '../cache/store.ts';
import { type ResourceName, resourceName } from '../model/brand.ts';
import { type Catalog, isVariant } from '../model/catalog.ts';
import type { Clock, Timer } from '../model/clock.ts';
import { UNCONSTRAINED } from '../model/constraints.ts';
import { isCollection } from '../model/selection.ts';
import { type Pace, TimeSlices } from '../model/time-slices.ts';
import { type Holder, type Interest, type Put, type Removal, transaction } from '../model/transaction.ts';
import type { Relay } from '../relay.ts';
import type { Views } from '../views/views.ts';
import { ALL_INTERESTS, INTERESTS_TYPE, nameOfInterest } from '../wire/via.ts';

/** How long after a look at all interests the next one begins, while a sibling reads the list. Milliseconds. */
const listIntervalMs = 1000;

const LISTED: Holder = { key: 'interests', upstream: '', role: 'wildcard' };

/** What this relay can answer, as resources: so a new replica learns what it will be asked for. */
export class InterestList {
  readonly #relay: Relay;
  readonly #clock: Clock;
  readonly #store: Store;
  readonly #views: Views;
  readonly #slices: TimeSlices;
  /** What is on the list, by the interests that the relay has: most are the same the next time. */
  #listed: ReadonlyMap<Interest, ResourceName> = new Map();
  #renewal: 'none' | 'looking' | Timer = 'none';
  #isStopped = false;

  constructor(relay: Relay, clock: Clock, viewsOf: (catalog: Catalog) => Views) {
    this.#relay = relay;
    this.#clock = clock;
    this.#slices = new TimeSlices(clock);
    this.#store = new Store({ clock, ambiguous: () => {}, expiring: () => {} });
    this.#store.addInterest(ALL_INTERESTS);
    this.#views = viewsOf(this.#store);
  }

  /** The views of the list, which is kept up to date while somebody reads it. */
  read(): Views {
    if (this.#renewal === 'none') void this.#renew();
    return this.#views;
  }

  stop(): void {
    this.#isStopped = true;
    if (typeof this.#renewal === 'object') this.#renewal.cancel();
    this.#views.stop();
  }

  async #renew(): Promise<void> {
    this.#renewal = 'looking';
    const found = await this.#slices.run((pace) => this.#look(pace));
    if (this.#isStopped) return;
    this.#publish(found);
    this.#renewal = this.#clock.after(listIntervalMs, () => {
      this.#renewal = 'none';
      if (!this.#views.all()[Symbol.iterator]().next().done) void this.#renew();
    });
  }

  /** In slices: clients of this relay must not wait for its siblings. */
  async #look(pace: Pace): Promise<ReadonlyMap<Interest, ResourceName>> {
    const found = new Map<Interest, ResourceName>();
    for (const interest of this.#answerable()) {
      await pace.yieldIfDue();
      found.set(interest, this.#listed.get(interest) ?? resourceName(nameOfInterest(interest)));
    }
    return found;
  }

  /** Only what has changed. */
  #publish(found: ReadonlyMap<Interest, ResourceName>): void {
    // A relay without anything is no better than none: who asks it hears nothing.
    if (found.size === 0) return;
    const before = this.#listed;
    const isSame = found.size === before.size && found.keys().every((interest) => before.has(interest));
    if (isSame) return;
    this.#listed = found;
    // An interest that has ended and is there again is another object with the same name.
    const [now, earlier] = [new Set(found.values()), new Set(before.values())];
    const puts = now
      .values()
      .filter((name) => !earlier.has(name))
      .map(listed)
      .toArray();
    const removals = earlier
      .values()
      .filter((name) => !now.has(name))
      .map(unlisted)
      .toArray();
    if (puts.length === 0 && removals.length === 0) return;
    const changes = { puts, removals, resolved: [ALL_INTERESTS] };
    this.#views.publish(this.#store.apply(transaction({ holder: LISTED, type: INTERESTS_TYPE, ...changes })));
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

function unlisted(name: ResourceName): Removal {
  return { name, constraints: UNCONSTRAINED };
}

function listed(name: ResourceName): Put {
  return {
    name,
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
