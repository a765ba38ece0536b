import type { Cohort } from '../model/access.ts';
import type { Parameters } from '../model/parameters.ts';
import type { CohortClient, Wave } from '../model/rollout.ts';

/** After a restart, also one of a worker, clients come back within this time: Envoy waits up to 30 s before it tries again. */
const comeBackMs = 60_000;
/** Nodes that are known to be canaries of what waits, and those of them that a restart remembers. */
const most = { known: 10_000, remembered: 1000 };

const none: ReadonlySet<string> = new Set();

/** Which nodes get changes first: those that the rules name, and those that are elected for one rollout. */
export class Canaries {
  /** Who gets a change first, then, and so on. None: nobody gets anything first. */
  waves: readonly Wave[];
  /** The wave that the change of a class has come to, where that is not the first. */
  reached: ReadonlyMap<string, number> = new Map();
  /** Canaries until the rollout is over, though no rule says so, each with its class. */
  readonly #elected = new Map<string, string>();
  /** All canaries of what waits, each with its class. */
  readonly #members = new Map<string, string>();
  /** Those from before a restart that have not come back yet. */
  readonly #expected: Map<string, string>;
  readonly #comeBackUntil: number;
  /** Those of a worker that has ended. */
  #leftUntil = 0;
  /**
   * Something that waits was found bad: no rule makes a canary of a node that was none, but in these classes. Undefined:
   * nothing was.
   */
  open: ReadonlySet<string> | undefined;

  /** `remembered`: from before a restart; undefined: nothing was kept over restarts. */
  constructor(waves: readonly Wave[], remembered: ReadonlyMap<string, string> | undefined, now: number) {
    this.waves = waves;
    this.#expected = new Map(remembered);
    this.#comeBackUntil = remembered === undefined ? now : now + comeBackMs;
  }

  /** For the streams of this process. A worker asks `cohortBy` (workers/reporters.ts), which knows what `named` says. */
  cohortOf(client: Omit<CohortClient, 'address'>): Cohort {
    if (this.waves.length === 0) return 'released';
    const { nodeKey, classKey } = client;
    if (this.#elected.has(nodeKey) || this.#expected.has(nodeKey)) return 'canary';
    if (this.open?.has(classKey) === false) return this.#members.has(nodeKey) ? 'canary' : 'released';
    return isInWaves(this.waves, this.reached.get(classKey), client) ? 'canary' : 'released';
  }

  /** Returns which clients may be in another cohort now; undefined: none is. */
  reach(reached: ReadonlyMap<string, number>): ((client: Moved) => boolean) | undefined {
    const before = this.reached;
    const moved = classesMoved(before, reached);
    if (moved === undefined) return undefined;
    // One of them may be of another class by now.
    const forgotten = new Set(
      [...before.keys()].flatMap((classKey) => (reached.has(classKey) ? [] : this.#forget(classKey))),
    );
    this.reached = reached;
    return (client) => moved(client) || forgotten.has(client.nodeKey);
  }

  /** Canaries that the rules do not make in the open classes: elected ones, those of before a restart, and all where no rule makes any. */
  get named(): ReadonlySet<string> {
    const named = new Set([...this.#elected.keys(), ...this.#expected.keys()]);
    return this.open === undefined ? named : named.union(new Set(this.#members.keys()));
  }

  /**
   * After a restart, or the end of a worker, clients may not be back yet. `since`: when what waits began to. Workers may end
   * again and again, so it waits for the clients of ended workers no longer than that time.
   */
  mayComeBack(now: number, since: number): boolean {
    return this.isRestarting(now) || now < Math.min(this.#leftUntil, since + comeBackMs);
  }

  /** What was before a restart of this process may not be back yet: the end of a worker does not prolong that. */
  isRestarting(now: number): boolean {
    return now < this.#comeBackUntil;
  }

  /** A worker has ended: for its clients that is a restart. */
  clientsLeft(now: number): void {
    this.#leftUntil = now + comeBackMs;
  }

  /** Each node with its class, for a restart. */
  get remembered(): ReadonlyMap<string, string> {
    return new Map([...this.#expected, ...this.#members].slice(0, most.remembered));
  }

  /** Canaries of before a restart may still come: who has to be one depends on the time. */
  get areExpected(): boolean {
    return this.#expected.size > 0;
  }

  /** The nodes that have to become canaries, because what waits has no other in their class. */
  elect(members: readonly Member[]): ReadonlySet<string> {
    const expected = new Set(this.#expected.values());
    const electing = members.filter(({ classKey }) =>
      this.waves.slice(0, this.reached.get(classKey) ?? 1).some(({ elects }) => elects),
    );
    const nodes = new Set(elect(electing, (classKey) => expected.has(classKey)));
    for (const { nodeKey, classKey } of members) if (nodes.has(nodeKey)) this.#elected.set(nodeKey, classKey);
    return nodes;
  }

  /** The change of this class has ended: what comes next meets its first wave, and not who was in a later one. Returns who was a canary. */
  #forget(classKey: string): readonly string[] {
    return [this.#elected, this.#members].flatMap((known) => {
      const nodes = [...known].flatMap(([nodeKey, own]) => (own === classKey ? [nodeKey] : []));
      for (const nodeKey of nodes) known.delete(nodeKey);
      return nodes;
    });
  }

  /** Who is a canary of what waits stays one over a restart. True: this has changed. */
  remember(members: readonly Pick<Member, 'nodeKey' | 'classKey' | 'cohort'>[]): boolean {
    const before = this.#members.size;
    for (const { nodeKey, classKey, cohort } of members) {
      if (cohort !== 'canary' || this.#members.size >= most.known) continue;
      this.#members.set(nodeKey, classKey);
      if (this.#expected.delete(nodeKey)) this.#elected.set(nodeKey, classKey);
    }
    return before < most.remembered && this.#members.size > before;
  }

  /** Who was one before a restart, and has nothing of what waits, is none in the end. Returns who that is. */
  expire(now: number): ReadonlySet<string> {
    if (this.#expected.size === 0 || this.isRestarting(now)) return none;
    const nodes = new Set(this.#expected.keys());
    this.#expected.clear();
    return nodes;
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
    const nodes = new Set([...this.expire(now), ...this.#elected.keys()]);
    if (this.#members.size === 0 && nodes.size === 0) return undefined;
    this.#elected.clear();
    this.#members.clear();
    return nodes;
  }
}

/** The entries of `match` that meet none of these clients, each told for the operator. */
export function unmetMatches({ path, match }: Wave, clients: ReadonlySet<Parameters>): readonly string[] {
  return [...match.entries()]
    .filter(([, { key, value }]) => clients.values().every(({ entries }) => entries.get(key) !== value))
    .map(
      ([index, { key, value }]) =>
        `${path}.match[${index}]: no connected client has ${key}=${JSON.stringify(value)}, so it makes nobody a canary`,
    );
}

/** What decides in which wave a client gets what waits. */
export type WaveRules = Readonly<Pick<Canaries, 'waves' | 'reached' | 'named'>>;

/** In which wave a client on this cohort gets what waits, from 1; one more than there are: with everybody. */
export function waveOf(
  { waves, reached, named }: WaveRules,
  client: Pick<CohortClient, 'nodeKey' | 'classKey' | 'place' | 'parameters'>,
  cohort: Cohort,
): number {
  const everybody = waves.length + 1;
  const first = (isMeant: (wave: Wave) => boolean): number => {
    const index = waves.findIndex(isMeant);
    return index < 0 ? everybody : index + 1;
  };
  const own = first((wave) => isInWave(wave, client));
  const now = reached.get(client.classKey) ?? 1;
  // It would have had it by now, but may not (`canary_principals`), or it was found bad before it came.
  if (cohort === 'released') return own > now ? own : everybody;
  return Math.min(own, now, named.has(client.nodeKey) ? first(({ elects }) => elects) : everybody);
}

/** Whether the rules of the waves up to the one that was reached make a client a canary. Undefined: the first. */
export const isInWaves = (
  waves: readonly Wave[],
  reached: number | undefined,
  client: Pick<CohortClient, 'place' | 'parameters'>,
): boolean => waves.slice(0, reached ?? 1).some((wave) => isInWave(wave, client));

/** Whether the rules alone make a client a canary. */
export function isInWave(
  { percent, match }: Pick<Wave, 'percent' | 'match'>,
  { place, parameters }: Pick<CohortClient, 'place' | 'parameters'>,
): boolean {
  if (match.some(({ key, value }) => parameters.entries.get(key) === value)) return true;
  return place * 100 < percent;
}

/** The clients of the classes that have reached another wave. Undefined: none has. */
export function classesMoved(
  before: ReadonlyMap<string, number>,
  after: ReadonlyMap<string, number>,
): ((client: Moved) => boolean) | undefined {
  const classes = new Set([...before.keys(), ...after.keys()]);
  for (const classKey of classes) if (before.get(classKey) === after.get(classKey)) classes.delete(classKey);
  return classes.size === 0 ? undefined : ({ classKey }) => classes.has(classKey);
}

/** Who a client is. */
export type Moved = Pick<Member, 'nodeKey' | 'classKey'>;

/** A node that subscribes to something of what waits. */
export interface Member extends Pick<CohortClient, 'nodeKey' | 'place' | 'classKey'> {
  readonly cohort: Cohort;
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
  const byCanaries = peers.flatMap(({ cohort, subscribed }) => (cohort === 'canary' ? [...subscribed] : []));
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
    elected.push(peer.nodeKey);
    for (const names of peer.subscribed) cover(names);
  }
  return elected;
}

export const byPlace = (a: Member, b: Member): number =>
  a.place - b.place || (a.nodeKey < b.nodeKey ? -1 : 1);
