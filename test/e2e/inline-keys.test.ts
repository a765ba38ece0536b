import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { create, toBinary } from '@bufbuild/protobuf';
import { expect } from 'chai';
import { ClientStatusResponseSchema } from '../../src/gen/envoy/service/status/v3/csds_pb.ts';
import { cases } from '../support/cases.ts';
import { slower } from '../support/cpu.ts';
import { clientStatus } from './support/csds.ts';
import { eventually } from './support/eventually.ts';
import { send } from './support/http.ts';
import { ModelPlane, realBody } from './support/model-plane.ts';
import { temporaryDirectory } from './support/paths.ts';
import { ClientPool } from './support/recording-client.ts';
import { RelayProcess } from './support/relay.ts';
import { XdsClient } from './support/xds-client.ts';

const tls = 'type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext';
const [key, password, pem] = ['THE-INLINE-KEY', 'THE-PASSWORD', '-----BEGIN EC PRIVATE KEY-----\nTHE-PEM'];
const secrets = [key, password, 'THE-PEM'];

const cluster = JSON.stringify({
  '@type': 'type.googleapis.com/envoy.config.cluster.v3.Cluster',
  name: 'shop',
  transport_socket: {
    name: 'tls',
    typed_config: {
      '@type': tls,
      sni: 'shop.example',
      common_tls_context: {
        tls_certificates: [{ private_key: { inline_string: key }, password: { inline_string: password } }],
      },
    },
  },
  metadata: { filter_metadata: { custom: { kept: 'yes', not_annotated: pem } } },
});

const adminService = 'distributary.admin.v1.AdminService';
const csdsPath = 'envoy.service.status.v3.ClientStatusDiscoveryService/FetchClientStatus';

const endpoints = JSON.stringify({
  '@type': 'type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment',
  cluster_name: 'shop-endpoints',
});

/** Its versions say nothing of the bodies. */
async function planeWithKeys(): Promise<ModelPlane> {
  const plane = await ModelPlane.start((url, name) =>
    realBody(url, name, url.endsWith('Cluster') ? cluster : endpoints),
  );
  plane.set('cds', { shop: '1' });
  plane.set('eds', { shop: '1' });
  return plane;
}

describe('private keys that stand in clusters', () => {
  const expectNone = (text: string): void => {
    expect(text).to.include('shop.example');
    for (const secret of secrets) expect(text).not.to.include(secret);
  };

  for (const workers of cases(0, 1)) {
    it(`are in no answer to operators, on no door and in no codec, and come to clients whole (${workers} workers)`, async () => {
      await using plane = await planeWithKeys();
      await using relay = await RelayProcess.start({
        upstreams: [{ name: 'central', ads: { endpoints: [plane.address] } }],
        workers,
      });
      await using client = new XdsClient(relay.xds, 'delta');
      client.subscribe('cds', ['shop']);
      const { first } = await client.gets('cds');
      for (const secret of secrets) expect(Buffer.concat(first).toString('latin1')).to.include(secret);

      expectNone((await relay.rpc(csdsPath, {})).body);
      const binary = await send('POST', `http://${relay.admin}/${csdsPath}`, '', 'application/proto');
      expectNone(binary.body);
      const grpc = await clientStatus(client.connection);
      expectNone(
        Buffer.from(
          toBinary(ClientStatusResponseSchema, create(ClientStatusResponseSchema, { config: [...grpc] })),
        ).toString('latin1'),
      );
      expectNone((await relay.rpc(`${adminService}/GetResource`, { type: 'cds', name: 'shop' })).body);
    });
  }

  it('are in no answer to operators and not in the log, if a client rejects the cluster with a dump of it', async () => {
    await using plane = await planeWithKeys();
    await using relay = await RelayProcess.start({
      upstreams: [{ name: 'central', ads: { endpoints: [plane.address] } }],
    });
    using pool = new ClientPool(relay.xds, 1);
    const client = pool.open('delta', 'envoy');
    client.rejects = () =>
      [
        'Error adding/updating cluster(s) shop: goo.gle/debugonly ',
        `sni: "shop.example"\nprivate_key {\n  inline_string: "${key}"\n}`,
        `password {\n  inline_string: "${password}"\n}\nstring_value: ${JSON.stringify(pem)}`,
        ': no such socket',
      ].join('\n');
    client.subscribe('cds', ['shop']);
    const status = await eventually(async () => {
      const { body } = await relay.rpc(`${adminService}/Status`, {});
      expect(body).to.include('no such socket');
      return body;
    });
    expectNone(status);
    expectNone((await relay.rpc(`${adminService}/ListClients`, {})).body);
    expectNone((await relay.rpc(csdsPath, {})).body);
    await eventually(() => expect(relay.output).to.include('no such socket'));
    expectNone(relay.output);
  });

  it('deep inside of a large cluster they cost no more than its bytes', async () => {
    // As deep as protobuf's readers go: an object is three messages.
    const depth = 28;
    const inner = JSON.stringify({ large: 'x'.repeat(16 << 20), not_annotated: pem });
    const deep = `${'{"a":'.repeat(depth)}${inner}${'}'.repeat(depth)}`;
    const large = cluster.replace('"kept":"yes"', `"deep":${deep}`);
    await using plane = await ModelPlane.start((url, name) => realBody(url, name, large));
    plane.set('cds', { shop: '1' });
    await using relay = await RelayProcess.startProbed({
      upstreams: [{ name: 'central', ads: { endpoints: [plane.address] } }],
    });
    await using client = new XdsClient(relay.xds, 'delta');
    client.subscribe('cds', ['shop']);
    await client.gets('cds');
    await relay.blocked();
    const shown = Buffer.concat(
      (await clientStatus(client.connection)).map((config) =>
        Buffer.from(
          toBinary(ClientStatusResponseSchema, create(ClientStatusResponseSchema, { config: [config] })),
        ),
      ),
    ).toString('latin1');
    expectNone(shown);
    expect(shown.length).to.be.above(16 << 20);
    // It was 1.3 s, as each level was copied.
    expect((await relay.blocked()).cpu / slower()).to.be.below(500);
  });

  it('the hashes that compare secrets are keyed in each process: nobody can try guesses by them', async () => {
    await using plane = await ModelPlane.start();
    plane.set('sds', { password: '1' });
    const contentBy = async (): Promise<string> => {
      await using relay = await RelayProcess.start({
        upstreams: [{ name: 'central', ads: { endpoints: [plane.address] } }],
      });
      await using client = new XdsClient(relay.xds, 'delta');
      client.subscribe('sds', ['password']);
      await client.gets('sds');
      // The answer may be a second old: of before the client was there.
      return await eventually(async () => {
        const { body } = await relay.rpc(`${adminService}/ListMatches`, { type: 'sds' });
        const [, content = ''] = /"content": ?"([^"]+)"/.exec(body) ?? [];
        expect(content).to.match(/^[0-9a-f]{16}$/);
        return content;
      });
    };
    const first = await contentBy();
    expect(await contentBy()).to.not.equal(first);
  });

  it('are on disk only of types that are not left out', async () => {
    using directory = temporaryDirectory();
    await using plane = await planeWithKeys();
    const onDisk = (text: string): boolean =>
      readdirSync(directory.path).some((name) => readFileSync(join(directory.path, name)).includes(text));
    const started = (more: object): Promise<RelayProcess> =>
      RelayProcess.start({
        upstreams: [{ name: 'central', ads: { endpoints: [plane.address] } }],
        cache: { persistence: { path: directory.path, ...more } },
      });
    const serve = async (more: object): Promise<void> => {
      await using relay = await started(more);
      await using client = new XdsClient(relay.xds, 'delta');
      client.subscribe('cds', ['shop']);
      client.subscribe('eds', ['shop']);
      await client.gets('cds');
      await client.gets('eds');
      await eventually(() => expect(onDisk('shop-endpoints')).to.equal(true));
    };
    await serve({});
    expect(onDisk(key)).to.equal(true);
    await serve({ leave_out: ['cds'] });
    expect(onDisk(key)).to.equal(false);
    expect(onDisk('shop-endpoints')).to.equal(true);
  });
});
