import type { ParametersKey, TypeUrl } from '../../model/brand.ts';
import type { Timer } from '../../model/clock.ts';
import { stampConstraints } from '../../model/constraints.ts';
import { NO_PARAMETERS, type Parameters } from '../../model/parameters.ts';
import { type Holder, type Interest, transaction, WILDCARD } from '../../model/transaction.ts';
import type { Upstream, UpstreamSink, UpstreamState } from '../../model/upstream.ts';
import { Conditions } from '../../observe/conditions.ts';
import { formatHostPort } from '../../wire/address.ts';
import { encodeStatus } from '../../wire/request-writer.ts';
import { Code } from '../../wire/status.ts';
import { claims } from '../claims.ts';
import { Backoff } from './backoff.ts';
import { Connection } from './connection.ts';
import { DeltaSession } from './delta-session.ts';
import { Failover } from './failover.ts';
import { Lane, type LaneHandler } from './lane.ts';
import { grpcDial, type Link } from './link.ts';
import type { SessionOptions } from './machine.ts';
import { encodeNode } from './node.ts';
import type { AdsUpstreamOptions } from './options.ts';
import { Session } from './session.ts';
import { SotwSession } from './sotw-session.ts';
import { restrict, stampFor, unstamped } from './stamp.ts';

/**
 * A control plane over ADS (protocol §5b): one connection, and on it a session for each distinct parameter set, or
 * one for all if the control plane matches variants itself (NATIVE) or nothing depends on parameters (no rules).
 */
export class AdsUpstream implements Upstream {
  readonly name: string;
  readonly #options: AdsUpstreamOptions;
  readonly #sink: UpstreamSink;
  readonly #keys: readonly string[];
  readonly #failover: Failover;
  readonly #connection: Connection;
  readonly #conditions: Conditions;
  readonly #sessions = new Map<ParametersKey, Session>();
  /** Past max_upstream_sessions; they get the places that become free. */
  readonly #refused = new Set<Interest>();
  #up: { readonly link: Link; readonly endpoint: number } | undefined;
  /** Silence has been taken for an answer: nothing subscribed exists. */
  #silence: { readonly timer: Timer } | 'accepted' | undefined;
  #everConnected = false;
  #staleSince: number | undefined;
  #lastError = '';

  constructor(options: AdsUpstreamOptions, sink: UpstreamSink) {
    this.name = options.name;
    this.#options = options;
    this.#sink = sink;
    this.#keys = options.variants === 'NATIVE' ? [] : options.rules.map((rule) => rule.key);
    this.#conditions = new Conditions(options.log);
    this.#failover = new Failover(options.endpoints.length, this.#backoff());
    const dial = options.dial ?? grpcDial(options);
    this.#connection = new Connection({ ...options, dial }, this.#failover, {
      up: (link, endpoint) => this.#connected(link, endpoint),
      down: () => this.#disconnected(),
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
    for (const session of this.#sessions.values()) session.stop();
    this.#connection.stop();
    return Promise.resolve();
  }

  state(): UpstreamState {
    return {
      kind: 'ads',
      connected: this.#connection.isUp,
      everConnected: this.#everConnected,
      down: this.#failover.down,
      endpoint: this.#endpoint(this.#failover.current),
      sessions: this.#sessions.size,
      staleSince: this.#staleSince,
      lastError: this.#lastError,
    };
  }

  subscribe(interest: Interest): void {
    const parameters = this.#shown(interest);
    const known = this.#sessions.get(parameters.key);
    if (known === undefined && this.#sessions.size >= this.#options.maxSessions) {
      this.#refuse(interest, parameters);
      return;
    }
    const session = known ?? this.#session(parameters);
    session.subscribe(interest);
  }

  unsubscribe(interest: Interest): void {
    const { type, selector, parameters } = interest;
    for (const refused of this.#refused) {
      if (refused.type !== type || refused.selector !== selector || refused.parameters !== parameters)
        continue;
      this.#refused.delete(refused);
      return;
    }
    const { key } = this.#shown(interest);
    const session = this.#sessions.get(key);
    if (session === undefined) return;
    session.unsubscribe(interest);
    if (session.idle) this.#end(key, session);
  }

  /** What of an interest's parameters decides the session. */
  #shown(interest: Interest): Parameters {
    return this.#keys.length === 0 ? NO_PARAMETERS : restrict(this.#keys, interest.parameters);
  }

  #session(parameters: Parameters): Session {
    const { options, stream } = { options: this.#machineOptions(parameters), stream: this.#options.protocol };
    const { node, rules, version, clock } = this.#options;
    const encoded = encodeNode(node, this.#keys.length === 0 ? [] : rules, parameters, version);
    const session = new Session(
      () =>
        new Lane({
          machine: stream === 'SOTW' ? new SotwSession(options) : new DeltaSession(options),
          protocol: stream,
          node: encoded,
          backoff: this.#backoff(),
          clock,
          handler: this.#laneHandler(),
        }),
    );
    this.#sessions.set(parameters.key, session);
    if (this.#up !== undefined) session.up(this.#up.link, this.#up.endpoint);
    this.#sink.changed();
    return session;
  }

  #machineOptions(parameters: Parameters): SessionOptions {
    const { variants, maxConstraintDepth, resourceTimeoutMs } = this.#options;
    const native = variants === 'NATIVE';
    return {
      holders: { wildcard: this.#holder(parameters, 'wildcard'), named: this.#holder(parameters, 'named') },
      locators: native,
      stamp: native ? unstamped : stampFor(this.#keys, parameters, maxConstraintDepth),
      maxConstraintDepth,
      resourceTimeoutMs,
    };
  }

  #holder(parameters: Parameters, role: Holder['role']): Holder {
    return { key: JSON.stringify(['ads', this.name, parameters.key, role]), upstream: this.name, role };
  }

  #laneHandler(): LaneHandler {
    const { metrics } = this.#options;
    return {
      apply: (applied) => this.#sink.apply(applied),
      count: (type, result) => {
        metrics.updates(type, result);
        if (result === 'accepted') metrics.lastUpdate(type);
      },
      log: (level, message, fields) => this.#options.log[level](message, fields),
      via: this.#options.via,
      opening: () => this.#opening(),
      answered: () => this.#answered(),
      overdue: () => this.#overdue(),
      unanswered: (reason) => this.#unanswered(reason),
    };
  }

  #end(key: ParametersKey, session: Session): void {
    session.stop();
    this.#sessions.delete(key);
    this.#sink.changed();
    this.#conditions.forget('sessions');
    // One place is free: all who wait for the same parameter set get it.
    for (const interest of [...this.#refused]) {
      const { key: wanted } = this.#shown(interest);
      if (!this.#sessions.has(wanted) && this.#sessions.size >= this.#options.maxSessions) continue;
      this.#refused.delete(interest);
      this.subscribe(interest);
    }
  }

  /** An answer, or it would look like a control plane that has not answered yet. */
  #refuse(interest: Interest, parameters: Parameters): void {
    const { maxSessions, metrics } = this.#options;
    const { type, selector } = interest;
    this.#refused.add(interest);
    metrics.refused();
    const message = `upstream ${this.name}: all ${maxSessions} sessions (limits.max_upstream_sessions) are in use by other parameter sets`;
    this.#conditions.set('sessions', 'full', 'warn', message);
    const code = Code.RESOURCE_EXHAUSTED;
    const status = encodeStatus({ code, message });
    const constraints = stampConstraints(this.#keys, parameters);
    const holder = this.#holder(parameters, selector === WILDCARD ? 'wildcard' : 'named');
    const faults = [{ name: selector, constraints, code, message, status }];
    this.#sink.apply(transaction({ holder, type, faults, settled: [interest] }));
  }

  #connected(link: Link, endpoint: number): void {
    this.#up = { link, endpoint };
    this.#everConnected = true;
    if (this.#failover.wellConnected) this.#recovered(endpoint);
    if (this.#sessions.size === 0) this.#staleSince = undefined;
    for (const session of this.#sessions.values()) session.up(link, endpoint);
    this.#sink.changed();
  }

  #disconnected(): void {
    this.#up = undefined;
    this.#endSilence();
    this.#staleSince ??= this.#options.clock.now();
    for (const session of this.#sessions.values()) session.down();
  }

  #failed(endpoint: number, reason: string): void {
    const address = this.#endpoint(endpoint);
    this.#lastError = `${address}: ${reason}`;
    this.#conditions.forget('up');
    this.#conditions.set(`endpoint ${endpoint}`, reason, 'warn', 'control plane failed', {
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

  #opening(): void {
    this.#connection.asked();
    if (this.#silence !== undefined || this.#connection.hasAnswered) return;
    this.#silence = {
      timer: this.#options.clock.after(this.#options.resourceTimeoutMs, () => this.#silent()),
    };
  }

  #answered(): void {
    if (this.#connection.hasAnswered) return;
    this.#connection.answered();
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
    const awaits = [...this.#sessions.values()].some((session) => session.awaits);
    if (awaits && this.#failover.hasAlternative) {
      this.#rejectSilent();
      return;
    }
    this.#silence = 'accepted';
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

  /** While other streams of the connection work, the trouble is with this one. */
  #unanswered(reason: string): boolean {
    if (this.#connection.hasAnswered || !this.#connection.isUp) return false;
    this.#connection.reject(reason);
    return true;
  }

  #endSilence(): void {
    if (typeof this.#silence === 'object') this.#silence.timer.cancel();
    this.#silence = undefined;
  }

  #backoff(): Backoff {
    const { backoff, random } = this.#options;
    return new Backoff(backoff.initialMs, backoff.maxMs, random);
  }

  #endpoint(index: number): string {
    const address = this.#options.endpoints[index];
    if (address === undefined) return '';
    return address.kind === 'unix' ? `unix:${address.path}` : formatHostPort(address.host, address.port);
  }
}
