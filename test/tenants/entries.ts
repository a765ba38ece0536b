import { fromBinary, toBinary } from '@bufbuild/protobuf';
import {
  type DeltaDiscoveryResponse,
  type DiscoveryResponse,
  DynamicParameterConstraintsSchema,
  type Resource,
  ResourceSchema,
} from '../../src/gen/envoy/service/discovery/v3/discovery_pb.ts';
import { contentOf, nameOf } from '../support/in-memory-relay.ts';

/** A resource in a client's hands. */
export interface Entry {
  /** What it is known by: its name and its constraints. */
  readonly key: string;
  /** Of the snapshot that its content bears. */
  readonly number: number;
  /** How it was asked for, as far as its shape tells. */
  readonly form: 'plain' | 'locator' | 'any';
}

type Name = NonNullable<Resource['resourceName']>;

const numberOf = (content: string): number => Number(/^c(\d+);$/.exec(content)?.[1] ?? Number.NaN);

function constraintsOf({ dynamicParameterConstraints: constraints }: Name): string {
  if (constraints === undefined) return '';
  return Buffer.from(toBinary(DynamicParameterConstraintsSchema, constraints)).toString('hex');
}

const keyOf = (name: Name): string => `= ${constraintsOf(name)} ${name.name}`;

/** `constrained`: plain names are answered with constraints, too (xds.plain_clients). */
function entryOf(resource: Resource, constrained: boolean): Entry[] {
  // Without a body it says that there is nothing (an unresolvable VHDS alias).
  if (resource.resource === undefined) return [];
  const number = numberOf(contentOf(resource.resource));
  const { resourceName } = resource;
  if (resourceName === undefined) return [{ key: resource.name, number, form: 'plain' }];
  return [
    {
      key: keyOf(resourceName),
      number,
      form: constrained && constraintsOf(resourceName) !== '' ? 'any' : 'locator',
    },
  ];
}

export function entriesOfDelta(
  response: DeltaDiscoveryResponse,
  constrained: boolean,
): {
  readonly entries: readonly Entry[];
  readonly removed: readonly string[];
} {
  return {
    entries: response.resources.flatMap((one) => entryOf(one, constrained)),
    removed: [
      ...response.removedResources,
      ...response.removedResourceNames.map(keyOf),
      // Where plain names are told with constraints, a name without any is the same either way.
      ...response.removedResourceNames.flatMap((name) =>
        constrained && constraintsOf(name) === '' ? [name.name] : [],
      ),
      // Nothing there any more, in this form.
      ...response.resources.flatMap(({ resource, name }) => (resource === undefined ? [name] : [])),
    ],
  };
}

export function entriesOfSotw(response: DiscoveryResponse, constrained: boolean): readonly Entry[] {
  return response.resources.flatMap((any) => {
    if (any.typeUrl.endsWith('.Resource')) return entryOf(fromBinary(ResourceSchema, any.value), constrained);
    return [{ key: nameOf(any), number: numberOf(contentOf(any)), form: 'plain' as const }];
  });
}
