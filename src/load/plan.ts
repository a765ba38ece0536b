import { type DescField, type DescMessage, ScalarType } from '@bufbuild/protobuf';
import { LoadStatsRequestSchema } from '../gen/envoy/service/load_stats/v3/lrs_pb.ts';
import type { LoadOutcome } from '../model/load.ts';
import { bytesTag, doubleTag, varintTag } from '../protobuf/message-reader.ts';

/** What a field of a load report is to its sums. `slot`: which of a row's numbers it is. */
export type FieldPlan =
  /** Says what the numbers are of. */
  | { readonly kind: 'key'; readonly number: number; readonly message: DescMessage | undefined }
  /** Counts since the last report. */
  | {
      readonly kind: 'counter';
      readonly number: number;
      readonly slot: number;
      readonly double: boolean;
      readonly outcome: LoadOutcome | undefined;
    }
  /** What is open now. */
  | { readonly kind: 'gauge'; readonly number: number; readonly slot: number }
  /** Messages with numbers of their own: one row for each key. */
  | { readonly kind: 'rows'; readonly number: number; readonly plan: Plan }
  /** Of what was said last. */
  | { readonly kind: 'latest'; readonly number: number; readonly message: DescMessage }
  /** Since the last report: that of the sums is their own. */
  | { readonly kind: 'interval'; readonly number: number };

/** How the numbers of a message add up. */
export interface Plan {
  readonly name: string;
  /** By `MessageReader.tag`. */
  readonly byTag: readonly (FieldPlan | undefined)[];
  readonly fields: readonly FieldPlan[];
  /** Counters and gauges. */
  readonly numbers: number;
  /** It says what became of requests, or something below it does. */
  readonly hasOutcomes: boolean;
}

const gauges: ReadonlySet<string> = new Set(['total_requests_in_progress', 'total_active_connections']);
/** Numbers that name something. */
const names: ReadonlySet<string> = new Set(['priority']);
const localityStats = 'envoy.config.endpoint.v3.UpstreamLocalityStats';
const outcomes: ReadonlyMap<string, LoadOutcome> = new Map([
  [`${localityStats}.total_successful_requests`, 'success'],
  [`${localityStats}.total_error_requests`, 'error'],
  ['envoy.config.endpoint.v3.ClusterStats.total_dropped_requests', 'dropped'],
]);

/** The plan of endpoints' numbers, which a control plane asks for apart. */
export const ENDPOINT_STATS = 'envoy.config.endpoint.v3.UpstreamEndpointStats';
export const CLUSTER_STATS = 'envoy.config.endpoint.v3.ClusterStats';

/** By the descriptor, so a counter of a later version of the API is added up as well. */
function planOf(desc: DescMessage): Plan {
  const byTag: (FieldPlan | undefined)[] = [];
  const fields: FieldPlan[] = [];
  const count = { numbers: 0 };
  for (const field of desc.fields) {
    const found = fieldPlan(desc, field, count);
    if (found === undefined) continue;
    const plan = ofOneShape(found);
    fields.push(plan);
    const isDouble = plan.kind === 'counter' && plan.double;
    const isBytes = field.message !== undefined || field.scalar === ScalarType.STRING;
    byTag[(isDouble ? doubleTag : isBytes ? bytesTag : varintTag)(field.number)] = plan;
  }
  return {
    name: desc.typeName,
    byTag,
    fields,
    numbers: count.numbers,
    hasOutcomes: fields.some((field) =>
      field.kind === 'rows'
        ? field.plan.hasOutcomes
        : field.kind === 'counter' && field.outcome !== undefined,
    ),
  };
}

function fieldPlan(
  { typeName }: DescMessage,
  { number, name, message, fieldKind, scalar }: DescField,
  count: { numbers: number },
): FieldPlan | undefined {
  if (message?.typeName === 'google.protobuf.Duration') return { kind: 'interval', number };
  if (message?.typeName === 'google.protobuf.Struct') return { kind: 'latest', number, message };
  if (message !== undefined) {
    // Who reports is not part of what the sums are of.
    if (message.typeName === 'envoy.config.core.v3.Node') return undefined;
    if (message.fields.some((inner) => isNumber(inner)) || fieldKind === 'list') {
      return { kind: 'rows', number, plan: planOf(message) };
    }
    return { kind: 'key', number, message };
  }
  if (scalar === ScalarType.STRING || names.has(name)) return { kind: 'key', number, message: undefined };
  if (gauges.has(name)) return { kind: 'gauge', number, slot: count.numbers++ };
  const outcome = outcomes.get(`${typeName}.${name}`);
  return { kind: 'counter', number, slot: count.numbers++, double: scalar === ScalarType.DOUBLE, outcome };
}

/** Each field of each report is looked up here, and V8 does that several times as fast if these objects have one shape. */
function ofOneShape(field: FieldPlan): FieldPlan {
  const shape: Record<string, unknown> = {
    kind: undefined,
    number: 0,
    slot: 0,
    double: false,
    outcome: undefined,
    message: undefined,
    plan: undefined,
  };
  return Object.assign(shape, field);
}

const isNumber = ({ scalar }: DescField): boolean =>
  scalar === ScalarType.UINT64 || scalar === ScalarType.DOUBLE;

/** Of a whole report. */
export const REPORT: Plan = planOf(LoadStatsRequestSchema);
