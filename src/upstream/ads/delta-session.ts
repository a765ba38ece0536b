import type { TypeUrl } from '../../model/brand.ts';
import { type Constraints, UNCONSTRAINED } from '../../model/constraints.ts';
import { fail, ok, type Result } from '../../model/result.ts';
import {
  type Heartbeat,
  type Interest,
  type Put,
  type Removal,
  type ResourceFault,
  type Transaction,
  transaction,
} from '../../model/transaction.ts';
import { globMatches, isGlob } from '../../model/xdstp.ts';
import type { OutgoingDelta, OutgoingRequest } from '../../wire/request-writer.ts';
import type { ErrorDetail, Locator } from '../../wire/requests.ts';
import {
  type IncomingDelta,
  readDeltaResource,
  readDeltaResponse,
  type UnreadableResponse,
} from '../../wire/response-reader.ts';
import { Code } from '../../wire/status.ts';
import { acceptError, acceptRemoval, acceptResource, type Identity } from './arrivals.ts';
import { Ghosts } from './ghosts.ts';
import { type HeldVariant, Seen, type VariantKey, variantKey } from './held.ts';
import type { TypeState } from './machine.ts';
import { requestParts } from './request-parts.ts';
import { SessionMachine } from './session-machine.ts';
import { covered } from './type-state.ts';
import { type Ask, pendingOf, settle } from './wants.ts';

interface DeltaState extends TypeState {
  /** For the next first request: what is held, by the upstream's own versions. */
  initialVersions: ReadonlyMap<string, string>;
  /** What this stream has sent for a wildcard or glob that was taken back just now: asked again, it is sent again. */
  readonly released: Map<VariantKey, Identity>;
  /** Asks that expect something still. */
  readonly expecting: Set<Ask>;
  /** Something was taken back just now: what is on its way for it comes all the same. */
  leaving: boolean;
  /** What was taken back before it was answered: answers are on the way, too, those about names in order. */
  readonly ghosts: Ghosts;
}

/** What a response says: all of it judged, nothing of it done yet. */
interface Reading {
  readonly puts: readonly Put[];
  /** `removed_resources`: whatever is known under this name and has no constraints. */
  readonly removed: readonly Identity[];
  /** `removed_resource_names`: exactly these. */
  readonly removedVariants: readonly Identity[];
  readonly faults: readonly ResourceFault[];
}

/** What a response says to the wildcards and globs that wait. */
interface Heard {
  readonly said: Transaction;
  /** The requests to which it is an answer, as it has something for one of their wildcards or globs. */
  readonly requests: ReadonlySet<number>;
  /** The wildcards and globs for which something in it is, and for no others. */
  readonly onlyFor: ReadonlySet<Ask>;
  /** The oldest request of which a wildcard or glob has had no response yet; grows while they are given this one. */
  readonly longestWaiting: () => number;
}

/** More in one first request is refused by common servers' limits (protocol §5b). */
const initialVersionsLimit = 3 * 1024 * 1024;
const noVersions: ReadonlyMap<string, string> = new Map();

/** An incremental stream (protocol §4 from the client's side). */
export class DeltaSession extends SessionMachine<DeltaState, IncomingDelta> {
  #heard: Heard | undefined;

  protected createState(base: TypeState): DeltaState {
    return {
      ...base,
      initialVersions: noVersions,
      released: new Map(),
      expecting: new Set(),
      leaving: false,
      ghosts: new Ghosts(),
    };
  }

  protected read(bytes: Buffer): Result<IncomingDelta, UnreadableResponse> {
    return readDeltaResponse(bytes);
  }

  /** With initial_resource_versions what is still so needs no answer; what they do not cover is swept or expires. */
  protected reset(state: DeltaState, resumed: boolean): void {
    const confirmed = resumed ? this.#resumable(state) : [];
    state.initialVersions = new Map(confirmed.map((held) => [held.name, held.version]));
    for (const held of confirmed) held.mark = this.stream;
    state.sweep = confirmed.length < state.held.size;
    state.released.clear();
    state.expecting.clear();
    state.leaving = false;
    state.ghosts.clear();
    if (!resumed) return;
    for (const ask of state.wants.all()) {
      if (!ask.known) continue;
      if (ask.kind === 'name')
        ask.answered = state.held.of(ask.selector).some(({ mark }) => mark === this.stream);
      else ask.answered = !state.sweep;
    }
  }

  #resumable(state: DeltaState): HeldVariant[] {
    const { locators } = this.options;
    // The answer to a wildcard or glob was cut off: if nothing has changed since, nothing would come to complete it.
    if ([...state.wants.unknown].some(({ kind, rests }) => kind !== 'name' && !rests)) return [];
    const rests = state.wants.all().some((ask) => ask.rests);
    const confirmed: HeldVariant[] = [];
    const stamped = state.rules.stamp(UNCONSTRAINED);
    const plain = stamped.ok ? stamped.value.key : UNCONSTRAINED.key;
    let variants = false;
    let bytes = 0;
    for (const held of state.held.all()) {
      const single = state.held.isOnly(held);
      if (!single || held.version === '' || held.aliased) continue;
      if (rests && !isAsked(state, held)) continue;
      // Nobody can say of a name alone which variant of it is gone.
      if (held.constraints.key !== plain) {
        variants = true;
        continue;
      }
      bytes += Buffer.byteLength(held.name) + Buffer.byteLength(held.version) + 12;
      if (bytes > initialVersionsLimit) return [];
      confirmed.push(held);
    }
    // What a wildcard or glob covers is confirmed by what comes: then something has to come.
    if ((locators || variants) && confirmed.length < state.held.size && state.wants.hasCollection) return [];
    return confirmed;
  }

  protected change(state: DeltaState, fresh: readonly Ask[], dropped: readonly Ask[]): void {
    const { initialVersions } = state;
    state.initialVersions = noVersions;
    const again = new Set(fresh.map((ask) => ask.selector));
    const together = !dropped.some((ask) => again.has(ask.selector));
    // Servers apply subscribes before unsubscribes (§4.4): one message would take back what is asked for again.
    if (!together) this.#sendParts(state, [], dropped, noVersions);
    const only = fresh.length === 1 && state.asked === 1 ? fresh[0] : undefined;
    const legacy =
      only?.kind === 'wildcard' && only.parameters.entries.size === 0 && state.info.legacyWildcard;
    // Every control plane knows the wildcard as an empty first request; not all know "*".
    const asked = legacy ? [] : fresh;
    this.#sendParts(state, asked, together ? dropped : [], initialVersions);
  }

  #sendParts(
    { type }: DeltaState,
    asked: readonly Ask[],
    dropped: readonly Ask[],
    initialVersions: ReadonlyMap<string, string>,
  ): void {
    for (const [index, { subscribe, unsubscribe }] of requestParts(asked, dropped).entries()) {
      const versions = index === 0 ? initialVersions : noVersions;
      this.send(request(type, { ...selectors(subscribe, unsubscribe), initialVersions: versions }));
    }
  }

  protected reply(state: DeltaState): OutgoingRequest {
    return request(state.type, { nonce: state.nonce, error: state.rejection });
  }

  /** An empty first request would subscribe to all of the type; with "*" taken back it wants nothing (§10.5). */
  protected refuse(type: TypeUrl, nonce: string, error: ErrorDetail): OutgoingRequest {
    return request(type, { nonce, error, subscribe: ['*'], unsubscribe: ['*'] });
  }

  /** A subscribe is answered with everything, also with what was sent before (protocol §4.2). */
  protected expect(state: DeltaState, ask: Ask): Set<VariantKey> {
    const sent = [...covered(state, ask), ...state.released.values()];
    const expected = new Set(sent.filter((variant) => this.#shows(ask, variant)).map(variantKey));
    if (expected.size > 0) state.expecting.add(ask);
    return expected;
  }

  /**
   * Nothing says which request a response answers. An update that was on its way has only what has changed: it lacks
   * something of what is held, or has nothing for this ask. An empty response is for who has waited longest.
   */
  protected answers(state: DeltaState, ask: Ask, said: Transaction): boolean {
    if (ask.askedIn === 1) return true; // nothing can have been on its way before the first request
    // There is no other in this conversation; what was on its way when it was taken back is no answer.
    if (!this.options.locators && ask.kind === 'wildcard') return ask.expected.size === 0;
    if (said.puts.length + said.heartbeats.length + said.removals.length === 0) {
      return this.#heardOf(state, said).longestWaiting() >= ask.askedIn;
    }
    const heard = this.#heardOf(state, said);
    if (ask.expected.size > 0 || !heard.requests.has(ask.askedIn)) return false;
    return !this.#haunted(state, ask) || heard.onlyFor.has(ask);
  }

  /** It was taken back before it was answered, and asked again just now: what is on its way is from in between. */
  #haunted({ ghosts }: DeltaState, { selector, parameters }: Ask): boolean {
    return ghosts.of(selector).some((ghost) => ghost.parameters === parameters);
  }

  /** Looked at once for each response, however many wildcards and globs wait for an answer. */
  #heardOf({ wants }: DeltaState, said: Transaction): Heard {
    if (this.#heard?.said === said) return this.#heard;
    const requests = new Set<number>();
    const onlyFor = new Set<Ask>();
    const news: readonly Identity[] = [...said.puts, ...said.removals];
    for (const [at, identity] of [...news, ...said.heartbeats].entries()) {
      const shown = wants.collecting(identity.name).filter((ask) => this.#shows(ask, identity));
      for (const ask of shown) {
        if (wants.unknown.has(ask) && ask.expected.size === 0) requests.add(ask.askedIn);
      }
      const [only] = shown;
      if (only !== undefined && shown.length === 1 && at < news.length) onlyFor.add(only);
    }
    const waiting = [...wants.all()]
      .filter(({ kind, askedIn }) => kind !== 'name' && askedIn > 0)
      .toSorted((a, b) => a.askedIn - b.askedIn);
    let first = 0;
    const longestWaiting = (): number => {
      while (waiting[first]?.responded === true) first++;
      return waiting[first]?.askedIn ?? Number.POSITIVE_INFINITY;
    };
    this.#heard = { said, requests, onlyFor, longestWaiting };
    return this.#heard;
  }

  #shows(ask: Ask, { name, constraints }: Identity): boolean {
    if (ask.kind === 'glob' && !globMatches(ask.selector, name)) return false;
    return this.#isFor(ask, constraints);
  }

  #isFor(ask: Ask, constraints: Constraints): boolean {
    return !this.options.locators || constraints.matches(ask.parameters);
  }

  protected expires(_: DeltaState, ask: Ask): boolean {
    return ask.kind !== 'wildcard';
  }

  /** Whoever knows something says it at once. */
  protected hesitates(): boolean {
    return false;
  }

  /** A control plane that is silent altogether says nothing about what is held from an earlier stream. */
  protected expired(state: DeltaState, ask: Ask): Removal[] | undefined {
    const stale = covered(state, ask).some((held) => held.mark !== this.stream);
    if (stale && !this.heard) return undefined;
    return this.sweep(state, ask);
  }

  /** Long enough for what is on its way; later it may have been deleted, and nobody would say so. */
  protected forgotten(state: DeltaState, ask?: Ask): void {
    if (ask === undefined || ask.askedIn === 0) return;
    state.expecting.delete(ask);
    state.leaving = true;
    if (this.options.locators && !ask.answered) state.ghosts.add(ask);
    for (const held of ask.kind === 'name' ? [] : covered(state, ask)) {
      if (held.mark === this.stream && this.#shows(ask, held)) state.released.set(variantKey(held), held);
    }
    this.arm(`leaving ${state.type}`, this.options.resourceTimeoutMs, () => {
      state.leaving = false;
      state.released.clear();
      state.ghosts.clear();
    });
  }

  protected accept(state: DeltaState, response: IncomingDelta): Result<Transaction> {
    const reading = read(state, response);
    return reading.ok ? ok(this.#commit(state, response, reading.value)) : reading;
  }

  #commit(state: DeltaState, response: IncomingDelta, reading: Reading): Transaction {
    const { wants, held, holder, type } = state;
    const puts: Put[] = [];
    const heartbeats: Heartbeat[] = [];
    const removals: Removal[] = [];
    const settled: Interest[] = [];
    const answered: Ask[] = [];
    for (const put of reading.puts) {
      const { name, constraints, aliases, ttlMilliseconds } = put;
      for (const ghost of state.ghosts.of(name)) {
        if (this.#isFor(ghost, constraints)) state.ghosts.delete(ghost);
      }
      if (!this.#isWanted(state, put)) continue;
      if (put.any === undefined && ttlMilliseconds !== undefined) {
        const known = held.get(name, constraints.key);
        if (known === undefined) continue;
        known.mark = this.stream;
        came(state, known);
        heartbeats.push({ name, constraints, ttlMilliseconds });
      } else {
        puts.push(put);
        const asks = wants.selecting(name, [], constraints);
        held.put(name, constraints, put.version, this.stream, asks.length === 0);
        came(state, put);
      }
      for (const ask of wants.selecting(name, aliases, constraints)) {
        if (ask.kind !== 'name') continue;
        answered.push(ask);
        settle(wants, ask, settled);
      }
    }
    for (const identity of reading.removedVariants) {
      came(state, identity);
      const known = held.get(identity.name, identity.constraints.key);
      if (known === undefined) this.#missing(state, identity, removals, settled);
      else this.#remove(state, known, removals, settled);
    }
    for (const identity of reading.removed) this.#removeName(state, identity, removals, settled);
    for (const fault of notFound(reading)) this.#removeName(state, fault, removals, settled);
    // It has another variant than the one from an earlier stream: in one transaction, as a swap.
    for (const ask of answered) removals.push(...this.leftover(state, ask));
    const { version } = response;
    const { faults } = reading;
    const pending = pendingOf(wants, [...removals, ...faults]);
    return transaction({ holder, type, version, puts, removals, heartbeats, faults, settled, pending });
  }

  /** Not what was on its way when its subscription ended: nobody would say when it is gone. */
  #isWanted({ wants, leaving }: DeltaState, { name, aliases, constraints }: Put): boolean {
    if (!leaving || !this.options.locators) return wants.wants(name, aliases);
    return wants.selecting(name, aliases, constraints).length > 0;
  }

  #removeName(state: DeltaState, identity: Identity, removals: Removal[], settled: Interest[]): void {
    const { name, constraints } = identity;
    came(state, identity);
    if (isGlob(name)) {
      // The URL of a collection that is empty (protocol §6).
      for (const ask of state.wants.named(name)) {
        for (const held of covered(state, ask)) this.#remove(state, held, removals, settled);
        settle(state.wants, ask, settled);
      }
      return;
    }
    const exact = state.held.get(name, constraints.key);
    // A server that was only asked by name may mean any variant: it has no other way to say it.
    const meant = exact === undefined && !state.wants.locates(name) ? state.held.of(name) : [];
    const gone = exact === undefined ? meant : [exact];
    for (const held of gone) this.#remove(state, held, removals, settled);
    if (gone.length === 0) this.#missing(state, identity, removals, settled);
  }

  #remove(state: DeltaState, held: HeldVariant, removals: Removal[], settled: Interest[]): void {
    state.held.delete(held);
    came(state, held);
    removals.push({ name: held.name, constraints: held.constraints });
    for (const ask of state.wants.selecting(held.name, [], held.constraints)) {
      // Somebody who has asked since may still get another variant: this was on its way.
      if (ask.kind === 'name' && (ask.known || ask.askedIn === 1)) settle(state.wants, ask, settled);
    }
  }

  /**
   * There is nothing of this name for somebody who asked. With several locators of one name on the stream it is not
   * said for whom (protocol §5), unless there are constraints: servers answer in order, so it is for those that have
   * waited longest. If that can only be one, what it has from an earlier stream is gone.
   */
  #missing(
    state: DeltaState,
    { name, constraints }: Identity,
    removals: Removal[],
    settled: Interest[],
  ): void {
    const ghosts = state.ghosts.of(name).filter((ask) => this.#isFor(ask, constraints));
    const waiting = [...state.wants.naming(name, constraints), ...ghosts].filter(
      (ask) => ask.askedIn > 0 && !ask.answered,
    );
    const oldest = waiting.reduce((least, { askedIn }) => Math.min(least, askedIn), Number.POSITIVE_INFINITY);
    const meant = waiting.filter((ask) => ask.askedIn === oldest);
    for (const ask of meant) if (!state.ghosts.delete(ask)) settle(state.wants, ask, settled);
    const [only] = meant;
    if (only !== undefined && meant.length === 1 && state.wants.has(only))
      removals.push(...this.leftover(state, only));
  }

  /** What an answered name has from an earlier stream; what another may get still is not touched. */
  protected override leftover(state: DeltaState, ask: Ask): Removal[] {
    if (ask.kind !== 'name') return [];
    const removals: Removal[] = [];
    for (const held of covered(state, ask)) {
      if (held.mark === this.stream || !this.#isFor(ask, held.constraints)) continue;
      const asks = state.wants.selecting(held.name, [], held.constraints);
      if (asks.some((other) => !other.answered)) continue;
      state.held.delete(held);
      removals.push({ name: held.name, constraints: held.constraints });
    }
    return removals;
  }
}

function read(state: DeltaState, response: IncomingDelta): Result<Reading> {
  const { rules } = state;
  const seen = new Seen();
  const puts: Put[] = [];
  for (let index = 0; index < response.resources.length; index++) {
    const resource = readDeltaResource(response.resources.at(index));
    if (!resource.ok) return fail(`resource ${index + 1} of ${response.resources.length}: ${resource.error}`);
    const put = acceptResource(rules, resource.value, seen);
    if (!put.ok) return put;
    puts.push(put.value);
  }
  const removed: Identity[] = [];
  for (const name of response.removed) {
    const identity = acceptRemoval(rules, { name, constraints: UNCONSTRAINED.bytes }, seen);
    if (!identity.ok) return identity;
    removed.push(identity.value);
  }
  const removedVariants: Identity[] = [];
  for (const name of response.removedNames) {
    const identity = acceptRemoval(rules, name, seen);
    if (!identity.ok) return identity;
    removedVariants.push(identity.value);
  }
  const faults: ResourceFault[] = [];
  for (const error of response.errors) {
    const fault = acceptError(rules, error);
    if (!fault.ok) return fault;
    faults.push(fault.value);
  }
  return ok({ puts, removed, removedVariants, faults });
}

/** In delta NOT_FOUND is a removal (protocol §8): one of those that are not said already, in this way or the other. */
function* notFound({ removed, removedVariants, faults }: Reading): Iterable<Identity> {
  if (faults.length === 0) return;
  const names = new Set(removed.map(({ name }) => name));
  const said = new Set(removedVariants.map(variantKey));
  for (const fault of faults) {
    const key = variantKey(fault);
    if (fault.code !== Code.NOT_FOUND || names.has(fault.name) || said.has(key)) continue;
    said.add(key);
    yield fault;
  }
}

/** What was expected of an answer is there, or gone. */
function came({ wants, released, expecting }: DeltaState, variant: Identity): void {
  if (released.size + expecting.size === 0) return;
  const key = variantKey(variant);
  released.delete(key);
  for (const ask of expecting.size > 0 ? wants.collecting(variant.name) : []) {
    if (ask.expected.delete(key) && ask.expected.size === 0) expecting.delete(ask);
  }
}

/** Some control planes take what is named in initial_resource_versions for subscribed. */
function isAsked({ wants }: DeltaState, { name, constraints }: HeldVariant): boolean {
  return wants.selecting(name, [], constraints).some(({ rests }) => !rests);
}

function request(type: TypeUrl, part: Partial<OutgoingDelta>): OutgoingDelta {
  return {
    kind: 'delta',
    typeUrl: type,
    nonce: '',
    subscribe: [],
    unsubscribe: [],
    subscribeLocators: [],
    unsubscribeLocators: [],
    initialVersions: noVersions,
    error: undefined,
    ...part,
  };
}

function selectors(subscribe: readonly Ask[], unsubscribe: readonly Ask[]): Partial<OutgoingDelta> {
  return {
    subscribe: subscribe.filter(isPlain).map((ask) => ask.selector),
    unsubscribe: unsubscribe.filter(isPlain).map((ask) => ask.selector),
    subscribeLocators: subscribe.filter((ask) => !isPlain(ask)).map(locator),
    unsubscribeLocators: unsubscribe.filter((ask) => !isPlain(ask)).map(locator),
  };
}

function isPlain(ask: Ask): boolean {
  return ask.parameters.entries.size === 0;
}

function locator({ selector, parameters }: Ask): Locator {
  return { name: selector, parameters: [...parameters.entries] };
}
