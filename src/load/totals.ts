import type { LoadTotals } from '../model/load.ts';
import { bytesTag, type MessageReader } from '../protobuf/message-reader.ts';

export interface Counts {
  success: number;
  error: number;
  dropped: number;
}

/** What a report says of requests. */
export interface ReadTotals {
  readonly totals: LoadTotals;
  /** As often as the report names them. */
  readonly clusters: readonly (Counts & { readonly name: string })[];
}

/** More clusters of one report are in its totals only: a cluster may have two bytes. */
export const mostClusters = 10_000;
/** ClusterStats.cluster_name. */
const nameTag = bytesTag(1);

export function addCounts(to: Counts, { success, error, dropped }: Readonly<Counts>): void {
  to.success += success;
  to.error += error;
  to.dropped += dropped;
}

/** Of a ClusterStats. */
export function clusterName(cluster: MessageReader): string {
  let name = '';
  while (cluster.next()) if (cluster.tag === nameTag) name = cluster.text();
  return name;
}
