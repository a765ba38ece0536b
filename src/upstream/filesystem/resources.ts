import { createHash } from 'node:crypto';
import { fromBinary, ScalarType, toBinary } from '@bufbuild/protobuf';
import { type Any, AnySchema, durationMs } from '@bufbuild/protobuf/wkt';
import { MetadataSchema } from '../../gen/envoy/config/core/v3/base_pb.ts';
import {
  type DiscoveryResponse,
  DynamicParameterConstraintsSchema,
  type Resource,
  ResourceSchema,
} from '../../gen/envoy/service/discovery/v3/discovery_pb.ts';
import { type ResourceName, type TypeUrl, typeUrl } from '../../model/brand.ts';
import { type Constraints, parseConstraints, UNCONSTRAINED } from '../../model/constraints.ts';
import { errorMessage, fail, ok, type Result } from '../../model/result.ts';
import type { Put } from '../../model/transaction.ts';
import { canonicalName, canonicalNames } from '../../model/xdstp.ts';
import { bytesTag, MessageReader } from '../../protobuf/message-reader.ts';
import { envoyRegistry, messageName } from '../../wire/registry.ts';

/** One resource of one file. */
export interface FileResource {
  readonly type: TypeUrl;
  readonly put: Put;
  /** A digest of all that a subscriber could see of it: equal digests, nothing changed. */
  readonly digest: string;
  /** Its place in the file's `resources`. */
  readonly index: number;
}

interface FileResourceProblem {
  readonly index: number;
  readonly message: string;
}

/**
 * The resources of a DiscoveryResponse file. Each is an Any of its own type, or an Any of
 * `envoy.service.discovery.v3.Resource` around it, which can give name, version, constraints, aliases and TTL. Without
 * a `type_url` one file may hold several types; with it, all must be of that type. The version of a resource is its
 * own, else the file's `version_info`, else a hash of its content (protocol §7).
 */
export function readResources(response: DiscoveryResponse, maxConstraintDepth: number): ReadResources {
  const resources: FileResource[] = [];
  const problems: FileResourceProblem[] = [];
  const seen = new Map<TypeUrl, Map<ResourceName, Set<string>>>();
  for (const [index, any] of response.resources.entries()) {
    const read = readResource(any, index, response, maxConstraintDepth);
    if (!read.ok) {
      problems.push({ index, message: read.error });
      continue;
    }
    const { type, put } = read.value;
    const names = getOrMake(seen, type, () => new Map<ResourceName, Set<string>>());
    const variants = getOrMake(names, put.name, () => new Set<string>());
    if (variants.has(put.constraints.key)) {
      const message = `${describe(type, put)} is in this file twice with the same constraints`;
      problems.push({ index, message });
    }
    variants.add(put.constraints.key);
    resources.push(read.value);
  }
  return { resources, problems };
}

interface ReadResources {
  readonly resources: readonly FileResource[];
  /** Empty: all of the file is good. */
  readonly problems: readonly FileResourceProblem[];
}

/** For messages: type, name and whether it is a variant. */
export function describe(type: TypeUrl, put: Put): string {
  const variant = put.constraints.key === UNCONSTRAINED.key ? '' : ` with constraints ${put.constraints.key}`;
  return `${messageName(type)} ${JSON.stringify(put.name)}${variant}`;
}

function readResource(
  any: Any,
  index: number,
  response: DiscoveryResponse,
  maxConstraintDepth: number,
): Result<FileResource> {
  const opened = open(any);
  if (!opened.ok) return opened;
  const { wrapper, body } = opened.value;
  const type = typeUrl(body.typeUrl);
  if (response.typeUrl !== '' && response.typeUrl !== type) {
    return fail(`it is a ${messageName(type)}, but the file's type_url is ${response.typeUrl}`);
  }
  const constraints = readConstraints(wrapper, maxConstraintDepth);
  if (!constraints.ok) return constraints;
  const given = readName(wrapper, body);
  if (!given.ok) return given;
  const name = canonicalName(given.value, type);
  if (!name.ok) return name;
  const aliases = canonicalNames(wrapper?.aliases ?? [], type);
  if (!aliases.ok) return fail(`alias of ${JSON.stringify(given.value)}: ${aliases.error}`);
  const unversioned: Put = {
    name: name.value,
    constraints: constraints.value,
    version: wrapper?.version || response.versionInfo,
    any: toBinary(AnySchema, body),
    aliases: aliases.value,
    ...handling(wrapper),
  };
  const digest = digestOf(unversioned);
  const put = unversioned.version === '' ? { ...unversioned, version: digest } : unversioned;
  return ok({ type, put, digest, index });
}

/** How it is to be kept and passed on. */
function handling(wrapper: Resource | undefined): Pick<Put, 'ttlMilliseconds' | 'doNotCache' | 'metadata'> {
  const { ttl, cacheControl, metadata } = wrapper ?? {};
  return {
    ttlMilliseconds: ttl && durationMs(ttl),
    doNotCache: cacheControl?.doNotCache ?? false,
    metadata: metadata && toBinary(MetadataSchema, metadata),
  };
}

interface Opened {
  readonly wrapper: Resource | undefined;
  readonly body: Any;
}

function open(any: Any): Result<Opened> {
  if (any.typeUrl === '') return fail('it has no type ("@type")');
  if (messageName(any.typeUrl) !== ResourceSchema.typeName) return ok({ wrapper: undefined, body: any });
  try {
    const wrapper = fromBinary(ResourceSchema, any.value);
    const body = wrapper.resource;
    if (body === undefined || body.typeUrl === '') return fail('the Resource holds no `resource`');
    if (messageName(body.typeUrl) === ResourceSchema.typeName)
      return fail('it is a Resource inside a Resource');
    return ok({ wrapper, body });
  } catch (error) {
    return fail(`not an encoded Resource: ${errorMessage(error)}`);
  }
}

function readConstraints(wrapper: Resource | undefined, maxDepth: number): Result<Constraints> {
  const given = wrapper?.resourceName?.dynamicParameterConstraints;
  if (given === undefined) return ok(UNCONSTRAINED);
  const parsed = parseConstraints(toBinary(DynamicParameterConstraintsSchema, given), maxDepth);
  return parsed.ok ? parsed : fail(`its dynamic_parameter_constraints: ${parsed.error}`);
}

function readName(wrapper: Resource | undefined, body: Any): Result<string> {
  const plain = wrapper?.name ?? '';
  const structured = wrapper?.resourceName?.name ?? '';
  if (plain !== '' && wrapper?.resourceName !== undefined) {
    return fail('it has both `name` and `resource_name`; only one of them may be set (protocol §1)');
  }
  if (plain !== '' || structured !== '') return ok(plain || structured);
  const own = nameInBody(body);
  if (!own.ok || own.value !== '') return own;
  return fail(
    `this ${messageName(body.typeUrl)} has no name; give it one, or wrap it in a Resource with a name`,
  );
}

/** In every named xDS resource the name is field 1, a string (`cluster_name` in endpoints). */
function nameInBody(body: Any): Result<string> {
  const desc = envoyRegistry().getMessage(messageName(body.typeUrl));
  const field = desc?.fields.find(({ number }) => number === 1);
  if (field?.fieldKind !== 'scalar' || field.scalar !== ScalarType.STRING) {
    return fail(
      `where a ${messageName(body.typeUrl)} has its name is not known; wrap it in a Resource with a name`,
    );
  }
  try {
    let name = '';
    for (const reader = new MessageReader(body.value); reader.next(); ) {
      if (reader.tag === bytesTag(1)) name = reader.text();
    }
    return ok(name);
  } catch (error) {
    return fail(`not an encoded ${messageName(body.typeUrl)}: ${errorMessage(error)}`);
  }
}

function digestOf(put: Put): string {
  const hash = createHash('sha256');
  hash.update(
    JSON.stringify([
      put.name,
      put.constraints.key,
      put.version,
      put.aliases,
      put.ttlMilliseconds ?? -1,
      put.doNotCache,
    ]),
  );
  hash.update(put.any ?? '').update('\0');
  hash.update(put.metadata ?? '');
  return hash.digest('hex').slice(0, 16);
}

/** The value of the key, made and kept if there is none. */
export function getOrMake<K, V>(map: Map<K, V>, key: K, make: () => V): V {
  const known = map.get(key);
  if (known !== undefined) return known;
  const made = make();
  map.set(key, made);
  return made;
}
