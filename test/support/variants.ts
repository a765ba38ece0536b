import { create, fromBinary, type MessageInitShape, toBinary } from '@bufbuild/protobuf';
import type {
  DeltaDiscoveryResponse,
  DiscoveryResponse,
  Resource,
} from '../../src/gen/envoy/service/discovery/v3/discovery_pb.ts';
import {
  DynamicParameterConstraintsSchema,
  type ResourceLocatorSchema,
  ResourceSchema,
} from '../../src/gen/envoy/service/discovery/v3/discovery_pb.ts';
import { type Constraints, formatConstraints, parseConstraints } from '../../src/model/constraints.ts';
import { contentOf } from './in-memory-relay.ts';

type Init = MessageInitShape<typeof DynamicParameterConstraintsSchema>;

export const is = (key: string, value: string): Init => ({
  type: { case: 'constraint', value: { key, constraintType: { case: 'value', value } } },
});
export const exists = (key: string): Init => ({
  type: { case: 'constraint', value: { key, constraintType: { case: 'exists', value: {} } } },
});
export const not = (of: Init): Init => ({ type: { case: 'notConstraints', value: of } });
export const and = (...constraints: Init[]): Init => ({
  type: { case: 'andConstraints', value: { constraints } },
});
export const or = (...constraints: Init[]): Init => ({
  type: { case: 'orConstraints', value: { constraints } },
});

export function compiled(init: Init): Constraints {
  const message = create(DynamicParameterConstraintsSchema, init);
  const parsed = parseConstraints(toBinary(DynamicParameterConstraintsSchema, message), 64);
  if (!parsed.ok) throw new Error(parsed.error);
  return parsed.value;
}

export function locator(
  name: string,
  dynamicParameters: Record<string, string> = {},
): MessageInitShape<typeof ResourceLocatorSchema> {
  return { name, dynamicParameters };
}

/** `name` for a plain resource, `name {constraints}` for one with resource_name. */
export function identity(resource: Resource): string {
  if (resource.resourceName === undefined) return resource.name;
  return shown(resource.resourceName);
}

/** The same of what an error or a removal is about. */
export function shown({
  name,
  dynamicParameterConstraints,
}: NonNullable<DeltaDiscoveryResponse['removedResourceNames'][number]>): string {
  if (dynamicParameterConstraints === undefined) return `${name} {}`;
  const parsed = parseConstraints(
    toBinary(DynamicParameterConstraintsSchema, dynamicParameterConstraints),
    64,
  );
  if (!parsed.ok) throw new Error(parsed.error);
  return `${name} {${formatConstraints(parsed.value.expression)}}`;
}

/** What a delta response says, in a form that is easy to compare: `+identity content`, `-name`, `-name {constraints}`. */
export function told(response: DeltaDiscoveryResponse): string[] {
  return [
    ...response.resources.map((resource) => `+${identity(resource)} ${contentOf(resource.resource)}`.trim()),
    ...response.removedResources.map((name) => `-${name}`),
    ...response.removedResourceNames.map((name) => `-${shown(name)}`),
  ].toSorted();
}

/** The wrapped resources of a SotW response, as `told` gives them; those without a wrapper as `=content`. */
export function wrapped(response: DiscoveryResponse): string[] {
  return response.resources
    .map((any) => {
      if (!any.typeUrl.endsWith('.Resource')) return `=${contentOf(any)}`;
      const resource = fromBinary(ResourceSchema, any.value);
      return `+${identity(resource)} ${contentOf(resource.resource)}`;
    })
    .toSorted();
}
