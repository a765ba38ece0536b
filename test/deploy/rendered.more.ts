import { execFile } from 'node:child_process';
import { globSync, readFileSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { promisify } from 'node:util';
import { expect } from 'chai';
import { parseAllDocuments } from 'yaml';
import { z } from 'zod';
import {
  currentHelm,
  kubeconform,
  kubernetesCommands,
  kubernetesVersion,
  olderHelm,
} from '../e2e/support/kubernetes-tools.ts';
import { temporaryDirectory } from '../e2e/support/paths.ts';
import { run, type Spawn } from '../e2e/support/process.ts';
import { need } from '../e2e/support/skip.ts';

const root = join(import.meta.dirname, '../..');
const chart = join(root, 'deploy/chart');
const snapshots = join(root, 'test/deploy/rendered');
const manifest = z.looseObject({ kind: z.string() });
const service = z.object({
  kind: z.literal('Service'),
  spec: z.object({ type: z.string().optional(), ports: z.array(z.object({ name: z.string() })) }),
});
const kindsOf = (text: string): readonly string[] =>
  parseAllDocuments(text).map((one) => manifest.parse(one.toJSON()).kind);

/** Of a command that succeeds, its output. */
async function outputOf(command: string, args: readonly string[]): Promise<string> {
  const { stdout } = await promisify(execFile)(command, args);
  return stdout;
}

/** What Helm renders. Between objects, Helm 4 has an empty line that Helm 3 does not have. */
async function templateBy(helm: string, release: string, ...more: readonly string[]): Promise<string> {
  const text = await outputOf(helm, ['template', release, chart, ...more]);
  return text.replaceAll(/\n+(?=---\n|$)/g, '\n');
}

/** SNAPSHOTS=write takes what is rendered now. */
function expectSnapshot(path: string, text: string): void {
  if (process.env['SNAPSHOTS'] === 'write') writeFileSync(path, text);
  expect(text).to.equal(readFileSync(path, 'utf8'));
}

describe('the Helm chart and what it renders', function () {
  this.timeout(900_000);
  let helm: string;
  let older: string;
  let kubectl: string;
  let validate: Spawn;

  before(async function () {
    ({ helm, kubectl } = await need(this, kubernetesCommands(currentHelm)));
    older = (await need(this, kubernetesCommands(olderHelm))).helm;
    validate = await need(this, kubeconform());
  });

  const template = (values: string, ...more: readonly string[]): Promise<string> =>
    templateBy(helm, 'edge', '-n', 'xds', '-f', values, ...more);

  /** All in one process: it reads the schemas, which takes longer than the rest. */
  async function expectValid(...texts: readonly string[]): Promise<void> {
    using directory = temporaryDirectory();
    for (const [index, text] of texts.entries()) writeFileSync(join(directory.path, `${index}.yaml`), text);
    const output = await run({ ...validate, args: [...validate.args, directory.path] });
    const objects = texts.flatMap(kindsOf).length;
    expect(output).to.include(`Valid: ${objects}, Invalid: 0, Errors: 0, Skipped: 0`);
  }

  for (const file of globSync('ci/*-values.yaml', { cwd: chart }).toSorted()) {
    it(`${basename(file)}: lint, and the snapshot`, async () => {
      await run({ command: helm, args: ['lint', '--strict', chart, '-f', join(chart, file)] });
      const text = await template(join(chart, file));
      expectSnapshot(join(snapshots, basename(file).replace('-values', '')), text);
    });

    it(`${basename(file)}: Helm ${olderHelm} renders the same`, async () => {
      const text = await template(join(chart, file));
      expect(await templateBy(older, 'edge', '-n', 'xds', '-f', join(chart, file))).to.equal(text);
    });
  }

  it(`all snapshots fit the schemas of Kubernetes ${kubernetesVersion} and of custom resources`, async () => {
    const files = globSync('*.yaml', { cwd: snapshots }).map((file) => join(snapshots, file));
    await expectValid(...files.map((file) => readFileSync(file, 'utf8')));
  });

  for (const wrong of [
    'replicas=-1',
    'replicaCount=3',
    'image.pullPolicy=Sometimes',
    'ports.xds=70000',
    'extraPodSpec.volumes=x',
  ]) {
    it(`refuses --set ${wrong}`, async () => {
      const failed = template(join(chart, 'ci/default-values.yaml'), '--set', wrong);
      expect(await failed.then(() => '', String)).to.include("values don't meet the specifications");
    });
  }

  for (const [wrong, why] of [
    ['ports.xds=18001', 'config.xds.address: 0.0.0.0:18000 and ports.xds: 18001 must be the same port'],
    ['config.metrics.address=0.0.0.0:9090', 'ports.metrics: 19090 must be the same port'],
    [
      'config.drain_delay=1m,terminationGracePeriodSeconds=40',
      'terminationGracePeriodSeconds: 40 must be longer than config.drain_delay (1m)',
    ],
    [
      'service.ipFamilies={IPv6}',
      'config.metrics.address: 0.0.0.0:19090 is for IPv4 only, and the Service has IPv6: write "[::]:19090"',
    ],
    [
      'service.ipFamilyPolicy=RequireDualStack,config.metrics.address=[::]:19090',
      'config.xds.address: 0.0.0.0:18000 is for IPv4 only, and the Service has IPv6: write "[::]:18000"',
    ],
    ['networkPolicy.metricsFrom=null', 'networkPolicy.metricsFrom: is empty, so Prometheus cannot scrape'],
    [
      'config.cache.max_bytes=1073741824',
      'is too small for config.workers + 1 = 1 processes with config.cache.max_bytes: 1073741824 each; set it to 4096Mi',
    ],
    [
      'config.workers=7',
      'is too small for config.workers + 1 = 8 processes with config.cache.max_bytes: 33554432 each; set it to 1920Mi',
    ],
    [
      'config.limits.max_held_bytes=2147483648',
      'config.limits.max_held_bytes: 2147483648 does not fit into resources.limits.memory: 1Gi of 1 processes, beside config.cache.max_bytes: 268435456; set it to 513802240 or less',
    ],
    [
      'config.limits.max_held_bytes_per_peer=2147483648',
      'config.limits.max_held_bytes: 2147483648 does not fit into resources.limits.memory: 1Gi',
    ],
    ['resources.limits.memory=lots', 'resources.limits.memory: lots is not a number'],
    ['tls.certManager.enabled=true', 'tls.certManager.issuerRef.name: the name of an Issuer'],
    [
      'service.type=NodePort,peers.enabled=false,monitoring.serviceMonitor.enabled=true',
      'monitoring.serviceMonitor.enabled: needs peers.enabled where service.type is NodePort',
    ],
    [
      'persistence.enabled=true,config.cache.persistence.path=/data',
      'config.cache.persistence.path: /data is not on the volume',
    ],
  ] as const) {
    it(`refuses --set ${wrong}, which no relay could serve with`, async () => {
      const failed = template(join(chart, 'ci/default-values.yaml'), '--set', wrong);
      expect(await failed.then(() => '', String)).to.include(why);
    });
  }

  it('gives a replica 15 seconds more than its drain takes', async () => {
    const drain = 'config.drain_delay=1500ms,config.drain_timeout=0.1h';
    const text = await template(join(chart, 'ci/default-values.yaml'), '--set', drain);
    expect(text).to.include('terminationGracePeriodSeconds: 377\n');
  });

  it('keeps the cache on the volume of persistence.enabled', async () => {
    const text = await template(join(chart, 'ci/default-values.yaml'), '--set', 'persistence.enabled=true');
    expect(text).to.match(/persistence:\n\s+path: \/var\/lib\/distributary/);
  });

  it('shows metrics to nobody outside of the cluster', async () => {
    const services = parseAllDocuments(await template(join(chart, 'ci/rest-values.yaml')))
      .map((document) => service.safeParse(document.toJSON()).data)
      .filter((one) => one !== undefined);
    const ports = services.map(({ spec }) => [spec.type, spec.ports.map(({ name }) => name)]);
    expect(ports).to.deep.equal([
      [undefined, ['grpc-xds', 'http-metrics']],
      ['NodePort', ['grpc-xds', 'http-rest']],
    ]);
  });

  for (const [what, wrong] of [
    ['an unknown field', 'replicaz: 2'],
    ['a key that is there twice', 'replicas: 2\n  replicas: 2'],
    ['a field of another type', 'replicas: two'],
  ] as const) {
    it(`the schemas refuse ${what}`, async () => {
      const text = await template(join(chart, 'ci/default-values.yaml'));
      const refused = expectValid(text.replace(/replicas: 2/, wrong));
      expect(await refused.then(() => '', String)).to.include('replica');
    });
  }

  it('the schemas refuse an unknown field of a custom resource', async () => {
    const text = await template(join(chart, 'ci/monitored-values.yaml'));
    const refused = expectValid(text.replace('interval: 15s', 'intervall: 15s'));
    expect(await refused.then(() => '', String)).to.include('intervall');
  });

  it('gives the replicas a certificate for the name by which they ask one another', async () => {
    const text = await template(join(chart, 'ci/cert-manager-values.yaml'));
    expect(text).to.match(/dnsNames:\n(?: +- .*\n)* +- edge-distributary-peers\.xds\.svc\n/);
  });

  it('lets the replicas ask one another, whoever else may connect', async () => {
    const text = await template(join(chart, 'ci/locked-down-values.yaml'));
    expect(text).to.match(
      /from:\n[^]*- podSelector:\n\s+matchLabels:\s+app.kubernetes.io\/name: distributary/,
    );
  });

  for (const [limit, bytes] of [
    ['1Gi', 268_435_456],
    ['4Gi', 1_073_741_824],
    ['2000M', 500_000_000],
    ['1073741824', 268_435_456],
  ] as const) {
    it(`gives a quarter of a memory limit of ${limit} to the cache, and an eighth to single peers`, async () => {
      const text = await template(
        join(chart, 'ci/default-values.yaml'),
        '--set',
        `resources.limits.memory=${limit}`,
      );
      expect(text).to.include(`  max_bytes: ${bytes}\n`);
      expect(text).to.include(`max_held_bytes: ${bytes / 2}\n`);
      expect(text).to.include(`max_held_bytes_per_peer: ${bytes / 4}\n`);
    });
  }

  it('leaves what is held for single peers as it is told', async () => {
    const file = join(chart, 'ci/default-values.yaml');
    const text = await template(file, '--set', 'config.limits.max_held_bytes=100000000');
    expect(text).to.include('max_held_bytes: 100000000\n').and.include('max_held_bytes_per_peer: 50000000\n');
    const one = await template(file, '--set', 'config.limits.max_held_bytes_per_peer=200000000');
    expect(one).to.include('max_held_bytes: 200000000\n').and.include('max_held_bytes_per_peer: 200000000\n');
  });

  it('holds what is left of a small limit for single peers', async () => {
    const file = join(chart, 'ci/default-values.yaml');
    const text = await template(file, '--set', 'resources.limits.memory=256Mi');
    expect(text).to.include(`max_held_bytes: ${10 * 1024 ** 2}\n`);
  });

  it('says how much memory is enough, and takes that', async () => {
    const file = join(chart, 'ci/default-values.yaml');
    for (const [set, least] of [
      ['config.cache.max_bytes=1073741824', '4096Mi'],
      ['config.workers=7', '1920Mi'],
    ])
      await template(file, '--set', `${set},resources.limits.memory=${least}`);
  });

  it('opens the port of `rest: {}`, which a relay listens on, too', async () => {
    const file = join(chart, 'ci/default-values.yaml');
    const text = await template(file, '--set-json', 'config.rest={}');
    const [, port] = /name: rest, containerPort: (\d+)/.exec(text) ?? [];
    expect(port).to.equal('18001');
    expect(text).to.include('{ name: http-rest, port: 18001').and.to.include('{ port: rest }');
    const other = template(file, '--set-json', 'config.rest={}', '--set', 'ports.rest=18002');
    expect(await other.then(() => '', String)).to.include('ports.rest: 18002 must be the same port');
  });

  it('is scraped once: a ServiceMonitor takes the place of the annotations', async () => {
    const file = join(chart, 'ci/default-values.yaml');
    expect(await template(file)).to.include('prometheus.io/scrape');
    const monitored = await template(file, '--set', 'monitoring.serviceMonitor.enabled=true');
    expect(monitored).to.include('kind: ServiceMonitor').and.not.include('prometheus.io/scrape');
    // The operator gives each target a label `service`, and so has distributary_downstream_streams.
    expect(monitored).to.include('honorLabels: true');
  });

  it('lets the Prometheus of its namespace scrape the relay', async () => {
    const text = await template(join(chart, 'ci/default-values.yaml'));
    expect(text).to.match(/port: metrics \}\]\n\s+from:\s+- podSelector: \{\}/);
  });

  for (const name of ['base', 'persistent'] as const) {
    it(`deploy/kustomize/${name} has the objects of the chart (SNAPSHOTS=write writes them)`, async () => {
      const values = name === 'base' ? 'default' : 'persistent';
      const flags = ['--set', 'persistence.storageClass=', '--set', 'image.tag=latest'];
      const file = join(chart, `ci/${values}-values.yaml`);
      const rendered = await templateBy(helm, 'distributary', '-f', file, ...flags);
      const objects = rendered
        .split(/^---\n/m)
        .filter((part) => part.trim() !== '' && !/^kind: ConfigMap$/m.test(part))
        .map((part) =>
          part.replaceAll(/^(\s*)(app\.kubernetes\.io\/managed-by: Helm|helm\.sh\/chart: .*)\n/gm, ''),
        );
      const text = `# Made from deploy/chart by test/deploy/rendered.more.ts.\n${objects.map((part) => `---\n${part}`).join('')}`;
      expect(kindsOf(text)).to.include.members(['Service', 'NetworkPolicy', 'PodDisruptionBudget']);
      expectSnapshot(join(root, `deploy/kustomize/${name}/distributary.yaml`), text);
    });
  }

  it('kubectl kustomize builds what is in deploy/, and its objects are valid', async () => {
    const overlays = ['kustomize/base', 'kustomize/persistent', 'recipes/configmap'];
    const built = await Promise.all(
      overlays.map((overlay) => outputOf(kubectl, ['kustomize', join(root, 'deploy', overlay)])),
    );
    for (const text of built) expect(kindsOf(text)).to.include.members(['ConfigMap', 'Service']);
    await expectValid(...built);
  });
});
