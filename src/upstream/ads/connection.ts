import type { Clock, Timer } from '../../model/clock.ts';
import type { Address } from '../../wire/address.ts';
import type { Dial, Link } from './dial.ts';
import type { Failover } from './failover.ts';

export interface ConnectionHandler {
  up(link: Link, endpoint: number): void;
  /** What was up is not any more. `lost`: why the connection went; undefined: it was closed here. */
  down(lost: string | undefined): void;
  /** A try at an endpoint failed, or what was up failed. */
  failed(endpoint: number, reason: string): void;
  /** Another try begins. */
  retrying(): void;
}

export interface ConnectionOptions {
  readonly endpoints: readonly Address[];
  readonly dial: Dial;
  readonly settleMs: number;
  /** A connection that has lived so long is well: the next wait is a short one again. */
  readonly wellMs: number;
  readonly clock: Clock;
}

type State =
  | { readonly kind: 'stopped' }
  | { readonly kind: 'waiting'; readonly timer: Timer }
  | { readonly kind: 'connecting'; readonly link: Link }
  | { readonly kind: 'up'; readonly link: Link; readonly since: number; asked: boolean; answered: boolean };

/**
 * The one connection of an upstream, which all its sessions share: so they fail over together, and go back to a
 * preferred endpoint together (protocol §5b).
 */
export class Connection {
  readonly #options: ConnectionOptions;
  readonly #failover: Failover;
  readonly #handler: ConnectionHandler;
  #state: State = { kind: 'stopped' };
  #probe: { readonly link: Link | undefined; readonly timer: Timer | undefined } | undefined;

  constructor(options: ConnectionOptions, failover: Failover, handler: ConnectionHandler) {
    this.#options = options;
    this.#failover = failover;
    this.#handler = handler;
  }

  get isUp(): boolean {
    return this.#state.kind === 'up';
  }

  /** Up, and nothing has been asked on it: it may be better than the ones before. */
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
    else if (state.kind !== 'stopped') state.link.close();
  }

  /** A stream is opened: from now on silence counts. */
  asked(): void {
    if (this.#state.kind === 'up') this.#state.asked = true;
  }

  answered(): void {
    if (this.#state.kind !== 'up' || this.#state.answered) return;
    this.#state.answered = true;
    this.#failover.answered();
  }

  /** The endpoint is connected and no good. */
  reject(reason: string): void {
    if (this.#state.kind !== 'up') return;
    this.#state.link.close();
    this.#over(reason, undefined);
  }

  #connect(): void {
    const { current } = this.#failover;
    const link = this.#link(current, {
      connected: () => this.#connected(link, current),
      lost: (reason) => this.#lost(reason),
    });
    this.#state = { kind: 'connecting', link };
  }

  #connected(link: Link, endpoint: number): void {
    this.#state = { kind: 'up', link, since: this.#options.clock.now(), asked: false, answered: false };
    this.#failover.connected();
    this.#watchPreferred();
    this.#handler.up(link, endpoint);
  }

  #lost(reason: string): void {
    this.#over(reason, reason);
  }

  #over(reason: string, lost: string | undefined): void {
    const { clock, wellMs } = this.#options;
    const failover = this.#failover;
    const state = this.#state;
    const endpoint = failover.current;
    this.#endProbe();
    const unanswered = state.kind === 'up' && state.asked && !state.answered;
    const worked = state.kind === 'up' && !unanswered;
    if (worked && clock.now() - state.since >= wellMs) failover.well();
    const wait = worked ? failover.lost() : failover.failed(unanswered ? 'unanswered' : 'unreachable');
    const timer = clock.after(wait, () => {
      this.#handler.retrying();
      this.#connect();
    });
    this.#state = { kind: 'waiting', timer };
    if (state.kind === 'up') this.#handler.down(lost);
    this.#handler.failed(endpoint, reason);
  }

  /** While an endpoint further down the list serves, those before it are tried now and then. */
  #watchPreferred(): void {
    if (this.#failover.current === 0) return;
    const timer = this.#options.clock.after(this.#options.settleMs, () => this.#tryPreferred(0));
    this.#probe = { link: undefined, timer };
  }

  #tryPreferred(endpoint: number): void {
    if (endpoint >= this.#failover.current) {
      this.#watchPreferred();
      return;
    }
    const link = this.#link(endpoint, {
      connected: () => {
        const settling = this.#options.settleMs * this.#failover.penalty(endpoint);
        this.#probe = {
          link,
          timer: this.#options.clock.after(settling, () => this.#return(link, endpoint)),
        };
      },
      lost: (reason) => {
        if (this.#state.kind === 'up' && this.#state.link === link) {
          this.#lost(reason);
          return;
        }
        this.#probe?.timer?.cancel();
        this.#tryPreferred(endpoint + 1);
      },
    });
    this.#probe = { link, timer: undefined };
  }

  #return(link: Link, endpoint: number): void {
    if (this.#state.kind !== 'up') return;
    this.#state.link.close();
    this.#probe = undefined;
    this.#handler.down(undefined); // a preferred endpoint is healthy again
    this.#failover.returned(endpoint);
    this.#connected(link, endpoint);
  }

  #endProbe(): void {
    this.#probe?.timer?.cancel();
    this.#probe?.link?.close();
    this.#probe = undefined;
  }

  #link(endpoint: number, handler: { connected(): void; lost(reason: string): void }): Link {
    const address = this.#options.endpoints[endpoint];
    if (address === undefined) throw new Error(`there is no endpoint ${endpoint}`);
    return this.#options.dial(address, handler);
  }
}
