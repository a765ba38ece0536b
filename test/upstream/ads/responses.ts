import { create, fromBinary, type MessageInitShape, toBinary } from '@bufbuild/protobuf';
import type { AnySchema } from '@bufbuild/protobuf/wkt';
import {
  DeltaDiscoveryResponseSchema,
  DiscoveryResponseSchema,
  type DynamicParameterConstraintsSchema,
  ResourceSchema,
} from '../../../src/gen/envoy/service/discovery/v3/discovery_pb.ts';
import { StatusSchema } from '../../../src/gen/google/rpc/status_pb.ts';
import type { TypeUrl } from '../../../src/model/brand.ts';
import { typeByName } from '../../../src/model/types.ts';
import { UNKNOWN_STATUS } from '../../../src/wire/between-relays.ts';
import { Code } from '../../../src/wire/grpc-status.ts';

type ConstraintsInit = MessageInitShape<typeof DynamicParameterConstraintsSchema>;
type AnyInit = MessageInitShape<typeof AnySchema>;
type ResourceInit = MessageInitShape<typeof ResourceSchema>;

const RESOURCE_URL = 'type.googleapis.com/envoy.service.discovery.v3.Resource';

export function typeOf(name: string): TypeUrl {
  const url = typeByName(name);
  if (url === undefined) throw new Error(`there is no type ${name}`);
  return url;
}

/** A message with `name` in field 1 and `content` in field 3. */
function body(name: string, content: string): Uint8Array {
  const part = (tag: number, text: string): Buffer => {
    const bytes = Buffer.from(text);
    if (bytes.length > 127) throw new Error('too long for this test');
    return Buffer.concat([Buffer.of(tag, bytes.length), bytes]);
  };
  return Buffer.concat([part(0x0a, name), part(0x1a, content)]);
}

/** The content that `body` put in, of an encoded Any. */
export function contentOf(any: Uint8Array | undefined): string {
  if (any === undefined) return '';
  const bytes = Buffer.from(any);
  return bytes.subarray(bytes.lastIndexOf(0x1a) + 2).toString();
}

/**
 * One item of a response, in the tests' notation:
 * `name:content`, `name{env=prod&!version}:content`, and after it `@version`, `~ttl milliseconds`, `#other type`,
 * `|alias`; no content: no body. `-name` and `-name{…}` are removals, `-name{}` a removal with no constraints by
 * removed_resource_names; `!name:NOT_FOUND` a resource error, also with `{…}`; `?name` one that says that the name is unknown.
 */
export interface Item {
  readonly kind: 'resource' | 'removal' | 'error';
  readonly unknown: boolean;
  readonly name: string;
  readonly constraints: ConstraintsInit | undefined;
  readonly content: string | undefined;
  readonly version: string;
  readonly ttl: number | undefined;
  readonly type: string | undefined;
  readonly aliases: readonly string[];
}

export function parseItem(text: string): Item {
  const match = /^([-!?]?)(xdstp:[^{}:@~#|]+|[^{}:@~#|]*)(?:\{([^}]*)\})?((?::[^@~#|]*)?)(.*)$/.exec(text);
  if (match === null) throw new Error(`cannot read the item ${text}`);
  const [, sign, name = '', constraints, content = '', rest = ''] = match;
  const option = (mark: string): string | undefined => new RegExp(`\\${mark}([^@~#|]*)`).exec(rest)?.[1];
  const ttl = option('~');
  return {
    kind: sign === '-' ? 'removal' : sign === '!' || sign === '?' ? 'error' : 'resource',
    unknown: sign === '?',
    name,
    constraints: constraints === undefined ? undefined : parseConstraints(constraints),
    content: content === '' ? undefined : content.slice(1),
    version: option('@') ?? '',
    ttl: ttl === undefined ? undefined : Number(ttl),
    type: option('#'),
    aliases: [...rest.matchAll(/\|([^@~#|]*)/g)].map(([, alias = '']) => alias),
  };
}

/** `a=b&!c`: AND of values and absences; `a=b`: one of them; `?`: one that says nothing; empty: none. */
function parseConstraints(text: string): ConstraintsInit {
  const parts = text.split('&').map((part): ConstraintsInit => {
    if (part === '') return {};
    if (part === '?') return { type: { case: 'constraint', value: { key: 'k' } } };
    if (part.startsWith('!')) {
      const exists: ConstraintsInit = {
        type: {
          case: 'constraint',
          value: { key: part.slice(1), constraintType: { case: 'exists', value: {} } },
        },
      };
      return { type: { case: 'notConstraints', value: exists } };
    }
    const [key = '', value = ''] = part.split('=');
    return { type: { case: 'constraint', value: { key, constraintType: { case: 'value', value } } } };
  });
  return parts.length === 1
    ? (parts[0] ?? {})
    : { type: { case: 'andConstraints', value: { constraints: parts } } };
}

function anyOf(type: TypeUrl, item: Item): AnyInit | undefined {
  if (item.content === undefined) return undefined;
  const typeUrl = item.type === undefined ? type : typeOf(item.type);
  return { typeUrl, value: body(item.name, item.content) };
}

function resourceOf(type: TypeUrl, item: Item): ResourceInit {
  const resource = anyOf(type, item);
  return {
    version: item.version,
    ...(resource === undefined ? {} : { resource }),
    ...(item.constraints === undefined ? { name: item.name } : { resourceName: nameOf(item) }),
    ...(item.ttl === undefined
      ? {}
      : { ttl: { seconds: BigInt(Math.floor(item.ttl / 1000)), nanos: (item.ttl % 1000) * 1e6 } }),
    aliases: [...item.aliases],
  };
}

const nameOf = ({ name, constraints }: Item) =>
  constraints === undefined ? { name } : { name, dynamicParameterConstraints: constraints };

function errorsOf(
  items: readonly Item[],
): MessageInitShape<typeof DiscoveryResponseSchema>['resourceErrors'] {
  return items
    .filter((item) => item.kind === 'error')
    .map((item) => {
      if (item.unknown)
        return { resourceName: nameOf(item), errorDetail: fromBinary(StatusSchema, UNKNOWN_STATUS) };
      const code = Object.entries(Code).find(([name]) => name === item.content)?.[1] ?? Code.UNKNOWN;
      return { resourceName: nameOf(item), errorDetail: { code, message: 'for a test' } };
    });
}

export function sotwResponse(type: TypeUrl, version: string, nonce: string, items: readonly Item[]): Buffer {
  const resources = items
    .filter((item) => item.kind === 'resource')
    .map((item): AnyInit => {
      const plain = anyOf(type, item);
      if (item.constraints === undefined && item.ttl === undefined && plain !== undefined) return plain;
      const wrapped = create(ResourceSchema, resourceOf(type, item));
      return { typeUrl: RESOURCE_URL, value: toBinary(ResourceSchema, wrapped) };
    });
  const response = create(DiscoveryResponseSchema, {
    versionInfo: version,
    typeUrl: type,
    nonce,
    resources,
    resourceErrors: errorsOf(items) ?? [],
  });
  return Buffer.from(toBinary(DiscoveryResponseSchema, response));
}

export function deltaResponse(type: TypeUrl, version: string, nonce: string, items: readonly Item[]): Buffer {
  const removals = items.filter((item) => item.kind === 'removal');
  const response = create(DeltaDiscoveryResponseSchema, {
    systemVersionInfo: version,
    typeUrl: type,
    nonce,
    resources: items.filter((item) => item.kind === 'resource').map((item) => resourceOf(type, item)),
    removedResources: removals.filter((item) => item.constraints === undefined).map((item) => item.name),
    removedResourceNames: removals.filter((item) => item.constraints !== undefined).map(nameOf),
    resourceErrors: errorsOf(items) ?? [],
  });
  return Buffer.from(toBinary(DeltaDiscoveryResponseSchema, response));
}
