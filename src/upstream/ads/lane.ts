import type { TypeUrl } from '../../model/brand.ts';
import type { Timer } from '../../model/clock.ts';
import { assertNever } from '../../model/result.ts';
import type { Interest, Move } from '../../model/transaction.ts';
import { ADS_SERVICE } from '../../model/types.ts';
import { encodeRequest } from '../../wire/request-writer.ts';
import { Code } from '../../wire/status.ts';
import { announcesMore } from '../../wire/via.ts';
import type { Link, LinkStream } from './dial.ts';
import type { LaneOptions, Released } from './lane-ports.ts';
import type { Effect, Input } from './machine.ts';
import type { Stamp } from './stamp.ts';

interface Open {
  readonly stream: LinkStream;
  readonly since: number;
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
  /** A stream of this lane has ended: from then on, what nobody subscribes to is not asked anew. */
  #hasEnded = false;
  #rests = false;

  constructor(options: LaneOptions) {
    this.#options = options;
    this.#node = options.node;
  }

  get awaits(): boolean {
    return this.#options.machine.awaits;
  }

  /** Nothing is asked here. */
  get idle(): boolean {
    return this.#options.machine.idle;
  }

  subscribe(interest: Interest): void {
    this.#step({ kind: 'subscribe', interest });
    this.#flushSoon();
  }

  unsubscribe(interest: Interest): void {
    this.#step({ kind: 'unsubscribe', interest });
    this.#flushSoon();
  }

  /** Somebody subscribes again to what nobody did. */
  wake(interest: Interest): void {
    this.#step({ kind: 'wake', interest });
    this.#flushSoon();
  }

  /** Something was not asked again after an end, as nobody subscribes to it. */
  get rests(): boolean {
    return this.#rests;
  }

  /** What that is. */
  takeResting(): readonly Interest[] {
    if (!this.#rests) return [];
    this.#rests = false;
    return this.#options.machine.resting();
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

  /** `lost`: the connection went. Else the relay itself has closed it. */
  down(lost?: string): void {
    this.#link = undefined;
    this.#retry?.cancel();
    this.#retry = undefined;
    if (this.#open === undefined) return;
    if (lost === undefined) {
      this.#closeStream();
      return;
    }
    this.#endStream();
    this.#hasEnded = true;
    this.#options.handler.countEnd(Code.UNAVAILABLE);
    this.#options.watch.ended('lost', lost);
  }

  stop(): void {
    this.#flush?.cancel();
    this.down();
    this.#options.handler.closed();
  }

  release(type: TypeUrl): Released | undefined {
    const { machine, backoff } = this.#options;
    const state = machine.release(type);
    if (machine.idle) this.#closeIdle();
    if (state === undefined) return undefined;
    return {
      state,
      endpoint: this.#lastEndpoint,
      hasEnded: this.#hasEnded,
      backoff: machine.idle ? backoff : undefined,
    };
  }

  /** Asked here from now on. */
  adopt({ state, endpoint, hasEnded, backoff }: Released): void {
    this.#hasEnded ||= hasEnded;
    const isNew = !this.#opened;
    if (isNew) this.#lastEndpoint = endpoint;
    else if (this.#open === undefined && this.#lastEndpoint !== endpoint) this.#lastEndpoint = undefined;
    this.#options.machine.adopt(state, endpoint === this.#lastEndpoint);
    if (isNew && backoff !== undefined) {
      this.#options.backoff.continueFrom(backoff);
      this.#openLater();
    } else {
      this.#flushSoon();
    }
  }

  /** Changes of one moment go out together. */
  #flushSoon(): void {
    this.#flush ??= this.#options.clock.after(0, () => {
      this.#flush = undefined;
      if (this.#hasEnded && this.#open === undefined) this.#rest();
      if (this.#options.machine.idle) this.#closeIdle();
      else if (this.#open === undefined) this.#openStream();
      else this.#step({ kind: 'flush' });
    });
  }

  #openStream(): void {
    const { machine, protocol, handler, watch, clock } = this.#options;
    if (this.#link === undefined || this.#open !== undefined || this.#retry !== undefined) return;
    if (this.#hasEnded) this.#rest();
    if (machine.idle) return;
    const { link, endpoint } = this.#link;
    handler.opening(this.#opened);
    this.#opened = true;
    const via = handler.via();
    const open: Open = {
      since: clock.now(),
      timers: new Map(),
      answered: false,
      greeted: false,
      via,
      stream: link.open(paths[protocol], via, {
        message: (bytes) => this.#receive(open, bytes),
        closed: (reason, code) => this.#closed(open, reason, code),
      }),
    };
    this.#open = open;
    watch.opened();
    const resumed = this.#lastEndpoint === endpoint;
    this.#lastEndpoint = endpoint;
    this.#step({ kind: 'connected', resumed });
    if (this.#heard) this.#step({ kind: 'heard' });
  }

  /** Nobody subscribes any more to something that is asked here. */
  rest(): void {
    if (this.#hasEnded && this.#open === undefined) this.#flushSoon();
  }

  #rest(): void {
    const { machine, handler } = this.#options;
    this.#step({ kind: 'rest', isIdle: handler.isIdle });
    this.#rests = machine.resting().length > 0;
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
  reannounce(): boolean {
    if (this.#open === undefined || !announcesMore(this.#open.via, this.#options.handler.via())) return false;
    this.#reopen();
    return true;
  }

  #reopen(): void {
    if (this.#open === undefined) return;
    this.#closeStream();
    this.#openStream();
  }

  /** Also where the next stream was waited for. */
  #closeIdle(): void {
    this.#closeStream();
    this.#options.handler.closed();
  }

  #closeStream(): void {
    if (this.#open === undefined) return;
    this.#endStream();
    this.#options.watch.closed();
    this.#options.handler.closed();
  }

  #endStream(): void {
    const open = this.#open;
    if (open === undefined) return;
    this.#open = undefined;
    for (const timer of open.timers.values()) timer.cancel();
    open.stream.end();
    const { clock, backoff, wellMs } = this.#options;
    if (clock.now() - open.since >= wellMs) backoff.reset();
    this.#step({ kind: 'disconnected' });
  }

  #receive(open: Open, bytes: Buffer): void {
    if (this.#open !== open) return;
    const effects = this.#options.machine.step({ kind: 'received', bytes });
    if (!effects.some((effect) => effect.kind === 'fail')) {
      open.answered = true;
      this.#options.handler.answered();
      this.#options.watch.accepted();
    }
    this.#run(effects);
  }

  #closed(open: Open, reason: string, code: Code): void {
    if (this.#open !== open) return;
    this.#endStream();
    this.#hasEnded = true;
    const { handler, machine, watch } = this.#options;
    handler.countEnd(code);
    const isRelieved = watch.ended('ended', reason);
    if (open.answered) handler.ended(reason);
    else if (handler.unanswered(reason)) return;
    // All that was asked here is asked elsewhere now, and so is the trouble.
    if (machine.idle) handler.closed();
    if (isRelieved && !machine.idle) this.#openStream();
    else this.#openLater();
  }

  /** The relay gives the stream up: that is no reason to suspect what was asked. */
  #fail(reason: string): void {
    const open = this.#open;
    if (open === undefined) return;
    const { handler } = this.#options;
    this.#closeStream();
    if (open.answered) handler.ended(reason);
    else if (handler.unanswered(reason)) return;
    this.#openLater();
  }

  #openLater(): void {
    this.#retry ??= this.#options.clock.after(this.#options.backoff.next(), () => {
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
    const { handler, watch } = this.#options;
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
      case 'asked':
        watch.asked(effect.type);
        break;
      case 'count':
        watch.answered(effect.type);
        handler.count(effect.type, effect.result);
        break;
      case 'log':
        handler.log(effect.level, effect.message, { type: effect.type });
        break;
      case 'overdue':
        handler.overdue();
        break;
      case 'renew':
        this.#reopen();
        break;
      case 'fail':
        this.#fail(effect.reason);
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
