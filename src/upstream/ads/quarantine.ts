import type { TypeUrl } from '../../model/brand.ts';
import { countIn, getOrMake, MapInUse } from '../../model/maps.ts';
import type { Holder } from '../../model/transaction.ts';
import { ADS_SERVICE, isKnownType, knownTypes, type TypeInfo, typeInfo } from '../../model/types.ts';
import type { Suspect } from '../../model/upstream.ts';

/** The wildcard or the names of a type move from one stream to another. */
export interface Relocation {
  readonly type: TypeUrl;
  readonly from: StreamId;
  readonly to: StreamId;
}

/** `ended`: the control plane has ended it. `lost`: the connection was lost, which is rarely because of a request. */
export type StreamEnd = 'ended' | 'lost';

/** With so many types, those that are not used any more are forgotten. */
const manyTypes = 256;
/** For each session, of known and of unknown types: a client that invents types must not open more. */
const isolatedStreams = 8;
/** A type with a response is harmless after this time; one without, after `stableAfterMs`. Milliseconds. */
const answeredProofMs = 5000;
/** The time on an isolated stream doubles each time that a type has to go there again, at most this many times. */
const maxDoublings = 6;
/**
 * After so many ends in a row, even a lost connection, or the end of a stream that had answers, makes something
 * suspect.
 */
const suspiciousRepeats = 3;

/**
 * Which stream of a session subscribes to what. A type is usually on the first stream. Whichever of its wildcard and its
 * names comes second is on the second. Unknown types have two streams of their own, so that a type that a client invents
 * cannot end the stream of the others. What was requested last before a stream ended moves to isolated streams, each to one
 * of its own as far as there are any, so that the rest goes on (docs/adr/0061-suspects.md). No I/O and no clock: `now` is by
 * `Clock.monotonic()`.
 */
export class Quarantine {
  readonly #stableAfterMs: number;
  readonly #services: Services;
  /** By type and role. */
  readonly #groups = new MapInUse<string, SubscriptionGroup>(manyTypes);
  /** When it was opened, if it is open; and how many in a row ended before they had lasted long. */
  readonly #streams = new Map<StreamId, { openedAt: number | undefined; quickEnds: number }>();

  /**
   * `stableAfterMs`: a stream that has lasted this long is stable. On services of single types nothing is isolated: a
   * type that ends its stream ends no other's.
   */
  constructor(stableAfterMs: number, services: Services = 'AGGREGATED') {
    this.#stableAfterMs = stableAfterMs;
    this.#services = services;
  }

  /** The suspects that are subscribed now. */
  *suspects(): Iterable<Suspect & { readonly streamId: StreamId }> {
    for (const { type, streamId, interests, suspected } of this.#groups.values()) {
      if (suspected !== undefined && interests > 0) yield { type, streamId, ...suspected };
    }
  }

  /** Whether a stream is in use. */
  has(streamId: StreamId): boolean {
    return !isIsolated(streamId) || this.#groupsOn(streamId).length > 0;
  }

  /** Adds an interest and returns its stream. */
  addInterest(type: TypeUrl, role: Role, now: number): StreamId {
    const group = this.#group(type, role) ?? this.#create(type, role, now);
    group.interests++;
    return group.streamId;
  }

  /** One interest less. */
  removeInterest(type: TypeUrl, role: Role): void {
    const group = this.#group(type, role);
    if (group !== undefined) group.interests--;
  }

  streamOf(type: TypeUrl, role: Role): StreamId | undefined {
    return this.#group(type, role)?.streamId;
  }

  /** A stream is open, and everything on it is subscribed. */
  opened(streamId: StreamId, now: number): void {
    this.#stream(streamId).openedAt = now;
    for (const group of this.#groupsOn(streamId)) {
      if (group.unproven !== undefined) group.unproven = { at: now, answered: false };
    }
  }

  /** A subscription of this type is sent on the stream that was never sent before. */
  firstRequested(streamId: StreamId, type: TypeUrl, now: number): void {
    const group = this.#groupAt(streamId, type);
    if (group !== undefined) group.unproven = { at: now, answered: false };
  }

  answered(streamId: StreamId, type: TypeUrl): void {
    const group = this.#groupAt(streamId, type);
    if (group?.unproven === undefined) return;
    group.unproven.answered = true;
    group.suspected = undefined;
  }

  /** The relay itself closed the stream: that says nothing about the requests. */
  closed(streamId: StreamId, now: number): void {
    const stream = this.#stream(streamId);
    const { openedAt } = stream;
    if (openedAt === undefined) return;
    stream.openedAt = undefined;
    for (const group of this.#groupsOn(streamId)) this.#prove(group, openedAt, now);
  }

  /** How long an isolated stream must last before its types return to the usual ones; undefined: it is a usual one. */
  probation(streamId: StreamId): number | undefined {
    if (!isIsolated(streamId)) return undefined;
    return Math.max(this.#stableAfterMs, ...this.#groupsOn(streamId).map((group) => this.#apartMs(group)));
  }

  #apartMs({ isolations }: SubscriptionGroup): number {
    return this.#stableAfterMs * 2 ** Math.min(Math.max(0, isolations - 1), maxDoublings);
  }

  /** An isolated stream has lasted for its probation: its types return to the usual streams. */
  survived(streamId: StreamId, now: number): readonly Relocation[] {
    return this.#returnHome(this.#groupsOn(streamId), now);
  }

  /** A stream has ended. Returns what moves to other streams. */
  ended(streamId: StreamId, how: StreamEnd, reason: string, now: number): readonly Relocation[] {
    const stream = this.#stream(streamId);
    const { openedAt = now } = stream;
    stream.openedAt = undefined;
    stream.quickEnds = now - openedAt >= this.#stableAfterMs ? 0 : stream.quickEnds + 1;
    const { quickEnds } = stream;
    const groups = this.#groupsOn(streamId);
    for (const group of groups) this.#prove(group, openedAt, now);
    if (this.#services === 'PER_TYPE' || (how === 'lost' && quickEnds < suspiciousRepeats)) return [];
    const suspects = suspectsAmong(groups, isIsolated(streamId) || quickEnds >= suspiciousRepeats);
    if (isIsolated(streamId)) {
      const others = groups.filter((group) => !suspects.includes(group));
      for (const group of suspects) group.suspected = { since: group.suspected?.since ?? now, reason };
      return [...this.#returnHome(others, now), ...this.#isolate(suspects, now)];
    }
    const moved = suspects.length < groups.length ? suspects : mostLikely(suspects, quickEnds);
    for (const group of moved) {
      group.suspected = { since: now, reason };
      group.isolations++;
    }
    return this.#isolate(moved, now);
  }

  /** Its stream has ended, or was closed. */
  #prove(group: SubscriptionGroup, openedAt: number, now: number): void {
    const { unproven, streamId, cameAt } = group;
    const isHome = !isIsolated(streamId);
    if (isHome && now - Math.max(openedAt, cameAt) >= this.#apartMs(group)) group.isolations = 0;
    if (unproven === undefined) return;
    const soon = unproven.answered && isHome;
    const enough = soon ? Math.min(answeredProofMs, this.#stableAfterMs) : this.#stableAfterMs;
    if (now - unproven.at >= enough) group.unproven = undefined;
  }

  #returnHome(groups: readonly SubscriptionGroup[], now: number): readonly Relocation[] {
    return groups.flatMap((group) => {
      group.suspected = undefined;
      return this.#move(group, group.home, now);
    });
  }

  #isolate(groups: readonly SubscriptionGroup[], now: number): readonly Relocation[] {
    const tally = this.#tally();
    return groups.flatMap((group) => {
      tally.count(group, group.streamId, -1);
      const to = this.#leastUsed(group, tally);
      tally.count(group, to, 1);
      return this.#move(group, to, now);
    });
  }

  #tally(): Tally {
    const tally = new Tally();
    for (const group of this.#groups.values()) tally.count(group, group.streamId, 1);
    return tally;
  }

  #move(group: SubscriptionGroup, to: StreamId, now: number): readonly Relocation[] {
    const { type, streamId: from } = group;
    if (from === to) return [];
    group.streamId = to;
    group.cameAt = now;
    group.unproven = { at: now, answered: false };
    return [{ type, from, to }];
  }

  /** While there is a suspect, or the usual stream keeps ending, a new type begins on an isolated stream. */
  #create(type: TypeUrl, role: Role, now: number): SubscriptionGroup {
    this.#groups.dropUnused(({ interests, home }) => interests === 0 && isForUnknownTypes(home));
    const other = this.#group(type, role === 'named' ? 'wildcard' : 'named');
    const home = homeOf(type, other?.home, this.#services);
    const group = new SubscriptionGroup(type, role, home, now);
    if (this.#services === 'AGGREGATED' && this.#isHomeUnstable(home, now))
      group.streamId = this.#leastUsed(group);
    this.#groups.set(keyOf(group), group);
    return group;
  }

  #isHomeUnstable(home: StreamId, now: number): boolean {
    const { openedAt, quickEnds } = this.#stream(home);
    const isStable = openedAt !== undefined && now - openedAt >= this.#stableAfterMs;
    const unknown = isForUnknownTypes(home);
    const hasSuspects = (): boolean =>
      this.#groups
        .values()
        .some(
          (group) =>
            isForUnknownTypes(group.home) === unknown && group.suspected !== undefined && group.interests > 0,
        );
    return (quickEnds > 1 && !isStable) || hasSuspects();
  }

  /**
   * The isolated stream that the fewest others use, with nothing else of the same type: its own, if no other is better. Known
   * and unknown types share none, as clients can invent the unknown ones. `tally`: without the group itself.
   */
  #leastUsed({ type, role, home, streamId: own }: SubscriptionGroup, tally = this.#tally()): StreamId {
    const first = usualStreams + (isForUnknownTypes(home) ? isolatedStreams : 0);
    const other = this.#group(type, role === 'named' ? 'wildcard' : 'named')?.streamId;
    const users = (id: StreamId): number => (id === other ? Number.POSITIVE_INFINITY : tally.used(id));
    const isOwn = (id: StreamId): number => (id === own ? 0 : 1);
    const all = Array.from({ length: isolatedStreams }, (_, at) => first + at);
    const [best = first] = all.toSorted(
      (a, b) => users(a) - users(b) || isOwn(a) - isOwn(b) || tally.all(a) - tally.all(b),
    );
    return best;
  }

  #groupsOn(streamId: StreamId): readonly SubscriptionGroup[] {
    return [...this.#groups.values().filter((group) => group.streamId === streamId)];
  }

  /** A type's wildcard and its names are never on one stream. */
  #groupAt(streamId: StreamId, type: TypeUrl): SubscriptionGroup | undefined {
    const both = [this.#group(type, 'wildcard'), this.#group(type, 'named')];
    return both.find((group) => group?.streamId === streamId);
  }

  #group(type: TypeUrl, role: Role): SubscriptionGroup | undefined {
    return this.#groups.get(keyOf({ type, role }));
  }

  #stream(streamId: StreamId) {
    return getOrMake(this.#streams, streamId, () => ({ openedAt: undefined, quickEnds: 0 }));
  }
}

/** How many groups are on each stream, and how many of them are in use. */
class Tally {
  readonly #all = new Map<StreamId, number>();
  readonly #used = new Map<StreamId, number>();

  count({ interests }: SubscriptionGroup, on: StreamId, more: 1 | -1): void {
    countIn(this.#all, on, more);
    if (interests > 0) countIn(this.#used, on, more);
  }

  all(on: StreamId): number {
    return this.#all.get(on) ?? 0;
  }

  used(on: StreamId): number {
    return this.#used.get(on) ?? 0;
  }
}

export type Role = Holder['role'];

/** A type's wildcard or names. */
class SubscriptionGroup {
  readonly type: TypeUrl;
  readonly role: Role;
  /** One of the usual streams. */
  readonly home: StreamId;
  streamId: StreamId;
  /** Since when it is on that stream. */
  cameAt: number;
  /** Interests. */
  interests = 0;
  /** It was requested for the first time, and no stream has lasted long enough with it yet. */
  unproven: { readonly at: number; answered: boolean } | undefined;
  /** How often a usual stream ended and it was suspected, since it lived on one for as long as it would be apart. */
  isolations = 0;
  suspected: { readonly since: number; reason: string } | undefined;

  constructor(type: TypeUrl, role: Role, home: StreamId, now: number) {
    this.cameAt = now;
    this.type = type;
    this.role = role;
    this.home = home;
    this.streamId = home;
  }
}

const keyOf = ({ type, role }: Pick<SubscriptionGroup, 'type' | 'role'>): string => `${role} ${type}`;

/** The groups without a response when the stream ended. `doubtful`: if all had one, those that are still unproven. */
function suspectsAmong(
  groups: readonly SubscriptionGroup[],
  doubtful: boolean,
): readonly SubscriptionGroup[] {
  const silent = groups.filter(({ unproven }) => unproven?.answered === false);
  if (silent.length > 0 || !doubtful) return silent;
  return groups.filter(({ unproven }) => unproven !== undefined);
}

/**
 * Of all on a usual stream: the half that was requested later, at least one. The control plane itself may be the cause, so a
 * single end is ignored.
 */
function mostLikely(groups: readonly SubscriptionGroup[], quickEnds: number): readonly SubscriptionGroup[] {
  if (quickEnds < 2) return [];
  const sorted = groups.toSorted((a, b) => (a.unproven?.at ?? 0) - (b.unproven?.at ?? 0));
  return sorted.slice(Math.floor(groups.length / 2));
}

/**
 * A stream of a session. The usual ones on ADS are 0 and 1 for the types of the xDS protocol, and 2 and 3 for unknown
 * types. On the services of single types each type has two of its own, with negative numbers. All others are isolated
 * streams, for the one kind and then for the other.
 */
export type StreamId = number;

const usualStreams = 4;
const firstOfUnknown = 2;

/** ADS, or a service for each type (`upstreams[].ads.services`). */
export type Services = 'AGGREGATED' | 'PER_TYPE';

/** Not a usual stream. */
export function isIsolated(streamId: StreamId): boolean {
  return streamId >= usualStreams;
}

/** The usual stream of a type; `taken`: the one on which its wildcard or its names are. */
function homeOf(type: TypeUrl, taken: StreamId | undefined, services: Services): StreamId {
  const firstOfKnown = services === 'PER_TYPE' ? -2 * (typeInfo(type).order + 1) : 0;
  const first = isKnownType(type) ? firstOfKnown : firstOfUnknown;
  return taken === first ? first + 1 : first;
}

/** Whether a usual stream is for types that the relay does not know. */
function isForUnknownTypes(home: StreamId): boolean {
  return home >= firstOfUnknown;
}

/** The gRPC method that a stream calls. */
export function methodPath(streamId: StreamId, protocol: 'DELTA' | 'SOTW'): string {
  const info = streamId < 0 ? knownTypes[Math.ceil(-streamId / 2) - 1] : undefined;
  const method = info === undefined ? undefined : methodOf(info, protocol);
  if (info === undefined || method === undefined) return adsPaths[protocol];
  return `/${info.service}/${method}`;
}

/** Whether a type has a service of its own for this protocol. */
export const hasService = (type: TypeUrl, protocol: 'DELTA' | 'SOTW'): boolean =>
  methodOf(typeInfo(type), protocol) !== undefined;

const methodOf = ({ deltaMethod, streamMethod }: TypeInfo, protocol: 'DELTA' | 'SOTW'): string | undefined =>
  protocol === 'DELTA' ? deltaMethod : streamMethod;

const adsPaths = {
  DELTA: `/${ADS_SERVICE}/DeltaAggregatedResources`,
  SOTW: `/${ADS_SERVICE}/StreamAggregatedResources`,
};
