import { type DescField, type DescMessage, ScalarType } from '@bufbuild/protobuf';
import { envoyRegistry } from '../src/wire/registry.ts';

/** Only these hold resources, or come as an Any in one. */
const isResourcePart = (name: string): boolean =>
  /^envoy\.(config|extensions)\..*\bv\d+\b/.test(name) && !/\.(v2|v2alpha\d?|bootstrap\.v3)\./.test(name);

/** Fields with the name of a cluster, where it is not said by the name of the message. */
const clusterField = /^(default_|collector_|tcp_)?clusters?(_names?)?$/;

/** The type that this field has names of, as a short name; undefined: it has none. */
function referenced(message: DescMessage, field: DescField): string | undefined {
  const isText = field.scalar === ScalarType.STRING;
  if (!isText || field.fieldKind === 'map') return undefined;
  const { name } = field;
  if (message.typeName === 'envoy.config.cluster.v3.Cluster') return name === 'name' ? 'eds' : undefined;
  if (message.name === 'EdsClusterConfig') return name === 'service_name' ? 'eds' : undefined;
  if (name === 'leds_collection_name') return 'leds';
  if (message.name === 'SdsSecretConfig') return name === 'name' ? 'sds' : undefined;
  if (message.name === 'ClusterWeight' && name === 'name') return 'cds';
  if (name === 'name' && message.fields.some((one) => one.name === 'config_discovery')) return 'ecds';
  if (name === 'route_config_name' || name === 'route_configuration_name') return 'rds';
  if (message.name === 'Node' || message.name === 'ClusterLoadAssignment') return undefined;
  return clusterField.test(name) ? 'cds' : undefined;
}

type Parts = Map<number, string>;

/** What a field leads to, without the mark of a map. */
const target = (to: string): string => to.replace('*', '');

/** Each message that may refer to resources: its fields that do, with the type or the message in them. */
function tables(): ReadonlyMap<string, Parts> {
  const all = new Map<string, Parts>();
  for (const desc of envoyRegistry()) {
    if (desc.kind !== 'message') continue;
    const isPart = isResourcePart(desc.typeName) || desc.typeName.startsWith('xds.');
    if (isPart) all.set(desc.typeName, partsOf(desc));
  }
  const found = new Set<string>();
  const leads = (to: string): boolean => !to.includes('.') || found.has(target(to));
  for (let before = -1; before !== found.size; ) {
    before = found.size;
    for (const [name, parts] of all) if (parts.values().some(leads)) found.add(name);
  }
  return new Map(
    [...all]
      .filter(([name]) => found.has(name))
      .map(([name, parts]) => [name, new Map([...parts].filter(([, to]) => leads(to)))]),
  );
}

function partsOf(desc: DescMessage): Parts {
  const parts: Parts = new Map();
  for (const field of desc.fields) {
    const to = referenced(desc, field) ?? messageOf(field);
    if (to !== undefined) parts.set(field.number, field.fieldKind === 'map' ? `*${to}` : to);
  }
  return parts;
}

function messageOf({ message }: DescField): string | undefined {
  return message?.typeName === 'google.protobuf.Any' ? 'any' : message?.typeName;
}

/** The source of src/gen/reference-fields.ts. */
export function referenceFields(): string {
  const lines = [...tables()]
    .toSorted(([a], [b]) => (a < b ? -1 : 1))
    .map(([name, parts]) => `${name} ${[...parts].map(([number, to]) => `${number}:${to}`).join(' ')}`);
  return `// Written by scripts/generate.ts from the Envoy API.
/* eslint-disable */

/** Fields with names of other resources: by message, NUMBER:TYPE, NUMBER:any or NUMBER:MESSAGE. */
export const referenceFields: string = \`
${lines.join('\n')}
\`;
`;
}
