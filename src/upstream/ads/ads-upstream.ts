import type { TypeUrl } from '../../model/brand.ts';
import type { Timer } from '../../model/clock.ts';
import type { Interest } from '../../model/transaction.ts';
import type { Refusals, Suspect, Upstream, UpstreamSink, UpstreamState } from '../../model/upstream.ts';
import { Conditions } from '../../observe/conditions.ts';
import { systemLookup } from '../../wire/lookup.ts';
import { claims } from '../claims.ts';
import { addressesTransport } from './addresses-transport.ts';
import type { AdsStreamHandler } from './ads-stream-ports.ts';
import { AnnouncedVia } from './announced-via.ts';
import { Backoff } from './backoff.ts';
import type { Channel } from './channel.ts';
import { EndpointConditions } from './endpoint-conditions.ts';
import { Failover } from './failover.ts';
import { grpcTransport } from './grpc-channel.ts';
import { nodesText, type SessionRule } from './node.ts';
import type { AdsUpstreamOptions } from './options.ts';
import { Sessions } from './sessions.ts';
import { hasService } from './stream-id.ts';
import { UpstreamConnection } from './upstream-connection.ts';

/** The longest wait between two tries on an isolated stream, if `backoff.max` is shorter than this. Milliseconds. */
const isolatedMaxBackoffMs = 30_000;

/** Why the last stream ended, if it ended before any response. */
interface StreamFailure {
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
  readonly #connection: UpstreamConnection;
  readonly #via: AnnouncedVia;
  readonly #conditions: Conditions;
  readonly #endpoints: EndpointConditions;
  readonly #sessions: Sessions;
  #up: { readonly channel: Channel; readonly endpoint: number } | undefined;
  /** Streams that have not ended on this connection before a response. */
  readonly #mayStillAnswer = new Set<StreamFailure>();
  /** Streams that ended on this connection before any response. */
  readonly #endedUnanswered = new Set<StreamFailure>();
  /**
   * The timer that waits for a first response. `accepted`: it has fired, and the silence means that nothing subscribed
   * exists.
   */
  #silence: { readonly timer: Timer } | 'accepted' | undefined;
  #everConnected = false;
  #staleSince: number | undefined;
  #lastError = '';
  /** The last connection was closed because its streams ended before any response. */
  #isRefused = false;

  constructor(options: AdsUpstreamOptions, sink: UpstreamSink) {
    this.name = options.name;
    this.#options = options;
    this.#sink = sink;
    this.#via = new AnnouncedVia(options.via, options.clock);
    this.#conditions = new Conditions(options.log);
    this.#endpoints = new EndpointConditions(options.endpoints, this.#conditions);
    this.#sessions = new Sessions(options, this.#conditions, {
      streamHandler: (holders) => this.#streamHandler(holders),
      backoff: (isolated) => this.#backoff(isolated ? isolatedMaxBackoffMs : 0),
      endIfIdle: (interests) => {
        for (const interest of interests) sink.endIfIdle?.(interest);
      },
      isIdle: (interest) => sink.isIdle?.(interest) === true,
      apply: (applied) => sink.apply(applied),
      restamp: (restamp) => sink.restamp(restamp),
      changed: () => sink.changed(),
    });
    this.#failover = new Failover(options.endpoints.length, this.#backoff());
    const transport =
      options.transport ?? addressesTransport(grpcTransport(options), { ...options, lookup: systemLookup });
    this.#connection = new UpstreamConnection(
      { ...options, stableAfterMs: options.backoff.maxMs, transport },
      this.#failover,
      {
        up: (channel, endpoint) => this.#connected(channel, endpoint),
        down: (lost) => this.#disconnected(lost),
        failed: (endpoint, reason) => this.#failed(endpoint, reason),
        ended: (endpoint, reason) => this.#connectionEnded(endpoint, reason),
        retrying: () => options.metrics.reconnect(),
      },
    );
  }

  claims(type: TypeUrl, selector: string): boolean {
    const { services, protocol } = this.#options;
    if (services === 'PER_TYPE' && !hasService(type, protocol)) return false;
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
      endpoint: this.#endpoints.name(this.#failover.current),
      sessions: this.#sessions.size,
      staleSince: this.#staleSince,
      lastError: this.#lastError,
      warning: this.#via.warning,
      refusedStreams: Math.max(this.#endedUnanswered.size, this.#isRefused ? 1 : 0),
    };
  }

  suspects(): readonly Suspect[] {
    return this.#sessions.suspects();
  }

  subscribe(interest: Interest): void {
    this.#sessions.subscribe(interest);
  }

  resubscribe(interest: Interest): void {
    this.#sessions.resubscribe(interest);
  }

  unsubscribe(interest: Interest): void {
    this.#sessions.unsubscribe(interest);
  }

  markIdle(interest: Interest): void {
    this.#sessions.markIdle(interest);
  }

  markActive(interest: Interest): void {
    this.#sessions.markActive(interest);
  }

  refusals(): Refusals | undefined {
    return this.#sessions.refusals();
  }

  refusal(interest: Interest): string | undefined {
    return this.#sessions.refusal(interest);
  }

  /** The parameter rules have changed: which keys make a parameter set, and where the node shows them. */
  reconfigure(rules: readonly SessionRule[]): void {
    this.#sessions.reconfigure(rules);
  }

  /**
   * New relays connect to this one. Open streams are opened again, so that their x-distributary-via header names
   * them. True: some were opened anew.
   */
  reannounce(): boolean {
    return this.#sessions.reannounce();
  }

  #streamHandler(holders: readonly string[]): AdsStreamHandler {
    const { metrics } = this.#options;
    const failure: StreamFailure = { reason: undefined };
    return {
      apply: (applied) => this.#sink.apply(applied),
      count: (type, result, arrivedAt) => {
        metrics.updates(type, result, arrivedAt);
        if (result === 'accepted') metrics.lastUpdate(type);
      },
      log: (level, message, fields) => this.#options.log[level](message, fields),
      via: () => this.#via.text(),
      isIdle: (interest) => this.#sink.isIdle?.(interest) === true,
      opening: (again) => {
        if (again) this.#sink.streamReopened?.(holders);
        this.#opening(failure);
      },
      answered: (via) => {
        this.#via.answered(via);
        this.#answered(failure);
      },
      wildcardOverdue: () => this.#overdue(),
      endedUnanswered: (reason, via, code) => {
        this.#via.unanswered(via, code);
        return this.#unanswered(failure, reason);
      },
      ended: (reason) => this.#ended(reason),
      closed: () => this.#closed(failure),
      countEnd: (code) => metrics.streamEnd(code),
    };
  }

  #connected(channel: Channel, endpoint: number): void {
    this.#up = { channel, endpoint };
    this.#mayStillAnswer.clear();
    this.#endedUnanswered.clear();
    this.#everConnected = true;
    if (this.#failover.countsAsRecovery) this.#recovered(endpoint);
    this.#sessions.up(channel, endpoint);
    // Nobody waits for anything, so nothing is out of date for anybody. Idle interests are asked when a client comes.
    if (this.#connection.isUntried) this.#staleSince = undefined;
    this.#sink.changed();
  }

  #disconnected(lost: string | undefined): void {
    this.#up = undefined;
    this.#endSilence();
    this.#staleSince ??= this.#options.clock.now();
    this.#sessions.down(lost);
  }

  #failed(endpoint: number, reason: string): void {
    this.#lastError = `${this.#endpoints.name(endpoint)}: ${reason}`;
    this.#isRefused = false;
    this.#endpoints.failed(endpoint, reason);
    this.#sink.changed();
  }

  #connectionEnded(endpoint: number, reason: string): void {
    this.#isRefused = false;
    this.#endpoints.ended(endpoint, reason);
    this.#sink.changed();
  }

  #recovered(endpoint: number): void {
    this.#lastError = '';
    this.#endpoints.recovered(endpoint);
  }

  #opening(failure: StreamFailure): void {
    this.#connection.streamOpened();
    if (!this.#endedUnanswered.has(failure)) this.#mayStillAnswer.add(failure);
    if (this.#silence !== undefined || this.#connection.hasAnswered) return;
    this.#silence = {
      timer: this.#options.clock.after(this.#options.resourceTimeoutMs, () => this.#silent()),
    };
  }

  #answered(failure: StreamFailure): void {
    if (failure.reason !== undefined) {
      if (this.#lastError === failure.reason) this.#lastError = '';
      this.#closed(failure);
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
   * The endpoint is connected but has sent no response at all. Many control planes do not answer for names that do
   * not exist, nor for what has not changed since the last stream. So silence is a failure only while there is
   * another endpoint to try. Otherwise the names are absent: their own timers fire right after this one.
   */
  #silent(): void {
    if (this.#sessions.nodesWithoutAnswer().length > 0 && this.#failover.hasAlternative) {
      this.#rejectSilent();
      return;
    }
    this.#silence = 'accepted';
    this.#failover.acceptSilence();
    this.#staleSince = undefined;
    this.#sink.changed();
  }

  /** A wildcard is answered by every control plane that works. */
  #overdue(): void {
    if (!this.#connection.hasAnswered) this.#rejectSilent();
  }

  #rejectSilent(): void {
    const seconds = this.#options.resourceTimeoutMs / 1000;
    const nodes = nodesText(this.#sessions.nodesWithoutAnswer());
    this.#connection.reject(`connected, but no response within ${seconds} s${nodes}`);
  }

  /** The stream has a response, or is not needed any more: its failure does not count any longer. */
  #closed(failure: StreamFailure): void {
    this.#mayStillAnswer.delete(failure);
    this.#endedUnanswered.delete(failure);
    failure.reason = undefined;
    if (this.#endedUnanswered.size === 0) this.#conditions.forget('stream');
  }

  /**
   * A stream ended before any response. The connection is given up only if no other stream on it works or may still
   * work.
   */
  #unanswered(failure: StreamFailure, reason: string): boolean {
    if (!this.#connection.isUp) return false;
    this.#mayStillAnswer.delete(failure);
    this.#endedUnanswered.add(failure);
    if (!this.#connection.hasAnswered && this.#mayStillAnswer.size === 0) {
      this.#connection.reject(reason);
      this.#isRefused = true;
      return true;
    }
    const endpoint = this.#endpoints.name(this.#failover.current);
    failure.reason = `${endpoint}: ${reason}`;
    this.#lastError = failure.reason;
    this.#conditions.set('stream', reason, 'warn', 'the control plane refuses a stream', {
      endpoint,
      reason,
    });
    this.#sink.changed();
    return false;
  }

  /**
   * Many control planes end streams regularly, and a response that is too large ends each new stream. Both are logged
   * once.
   */
  #ended(reason: string): void {
    const endpoint = this.#endpoints.name(this.#failover.current);
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
}
