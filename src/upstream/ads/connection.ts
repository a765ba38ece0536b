import { Backoff, type Timer } from '../../model/clock.ts';
import type { LoadTarget } from '../../model/load.ts';
import type { UpdateMetrics, UpstreamSink, UpstreamState } from '../../model/upstream.ts';
import { Conditions } from '../../observe/conditions.ts';
import { formatSeconds } from '../../observe/format.ts';
import type { Log } from '../../observe/log.ts';
import { type Address, formatAddress, systemLookup } from '../../wire/address.ts';
import type { Code } from '../../wire/grpc-status.ts';
import type { Claims } from '../claims.ts';
import { EndpointHealth } from './endpoint-health.ts';
import {
  addressesTransport,
  type Channel,
  type ChannelHandler,
  type GrpcChannelOptions,
  grpcTransport,
  type Transport,
} from './grpc-channel.ts';
import { nodesText, type RelayNode, type SessionRule } from './node.ts';
import type { Services } from './quarantine.ts';
import { type Awaited, mostAwaited } from './stream-effects.ts';

/** Times are milliseconds. */
export interface AdsUpstreamOptions extends GrpcChannelOptions {
  readonly name: string;
  readonly claims: Claims;
  /** In order of preference; at least one. */
  readonly endpoints: readonly Address[];
  readonly protocol: 'DELTA' | 'SOTW';
  /** Undefined: AGGREGATED. */
  readonly services?: Services;
  readonly variants: 'PER_PARAMETERS' | 'NATIVE';
  /** NATIVE, and a relay of ours answers: see `SessionPerParameters`. */
  readonly sessionPerParameters?: boolean;
  /** How an endpoint is reached; undefined: by gRPC, with `tls`, `connectTimeoutMs` and `keepalive`. */
  readonly transport?: Transport | undefined;
  /** Protocol §3.9. An endpoint that answers nothing at all for so long has failed. Undefined: see `MachineOptions`. */
  readonly resourceTimeoutMs: number | undefined;
  readonly backoff: { readonly initialMs: number; readonly maxMs: number };
  /** How long a preferred endpoint must hold a connection before the sessions go back to it. */
  readonly failbackAfterMs: number;
  /** For PER_PARAMETERS; none: one session, nothing is stamped. */
  readonly rules: readonly SessionRule[];
  /** Who the relay is to the control plane. */
  readonly node: RelayNode;
  /** Encoded: what a stream of load reports shows in place of the session's node; undefined: that. */
  readonly loadNode?: ((target: LoadTarget) => Uint8Array) | undefined;
  /** The product's, for the node's user_agent_version. */
  readonly version: string;
  /** `x-distributary-via`, asked for each new stream: this relay's id and those that it passes on. */
  readonly via: () => string;
  readonly maxConstraintDepth: number;
  /** How many entries of a response are read in one turn of the event loop; undefined: 1000. */
  readonly entriesPerTurn?: number;
  /** limits.max_upstream_sessions, asked for each session. */
  readonly maxSessions: () => number;
  /** 0 ≤ x < 1, for jitter. */
  readonly random: () => number;
  /** With the upstream's name in each line. */
  readonly log: Log;
  /** What is counted (docs/operations.md, metrics); what is left out is not. */
  readonly metrics: UpdateMetrics & {
    reconnect?(): void;
    /** A stream ended, and not because the relay closed it. */
    streamEnd?(code: Code): void;
    /** A subscription was refused, because max_upstream_sessions are open. */
    refused?(): void;
  };
}

/** A session, or a stream of load reports, that shares the connection. */
export interface ConnectionUser {
  /** Encoded: what it shows to the control plane. */
  readonly node: Uint8Array;
  /** What it has asked and has no answer yet. */
  readonly awaits: Awaited;
  up(): void;
  /** `lost`: why the connection was lost; undefined: the relay itself has closed it. */
  down(lost: string | undefined): void;
}

/** From the moment when it is connected. */
class Up {
  readonly kind = 'up';
  readonly channel: Channel;
  readonly endpoint: number;
  readonly since: number;
  /** A stream was opened: from then on silence counts. */
  asked = false;
  /** Some stream has had a response. */
  answered = false;
  /** Waits for the first response. `accepted`: it has fired, and no other endpoint is left to try. */
  silence: Timer | 'accepted' | undefined;

  constructor(channel: Channel, endpoint: number, since: number) {
    this.channel = channel;
    this.endpoint = endpoint;
    this.since = since;
  }

  endSilence(): void {
    if (typeof this.silence === 'object') this.silence.cancel();
    this.silence = undefined;
  }
}

type State =
  | { readonly kind: 'stopped' }
  | { readonly kind: 'waiting'; readonly timer: Timer }
  | { readonly kind: 'connecting'; readonly channel: Channel }
  | Up;

/**
 * The one connection of an upstream, which all its sessions share: so they fail over together, and go back to a
 * preferred endpoint together (protocol §5b). It knows which streams were answered, so that an endpoint which only
 * listens counts as failed.
 */
export class AdsConnection {
  readonly options: AdsUpstreamOptions;
  readonly sink: UpstreamSink;
  readonly conditions: Conditions;
  readonly #transport: Transport;
  readonly #failover: Failover;
  #users: () => Iterable<ConnectionUser> = () => [];
  /** Is called when the connection's state has changed. */
  #changed = (): void => {};
  #state: State = { kind: 'stopped' };
  /** A try at a preferred endpoint, while another one serves. */
  #probe: { readonly channel: Channel | undefined; readonly timer: Timer | undefined } | undefined;
  readonly health: EndpointHealth;
  /** Why a stream ended last before any response. */
  #lastRefusal = '';
  #everConnected = false;
  /** Since when nothing works; undefined: something does. */
  #awaySince: number | undefined;
  #staleSince: number | undefined;
  #lastError = '';
  /** The last connection was closed because its streams ended before any response. */
  #isRefused = false;

  constructor(options: AdsUpstreamOptions, sink: UpstreamSink) {
    const { backoff, random } = options;
    this.options = options;
    this.sink = sink;
    this.conditions = new Conditions(options.log);
    this.#transport = options.transport ?? addressesTransport(grpcTransport(options), systemLookup, options);
    this.health = new EndpointHealth(options.clock, options.resourceTimeoutMs);
    this.#failover = new Failover(
      options.endpoints.length,
      new Backoff(backoff.initialMs, backoff.maxMs, random),
    );
  }

  /** What is open; undefined: nothing. */
  get up(): { readonly channel: Channel; readonly endpoint: number } | undefined {
    return this.#state.kind === 'up' ? this.#state : undefined;
  }

  state(sessions: number): UpstreamState {
    return {
      kind: 'ads',
      connected: this.#state.kind === 'up',
      everConnected: this.#everConnected,
      down: this.#failover.down && !this.#isUntried,
      endpoint: this.#name(this.#failover.current),
      sessions,
      staleSince: this.#staleSince,
      lastError: this.#lastError,
      refusedStreams: Math.max(this.health.refused, this.#isRefused ? 1 : 0),
    };
  }

  /** `users`: as they are at any time. */
  start(users: () => Iterable<ConnectionUser>, changed: () => void): void {
    this.#users = users;
    this.#changed = changed;
    this.#staleSince ??= this.options.clock.now();
    this.#awaySince ??= this.options.clock.monotonic();
    if (this.#state.kind === 'stopped') this.#connect();
  }

  stop(): void {
    this.#endProbe();
    const state = this.#state;
    this.#state = { kind: 'stopped' };
    if (state.kind === 'waiting') state.timer.cancel();
    else if (state.kind !== 'stopped') state.channel.close();
    if (state.kind === 'up') state.endSilence();
  }

  /** A stream is about to be opened. */
  opening(stream: object): void {
    const { clock, resourceTimeoutMs } = this.options;
    this.health.opening(stream);
    const state = this.#state;
    if (state.kind !== 'up') return;
    state.asked = true;
    if (state.silence !== undefined || state.answered || resourceTimeoutMs === undefined) return;
    state.silence = clock.after(resourceTimeoutMs, () => this.#silent(state));
  }

  /** A response that can be read has arrived on a stream. */
  answered(stream: object): void {
    if (this.health.answered(stream)) {
      this.#refusesLess();
      this.#changed();
    }
    const state = this.#state;
    if (state.kind !== 'up' || state.answered) return;
    state.answered = true;
    this.#failover.answered();
    this.#isRefused = false;
    state.endSilence();
    this.#staleSince = undefined;
    this.#recovered(state.endpoint);
    this.#changed();
  }

  /**
   * A stream ended before any response. `isItsOwnFault`: whoever ended it had read what it asks. True: the connection is
   * given up.
   */
  unanswered(stream: object, reason: string, isItsOwnFault: boolean): boolean {
    const state = this.#state;
    if (state.kind !== 'up') return false;
    const hasWorked = state.answered || state.silence === 'accepted';
    if (this.health.refuses(stream, hasWorked, isItsOwnFault)) {
      const seconds = formatSeconds((this.options.resourceTimeoutMs ?? 0) / 1000);
      const since = hasWorked ? `for ${seconds} each stream has ended without a response: ` : '';
      this.#reject(`${since}${reason}`);
      this.#isRefused = true;
      return true;
    }
    const endpoint = this.#name(this.#failover.current);
    this.#lastError = `${endpoint}: ${reason}`;
    this.#lastRefusal = this.#lastError;
    const fields = { endpoint, reason };
    this.conditions.set('stream', reason, 'warn', 'the control plane refuses a stream', fields);
    this.#changed();
    return false;
  }

  /**
   * A stream ended that had responses. Many control planes end streams regularly, and a response that is too large ends
   * each new stream: both are logged once.
   */
  ended(stream: object, reason: string): void {
    this.health.ended(stream);
    const fields = { endpoint: this.#name(this.#failover.current), reason };
    this.conditions.add('ended', reason, 'warn', 'a stream ended, and another one is opened', fields);
  }

  /** The stream is not needed any more: its failure does not count any longer. */
  closed(stream: object): void {
    this.health.closed(stream);
    this.#refusesLess();
  }

  #refusesLess(): void {
    if (this.health.refused > 0) return;
    this.conditions.forget('stream');
    // What it failed by, until it works again, stays.
    const works = this.#state.kind === 'up' && this.#state.answered;
    if (works && this.#lastError === this.#lastRefusal) this.#lastError = '';
  }

  /** A wildcard was not answered in time, though every control plane that works answers wildcards. */
  overdue(): void {
    if (this.#state.kind === 'up' && !this.#state.answered) this.#rejectSilent();
  }

  /**
   * The endpoint is connected but has sent no response at all. If that is no failure, names that are not held are absent:
   * their own timers fire right after this one. What is held is served.
   */
  #silent(state: Up): void {
    const awaited = mostAwaited(Iterator.from(this.#users()).map(({ awaits }) => awaits));
    if (this.#failover.isSilenceFailure(awaited)) {
      this.#rejectSilent();
      return;
    }
    state.silence = 'accepted';
    this.#failover.acceptSilence();
    this.#isRefused = false;
    if (this.health.refused === 0) this.#lastError = '';
    // A control plane that lost nothing but what is held may never say so: that is no reason to call it out of date.
    this.#staleSince = undefined;
    this.#changed();
  }

  #rejectSilent(): void {
    const seconds = (this.options.resourceTimeoutMs ?? 0) / 1000;
    const waiting = [...this.#users()].filter(({ awaits }) => awaits !== 'nothing');
    const nodes = nodesText(waiting.map(({ node }) => node));
    this.#reject(`connected, but no response within ${seconds} s${nodes}`);
  }

  /** Closes the connection and counts it as a failure: the endpoint is connected but does not answer. */
  #reject(reason: string): void {
    if (this.#state.kind !== 'up') return;
    this.#state.channel.close();
    this.#over(reason, undefined);
  }

  #connect(): void {
    const { current } = this.#failover;
    const channel = this.#openChannel(current, {
      connected: () => this.#connected(channel, current),
      lost: (reason, asked) => this.#over(reason, reason, asked),
    });
    this.#state = { kind: 'connecting', channel };
  }

  #connected(channel: Channel, endpoint: number): void {
    this.#state = new Up(channel, endpoint, this.options.clock.monotonic());
    const isRecovery = this.#failover.connected();
    this.#watchPreferred();
    this.health.startOver();
    this.#everConnected = true;
    if (isRecovery) this.#recovered(endpoint);
    for (const user of [...this.#users()]) user.up();
    // Nobody waits for anything, so nothing is out of date for anybody. Idle interests are asked when a client comes.
    if (this.#isUntried) this.#staleSince = undefined;
    this.#changed();
  }

  /** Connected, and no stream was opened yet. It may work although the connections before it failed. */
  get #isUntried(): boolean {
    return this.#state.kind === 'up' && !this.#state.asked;
  }

  /** `lost`: as in `down`, undefined: it is rejected; `asked`: the control plane has asked for another connection. */
  #over(reason: string, lost: string | undefined, asked = false): void {
    const { clock, metrics } = this.options;
    const failover = this.#failover;
    const state = this.#state;
    const endpoint = failover.current;
    this.#endProbe();
    const unanswered = state.kind === 'up' && state.asked && !state.answered;
    const worked = state.kind === 'up' && !unanswered;
    if (worked) this.#credit(state);
    const failure = state.kind === 'up' ? 'unanswered' : 'unreachable';
    const wait = worked && lost !== undefined ? failover.lost() : failover.failed(failure);
    const timer = clock.after(wait, () => {
      metrics.reconnect?.();
      this.#connect();
    });
    this.#state = { kind: 'waiting', timer };
    if (state.kind === 'up') this.#down(state, lost);
    this.#isRefused = false;
    if (asked && worked) {
      // Nothing is wrong: many control planes end each connection after some time, so that clients spread.
      this.#say(endpoint, 'info', 'the connection ended, and another one is opened', reason);
    } else {
      this.#lastError = `${this.#name(endpoint)}: ${reason}`;
      this.#say(endpoint, 'warn', 'control plane failed', reason);
    }
    this.#changed();
  }

  /** The connection is over, and may have worked for a while. */
  #credit({ since, asked }: Up): void {
    const { clock, backoff } = this.options;
    const workedAt = asked ? this.health.workedAt : clock.monotonic();
    if (workedAt - since >= backoff.maxMs) this.#failover.lasted();
  }

  #down(state: Up, lost: string | undefined): void {
    state.endSilence();
    this.#staleSince ??= this.options.clock.now();
    this.#awaySince ??= this.options.clock.monotonic();
    for (const user of [...this.#users()]) user.down(lost);
  }

  /** While a less preferred endpoint serves, the endpoints before it are tried from time to time. */
  #watchPreferred(): void {
    if (this.#failover.current === 0) return;
    const timer = this.options.clock.after(this.options.failbackAfterMs, () => this.#tryPreferred(0));
    this.#probe = { channel: undefined, timer };
  }

  #tryPreferred(endpoint: number): void {
    if (endpoint >= this.#failover.current) {
      this.#watchPreferred();
      return;
    }
    const channel = this.#openChannel(endpoint, {
      connected: () => {
        const settling = this.options.failbackAfterMs * this.#failover.penalty(endpoint);
        const timer = this.options.clock.after(settling, () => this.#return(channel, endpoint));
        this.#probe = { channel, timer };
      },
      lost: (reason, asked) => {
        if (this.up?.channel === channel) {
          this.#over(reason, reason, asked);
          return;
        }
        this.#probe?.timer?.cancel();
        this.#tryPreferred(endpoint + 1);
      },
    });
    this.#probe = { channel, timer: undefined };
  }

  /** A preferred endpoint is healthy again. */
  #return(channel: Channel, endpoint: number): void {
    const state = this.#state;
    if (state.kind !== 'up') return;
    state.channel.close();
    this.#probe = undefined;
    this.#state = { kind: 'connecting', channel };
    this.#credit(state);
    this.#down(state, undefined);
    this.#failover.failedBack(endpoint);
    this.#connected(channel, endpoint);
  }

  #endProbe(): void {
    this.#probe?.timer?.cancel();
    this.#probe?.channel?.close();
    this.#probe = undefined;
  }

  #openChannel(endpoint: number, handler: ChannelHandler): Channel {
    const address = this.options.endpoints[endpoint];
    if (address === undefined) throw new Error(`there is no endpoint ${endpoint}`);
    return this.#transport(address, handler);
  }

  /** As the configuration has it. */
  #name(endpoint: number): string {
    const address = this.options.endpoints[endpoint];
    return address === undefined ? '' : formatAddress(address);
  }

  #recovered(index: number): void {
    this.#lastError = '';
    for (const known of this.options.endpoints.keys()) this.conditions.forget(`endpoint ${known}`);
    const endpoint = this.#name(index);
    const now = this.options.clock.monotonic();
    const seconds = (now - (this.#awaySince ?? now)) / 1000;
    this.#awaySince = undefined;
    const after = seconds < 1 ? {} : { after: formatSeconds(seconds) };
    this.conditions.set('up', endpoint, 'info', 'connected to the control plane', { endpoint, ...after });
  }

  #say(endpoint: number, level: 'info' | 'warn', message: string, reason: string): void {
    this.conditions.forget('up');
    const fields = { endpoint: this.#name(endpoint), reason };
    this.conditions.add(`endpoint ${endpoint}`, reason, level, message, fields);
  }
}

/** Which endpoint is next and when: the policy of one upstream, without connections and clock. */
export class Failover {
  readonly #count: number;
  readonly #backoff: Backoff;
  /** How many times longer than usual an endpoint must hold a connection before the relay goes back to it. */
  readonly #penalties: number[];
  /** Endpoints that have answered, and not been silent since. */
  readonly #trusted = new Set<number>();
  #current = 0;
  /** In a row, without success between. */
  #failures = 0;
  /**
   * Since the last response, some endpoint was connected but sent nothing. Until a response arrives, a connection
   * alone does not count as success.
   */
  #sawSilence = false;

  /** `count` endpoints, in order of preference. */
  constructor(count: number, backoff: Backoff) {
    this.#count = count;
    this.#backoff = backoff;
    this.#penalties = Array.from({ length: count }, () => 1);
  }

  get current(): number {
    return this.#current;
  }

  /** One round over all endpoints has failed. */
  get down(): boolean {
    return this.#failures >= this.#count;
  }

  /**
   * Whether the current endpoint has failed if it is silent about this. Every one that works answers wildcards. Many do not
   * answer for names that do not exist, nor for what has not changed since the last stream. So that silence is a failure only
   * while another endpoint was not tried yet in this round. One that has answered before fails only if it had some of the names.
   */
  isSilenceFailure(awaited: Awaited): boolean {
    if (awaited === 'wildcard') return true;
    const isSuspect = awaited === 'held' || (awaited === 'names' && !this.#trusted.has(this.#current));
    return isSuspect && this.#failures < this.#count - 1;
  }

  /** True: that counts as recovery. No endpoint was connected and silent since the last response. */
  connected(): boolean {
    if (!this.#sawSilence) this.#failures = 0;
    return !this.#sawSilence;
  }

  answered(): void {
    this.#failures = 0;
    this.#sawSilence = false;
    this.#trusted.add(this.#current);
  }

  /** No other endpoint is left to try, so the silence of the current one counts as its answer. */
  acceptSilence(): void {
    this.#failures = 0;
  }

  /**
   * The current endpoint failed: unreachable, or connected and without an answer. Moves to the next one; at once,
   * or after a whole round with a wait. In milliseconds.
   */
  failed(kind: 'unreachable' | 'unanswered'): number {
    if (kind === 'unanswered') {
      this.#sawSilence = true;
      this.#trusted.delete(this.#current);
      this.#penalties[this.#current] = Math.min((this.#penalties[this.#current] ?? 1) * 2, 64);
    }
    this.#failures++;
    this.#current = (this.#current + 1) % this.#count;
    return this.#failures % this.#count === 0 ? this.#backoff.next() : 0;
  }

  /** A connection that had worked, and lasted long, is over. */
  lasted(): void {
    this.#backoff.reset();
    this.#penalties[this.#current] = 1;
  }

  /** A connection that had worked ended: the same endpoint is tried first, because its versions are still valid there. */
  lost(): number {
    this.#failures = 0;
    return this.#backoff.next();
  }

  /** How many times `failback_after` a preferred endpoint must hold a connection. */
  penalty(index: number): number {
    return this.#penalties[index] ?? 1;
  }

  failedBack(index: number): void {
    this.#current = index;
  }
}
