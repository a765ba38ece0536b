import { onceFor } from '../model/maps.ts';
import { errorMessage, fail, ok, type Result } from '../model/result.ts';
import { encode, type Field, nested, utf8, varint } from '../protobuf/field-writer.ts';
import { bytesTag, MessageReader, varintTag } from '../protobuf/message-reader.ts';
import { frameOf } from '../wire/grpc-frames.ts';
import { readDuration } from '../wire/response-reader.ts';
import { durationFields } from '../wire/responses.ts';

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
export const joined = (all: readonly Instruction[]): Instruction | undefined =>
  all.length === 0 ? undefined : all.reduce((one, other) => joinedWith(one)(other));

/** Once for a fleet, as what is restricted is: it may be as many names as an instruction has room for. */
const joinedWith = onceFor((one: Instruction) =>
  onceFor((other: Instruction) => {
    const everything = one.clusters === undefined || other.clusters === undefined;
    return instructionOf({
      clusters: everything ? undefined : one.clusters.union(other.clusters),
      endpoints: one.endpoints || other.endpoints,
      intervalMs: Math.min(one.intervalMs, other.intervalMs),
    });
  }),
);

/** What clients are told that may not know of all clusters. Nothing: of none of them, and an empty list would mean all. */
export const restricted = onceFor(({ clusters, endpoints, intervalMs }: Instruction) =>
  onceFor((mayKnow: (cluster: string) => boolean): readonly Instruction[] => {
    const allowed = clusters && new Set(clusters.values().filter(mayKnow));
    // Encoded again also where it asks for all: it may have names as well.
    return allowed?.size === 0 ? [] : [instructionOf({ clusters: allowed, endpoints, intervalMs })];
  }),
);

function instructionOf({ clusters, endpoints, intervalMs }: Omit<Instruction, 'frame'>): Instruction {
  const fields: Field[] = [...(clusters ?? [])].toSorted().map((name) => utf8(1, name));
  nested(fields, 2, durationFields(intervalMs));
  if (endpoints) fields.push(varint(3, 1));
  if (clusters === undefined) fields.push(varint(4, 1));
  return { frame: frameOf(encode(fields)), clusters, endpoints, intervalMs };
}
