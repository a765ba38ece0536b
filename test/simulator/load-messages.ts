import { create, fromBinary, toBinary } from '@bufbuild/protobuf';
import { NodeSchema } from '../../src/gen/envoy/config/core/v3/base_pb.ts';
import {
  LoadStatsRequestSchema,
  LoadStatsResponseSchema,
} from '../../src/gen/envoy/service/load_stats/v3/lrs_pb.ts';
import { type Parameters, parametersOf } from './constraints.ts';

/** By what they are of: cluster, locality and the name of the number. */
export type Numbers = Map<string, number>;

/** A LoadStatsRequest, as its reader sees it. */
export interface Report {
  /** Of its node; undefined: it has none. */
  readonly parameters: Parameters | undefined;
  readonly counters: Numbers;
  /** What is open now. */
  readonly gauges: Numbers;
}

/** What a control plane asks for. */
export interface Asked {
  readonly intervalMs: number;
  /** Undefined: all. */
  readonly clusters: readonly string[] | undefined;
}

export function add(sums: Numbers, more: Numbers): void {
  for (const [key, value] of more) sums.set(key, (sums.get(key) ?? 0) + value);
}

/** Of the clusters that are wanted; undefined: of all. */
export function only(numbers: Numbers, clusters: readonly string[] | undefined): Numbers {
  if (clusters === undefined) return numbers;
  return new Map([...numbers].filter(([key]) => clusters.includes(key.split(' ', 1)[0] ?? '')));
}

/** The first number that is another; undefined: there is none. */
export function difference(left: Numbers, right: Numbers): string | undefined {
  for (const key of new Set([...left.keys(), ...right.keys()])) {
    const [a, b] = [left.get(key) ?? 0, right.get(key) ?? 0];
    if (a !== b) return `${key}: ${a} and ${b}`;
  }
  return undefined;
}

export function readReport(bytes: Uint8Array): Report {
  const { node, clusterStats } = fromBinary(LoadStatsRequestSchema, bytes);
  const counters: Numbers = new Map();
  const gauges: Numbers = new Map();
  const count = (sums: Numbers, key: string, value: bigint): void => {
    if (value > 0n) add(sums, new Map([[key, Number(value)]]));
  };
  for (const { clusterName, totalDroppedRequests, droppedRequests, upstreamLocalityStats } of clusterStats) {
    count(counters, `${clusterName} dropped`, totalDroppedRequests);
    for (const { category, droppedCount } of droppedRequests)
      count(counters, `${clusterName} dropped ${category}`, droppedCount);
    for (const one of upstreamLocalityStats) {
      const at = `${clusterName} ${one.locality?.zone ?? ''}/${one.priority}`;
      count(counters, `${at} success`, one.totalSuccessfulRequests);
      count(counters, `${at} error`, one.totalErrorRequests);
      count(counters, `${at} issued`, one.totalIssuedRequests);
      for (const metric of one.loadMetricStats)
        count(counters, `${at} ${metric.metricName}`, BigInt(metric.totalMetricValue));
      count(gauges, at, one.totalRequestsInProgress);
    }
  }
  const texts = Object.entries(node?.metadata ?? {}).flatMap(([key, value]) =>
    typeof value === 'string' ? [[key, value] as const] : [],
  );
  return { parameters: node && parametersOf(new Map(texts)), counters, gauges };
}

/** Of one cluster in one locality, since the last report. */
export interface Load {
  readonly cluster: string;
  readonly zone: string;
  readonly success: number;
  readonly error: number;
  readonly dropped: number;
  readonly inProgress: number;
}

/** `node`: undefined: it was said before. */
export function writeReport(
  node: { readonly id: string; readonly parameters: Parameters } | undefined,
  loads: readonly Load[],
): Uint8Array {
  const clusterStats = [...Map.groupBy(loads, ({ cluster }) => cluster)].map(([clusterName, own]) => {
    const dropped = BigInt(own.reduce((sum, one) => sum + one.dropped, 0));
    return {
      clusterName,
      totalDroppedRequests: dropped,
      droppedRequests: dropped > 0n ? [{ category: 'throttle', droppedCount: dropped }] : [],
      upstreamLocalityStats: own.map(({ zone, success, error, inProgress }) => ({
        locality: { zone },
        totalSuccessfulRequests: BigInt(success),
        totalErrorRequests: BigInt(error),
        totalIssuedRequests: BigInt(success + error),
        totalRequestsInProgress: BigInt(inProgress),
        loadMetricStats: [
          { metricName: 'cost', numRequestsFinishedWithMetric: BigInt(success), totalMetricValue: success },
        ],
      })),
    };
  });
  const { id, parameters } = node ?? {};
  return toBinary(
    LoadStatsRequestSchema,
    create(LoadStatsRequestSchema, {
      ...(id === undefined
        ? {}
        : { node: create(NodeSchema, { id, metadata: Object.fromEntries(parameters?.entries ?? []) }) }),
      clusterStats,
    }),
  );
}

export function readAsked(bytes: Uint8Array): Asked {
  const message = fromBinary(LoadStatsResponseSchema, bytes);
  const { seconds = 0n, nanos = 0 } = message.loadReportingInterval ?? {};
  return {
    intervalMs: Number(seconds) * 1000 + nanos / 1e6,
    clusters: message.sendAllClusters ? undefined : message.clusters,
  };
}

export function writeAsked({ intervalMs, clusters }: Asked): Uint8Array {
  return toBinary(
    LoadStatsResponseSchema,
    create(LoadStatsResponseSchema, {
      clusters: [...(clusters ?? [])],
      sendAllClusters: clusters === undefined,
      loadReportingInterval: {
        seconds: BigInt(Math.floor(intervalMs / 1000)),
        nanos: (intervalMs % 1000) * 1e6,
      },
    }),
  );
}

/** One line of a transcript. */
export function describeReport({ counters, gauges }: Report): string {
  const sumOf = (numbers: Numbers, name: string): number =>
    [...numbers].reduce((sum, [key, value]) => sum + (key.endsWith(name) ? value : 0), 0);
  const [success, error, dropped, open] = [
    ...['success', 'error', 'dropped'].map((name) => sumOf(counters, name)),
    sumOf(gauges, ''),
  ];
  return `load [${success} good, ${error} bad, ${dropped} dropped, ${open} open]`;
}
