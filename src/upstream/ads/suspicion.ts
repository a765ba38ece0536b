import type { TypeUrl } from '../../model/brand.ts';
import type { Suspect } from '../../model/upstream.ts';
import { homeOf, isApart, isOfUnknown, type LaneId, usualLanes } from './lane-id.ts';
import { TypesInUse } from './types-in-use.ts';

export type Role = 'wildcard' | 'named';

/** From one stream to another: what is asked of one type, by the wildcard or by names. */
export interface Relocation {
  readonly type: TypeUrl;
  readonly from: LaneId;
  readonly to: LaneId;
}

/** `ended`: by the control plane; `lost`: the connection went, which rarely is for what was asked. */
export type StreamEnd = 'ended' | 'lost';

/** A type's wildcard or names. */
interface Unit {
  readonly type: TypeUrl;
  readonly role: Role;
  /** One of the usual streams. */
  readonly home: LaneId;
  lane: LaneId;
  /** Interests. */
  wanted: number;
  /** Something was asked for the first time, and no stream has lived with it for long enough. */
  unproven: { readonly at: number; answered: boolean } | undefined;
  /** Streams of its own that ended. */
  strikes: number;
  suspected: { readonly since: number; reason: string } | undefined;
}

interface Stream {
  openedAt: number | undefined;
  /** In a row, each before it had lived for long. */
  quickEnds: number;
}

/** Streams apart, for each session and kind of type: a client that invents types must not open more. */
const mostApart = 8;
/** What was answered is harmless after so long; what was not, after the time that a stream must live. Milliseconds. */
const answeredProofMs = 5000;
/** How much longer than a stream must live a unit stays apart, at most: twice as long with each strike. */
const mostDoublings = 6;
/** Ends in a row before something is suspected of which an end alone says little. */
const repeated = 3;

/**
 * Which stream of a session asks what. Usually a type is on the first one, and whichever of its wildcard and its names
 * comes second is on the second. Types that the relay does not know have two of their own: nothing that a client invents
 * ends the stream of the others. What was asked for last before a stream ended is tried apart, so that the rest goes on;
 * what is apart together is halved until the one is found (docs/adr/0061-suspects.md). Without I/O and clock: `now` is
 * milliseconds since the epoch.
 */
export class Suspicion {
  readonly #wellMs: number;
  readonly #units = new TypesInUse<Map<Role, Unit>>();
  readonly #streams = new Map<LaneId, Stream>();
  #lastApart = usualLanes - 1;

  /** `wellMs`: a stream that has lived so long is well. */
  constructor(wellMs: number) {
    this.#wellMs = wellMs;
  }

  /** What is tried apart because of an end, and asked. */
  *suspects(): Iterable<Suspect & { readonly lane: LaneId }> {
    for (const { type, lane, wanted, suspected } of this.#all()) {
      if (suspected !== undefined && wanted > 0) yield { type, lane, ...suspected };
    }
  }

  /** Whether a stream is in use. */
  has(lane: LaneId): boolean {
    return !isApart(lane) || this.#on(lane).length > 0;
  }

  /** One interest more: the stream that asks for it. */
  want(type: TypeUrl, role: Role, now: number): LaneId {
    const unit = this.#unit(type, role) ?? this.#create(type, role, now);
    unit.wanted++;
    return unit.lane;
  }

  /** One interest less. */
  unwant(type: TypeUrl, role: Role): void {
    const unit = this.#unit(type, role);
    if (unit !== undefined) unit.wanted--;
  }

  lane(type: TypeUrl, role: Role): LaneId | undefined {
    return this.#unit(type, role)?.lane;
  }

  /** A stream is open, and everything on it is asked. */
  opened(lane: LaneId, now: number): void {
    this.#stream(lane).openedAt = now;
    for (const unit of this.#on(lane)) {
      if (unit.unproven !== undefined) unit.unproven = { at: now, answered: false };
    }
  }

  /** Something of this type is asked on the stream that never was before. */
  asked(lane: LaneId, type: TypeUrl, now: number): void {
    const unit = this.#at(lane, type);
    if (unit !== undefined) unit.unproven = { at: now, answered: false };
  }

  answered(lane: LaneId, type: TypeUrl): void {
    const unproven = this.#at(lane, type)?.unproven;
    if (unproven !== undefined) unproven.answered = true;
  }

  /** The relay itself closed the stream: that says nothing of what was asked. */
  closed(lane: LaneId, now: number): void {
    const stream = this.#stream(lane);
    if (stream.openedAt === undefined) return;
    stream.openedAt = undefined;
    for (const unit of this.#on(lane)) this.#prove(unit, now);
  }

  /** How long the stream must live for what is on it to go back to the usual ones; undefined: it is there. */
  probation(lane: LaneId): number | undefined {
    if (!isApart(lane)) return undefined;
    const strikes = Math.max(0, ...this.#on(lane).map((unit) => unit.strikes));
    return this.#wellMs * 2 ** Math.min(strikes, mostDoublings);
  }

  /** A stream apart has lived for its probation. */
  survived(lane: LaneId, now: number): readonly Relocation[] {
    return this.#home(this.#on(lane), now);
  }

  /** What is to be asked elsewhere from now on. */
  ended(lane: LaneId, how: StreamEnd, reason: string, now: number): readonly Relocation[] {
    const stream = this.#stream(lane);
    const lived = stream.openedAt === undefined ? 0 : now - stream.openedAt;
    stream.openedAt = undefined;
    stream.quickEnds = lived >= this.#wellMs ? 0 : stream.quickEnds + 1;
    const { quickEnds } = stream;
    const units = this.#on(lane);
    for (const unit of units) this.#prove(unit, now);
    if (how === 'lost' && quickEnds < repeated) return [];
    const suspects = accused(units, isApart(lane) || quickEnds >= repeated);
    return isApart(lane)
      ? this.#halve(units, suspects, reason, now)
      : this.#apart(units, suspects, quickEnds, reason, now);
  }

  #prove(unit: Unit, now: number): void {
    const { unproven, lane } = unit;
    if (unproven === undefined) return;
    const soon = unproven.answered && !isApart(lane);
    const enough = soon ? Math.min(answeredProofMs, this.#wellMs) : this.#wellMs;
    if (now - unproven.at >= enough) unit.unproven = undefined;
  }

  /** From a usual stream. If nothing would remain on it, the control plane may be unwell as a whole: once is no sign. */
  #apart(
    units: readonly Unit[],
    suspects: readonly Unit[],
    quickEnds: number,
    reason: string,
    now: number,
  ): readonly Relocation[] {
    if (suspects.length === 0) return [];
    const all = suspects.length === units.length;
    if (all && quickEnds < 2) return [];
    const moved = all ? newerHalf(suspects) : suspects;
    for (const unit of moved) unit.suspected = { since: now, reason };
    return this.#move(moved, this.#free(moved) ?? this.#joined(moved), now);
  }

  /** Among what is apart together. What was answered goes back. */
  #halve(
    units: readonly Unit[],
    suspects: readonly Unit[],
    reason: string,
    now: number,
  ): readonly Relocation[] {
    const moves = this.#home(
      units.filter((unit) => !suspects.includes(unit)),
      now,
    );
    for (const unit of suspects) unit.suspected = { since: unit.suspected?.since ?? now, reason };
    if (suspects.length > 1) {
      const half = newerHalf(suspects);
      return [...moves, ...this.#move(half, this.#free(half), now)];
    }
    for (const unit of suspects) unit.strikes++;
    return moves;
  }

  #home(units: readonly Unit[], now: number): readonly Relocation[] {
    return units.flatMap((unit) => {
      unit.suspected = undefined;
      return this.#move([unit], unit.home, now);
    });
  }

  #move(units: readonly Unit[], to: LaneId | undefined, now: number): readonly Relocation[] {
    if (to === undefined) return [];
    return units.map((unit) => {
      const { type, lane: from } = unit;
      unit.lane = to;
      unit.unproven = { at: now, answered: false };
      return { type, from, to };
    });
  }

  /**
   * While something of its kind is under suspicion, or the usual stream keeps ending, what is new is tried apart at first:
   * where no more streams may be opened, on one of those that are apart.
   */
  #create(type: TypeUrl, role: Role, now: number): Unit {
    this.#units.forget((roles) =>
      roles.values().every(({ wanted, home }) => wanted === 0 && isOfUnknown(home)),
    );
    const roles = this.#units.get(type) ?? new Map<Role, Unit>();
    this.#units.set(type, roles);
    const [other] = roles.values();
    const home = homeOf(type, other?.home);
    const unit: Unit = {
      type,
      role,
      home,
      lane: home,
      wanted: 0,
      unproven: undefined,
      strikes: 0,
      suspected: undefined,
    };
    if (this.#isShaken(home, now)) {
      unit.lane = this.#unopened(unit) ?? this.#free([unit]) ?? this.#joined([unit]) ?? home;
    }
    roles.set(role, unit);
    return unit;
  }

  #isShaken(home: LaneId, now: number): boolean {
    const { openedAt, quickEnds } = this.#stream(home);
    const isWell = openedAt !== undefined && now - openedAt >= this.#wellMs;
    return (quickEnds > 1 && !isWell) || this.#suspects(isOfUnknown(home));
  }

  #suspects(unknown: boolean): boolean {
    return [...this.#all()].some(
      ({ home, wanted, suspected }) => isOfUnknown(home) === unknown && suspected !== undefined && wanted > 0,
    );
  }

  /** A stream apart that is about to be opened for others that came just now. */
  #unopened({ type, home }: Unit): LaneId | undefined {
    for (const lane of this.#lanesApart(isOfUnknown(home))) {
      const units = this.#on(lane);
      const { openedAt, quickEnds } = this.#stream(lane);
      const mixes = units.some((unit) => unit.type === type || unit.suspected !== undefined);
      if (openedAt === undefined && quickEnds === 0 && !mixes) return lane;
    }
    return undefined;
  }

  /** One more stream apart, unless there are too many that are needed. */
  #free(units: readonly Unit[]): LaneId | undefined {
    const lanes = this.#lanesApart(haveUnknown(units));
    for (const lane of lanes) {
      if (lanes.size < mostApart) break;
      if (this.#on(lane).some(({ wanted }) => wanted > 0)) continue;
      for (const { type, role } of this.#on(lane)) this.#units.get(type)?.delete(role);
      this.#streams.delete(lane);
      lanes.delete(lane);
    }
    return lanes.size < mostApart ? ++this.#lastApart : undefined;
  }

  /** A stream apart that has nothing else of these types: rather one where nothing is suspected. */
  #joined(units: readonly Unit[]): LaneId | undefined {
    const types = new Set(units.map(({ type }) => type));
    const lanes = [...this.#lanesApart(haveUnknown(units))].filter((lane) =>
      this.#on(lane).every(({ type }) => !types.has(type)),
    );
    return (
      lanes.find((lane) => this.#on(lane).every(({ suspected }) => suspected === undefined)) ?? lanes.at(-1)
    );
  }

  /** What clients invent shares no stream with what they cannot, apart neither. */
  #lanesApart(unknown: boolean): Set<LaneId> {
    const used = new Set<LaneId>();
    const lanes = new Set<LaneId>();
    for (const { lane, home } of this.#all()) {
      used.add(lane);
      if (isApart(lane) && isOfUnknown(home) === unknown) lanes.add(lane);
    }
    for (const lane of this.#streams.keys()) if (isApart(lane) && !used.has(lane)) this.#streams.delete(lane);
    return lanes;
  }

  #on(lane: LaneId): readonly Unit[] {
    return [...this.#all()].filter((unit) => unit.lane === lane);
  }

  *#all(): Iterable<Unit> {
    for (const roles of this.#units.values()) yield* roles.values();
  }

  /** A type's wildcard and its names are never on one stream. */
  #at(lane: LaneId, type: TypeUrl): Unit | undefined {
    return [...(this.#units.get(type)?.values() ?? [])].find((unit) => unit.lane === lane);
  }

  #unit(type: TypeUrl, role: Role): Unit | undefined {
    return this.#units.get(type)?.get(role);
  }

  #stream(lane: LaneId): Stream {
    const known = this.#streams.get(lane);
    if (known !== undefined) return known;
    const created: Stream = { openedAt: undefined, quickEnds: 0 };
    this.#streams.set(lane, created);
    return created;
  }
}

/** What is on one stream is of one kind. */
function haveUnknown(units: readonly Unit[]): boolean {
  return units.some(({ home }) => isOfUnknown(home));
}

/** What had no answer yet when the stream ended. `doubtful`: where all had one, whatever has not proved harmless. */
function accused(units: readonly Unit[], doubtful: boolean): readonly Unit[] {
  const silent = units.filter(({ unproven }) => unproven?.answered === false);
  if (silent.length > 0 || !doubtful) return silent;
  return units.filter(({ unproven }) => unproven !== undefined);
}

/** At least one; of what was asked together, the later. */
function newerHalf(units: readonly Unit[]): readonly Unit[] {
  const sorted = units.toSorted((a, b) => (a.unproven?.at ?? 0) - (b.unproven?.at ?? 0));
  return sorted.slice(Math.floor(units.length / 2));
}
