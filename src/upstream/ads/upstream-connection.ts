import type { Clock, Timer } from '../../model/clock.ts';
import type { Address } from '../../wire/address.ts';
import type { Channel, ChannelHandler, Transport } from './channel.ts';
import type { Failover } from './failover.ts';

export interface UpstreamConnectionHandler {
  up(channel: Channel, endpoint: number): void;
  /** The connection is down. `lost`: why it was lost; undefined: the relay has closed it. */
  down(lost: string | undefined): void;
  /** An attempt to connect failed, or the connection did. */
  failed(endpoint: number, reason: string): void;
  /** The control plane has asked for another connection. */
  ended(endpoint: number, reason: string): void;
  /** Another attempt begins. */
  retrying(): void;
}

export interface UpstreamConnectionOptions {
  readonly endpoints: readonly Address[];
  readonly transport: Transport;
  readonly failbackAfterMs: number;
  /** A connection that has lasted this long resets the backoff. Milliseconds. */
  readonly stableAfterMs: number;
  readonly clock: Clock;
}

type State =
  | { readonly kind: 'stopped' }
  | { readonly kind: 'waiting'; readonly timer: Timer }
  | { readonly kind: 'connecting'; readonly channel: Channel }
  | {
      readonly kind: 'up';
      readonly channel: Channel;
      readonly since: number;
      asked: boolean;
      answered: boolean;
    };

/**
 * The one connection of an upstream, which all its sessions share: so they fail over together, and go back to a
 * preferred endpoint together (protocol §5b).
 */
export class UpstreamConnection {
  readonly #options: UpstreamConnectionOptions;
  readonly #failover: Failover;
  readonly #handler: UpstreamConnectionHandler;
  #state: State = { kind: 'stopped' };
  #probe: { readonly channel: Channel | undefined; readonly timer: Timer | undefined } | undefined;

  constructor(options: UpstreamConnectionOptions, failover: Failover, handler: UpstreamConnectionHandler) {
    this.#options = options;
    this.#failover = failover;
    this.#handler = handler;
  }

  get isUp(): boolean {
    return this.#state.kind === 'up';
  }

  /** Connected, and no stream was opened yet. It may work although the connections before it failed. */
  get isUntried(): boolean {
    return this.#state.kind === 'up' && !this.#state.asked;
  }

  /** Some stream of this connection has had a response. */
  get hasAnswered(): boolean {
    return this.#state.kind === 'up' && this.#state.answered;
  }

  start(): void {
    if (this.#state.kind === 'stopped') this.#connect();
  }

  stop(): void {
    this.#endProbe();
    const state = this.#state;
    this.#state = { kind: 'stopped' };
    if (state.kind === 'waiting') state.timer.cancel();
    else if (state.kind !== 'stopped') state.channel.close();
  }

  /** A stream is opened: from now on silence counts. */
  streamOpened(): void {
    if (this.#state.kind === 'up') this.#state.asked = true;
  }

  answered(): void {
    if (this.#state.kind !== 'up' || this.#state.answered) return;
    this.#state.answered = true;
    this.#failover.answered();
  }

  /** Closes the connection and counts it as a failure: the endpoint is connected but does not answer. */
  reject(reason: string): void {
    if (this.#state.kind !== 'up') return;
    this.#state.channel.close();
    this.#over(reason, undefined);
  }

  #connect(): void {
    const { current } = this.#failover;
    const channel = this.#openChannel(current, {
      connected: () => this.#connected(channel, current),
      lost: (reason, asked) => this.#lost(reason, asked),
    });
    this.#state = { kind: 'connecting', channel };
  }

  #connected(channel: Channel, endpoint: number): void {
    this.#state = { kind: 'up', channel, since: this.#options.clock.now(), asked: false, answered: false };
    this.#failover.connected();
    this.#watchPreferred();
    this.#handler.up(channel, endpoint);
  }

  #lost(reason: string, asked?: boolean): void {
    this.#over(reason, reason, asked);
  }

  #over(reason: string, lost: string | undefined, asked = false): void {
    const { clock, stableAfterMs } = this.#options;
    const failover = this.#failover;
    const state = this.#state;
    const endpoint = failover.current;
    this.#endProbe();
    const unanswered = state.kind === 'up' && state.asked && !state.answered;
    const worked = state.kind === 'up' && !unanswered;
    if (worked && clock.now() - state.since >= stableAfterMs) failover.resetBackoff();
    const wait = worked ? failover.lost() : failover.failed(unanswered ? 'unanswered' : 'unreachable');
    const timer = clock.after(wait, () => {
      this.#handler.retrying();
      this.#connect();
    });
    this.#state = { kind: 'waiting', timer };
    if (state.kind === 'up') this.#handler.down(lost);
    if (asked && worked) this.#handler.ended(endpoint, reason);
    else this.#handler.failed(endpoint, reason);
  }

  /** While a less preferred endpoint serves, the endpoints before it are tried from time to time. */
  #watchPreferred(): void {
    if (this.#failover.current === 0) return;
    const timer = this.#options.clock.after(this.#options.failbackAfterMs, () => this.#tryPreferred(0));
    this.#probe = { channel: undefined, timer };
  }

  #tryPreferred(endpoint: number): void {
    if (endpoint >= this.#failover.current) {
      this.#watchPreferred();
      return;
    }
    const channel = this.#openChannel(endpoint, {
      connected: () => {
        const settling = this.#options.failbackAfterMs * this.#failover.penalty(endpoint);
        this.#probe = {
          channel,
          timer: this.#options.clock.after(settling, () => this.#return(channel, endpoint)),
        };
      },
      lost: (reason, asked) => {
        if (this.#state.kind === 'up' && this.#state.channel === channel) {
          this.#lost(reason, asked);
          return;
        }
        this.#probe?.timer?.cancel();
        this.#tryPreferred(endpoint + 1);
      },
    });
    this.#probe = { channel, timer: undefined };
  }

  #return(channel: Channel, endpoint: number): void {
    if (this.#state.kind !== 'up') return;
    this.#state.channel.close();
    this.#probe = undefined;
    this.#handler.down(undefined); // a preferred endpoint is healthy again
    this.#failover.failedBack(endpoint);
    this.#connected(channel, endpoint);
  }

  #endProbe(): void {
    this.#probe?.timer?.cancel();
    this.#probe?.channel?.close();
    this.#probe = undefined;
  }

  #openChannel(endpoint: number, handler: ChannelHandler): Channel {
    const address = this.#options.endpoints[endpoint];
    if (address === undefined) throw new Error(`there is no endpoint ${endpoint}`);
    return this.#options.transport(address, handler);
  }
}
