import type { Side } from '../model/side.ts';

/** A node that subscribes to something of what waits. */
export interface Member {
  readonly nodeId: string;
  /** `placeOf` its node id. */
  readonly place: number;
  /** One set of derived parameters, and one access. */
  readonly classKey: string;
  readonly side: Side;
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
  const uncovered = new Set(peers.flatMap(({ subscribed }) => [...subscribed]));
  const cover = ({ subscribed }: Member): void => {
    for (const names of subscribed) for (const name of names) covered.add(name);
    for (const names of uncovered) if (names.isSubsetOf(covered)) uncovered.delete(names);
  };
  for (const peer of peers) if (peer.side === 'canary') cover(peer);
  if (uncovered.size === 0) return elected;
  for (const peer of peers.toSorted(byPlace)) {
    if (peer.subscribed.isDisjointFrom(uncovered)) continue;
    elected.push(peer.nodeId);
    cover(peer);
  }
  return elected;
}

export const byPlace = (a: Member, b: Member): number => a.place - b.place || (a.nodeId < b.nodeId ? -1 : 1);
