import type { ParametersKey } from '../../model/brand.ts';
import type { Timer } from '../../model/clock.ts';
import { type Constraints, stampConstraints } from '../../model/constraints.ts';
import { internParameters, NO_PARAMETERS, type Parameters } from '../../model/parameters.ts';
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
import { encodeStatus } from '../../wire/request-writer.ts';
import { Code } from '../../wire/status.ts';
import type { Backoff } from './backoff.ts';
import { DeltaSession } from './delta-session.ts';
import type { Link } from './dial.ts';
import { Lane } from './lane.ts';
import type { LaneHandler, LaneWatch } from './lane-ports.ts';
import type { SessionOptions } from './machine.ts';
import { encodeNode, type SessionRule } from './node.ts';
import type { AdsUpstreamOptions } from './options.ts';
import { Refused } from './refused.ts';
import { Restamps } from './restamps.ts';
import { Session, type Shown } from './session.ts';
import { SotwSession } from './sotw-session.ts';
import { restrict, stampFor, unstamped } from './stamp.ts';

/** Of refused parameter sets so many are told to others; there may be as many as clients. */
const mostTold = 1000;
const mostSuspects = 20;
/** Of those that were refused so many are asked for in one turn: others want theirs. */
const admittedPerTurn = 2000;

export interface SessionsHandler {
  /** For the lanes of these holders. */
  readonly laneHandler: (holders: readonly string[]) => LaneHandler;
  /** `apart`: for what may have made the control plane end a stream. */
  readonly backoff: (apart: boolean) => Backoff;
  /** Ends these if nobody subscribes to them. */
  lapse(interests: readonly Interest[]): void;
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

/** For those that find no place of their own (`apart`): no client shows such a key. */
const CROWD = internParameters([['distributary', 'crowd']]);

/**
 * The sessions of an upstream: one for each distinct parameter set among the keys of the rules (PER_PARAMETERS), or one
 * for all where the control plane matches variants itself (NATIVE) or nothing depends on parameters (no rules).
 */
export class Sessions {
  readonly #options: AdsUpstreamOptions;
  readonly #handler: SessionsHandler;
  readonly #conditions: Conditions;
  readonly #native: boolean;
  #rules: readonly SessionRule[];
  #keys: readonly string[];
  readonly #sessions = new Map<ParametersKey, Session>();
  /** Past max_upstream_sessions; they get the places that become free. */
  readonly #refused = new Refused();
  /** Those to which nobody subscribes, the longest idle first: they give way to others. */
  readonly #idle = new Set<Session>();
  #telling: Timer | undefined;
  /** Parameter sets that have a session now, and of which some interests still wait for their turn. */
  readonly #admitted = new Set<ParametersKey>();
  #admitting: Timer | undefined;
  /** Parameter sets in the crowd, and how many interests each has there. */
  readonly #crowded = new Map<ParametersKey, number>();
  #refusalStatus: RefusalStatus | undefined;
  #lastRefused: LastRefused | undefined;
  #up: { readonly link: Link; readonly endpoint: number } | undefined;

  constructor(options: AdsUpstreamOptions, conditions: Conditions, handler: SessionsHandler) {
    this.#options = options;
    this.#handler = handler;
    this.#conditions = conditions;
    this.#native = options.variants === 'NATIVE';
    this.#rules = this.#native ? [] : options.rules;
    this.#keys = this.#rules.map((rule) => rule.key);
  }

  get size(): number {
    return this.#sessions.size;
  }

  /** Some session has asked something that has no answer yet. */
  get awaits(): boolean {
    return [...this.#sessions.values()].some((session) => session.awaits);
  }

  subscribe(interest: Interest): void {
    this.#crowd(interest);
    const parameters = this.#shown(interest);
    if (!this.#sessions.has(parameters.key) && parameters !== CROWD && !this.#hasPlace()) {
      this.#refuse(interest, parameters);
      return;
    }
    const session = this.#sessions.get(parameters.key) ?? this.#open(parameters);
    session.subscribe(interest);
    this.#mark(session);
  }

  again(interest: Interest): void {
    if (this.#refused.has(interest)) return;
    this.#sessions.get(this.#shown(interest).key)?.again(interest);
  }

  unsubscribe(interest: Interest): void {
    if (this.#refused.delete(interest)) {
      this.#tellSoon();
      return;
    }
    const session = this.#sessions.get(this.#shown(interest).key);
    this.#uncrowd(interest);
    if (session === undefined) return;
    session.unsubscribe(interest);
    this.#mark(session);
    if (!session.empty) return;
    this.#end(session);
    this.#admitWaiting();
  }

  idle(interest: Interest): void {
    if (this.#refused.has(interest)) {
      this.#handler.lapse([interest]); // nobody keeps it current
      return;
    }
    const session = this.#sessions.get(this.#shown(interest).key);
    if (session === undefined) return;
    session.rest(interest);
    this.#mark(session);
    if (session.idle && !this.#refused.empty && this.#hasPlace()) this.#admitWaiting();
  }

  live(interest: Interest): void {
    const session = this.#sessions.get(this.#shown(interest).key);
    if (session === undefined) return;
    session.wake(interest);
    this.#mark(session);
  }

  /** Why this interest has no session; undefined: it has one. */
  refusal(interest: Interest): string | undefined {
    return this.#refused.has(interest) ? this.#full() : undefined;
  }

  refusals(): Refusals | undefined {
    if (this.#refused.empty) return undefined;
    return { message: this.#full(), parameters: this.#refused.parameters(mostTold) };
  }

  /** What is asked apart, since a stream ended: each type once, the longest first. */
  suspects(): readonly Suspect[] {
    const all = this.#sessions
      .values()
      .flatMap((session) => session.suspects())
      .toArray();
    const byType = Map.groupBy(
      all.toSorted((a, b) => a.since - b.since),
      ({ type }) => type,
    );
    return [...byType.values()].flatMap(([first]) => first ?? []).slice(0, mostSuspects);
  }

  up(link: Link, endpoint: number): void {
    this.#up = { link, endpoint };
    for (const session of this.#sessions.values()) session.up(link, endpoint);
  }

  /** `lost`: why the connection went; undefined: the relay itself has closed it. */
  down(lost: string | undefined): void {
    this.#up = undefined;
    for (const session of this.#sessions.values()) session.down(lost);
  }

  stop(): void {
    this.#up = undefined;
    this.#telling?.cancel();
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
    const homeless: Interest[] = [];
    const leaving: [Session, Interest][] = [];
    const ending: Session[] = [];
    for (const session of this.#sessions.values()) {
      const { parameters } = session;
      const goesOn = restrict(keys, parameters) === parameters;
      if (!goesOn) ending.push(session);
      restamps.move(session.restamp(goesOn ? this.#stamp(keys, parameters) : undefined));
      for (const interest of session.interests()) {
        const stays = goesOn && restrict(keys, interest.parameters) === parameters;
        if (stays) continue;
        homeless.push(interest);
        restamps.unsettle(interest);
        if (goesOn) leaving.push([session, interest]);
      }
    }
    this.#rules = rules;
    this.#keys = keys;
    for (const restamp of restamps.all()) this.#handler.restamp(restamp);
    for (const session of ending) this.#end(session);
    for (const [session, interest] of leaving) session.unsubscribe(interest);
    for (const session of this.#sessions.values()) session.show(this.#node(session.parameters));
    homeless.push(...this.#refused.takeAll());
    const { live = [], idle = [] } = Object.groupBy(homeless, (one) =>
      this.#handler.isIdle(one) ? 'idle' : 'live',
    );
    for (const interest of live) this.subscribe(interest);
    for (const session of [...this.#sessions.values()]) if (session.empty) this.#end(session);
    this.#admitWaiting();
    for (const interest of idle) {
      this.subscribe(interest);
      this.idle(interest);
    }
  }

  /** What of an interest's parameters decides the session. */
  #shown(interest: Interest): Parameters {
    if (this.#options.apart === true) {
      return this.#crowded.has(interest.parameters.key) ? CROWD : interest.parameters;
    }
    return this.#keys.length === 0 ? NO_PARAMETERS : restrict(this.#keys, interest.parameters);
  }

  #crowd({ parameters: { key } }: Interest): void {
    if (this.#options.apart !== true) return;
    const there = this.#crowded.get(key);
    if (there !== undefined || !(this.#sessions.has(key) || this.#hasPlace()))
      this.#crowded.set(key, (there ?? 0) + 1);
  }

  #uncrowd({ parameters: { key } }: Interest): void {
    const there = this.#crowded.get(key);
    if (there === 1) this.#crowded.delete(key);
    else if (there !== undefined) this.#crowded.set(key, there - 1);
  }

  #open(parameters: Parameters): Session {
    const shown: Shown = { node: this.#node(parameters), stamp: this.#stamp(this.#keys, parameters) };
    const session = new Session(parameters, {
      shown,
      lane: (now, apart, watch) => this.#lane(parameters, now, apart, watch),
      lapse: (interests) => this.#handler.lapse(interests),
      changed: () => this.#tellSoon(),
      clock: this.#options.clock,
      wellMs: this.#options.backoff.maxMs,
    });
    this.#sessions.set(parameters.key, session);
    if (this.#up !== undefined) session.up(this.#up.link, this.#up.endpoint);
    this.#tellSoon();
    return session;
  }

  #lane(parameters: Parameters, { node, stamp }: Shown, apart: boolean, watch: LaneWatch): Lane {
    const { protocol, clock, backoff } = this.#options;
    const options = this.#machineOptions(parameters, stamp);
    const handler = this.#handler.laneHandler([options.holders.wildcard.key, options.holders.named.key]);
    return new Lane({
      machine: protocol === 'SOTW' ? new SotwSession(options) : new DeltaSession(options),
      protocol,
      node,
      backoff: this.#handler.backoff(apart),
      clock,
      // What is tried apart says nothing of the rest of what its holders have.
      handler: apart ? { ...handler, opening: () => handler.opening(false) } : handler,
      watch,
      wellMs: backoff.maxMs,
    });
  }

  #node(parameters: Parameters): Uint8Array {
    const { node, version } = this.#options;
    return encodeNode({ node, rules: this.#rules, parameters, version, passesVariants: this.#native });
  }

  #stamp(keys: readonly string[], parameters: Parameters): Shown['stamp'] {
    return this.#native ? unstamped : stampFor(keys, parameters, this.#options.maxConstraintDepth);
  }

  #machineOptions(parameters: Parameters, stamp: Shown['stamp']): SessionOptions {
    const { maxConstraintDepth, resourceTimeoutMs } = this.#options;
    return {
      holders: { wildcard: this.#holder(parameters, 'wildcard'), named: this.#holder(parameters, 'named') },
      locators: this.#native,
      exact: this.#options.apart === true && parameters !== CROWD,
      stamp,
      maxConstraintDepth,
      resourceTimeoutMs,
    };
  }

  #holder(parameters: Parameters, role: Holder['role']): Holder {
    const { name } = this.#options;
    const holder = { key: JSON.stringify(['ads', name, parameters.key, role]), upstream: name, role };
    return this.#options.apart === true && parameters !== CROWD ? { ...holder, parameters } : holder;
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
      this.#handler.lapse(longest.resting());
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
    this.#tellSoon();
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
      this.#tellSoon();
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

  /** Whoever asks is told, or it would look like a control plane that has not answered yet. */
  #refuse(interest: Interest, parameters: Parameters): void {
    const { type, selector } = interest;
    this.#refused.add(interest, parameters.key);
    this.#tellSoon();
    this.#options.metrics.refused();
    const { message, status } = this.#status();
    this.#conditions.set('sessions', 'full', 'warn', message);
    const code = Code.RESOURCE_EXHAUSTED;
    const constraints = this.#constraintsOf(parameters);
    const holder = this.#holder(parameters, selector === WILDCARD ? 'wildcard' : 'named');
    const faults = [{ name: selector, constraints, code, message, status }];
    this.#handler.apply(transaction({ holder, type, faults }));
  }

  /** Once for all that happens in one turn: a fleet comes at once, and each change is told to every stream. */
  #tellSoon(): void {
    this.#telling ??= this.#options.clock.after(0, () => {
      this.#telling = undefined;
      this.#handler.changed();
    });
  }

  #status(): RefusalStatus {
    this.#refusalStatus ??= {
      message: this.#full(),
      status: encodeStatus({ code: Code.RESOURCE_EXHAUSTED, message: this.#full() }),
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
