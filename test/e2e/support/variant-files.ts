import { create, fromBinary, toBinary } from '@bufbuild/protobuf';
import { anyPack } from '@bufbuild/protobuf/wkt';
import {
  DiscoveryResponseSchema,
  DynamicParameterConstraintsSchema,
  ResourceSchema,
} from '../../../src/gen/envoy/service/discovery/v3/discovery_pb.ts';
import type { Constraints } from '../../../src/model/constraints.ts';
import { any, type } from '../../support/in-memory-relay.ts';
import type { ResourceFiles } from './files.ts';

/** Name, content, and for whom; undefined: for all. */
export type VariantOf = readonly [name: string, content: string, constraints: Constraints | undefined];

/** A file with everything of a type, in variants. */
export function writeVariants(files: ResourceFiles, short: string, variants: readonly VariantOf[]): void {
  const url = type(short);
  const resources = variants.map(([name, content, constraints]) => {
    const body = any(url, name, content);
    if (constraints === undefined) return body;
    const dynamicParameterConstraints = fromBinary(DynamicParameterConstraintsSchema, constraints.bytes);
    const resourceName = { name, dynamicParameterConstraints };
    return anyPack(ResourceSchema, create(ResourceSchema, { resourceName, resource: body }));
  });
  const message = create(DiscoveryResponseSchema, { typeUrl: url, resources });
  files.writeText(`${short}.pb`, toBinary(DiscoveryResponseSchema, message));
}
