import { create, toBinary } from '@bufbuild/protobuf';
import {
  type DynamicParameterConstraints,
  DynamicParameterConstraintsSchema,
} from '../../src/gen/envoy/service/discovery/v3/discovery_pb.ts';
import { type Constraints, parseConstraints } from '../../src/model/constraints.ts';
import type { Condition, Resource } from './policy.ts';
import { identityOf } from './reference.ts';

/** What a control plane tells variants apart by. */
export const keyOf = ({ type, name, condition }: Resource): string =>
  JSON.stringify([type, identityOf(name), constraintsOf(condition).key]);

export function constraintsOf(condition: Condition | undefined): Constraints {
  const parsed = parseConstraints(encoded(condition), 64);
  if (!parsed.ok) throw new Error(parsed.error);
  return parsed.value;
}

const encoded = (condition: Condition | undefined): Uint8Array =>
  condition === undefined
    ? new Uint8Array()
    : toBinary(DynamicParameterConstraintsSchema, messageOf(condition));

export function messageOf(condition: Condition): DynamicParameterConstraints {
  return create(DynamicParameterConstraintsSchema, { type: typeOf(condition) });
}

function typeOf(condition: Condition): DynamicParameterConstraints['type'] {
  if ('not' in condition) return { case: 'notConstraints', value: messageOf(condition.not) };
  if ('all' in condition || 'any' in condition) {
    const list = 'all' in condition ? condition.all : condition.any;
    const { type: of } = create(DynamicParameterConstraintsSchema, {
      type: {
        case: 'all' in condition ? 'andConstraints' : 'orConstraints',
        value: { constraints: list.map(messageOf) },
      },
    });
    return of;
  }
  const single =
    'key' in condition
      ? { key: condition.key, constraintType: { case: 'value' as const, value: condition.value } }
      : { key: condition.exists, constraintType: { case: 'exists' as const, value: {} } };
  return create(DynamicParameterConstraintsSchema, { type: { case: 'constraint', value: single } }).type;
}
