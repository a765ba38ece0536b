import type { TypeUrl } from '../../model/brand.ts';
import type { Clock, Timer } from '../../model/clock.ts';
import type { Parameters } from '../../model/parameters.ts';
import { type Interest, type Move, WILDCARD } from '../../model/transaction.ts';
import type { Suspect } from '../../model/upstream.ts';
import type { AdsStream } from './ads-stream.ts';
import type { AdsStreamObserver } from './ads-stream-ports.ts';
import type { Channel } from './channel.ts';
import type { Stamp } from './stamp.ts';
import type { Services, StreamId } from './stream-id.ts';
import type { Role } from './subscription-group.ts';
import { type Relocation, Suspicion } from './suspicion.ts';

/** What the rules make of a parameter set: the encoded node, and the stamp of what arrives. */
export interface NodeAndStamp {
  readonly node: Uint8Array;
  readonly stamp: Stamp;
}

/** The open connection, which all sessions of an upstream share. */
export interface OpenConnection {
  readonly channel: Channel;
  readonly endpoint: number;
}

export interface SessionOptions {
  readonly nodeAndStamp: NodeAndStamp;
  readonly makeStream: (nodeAndStamp: NodeAndStamp, id: StreamId, watch: AdsStreamObserver) => AdsStream;
  readonly services: Services;
  /** Undefined: there is none now. */
  readonly connection: () => OpenConnection | undefined;
  /** Ends these interests if nobody subscribes to them. */
  readonly endIfIdle: (interests: readonly Interest[]) => void;
  /** The suspects have changed. */
  readonly changed: () => void;
  readonly clock: Clock;
  /** A stream that has lasted this long is stable. Milliseconds. */
  readonly stableAfterMs: number;
}

/**
 * The streams to a control plane for one parameter set: at most two for the types of the xDS protocol, two for unknown
 * types, and isolated ones. The wildcard of a type and its names are never on one stream: an answer on its way would make
 * `{"*", names}` look complete, and what is only named would leak into the wildcard. Whichever comes second for a type
 * takes the second stream. Everything else is on the first, which keeps the upstream's order across types (protocol
 * §5b). On services of single types each type has two streams of its own, and no order. The wildcard or the names of a type move only from a closed stream, because late answers would follow them.
 */
export class Session {
  readonly parameters: Parameters;
  #nodeAndStamp: NodeAndStamp;
  readonly #options: SessionOptions;
  readonly #suspicion: Suspicion;
  readonly #streams = new Map<StreamId, AdsStream>();
  readonly #probations = new Map<StreamId, Timer>();
  #interests = 0;
  /** The idle interests. */
  readonly #idle = new Set<Interest>();
  #endIdleTimer: Timer | undefined;

  constructor(parameters: Parameters, options: SessionOptions) {
    this.parameters = parameters;
    this.#nodeAndStamp = options.nodeAndStamp;
    this.#options = options;
    this.#suspicion = new Suspicion(options.stableAfterMs, options.services);
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

  streams(): IteratorObject<AdsStream, undefined> {
    return this.#streams.values();
  }

  /** The types on isolated streams. */
  *suspects(): Generator<Suspect, undefined> {
    for (const { streamId, ...suspect } of this.#suspicion.suspects()) {
      if (this.#streams.get(streamId)?.isUnused === false) yield suspect;
    }
  }

  subscribe(interest: Interest): void {
    this.#interests++;
    const { type } = interest;
    this.#stream(this.#suspicion.addInterest(type, roleOf(interest), this.#options.clock.now())).subscribe(
      interest,
    );
    this.#dropUnused();
  }

  /** Subscribes once more to what is subscribed. */
  resubscribe(interest: Interest): void {
    this.#streamOf(interest)?.subscribe(interest);
  }

  unsubscribe(interest: Interest): void {
    this.#interests--;
    this.#idle.delete(interest);
    this.#streamOf(interest)?.unsubscribe(interest);
    this.#suspicion.removeInterest(interest.type, roleOf(interest));
  }

  /** Nobody subscribes to it any more. */
  markIdle(interest: Interest): void {
    this.#idle.add(interest);
    this.#streamOf(interest)?.suspendIdle();
  }

  /** Somebody subscribes to it again. */
  markActive(interest: Interest): void {
    this.#idle.delete(interest);
    this.#streamOf(interest)?.resume(interest);
  }

  stop(): void {
    this.#endIdleTimer?.cancel();
    for (const stream of this.#streams.values()) stream.stop();
  }

  /** Another stamp, or (undefined) the end of this session: what becomes of all that it has brought. */
  *restamp(stamp: Stamp | undefined): Iterable<readonly [TypeUrl, Move]> {
    if (stamp !== undefined) this.#nodeAndStamp = { ...this.#nodeAndStamp, stamp };
    for (const stream of this.#streams.values()) yield* stream.restamp(stamp);
  }

  /** If the node has changed, the streams are opened anew, and what they deliver is compared. */
  setNode(node: Uint8Array): void {
    this.#nodeAndStamp = { ...this.#nodeAndStamp, node };
    for (const stream of this.#streams.values()) stream.setNode(node);
  }

  #streamOf(interest: Interest): AdsStream | undefined {
    const streamId = this.#suspicion.streamOf(interest.type, roleOf(interest));
    return streamId === undefined ? undefined : this.#streams.get(streamId);
  }

  #stream(id: StreamId): AdsStream {
    const known = this.#streams.get(id);
    if (known !== undefined) return known;
    const stream = this.#options.makeStream(this.#nodeAndStamp, id, this.#observer(id));
    this.#streams.set(id, stream);
    const connection = this.#options.connection();
    if (connection !== undefined) stream.up(connection.channel, connection.endpoint);
    return stream;
  }

  #observer(id: StreamId): AdsStreamObserver {
    const { clock } = this.#options;
    const suspicion = this.#suspicion;
    return {
      opened: () => {
        suspicion.opened(id, clock.now());
        this.#beginProbation(id);
      },
      arrived: () => this.#finishReading(id),
      firstRequested: (type) => suspicion.firstRequested(id, type, clock.now()),
      answered: (type) => suspicion.answered(id, type),
      accepted: () => this.#accepted(id),
      closed: () => {
        this.#endProbation(id);
        suspicion.closed(id, clock.now());
      },
      ended: (how, reason) => {
        this.#endProbation(id);
        const moves = suspicion.ended(id, how, reason, clock.now());
        this.#relocate(moves);
        this.#options.changed();
        return moves.some(({ from }) => from === id);
      },
    };
  }

  /**
   * What arrived before on other streams is applied before: the clients of this session see the control plane's order.
   * A cluster must not go before the route that led to it has changed.
   */
  #finishReading(arrivedOn: StreamId): void {
    for (const [id, stream] of this.#streams) if (id !== arrivedOn) stream.finishReading();
  }

  #beginProbation(id: StreamId): void {
    const { clock } = this.#options;
    const probation = this.#suspicion.probation(id);
    if (probation === undefined) return;
    const timer = clock.after(probation, () => {
      this.#probations.delete(id);
      // The stream is closed first: a response on its way cannot be taken for an answer on another stream.
      this.#streams.get(id)?.down();
      this.#relocate(this.#suspicion.survived(id, clock.now()));
      this.#options.changed();
    });
    this.#probations.set(id, timer);
  }

  #endProbation(id: StreamId): void {
    this.#probations.get(id)?.cancel();
    this.#probations.delete(id);
  }

  #relocate(moves: readonly Relocation[]): void {
    for (const { type, from, to } of moves) {
      const released = this.#streams.get(from)?.release(type);
      if (released !== undefined) this.#stream(to).adopt(released);
    }
    this.#dropUnused();
  }

  #dropUnused(): void {
    for (const [id, stream] of this.#streams) {
      if (this.#suspicion.has(id)) continue;
      this.#streams.delete(id);
      stream.stop();
    }
  }

  /**
   * The control plane answers again. Interests that were not subscribed again, because nobody subscribes to them, end
   * now: nothing keeps them current.
   */
  #accepted(id: StreamId): void {
    let hasSuspended = false;
    for (const [other, stream] of this.#streams) {
      if (other !== id) stream.siblingAnswered();
      hasSuspended ||= stream.hasSuspended;
    }
    if (!hasSuspended) return;
    this.#endIdleTimer ??= this.#options.clock.after(0, () => {
      this.#endIdleTimer = undefined;
      this.#options.endIfIdle([...this.#streams.values()].flatMap((stream) => stream.takeSuspended()));
    });
  }
}

function roleOf({ selector }: Interest): Role {
  return selector === WILDCARD ? 'wildcard' : 'named';
}
