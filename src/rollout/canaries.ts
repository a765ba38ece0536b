import type { Parameters } from '../model/parameters.ts';
import type { SidedClient } from '../model/rollout.ts';
import type { Side } from '../model/side.ts';

/** After a restart clients come back within this time: Envoy waits up to 30 s before it tries again. */
const comeBackMs = 60_000;
/** Nodes that a restart remembers. */
const maxRemembered = 1000;

/** Which nodes get changes first: those that the rules name, and those that are elected for one rollout. */
export class Canaries {
  /** The rules that make canaries. Undefined: nobody gets anything first. */
  rules: CanaryRules | undefined;
  /** Canaries until the rollout is over, though no rule says so. */
  readonly #elected = new Set<string>();
  /** All canaries of what waits, each with its class. */
  readonly #members = new Map<string, string>();
  /** Those from before a restart that have not come back yet. */
  readonly #expected: Map<string, string>;
  readonly #comeBackUntil: number;
  /**
   * Something that waits was found bad: no rule makes a canary of a node that was none, but in these classes. Undefined:
   * nothing was.
   */
  open: ReadonlySet<string> | undefined;

  /** `remembered`: from before a restart; undefined: nothing was kept over restarts. */
  constructor(
    rules: CanaryRules | undefined,
    remembered: ReadonlyMap<string, string> | undefined,
    now: number,
  ) {
    this.rules = rules;
    this.#expected = new Map(remembered);
    this.#comeBackUntil = remembered === undefined ? now : now + comeBackMs;
  }

  sideOf(client: Omit<SidedClient, 'address'>): Side {
    const { nodeId, classKey } = client;
    if (this.rules === undefined) return 'released';
    if (this.#elected.has(nodeId) || this.#expected.has(nodeId)) return 'canary';
    if (this.open?.has(classKey) === false) return this.#members.has(nodeId) ? 'canary' : 'released';
    return isCanaryByRule(this.rules, client) ? 'canary' : 'released';
  }

  /** Canaries that the rules do not make in the open classes: elected ones, those of before a restart, and all where no rule makes any. */
  get named(): ReadonlySet<string> {
    const named = this.#elected.union(new Set(this.#expected.keys()));
    return this.open === undefined ? named : named.union(new Set(this.#members.keys()));
  }

  /** After a restart, clients may not be back yet. */
  mayComeBack(now: number): boolean {
    return now < this.#comeBackUntil;
  }

  /** Each node with its class, for a restart. */
  get remembered(): ReadonlyMap<string, string> {
    return new Map([...this.#expected, ...this.#members]);
  }

  /** Canaries of before a restart may still come: who has to be one depends on the time. */
  get areExpected(): boolean {
    return this.#expected.size > 0;
  }

  /** The nodes that have to become canaries, because what waits has no other in their class. */
  elect(members: readonly Member[]): ReadonlySet<string> {
    const expected = new Set(this.#expected.values());
    const nodes = new Set(elect(members, (classKey) => expected.has(classKey)));
    for (const nodeId of nodes) this.#elected.add(nodeId);
    return nodes;
  }

  /** Who is a canary of what waits stays one over a restart. True: this has changed. */
  remember(members: readonly Member[], now: number): boolean {
    if (!this.mayComeBack(now)) this.#expected.clear();
    const before = this.#members.size;
    for (const { nodeId, classKey, side } of members) {
      if (side !== 'canary' || this.#members.size >= maxRemembered) continue;
      this.#members.set(nodeId, classKey);
      if (this.#expected.delete(nodeId)) this.#elected.add(nodeId);
    }
    return this.#members.size > before;
  }

  /** How many of these classes wait for their canary of before a restart, while others of them are there. */
  absent(classes: ReadonlySet<string>, canaries: readonly Pick<Member, 'classKey'>[]): number {
    if (this.#expected.size === 0) return 0;
    const expected = new Set(this.#expected.values());
    const there = new Set(canaries.map(({ classKey }) => classKey));
    return [...classes].filter((classKey) => expected.has(classKey) && !there.has(classKey)).length;
  }

  /** Nothing waits any more. Returns the nodes that are no canaries now; undefined: nothing has changed. */
  over(now: number): ReadonlySet<string> | undefined {
    // Those of before a restart: what upstream says may still be on its way.
    if (!this.mayComeBack(now)) this.#expected.clear();
    if (this.#members.size === 0 && this.#elected.size === 0) return undefined;
    const nodes = new Set(this.#elected);
    this.#elected.clear();
    this.#members.clear();
    return nodes;
  }
}

/** As configured (`rollout.canary`). */
export interface CanaryRules {
  /** 0: nobody by the hash. */
  readonly percent: number;
  readonly match: readonly { readonly key: string; readonly value: string }[];
}

/** The entries of `match` that meet none of these clients, each told for the operator. */
export function unmetMatches({ match }: CanaryRules, clients: ReadonlySet<Parameters>): readonly string[] {
  return [...match.entries()]
    .filter(([, { key, value }]) => clients.values().every(({ entries }) => entries.get(key) !== value))
    .map(
      ([index, { key, value }]) =>
        `rollout.canary.match[${index}]: no connected client has ${key}=${JSON.stringify(value)}, so it makes nobody a canary`,
    );
}

/** Whether the rules alone make a client a canary. */
export function isCanaryByRule(
  { percent, match }: CanaryRules,
  { place, parameters }: Pick<SidedClient, 'place' | 'parameters'>,
): boolean {
  if (match.some(({ key, value }) => parameters.entries.get(key) === value)) return true;
  return place * 100 < percent;
}

/** A node that subscribes to something of what waits. */
export interface Member {
  readonly nodeId: string;
  /** `placeOf` its node id. */
  readonly place: number;
  /** One set of derived parameters, and one access. */
  readonly classKey: string;
  readonly side: Side;
  /** It may be a canary (`rollout.canary_principals`). */
  readonly mayBeCanary: boolean;
  /** What of the changes that wait it subscribes to. Nodes with equal subscriptions share the sets. */
  readonly subscribed: ReadonlySet<ReadonlySet<string>>;
}

/**
 * The nodes that have to become canaries, so that each change that waits has at least one canary in each class that
 * subscribes to it: of those that could, the first by the hash of the node id. `isExpected`: the canary of the class
 * was elected before a restart, and may still come.
 */
export function elect(
  members: Iterable<Member>,
  isExpected: (classKey: string) => boolean = () => false,
): readonly string[] {
  const elected: string[] = [];
  for (const [classKey, peers] of Map.groupBy(members, (member) => member.classKey)) {
    if (!isExpected(classKey)) elected.push(...electIn(peers));
  }
  return elected;
}

function electIn(peers: readonly Member[]): readonly string[] {
  const elected: string[] = [];
  const covered = new Set<string>();
  const cover = (names: ReadonlySet<string>): void => {
    for (const name of names) covered.add(name);
  };
  const byCanaries = peers.flatMap(({ side, subscribed }) => (side === 'canary' ? [...subscribed] : []));
  for (const names of new Set(byCanaries)) cover(names);
  const uncovered = new Set<ReadonlySet<string>>();
  for (const names of new Set(peers.flatMap(({ subscribed }) => [...subscribed])))
    if (!names.isSubsetOf(covered)) uncovered.add(names);
  if (uncovered.size === 0) return elected;
  for (const peer of peers.toSorted(byPlace)) {
    if (!peer.mayBeCanary) continue;
    // Each set is looked at once more: it is covered by now, or by this peer.
    const own = [...peer.subscribed].filter((names) => uncovered.delete(names) && !names.isSubsetOf(covered));
    if (own.length === 0) continue;
    elected.push(peer.nodeId);
    for (const names of peer.subscribed) cover(names);
  }
  return elected;
}

export const byPlace = (a: Member, b: Member): number => a.place - b.place || (a.nodeId < b.nodeId ? -1 : 1);
