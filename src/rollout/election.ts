import type { Side } from '../model/side.ts';

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
