import { create, toBinary } from '@bufbuild/protobuf';
import { LoadStatsResponseSchema } from '../gen/envoy/service/load_stats/v3/lrs_pb.ts';
import { errorMessage, fail, ok, type Result } from '../model/result.ts';
import { bytesTag, MessageReader, varintTag } from '../protobuf/message-reader.ts';
import { frameOf } from '../wire/grpc-frames.ts';
import { readDuration } from '../wire/response-reader.ts';

/** What a control plane asks of clients: a LoadStatsResponse. */
export interface Instruction {
  /** Framed, as it came: unknown fields reach the clients too. */
  readonly frame: Buffer;
  /** Undefined: all that a client has. */
  readonly clusters: ReadonlySet<string> | undefined;
  readonly endpoints: boolean;
  readonly intervalMs: number;
}

/** What of a report counts. */
export type Wanted = Pick<Instruction, 'clusters' | 'endpoints'>;

/** What is shorter, or missing, is no interval that anybody can have meant. */
const shortestMs = 100;
const usualMs = 10_000;

/** Nearly all are names of clusters. They are read in one turn, and each client is told them. */
const mostFields = 100_000;

/** The error says what is malformed. */
export function readInstruction(response: Buffer): Result<Instruction> {
  const clusters = new Set<string>();
  let asksForAll = false;
  let endpoints = false;
  let interval = 0;
  let fields = 0;
  try {
    for (const reader = new MessageReader(response); reader.next(); ) {
      if (++fields > mostFields) throw new RangeError(`more than ${mostFields} fields`);
      if (reader.tag === bytesTag(1)) clusters.add(reader.text());
      else if (reader.tag === bytesTag(2)) interval = readDuration(reader.message());
      else if (reader.tag === varintTag(3)) endpoints = reader.bool();
      else if (reader.tag === varintTag(4)) asksForAll = reader.bool();
    }
  } catch (cause) {
    return fail(`malformed LoadStatsResponse: ${errorMessage(cause)}`);
  }
  return ok({
    frame: frameOf(response),
    clusters: asksForAll ? undefined : clusters,
    endpoints,
    intervalMs: interval > 0 ? Math.max(interval, shortestMs) : usualMs,
  });
}

/** What the relay asks for itself. */
export const allClusters = (intervalMs: number): Instruction =>
  instructionOf({ clusters: undefined, endpoints: false, intervalMs });

/** What a client is told that reports to several control planes: all that any of them asks for, as often as any does. */
export function joined(all: readonly Instruction[]): Instruction | undefined {
  const [first, ...others] = all;
  if (first === undefined || others.length === 0) return first;
  const everything = all.some(({ clusters }) => clusters === undefined);
  return instructionOf({
    clusters: everything ? undefined : new Set(all.flatMap((one) => [...(one.clusters ?? [])])),
    endpoints: all.some((one) => one.endpoints),
    intervalMs: Math.min(...all.map((one) => one.intervalMs)),
  });
}

/** What a client is told that may not know of all clusters. Undefined: of none of them, and an empty list would mean all. */
export function restricted(
  { clusters, endpoints, intervalMs }: Instruction,
  mayKnow: (cluster: string) => boolean,
): Instruction | undefined {
  const allowed = clusters && new Set(clusters.values().filter(mayKnow));
  // Encoded again also where it asks for all: it may have names as well.
  return allowed?.size === 0 ? undefined : instructionOf({ clusters: allowed, endpoints, intervalMs });
}

function instructionOf({ clusters, endpoints, intervalMs }: Omit<Instruction, 'frame'>): Instruction {
  const response = create(LoadStatsResponseSchema, {
    clusters: [...(clusters ?? [])].toSorted(),
    sendAllClusters: clusters === undefined,
    reportEndpointGranularity: endpoints,
    loadReportingInterval: {
      seconds: BigInt(Math.floor(intervalMs / 1000)),
      nanos: Math.round((intervalMs % 1000) * 1e6),
    },
  });
  return { frame: frameOf(toBinary(LoadStatsResponseSchema, response)), clusters, endpoints, intervalMs };
}
