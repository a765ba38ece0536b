import { existsSync, globSync, mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { parseAllDocuments } from 'yaml';
import { z } from 'zod';
import { fail, ok, type Result } from '../../../src/model/result.ts';
import { cached } from './paths.ts';
import { run, type Spawn } from './process.ts';

const kubeconformVersion = 'v0.8.0';
/** Helm that was built with `go install` does not know its version, and takes itself for an old cluster. */
export const kubernetesVersion = '1.37.0';

/** What the chart can make beside the objects of Kubernetes itself: modules with their definitions. */
const definitions = [
  ['github.com/cert-manager/cert-manager@v1.21.2', 'deploy/crds/cert-manager.io_certificates.yaml'],
  [
    'github.com/prometheus-operator/prometheus-operator@v0.85.0',
    'example/prometheus-operator-crd/monitoring.coreos.com_{servicemonitors,prometheusrules}.yaml',
  ],
] as const;

/** Path of Helm, built once from its Go module; the error says why there is none. */
export const helmBinary = (): Promise<Result<string>> => goTool('helm.sh/helm/v3/cmd/helm', 'v3.22.0');

/** kubeconform with the schemas of all objects that the chart can make. Its last argument is a file of objects. */
export async function kubeconform(): Promise<Result<Spawn>> {
  const binary = await goTool('github.com/yannh/kubeconform/cmd/kubeconform', kubeconformVersion);
  if (!binary.ok) return binary;
  const schemas = await schemaFiles();
  if (!schemas.ok) return schemas;
  const location = join(schemas.value, '{{.ResourceKind}}{{.KindSuffix}}.json');
  return ok({ command: binary.value, args: ['-strict', '-summary', '-schema-location', location] });
}

async function goTool(module: string, version: string): Promise<Result<string>> {
  const name = basename(module);
  const directory = join(cached(name), version);
  const binary = join(directory, name);
  if (existsSync(binary)) return ok(binary);
  try {
    await run({ command: 'go', args: ['install', `${module}@${version}`], env: { GOBIN: directory } });
    return ok(binary);
  } catch (error) {
    return fail(`${name} ${version} needs Go and its modules: ${String(error)}`);
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
