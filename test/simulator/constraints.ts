import { create, fromBinary, toBinary } from '@bufbuild/protobuf';
import {
  type DynamicParameterConstraints,
  DynamicParameterConstraintsSchema,
} from '../../src/gen/envoy/service/discovery/v3/discovery_pb.ts';

/** Dynamic parameters as the model sees them; a key of its own for maps. */
export interface Parameters {
  readonly key: string;
  readonly entries: readonly (readonly [string, string])[];
}

function parameters(entries: Readonly<Record<string, string>>): Parameters {
  const sorted = Object.entries(entries).toSorted(([a], [b]) => (a < b ? -1 : 1));
  return { key: sorted.map((pair) => pair.join('=')).join('&'), entries: sorted };
}

/** What clients of the simulator come with. */
export const parameterSets: readonly Parameters[] = [
  parameters({}),
  parameters({ env: 'prod' }),
  parameters({ env: 'dev' }),
  parameters({ env: 'prod', version: '2' }),
  parameters({ version: '2' }),
];

/** From a node, by the rules `env` and `version`. */
export function parametersOf(values: ReadonlyMap<string, string>): Parameters {
  return parameters(Object.fromEntries([...values].filter(([key]) => key === 'env' || key === 'version')));
}

const value = (key: string, text: string): DynamicParameterConstraints =>
  create(DynamicParameterConstraintsSchema, {
    type: { case: 'constraint', value: { key, constraintType: { case: 'value', value: text } } },
  });
const exists = (key: string): DynamicParameterConstraints =>
  create(DynamicParameterConstraintsSchema, {
    type: { case: 'constraint', value: { key, constraintType: { case: 'exists', value: {} } } },
  });
const not = (inner: DynamicParameterConstraints): DynamicParameterConstraints =>
  create(DynamicParameterConstraintsSchema, { type: { case: 'notConstraints', value: inner } });
const all = (...constraints: DynamicParameterConstraints[]): DynamicParameterConstraints =>
  create(DynamicParameterConstraintsSchema, { type: { case: 'andConstraints', value: { constraints } } });
const any = (...constraints: DynamicParameterConstraints[]): DynamicParameterConstraints =>
  create(DynamicParameterConstraintsSchema, { type: { case: 'orConstraints', value: { constraints } } });

/** Constraints with their encoding; `''` as the id of none. */
export interface Constraints {
  readonly label: string;
  readonly bytes: Uint8Array;
  readonly message: DynamicParameterConstraints | undefined;
}

function constraints(label: string, message?: DynamicParameterConstraints): Constraints {
  const bytes =
    message === undefined ? new Uint8Array() : toBinary(DynamicParameterConstraintsSchema, message);
  return { label, bytes, message };
}

export const NONE = constraints('');
const prod = value('env', 'prod');
const two = value('version', '2');
const [PROD, NOT_PROD, DEV] = [
  constraints('prod', prod),
  constraints('!prod', not(prod)),
  constraints('dev', value('env', 'dev')),
];
const [PROD_2, PROD_NOT_2] = [
  constraints('prod&2', all(prod, two)),
  constraints('prod&!2', all(prod, not(two))),
];
const [VERSIONED, UNVERSIONED] = [
  constraints('versioned', exists('version')),
  constraints('!versioned', not(exists('version'))),
];
const DEV_OR_2 = constraints('dev|2', any(value('env', 'dev'), two));

/** Sets of variants of which at most one matches any parameters. */
export const partitions: readonly (readonly Constraints[])[] = [
  [NONE],
  [NONE],
  [PROD, NOT_PROD],
  [PROD, DEV],
  [PROD_2, PROD_NOT_2, NOT_PROD],
  [PROD_2, NOT_PROD],
  [VERSIONED, UNVERSIONED],
  [PROD],
  [DEV],
  [VERSIONED],
];

/** Several may match: undefined by TP2, and control planes do it all the same. */
export const ambiguities: readonly (readonly Constraints[])[] = [
  [NONE, PROD],
  [PROD, VERSIONED],
  [NONE, DEV_OR_2],
];

/** TP2's table, written down a second time (protocol §5). */
export function matches(of: DynamicParameterConstraints | undefined, given: Parameters): boolean {
  const type = of?.type;
  if (type?.case === undefined) return true;
  switch (type.case) {
    case 'constraint': {
      const found = given.entries.find(([key]) => key === type.value.key);
      if (found === undefined) return false;
      const wanted = type.value.constraintType;
      return wanted.case === 'exists' || (wanted.case === 'value' && wanted.value === found[1]);
    }
    case 'andConstraints':
      return type.value.constraints.every((one) => matches(one, given));
    case 'orConstraints':
      return type.value.constraints.some((one) => matches(one, given));
    case 'notConstraints':
      return !matches(type.value, given);
    default:
      return type satisfies never;
  }
}

const decoded = new Map<string, DynamicParameterConstraints>();

/** Whether encoded constraints, as their hexadecimal digits, match. */
export function matchesHex(hex: string, given: Parameters): boolean {
  if (hex === '') return true;
  const known = decoded.get(hex);
  if (known !== undefined) return matches(known, given);
  const message = fromBinary(DynamicParameterConstraintsSchema, Buffer.from(hex, 'hex'));
  decoded.set(hex, message);
  return matches(message, given);
}
