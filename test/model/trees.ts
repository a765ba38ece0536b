import { create, toBinary } from '@bufbuild/protobuf';
import { expect } from 'chai';
import * as fc from 'fast-check';
import {
  type DynamicParameterConstraints,
  DynamicParameterConstraintsSchema,
} from '../../src/gen/envoy/service/discovery/v3/discovery_pb.ts';
import { type Constraints, parseConstraints } from '../../src/model/constraints.ts';
import type { Result } from '../../src/model/result.ts';

/** Builders of the generated message, so that tests and code share no decoder and no encoder. */
export type Tree = DynamicParameterConstraints;

export const unset = (): Tree => create(DynamicParameterConstraintsSchema);

export const equal = (key: string, value: string): Tree =>
  create(DynamicParameterConstraintsSchema, {
    type: { case: 'constraint', value: { key, constraintType: { case: 'value', value } } },
  });

export const exists = (key: string): Tree =>
  create(DynamicParameterConstraintsSchema, {
    type: { case: 'constraint', value: { key, constraintType: { case: 'exists', value: {} } } },
  });

export const not = (of: Tree): Tree =>
  create(DynamicParameterConstraintsSchema, { type: { case: 'notConstraints', value: of } });

export const and = (...constraints: Tree[]): Tree =>
  create(DynamicParameterConstraintsSchema, { type: { case: 'andConstraints', value: { constraints } } });

export const or = (...constraints: Tree[]): Tree =>
  create(DynamicParameterConstraintsSchema, { type: { case: 'orConstraints', value: { constraints } } });

export const encode = (tree: Tree): Uint8Array => toBinary(DynamicParameterConstraintsSchema, tree);

export function value<T>(result: Result<T>): T {
  if (!result.ok) throw new Error(result.error);
  return result.value;
}

export function error(result: Result<unknown>): string {
  expect(result.ok, 'an error was expected').to.equal(false);
  return result.ok ? '' : result.error;
}

export const parse = (tree: Tree): Constraints => value(parseConstraints(encode(tree), 64));

/** Few keys and values, so that trees and parameters often meet. */
const keys = ['a', 'b', 'c', '', '__proto__', 'constructor', 'ключ'];
const values = ['1', '2', '', '__proto__', '"],["'];

export const parametersArbitrary = fc.array(fc.tuple(fc.constantFrom(...keys), fc.constantFrom(...values)), {
  maxLength: 5,
});

export const treeArbitrary: fc.Arbitrary<Tree> = fc.letrec<{ tree: Tree }>((tie) => ({
  tree: fc.oneof(
    { maxDepth: 5, depthSize: 'max', depthIdentifier: 'tree' },
    {
      arbitrary: fc.tuple(fc.constantFrom(...keys), fc.constantFrom(...values)).map(([k, v]) => equal(k, v)),
      weight: 4,
    },
    { arbitrary: fc.constantFrom(...keys).map(exists), weight: 2 },
    { arbitrary: fc.constant(null).map(unset), weight: 1 },
    { arbitrary: tie('tree').map(not), weight: 4 },
    {
      arbitrary: fc.array(tie('tree'), { maxLength: 4, depthIdentifier: 'tree' }).map((of) => and(...of)),
      weight: 4,
    },
    {
      arbitrary: fc.array(tie('tree'), { maxLength: 4, depthIdentifier: 'tree' }).map((of) => or(...of)),
      weight: 4,
    },
  ),
})).tree;
