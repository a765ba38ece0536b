import type { ParametersKey } from '../../model/brand.ts';
import type { Timer } from '../../model/clock.ts';
import { NO_PARAMETERS, type Parameters } from '../../model/parameters.ts';
import { shorten } from '../../model/text.ts';
import { type Interest, type Restamp, type Transaction, WILDCARD } from '../../model/transaction.ts';
import type { Refusals, Suspect } from '../../model/upstream.ts';
import type { Conditions } from '../../observe/conditions.ts';
import type { AdsStream } from './ads-stream.ts';
import type { Channel } from './channel.ts';
import type { SessionRule } from './node.ts';
import type { AdsUpstreamOptions } from './options.ts';
import { RefusedInterests } from './refused-interests.ts';
import { Restamps } from './restamps.ts';
import { type NodeAndStamp, type OpenConnection, Session } from './session.ts';
import { SessionLimit } from './session-limit.ts';
import { SessionPerParameters } from './session-per-parameters.ts';
import { restrict } from './stamp.ts';
import { StreamFactory, type StreamFactoryPorts } from './stream-factory.ts';

/** At most so many refused parameter sets are reported; there may be as many as clients. */
const maxReportedRefusals = 1000;
const maxSuspects = 20;
/** At most so many refused interests are subscribed in one turn of the event loop. */
const admittedPerTurn = 2000;

export interface SessionsHandler extends StreamFactoryPorts {
  /** Ends these if nobody subscribes to them. */
  endIfIdle(interests: readonly Interest[]): void;
  /** Nobody subscribes to it. */
  isIdle(interest: Interest): boolean;
  apply(transaction: Transaction): void;
  restamp(restamp: Restamp): void;
  /** The sessions, the refused interests or the suspects have changed. */
  changed(): void;
}

interface Rearrangement {
  readonly restamps: Restamps;
  readonly ending: Session[];
  /** From sessions that go on. */
  readonly leaving: [Session, Interest][];
  readonly toResubscribe: Interest[];
}

/**
 * The sessions of an upstream: one for each distinct parameter set among the keys of the rules (PER_PARAMETERS), or one
 * for all where the control plane matches variants itself (NATIVE) or nothing depends on parameters (no rules).
 */
export class Sessions {
  readonly #options: AdsUpstreamOptions;
  readonly #handler: SessionsHandler;
  readonly #conditions: Conditions;
  readonly #factory: StreamFactory;
  readonly #limit: SessionLimit;
  readonly #perParameters: SessionPerParameters | undefined;
  #rules: readonly SessionRule[];
  #keys: readonly string[];
  readonly #sessions = new Map<ParametersKey, Session>();
  /** Interests past max_upstream_sessions. They get sessions when others end. */
  readonly #refused = new RefusedInterests();
  /** Sessions to which nobody subscribes, the longest idle first: they end when another one is needed. */
  readonly #idle = new Set<Session>();
  #refusalsTimer: Timer | undefined;
  /** Parameter sets that have a session now while some of their interests still wait for their turn. */
  readonly #admitted = new Set<ParametersKey>();
  #admitting: Timer | undefined;
  #connection: OpenConnection | undefined;

  constructor(options: AdsUpstreamOptions, conditions: Conditions, handler: SessionsHandler) {
    this.#options = options;
    this.#handler = handler;
    this.#conditions = conditions;
    this.#perParameters = options.sessionPerParameters === true ? new SessionPerParameters() : undefined;
    this.#factory = new StreamFactory(options, handler, this.#perParameters);
    this.#limit = new SessionLimit(options.name, options.maxSessions);
    this.#rules = options.variants === 'NATIVE' ? [] : options.rules;
    this.#keys = this.#rules.map((rule) => rule.key);
  }

  get size(): number {
    return this.#sessions.size;
  }

  /** The encoded nodes of streams that have asked something which has no answer yet. */
  nodesWithoutAnswer(): readonly Uint8Array[] {
    const waiting = this.#streams().filter((stream) => stream.awaitsResponse);
    return [...new Set(waiting.map(({ node }) => node))];
  }

  subscribe(interest: Interest): void {
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
    if (this.#refused.has(interest)) return;
    this.#sessions.get(this.#sessionParameters(interest).key)?.resubscribe(interest);
  }

  unsubscribe(interest: Interest): void {
    if (this.#refused.delete(interest)) {
      this.#announceRefusals();
      return;
    }
    const session = this.#sessions.get(this.#sessionParameters(interest).key);
    this.#perParameters?.leave(interest);
    if (session === undefined) return;
    session.unsubscribe(interest);
    this.#mark(session);
    if (!session.empty) return;
    this.#end(session);
    this.#admitWaiting();
  }

  markIdle(interest: Interest): void {
    if (this.#refused.has(interest)) {
      this.#handler.endIfIdle([interest]); // upstream does not update it
      return;
    }
    const session = this.#sessions.get(this.#sessionParameters(interest).key);
    if (session === undefined) return;
    session.markIdle(interest);
    this.#mark(session);
    if (session.idle && !this.#refused.empty && this.#hasPlace()) this.#admitWaiting();
  }

  markActive(interest: Interest): void {
    const session = this.#sessions.get(this.#sessionParameters(interest).key);
    if (session === undefined) return;
    session.markActive(interest);
    this.#mark(session);
  }

  /** Why this interest has no session; undefined: it has one. */
  refusal(interest: Interest): string | undefined {
    return this.#refused.has(interest) ? this.#limit.message : undefined;
  }

  refusals(): Refusals | undefined {
    if (this.#refused.empty) return undefined;
    return { message: this.#limit.message, parameters: this.#refused.parameters(maxReportedRefusals) };
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
    return [...byType.values()].flatMap(([first]) => first ?? []).slice(0, maxSuspects);
  }

  up(channel: Channel, endpoint: number): void {
    this.#connection = { channel, endpoint };
    for (const stream of [...this.#streams()]) stream.up(channel, endpoint);
  }

  /** `lost`: why the connection went; undefined: the relay itself has closed it. */
  down(lost: string | undefined): void {
    this.#connection = undefined;
    for (const stream of [...this.#streams()]) stream.down(lost);
  }

  stop(): void {
    this.#connection = undefined;
    this.#refusalsTimer?.cancel();
    this.#admitting?.cancel();
    for (const session of this.#sessions.values()) session.stop();
  }

  /** More relays must be announced in x-distributary-via. */
  reannounce(): boolean {
    return [...this.#streams()].filter((stream) => stream.reannounce()).length > 0;
  }

  /**
   * The rules have changed. A session goes on if its parameter set is still one under the new rules. If there is a new
   * key, its resources are now for clients without that key, so all stamps change at once, before anything is subscribed
   * anew (protocol §5). Interests that now belong to another session are unknown until that session has answered.
   */
  reconfigure(rules: readonly SessionRule[]): void {
    if (this.#options.variants === 'NATIVE' || JSON.stringify(rules) === JSON.stringify(this.#rules)) return;
    const { restamps, ending, leaving, toResubscribe } = this.#rearranged(rules);
    this.#rules = rules;
    this.#keys = rules.map(({ key }) => key);
    for (const restamp of restamps.all()) this.#handler.restamp(restamp);
    for (const session of ending) this.#end(session);
    for (const [session, interest] of leaving) session.unsubscribe(interest);
    for (const session of this.#sessions.values())
      session.setNode(this.#factory.node(rules, session.parameters));
    const { live = [], idle = [] } = Object.groupBy([...toResubscribe, ...this.#refused.takeAll()], (one) =>
      this.#handler.isIdle(one) ? 'idle' : 'live',
    );
    for (const interest of live) this.subscribe(interest);
    for (const session of [...this.#sessions.values()]) if (session.empty) this.#end(session);
    this.#admitWaiting();
    for (const interest of idle) {
      this.subscribe(interest);
      this.markIdle(interest);
    }
  }

  /** What the new rules change: the stamps, the sessions that end, and the interests that belong to other sessions. */
  #rearranged(rules: readonly SessionRule[]): Rearrangement {
    const keys = rules.map(({ key }) => key);
    const moved: Rearrangement = { restamps: new Restamps(), ending: [], leaving: [], toResubscribe: [] };
    for (const session of this.#sessions.values()) {
      const { parameters } = session;
      const continues = restrict(keys, parameters) === parameters;
      if (!continues) moved.ending.push(session);
      moved.restamps.move(session.restamp(continues ? this.#factory.stamp(rules, parameters) : undefined));
      for (const interest of session.streams().flatMap((stream) => stream.interests())) {
        if (continues && restrict(keys, interest.parameters) === parameters) continue;
        moved.toResubscribe.push(interest);
        moved.restamps.addUnresolved(interest);
        if (continues) moved.leaving.push([session, interest]);
      }
    }
    return moved;
  }

  #streams(): IteratorObject<AdsStream> {
    return this.#sessions.values().flatMap((session) => session.streams());
  }

  /** The part of an interest's parameters that decides its session. */
  #sessionParameters(interest: Interest): Parameters {
    if (this.#perParameters !== undefined) return this.#perParameters.of(interest);
    return this.#keys.length === 0 ? NO_PARAMETERS : restrict(this.#keys, interest.parameters);
  }

  #open(parameters: Parameters): Session {
    const nodeAndStamp: NodeAndStamp = {
      node: this.#factory.node(this.#rules, parameters),
      stamp: this.#factory.stamp(this.#rules, parameters),
    };
    const session = new Session(parameters, {
      nodeAndStamp,
      makeStream: (now, id, watch) => this.#factory.stream(parameters, now, id, watch),
      services: this.#options.services ?? 'AGGREGATED',
      connection: () => this.#connection,
      endIfIdle: (interests) => this.#handler.endIfIdle(interests),
      changed: () => this.#announceRefusals(),
      clock: this.#options.clock,
      stableAfterMs: this.#options.backoff.maxMs,
    });
    this.#sessions.set(parameters.key, session);
    this.#say('a session begins', parameters);
    this.#announceRefusals();
    return session;
  }

  /**
   * Whether one more session may be opened. An idle session ends to make room. Otherwise a client that has left could keep
   * others out for `cache.idle_ttl`.
   */
  #hasPlace(): boolean {
    while (this.#sessions.size >= this.#options.maxSessions) {
      const [longest] = this.#idle;
      if (longest === undefined) return false;
      this.#idle.delete(longest);
      this.#handler.endIfIdle(longest.idleInterests());
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
    this.#announceRefusals();
  }

  /** Gives free sessions to refused interests, all of one parameter set together, over several turns if they are many. */
  #admitWaiting(): void {
    this.#conditions.forget('sessions');
    if (this.#admitting !== undefined) return;
    let left = admittedPerTurn;
    for (let key = this.#nextAdmitted(); key !== undefined; key = this.#nextAdmitted()) {
      const admitted = this.#refused.take(key, left);
      for (const interest of admitted) this.subscribe(interest);
      left -= admitted.length;
      if (this.#refused.waits(key)) this.#admitted.add(key);
      else this.#admitted.delete(key);
      this.#announceRefusals();
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
    return this.#sessions.size < this.#options.maxSessions ? this.#refused.first : undefined;
  }

  #refuse(interest: Interest, parameters: Parameters): void {
    this.#refused.add(interest, parameters.key);
    this.#announceRefusals();
    this.#options.metrics.refused();
    this.#conditions.set('sessions', 'full', 'warn', this.#limit.message);
    const holder = this.#factory.holder(parameters, interest.selector === WILDCARD ? 'wildcard' : 'named');
    this.#handler.apply(this.#limit.refusal(interest, holder, this.#keys, parameters));
  }

  #say(what: string, { key }: Parameters): void {
    this.#options.log.debug(what, { parameters: shorten(key, 256), sessions: this.#sessions.size });
  }

  /** Once for all changes of one turn: every stream of a client hears of each announcement. */
  #announceRefusals(): void {
    this.#refusalsTimer ??= this.#options.clock.after(0, () => {
      this.#refusalsTimer = undefined;
      this.#handler.changed();
    });
  }
}
