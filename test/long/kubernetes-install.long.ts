import { execFile } from 'node:child_process';
import { globSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { promisify } from 'node:util';
import { expect } from 'chai';
import { parseAllDocuments } from 'yaml';
import { z } from 'zod';
import { apiserverBinaries, KubeApiserver } from '../e2e/support/kube-apiserver.ts';
import {
  currentHelm,
  customResourceDefinitions,
  kubernetesCommands,
} from '../e2e/support/kubernetes-tools.ts';
import { root, temporaryDirectory } from '../e2e/support/paths.ts';
import { outcome } from '../e2e/support/process.ts';
import { need } from '../e2e/support/skip.ts';

const execute = promisify(execFile);
const chart = join(root, 'deploy/chart');
const kind = z.looseObject({ kind: z.string() });
const workload = z.object({
  spec: z.object({
    template: z.object({
      metadata: z.looseObject({}),
      spec: z.looseObject({ volumes: z.array(z.looseObject({})).default([]) }),
    }),
    volumeClaimTemplates: z.array(z.object({ metadata: z.object({ name: z.string() }) })).default([]),
  }),
});

/** The Pod that the controller of the manifest's workload would make. */
function podOf(manifest: string): object {
  const found = parseAllDocuments(manifest)
    .map((document) => kind.parse(document.toJSON()))
    .find((object) => object.kind === 'Deployment' || object.kind === 'StatefulSet');
  const { template, volumeClaimTemplates } = workload.parse(found).spec;
  const claims = volumeClaimTemplates.map(({ metadata: { name } }) => ({
    name,
    persistentVolumeClaim: { claimName: `${name}-one` },
  }));
  const spec = { ...template.spec, volumes: [...template.spec.volumes, ...claims] };
  return { apiVersion: 'v1', kind: 'Pod', metadata: { ...template.metadata, name: 'one' }, spec };
}

describe('the chart in a real API server of Kubernetes', function () {
  this.timeout(3_600_000); // the server is built once, from its sources
  let command: string;
  let kubectl: string;
  let server: KubeApiserver;

  before(async function () {
    ({ helm: command, kubectl } = await need(this, kubernetesCommands(currentHelm)));
    server = await KubeApiserver.start(await need(this, apiserverBinaries()), kubectl);
    for (const file of await customResourceDefinitions())
      await server.kubectl('apply', '--server-side', '-f', file);
  });

  after(async () => {
    await server?.[Symbol.asyncDispose]();
  });

  const helm = async (...args: readonly string[]): Promise<string> => {
    const { stdout, stderr } = await execute(command, ['--kubeconfig', server.kubeconfig, ...args]);
    return stdout + stderr;
  };

  /** Where Pods must fit the strictest of Kubernetes' own standards for their security. */
  async function makeNamespace(name: string): Promise<void> {
    await server.kubectl('create', 'namespace', name);
    const levels = ['enforce', 'warn'].map((mode) => `pod-security.kubernetes.io/${mode}=restricted`);
    await server.kubectl('label', 'namespace', name, ...levels);
  }

  for (const file of globSync('ci/*-values.yaml', { cwd: chart }).toSorted()) {
    const name = basename(file, '-values.yaml');
    it(`${name}: each object and its Pod are accepted, an upgrade changes nothing, and nothing is left`, async () => {
      using files = temporaryDirectory();
      await makeNamespace(`chart-${name}`);
      const here = ['-n', `chart-${name}`];
      const values = [...here, '-f', join(chart, file)];
      expect(await helm('install', 'edge', chart, ...values)).to.not.match(/warning/i);

      const manifest = await helm('get', 'manifest', 'edge', ...here);
      const path = join(files.path, 'manifest.yaml');
      writeFileSync(path, manifest);
      const listed = await server.kubectl('get', ...here, '-f', path, '-o', 'name');
      expect(listed.split('\n')).to.have.length(parseAllDocuments(manifest).length);

      // Helm does not ask for it: the server drops unknown fields without a word.
      const strict = ['--dry-run=server', '--validate=strict'];
      const asApplied = ['--server-side', '--force-conflicts', ...strict, '-f', path];
      expect(await server.kubectl('apply', ...here, ...asApplied)).to.not.match(/warning/i);
      const pod = join(files.path, 'pod.json');
      writeFileSync(pod, JSON.stringify(podOf(manifest)));
      await server.kubectl('create', ...here, ...strict, '-f', pod);

      const generations = ['get', ...here, '-f', path, '-o', 'jsonpath={.items[*].metadata.generation}'];
      const before = await server.kubectl(...generations);
      await helm('upgrade', 'edge', chart, ...values);
      expect(await server.kubectl(...generations)).to.equal(before);

      await helm('uninstall', 'edge', ...here);
      const left = await server.kubectl('get', ...here, '--ignore-not-found', '-f', path, '-o', 'name');
      expect(left).to.equal('');
    });
  }

  const overlays = [
    ['kustomize/base', 'base'],
    ['kustomize/persistent', 'persistent'],
    ['recipes/configmap', 'distributary'],
  ] as const;
  for (const [overlay, namespace] of overlays) {
    it(`deploy/${overlay}: kubectl apply -k is accepted`, async () => {
      await makeNamespace(namespace);
      const strict = ['--server-side', '--validate=strict', '-k', join(root, 'deploy', overlay)];
      expect(await server.kubectl('apply', '-n', namespace, ...strict)).to.not.match(/warning/i);
    });
  }

  const container = { name: 'root', image: 'root', securityContext: { runAsUser: 0 } };
  const refused: readonly (readonly [string, object, string])[] = [
    ['a Pod that runs as root', { kind: 'Pod', spec: { containers: [container] } }, 'restricted'],
    ['an unknown field', { kind: 'Service', spec: { prots: [] } }, 'prots'],
  ];
  for (const [index, [what, object, why]] of refused.entries()) {
    it(`the server is a real one: it refuses ${what}`, async () => {
      using files = temporaryDirectory();
      const namespace = `refused-${index}`;
      await makeNamespace(namespace);
      const path = join(files.path, 'wrong.json');
      writeFileSync(path, JSON.stringify({ apiVersion: 'v1', metadata: { name: 'wrong' }, ...object }));
      const create = ['create', '-n', namespace, '--validate=strict', '-f', path];
      const args = [`--kubeconfig=${server.kubeconfig}`, ...create];
      const { code, output } = await outcome({ command: kubectl, args });
      expect(output).to.include(why);
      expect(code).to.equal(1);
    });
  }
});
