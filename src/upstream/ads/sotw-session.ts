import type { ResourceName } from '../../model/brand.ts';
import { ok, type Result } from '../../model/result.ts';
import {
  type Heartbeat,
  type Interest,
  type Put,
  type Removal,
  type Transaction,
  transaction,
} from '../../model/transaction.ts';
import type { OutgoingRequest } from '../../wire/request-writer.ts';
import type { Locator } from '../../wire/requests.ts';
import { type IncomingSotw, readSotwResponse, type UnreadableResponse } from '../../wire/response-reader.ts';
import { Code } from '../../wire/status.ts';
import type { Identity } from './arrivals.ts';
import { Seen, type VariantKey } from './held.ts';
import type { Image } from './image.ts';
import type { TypeState } from './machine.ts';
import { SessionMachine } from './session-machine.ts';
import { readSotw, type SotwReading } from './sotw-reading.ts';
import { covered } from './type-state.ts';
import { type Ask, pendingOf, settle } from './wants.ts';

interface SotwState extends TypeState {
  /** The last response, where the next one can be compared with it. */
  image: Image | undefined;
  /** A transaction has told the store that there is nothing but what is held here. */
  swept: boolean;
  /** Something was named on this stream: from then on an empty list subscribes to nothing (protocol §3.6). */
  named: boolean;
  names: readonly string[];
  locators: readonly Locator[];
  /** The newest request that a response has shown to be heard: it had something that no earlier one asked for. */
  heardOf: number;
  /** Something was taken back on this stream: what comes may still be for that, and shows nothing. */
  ambiguous: boolean;
  /** A new stream is about to be opened, as nothing else can tell what was heard. */
  doubted: boolean;
}

/** How long the answer to a later wildcard or glob may show that it is one, before a new stream is opened for it. */
const doubtMs = 2000;

/**
 * A state-of-the-world stream (protocol §3 from the client's side). Which responses prove an absence: SotW does not say
 * which request a response answers, and one that was on its way when a name was added does not have it. The first
 * response of a type on a stream cannot be older than the type's first request, so all names of that request are
 * answered by any response; a name added later is absent only once it has come and then lacks, or by resource_timeout.
 */
export class SotwSession extends SessionMachine<SotwState, IncomingSotw> {
  protected createState(base: TypeState): SotwState {
    const unheard = { heardOf: 0, ambiguous: false, doubted: false };
    return { ...base, ...unheard, image: undefined, swept: false, named: false, names: [], locators: [] };
  }

  protected read(bytes: Buffer): Result<IncomingSotw, UnreadableResponse> {
    return readSotwResponse(bytes);
  }

  protected reset(state: SotwState): void {
    state.named = false;
    state.names = [];
    state.locators = [];
    state.heardOf = 0;
    state.ambiguous = false;
    state.doubted = false;
    // Control planes count from 1 again when they restart, and are silent about a version that they think is known:
    // without one everything comes, and is compared (protocol §3.10).
    state.version = '';
  }

  protected change(state: SotwState, fresh: readonly Ask[], dropped: readonly Ask[]): void {
    if (!state.named && dropped.some((ask) => ask.kind === 'wildcard')) {
      // An empty list is the wildcard still: it can only be taken back once "*" was named.
      this.#ask(state, ['*'], []);
    }
    const again = new Set(fresh.map((ask) => ask.selector));
    const isFresh = new Set(fresh);
    // What is only asked once more must not be missing where absence deletes.
    if (dropped.some((ask) => again.has(ask.selector) && !(isFull(state) && isFresh.has(ask)))) {
      // The store has let go of it: upstream must see it go, too, to send it again.
      this.#askFor(
        state,
        asking(state).filter((ask) => !isFresh.has(ask)),
      );
    }
    this.#askFor(state, asking(state));
  }

  #askFor(state: SotwState, asks: readonly Ask[]): void {
    const only = asks.length === 1 ? asks[0] : undefined;
    if (only?.kind === 'wildcard' && only.parameters.entries.size === 0 && !state.named) {
      // Every control plane knows the wildcard as an empty first request; not all know "*".
      if (state.info.legacyWildcard) return this.#ask(state, [], []);
    }
    const names: string[] = [];
    const locators: Locator[] = [];
    for (const { selector, parameters } of asks) {
      if (parameters.entries.size === 0) names.push(selector);
      else locators.push({ name: selector, parameters: [...parameters.entries] });
    }
    this.#ask(state, names, locators);
  }

  #ask(state: SotwState, names: readonly string[], locators: readonly Locator[]): void {
    state.names = names;
    state.locators = locators;
    if (names.length + locators.length > 0) state.named = true;
    this.send(this.reply(state));
  }

  /** Also a change of subscription: what was rejected stays rejected, it must not look like an ACK (protocol §3.4). */
  protected reply(state: SotwState): OutgoingRequest {
    const { type, version, nonce, names, locators, rejection } = state;
    return { kind: 'sotw', typeUrl: type, version, nonce, names, locators, error: rejection };
  }

  /** An empty request for a new type would subscribe to all of it. */
  protected refuse(): undefined {
    return undefined;
  }

  protected expect(): Set<VariantKey> {
    return new Set();
  }

  /** Each response is of all that is subscribed; which request it has seen, only its content shows. */
  protected answers(state: SotwState, ask: Ask): boolean {
    if (ask.askedIn === 1) return true;
    // There is no other in this conversation: what comes is a complete state of it, from whenever.
    if (!this.options.locators && ask.kind === 'wildcard') return true;
    return ask.askedIn <= state.heardOf;
  }

  protected expires(state: SotwState, ask: Ask): boolean {
    return state.info.fullState && ask.kind !== 'wildcard';
  }

  /** A relay above, where absence deletes, says nothing at all before all of the first request is known to it. */
  protected hesitates(state: SotwState, asks: readonly Ask[]): boolean {
    if (state.nonce !== '') return false;
    // Whatever comes after so long a time was made after the request: then a lack of it is an answer.
    for (const ask of asks) ask.askedIn = 1;
    return true;
  }

  protected expired(state: SotwState, ask: Ask): Removal[] | undefined {
    // Held from another stream, and this one has not said that it is gone.
    const holds = covered(state, ask).some(
      ({ constraints }) => !this.options.locators || constraints.matches(ask.parameters),
    );
    if (!holds) return [];
    // Whatever comes after so long a time was made after the request: then a lack of it is an answer.
    ask.askedIn = 1;
    return undefined;
  }

  protected forgotten(state: SotwState, ask?: Ask): void {
    state.image = undefined;
    if (ask !== undefined && ask.askedIn > 0) state.ambiguous = true;
  }

  protected accept(state: SotwState, response: IncomingSotw): Result<Transaction> {
    const { rules, held } = state;
    const full = isFull(state);
    // The last received match wins where upstream cannot delete: variants all count as received then (protocol §5). As
    // long as the store may have more than is held, the whole is said to it.
    const comparable = full ? state.swept : state.image?.constrained === false;
    const image = comparable ? state.image : undefined;
    const reading = readSotw({ rules, held, full, image }, response);
    return reading.ok ? ok(this.#commit(state, response, reading.value)) : reading;
  }

  #commit(state: SotwState, response: IncomingSotw, reading: SotwReading): Transaction {
    const { wants, held } = state;
    const puts: Put[] = [];
    const heartbeats: Heartbeat[] = [];
    const settled: Interest[] = [];
    let comparable = true;
    for (const put of reading.puts) {
      const { name, constraints, aliases, ttlMilliseconds } = put;
      if (ttlMilliseconds !== undefined) comparable = false; // each response starts it anew
      if (!wants.wants(name, aliases)) {
        comparable = false; // an answer to what nobody wants any more, or never did
      } else if (put.any === undefined && ttlMilliseconds !== undefined) {
        if (held.get(name, constraints.key) !== undefined)
          heartbeats.push({ name, constraints, ttlMilliseconds });
      } else {
        const version = put.version === '' ? response.version : put.version;
        puts.push({ ...put, version });
        held.put(name, constraints, version, this.stream, false);
      }
      for (const ask of wants.selecting(name, aliases, constraints)) {
        if (ask.kind === 'name') settle(wants, ask, settled);
      }
    }
    this.#listen(state, puts);
    if (isFull(state)) this.#settlePresent(state, reading.gone, settled);
    const excused = this.#settleFaults(state, reading, settled);
    this.#settleLacking(state, excused, settled);
    const removals = reading.gone
      .filter((identity) => !this.#excusable(state, identity, excused))
      .map(({ name, constraints }): Removal => ({ name, constraints }));
    if (removals.length < reading.gone.length) comparable = false;
    for (const { name, constraints } of removals) {
      const gone = held.get(name, constraints.key);
      if (gone !== undefined) held.delete(gone);
    }
    const full = isFull(state);
    // The first time, the store may have more from here than this session knows of: what was restored from disk.
    const complete = full && !state.swept && removals.length === reading.gone.length && excused.size === 0;
    if (complete) state.swept = true;
    const { identities } = reading;
    const constrained = identities.some((identity) => identity.constraints.key !== '');
    state.image = comparable ? { resources: response.resources, identities, constrained } : undefined;
    const { holder, type } = state;
    const { version } = response;
    const { faults } = reading;
    const cannotDelete = !full;
    return transaction({
      holder,
      type,
      version,
      puts,
      removals,
      heartbeats,
      faults,
      complete,
      settled,
      pending: pendingOf(wants, [...removals, ...faults]),
      cannotDelete,
    });
  }

  /** What a wildcard or glob that was asked for later lacks in a response on its way before, it may have all the same. */
  #listen(state: SotwState, puts: readonly Put[]): void {
    const { wants } = state;
    if (state.asked < 2 || !wants.hasCollection) return;
    for (const { name, aliases, constraints } of state.ambiguous ? [] : puts) {
      const asks = wants.selecting(name, aliases, constraints).filter(({ askedIn }) => askedIn > 0);
      if (asks.length === 0) continue;
      state.heardOf = Math.max(state.heardOf, Math.min(...asks.map(({ askedIn }) => askedIn)));
    }
    const doubtful = (): boolean =>
      [...wants.unknown].some((ask) => ask.kind !== 'name' && ask.askedIn > 0 && !this.answers(state, ask));
    if (state.doubted || !doubtful()) return;
    state.doubted = true;
    this.arm(`doubt ${state.type}`, doubtMs, () => {
      state.doubted = false;
      if (doubtful()) this.renew(`what ${state.type} is asked for anew can only be told on a new stream`);
    });
  }

  /** What is there is answered, also by what has not changed: a later lack of it is an absence. */
  #settlePresent({ wants, held }: SotwState, gone: readonly Identity[], settled: Interest[]): void {
    const lacking = new Seen();
    for (const { name, constraints } of gone) lacking.add(name, constraints.key);
    for (const ask of [...wants.unknown]) {
      if (ask.kind !== 'name' || ask.askedIn === 0) continue;
      const present = held
        .of(ask.selector)
        .some(
          ({ name, constraints }) =>
            !lacking.has(name, constraints.key) &&
            (!this.options.locators || constraints.matches(ask.parameters)),
        );
      if (present) settle(wants, ask, settled);
    }
  }

  /** Names with an error: their lack is no deletion, as nothing but delta's NOT_FOUND drops what is cached (§8). */
  #settleFaults(state: SotwState, { faults }: SotwReading, settled: Interest[]): ReadonlySet<ResourceName> {
    const excused = new Set<ResourceName>();
    for (const { name, constraints, code } of faults) {
      if (code !== Code.NOT_FOUND || state.held.has(name)) {
        excused.add(name);
        continue;
      }
      for (const ask of state.wants.selecting(name, [], constraints)) {
        // It does not say for which parameters: of those asked for together at first, it is for all that lack.
        if (ask.kind === 'name' && (ask.askedIn === 1 || !this.options.locators))
          settle(state.wants, ask, settled);
      }
    }
    return excused;
  }

  /** What any response answers, because it was in the first request of the stream. */
  #settleLacking(state: SotwState, excused: ReadonlySet<ResourceName>, settled: Interest[]): void {
    if (!isFull(state)) return;
    for (const ask of [...state.wants.unknown]) {
      if (ask.askedIn === 1 && !excused.has(ask.selector)) settle(state.wants, ask, settled);
    }
    for (const ask of state.wants.named('*')) if (ask.askedIn === 1) ask.answered = true;
  }

  /** Whether it may be there although this response does not have it. */
  #excusable(state: SotwState, { name, constraints }: Identity, excused: ReadonlySet<ResourceName>): boolean {
    if (excused.has(name)) return true;
    // What has come on this stream is there no more when it lacks, whether or not its ask is answered as a whole.
    if (state.held.get(name, constraints.key)?.mark === this.stream) return false;
    const asks = state.wants.selecting(name, [], constraints);
    return asks.length > 0 && !asks.some((ask) => ask.answered || ask.askedIn === 1);
  }
}

function asking({ wants }: SotwState): readonly Ask[] {
  return wants
    .all()
    .filter(({ rests }) => !rests)
    .toArray();
}

function isFull(state: SotwState): boolean {
  return state.info.fullState || state.holder.role === 'wildcard';
}
