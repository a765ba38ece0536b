import type { LoadTotals } from '../model/load.ts';
import { bytesTag, MessageReader } from '../protobuf/message-reader.ts';
import { CLUSTER_STATS, type Plan, REPORT } from './plan.ts';

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
const mostClusters = 10_000;
/** ClusterStats.cluster_name. */
const nameTag = bytesTag(1);

/** Of a LoadStatsRequest. Throws a RangeError or a TypeError where it is malformed. */
export function readTotals(report: Buffer): ReadTotals {
  const totals = { clusters: 0, success: 0, error: 0, dropped: 0 };
  const clusters: (Counts & { readonly name: string })[] = [];
  for (const reader = new MessageReader(report); reader.next(); ) {
    const field = REPORT.byTag[reader.tag];
    if (field?.kind !== 'rows' || field.plan.name !== CLUSTER_STATS) continue;
    const one = { name: clusterName(reader.message()), success: 0, error: 0, dropped: 0 };
    addFrom(one, field.plan, reader.message());
    addCounts(totals, one);
    totals.clusters++;
    if (clusters.length < mostClusters) clusters.push(one);
  }
  return { totals, clusters };
}

export function addCounts(to: Counts, { success, error, dropped }: Readonly<Counts>): void {
  to.success += success;
  to.error += error;
  to.dropped += dropped;
}

function addFrom(counts: Counts, { byTag }: Plan, reader: MessageReader): void {
  while (reader.next()) {
    const field = byTag[reader.tag];
    if (field?.kind === 'counter' && field.outcome !== undefined) counts[field.outcome] += reader.uint64();
    if (field?.kind === 'rows' && field.plan.hasOutcomes) addFrom(counts, field.plan, reader.message());
  }
}

/** Of a ClusterStats. */
export function clusterName(cluster: MessageReader): string {
  let name = '';
  while (cluster.next()) if (cluster.tag === nameTag) name = cluster.text();
  return name;
}
