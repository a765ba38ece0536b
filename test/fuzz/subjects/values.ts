import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { create, type MessageInitShape, toBinary } from '@bufbuild/protobuf';
import { parseConfig } from '../../../src/config/load.ts';
import { NodeSchema } from '../../../src/gen/envoy/config/core/v3/base_pb.ts';
import { DynamicParameterConstraintsSchema } from '../../../src/gen/envoy/service/discovery/v3/discovery_pb.ts';
import { explainMatch, formatConstraints, parseConstraints } from '../../../src/model/constraints.ts';
import { wantedMetadata } from '../../../src/model/node-path.ts';
import { internParameters } from '../../../src/model/parameters.ts';
import { readClientNode } from '../../../src/security/client-node.ts';
import { parseFile } from '../../../src/upstream/filesystem/resource-file.ts';
import type { Subject } from '../subject.ts';

const root = join(import.meta.dirname, '../../..');
const read = (...path: readonly string[]): Buffer => readFileSync(join(root, ...path));

/** A function of bytes that keeps nothing. */
const plain = (
  name: string,
  corpus: readonly Buffer[],
  take: (bytes: Buffer) => void,
  more: Partial<Subject> = {},
): Subject => ({ name, corpus, open: () => ({ take }), ...more });

/** What operators write. */
const written = { longest: 16_384 };

const nodes = [
  {
    id: 'envoy-1',
    cluster: 'fleet',
    metadata: { env: 'prod', deep: { er: { still: ['x', 1, null, true] } } },
  },
  {
    id: '\u00fc',
    locality: { region: 'r', zone: 'z', subZone: 's' },
    userAgentName: 'envoy',
    clientFeatures: ['xds.config.resource-in-sotw'],
    userAgentVersionType: {
      case: 'userAgentBuildVersion' as const,
      value: { version: { majorNumber: 1, minorNumber: 40, patch: 3 } },
    },
  },
].map((node) => Buffer.from(toBinary(NodeSchema, create(NodeSchema, node))));

export const metadata = plain('nodes', nodes, (bytes) => {
  readClientNode(bytes);
  readClientNode(bytes, wantedMetadata(['node.metadata.env']));
});

type ConstraintsInit = MessageInitShape<typeof DynamicParameterConstraintsSchema>;

const equal = (key: string, value: string): ConstraintsInit => ({
  type: { case: 'constraint', value: { key, constraintType: { case: 'value', value } } },
});
const not = (of: ConstraintsInit): ConstraintsInit => ({ type: { case: 'notConstraints', value: of } });
const list = (
  kind: 'andConstraints' | 'orConstraints',
  ...constraints: ConstraintsInit[]
): ConstraintsInit => ({
  type: { case: kind, value: { constraints } },
});
const exists: ConstraintsInit = {
  type: { case: 'constraint', value: { key: 'version', constraintType: { case: 'exists', value: {} } } },
};
const expressions = [
  equal('env', 'prod'),
  list('andConstraints', equal('env', 'prod'), not(exists)),
  list('orConstraints', not(list('andConstraints')), list('orConstraints'), equal('__proto__', 'x')),
].map((one) =>
  Buffer.from(toBinary(DynamicParameterConstraintsSchema, create(DynamicParameterConstraintsSchema, one))),
);

const parameters = internParameters([
  ['env', 'prod'],
  ['version', 'v1'],
]);

export const constraints = plain('constraints', expressions, (bytes) => {
  const parsed = parseConstraints(bytes, 64);
  if (!parsed.ok) return;
  const { value } = parsed;
  const matches = value.matches(parameters);
  if (explainMatch(value.expression, parameters).matches !== matches) {
    throw new Error('explained otherwise than matched');
  }
  formatConstraints(value.expression);
  const again = parseConstraints(value.bytes, 64);
  if (!again.ok || again.value.key !== value.key) throw new Error('what is forwarded says something else');
});

export const configuration = plain(
  'configuration',
  [read('test/config/sample.yaml'), read('deploy/demo/relay.yaml')],
  (bytes) => {
    parseConfig(bytes.toString(), 'relay.yaml', { HOME: '/' });
  },
  written,
);

const demo = readdirSync(join(root, 'deploy/demo/resources')).map((file) =>
  read('deploy/demo/resources', file),
);

export const files = plain(
  'resource files',
  demo,
  (bytes) => {
    for (const file of ['a.yaml', 'a.json', 'a.pb', 'a.pb_text']) parseFile(file, bytes);
  },
  written,
);
