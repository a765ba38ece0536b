import type { TypeUrl } from '../../model/brand.ts';
import type { Timer } from '../../model/clock.ts';
import { assertNever } from '../../model/result.ts';
import type { Interest, Move } from '../../model/transaction.ts';
import { Code } from '../../wire/grpc-status.ts';
import { announcesMore } from '../../wire/via.ts';
import type { AdsStreamOptions, ReleasedType } from './ads-stream-ports.ts';
import type { Channel } from './channel.ts';
import { arrivalOn, arrivedOn, OpenStream } from './open-stream.ts';
import type { Stamp } from './stamp.ts';
import type { ProtocolEffect, ProtocolInput } from './stream-protocol.ts';

/** One ADS stream of a session: passes events to the protocol state machine and carries out its effects. */
export class AdsStream {
  readonly #options: AdsStreamOptions;
  #channel: { readonly channel: Channel; readonly endpoint: number } | undefined;
  #stream: OpenStream | undefined;
  /** The endpoint of the last stream. Versions of that stream mean nothing to another endpoint. */
  #lastEndpoint: number | undefined;
  #flush: Timer | undefined;
  #retry: Timer | undefined;
  #node: Uint8Array;
  #opened = false;
  /** Another stream of the session has had a response on this channel. */
  #siblingAnswered = false;
  /**
   * The control plane has ended a stream before. Interests without subscribers are not subscribed again on the next
   * one.
   */
  #hasEndedBefore = false;
  #hasSuspended = false;

  constructor(options: AdsStreamOptions) {
    this.#options = options;
    this.#node = options.node;
  }

  get awaitsResponse(): boolean {
    return this.#options.protocolState.awaitsResponse;
  }

  /** What it shows to the control plane, encoded. */
  get node(): Uint8Array {
    return this.#node;
  }

  /** Nothing is subscribed on this stream. */
  get isUnused(): boolean {
    return this.#options.protocolState.isUnused;
  }

  subscribe(interest: Interest): void {
    this.#step({ kind: 'subscribe', interest });
    this.#flushSoon();
  }

  unsubscribe(interest: Interest): void {
    this.#step({ kind: 'unsubscribe', interest });
    this.#flushSoon();
  }

  /** A client subscribes again to an idle interest. */
  resume(interest: Interest): void {
    this.#step({ kind: 'resume', interest });
    this.#flushSoon();
  }

  /** Some interests were not subscribed again after the last stream ended, because they are idle. */
  get hasSuspended(): boolean {
    return this.#hasSuspended;
  }

  /** Returns these interests, once. */
  takeSuspended(): readonly Interest[] {
    if (!this.#hasSuspended) return [];
    this.#hasSuspended = false;
    return this.#options.protocolState.suspendedInterests();
  }

  up(channel: Channel, endpoint: number): void {
    this.#channel = { channel, endpoint };
    this.#siblingAnswered = false;
    this.#openStream();
  }

  siblingAnswered(): void {
    if (this.#siblingAnswered) return;
    this.#siblingAnswered = true;
    if (this.#stream !== undefined) this.#step({ kind: 'sibling_answered' });
  }

  /** `lost`: why the connection was lost; undefined: the relay itself has closed it. */
  down(lost?: string): void {
    this.#channel = undefined;
    this.#retry?.cancel();
    this.#retry = undefined;
    if (this.#stream === undefined) return;
    if (lost === undefined) {
      this.#closeStream();
      return;
    }
    this.#endStream();
    this.#hasEndedBefore = true;
    this.#options.handler.countEnd(Code.UNAVAILABLE);
    this.#options.observer.ended('lost', lost);
  }

  stop(): void {
    this.#flush?.cancel();
    this.down();
    this.#options.handler.closed();
  }

  release(type: TypeUrl): ReleasedType | undefined {
    const { protocolState, backoff } = this.#options;
    const state = protocolState.release(type);
    if (protocolState.isUnused) this.#closeIdle();
    if (state === undefined) return undefined;
    return {
      state,
      endpoint: this.#lastEndpoint,
      hasEndedBefore: this.#hasEndedBefore,
      backoff: protocolState.isUnused ? backoff : undefined,
    };
  }

  /** Takes over a type from another stream. */
  adopt({ state, endpoint, hasEndedBefore, backoff }: ReleasedType): void {
    this.#hasEndedBefore ||= hasEndedBefore;
    const isNew = !this.#opened;
    if (isNew) this.#lastEndpoint = endpoint;
    else if (this.#stream === undefined && this.#lastEndpoint !== endpoint) this.#lastEndpoint = undefined;
    this.#options.protocolState.adopt(state, endpoint === this.#lastEndpoint);
    if (isNew && backoff !== undefined) {
      this.#options.backoff.continueFrom(backoff);
      this.#openLater();
    } else {
      this.#flushSoon();
    }
  }

  /** Subscription changes of one moment are sent in one request. */
  #flushSoon(): void {
    this.#flush ??= this.#options.clock.after(0, () => {
      this.#flush = undefined;
      if (this.#hasEndedBefore && this.#stream === undefined) this.#suspendIdle();
      if (this.#options.protocolState.isUnused) this.#closeIdle();
      else if (this.#stream === undefined) this.#openStream();
      else this.#step({ kind: 'flush' });
    });
  }

  #openStream(): void {
    const { protocolState, path, handler, observer, clock } = this.#options;
    if (this.#channel === undefined || this.#stream !== undefined || this.#retry !== undefined) return;
    if (this.#hasEndedBefore) this.#suspendIdle();
    if (protocolState.isUnused) return;
    const { channel, endpoint } = this.#channel;
    handler.opening(this.#opened);
    this.#opened = true;
    const open: OpenStream = new OpenStream(
      { channel, path, via: handler.via(), node: this.#node, clock },
      {
        message: (bytes) => this.#receive(open, { kind: 'received', bytes }),
        proceed: () => this.#receive(open, { kind: 'read_on' }),
        closed: (reason, code) => this.#closed(open, reason, code),
      },
    );
    this.#stream = open;
    observer.opened();
    const resumed = this.#lastEndpoint === endpoint;
    this.#lastEndpoint = endpoint;
    this.#step({ kind: 'connected', resumed });
    if (this.#siblingAnswered) this.#step({ kind: 'sibling_answered' });
  }

  /** Nobody subscribes any more to some interest of this stream. */
  suspendIdle(): void {
    if (this.#hasEndedBefore && this.#stream === undefined) this.#flushSoon();
  }

  #suspendIdle(): void {
    const { protocolState, handler } = this.#options;
    this.#step({ kind: 'suspend_idle', isIdle: handler.isIdle });
    this.#hasSuspended = protocolState.suspendedInterests().length > 0;
  }

  /** Nothing may be subscribed or unsubscribed while they are read. */
  interests(): Iterable<Interest> {
    return this.#options.protocolState.interests();
  }

  restamp(stamp: Stamp | undefined): Iterable<readonly [TypeUrl, Move]> {
    return this.#options.protocolState.restamp(stamp);
  }

  /** A control plane that decides by node may have other resources for another one: nothing is resumed. */
  setNode(node: Uint8Array): void {
    if (Buffer.compare(this.#node, node) === 0) return;
    this.#node = node;
    this.#lastEndpoint = undefined;
    this.#siblingAnswered = false;
    this.#reopen();
  }

  /** gRPC metadata is sent only when a stream opens. To announce more relays, a new stream is needed. Rare. */
  reannounce(): boolean {
    if (this.#stream === undefined || !announcesMore(this.#stream.via, this.#options.handler.via()))
      return false;
    this.#reopen();
    return true;
  }

  #reopen(): void {
    if (this.#stream === undefined) return;
    this.#closeStream();
    this.#openStream();
  }

  /** Also if the stream was closed already and the next one waits for its backoff. */
  #closeIdle(): void {
    this.#closeStream();
    this.#options.handler.closed();
  }

  #closeStream(): void {
    if (this.#stream === undefined) return;
    this.#endStream();
    this.#options.observer.closed();
    this.#options.handler.closed();
  }

  #endStream(): void {
    const open = this.#stream;
    if (open === undefined) return;
    this.#stream = undefined;
    open.end();
    const { clock, backoff, stableAfterMs } = this.#options;
    if (clock.now() - open.since >= stableAfterMs) backoff.reset();
    this.#step({ kind: 'disconnected' });
  }

  /** True: a part of the response is still to be read. */
  #receive(open: OpenStream, input: ProtocolInput): boolean {
    if (this.#stream !== open) return false;
    if (input.kind === 'received') this.#options.observer.arrived();
    const effects = this.#options.protocolState.step(input);
    if (input.kind === 'received' && !effects.some((effect) => effect.kind === 'fail')) {
      open.answered = true;
      this.#options.handler.answered(open.via);
      this.#options.observer.accepted();
    }
    this.#run(effects);
    return effects.some((effect) => effect.kind === 'read_on');
  }

  /** Reads the rest of a large response at once, and applies it. */
  finishReading(): void {
    for (let open = this.#stream; open !== undefined; ) {
      if (!this.#receive(open, { kind: 'read_on' })) open = undefined;
    }
  }

  #closed(open: OpenStream, reason: string, code: Code): void {
    // A response that came before the end counts.
    this.finishReading();
    if (this.#stream !== open) return;
    this.#endStream();
    this.#hasEndedBefore = true;
    const { handler, protocolState, observer } = this.#options;
    handler.countEnd(code);
    const isRelieved = observer.ended('ended', reason);
    if (open.answered) handler.ended(reason);
    else if (handler.endedUnanswered(reason, open.via, code)) return;
    // Everything has moved to other streams, the cause of the end too.
    if (protocolState.isUnused) handler.closed();
    if (isRelieved && !protocolState.isUnused) this.#openStream();
    else this.#openLater();
  }

  /** The relay itself closes the stream, so its requests are not suspected. */
  #fail(reason: string): void {
    const open = this.#stream;
    if (open === undefined) return;
    const { handler } = this.#options;
    this.#closeStream();
    if (open.answered) handler.ended(reason);
    else if (handler.endedUnanswered(reason, open.via)) return;
    this.#openLater();
  }

  #openLater(): void {
    this.#retry ??= this.#options.clock.after(this.#options.backoff.next(), () => {
      this.#retry = undefined;
      this.#openStream();
    });
  }

  #step(input: ProtocolInput): void {
    this.#run(this.#options.protocolState.step(input));
  }

  #run(effects: readonly ProtocolEffect[]): void {
    for (const effect of effects) this.#do(effect);
  }

  #do(effect: ProtocolEffect): void {
    const { handler, observer } = this.#options;
    switch (effect.kind) {
      case 'send':
        this.#stream?.send(effect.request);
        break;
      case 'apply':
        handler.apply(arrivedOn(this.#stream, effect.transaction));
        break;
      case 'arm':
        this.#stream?.arm(effect.timer, effect.milliseconds, () =>
          this.#step({ kind: 'fired', timer: effect.timer }),
        );
        break;
      case 'cancel':
        this.#stream?.cancel(effect.timer);
        break;
      case 'asked':
        observer.firstRequested(effect.type);
        break;
      case 'count':
        observer.answered(effect.type);
        handler.count(effect.type, effect.result, arrivalOn(this.#stream));
        break;
      case 'log':
        handler.log(effect.level, effect.message, { type: effect.type });
        break;
      case 'overdue':
        handler.wildcardOverdue();
        break;
      case 'renew':
        this.#reopen();
        break;
      case 'fail':
        this.#fail(effect.reason);
        break;
      case 'read_on': // by `#receive`
        break;
      default:
        assertNever(effect);
    }
  }
}
