import type { ParametersKey } from '../../model/brand.ts';
import type { Timer } from '../../model/clock.ts';
import { type Constraints, stampConstraints } from '../../model/constraints.ts';
import { NO_PARAMETERS, type Parameters } from '../../model/parameters.ts';
import {
  type Holder,
  type Interest,
  type Restamp,
  type Transaction,
  transaction,
  WILDCARD,
} from '../../model/transaction.ts';
import type { Refusals, Suspect } from '../../model/upstream.ts';
import type { Conditions } from '../../observe/conditions.ts';
import { Code } from '../../wire/grpc-status.ts';
import { encodeStatus } from '../../wire/responses.ts';
import { AdsStream } from './ads-stream.ts';
import type { AdsStreamHandler, AdsStreamObserver } from './ads-stream-ports.ts';
import type { Backoff } from './backoff.ts';
import type { Channel } from './channel.ts';
import { encodeNode, type SessionRule } from './node.ts';
import type { AdsUpstreamOptions } from './options.ts';
import { streamProtocol } from './protocols.ts';
import { Refused } from './refused.ts';
import { Restamps } from './restamps.ts';
import { type NodeAndStamp, Session } from './session.ts';
import { SessionPerParameters } from './session-per-parameters.ts';
import { restrict, stampFor, unstamped } from './stamp.ts';
import type { StreamProtocolOptions } from './stream-protocol.ts';

/** Of refused parameter sets so many are told to others; there may be as many as clients. */
const maxReportedRefusals = 1000;
const maxSuspects = 20;
/** Of those that were refused so many are asked for in one turn: others want theirs. */
const admittedPerTurn = 2000;

export interface SessionsHandler {
  /** The handler of the streams that deliver for these holders. */
  readonly streamHandler: (holders: readonly string[]) => AdsStreamHandler;
  /** `sessionPerParameters`: for what may have made the control plane end a stream. */
  readonly backoff: (isolated: boolean) => Backoff;
  /** Ends these if nobody subscribes to them. */
  endIfIdle(interests: readonly Interest[]): void;
  /** Nobody subscribes to it. */
  isIdle(interest: Interest): boolean;
  apply(transaction: Transaction): void;
  restamp(restamp: Restamp): void;
  /** Sessions have come or gone, or what is refused or suspected is something else. */
  changed(): void;
}

/** Encoded once: it is the same for all. */
interface RefusalStatus {
  readonly message: string;
  readonly status: Uint8Array;
}

interface LastRefused {
  readonly keys: readonly string[];
  readonly parameters: Parameters;
  readonly constraints: Constraints;
}

/**
 * The sessions of an upstream: one for each distinct parameter set among the keys of the rules (PER_PARAMETERS), or one
 * for all where the control plane matches variants itself (NATIVE) or nothing depends on parameters (no rules).
 */
export class Sessions {
  readonly #options: AdsUpstreamOptions;
  readonly #handler: SessionsHandler;
  readonly #conditions: Conditions;
  readonly #native: boolean;
  readonly #perParameters: SessionPerParameters | undefined;
  #rules: readonly SessionRule[];
  #keys: readonly string[];
  readonly #sessions = new Map<ParametersKey, Session>();
  /** Past max_upstream_sessions; they get the places that become free. */
  readonly #refused = new Refused();
  /** Those to which nobody subscribes, the longest idle first: they give way to others. */
  readonly #idle = new Set<Session>();
  #refusalsTimer: Timer | undefined;
  /** Parameter sets that have a session now, and of which some interests still wait for their turn. */
  readonly #admitted = new Set<ParametersKey>();
  #admitting: Timer | undefined;
  #refusalStatus: RefusalStatus | undefined;
  #lastRefused: LastRefused | undefined;
  #up: { readonly channel: Channel; readonly endpoint: number } | undefined;

  constructor(options: AdsUpstreamOptions, conditions: Conditions, handler: SessionsHandler) {
    this.#options = options;
    this.#handler = handler;
    this.#conditions = conditions;
    this.#native = options.variants === 'NATIVE';
    this.#perParameters = options.sessionPerParameters === true ? new SessionPerParameters() : undefined;
    this.#rules = this.#native ? [] : options.rules;
    this.#keys = this.#rules.map((rule) => rule.key);
  }

  get size(): number {
    return this.#sessions.size;
  }

  /** Some session has asked something that has no answer yet. */
  get awaitsResponse(): boolean {
    return [...this.#sessions.values()].some((session) => session.awaitsResponse);
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
      this.#handler.endIfIdle([interest]); // nobody keeps it current
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
    return this.#refused.has(interest) ? this.#full() : undefined;
  }

  refusals(): Refusals | undefined {
    if (this.#refused.empty) return undefined;
    return { message: this.#full(), parameters: this.#refused.parameters(maxReportedRefusals) };
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
    this.#up = { channel, endpoint };
    for (const session of this.#sessions.values()) session.up(channel, endpoint);
  }

  /** `lost`: why the connection went; undefined: the relay itself has closed it. */
  down(lost: string | undefined): void {
    this.#up = undefined;
    for (const session of this.#sessions.values()) session.down(lost);
  }

  stop(): void {
    this.#up = undefined;
    this.#refusalsTimer?.cancel();
    this.#admitting?.cancel();
    for (const session of this.#sessions.values()) session.stop();
  }

  /** `via` has more to say. */
  reannounce(): boolean {
    return [...this.#sessions.values()].filter((session) => session.reannounce()).length > 0;
  }

  /**
   * Other rules. A session whose parameter set is still one under them goes on; with a new key it says of its resources
   * that they are for clients without that key: everything is stamped anew at once, before anybody is subscribed anew
   * (protocol §5). Interests that belong to other sessions now wait for those, and nobody is told that something is
   * absent meanwhile.
   */
  reconfigure(rules: readonly SessionRule[]): void {
    if (this.#native || JSON.stringify(rules) === JSON.stringify(this.#rules)) return;
    const keys = rules.map((rule) => rule.key);
    const restamps = new Restamps();
    const toResubscribe: Interest[] = [];
    const leaving: [Session, Interest][] = [];
    const ending: Session[] = [];
    for (const session of this.#sessions.values()) {
      const { parameters } = session;
      const continues = restrict(keys, parameters) === parameters;
      if (!continues) ending.push(session);
      restamps.move(session.restamp(continues ? this.#stamp(keys, parameters) : undefined));
      for (const interest of session.interests()) {
        const stays = continues && restrict(keys, interest.parameters) === parameters;
        if (stays) continue;
        toResubscribe.push(interest);
        restamps.addUnresolved(interest);
        if (continues) leaving.push([session, interest]);
      }
    }
    this.#rules = rules;
    this.#keys = keys;
    for (const restamp of restamps.all()) this.#handler.restamp(restamp);
    for (const session of ending) this.#end(session);
    for (const [session, interest] of leaving) session.unsubscribe(interest);
    for (const session of this.#sessions.values()) session.setNode(this.#node(session.parameters));
    toResubscribe.push(...this.#refused.takeAll());
    const { live = [], idle = [] } = Object.groupBy(toResubscribe, (one) =>
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

  /** What of an interest's parameters decides the session. */
  #sessionParameters(interest: Interest): Parameters {
    if (this.#perParameters !== undefined) return this.#perParameters.of(interest);
    return this.#keys.length === 0 ? NO_PARAMETERS : restrict(this.#keys, interest.parameters);
  }

  #open(parameters: Parameters): Session {
    const nodeAndStamp: NodeAndStamp = {
      node: this.#node(parameters),
      stamp: this.#stamp(this.#keys, parameters),
    };
    const session = new Session(parameters, {
      nodeAndStamp,
      makeStream: (now, isolated, watch) => this.#makeStream(parameters, now, isolated, watch),
      endIfIdle: (interests) => this.#handler.endIfIdle(interests),
      changed: () => this.#announceRefusals(),
      clock: this.#options.clock,
      stableAfterMs: this.#options.backoff.maxMs,
    });
    this.#sessions.set(parameters.key, session);
    if (this.#up !== undefined) session.up(this.#up.channel, this.#up.endpoint);
    this.#announceRefusals();
    return session;
  }

  #makeStream(
    parameters: Parameters,
    { node, stamp }: NodeAndStamp,
    isolated: boolean,
    observer: AdsStreamObserver,
  ): AdsStream {
    const { protocol, clock, backoff } = this.#options;
    const options = this.#protocolOptions(parameters, stamp);
    const handler = this.#handler.streamHandler([options.holders.wildcard.key, options.holders.named.key]);
    return new AdsStream({
      protocolState: streamProtocol(protocol, options),
      protocol,
      node,
      backoff: this.#handler.backoff(isolated),
      clock,
      // A new isolated stream does not mean that the whole holder is requested again.
      handler: isolated ? { ...handler, opening: () => handler.opening(false) } : handler,
      observer,
      stableAfterMs: backoff.maxMs,
    });
  }

  #node(parameters: Parameters): Uint8Array {
    const { node, version } = this.#options;
    return encodeNode({ node, rules: this.#rules, parameters, version, passesVariants: this.#native });
  }

  #stamp(keys: readonly string[], parameters: Parameters): NodeAndStamp['stamp'] {
    return this.#native ? unstamped : stampFor(keys, parameters, this.#options.maxConstraintDepth);
  }

  #protocolOptions(parameters: Parameters, stamp: NodeAndStamp['stamp']): StreamProtocolOptions {
    const { maxConstraintDepth, resourceTimeoutMs, entriesPerTurn = 1000 } = this.#options;
    return {
      holders: { wildcard: this.#holder(parameters, 'wildcard'), named: this.#holder(parameters, 'named') },
      locators: this.#native,
      stamp,
      maxConstraintDepth,
      entriesPerTurn,
      resourceTimeoutMs,
    };
  }

  #holder(parameters: Parameters, role: Holder['role']): Holder {
    const { name } = this.#options;
    const holder = { key: JSON.stringify(['ads', name, parameters.key, role]), upstream: name, role };
    const exactParameters = this.#perParameters?.exactParameters(parameters);
    return exactParameters === undefined ? holder : { ...holder, exactParameters };
  }

  /**
   * Whether one more session may be opened. One that only lingers gives way, or a client that has gone could keep out
   * others for as long as `cache.idle_ttl`.
   */
  #hasPlace(): boolean {
    while (this.#sessions.size >= this.#options.maxSessions) {
      const [longest] = this.#idle;
      if (longest === undefined) return false;
      this.#idle.delete(longest);
      this.#handler.endIfIdle(longest.resting());
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
    this.#announceRefusals();
  }

  /** Where a place is free, all who wait for the same parameter set get it: many of them over several turns. */
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

  /** Whose turn it is, of the parameter sets that wait: who has a session already goes first. */
  #nextAdmitted(): ParametersKey | undefined {
    for (const key of this.#admitted) {
      if (this.#sessions.has(key) && this.#refused.waits(key)) return key;
      this.#admitted.delete(key);
    }
    return this.#sessions.size < this.#options.maxSessions ? this.#refused.first : undefined;
  }

  /** The subscriber gets an error. Without it, this would look like a control plane that has not answered yet. */
  #refuse(interest: Interest, parameters: Parameters): void {
    const { type, selector } = interest;
    this.#refused.add(interest, parameters.key);
    this.#announceRefusals();
    this.#options.metrics.refused();
    const { message, status } = this.#status();
    this.#conditions.set('sessions', 'full', 'warn', message);
    const code = Code.RESOURCE_EXHAUSTED;
    const constraints = this.#constraintsOf(parameters);
    const holder = this.#holder(parameters, selector === WILDCARD ? 'wildcard' : 'named');
    const resourceErrors = [{ name: selector, constraints, code, message, status }];
    this.#handler.apply(transaction({ holder, type, resourceErrors }));
  }

  /** Once for all that happens in one turn: a fleet comes at once, and each change is told to every stream. */
  #announceRefusals(): void {
    this.#refusalsTimer ??= this.#options.clock.after(0, () => {
      this.#refusalsTimer = undefined;
      this.#handler.changed();
    });
  }

  #status(): RefusalStatus {
    this.#refusalStatus ??= {
      message: this.#full(),
      status: encodeStatus(Code.RESOURCE_EXHAUSTED, this.#full()),
    };
    return this.#refusalStatus;
  }

  /** Thousands of names in a row are refused for the same parameter set. */
  #constraintsOf(parameters: Parameters): Constraints {
    const last = this.#lastRefused;
    if (last?.keys === this.#keys && last.parameters === parameters) return last.constraints;
    const constraints = stampConstraints(this.#keys, parameters);
    this.#lastRefused = { keys: this.#keys, parameters, constraints };
    return constraints;
  }

  #full(): string {
    const { name, maxSessions } = this.#options;
    return `upstream ${name}: all ${maxSessions} sessions (limits.max_upstream_sessions) are in use by other parameter sets. Raise the limit, or list what clients may say in parameters[].values`;
  }
}
