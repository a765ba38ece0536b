import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'chai';
import { z } from 'zod';
import { blocksOf } from '../docs/page.ts';
import type { Envoy } from '../e2e/support/envoy.ts';
import { always, eventually } from '../e2e/support/eventually.ts';
import { goBinary } from '../e2e/support/go.ts';
import { startGrpcBackend } from '../e2e/support/grpc-backend.ts';
import { GrpcXdsClient } from '../e2e/support/grpc-xds.ts';
import { get } from '../e2e/support/http.ts';
import { Istiod, istiodBinary } from '../e2e/support/istiod.ts';
import { apiserverBinaries, KubeApiserver } from '../e2e/support/kube-apiserver.ts';
import { currentHelm, kubernetesCommands } from '../e2e/support/kubernetes-tools.ts';
import { temporaryDirectory } from '../e2e/support/paths.ts';
import { PemFiles } from '../e2e/support/pem-files.ts';
import { bootRecipe, startRecipe } from '../e2e/support/recipe.ts';
import { RelayProcess } from '../e2e/support/relay.ts';
import { type EnvoySetting, prepareEnvoy } from '../e2e/support/setting.ts';
import { need } from '../e2e/support/skip.ts';
import { issueCertificate } from '../support/certificates.ts';
import { ownPort } from '../support/ports.ts';

const namespace = 'shop';
const labels = { 'app.kubernetes.io/name': 'gateway' };

/** A gateway at this port, whose only route leads to this backend. */
const objects = (port: number, backend: number): readonly object[] => [
  {
    apiVersion: 'networking.istio.io/v1',
    kind: 'Gateway',
    metadata: { name: 'edge', namespace },
    spec: {
      selector: labels,
      servers: [{ port: { number: port, name: 'http', protocol: 'HTTP' }, hosts: ['*'] }],
    },
  },
  {
    apiVersion: 'networking.istio.io/v1',
    kind: 'ServiceEntry',
    metadata: { name: 'backend', namespace },
    spec: {
      hosts: ['backend.example.com'],
      ports: [{ number: 80, name: 'http', protocol: 'HTTP' }],
      resolution: 'STATIC',
      location: 'MESH_EXTERNAL',
      endpoints: [{ address: '127.0.0.1', ports: { http: backend } }],
    },
  },
  {
    apiVersion: 'networking.istio.io/v1',
    kind: 'VirtualService',
    metadata: { name: 'edge', namespace },
    spec: {
      hosts: ['*'],
      gateways: ['edge'],
      http: [{ route: [{ destination: { host: 'backend.example.com', port: { number: 80 } } }] }],
    },
  },
];

const targets = ['office.example.com', 'yard.example.com', 'lager.example.com'];

/** Services of these names, all at one backend. */
const services = (of: string, port: number): readonly object[] =>
  targets.map((host) => ({
    apiVersion: 'networking.istio.io/v1',
    kind: 'ServiceEntry',
    metadata: { name: host.split('.')[0], namespace: of },
    spec: {
      hosts: [host],
      ports: [{ number: 80, name: 'grpc', protocol: 'GRPC' }],
      resolution: 'STATIC',
      location: 'MESH_EXTERNAL',
      endpoints: [{ address: '127.0.0.1', ports: { grpc: port } }],
    },
  }));

async function applyTo(server: KubeApiserver, directory: string, items: readonly object[]): Promise<void> {
  const file = join(directory, 'objects.json');
  writeFileSync(file, JSON.stringify({ apiVersion: 'v1', kind: 'List', items }));
  await server.kubectl('apply', '-f', file);
}

/** What a relay of this namespace shows to istiod: its token, and the authority of istiod's certificate. */
async function relayEnv(server: KubeApiserver, istiod: Istiod, of: string, directory: string) {
  await server.kubectl('create', 'namespace', of);
  await server.kubectl('create', 'serviceaccount', 'relay', '-n', of);
  const write = (name: string, content: string): string => {
    writeFileSync(join(directory, name), content);
    return join(directory, name);
  };
  const token = ['create', 'token', 'relay', '-n', of, '--audience=istio-ca'];
  const root = ['get', 'configmap', 'istio-ca-root-cert', '-n', of, '-o'];
  return {
    CONTROL_PLANE: istiod.address,
    TOKEN: write('token', (await server.kubectl(...token)).trim()),
    ISTIO_CA: await eventually(async () =>
      write('root.pem', await server.kubectl(...root, 'jsonpath={.data.root-cert\\.pem}')),
    ),
    STATE: join(directory, 'state'),
  };
}

describe('deploy/recipes with istiod', function () {
  this.timeout(60 * 60_000); // istiod and the API server are built once, from their sources
  let setting: EnvoySetting;
  let server: KubeApiserver;
  let istiod: Istiod;

  before(async function () {
    setting = await prepareEnvoy(this);
    const binary = await need(this, istiodBinary());
    const { kubectl } = await need(this, kubernetesCommands(currentHelm));
    server = await KubeApiserver.start(await need(this, apiserverBinaries()), kubectl);
    istiod = await Istiod.start(binary, server);
  });

  after(async () => {
    await istiod?.[Symbol.asyncDispose]();
    await server?.[Symbol.asyncDispose]();
    await setting?.[Symbol.asyncDispose]();
  });

  it('replicas of a gateway are one session, with the token of a service account; change, outage, restart of either', async () => {
    await using stack = new AsyncDisposableStack();
    const { one, two } = setting;
    const directory = stack.use(temporaryDirectory()).path;
    const port = await ownPort();
    const apply = (backend: number): Promise<void> => applyTo(server, directory, objects(port, backend));
    const own = await relayEnv(server, istiod, namespace, directory);
    await apply(one.port);

    const files = stack.use(new PemFiles());
    const authority = issueCertificate({ name: 'authority', authority: true });
    files.bundle('ca.crt', [authority]);
    const relayed = { name: 'relay', issuer: authority, dns: ['relay.example.com'] };
    files.identity('tls', issueCertificate(relayed));
    const proxies = stack.use(new PemFiles());
    proxies.bundle('ca.crt', [authority]);
    const identity = `spiffe://cluster.local/ns/${namespace}/sa/gateway`;
    proxies.identity('tls', issueCertificate({ name: 'gateway', issuer: authority, uris: [identity] }));

    const env = { ...own, TLS: files.path('') };
    const relay = stack.use(await startRecipe('istiod/relay.yaml', env));
    const proxy = async (of: RelayProcess, name: string): Promise<Envoy> =>
      stack.use(
        await bootRecipe(setting.envoyBinary, of, 'envoy.yaml', {
          tls: ['/etc/envoy/tls', proxies.path('')],
          node: {
            id: `router~10.0.0.1~${name}.${namespace}~${namespace}.svc.cluster.local`,
            metadata: { NAMESPACE: namespace, LABELS: labels, ISTIO_VERSION: '1.31.0' },
          },
        }),
      );
    const serves = (name: string): Promise<void> =>
      eventually(
        async () => {
          const answer = await get(`http://127.0.0.1:${port}/`);
          expect(answer, istiod.output).to.deep.equal({ status: 200, body: name });
        },
        { timeout: 60_000 },
      );
    const envoys = [await proxy(relay, 'edge-1'), await proxy(relay, 'edge-2')];
    await serves('one');
    expect(await relay.metric('upstream_sessions')).to.equal(1);
    for (const envoy of envoys)
      await eventually(async () => {
        expect(await envoy.stat('listener_manager.total_listeners_active')).to.equal(1);
      });

    await apply(two.port);
    await serves('two');

    await istiod.kill();
    await always(() => serves('two'), 1000);
    for (const envoy of envoys) await envoy[Symbol.asyncDispose]();
    expect(await relay.stop()).to.equal(0);
    const again = stack.use(await startRecipe('istiod/relay.yaml', env));
    await proxy(again, 'edge-3');
    await serves('two');

    await istiod.start();
    await apply(one.port);
    await serves('one');
    expect(await again.metric('downstream_requests_total', 'kind="nack"')).to.equal(0);
  });

  it('a relay on each node: gRPC clients without a proxy are streams over its socket, and one session; change, outage, restart of either', async function () {
    const command = await need(this, goBinary('grpcclient'));
    await using stack = new AsyncDisposableStack();
    const one = stack.use(await startGrpcBackend('one'));
    const two = stack.use(await startGrpcBackend('two'));
    const directory = stack.use(temporaryDirectory()).path;
    // Of the pods in the page.
    const own = await relayEnv(server, istiod, 'jobs', directory);
    const apply = (port: number): Promise<void> => applyTo(server, directory, services('jobs', port));
    await apply(one.port);

    const written = (info: string): string =>
      blocksOf('deploy/recipes/daemonset/README.md').findLast((block) => block.info === info)?.text ?? '';
    const RUN = stack.use(temporaryDirectory()).path;
    const env = { ...own, RUN, ADMIN: '127.0.0.1:0' };
    const start = async (): Promise<RelayProcess> =>
      stack.use(await RelayProcess.start(written('yaml relay'), { env }));
    const startPod = (name: string): GrpcXdsClient => {
      const text = written('json').replaceAll('/run/distributary', RUN).replaceAll('jobs-1', name);
      const bootstrap = z.looseObject({}).parse(JSON.parse(text));
      return stack.use(new GrpcXdsClient({ xds: '', bootstrap }, { command, args: [] }));
    };
    const relay = await start();
    const pods = [startPod('jobs-1'), startPod('jobs-2')];
    const answers = async (backend: string): Promise<void> => {
      for (const pod of pods) for (const host of targets) await pod.answers(`${host}:80`, backend);
    };
    await answers('one');
    expect(await relay.clients()).to.have.length(pods.length * targets.length);
    expect(await relay.metric('upstream_sessions')).to.equal(1);

    await apply(two.port);
    await answers('two');

    // Not only of the name that was asked for last, as istiod does with DELTA.
    const limits = targets.map((host) => ({
      apiVersion: 'networking.istio.io/v1',
      kind: 'DestinationRule',
      metadata: { name: host.split('.')[0], namespace: 'jobs' },
      spec: { host, trafficPolicy: { connectionPool: { http: { http2MaxRequests: 77 } } } },
    }));
    await applyTo(server, directory, limits);
    for (const host of targets)
      await eventually(async () => {
        const { body } = await relay.rpc('distributary.admin.v1.AdminService/GetResource', {
          type: 'cds',
          name: `outbound|80||${host}`,
        });
        expect(body).to.include('max_requests\\":77');
      });

    await istiod.kill();
    expect(await relay.stop()).to.equal(0);
    await answers('two');
    const again = await start();
    await startPod('jobs-3').answers(`${targets[0] ?? ''}:80`, 'two');

    await istiod.start();
    await apply(one.port);
    await answers('one');
    expect(await again.metric('upstream_sessions')).to.equal(1);
    expect(await again.metric('downstream_requests_total', 'kind="nack"')).to.equal(0);
  });
});
