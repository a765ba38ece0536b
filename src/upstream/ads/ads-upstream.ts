import type { TypeUrl } from '../../model/brand.ts';
import type { Timer } from '../../model/clock.ts';
import type { Interest } from '../../model/transaction.ts';
import type { Refusals, Suspect, Upstream, UpstreamSink, UpstreamState } from '../../model/upstream.ts';
import { Conditions } from '../../observe/conditions.ts';
import { formatHostPort } from '../../wire/address.ts';
import { claims } from '../claims.ts';
import { Backoff } from './backoff.ts';
import { Connection } from './connection.ts';
import type { Link } from './dial.ts';
import { Failover } from './failover.ts';
import type { LaneHandler } from './lane-ports.ts';
import { grpcDial } from './link.ts';
import type { SessionRule } from './node.ts';
import type { AdsUpstreamOptions } from './options.ts';
import { Sessions } from './sessions.ts';

/** What ends streams is tried ever more rarely, at last once in about so long, wherever `backoff.max` is shorter. */
const shortestPatience = 30_000;

/** Why the last stream of a lane ended, if it had no answer. */
interface StreamTrouble {
  reason: string | undefined;
}

/**
 * A control plane over ADS (protocol §5b): one connection, and on it a session for each distinct parameter set, or
 * one for all if the control plane matches variants itself (NATIVE) or nothing depends on parameters (no rules).
 */
export class AdsUpstream implements Upstream {
  readonly name: string;
  readonly #options: AdsUpstreamOptions;
  readonly #sink: UpstreamSink;
  readonly #failover: Failover;
  readonly #connection: Connection;
  readonly #conditions: Conditions;
  readonly #sessions: Sessions;
  #up: { readonly link: Link; readonly endpoint: number } | undefined;
  /** Lanes whose stream is open, and of which none has failed on this connection. */
  readonly #hopeful = new Set<StreamTrouble>();
  /** Lanes whose last stream on this connection ended without an answer. */
  readonly #troubled = new Set<StreamTrouble>();
  /** Silence has been taken for an answer: nothing subscribed exists. */
  #silence: { readonly timer: Timer } | 'accepted' | undefined;
  #everConnected = false;
  #staleSince: number | undefined;
  #lastError = '';
  /** The last connection was given up, as its streams ended without an answer. */
  #isRefused = false;

  constructor(options: AdsUpstreamOptions, sink: UpstreamSink) {
    this.name = options.name;
    this.#options = options;
    this.#sink = sink;
    this.#conditions = new Conditions(options.log);
    this.#sessions = new Sessions(options, this.#conditions, {
      laneHandler: (holders) => this.#laneHandler(holders),
      backoff: (apart) => this.#backoff(apart ? shortestPatience : 0),
      lapse: (interests) => {
        for (const interest of interests) sink.lapse?.(interest);
      },
      isIdle: (interest) => sink.isIdle?.(interest) === true,
      apply: (applied) => sink.apply(applied),
      restamp: (restamp) => sink.restamp(restamp),
      changed: () => sink.changed(),
    });
    this.#failover = new Failover(options.endpoints.length, this.#backoff());
    const dial = options.dial ?? grpcDial(options);
    this.#connection = new Connection({ ...options, wellMs: options.backoff.maxMs, dial }, this.#failover, {
      up: (link, endpoint) => this.#connected(link, endpoint),
      down: (lost) => this.#disconnected(lost),
      failed: (endpoint, reason) => this.#failed(endpoint, reason),
      retrying: () => options.metrics.reconnect(),
    });
  }

  claims(type: TypeUrl, selector: string): boolean {
    return claims(this.#options.claims, type, selector);
  }

  start(): void {
    this.#staleSince ??= this.#options.clock.now();
    this.#connection.start();
  }

  stop(): Promise<void> {
    this.#endSilence();
    this.#up = undefined;
    this.#sessions.stop();
    this.#connection.stop();
    return Promise.resolve();
  }

  state(): UpstreamState {
    return {
      kind: 'ads',
      connected: this.#connection.isUp,
      everConnected: this.#everConnected,
      down: this.#failover.down && !this.#connection.isUntried,
      endpoint: this.#endpoint(this.#failover.current),
      sessions: this.#sessions.size,
      staleSince: this.#staleSince,
      lastError: this.#lastError,
      refusedStreams: Math.max(this.#troubled.size, this.#isRefused ? 1 : 0),
    };
  }

  suspects(): readonly Suspect[] {
    return this.#sessions.suspects();
  }

  subscribe(interest: Interest): void {
    this.#sessions.subscribe(interest);
  }

  again(interest: Interest): void {
    this.#sessions.again(interest);
  }

  unsubscribe(interest: Interest): void {
    this.#sessions.unsubscribe(interest);
  }

  idle(interest: Interest): void {
    this.#sessions.idle(interest);
  }

  live(interest: Interest): void {
    this.#sessions.live(interest);
  }

  refusals(): Refusals | undefined {
    return this.#sessions.refusals();
  }

  refusal(interest: Interest): string | undefined {
    return this.#sessions.refusal(interest);
  }

  /** The rules by which parameter sets are told apart and shown have changed. */
  reconfigure(rules: readonly SessionRule[]): void {
    this.#sessions.reconfigure(rules);
  }

  /** `via` has more to say: streams that are open must say it, too. True: some were opened anew. */
  reannounce(): boolean {
    return this.#sessions.reannounce();
  }

  #laneHandler(holders: readonly string[]): LaneHandler {
    const { metrics } = this.#options;
    const trouble: StreamTrouble = { reason: undefined };
    return {
      apply: (applied) => this.#sink.apply(applied),
      count: (type, result) => {
        metrics.updates(type, result);
        if (result === 'accepted') metrics.lastUpdate(type);
      },
      log: (level, message, fields) => this.#options.log[level](message, fields),
      via: this.#options.via,
      isIdle: (interest) => this.#sink.isIdle?.(interest) === true,
      opening: (again) => {
        if (again) this.#sink.resumed?.(holders);
        this.#opening(trouble);
      },
      answered: () => this.#answered(trouble),
      overdue: () => this.#overdue(),
      unanswered: (reason) => this.#unanswered(trouble, reason),
      ended: (reason) => this.#ended(reason),
      closed: () => this.#closed(trouble),
      countEnd: (code) => metrics.streamEnd(code),
    };
  }

  #connected(link: Link, endpoint: number): void {
    this.#up = { link, endpoint };
    this.#hopeful.clear();
    this.#troubled.clear();
    this.#everConnected = true;
    if (this.#failover.wellConnected) this.#recovered(endpoint);
    if (this.#sessions.size === 0) this.#staleSince = undefined;
    this.#sessions.up(link, endpoint);
    this.#sink.changed();
  }

  #disconnected(lost: string | undefined): void {
    this.#up = undefined;
    this.#endSilence();
    this.#staleSince ??= this.#options.clock.now();
    this.#sessions.down(lost);
  }

  #failed(endpoint: number, reason: string): void {
    const address = this.#endpoint(endpoint);
    this.#lastError = `${address}: ${reason}`;
    this.#isRefused = false;
    this.#conditions.forget('up');
    this.#conditions.add(`endpoint ${endpoint}`, reason, 'warn', 'control plane failed', {
      endpoint: address,
      reason,
    });
    this.#sink.changed();
  }

  #recovered(endpoint: number): void {
    this.#lastError = '';
    for (const index of this.#options.endpoints.keys()) this.#conditions.forget(`endpoint ${index}`);
    const address = this.#endpoint(endpoint);
    this.#conditions.set('up', address, 'info', 'connected to the control plane', { endpoint: address });
  }

  #opening(trouble: StreamTrouble): void {
    this.#connection.asked();
    if (!this.#troubled.has(trouble)) this.#hopeful.add(trouble);
    if (this.#silence !== undefined || this.#connection.hasAnswered) return;
    this.#silence = {
      timer: this.#options.clock.after(this.#options.resourceTimeoutMs, () => this.#silent()),
    };
  }

  #answered(trouble: StreamTrouble): void {
    if (trouble.reason !== undefined) {
      if (this.#lastError === trouble.reason) this.#lastError = '';
      this.#closed(trouble);
      this.#sink.changed();
    }
    if (this.#connection.hasAnswered) return;
    this.#connection.answered();
    this.#isRefused = false;
    this.#endSilence();
    this.#staleSince = undefined;
    if (this.#up !== undefined) this.#recovered(this.#up.endpoint);
    this.#sink.changed();
  }

  /**
   * Connected, and not one response to anything. For names that do not exist many control planes have none, nor for
   * what has not changed since the last stream: so that is a failure only as long as another endpoint may know better.
   * Otherwise the names are absent; their own timers say so right after this one.
   */
  #silent(): void {
    if (this.#sessions.awaits && this.#failover.hasAlternative) {
      this.#rejectSilent();
      return;
    }
    this.#silence = 'accepted';
    this.#failover.accepted();
    this.#staleSince = undefined;
    this.#sink.changed();
  }

  /** A wildcard is answered by every control plane that works. */
  #overdue(): void {
    if (!this.#connection.hasAnswered) this.#rejectSilent();
  }

  #rejectSilent(): void {
    this.#connection.reject(`connected, but no response within ${this.#options.resourceTimeoutMs / 1000} s`);
  }

  /** Its trouble is over, as it was answered or is not needed any more. */
  #closed(trouble: StreamTrouble): void {
    this.#hopeful.delete(trouble);
    this.#troubled.delete(trouble);
    trouble.reason = undefined;
    if (this.#troubled.size === 0) this.#conditions.forget('stream');
  }

  /** While other streams of the connection work, or may, the trouble is with this one. */
  #unanswered(trouble: StreamTrouble, reason: string): boolean {
    if (!this.#connection.isUp) return false;
    this.#hopeful.delete(trouble);
    this.#troubled.add(trouble);
    if (!this.#connection.hasAnswered && this.#hopeful.size === 0) {
      this.#connection.reject(reason);
      this.#isRefused = true;
      return true;
    }
    const endpoint = this.#endpoint(this.#failover.current);
    trouble.reason = `${endpoint}: ${reason}`;
    this.#lastError = trouble.reason;
    this.#conditions.set('stream', reason, 'warn', 'the control plane refuses a stream', {
      endpoint,
      reason,
    });
    this.#sink.changed();
    return false;
  }

  /** Daily business of many control planes, or a response that is too large, again and again: said once. */
  #ended(reason: string): void {
    const endpoint = this.#endpoint(this.#failover.current);
    this.#conditions.add('ended', reason, 'warn', 'a stream was ended, another one is opened', {
      endpoint,
      reason,
    });
  }

  #endSilence(): void {
    if (typeof this.#silence === 'object') this.#silence.timer.cancel();
    this.#silence = undefined;
  }

  #backoff(atLeastMs = 0): Backoff {
    const { backoff, random } = this.#options;
    return new Backoff(backoff.initialMs, Math.max(backoff.maxMs, atLeastMs), random);
  }

  #endpoint(index: number): string {
    const address = this.#options.endpoints[index];
    if (address === undefined) return '';
    return address.kind === 'unix' ? `unix:${address.path}` : formatHostPort(address.host, address.port);
  }
}
