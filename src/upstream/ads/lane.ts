import type { TypeUrl } from '../../model/brand.ts';
import type { Clock, Timer } from '../../model/clock.ts';
import { assertNever } from '../../model/result.ts';
import type { Interest, Move, Transaction } from '../../model/transaction.ts';
import { ADS_SERVICE } from '../../model/types.ts';
import { encodeRequest } from '../../wire/request-writer.ts';
import { announcesMore } from '../../wire/via.ts';
import type { Backoff } from './backoff.ts';
import type { Link, LinkStream } from './dial.ts';
import type { Effect, Input, Machine } from './machine.ts';
import type { Stamp } from './stamp.ts';

/** What a lane needs of its upstream. */
export interface LaneHandler {
  apply(transaction: Transaction): void;
  count(type: TypeUrl, result: 'accepted' | 'rejected'): void;
  log(level: 'info' | 'warn', message: string, fields: Readonly<Record<string, unknown>>): void;
  via(): string;
  /** A stream is about to be opened; `again`: after another one, from which something may be held. */
  opening(again: boolean): void;
  /** A response has arrived, and it was one. */
  answered(): void;
  /** A wildcard was not answered in time. */
  overdue(): void;
  /** A stream ended that had no answer. True: the whole connection is given up. */
  unanswered(reason: string): boolean;
  /** A stream ended that had answers; another one is opened. */
  ended(reason: string): void;
}

export interface LaneOptions {
  readonly machine: Machine;
  readonly protocol: 'DELTA' | 'SOTW';
  /** The encoded Node: in the first request of each stream. */
  readonly node: Uint8Array;
  readonly backoff: Backoff;
  readonly clock: Clock;
  readonly handler: LaneHandler;
}

interface Open {
  readonly stream: LinkStream;
  /** What it said in x-distributary-via. */
  readonly via: string;
  readonly timers: Map<string, Timer>;
  answered: boolean;
  greeted: boolean;
}

const paths = {
  DELTA: `/${ADS_SERVICE}/DeltaAggregatedResources`,
  SOTW: `/${ADS_SERVICE}/StreamAggregatedResources`,
};

/** One stream of a session: feeds its machine, and does what the machine says. */
export class Lane {
  readonly #options: LaneOptions;
  #link: { readonly link: Link; readonly endpoint: number } | undefined;
  #open: Open | undefined;
  /** Where the last stream went: only there are its versions worth anything. */
  #lastEndpoint: number | undefined;
  #flush: Timer | undefined;
  #retry: Timer | undefined;
  #node: Uint8Array;
  #opened = false;
  /** The session's other stream has had a response on this link. */
  #heard = false;

  constructor(options: LaneOptions) {
    this.#options = options;
    this.#node = options.node;
  }

  get awaits(): boolean {
    return this.#options.machine.awaits;
  }

  subscribe(interest: Interest): void {
    this.#step({ kind: 'subscribe', interest });
    this.#flushSoon();
  }

  unsubscribe(interest: Interest): void {
    this.#step({ kind: 'unsubscribe', interest });
    this.#flushSoon();
  }

  up(link: Link, endpoint: number): void {
    this.#link = { link, endpoint };
    this.#heard = false;
    this.#openStream();
  }

  heard(): void {
    if (this.#heard) return;
    this.#heard = true;
    if (this.#open !== undefined) this.#step({ kind: 'heard' });
  }

  down(): void {
    this.#link = undefined;
    this.#retry?.cancel();
    this.#retry = undefined;
    this.#closeStream();
  }

  stop(): void {
    this.#flush?.cancel();
    this.down();
  }

  /** Changes of one moment go out together. */
  #flushSoon(): void {
    this.#flush ??= this.#options.clock.after(0, () => {
      this.#flush = undefined;
      if (this.#options.machine.idle) this.#closeStream();
      else if (this.#open === undefined) this.#openStream();
      else this.#step({ kind: 'flush' });
    });
  }

  #openStream(): void {
    const { machine, protocol, handler } = this.#options;
    if (this.#link === undefined || this.#open !== undefined || this.#retry !== undefined || machine.idle)
      return;
    const { link, endpoint } = this.#link;
    handler.opening(this.#opened);
    this.#opened = true;
    const via = handler.via();
    const open: Open = {
      timers: new Map(),
      answered: false,
      greeted: false,
      via,
      stream: link.open(paths[protocol], via, {
        message: (bytes) => this.#receive(open, bytes),
        closed: (reason) => this.#closed(open, reason),
      }),
    };
    this.#open = open;
    const resumed = this.#lastEndpoint === endpoint;
    this.#lastEndpoint = endpoint;
    this.#step({ kind: 'connected', resumed });
    if (this.#heard) this.#step({ kind: 'heard' });
  }

  /** What is wanted; nothing of it may change while this is read. */
  interests(): Iterable<Interest> {
    return this.#options.machine.interests();
  }

  restamp(stamp: Stamp | undefined): Iterable<readonly [TypeUrl, Move]> {
    return this.#options.machine.restamp(stamp);
  }

  /** A control plane that decides by node may have other resources for another one: nothing is resumed. */
  show(node: Uint8Array): void {
    if (Buffer.compare(this.#node, node) === 0) return;
    this.#node = node;
    this.#lastEndpoint = undefined;
    this.#heard = false;
    this.#reopen();
  }

  /** Metadata is sent once in the life of a stream, so what it does not say yet takes a new one. Rare. */
  reannounce(): void {
    if (this.#open !== undefined && announcesMore(this.#open.via, this.#options.handler.via()))
      this.#reopen();
  }

  #reopen(): void {
    if (this.#open === undefined) return;
    this.#closeStream();
    this.#openStream();
  }

  #closeStream(): void {
    const open = this.#open;
    if (open === undefined) return;
    this.#open = undefined;
    for (const timer of open.timers.values()) timer.cancel();
    open.stream.end();
    this.#step({ kind: 'disconnected' });
  }

  #receive(open: Open, bytes: Buffer): void {
    if (this.#open !== open) return;
    const effects = this.#options.machine.step({ kind: 'received', bytes });
    if (!effects.some((effect) => effect.kind === 'fail')) {
      open.answered = true;
      this.#options.backoff.reset();
      this.#options.handler.answered();
    }
    this.#run(effects);
  }

  #closed(open: Open, reason: string): void {
    if (this.#open !== open) return;
    this.#closeStream();
    const { handler } = this.#options;
    if (open.answered) handler.ended(reason);
    else if (handler.unanswered(reason)) return;
    this.#retry = this.#options.clock.after(this.#options.backoff.next(), () => {
      this.#retry = undefined;
      this.#openStream();
    });
  }

  #step(input: Input): void {
    this.#run(this.#options.machine.step(input));
  }

  #run(effects: readonly Effect[]): void {
    for (const effect of effects) this.#do(effect);
  }

  #do(effect: Effect): void {
    const { handler } = this.#options;
    switch (effect.kind) {
      case 'send':
        this.#send(effect);
        break;
      case 'apply':
        handler.apply(effect.transaction);
        break;
      case 'arm':
        this.#arm(effect.timer, effect.milliseconds);
        break;
      case 'cancel':
        this.#open?.timers.get(effect.timer)?.cancel();
        this.#open?.timers.delete(effect.timer);
        break;
      case 'count':
        handler.count(effect.type, effect.result);
        break;
      case 'log':
        handler.log(effect.level, effect.message, { type: effect.type });
        break;
      case 'overdue':
        handler.overdue();
        break;
      case 'fail':
        if (this.#open !== undefined) {
          this.#open.stream.end();
          this.#closed(this.#open, effect.reason);
        }
        break;
      default:
        assertNever(effect);
    }
  }

  #send({ request }: Extract<Effect, { kind: 'send' }>): void {
    const open = this.#open;
    if (open === undefined) return;
    const node = open.greeted ? undefined : this.#node;
    open.greeted = true;
    open.stream.write(encodeRequest(request, node));
  }

  #arm(timer: string, milliseconds: number): void {
    const open = this.#open;
    if (open === undefined) return;
    open.timers.get(timer)?.cancel();
    const armed = this.#options.clock.after(milliseconds, () => {
      open.timers.delete(timer);
      this.#step({ kind: 'fired', timer });
    });
    open.timers.set(timer, armed);
  }
}
