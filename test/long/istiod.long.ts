import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'chai';
import type { Envoy } from '../e2e/support/envoy.ts';
import { always, eventually } from '../e2e/support/eventually.ts';
import { get } from '../e2e/support/http.ts';
import { Istiod, type IstiodBinary, istiodBinary } from '../e2e/support/istiod.ts';
import { apiserverBinaries, KubeApiserver } from '../e2e/support/kube-apiserver.ts';
import { currentHelm, kubernetesCommands } from '../e2e/support/kubernetes-tools.ts';
import { temporaryDirectory } from '../e2e/support/paths.ts';
import { PemFiles } from '../e2e/support/pem-files.ts';
import { bootRecipe, startRecipe } from '../e2e/support/recipe.ts';
import type { RelayProcess } from '../e2e/support/relay.ts';
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

describe('deploy/recipes/istiod', function () {
  this.timeout(60 * 60_000); // istiod and the API server are built once, from their sources
  let setting: EnvoySetting;
  let binary: IstiodBinary;
  let server: KubeApiserver;

  before(async function () {
    setting = await prepareEnvoy(this);
    binary = await need(this, istiodBinary());
    const { kubectl } = await need(this, kubernetesCommands(currentHelm));
    server = await KubeApiserver.start(await need(this, apiserverBinaries()), kubectl);
  });

  after(async () => {
    await server?.[Symbol.asyncDispose]();
    await setting?.[Symbol.asyncDispose]();
  });

  it('replicas of a gateway are one session, with the token of a service account; change, outage, restart of either', async () => {
    await using stack = new AsyncDisposableStack();
    const { one, two } = setting;
    const istiod = stack.use(await Istiod.start(binary, server));
    const directory = stack.use(temporaryDirectory()).path;
    const write = (name: string, content: string): string => {
      writeFileSync(join(directory, name), content);
      return join(directory, name);
    };
    const port = await ownPort();
    const apply = async (backend: number): Promise<void> => {
      const list = { apiVersion: 'v1', kind: 'List', items: objects(port, backend) };
      await server.kubectl('apply', '-f', write('objects.json', JSON.stringify(list)));
    };
    await server.kubectl('create', 'namespace', namespace);
    await server.kubectl('create', 'serviceaccount', 'relay', '-n', namespace);
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

    const token = ['create', 'token', 'relay', '-n', namespace, '--audience=istio-ca'];
    const root = ['get', 'configmap', 'istio-ca-root-cert', '-n', namespace, '-o'];
    const env = {
      CONTROL_PLANE: istiod.address,
      TLS: files.path(''),
      TOKEN: write('token', (await server.kubectl(...token)).trim()),
      ISTIO_CA: await eventually(async () =>
        write('root.pem', await server.kubectl(...root, 'jsonpath={.data.root-cert\\.pem}')),
      ),
      STATE: join(directory, 'state'),
    };
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
});
