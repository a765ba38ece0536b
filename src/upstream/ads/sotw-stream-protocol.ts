import type { ResourceName } from '../../model/brand.ts';
import type { Result } from '../../model/result.ts';
import {
  type Heartbeat,
  type Interest,
  type Put,
  type Removal,
  type Transaction,
  transaction,
} from '../../model/transaction.ts';
import { Code } from '../../wire/grpc-status.ts';
import type { OutgoingRequest } from '../../wire/request-writer.ts';
import type { Locator } from '../../wire/requests.ts';
import {
  type IncomingSotw,
  readSotwResource,
  readSotwResponse,
  type UnreadableResponse,
} from '../../wire/response-reader.ts';
import type { Identity } from './accept-resource.ts';
import { SeenVariants, type VariantKey } from './acked-resources.ts';
import { BaseStreamProtocol } from './base-stream-protocol.ts';
import type { PreviousResponse } from './previous-response.ts';
import { atOnce, type InTurns } from './reading-pace.ts';
import { ResponseParts } from './response-parts.ts';
import { readSotw, type SotwExpectation, type SotwReading } from './sotw-reading.ts';
import type { TypeState } from './stream-protocol.ts';
import { covered } from './type-state.ts';
import { markResolved, type UpstreamSubscription, unansweredInterests } from './upstream-subscriptions.ts';

interface SotwState extends TypeState {
  /** The last response, where the next one can be compared with it. */
  previous: PreviousResponse | undefined;
  /** A transaction has told the store that there is nothing but what is held here. */
  storeSwept: boolean;
  /** Something was named on this stream: from then on an empty list subscribes to nothing (protocol §3.6). */
  hasNamed: boolean;
  names: readonly string[];
  locators: readonly Locator[];
  /**
   * The newest request that upstream has seen for certain: a response had something that only this request subscribed
   * to.
   */
  lastAttributedRequest: number;
  /**
   * Something was unsubscribed on this stream. A resource may still come for it, so it does not prove which request
   * upstream has seen.
   */
  attributionAmbiguous: boolean;
  /** A new stream will be opened soon, because the responses do not show which request they answer. */
  renewalScheduled: boolean;
}

/** How long the answer to a later wildcard or glob may show that it is one, before a new stream is opened for it. */
const attributionWaitMs = 2000;

/**
 * A state-of-the-world stream (protocol §3 from the client's side). Which responses prove an absence: SotW does not say
 * which request a response answers, and one that was on its way when a name was added does not have it. The first
 * response of a type on a stream cannot be older than the type's first request, so all names of that request are
 * answered by any response; a name added later is absent only once it has come and then lacks, or by resource_timeout.
 */
export class SotwStreamProtocol extends BaseStreamProtocol<SotwState, IncomingSotw, SotwReading> {
  protected createState(base: TypeState): SotwState {
    const unheard = { lastAttributedRequest: 0, attributionAmbiguous: false, renewalScheduled: false };
    return {
      ...base,
      ...unheard,
      previous: undefined,
      storeSwept: false,
      hasNamed: false,
      names: [],
      locators: [],
    };
  }

  protected read(bytes: Buffer): Result<IncomingSotw, UnreadableResponse> {
    return readSotwResponse(bytes);
  }

  protected reset(state: SotwState): void {
    state.hasNamed = false;
    state.names = [];
    state.locators = [];
    state.lastAttributedRequest = 0;
    state.attributionAmbiguous = false;
    state.renewalScheduled = false;
    // Control planes count from 1 again when they restart, and are silent about a version that they think is known:
    // without one everything comes, and is compared (protocol §3.10).
    state.version = '';
  }

  protected sendChanges(
    state: SotwState,
    fresh: readonly UpstreamSubscription[],
    dropped: readonly UpstreamSubscription[],
  ): void {
    if (!state.hasNamed && dropped.some((subscription) => subscription.kind === 'wildcard')) {
      // An empty list still means the wildcard. It can be unsubscribed only after "*" was named.
      this.#sendNames(state, ['*'], []);
    }
    const again = new Set(fresh.map((subscription) => subscription.selector));
    const isFresh = new Set(fresh);
    // In a full-state type a name that is subscribed again must stay in the list: its absence would delete the
    // resource.
    if (
      dropped.some(
        (subscription) => again.has(subscription.selector) && !(isFull(state) && isFresh.has(subscription)),
      )
    ) {
      // The store has dropped the resource. Upstream sends it again only if one request leaves the name out and the
      // next one adds it.
      this.#subscribeTo(
        state,
        activeSubscriptions(state).filter((subscription) => !isFresh.has(subscription)),
      );
    }
    this.#subscribeTo(state, activeSubscriptions(state));
  }

  #subscribeTo(state: SotwState, subscriptions: readonly UpstreamSubscription[]): void {
    const only = subscriptions.length === 1 ? subscriptions[0] : undefined;
    if (only?.kind === 'wildcard' && only.parameters.entries.size === 0 && !state.hasNamed) {
      // Every control plane knows the wildcard as an empty first request; not all know "*".
      if (state.info.legacyWildcard) return this.#sendNames(state, [], []);
    }
    const names: string[] = [];
    const locators: Locator[] = [];
    for (const { selector, parameters } of subscriptions) {
      if (parameters.entries.size === 0) names.push(selector);
      else locators.push({ name: selector, parameters: [...parameters.entries] });
    }
    this.#sendNames(state, names, locators);
  }

  #sendNames(state: SotwState, names: readonly string[], locators: readonly Locator[]): void {
    state.names = names;
    state.locators = locators;
    if (names.length + locators.length > 0) state.hasNamed = true;
    this.send(this.reply(state));
  }

  /**
   * Also used for subscription changes. After a NACK they repeat error_detail, so that they do not look like an ACK
   * (protocol §3.4).
   */
  protected reply(state: SotwState): OutgoingRequest {
    const { type, version, nonce, names, locators, lastNack } = state;
    return { kind: 'sotw', typeUrl: type, version, nonce, names, locators, error: lastNack };
  }

  /** An empty request for a new type would subscribe to all of it. */
  protected refuse(): undefined {
    return undefined;
  }

  protected variantsToBeResent(): Set<VariantKey> {
    return new Set();
  }

  /** Each response is of all that is subscribed; which request it has seen, only its content shows. */
  protected mayAnswer(state: SotwState, subscription: UpstreamSubscription): boolean {
    if (subscription.requestNumber === 1) return true;
    // There is no other in this conversation: what comes is a complete state of it, from whenever.
    if (!this.options.locators && subscription.kind === 'wildcard') return true;
    return subscription.requestNumber <= state.lastAttributedRequest;
  }

  protected absentAfterTimeout(state: SotwState, subscription: UpstreamSubscription): boolean {
    return state.info.fullState && subscription.kind !== 'wildcard';
  }

  /** A relay above, where absence deletes, says nothing at all before all of the first request is known to it. */
  protected grantsGrace(state: SotwState, subscriptions: readonly UpstreamSubscription[]): boolean {
    if (state.nonce !== '') return false;
    // A response that arrives after resource_timeout was made after the request. A name that it lacks is absent.
    for (const subscription of subscriptions) subscription.requestNumber = 1;
    return true;
  }

  protected removalsAtTimeout(state: SotwState, subscription: UpstreamSubscription): Removal[] | undefined {
    // Held from another stream, and this one has not said that it is gone.
    const holds = covered(state, subscription).some(
      ({ constraints }) => !this.options.locators || constraints.matches(subscription.parameters),
    );
    if (!holds) return [];
    // A response that arrives after resource_timeout was made after the request. A name that it lacks is absent.
    subscription.requestNumber = 1;
    return undefined;
  }

  protected onUnsubscribed(state: SotwState, subscription?: UpstreamSubscription): void {
    state.previous = undefined;
    if (subscription !== undefined && subscription.requestNumber > 0) state.attributionAmbiguous = true;
  }

  protected *judge(state: SotwState, response: IncomingSotw): InTurns<Result<SotwReading>> {
    const { rules, previous } = state;
    const reading = yield* readSotw(this.#expectation(state), response);
    // Another stamp came in between, or something was unsubscribed.
    if (rules !== state.rules || previous !== state.previous)
      return atOnce(readSotw(this.#expectation(state), response));
    return reading;
  }

  #expectation(state: SotwState): SotwExpectation {
    const fullState = isFull(state);
    // The last received match wins where upstream cannot delete: variants all count as received then (protocol §5). As
    // long as the store may have more than is held, the whole is said to it.
    const comparable = fullState ? state.storeSwept : state.previous?.constrained === false;
    const previous = comparable ? state.previous : undefined;
    return { reader: this.#parts(state), acked: state.acked, fullState, previous };
  }

  #parts({ rules }: TypeState): ResponseParts {
    const { entriesPerTurn } = this.options;
    return new ResponseParts({ rules, readResource: readSotwResource, entriesPerTurn });
  }

  protected commit(state: SotwState, response: IncomingSotw, reading: SotwReading): Transaction {
    const { subscriptions, acked } = state;
    const puts: Put[] = [];
    const heartbeats: Heartbeat[] = [];
    const resolved: Interest[] = [];
    let comparable = true;
    for (const put of reading.puts) {
      const { name, constraints, aliases, ttlMilliseconds } = put;
      if (ttlMilliseconds !== undefined) comparable = false; // each response starts it anew
      if (!subscriptions.includes(name, aliases)) {
        comparable = false; // an answer to what nobody wants any more, or never did
      } else if (put.any === undefined && ttlMilliseconds !== undefined) {
        if (acked.get(name, constraints.key) !== undefined)
          heartbeats.push({ name, constraints, ttlMilliseconds });
      } else {
        const version = put.version === '' ? response.version : put.version;
        puts.push({ ...put, version });
        acked.put(name, constraints, version, this.streamNumber, false);
      }
      for (const subscription of subscriptions.matching(name, aliases, constraints)) {
        if (subscription.kind === 'name') markResolved(subscriptions, subscription, resolved);
      }
    }
    this.#attribute(state, puts);
    if (isFull(state)) this.#resolvePresent(state, reading.missing, resolved);
    const namesWithErrors = this.#resolveErrors(state, reading, resolved);
    this.#resolveMissing(state, namesWithErrors, resolved);
    const removals = reading.missing
      .filter((identity) => !this.#mayStillExist(state, identity, namesWithErrors))
      .map(({ name, constraints }): Removal => ({ name, constraints }));
    if (removals.length < reading.missing.length) comparable = false;
    for (const { name, constraints } of removals) {
      const gone = acked.get(name, constraints.key);
      if (gone !== undefined) acked.delete(gone);
    }
    const full = isFull(state);
    // Before the first full state, the store may hold resources that this session does not know: those restored from
    // disk.
    const complete =
      full && !state.storeSwept && removals.length === reading.missing.length && namesWithErrors.size === 0;
    if (complete) state.storeSwept = true;
    const { identities } = reading;
    const constrained = identities.some((identity) => identity.constraints.key !== '');
    state.previous = comparable ? { resources: response.resources, identities, constrained } : undefined;
    const { holder, type } = state;
    const { version } = response;
    const { resourceErrors } = reading;
    const cannotDelete = !full;
    return transaction({
      holder,
      type,
      version,
      puts,
      removals,
      heartbeats,
      resourceErrors,
      complete,
      resolved,
      unanswered: unansweredInterests(subscriptions, [...removals, ...resourceErrors]),
      cannotDelete,
    });
  }

  /**
   * A response can arrive after a second wildcard was subscribed and still answer only the first: → names [*], →
   * names [*, xdstp://a/*], ← response to the first request. Names missing from it say nothing about the second.
   */
  #attribute(state: SotwState, puts: readonly Put[]): void {
    const { subscriptions } = state;
    if (state.requestCount < 2 || !subscriptions.hasCollection) return;
    for (const { name, aliases, constraints } of state.attributionAmbiguous ? [] : puts) {
      const asks = subscriptions
        .matching(name, aliases, constraints)
        .filter(({ requestNumber }) => requestNumber > 0);
      if (asks.length === 0) continue;
      state.lastAttributedRequest = Math.max(
        state.lastAttributedRequest,
        Math.min(...asks.map(({ requestNumber }) => requestNumber)),
      );
    }
    const doubtful = (): boolean =>
      [...subscriptions.unresolved].some(
        (subscription) =>
          subscription.kind !== 'name' &&
          subscription.requestNumber > 0 &&
          !this.mayAnswer(state, subscription),
      );
    if (state.renewalScheduled || !doubtful()) return;
    state.renewalScheduled = true;
    this.arm(`doubt ${state.type}`, attributionWaitMs, () => {
      state.renewalScheduled = false;
      if (doubtful())
        this.requestNewStream(`what ${state.type} is asked for anew can only be told on a new stream`);
    });
  }

  /** What is there is answered, also by what has not changed: a later lack of it is an absence. */
  #resolvePresent(
    { subscriptions, acked }: SotwState,
    gone: readonly Identity[],
    resolved: Interest[],
  ): void {
    const lacking = new SeenVariants();
    for (const { name, constraints } of gone) lacking.add(name, constraints.key);
    for (const subscription of [...subscriptions.unresolved]) {
      if (subscription.kind !== 'name' || subscription.requestNumber === 0) continue;
      const present = acked
        .of(subscription.selector)
        .some(
          ({ name, constraints }) =>
            !lacking.has(name, constraints.key) &&
            (!this.options.locators || constraints.matches(subscription.parameters)),
        );
      if (present) markResolved(subscriptions, subscription, resolved);
    }
  }

  /**
   * The names that have an error. That they are missing is no deletion: only NOT_FOUND in delta removes what is
   * cached (§8).
   */
  #resolveErrors(
    state: SotwState,
    { resourceErrors }: SotwReading,
    resolved: Interest[],
  ): ReadonlySet<ResourceName> {
    const namesWithErrors = new Set<ResourceName>();
    for (const { name, constraints, code } of resourceErrors) {
      if (code !== Code.NOT_FOUND || state.acked.has(name)) {
        namesWithErrors.add(name);
        continue;
      }
      for (const subscription of state.subscriptions.matching(name, [], constraints)) {
        // The error does not say for which parameters. It counts for all locators of this name that were in the first
        // request.
        if (subscription.kind === 'name' && (subscription.requestNumber === 1 || !this.options.locators))
          markResolved(state.subscriptions, subscription, resolved);
      }
    }
    return namesWithErrors;
  }

  /** What any response answers, because it was in the first request of the stream. */
  #resolveMissing(state: SotwState, namesWithErrors: ReadonlySet<ResourceName>, resolved: Interest[]): void {
    if (!isFull(state)) return;
    for (const subscription of [...state.subscriptions.unresolved]) {
      if (subscription.requestNumber === 1 && !namesWithErrors.has(subscription.selector))
        markResolved(state.subscriptions, subscription, resolved);
    }
    for (const subscription of state.subscriptions.named('*'))
      if (subscription.requestNumber === 1) subscription.resolvedOnThisStream = true;
  }

  /** Whether it may be there although this response does not have it. */
  #mayStillExist(
    state: SotwState,
    { name, constraints }: Identity,
    namesWithErrors: ReadonlySet<ResourceName>,
  ): boolean {
    if (namesWithErrors.has(name)) return true;
    // A resource that this stream delivered and a later response lacks is removed, even if its wildcard is not
    // resolved yet.
    if (state.acked.get(name, constraints.key)?.confirmedOnStream === this.streamNumber) return false;
    const subscriptions = state.subscriptions.matching(name, [], constraints);
    return (
      subscriptions.length > 0 &&
      !subscriptions.some(
        (subscription) => subscription.resolvedOnThisStream || subscription.requestNumber === 1,
      )
    );
  }
}

function activeSubscriptions({ subscriptions }: SotwState): readonly UpstreamSubscription[] {
  return subscriptions
    .all()
    .filter(({ suspended }) => !suspended)
    .toArray();
}

function isFull(state: SotwState): boolean {
  return state.info.fullState || state.holder.role === 'wildcard';
}
