import type { TypeUrl } from '../../model/brand.ts';
import type { Clock, Timer } from '../../model/clock.ts';
import type { Parameters } from '../../model/parameters.ts';
import { type Interest, type Move, WILDCARD } from '../../model/transaction.ts';
import type { Suspect } from '../../model/upstream.ts';
import type { Link } from './dial.ts';
import type { Lane } from './lane.ts';
import { isApart, type LaneId } from './lane-id.ts';
import type { LaneWatch } from './lane-ports.ts';
import type { Stamp } from './stamp.ts';
import { type Relocation, type Role, Suspicion } from './suspicion.ts';

/** What the rules make of a parameter set: the encoded node, and the stamp of what arrives. */
export interface Shown {
  readonly node: Uint8Array;
  readonly stamp: Stamp;
}

export interface SessionOptions {
  readonly shown: Shown;
  /** `apart`: to try something on it, next to the usual streams. */
  readonly lane: (shown: Shown, apart: boolean, watch: LaneWatch) => Lane;
  /** Ends these interests if nobody subscribes to them. */
  readonly lapse: (interests: readonly Interest[]) => void;
  /** What is under suspicion has changed. */
  readonly changed: () => void;
  readonly clock: Clock;
  /** A stream that has lived so long is well. Milliseconds. */
  readonly wellMs: number;
}

/**
 * The conversation with a control plane for one parameter set: at most two streams for the types of the xDS protocol, two
 * for others, and those on which something is tried that may have made the control plane end another one. A type's wildcard and its names
 * never share one, since an answer in flight would make `{"*", names}` look complete, and what is only named would
 * leak into the wildcard. Whichever comes second for a type takes the second stream; everything else is on the first,
 * so that the upstream's order across types is kept (protocol §5b). Types that the relay does not know have no order. A role moves only from a stream that is closed: late
 * answers would follow it.
 */
export class Session {
  readonly parameters: Parameters;
  #shown: Shown;
  readonly #options: SessionOptions;
  readonly #suspicion: Suspicion;
  readonly #lanes = new Map<LaneId, Lane>();
  readonly #probations = new Map<LaneId, Timer>();
  #up: { readonly link: Link; readonly endpoint: number } | undefined;
  #interests = 0;
  /** Those that only linger. */
  readonly #idle = new Set<Interest>();
  #lapsing: Timer | undefined;

  constructor(parameters: Parameters, options: SessionOptions) {
    this.parameters = parameters;
    this.#shown = options.shown;
    this.#options = options;
    this.#suspicion = new Suspicion(options.wellMs);
  }

  /** Nothing is subscribed. */
  get empty(): boolean {
    return this.#interests === 0;
  }

  /** What is subscribed only lingers. */
  get idle(): boolean {
    return this.#interests > 0 && this.#idle.size === this.#interests;
  }

  /** What only lingers. */
  resting(): readonly Interest[] {
    return [...this.#idle];
  }

  get awaits(): boolean {
    return [...this.#lanes.values()].some((lane) => lane.awaits);
  }

  /** What is asked apart, since a stream ended. */
  *suspects(): Generator<Suspect, undefined> {
    for (const { lane, ...suspect } of this.#suspicion.suspects()) {
      if (this.#lanes.get(lane)?.idle === false) yield suspect;
    }
  }

  subscribe(interest: Interest): void {
    this.#interests++;
    const { type } = interest;
    this.#lane(this.#suspicion.want(type, roleOf(interest), this.#options.clock.now())).subscribe(interest);
    this.#dropUnused();
  }

  /** What is subscribed is asked for once more. */
  again(interest: Interest): void {
    this.#of(interest)?.subscribe(interest);
  }

  unsubscribe(interest: Interest): void {
    this.#interests--;
    this.#idle.delete(interest);
    this.#of(interest)?.unsubscribe(interest);
    this.#suspicion.unwant(interest.type, roleOf(interest));
  }

  /** From now on it only lingers. */
  rest(interest: Interest): void {
    this.#idle.add(interest);
    this.#of(interest)?.rest();
  }

  /** Somebody subscribes to it again. */
  wake(interest: Interest): void {
    this.#idle.delete(interest);
    this.#of(interest)?.wake(interest);
  }

  up(link: Link, endpoint: number): void {
    this.#up = { link, endpoint };
    for (const lane of this.#lanes.values()) lane.up(link, endpoint);
  }

  /** `lost`: why the connection went; undefined: the relay itself has closed it. */
  down(lost: string | undefined): void {
    this.#up = undefined;
    for (const lane of [...this.#lanes.values()]) lane.down(lost);
  }

  stop(): void {
    this.#up = undefined;
    this.#lapsing?.cancel();
    for (const lane of this.#lanes.values()) lane.stop();
  }

  *interests(): Iterable<Interest> {
    for (const lane of this.#lanes.values()) yield* lane.interests();
  }

  /** Another stamp, or (undefined) the end of this session: what becomes of all that it has brought. */
  *restamp(stamp: Stamp | undefined): Iterable<readonly [TypeUrl, Move]> {
    if (stamp !== undefined) this.#shown = { ...this.#shown, stamp };
    for (const lane of this.#lanes.values()) yield* lane.restamp(stamp);
  }

  /** Another node: the conversation begins anew if it is one, and what it had is compared. */
  show(node: Uint8Array): void {
    this.#shown = { ...this.#shown, node };
    for (const lane of this.#lanes.values()) lane.show(node);
  }

  reannounce(): boolean {
    return [...this.#lanes.values()].filter((lane) => lane.reannounce()).length > 0;
  }

  #of(interest: Interest): Lane | undefined {
    const lane = this.#suspicion.lane(interest.type, roleOf(interest));
    return lane === undefined ? undefined : this.#lanes.get(lane);
  }

  #lane(id: LaneId): Lane {
    const known = this.#lanes.get(id);
    if (known !== undefined) return known;
    const lane = this.#options.lane(this.#shown, isApart(id), this.#watch(id));
    this.#lanes.set(id, lane);
    if (this.#up !== undefined) lane.up(this.#up.link, this.#up.endpoint);
    return lane;
  }

  #watch(id: LaneId): LaneWatch {
    const { clock } = this.#options;
    const suspicion = this.#suspicion;
    return {
      opened: () => {
        suspicion.opened(id, clock.now());
        this.#beginProbation(id);
      },
      asked: (type) => suspicion.asked(id, type, clock.now()),
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

  #beginProbation(id: LaneId): void {
    const { clock } = this.#options;
    const probation = this.#suspicion.probation(id);
    if (probation === undefined) return;
    const timer = clock.after(probation, () => {
      this.#probations.delete(id);
      // Its stream is closed first: nothing that is on its way on it can be taken for an answer elsewhere.
      this.#lanes.get(id)?.down();
      this.#relocate(this.#suspicion.survived(id, clock.now()));
      this.#options.changed();
    });
    this.#probations.set(id, timer);
  }

  #endProbation(id: LaneId): void {
    this.#probations.get(id)?.cancel();
    this.#probations.delete(id);
  }

  #relocate(moves: readonly Relocation[]): void {
    for (const { type, from, to } of moves) {
      const released = this.#lanes.get(from)?.release(type);
      if (released !== undefined) this.#lane(to).adopt(released);
    }
    this.#dropUnused();
  }

  #dropUnused(): void {
    for (const [id, lane] of this.#lanes) {
      if (this.#suspicion.has(id)) continue;
      this.#lanes.delete(id);
      lane.stop();
    }
  }

  /** The control plane is there, and says what it has: what it was not asked again, as nobody subscribes to it, ends. */
  #accepted(id: LaneId): void {
    let rests = false;
    for (const [other, lane] of this.#lanes) {
      if (other !== id) lane.heard();
      rests ||= lane.rests;
    }
    if (!rests) return;
    this.#lapsing ??= this.#options.clock.after(0, () => {
      this.#lapsing = undefined;
      const resting = [...this.#lanes.values()].flatMap((lane) => lane.takeResting());
      this.#options.lapse(resting);
    });
  }
}

function roleOf({ selector }: Interest): Role {
  return selector === WILDCARD ? 'wildcard' : 'named';
}
