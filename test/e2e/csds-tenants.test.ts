import { renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { create, toBinary } from '@bufbuild/protobuf';
import { createGrpcTransport } from '@connectrpc/connect-node';
import { type Client, credentials } from '@grpc/grpc-js';
import { expect } from 'chai';
import { z } from 'zod';
import {
  type ClientConfig,
  ClientStatusResponseSchema,
} from '../../src/gen/envoy/service/status/v3/csds_pb.ts';
import { Code } from '../../src/wire/grpc-status.ts';
import { cases } from '../support/cases.ts';
import { type Issued, issueCertificate } from '../support/certificates.ts';
import { rawClient } from '../support/grpc-calls.ts';
import { clientStatus, listedServices, namesOf, nodesOf, safeRegex } from './support/csds.ts';
import { eventually } from './support/eventually.ts';
import { manyResources, ResourceFiles } from './support/files.ts';
import { type TemporaryDirectory, temporaryDirectory } from './support/paths.ts';
import { type RelayConfig, RelayProcess } from './support/relay.ts';
import { clientsOf } from './support/relay-state.ts';
import { XdsClient } from './support/xds-client.ts';

const authority = issueCertificate({ name: 'authority', authority: true });
const issue = (path: string): Issued =>
  issueCertificate({ name: path, issuer: authority, uris: [`spiffe://example.com/${path}`] });
const server = issueCertificate({
  name: 'relay',
  issuer: authority,
  ips: ['127.0.0.1'],
  dns: ['relay.test'],
});
const [red, green, blue] = [issue('red'), issue('green'), issue('blue')];
const [operator, denied] = [issue('ops/1'), issue('denied')];

const rules = [
  { principals: ['spiffe://example.com/red'], names: ['red-*', 'both'], allow: true },
  { principals: ['spiffe://example.com/blue'], names: ['blue-*', 'both'], allow: true },
];
/** Names with context parameters, as they are canonical. */
const clusters = 'xdstp://example.com/envoy.config.cluster.v3.Cluster';
const canonical = [`${clusters}/shop?env=prod&tenant=blue`, `${clusters}/shop?env=prod&tenant=red`];
const tenantParameter = {
  key: 'tenant',
  from: 'peer.uri_san',
  pattern: '^spiffe://example.com/(.*)$',
  trusted: true,
};
const answerOf = (config: readonly ClientConfig[]) =>
  create(ClientStatusResponseSchema, { config: [...config] });
const bytesOf = (config: readonly ClientConfig[]): Buffer =>
  Buffer.from(toBinary(ClientStatusResponseSchema, answerOf(config)));
const workOf = z.object({
  accounts: z.array(z.object({ key: z.string(), work_per_second: z.number().default(0) })),
});
const clientStatusOf = (changes: object = {}) => ({ principals: ['spiffe://example.com/ops/*'], ...changes });

/** Cluster `shop` for this tenant. */
const variantOf = (tenant: string): string =>
  JSON.stringify({
    resources: [
      {
        '@type': 'type.googleapis.com/envoy.service.discovery.v3.Resource',
        resource_name: {
          name: 'shop',
          dynamic_parameter_constraints: { constraint: { key: 'tenant', value: tenant } },
        },
        resource: {
          '@type': 'type.googleapis.com/envoy.config.cluster.v3.Cluster',
          name: 'shop',
          alt_stat_name: `of-${tenant}`,
        },
      },
    ],
  });

describe('CSDS on the xDS port: no tenant sees another', () => {
  let directory: TemporaryDirectory;
  let files: ResourceFiles;
  let stack: AsyncDisposableStack;

  before(() => {
    directory = temporaryDirectory();
    files = new ResourceFiles();
    const names = ['red-1', 'red-2', 'blue-1', 'both', 'nobodys', ...canonical];
    files.write('cds', new Map(names.map((name) => [name, name])));
    for (const tenant of ['green', 'blue']) files.writeText(`${tenant}.json`, variantOf(tenant));
    files.write(
      'eds',
      new Map([
        ['red-1', 'x'],
        ['blue-1', 'x'],
      ]),
    );
  });
  beforeEach(() => {
    stack = new AsyncDisposableStack();
  });
  afterEach(() => stack.disposeAsync());
  after(() => {
    files?.[Symbol.dispose]();
    directory?.[Symbol.dispose]();
  });

  function write(name: string, pem: string): string {
    const path = join(directory.path, name);
    writeFileSync(`${path}.new`, pem);
    renameSync(`${path}.new`, path);
    return path;
  }

  function config(changes: object = {}, more: object = {}): RelayConfig {
    const tls = {
      certificate: write('server.crt', server.certificate),
      private_key: write('server.key', server.privateKey),
      ca: write('ca.crt', authority.certificate),
    };
    const xds = { tls, authorization: { rules }, client_status: clientStatusOf(), ...changes };
    return { upstreams: [files.upstream], xds, ...more };
  }

  const reload = (relay: RelayProcess, ...configured: Parameters<typeof config>): Promise<void> =>
    relay.reconfigure(config(...configured));

  const secure = (own?: Issued) =>
    credentials.createSsl(
      Buffer.from(authority.certificate),
      own && Buffer.from(own.privateKey),
      own && Buffer.from(own.certificate),
    );

  function subscriber(relay: RelayProcess, own: Issued | undefined, id: string): XdsClient {
    const options = { secure: secure(own), serverName: 'relay.test', node: { id, cluster: 'c' } };
    return stack.use(new XdsClient(relay.xds, 'delta', options));
  }

  /** A connection that has no stream. */
  function stranger(relay: RelayProcess, own?: Issued): Client {
    const client = rawClient(relay.xds, secure(own), {
      'grpc.ssl_target_name_override': 'relay.test',
      'grpc.default_authority': 'relay.test',
      'grpc.max_receive_message_length': -1,
    });
    stack.defer(() => client.close());
    return client;
  }

  async function fails(status: Promise<unknown>): Promise<{ code: number; details: string }> {
    try {
      await status;
    } catch (error) {
      const { code, details } = error as { code: number; details: string };
      return { code, details };
    }
    throw new Error('it was answered');
  }

  /** Streams of two tenants, red's on two connections. */
  async function tenants(relay: RelayProcess): Promise<void> {
    for (const [own, id] of [
      [red, 'red-a'],
      [red, 'red-b'],
      [blue, 'blue-a'],
    ] as const) {
      const client = subscriber(relay, own, id);
      client.subscribe('cds');
      await client.gets('cds');
      client.subscribe('eds', ['red-1', 'blue-1', 'nobodys']);
      await client.gets('eds');
    }
  }

  for (const workers of cases(2, 0)) {
    describe(workers === 0 ? 'in one process' : `with ${workers} workers`, () => {
      let relay: RelayProcess;
      let shared: AsyncDisposableStack;
      const more = workers === 0 ? { parameters: [tenantParameter] } : { workers };

      before(async () => {
        shared = new AsyncDisposableStack();
        stack = shared;
        relay = stack.use(await RelayProcess.start(config({}, more)));
        await tenants(relay);
      });
      after(() => shared?.disposeAsync());

      it('asked for everybody: the streams of the same identity, over all connections; of others not a name', async () => {
        for (let asked = 0; asked < 2; asked++) {
          // Clients of a worker that has no time to answer are missing.
          await eventually(async () => {
            const ofRed = await clientStatus(stranger(relay, red));
            expect(nodesOf(ofRed)).to.deep.equal(['red-a', 'red-b']);
            expect(namesOf(ofRed)).to.deep.equal(
              ['both', 'both', 'red-1', 'red-1', 'red-1', 'red-1', 'red-2', 'red-2'].toSorted(),
            );
            expect(nodesOf(await clientStatus(stranger(relay, blue)))).to.deep.equal(['blue-a']);
          });
        }
      });

      it('a principal of xds.client_status sees all clients and the relay, whatever the rules', async () => {
        const all = await eventually(async () => {
          const told = await clientStatus(stranger(relay, operator));
          expect(nodesOf(told)).to.deep.equal(['blue-a', 'red-a', 'red-b', 'relay']);
          return told;
        });
        const own = all.filter(({ clientScope }) => clientScope === 'upstream');
        expect(namesOf(own)).to.include('nobodys');
        const entries = own.flatMap(({ genericXdsConfigs }) => genericXdsConfigs);
        const clusters = entries.filter(({ typeUrl }) => typeUrl.endsWith('Cluster'));
        expect(clusters.map(({ xdsConfig }) => xdsConfig?.typeUrl)).to.include(clusters[0]?.typeUrl);
      });

      it('limits.max_response_bytes bounds the whole answer, whatever it is gathered from', async () => {
        const asking = [red, operator].map((own) => stranger(relay, own));
        const answers = await Promise.all(
          asking.map((client, index) =>
            eventually(async () => {
              const told = await clientStatus(client);
              // Without those of a worker that has no time to answer it would be shorter.
              expect(nodesOf(told)).to.have.length([2, 4][index] ?? 0);
              return told;
            }),
          ),
        );
        for (const [index, client] of asking.entries()) {
          const size = toBinary(ClientStatusResponseSchema, answerOf(answers[index] ?? [])).length;
          const limited = (bytes: number) => config({}, { ...more, limits: { max_response_bytes: bytes } });
          relay.configure(limited(size - 1));
          await eventually(async () => {
            const { code, details } = await fails(clientStatus(client));
            expect(code).to.equal(Code.RESOURCE_EXHAUSTED);
            expect(details).to.include(`larger than ${size - 1} bytes`);
          });
          relay.configure(limited(size));
          await eventually(() => clientStatus(client));
        }
      });

      it('without a certificate: the streams of the same connection', async () => {
        const forAll = [...rules, { names: ['both'], allow: true }];
        await reload(relay, { authorization: { rules: forAll } }, more);
        // A worker hears of it later: until then it refuses them.
        const served = (id: string): Promise<XdsClient> =>
          eventually(async () => {
            const client = subscriber(relay, undefined, id);
            client.subscribe('cds');
            await client.gets('cds');
            return client;
          });
        const [one, other] = [await served('one'), await served('other')];
        for (const [client, id] of [
          [one, 'one'],
          [other, 'other'],
        ] as const)
          await eventually(async () =>
            expect(nodesOf(await clientStatus(client.connection))).to.deep.equal([id]),
          );
        expect(await clientStatus(stranger(relay))).to.deep.equal([]);
        await reload(relay, {}, more);
      });

      if (workers > 0) return;

      it('rules that change while it is connected count at once', async () => {
        const client = stranger(relay, red);
        expect(namesOf(await clientStatus(client))).to.include('red-2');
        const fewer = [{ principals: ['spiffe://example.com/red'], names: ['red-1'], allow: true }];
        await reload(relay, { authorization: { rules: fewer } }, more);
        await eventually(async () => {
          expect([...new Set(namesOf(await clientStatus(client)))]).to.deep.equal(['red-1']);
        });
        await reload(relay, {}, more);
      });

      it('rules are about canonical names: another spelling of a denied one is in no field, nor what else is denied', async () => {
        const only = [{ names: [`${clusters}/shop?tenant=red&env=prod`], allow: true }];
        await reload(relay, { authorization: { rules: only } }, more);
        const client = subscriber(relay, green, 'green-a');
        client.subscribe('cds', [
          `${clusters}/shop?tenant=blue&env=prod`,
          `${clusters}/sh%6Fp?env=prod&tenant=blue`,
          `${clusters}/shop?tenant=red&env=prod`,
        ]);
        await client.gets('cds');
        const told = await clientStatus(client.connection);
        expect(namesOf(told)).to.deep.equal([`${clusters}/shop?tenant=red&env=prod`]);
        expect(bytesOf(told).includes('blue')).to.equal(false);
        await reload(relay, {}, more);
      });

      it('a variant that a trusted parameter keeps from a tenant is in no field', async () => {
        await reload(relay, { authorization: {} }, more);
        for (const [own, id] of [
          [green, 'green-a'],
          [blue, 'blue-b'],
        ] as const) {
          const client = subscriber(relay, own, id);
          client.delta('cds', {
            resourceLocatorsSubscribe: [{ name: 'shop', dynamicParameters: { tenant: 'blue' } }],
          });
          await client.gets('cds');
        }
        const told = bytesOf(await clientStatus(stranger(relay, green)));
        expect([told.includes('of-green'), told.includes('blue')]).to.deep.equal([true, false]);
        await reload(relay, {}, more);
      });

      it('a peer that may read nothing is refused before its request is looked at', async () => {
        const request = { nodeMatchers: [safeRegex('(')] };
        const { code } = await fails(clientStatus(stranger(relay, denied), request));
        expect(code).to.equal(Code.PERMISSION_DENIED);
        expect((await fails(clientStatus(stranger(relay), request))).code).to.equal(Code.PERMISSION_DENIED);
        expect((await fails(clientStatus(stranger(relay, red), request))).code).to.equal(
          Code.INVALID_ARGUMENT,
        );
      });

      it('enabled: false turns it off, for its principals too, and takes it out of the reflection; true brings it back', async () => {
        const client = stranger(relay, operator);
        await eventually(async () => expect(await clientStatus(client)).to.have.length(4));
        await reload(relay, { client_status: clientStatusOf({ enabled: false }) }, more);
        const { code, details } = await eventually(() => fails(clientStatus(client)));
        expect(code).to.equal(Code.UNIMPLEMENTED);
        expect(details).to.include('xds.client_status');
        expect(await listed(relay)).to.not.include('envoy.service.status.v3.ClientStatusDiscoveryService');
        const { body } = await relay.rpc(
          'envoy.service.status.v3.ClientStatusDiscoveryService/FetchClientStatus',
          {},
        );
        expect(body).to.include('blue-a').and.include('nobodys');
        expect(await clientsOf(relay)).to.have.length(3);
        await reload(relay, {}, more);
        await eventually(async () => expect(await clientStatus(client)).to.have.length(4));
        expect(await listed(relay)).to.include('envoy.service.status.v3.ClientStatusDiscoveryService');
      });
    });
  }

  for (const workers of cases(2, 0)) {
    it(`what it costs is charged to the tenant that asks (workers: ${workers})`, async () => {
      using many = new ResourceFiles();
      many.write('cds', new Map([...manyResources(10_000).keys()].map((name) => [`red-${name}`, name])));
      const relay = stack.use(
        await RelayProcess.start({ ...config({}, { workers }), upstreams: [many.upstream] }),
      );
      const client = subscriber(relay, red, 'red-a');
      client.subscribe('cds');
      await client.gets('cds');
      const worked = async (): Promise<number> => {
        const { body } = await relay.rpc('distributary.admin.v1.AdminService/Status', {});
        const { accounts } = workOf.parse(JSON.parse(body));
        return accounts.find(({ key }) => key === 'identity spiffe://example.com/red')?.work_per_second ?? 0;
      };
      const before = await worked();
      for (let asked = 0; asked < 10; asked++) await clientStatus(client.connection);
      expect((await worked()) - before).to.be.above(10);
    });
  }

  it('over a Unix socket: the streams of the same connection', async () => {
    const socket = join(directory.path, 'xds.sock');
    await using relay = await RelayProcess.start({
      upstreams: [files.upstream],
      xds: { address: `unix:${socket}` },
    });
    await using one = new XdsClient(relay.xds, 'delta', { node: { id: 'one' } });
    await using other = new XdsClient(relay.xds, 'delta', { node: { id: 'other' } });
    for (const client of [one, other]) {
      client.subscribe('cds');
      await client.gets('cds');
    }
    expect(nodesOf(await clientStatus(one.connection))).to.deep.equal(['one']);
  });

  function listed(relay: RelayProcess): Promise<readonly string[]> {
    const transport = createGrpcTransport({
      baseUrl: `https://${relay.xds}`,
      nodeOptions: {
        ca: authority.certificate,
        servername: 'relay.test',
        checkServerIdentity: () => undefined,
      },
      idleConnectionTimeoutMs: 100,
    });
    return listedServices(transport);
  }
});
