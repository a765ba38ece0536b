import { create, fromBinary, toBinary } from '@bufbuild/protobuf';
import type { Any } from '@bufbuild/protobuf/wkt';
import { NodeSchema } from '../../src/gen/envoy/config/core/v3/base_pb.ts';
import {
  DeltaDiscoveryRequestSchema,
  DeltaDiscoveryResponseSchema,
  DiscoveryRequestSchema,
  DiscoveryResponseSchema,
  type DynamicParameterConstraints,
  DynamicParameterConstraintsSchema,
  type Resource,
  type ResourceError,
  ResourceLocatorSchema,
  ResourceSchema,
} from '../../src/gen/envoy/service/discovery/v3/discovery_pb.ts';
import { contentOf, nameOf } from '../support/in-memory-relay.ts';
import type { Parameters } from './constraints.ts';
import { catalog, type Kind, kindOf } from './world.ts';

/** A resource as a client reads it. */
export interface ReceivedResource {
  readonly name: string;
  /** Hexadecimal digits of the encoded constraints; empty for none. */
  readonly constraints: string;
  readonly content: string;
  /** Delta: the version to come back with. */
  readonly tag: string;
}

/** A response of either protocol. */
export interface Received {
  readonly kind: Kind;
  readonly version: string;
  readonly nonce: string;
  readonly resources: readonly ReceivedResource[];
  readonly removed: readonly string[];
  readonly removedVariants: readonly { readonly name: string; readonly constraints: string }[];
  /** resource_errors: the names, and what is wrong with each. */
  readonly errors: readonly { readonly name: string; readonly code: number }[];
}

const errorsOf = (errors: readonly ResourceError[]): Received['errors'] =>
  errors.map(({ resourceName, errorDetail }) => {
    return { name: resourceName?.name ?? '', code: errorDetail?.code ?? 0 };
  });

export const identity = (constraints: string, name: string): string => `${constraints} ${name}`;

const RESOURCE_URL = 'type.googleapis.com/envoy.service.discovery.v3.Resource';

function hex(constraints: DynamicParameterConstraints | undefined): string {
  return constraints === undefined
    ? ''
    : Buffer.from(toBinary(DynamicParameterConstraintsSchema, constraints)).toString('hex');
}

function fromResource(resource: Resource): ReceivedResource {
  return {
    name: resource.resourceName?.name ?? resource.name,
    constraints: hex(resource.resourceName?.dynamicParameterConstraints),
    content: contentOf(resource.resource),
    tag: resource.version,
  };
}

function fromAny(any: Any): ReceivedResource {
  if (any.typeUrl === RESOURCE_URL) return fromResource(fromBinary(ResourceSchema, any.value));
  return { name: nameOf(any), constraints: '', content: contentOf(any), tag: '' };
}

export function readSotw(bytes: Buffer): Received {
  const message = fromBinary(DiscoveryResponseSchema, bytes);
  return {
    kind: kindOf(message.typeUrl),
    version: message.versionInfo,
    nonce: message.nonce,
    resources: message.resources.map(fromAny),
    removed: [],
    removedVariants: [],
    errors: errorsOf(message.resourceErrors),
  };
}

export function readDelta(bytes: Buffer): Received {
  const message = fromBinary(DeltaDiscoveryResponseSchema, bytes);
  return {
    kind: kindOf(message.typeUrl),
    version: message.systemVersionInfo,
    nonce: message.nonce,
    resources: message.resources.map(fromResource),
    removed: message.removedResources,
    removedVariants: message.removedResourceNames.map(({ name, dynamicParameterConstraints }) => ({
      name,
      constraints: hex(dynamicParameterConstraints),
    })),
    errors: errorsOf(message.resourceErrors),
  };
}

interface NodeLook {
  readonly id: string;
  readonly parameters: Parameters;
  readonly wrapped: boolean;
}

function node({ id, parameters, wrapped }: NodeLook) {
  return create(NodeSchema, {
    id,
    cluster: 'fleet',
    metadata: Object.fromEntries(parameters.entries),
    clientFeatures: wrapped ? ['xds.config.resource-in-sotw'] : [],
  });
}

const locators = (names: readonly string[], forms: readonly Parameters[]) =>
  names.flatMap((name) =>
    forms.map(({ entries }) =>
      create(ResourceLocatorSchema, { name, dynamicParameters: Object.fromEntries(entries) }),
    ),
  );

/** `forms`: the parameter sets of a locator client; undefined: plain names. */
export interface Speech {
  readonly kind: Kind;
  readonly node: NodeLook | undefined;
  readonly nonce: string;
  readonly error: string | undefined;
  readonly forms: readonly Parameters[] | undefined;
}

const error = (message: string | undefined) =>
  message === undefined ? {} : { errorDetail: { code: 13, message } };

export function writeSotw(speech: Speech, version: string, names: readonly string[]): Uint8Array {
  const { kind, forms, nonce } = speech;
  return toBinary(
    DiscoveryRequestSchema,
    create(DiscoveryRequestSchema, {
      typeUrl: catalog[kind].url,
      versionInfo: version,
      responseNonce: nonce,
      ...(speech.node === undefined ? {} : { node: node(speech.node) }),
      ...(forms === undefined ? { resourceNames: [...names] } : { resourceLocators: locators(names, forms) }),
      ...error(speech.error),
    }),
  );
}

export function writeDelta(
  speech: Speech,
  subscribe: readonly string[],
  unsubscribe: readonly string[],
  versions: ReadonlyMap<string, string>,
): Uint8Array {
  const { kind, forms, nonce } = speech;
  return toBinary(
    DeltaDiscoveryRequestSchema,
    create(DeltaDiscoveryRequestSchema, {
      typeUrl: catalog[kind].url,
      responseNonce: nonce,
      ...(speech.node === undefined ? {} : { node: node(speech.node) }),
      ...(forms === undefined
        ? { resourceNamesSubscribe: [...subscribe], resourceNamesUnsubscribe: [...unsubscribe] }
        : {
            resourceLocatorsSubscribe: locators(subscribe, forms),
            resourceLocatorsUnsubscribe: locators(unsubscribe, forms),
          }),
      initialResourceVersions: Object.fromEntries(versions),
      ...error(speech.error),
    }),
  );
}

/** One line of a transcript. */
export function describe(received: Received): string {
  const parts = [
    ...received.resources.map(({ name, constraints, content }) => `${name}${brief(constraints)}=${content}`),
    ...received.removed.map((name) => `-${name}`),
    ...received.removedVariants.map(({ name, constraints }) => `-${name}${brief(constraints)}`),
    ...received.errors.map(({ name, code }) => `!${name}:${code}`),
  ];
  return `${received.kind} #${received.nonce} [${parts.join(' ')}]`;
}

const brief = (constraints: string): string => (constraints === '' ? '' : `{${constraints.slice(-6)}}`);

/** A request as its receiver reads it. */
export function describeRequest(protocol: 'SOTW' | 'DELTA', bytes: Uint8Array): string {
  const list = (
    names: readonly string[],
    locators: readonly { readonly name: string; readonly dynamicParameters: Record<string, string> }[],
  ): string => {
    const located = locators.map(
      ({ name, dynamicParameters }) => `${name}${JSON.stringify(dynamicParameters)}`,
    );
    return `[${[...names, ...located].join(' ')}]`;
  };
  if (protocol === 'SOTW') {
    const request = fromBinary(DiscoveryRequestSchema, bytes);
    const { responseNonce, resourceNames, resourceLocators, errorDetail } = request;
    const refusal = errorDetail === undefined ? '' : ` rejected: ${errorDetail.message}`;
    return `${kindOf(request.typeUrl)} #${responseNonce} ${list(resourceNames, resourceLocators)}${refusal}`;
  }
  const request = fromBinary(DeltaDiscoveryRequestSchema, bytes);
  const { responseNonce, errorDetail, initialResourceVersions } = request;
  const refusal = errorDetail === undefined ? '' : ` rejected: ${errorDetail.message}`;
  const more = list(request.resourceNamesSubscribe, request.resourceLocatorsSubscribe);
  const fewer = list(request.resourceNamesUnsubscribe, request.resourceLocatorsUnsubscribe);
  const versions = JSON.stringify(initialResourceVersions);
  return `${kindOf(request.typeUrl)} #${responseNonce} +${more} -${fewer} ${versions}${refusal}`;
}
