import type { ParametersKey, TypeUrl } from '../../model/brand.ts';
import { Sweep, type Timer, WallTime } from '../../model/clock.ts';
import { type Constraints, stampConstraints } from '../../model/constraints.ts';
import {
  type LoadStream,
  type LoadStreamHandler,
  type LoadTarget,
  type LoadUpstream,
} from '../../model/load.ts';
import { countIn, deleteIn, getOrMake } from '../../model/maps.ts';
import { internParameters, NO_PARAMETERS, type Parameters } from '../../model/parameters.ts';
import { shorten } from '../../model/text.ts';
import {
  type Holder,
  type Interest,
  idOf,
  type Move,
  roleOf,
  type Transaction,
  transaction,
} from '../../model/transaction.ts';
import type { Refusals, Suspect, Upstream, UpstreamSink, UpstreamState } from '../../model/upstream.ts';
import { Code } from '../../wire/grpc-status.ts';
import { encodeStatus } from '../../wire/responses.ts';
import { claims } from '../claims.ts';
import type { Siblings } from '../siblings.ts';
import { AdsConnection, type AdsUpstreamOptions } from './connection.ts';
import { UpstreamLoadStream } from './load-stream.ts';
import { encodeNode, type SessionRule } from './node.ts';
import { Session } from './session.ts';
import { restrict, type Stamp, stampFor, unstamped } from './stamp.ts';

/** At most so many refused parameter sets are reported; there may be as many as clients. */
const maxReportedRefusals = 1000;
const maxSuspects = 20;
/** At most so many refused interests are subscribed in one turn of the event loop. */
const admittedPerTurn = 2000;

/**
 * A control plane over ADS (protocol §5b): one connection, and on it a session for each distinct parameter set among the
 * keys of the rules (PER_PARAMETERS), or one for all where the control plane matches variants itself (NATIVE) or nothing
 * depends on parameters (no rules).
 */
export class AdsUpstream implements Upstream, LoadUpstream {
  readonly name: string;
  readonly #options: AdsUpstreamOptions;
  /** They answer while all endpoints are away; undefined: nobody does. */
  readonly #siblings: Siblings | undefined;
  readonly #connection: AdsConnection;
  readonly #perParameters: SessionPerParameters | undefined;
  #rules: readonly SessionRule[];
  #keys: readonly string[];
  readonly #sessions = new Map<ParametersKey, Session>();
  readonly #times: WallTime;
  readonly #loadStreams = new Set<UpstreamLoadStream>();
  /** Interests past max_upstream_sessions. They get sessions when others end. */
  readonly #refused: RefusedInterests;
  /** Sessions to which nobody subscribes, the longest idle first: they end when another one is needed. */
  readonly #idle = new Set<Session>();
  /**
   * The sessions, the refused interests or the suspects have changed. Once for all changes of one turn: every stream of a
   * client hears of each announcement.
   */
  readonly #announcement: Sweep;
  /** Parameter sets that have a session now while some of their interests still wait for their turn. */
  readonly #admitted = new Set<ParametersKey>();
  #admitting: Timer | undefined;

  constructor(options: AdsUpstreamOptions, sink: UpstreamSink, siblings?: Siblings) {
    this.name = options.name;
    this.#siblings = siblings;
    this.#options = options;
    this.#announcement = new Sweep(options.clock, 0, () => this.#changed());
    this.#times = new WallTime(options.clock);
    this.#connection = new AdsConnection(options, sink);
    this.#perParameters = options.sessionPerParameters === true ? new SessionPerParameters() : undefined;
    this.#refused = new RefusedInterests(options);
    this.#rules = options.variants === 'NATIVE' ? [] : options.rules;
    this.#keys = this.#rules.map((rule) => rule.key);
  }

  claims(type: TypeUrl, selector: string): boolean {
    return claims(this.#options.claims, type, selector);
  }

  start(): void {
    this.#connection.start(
      () => [...this.#sessions.values(), ...this.#loadStreams],
      () => this.#changed(),
    );
  }

  stop(): Promise<void> {
    this.#announcement.stop();
    this.#admitting?.cancel();
    this.#siblings?.stop();
    for (const session of this.#sessions.values()) session.stop();
    this.#connection.stop();
    return Promise.resolve();
  }

  state(): UpstreamState {
    const state = this.#connection.state(this.#sessions.size);
    return this.#siblings?.joined(state) ?? state;
  }

  isUnavailable(interest: Interest): boolean {
    return this.state().down && this.#siblings?.mayAnswer(interest) !== true;
  }

  subscribe(interest: Interest): void {
    this.#subscribe(interest);
    this.#siblings?.subscribe(interest);
  }

  #subscribe(interest: Interest): void {
    this.#perParameters?.join(interest, (key) => this.#sessions.has(key) || this.#hasPlace());
    const parameters = this.#sessionParameters(interest);
    const refusable = this.#perParameters === undefined && !this.#sessions.has(parameters.key);
    if (refusable && !this.#hasPlace()) {
      this.#refuse(interest, parameters);
      return;
    }
    const session = this.#sessions.get(parameters.key) ?? this.#open(parameters);
    session.subscribe(interest);
    this.#mark(session);
  }

  resubscribe(interest: Interest): void {
    if (!this.#isRefused(interest)) this.#sessionOf(interest)?.resubscribe(interest);
  }

  unsubscribe(interest: Interest): void {
    this.#siblings?.unsubscribe(interest);
    if (this.#refused.delete(interest, this.#sessionParameters(interest).key)) {
      this.#announcement.start();
      return;
    }
    const session = this.#sessionOf(interest);
    this.#perParameters?.leave(interest);
    if (session === undefined) return;
    session.unsubscribe(interest);
    this.#mark(session);
    if (!session.empty) return;
    this.#end(session);
    this.#admitWaiting();
  }

  markIdle(interest: Interest): void {
    if (this.#isRefused(interest)) {
      this.#connection.sink.endIfIdle?.(interest); // upstream does not update it
      return;
    }
    const session = this.#sessionOf(interest);
    if (session === undefined) return;
    session.markIdle(interest);
    this.#mark(session);
    if (session.idle) this.#admitIfPlace();
  }

  markActive(interest: Interest): void {
    const session = this.#sessionOf(interest);
    if (session === undefined) return;
    session.markActive(interest);
    this.#mark(session);
  }

  refusal(interest: Interest): string | undefined {
    return this.#isRefused(interest) ? this.#refused.reason.message : undefined;
  }

  refusals(): Refusals | undefined {
    if (this.#refused.empty) return undefined;
    return {
      message: this.#refused.reason.message,
      parameters: this.#refused.parameters(maxReportedRefusals),
    };
  }

  openLoadStream(target: LoadTarget, handler: LoadStreamHandler): LoadStream {
    const node = (): Uint8Array => this.#options.loadNode?.(target) ?? this.#node(target.parameters);
    const stream = new UpstreamLoadStream(this.#connection, node, handler, this.#loadStreams);
    stream.up();
    return stream;
  }

  keptBytes(): number {
    return this.#sessions.values().reduce((sum, session) => sum + session.keptBytes, 0);
  }

  /** The types on isolated streams: each type once, the oldest first. */
  suspects(): readonly Suspect[] {
    const all = this.#sessions
      .values()
      .flatMap((session) => session.suspects())
      .toArray();
    const byType = Map.groupBy(
      all.toSorted((a, b) => a.since - b.since),
      ({ type }) => type,
    );
    return [...byType.values()]
      .flatMap(([first]) => first ?? [])
      .slice(0, maxSuspects)
      .map((one) => this.#times.shown(one));
  }

  /**
   * New relays connect to this one. Open streams are opened again, so that their x-distributary-via header names
   * them. True: some were opened anew.
   */
  reannounce(): boolean {
    return [...this.#sessions.values()].filter((session) => session.reannounce()).length > 0;
  }

  /**
   * A reload. The parameter rules say which keys make a parameter set, and where the node shows them. A session goes on if
   * its parameter set is still one under the new rules. If there is a new key, its resources are now for clients without
   * that key, so all stamps change at once, before anything is subscribed anew (protocol §5). Interests that now belong to
   * another session are unknown until that session has answered. With the same rules, there may be more sessions.
   */
  reconfigure(rules: readonly SessionRule[]): void {
    if (this.#options.variants === 'NATIVE') return;
    if (JSON.stringify(rules) === JSON.stringify(this.#rules)) {
      this.#admitIfPlace();
      return;
    }
    const isIdle = new Set(this.#sessions.values().flatMap((session) => session.idleInterests()));
    const { moves, ending, leaving, toResubscribe } = this.#rearranged(rules);
    this.#rules = rules;
    this.#keys = rules.map(({ key }) => key);
    const moved = Map.groupBy(moves, ([type]) => type);
    const unresolved = Map.groupBy(toResubscribe, ({ type }) => type);
    for (const type of new Set([...moved.keys(), ...unresolved.keys()])) {
      const ofType = (moved.get(type) ?? []).map(([, move]) => move);
      this.#connection.sink.restamp({ type, moves: ofType, unresolved: unresolved.get(type) ?? [] });
    }
    for (const session of ending) this.#end(session);
    for (const [session, interest] of leaving) {
      session.unsubscribe(interest);
      this.#mark(session);
    }
    for (const session of this.#sessions.values()) session.setNode(this.#node(session.parameters));
    const { live = [], idle = [] } = Object.groupBy([...toResubscribe, ...this.#refused.takeAll()], (one) =>
      isIdle.has(one) ? 'idle' : 'live',
    );
    for (const interest of live) this.#subscribe(interest);
    for (const session of [...this.#sessions.values()]) if (session.empty) this.#end(session);
    this.#admitWaiting();
    for (const interest of idle) {
      this.#subscribe(interest);
      this.markIdle(interest);
    }
  }

  /** What new rules change. `leaving`: from sessions that go on. */
  #rearranged(rules: readonly SessionRule[]) {
    const keys = rules.map(({ key }) => key);
    const moves: (readonly [TypeUrl, Move])[] = [];
    const ending: Session[] = [];
    const leaving: [Session, Interest][] = [];
    const toResubscribe: Interest[] = [];
    for (const session of this.#sessions.values()) {
      const { parameters } = session;
      const continues = restrict(keys, parameters) === parameters;
      if (!continues) ending.push(session);
      for (const move of session.restamp(continues ? this.#stamp(keys, parameters) : undefined))
        moves.push(move);
      for (const interest of session.interests()) {
        if (continues && restrict(keys, interest.parameters) === parameters) continue;
        toResubscribe.push(interest);
        if (continues) leaving.push([session, interest]);
      }
    }
    return { moves, ending, leaving, toResubscribe };
  }

  /** The part of an interest's parameters that decides its session. */
  #sessionParameters(interest: Interest): Parameters {
    if (this.#perParameters !== undefined) return this.#perParameters.of(interest);
    return this.#keys.length === 0 ? NO_PARAMETERS : restrict(this.#keys, interest.parameters);
  }

  #isRefused(interest: Interest): boolean {
    return !this.#refused.empty && this.#refused.has(interest, this.#sessionParameters(interest).key);
  }

  #sessionOf(interest: Interest): Session | undefined {
    return this.#sessions.get(this.#sessionParameters(interest).key);
  }

  #open(parameters: Parameters): Session {
    const session = new Session(
      this.#connection,
      parameters,
      { wildcard: this.#holder(parameters, 'wildcard'), named: this.#holder(parameters, 'named') },
      this.#node(parameters),
      this.#stamp(this.#keys, parameters),
      () => this.#announcement.start(),
    );
    this.#sessions.set(parameters.key, session);
    this.#say('a session begins', parameters);
    this.#announcement.start();
    return session;
  }

  /** What a session shows to the control plane, encoded. */
  #node(parameters: Parameters): Uint8Array {
    const { node, version, variants } = this.#options;
    return encodeNode(node, this.#rules, parameters, version, variants === 'NATIVE');
  }

  #stamp(keys: readonly string[], parameters: Parameters): Stamp {
    return this.#options.variants === 'NATIVE' ? unstamped : stampFor(keys, parameters);
  }

  #holder(parameters: Parameters, role: Holder['role']): Holder {
    const holder = {
      key: JSON.stringify(['ads', this.name, parameters.key, role]),
      upstream: this.name,
      role,
    };
    const exactParameters = this.#perParameters?.exactParameters(parameters);
    return exactParameters === undefined ? holder : { ...holder, exactParameters };
  }

  /**
   * Whether one more session may be opened. An idle session ends to make room. Otherwise a client that has left could keep
   * others out for `cache.idle_ttl`.
   */
  #hasPlace(): boolean {
    while (this.#sessions.size >= this.#options.maxSessions()) {
      const [longest] = this.#idle;
      if (longest === undefined) return false;
      this.#idle.delete(longest);
      for (const interest of longest.idleInterests()) this.#connection.sink.endIfIdle?.(interest);
    }
    return true;
  }

  #mark(session: Session): void {
    if (!session.idle) this.#idle.delete(session);
    else if (this.#sessions.get(session.parameters.key) === session) this.#idle.add(session);
  }

  #end(session: Session): void {
    session.stop();
    this.#idle.delete(session);
    this.#sessions.delete(session.parameters.key);
    this.#say('a session ends', session.parameters);
    this.#announcement.start();
  }

  #admitIfPlace(): void {
    if (!this.#refused.empty && this.#hasPlace()) this.#admitWaiting();
  }

  /** Gives free sessions to refused interests, all of one parameter set together, over several turns if they are many. */
  #admitWaiting(): void {
    this.#connection.conditions.forget('sessions');
    if (this.#admitting !== undefined) return;
    let left = admittedPerTurn;
    for (let key = this.#nextAdmitted(); key !== undefined; key = this.#nextAdmitted()) {
      const admitted = this.#refused.take(key, left);
      for (const interest of admitted) this.#subscribe(interest);
      left -= admitted.length;
      if (this.#refused.waits(key)) this.#admitted.add(key);
      else this.#admitted.delete(key);
      this.#announcement.start();
      if (left > 0) continue;
      this.#admitting = this.#options.clock.after(0, () => {
        this.#admitting = undefined;
        this.#admitWaiting();
      });
      return;
    }
  }

  /** The next of the waiting parameter sets: those that have a session already go first. */
  #nextAdmitted(): ParametersKey | undefined {
    for (const key of this.#admitted) {
      if (this.#sessions.has(key) && this.#refused.waits(key)) return key;
      this.#admitted.delete(key);
    }
    return this.#sessions.size < this.#options.maxSessions() ? this.#refused.first : undefined;
  }

  #refuse(interest: Interest, parameters: Parameters): void {
    this.#refused.add(interest, parameters.key);
    this.#announcement.start();
    this.#options.metrics.refused?.();
    this.#connection.conditions.set('sessions', 'full', 'warn', this.#refused.reason.message);
    const holder = this.#holder(parameters, roleOf(interest));
    this.#connection.sink.apply(this.#refused.answer(interest, holder, this.#keys, parameters));
  }

  #say(what: string, { key }: Parameters): void {
    this.#options.log.debug(what, { parameters: shorten(key, 256), sessions: this.#sessions.size });
  }

  #changed(): void {
    this.#siblings?.follow(this.#connection.state(this.#sessions.size));
    this.#connection.sink.changed();
  }
}

/** No client has such a key. */
const SHARED_SESSION = internParameters([['distributary', 'shared']]);

/**
 * A stream for each parameter set, whose first response has everything for this set (ADR 30): how a worker subscribes to
 * the primary. This class says which session an interest belongs to. What follows from it is said by the session's holders,
 * by `exactParameters`, and by nothing else:
 * - a stream takes its first response for the answer to a wildcard, instead of waiting for silence;
 * - the store prefers what came with these parameters to what only matches them;
 * - what is removed there is absent for these parameters alone: the others have their own answers.
 *
 * Past max_upstream_sessions the other sets share a session, of which neither holds.
 */
export class SessionPerParameters {
  /** The parameter sets in the shared session, with the number of their interests. */
  readonly #inSharedSession = new Map<ParametersKey, number>();

  /** The parameters of the interest's session. */
  of({ parameters }: Interest): Parameters {
    return this.#inSharedSession.has(parameters.key) ? SHARED_SESSION : parameters;
  }

  /** Before the interest is subscribed. `hasPlace`: whether its parameter set has a session, or may have one. */
  join({ parameters: { key } }: Interest, hasPlace: (key: ParametersKey) => boolean): void {
    if (this.#inSharedSession.has(key) || !hasPlace(key)) countIn(this.#inSharedSession, key, 1);
  }

  leave({ parameters: { key } }: Interest): void {
    countIn(this.#inSharedSession, key, -1);
  }

  /** For the holders of a session; undefined: it is the shared one. */
  exactParameters(ofSession: Parameters): Parameters | undefined {
    return ofSession === SHARED_SESSION ? undefined : ofSession;
  }
}

const code = Code.RESOURCE_EXHAUSTED;

/**
 * Interests that have no session, because all sessions are in use (limits.max_upstream_sessions). Clients can make them
 * many, so each is found by a key, and so are those that wait for the same session. `set`: the parameter set that they
 * need a session for.
 */
class RefusedInterests {
  readonly #options: AdsUpstreamOptions;
  /** The last one. */
  #reason: { readonly limit: number; readonly message: string; readonly status: Uint8Array } | undefined;
  /** By set, the longest waiting first, and then by `idOf`. */
  readonly #waiting = new Map<ParametersKey, Map<string, Interest>>();
  /** How many have these parameters. */
  readonly #counts = new Map<ParametersKey, number>();
  /** By set: thousands of names are refused for the same one. */
  #constraints = new WeakMap<Parameters, Constraints>();

  constructor(options: AdsUpstreamOptions) {
    this.#options = options;
  }

  /** Why, and the same encoded: made once for all of them. */
  get reason(): { readonly message: string; readonly status: Uint8Array } {
    const { name, maxSessions } = this.#options;
    const limit = maxSessions();
    if (this.#reason?.limit === limit) return this.#reason;
    const message = `upstream ${name}: all ${limit} sessions (limits.max_upstream_sessions) are in use by other parameter sets. Raise the limit, or list what clients may say in parameters[].values`;
    this.#reason = { limit, message, status: encodeStatus(code, message) };
    return this.#reason;
  }

  get empty(): boolean {
    return this.#waiting.size === 0;
  }

  /** The parameter set that has waited for longest. */
  get first(): ParametersKey | undefined {
    return this.#waiting.keys().next().value;
  }

  /** Some wait for a session for this parameter set. */
  waits(set: ParametersKey): boolean {
    return this.#waiting.has(set);
  }

  add(interest: Interest, set: ParametersKey): void {
    getOrMake(this.#waiting, set, () => new Map()).set(idOf(interest), interest);
    countIn(this.#counts, interest.parameters.key, 1);
  }

  has(interest: Interest, set: ParametersKey): boolean {
    return this.#waiting.get(set)?.has(idOf(interest)) === true;
  }

  /** False if it was not refused. */
  delete(interest: Interest, set: ParametersKey): boolean {
    if (!deleteIn(this.#waiting, set, idOf(interest))) return false;
    countIn(this.#counts, interest.parameters.key, -1);
    return true;
  }

  /** Takes out at most so many of the interests that wait for this parameter set. */
  take(set: ParametersKey, most: number): readonly Interest[] {
    const taken = [...(this.#waiting.get(set)?.values().take(most) ?? [])];
    for (const interest of taken) this.delete(interest, set);
    return taken;
  }

  /** Takes out all interests: there are other rules. */
  takeAll(): readonly Interest[] {
    this.#constraints = new WeakMap();
    const all = [...this.#waiting.values().flatMap((waiting) => waiting.values())];
    this.#waiting.clear();
    this.#counts.clear();
    return all;
  }

  /** The distinct parameters, at most so many. */
  parameters(most: number): readonly ParametersKey[] {
    return [...this.#counts.keys().take(most)];
  }

  /** A resource error for the interest. Without it, this would look like a control plane that has not answered yet. */
  answer(
    { type, selector }: Interest,
    holder: Holder,
    keys: readonly string[],
    parameters: Parameters,
  ): Transaction {
    const constraints = getOrMake(this.#constraints, parameters, () => stampConstraints(keys, parameters));
    const { message, status } = this.reason;
    const error = { name: selector, constraints, code, message, status };
    return transaction({ holder, type, resourceErrors: [error] });
  }
}
