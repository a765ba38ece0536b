import type { TypeUrl } from '../../model/brand.ts';
import { Backoff, type Timer } from '../../model/clock.ts';
import { getOrMake } from '../../model/maps.ts';
import type { Parameters } from '../../model/parameters.ts';
import { assertNever } from '../../model/result.ts';
import { type Interest, type Move, roleOf } from '../../model/transaction.ts';
import type { Suspect } from '../../model/upstream.ts';
import { Code } from '../../wire/grpc-status.ts';
import { encodeRequest } from '../../wire/request-writer.ts';
import { announcesMore } from '../../wire/via.ts';
import type { AdsConnection } from './connection.ts';
import type { ChannelStream } from './grpc-channel.ts';
import { isIsolated, methodPath, Quarantine, type Relocation, type StreamId } from './quarantine.ts';
import type { Stamp } from './stamp.ts';
import { type Awaited, type Holders, mostAwaited, type ProtocolEffect } from './stream-effects.ts';
import { StreamMachine } from './stream-machine.ts';
import type { SubscribedType } from './subscribed-type.ts';

/** Entries of a response that are read in one turn: a few milliseconds. */
const defaultEntriesPerTurn = 1000;
/** The longest wait between two tries on an isolated stream, if `backoff.max` is shorter than this. Milliseconds. */
const isolatedMaxBackoffMs = 30_000;

/**
 * The streams to a control plane for one parameter set: at most two for the types of the xDS protocol, two for unknown
 * types, and isolated ones. The wildcard of a type and its names are never on one stream: an answer on its way would make
 * `{"*", names}` look complete, and what is only named would leak into the wildcard. Whichever comes second for a type
 * takes the second stream. Everything else is on the first, which keeps the upstream's order across types (protocol
 * §5b). On services of single types each type has two streams of its own, and no order. The wildcard or the names of a
 * type move only from a closed stream, because late answers would follow them.
 */
export class Session {
  readonly connection: AdsConnection;
  readonly parameters: Parameters;
  readonly quarantine: Quarantine;
  readonly holders: Holders;
  /** The suspects have changed. */
  readonly changed: () => void;
  /** What it shows to the control plane, encoded: in each request (ADR 132). */
  node: Uint8Array;
  /** Of what arrives. */
  #stamp: Stamp;
  readonly #streams = new Map<StreamId, AdsStream>();
  #interests = 0;
  /** The idle interests. */
  readonly #idle = new Set<Interest>();

  constructor(
    connection: AdsConnection,
    parameters: Parameters,
    holders: Holders,
    node: Uint8Array,
    stamp: Stamp,
    changed: () => void,
  ) {
    const { backoff, services = 'AGGREGATED' } = connection.options;
    this.connection = connection;
    this.parameters = parameters;
    this.holders = holders;
    this.changed = changed;
    this.node = node;
    this.#stamp = stamp;
    this.quarantine = new Quarantine(backoff.maxMs, services);
  }

  /** Nothing is subscribed. */
  get empty(): boolean {
    return this.#interests === 0;
  }

  /** Nobody subscribes to any of its interests now. */
  get idle(): boolean {
    return this.#interests > 0 && this.#idle.size === this.#interests;
  }

  idleInterests(): readonly Interest[] {
    return [...this.#idle];
  }

  /** Nothing may be subscribed or unsubscribed while they are read. */
  interests(): Iterable<Interest> {
    return this.#streams.values().flatMap(({ machine }) => machine.interests);
  }

  /** What was asked and has no answer yet. */
  get awaits(): Awaited {
    return mostAwaited(this.#streams.values().map(({ machine }) => machine.awaits));
  }

  /** Of the last responses, which are kept to compare the next ones with. */
  get keptBytes(): number {
    return this.#streams.values().reduce((sum, { machine }) => sum + machine.keptBytes, 0);
  }

  /** The types on isolated streams. */
  *suspects(): Generator<Suspect, undefined> {
    for (const { streamId, ...suspect } of this.quarantine.suspects()) {
      if (this.#streams.get(streamId)?.machine.isUnused === false) yield suspect;
    }
  }

  subscribe(interest: Interest): void {
    this.#interests++;
    const now = this.connection.options.clock.monotonic();
    const id = this.quarantine.addInterest(interest.type, roleOf(interest), now);
    this.#stream(id).change('subscribe', interest);
    this.#dropUnused();
  }

  /** Subscribes once more to what is subscribed. */
  resubscribe(interest: Interest): void {
    this.#streamOf(interest)?.change('subscribe', interest);
  }

  unsubscribe(interest: Interest): void {
    this.#interests--;
    this.#idle.delete(interest);
    this.#streamOf(interest)?.change('unsubscribe', interest);
    this.quarantine.removeInterest(interest.type, roleOf(interest));
  }

  /** Nobody subscribes to it any more. */
  markIdle(interest: Interest): void {
    this.#idle.add(interest);
  }

  /** Somebody subscribes to it again. */
  markActive(interest: Interest): void {
    this.#idle.delete(interest);
  }

  /** The connection is open. */
  up(): void {
    for (const stream of [...this.#streams.values()]) stream.up();
  }

  /** `lost`: why the connection was lost; undefined: the relay itself has closed it. */
  down(lost: string | undefined): void {
    for (const stream of [...this.#streams.values()]) stream.down(lost);
  }

  stop(): void {
    for (const stream of this.#streams.values()) stream.stop();
  }

  /** More relays must be announced in x-distributary-via. */
  reannounce(): boolean {
    return [...this.#streams.values()].filter((stream) => stream.reannounce()).length > 0;
  }

  /** Another stamp, or (undefined) the end of this session: what becomes of all that it has brought. */
  *restamp(stamp: Stamp | undefined): Iterable<readonly [TypeUrl, Move]> {
    this.#stamp = stamp ?? this.#stamp;
    for (const stream of this.#streams.values()) yield* stream.machine.restamp(stamp);
  }

  /** If the node has changed, the streams are opened anew, and what they deliver is compared. */
  setNode(node: Uint8Array): void {
    if (Buffer.compare(this.node, node) === 0) return;
    this.node = node;
    for (const stream of this.#streams.values()) stream.startOver();
  }

  /**
   * A response has arrived on one of its streams. What arrived before on other streams is applied before: the clients of
   * this session see the control plane's order. A cluster must not go before the route that led to it has changed.
   */
  arrived(on: AdsStream): void {
    for (const stream of this.#streams.values()) if (stream !== on) stream.finishReading();
  }

  /** The control plane answers again. */
  accepted(on: AdsStream): void {
    for (const stream of this.#streams.values()) if (stream !== on) stream.siblingAnswered();
  }

  relocate(moves: readonly Relocation[]): void {
    for (const { type, from, to } of moves) {
      const before = this.#streams.get(from);
      const state = before?.release(type);
      if (before !== undefined && state !== undefined) this.#stream(to).adopt(state, before);
    }
    this.#dropUnused();
    this.changed();
  }

  #streamOf(interest: Interest): AdsStream | undefined {
    const streamId = this.quarantine.streamOf(interest.type, roleOf(interest));
    return streamId === undefined ? undefined : this.#streams.get(streamId);
  }

  #stream(id: StreamId): AdsStream {
    return getOrMake(this.#streams, id, () => new AdsStream(this, id, this.#stamp));
  }

  #dropUnused(): void {
    for (const [id, stream] of this.#streams) {
      if (this.quarantine.has(id)) continue;
      this.#streams.delete(id);
      stream.stop();
    }
  }
}

/** Of a server that has read what a stream asks; of a proxy mostly not. */
const answers: ReadonlySet<Code> = new Set([
  Code.INVALID_ARGUMENT,
  Code.NOT_FOUND,
  Code.PERMISSION_DENIED,
  Code.RESOURCE_EXHAUSTED,
  Code.FAILED_PRECONDITION,
  Code.OUT_OF_RANGE,
  Code.UNIMPLEMENTED,
]);

/** A stream from its opening to its end: its timers end with it. */
interface OpenStream {
  /** What it says in x-distributary-via. */
  readonly via: string;
  readonly since: number;
  readonly stream: ChannelStream;
  /** Some response on it could be read. */
  answered: boolean;
  /** When the response that is read now arrived, by `Clock.monotonic()`. */
  arrivedAt: number | undefined;
  readonly timers: Map<string, Timer>;
}

/**
 * One ADS stream of a session, again and again: it tells the protocol state machine what happens and carries out the
 * effects.
 */
class AdsStream {
  readonly machine: StreamMachine;
  readonly #session: Session;
  readonly #connection: AdsConnection;
  readonly #id: StreamId;
  readonly #backoff: Backoff;
  #open: OpenStream | undefined;
  /** The endpoint of the last stream. Versions of that stream mean nothing to another endpoint. */
  #lastEndpoint: number | undefined;
  #flush: Timer | undefined;
  #retry: Timer | undefined;
  #opened = false;
  /** Another stream of the session has had a response on this connection. */
  #siblingAnswered = false;

  constructor(session: Session, id: StreamId, stamp: Stamp) {
    const { options } = session.connection;
    const { backoff, random, protocol, maxConstraintDepth, resourceTimeoutMs } = options;
    this.#session = session;
    this.#connection = session.connection;
    this.#id = id;
    const maxMs = isIsolated(id) ? Math.max(backoff.maxMs, isolatedMaxBackoffMs) : backoff.maxMs;
    this.#backoff = new Backoff(backoff.initialMs, maxMs, random);
    this.machine = new StreamMachine({
      protocol,
      maxConstraintDepth,
      resourceTimeoutMs,
      entriesPerTurn: options.entriesPerTurn ?? defaultEntriesPerTurn,
      holders: session.holders,
      locators: options.variants === 'NATIVE',
      stamp,
      isRestored: (interest) => session.connection.sink.isRestored?.(interest) === true,
    });
  }

  /** What is subscribed changes: all changes of one moment are sent in one request. */
  change(how: 'subscribe' | 'unsubscribe', interest: Interest): void {
    this.machine[how](interest);
    this.#run();
    this.#flushSoon();
  }

  up(): void {
    this.#siblingAnswered = false;
    this.#openStream();
  }

  siblingAnswered(): void {
    if (this.#siblingAnswered) return;
    this.#siblingAnswered = true;
    if (this.#open === undefined) return;
    this.machine.responded();
    this.#run();
  }

  down(lost?: string): void {
    this.#retry?.cancel();
    this.#retry = undefined;
    if (this.#open === undefined) return;
    if (lost === undefined) {
      this.#closeStream();
      return;
    }
    this.#endStream();
    const { clock, metrics } = this.#connection.options;
    metrics.streamEnd?.(Code.UNAVAILABLE);
    this.#session.relocate(this.#session.quarantine.ended(this.#id, 'lost', lost, clock.monotonic()));
  }

  stop(): void {
    this.#flush?.cancel();
    this.down();
    this.#connection.closed(this);
  }

  release(type: TypeUrl): SubscribedType | undefined {
    const state = this.machine.release(type);
    if (this.machine.isUnused) this.#closeStream();
    return state;
  }

  /** Takes over a type from another stream. If nothing else is subscribed here, takes over that stream's backoff, too. */
  adopt(state: SubscribedType, before: AdsStream): void {
    const endpoint = before.#lastEndpoint;
    const isNew = !this.#opened;
    if (isNew) this.#lastEndpoint = endpoint;
    else if (this.#open === undefined && this.#lastEndpoint !== endpoint) this.#lastEndpoint = undefined;
    this.machine.adopt(state, endpoint === this.#lastEndpoint);
    if (isNew && before.machine.isUnused) {
      this.#backoff.continueFrom(before.#backoff);
      this.#connection.health.known(this);
      this.#openLater();
    } else {
      this.#flushSoon();
    }
  }

  /** A control plane that decides by node may have other resources for another one: nothing is resumed. */
  startOver(): void {
    this.#lastEndpoint = undefined;
    this.#siblingAnswered = false;
    this.#reopen();
  }

  /** gRPC metadata is sent only when a stream opens. To announce more relays, a new stream is needed. Rare. */
  reannounce(): boolean {
    if (this.#open === undefined || !announcesMore(this.#open.via, this.#connection.options.via()))
      return false;
    this.#reopen();
    return true;
  }

  /** Reads the rest of a large response at once, and applies it. */
  finishReading(): void {
    while (this.#open !== undefined && this.#readOn(this.#open));
  }

  #flushSoon(): void {
    this.#flush ??= this.#connection.options.clock.after(0, () => {
      this.#flush = undefined;
      if (this.machine.isUnused) this.#closeStream();
      else if (this.#open === undefined) this.#openStream();
      else {
        this.machine.flush();
        this.#run();
      }
    });
  }

  #openStream(): void {
    const connected = this.#connection.up;
    if (connected === undefined || this.#open !== undefined || this.#retry !== undefined) return;
    if (this.machine.isUnused) {
      this.#connection.closed(this);
      return;
    }
    const { options, sink } = this.#connection;
    const { wildcard, named } = this.#session.holders;
    // A new isolated stream does not mean that the whole holder is requested again.
    if (this.#opened && !isIsolated(this.#id)) sink.streamReopened?.([wildcard.key, named.key]);
    this.#connection.opening(this);
    this.#opened = true;
    const { channel, endpoint } = connected;
    const via = options.via();
    const open: OpenStream = {
      via,
      since: options.clock.monotonic(),
      stream: channel.open(methodPath(this.#id, options.protocol), via, {
        message: (bytes) => {
          open.arrivedAt = options.clock.monotonic();
          return this.#receive(open, bytes);
        },
        proceed: () => this.#readOn(open),
        closed: (reason, code) => this.#closed(open, reason, code),
      }),
      answered: false,
      arrivedAt: undefined,
      timers: new Map(),
    };
    this.#open = open;
    this.#session.quarantine.opened(this.#id, options.clock.monotonic());
    this.#beginProbation(open);
    const resumed = this.#lastEndpoint === endpoint;
    this.#lastEndpoint = endpoint;
    this.machine.connect(resumed);
    if (this.#siblingAnswered) this.machine.responded();
    this.#run();
  }

  /** The types of an isolated stream return to the usual ones if it lasts so long. */
  #beginProbation({ timers }: OpenStream): void {
    const { quarantine } = this.#session;
    const { clock } = this.#connection.options;
    const probation = quarantine.probation(this.#id);
    if (probation === undefined) return;
    const survived = (): void => {
      // It is closed first: a response on its way cannot be taken for an answer on another stream.
      this.down();
      this.#session.relocate(quarantine.survived(this.#id, clock.monotonic()));
    };
    timers.set('probation', clock.after(probation, survived));
  }

  #reopen(): void {
    if (this.#open === undefined) return;
    this.#endOwn();
    this.#openStream();
  }

  /** Also if it was closed already and the next one waits for its backoff. */
  #closeStream(): void {
    if (this.#open !== undefined) this.#endOwn();
    this.#connection.closed(this);
  }

  /** The relay itself ends it, so its requests are not suspected. */
  #endOwn(): void {
    this.#endStream();
    this.#session.quarantine.closed(this.#id, this.#connection.options.clock.monotonic());
  }

  #endStream(): void {
    const open = this.#open;
    if (open === undefined) return;
    this.#open = undefined;
    for (const timer of open.timers.values()) timer.cancel();
    open.stream.end();
    const { clock, backoff } = this.#connection.options;
    if (clock.monotonic() - open.since >= backoff.maxMs) this.#backoff.reset();
    this.machine.disconnect();
  }

  /** True: a part of the response is still to be read. */
  #receive(open: OpenStream, bytes: Buffer): boolean {
    if (this.#open !== open) return false;
    this.#session.arrived(this);
    const hasMore = this.machine.receive(bytes);
    const effects = this.machine.ready();
    if (!effects.some((effect) => effect.kind === 'fail')) {
      open.answered = true;
      this.#connection.answered(this);
      this.#session.accepted(this);
    }
    this.#run(effects);
    if (!hasMore) open.arrivedAt = undefined;
    return hasMore;
  }

  /** The same. */
  #readOn(open: OpenStream): boolean {
    if (this.#open !== open) return false;
    const hasMore = this.machine.readOn();
    this.#run();
    if (!hasMore) open.arrivedAt = undefined;
    return hasMore;
  }

  #closed(open: OpenStream, reason: string, code: Code | undefined): void {
    // A response that came before the end counts.
    this.finishReading();
    if (this.#open !== open) return;
    if (code === undefined) {
      this.#fail(reason, false);
      return;
    }
    this.#endStream();
    const { clock, metrics } = this.#connection.options;
    metrics.streamEnd?.(code);
    const moves = this.#session.quarantine.ended(this.#id, 'ended', reason, clock.monotonic());
    this.#session.relocate(moves);
    if (this.#isGivenUp(open, reason, this.#isItsOwn(code))) return;
    const { isUnused } = this.machine;
    // Everything has moved to other streams, the cause of the end too.
    if (isUnused) this.#connection.closed(this);
    if (!isUnused && moves.some(({ from }) => from === this.#id)) this.#openStream();
    else this.#openLater();
  }

  /** `hasAnswer`: it cannot be read. */
  #fail(reason: string, hasAnswer: boolean): void {
    const open = this.#open;
    if (open === undefined) return;
    this.#endOwn();
    if (!this.#isGivenUp(open, reason, hasAnswer)) this.#openLater();
  }

  /** Somebody has read what it asks, and that may be the cause of its end. */
  #isItsOwn(code: Code): boolean {
    if (isIsolated(this.#id)) return answers.has(code);
    return this.#connection.options.services === 'PER_TYPE' && code === Code.UNIMPLEMENTED;
  }

  /** Tells the connection how a stream ended; true: the whole connection is given up. */
  #isGivenUp(open: OpenStream, reason: string, isItsOwnFault: boolean): boolean {
    if (!open.answered) return this.#connection.unanswered(this, reason, isItsOwnFault);
    this.#connection.ended(this, reason);
    return false;
  }

  #openLater(): void {
    this.#retry ??= this.#connection.options.clock.after(this.#backoff.next(), () => {
      this.#retry = undefined;
      this.#openStream();
    });
  }

  #run(effects = this.machine.ready()): void {
    for (const effect of effects) this.#do(effect);
  }

  #do(effect: ProtocolEffect): void {
    const { options, sink } = this.#connection;
    const arrivedAt = this.#open?.arrivedAt;
    switch (effect.kind) {
      case 'send':
        this.#open?.stream.write(encodeRequest(effect.request, this.#session.node));
        break;
      case 'apply':
        sink.apply({ ...effect.transaction, arrivedAt });
        break;
      case 'timer':
        this.#setTimer(effect.timer, effect.milliseconds);
        break;
      case 'asked':
        this.#session.quarantine.firstRequested(this.#id, effect.type, options.clock.monotonic());
        break;
      case 'answered':
        this.#answered(effect.type, effect.refused);
        break;
      case 'log':
        options.log[effect.level](effect.message, { type: effect.type });
        break;
      case 'overdue':
        this.#connection.overdue();
        break;
      case 'renew':
        this.#reopen();
        break;
      case 'fail':
        this.#fail(effect.reason, true);
        break;
      default:
        assertNever(effect);
    }
  }

  #answered(type: TypeUrl, refused: string | undefined): void {
    this.#session.quarantine.answered(this.#id, type);
    const { metrics } = this.#connection.options;
    if (refused === undefined) metrics.accepted?.(type);
    else metrics.rejected?.(type, refused, this.#open?.arrivedAt);
  }

  #setTimer(timer: string, milliseconds: number | undefined): void {
    const timers = this.#open?.timers;
    timers?.get(timer)?.cancel();
    timers?.delete(timer);
    if (timers === undefined || milliseconds === undefined) return;
    const fired = (): void => {
      timers.delete(timer);
      this.machine.fire(timer);
      this.#run();
    };
    timers.set(timer, this.#connection.options.clock.after(milliseconds, fired));
  }
}
