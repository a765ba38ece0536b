import { renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { create, toBinary } from '@bufbuild/protobuf';
import { createClient } from '@connectrpc/connect';
import { createGrpcTransport } from '@connectrpc/connect-node';
import { type Client, credentials } from '@grpc/grpc-js';
import { expect } from 'chai';
import {
  type ClientConfig,
  ClientStatusResponseSchema,
} from '../../src/gen/envoy/service/status/v3/csds_pb.ts';
import { ServerReflection } from '../../src/gen/reflection_pb.ts';
import { Code } from '../../src/wire/grpc-status.ts';
import { type Issued, issueCertificate } from '../support/certificates.ts';
import { rawClient } from '../support/grpc-calls.ts';
import { clientStatus, namesOf, nodesOf, safeRegex } from './support/csds.ts';
import { eventually } from './support/eventually.ts';
import { ResourceFiles } from './support/files.ts';
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
const [red, blue, operator, denied] = [issue('red'), issue('blue'), issue('ops/1'), issue('denied')];

const rules = [
  { principals: ['spiffe://example.com/red'], names: ['red-*', 'both'], allow: true },
  { principals: ['spiffe://example.com/blue'], names: ['blue-*', 'both'], allow: true },
];
const answerOf = (config: readonly ClientConfig[]) =>
  create(ClientStatusResponseSchema, { config: [...config] });
const clientStatusOf = (changes: object = {}) => ({ principals: ['spiffe://example.com/ops/*'], ...changes });

describe('CSDS on the xDS port: no tenant sees another', function () {
  this.timeout(60_000);
  let directory: TemporaryDirectory;
  let files: ResourceFiles;
  let stack: AsyncDisposableStack;

  before(() => {
    directory = temporaryDirectory();
    files = new ResourceFiles();
    files.write('cds', new Map(['red-1', 'red-2', 'blue-1', 'both', 'nobodys'].map((name) => [name, name])));
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

  async function start(...configured: Parameters<typeof config>): Promise<RelayProcess> {
    return stack.use(await RelayProcess.start(config(...configured)));
  }

  const secure = (own?: Issued) =>
    credentials.createSsl(
      Buffer.from(authority.certificate),
      own && Buffer.from(own.privateKey),
      own && Buffer.from(own.certificate),
    );

  function subscriber(relay: RelayProcess, own: Issued, id: string): XdsClient {
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

  for (const workers of [0, 2]) {
    describe(workers === 0 ? 'in one process' : `with ${workers} workers`, () => {
      let relay: RelayProcess;
      let shared: AsyncDisposableStack;

      before(async () => {
        shared = new AsyncDisposableStack();
        stack = shared;
        relay = await start({}, { workers });
        await tenants(relay);
      });
      after(() => shared?.disposeAsync());

      it('asked for everybody: the streams of the same identity, over all connections; of others not a name', async () => {
        for (let asked = 0; asked < 2; asked++) {
          const ofRed = await clientStatus(stranger(relay, red));
          expect(nodesOf(ofRed)).to.deep.equal(['red-a', 'red-b']);
          expect(namesOf(ofRed)).to.deep.equal(
            ['both', 'both', 'red-1', 'red-1', 'red-1', 'red-1', 'red-2', 'red-2'].toSorted(),
          );
          expect(nodesOf(await clientStatus(stranger(relay, blue)))).to.deep.equal(['blue-a']);
        }
      });

      it('a principal of xds.client_status sees all clients and the relay, whatever the rules', async () => {
        const all = await clientStatus(stranger(relay, operator));
        expect(nodesOf(all)).to.deep.equal(['blue-a', 'red-a', 'red-b', 'relay']);
        const own = all.filter(({ clientScope }) => clientScope === 'upstream');
        expect(namesOf(own)).to.include('nobodys');
        const entries = own.flatMap(({ genericXdsConfigs }) => genericXdsConfigs);
        const clusters = entries.filter(({ typeUrl }) => typeUrl.endsWith('Cluster'));
        expect(clusters.map(({ xdsConfig }) => xdsConfig?.typeUrl)).to.include(clusters[0]?.typeUrl);
      });

      it('limits.max_response_bytes bounds the whole answer, whatever it is gathered from', async () => {
        const asking = [red, operator].map((own) => stranger(relay, own));
        const answers = await Promise.all(asking.map((client) => clientStatus(client)));
        for (const [index, client] of asking.entries()) {
          const size = toBinary(ClientStatusResponseSchema, answerOf(answers[index] ?? [])).length;
          const limited = (bytes: number) => config({}, { workers, limits: { max_response_bytes: bytes } });
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
        await using open = await RelayProcess.start({ upstreams: [files.upstream], workers });
        await using one = new XdsClient(open.xds, 'delta', { node: { id: 'one' } });
        await using other = new XdsClient(open.xds, 'sotw', { node: { id: 'other' } });
        for (const client of [one, other]) {
          client.subscribe('cds');
          await client.gets('cds');
        }
        expect(nodesOf(await clientStatus(one.connection))).to.deep.equal(['one']);
        expect(nodesOf(await clientStatus(other.connection))).to.deep.equal(['other']);
        const nobody = rawClient(open.xds);
        stack.defer(() => nobody.close());
        expect(await clientStatus(nobody)).to.deep.equal([]);
      });
    });
  }

  it('rules that change while it is connected count at once', async () => {
    const relay = await start();
    await tenants(relay);
    const client = stranger(relay, red);
    expect(namesOf(await clientStatus(client))).to.include('red-2');
    const fewer = [{ principals: ['spiffe://example.com/red'], names: ['red-1'], allow: true }];
    relay.configure(config({ authorization: { rules: fewer } }));
    await eventually(async () => {
      expect([...new Set(namesOf(await clientStatus(client)))]).to.deep.equal(['red-1']);
    });
  });

  it('rules are about canonical names: another spelling of a denied one is in no field, nor what else is denied', async () => {
    const cluster = 'xdstp://example.com/envoy.config.cluster.v3.Cluster';
    const canonical = [`${cluster}/shop?env=prod&tenant=blue`, `${cluster}/shop?env=prod&tenant=red`];
    using named = new ResourceFiles();
    named.write('cds', new Map(canonical.map((name) => [name, name])));
    const only = [{ names: [`${cluster}/shop?tenant=red&env=prod`], allow: true }];
    const relay = await start({ authorization: { rules: only } }, { upstreams: [named.upstream] });
    const client = subscriber(relay, red, 'red-a');
    client.subscribe('cds', [
      `${cluster}/shop?tenant=blue&env=prod`,
      `${cluster}/sh%6Fp?env=prod&tenant=blue`,
      `${cluster}/shop?tenant=red&env=prod`,
    ]);
    await client.gets('cds');
    const told = await clientStatus(client.connection);
    expect(namesOf(told)).to.deep.equal([`${cluster}/shop?tenant=red&env=prod`]);
    expect(Buffer.from(toBinary(ClientStatusResponseSchema, answerOf(told))).includes('blue')).to.equal(
      false,
    );
  });

  it('a variant that a trusted parameter keeps from a tenant is in no field', async () => {
    using variants = new ResourceFiles();
    for (const tenant of ['red', 'blue']) {
      const constraint = { key: 'tenant', value: tenant };
      variants.writeText(
        `${tenant}.json`,
        JSON.stringify({
          resources: [
            {
              '@type': 'type.googleapis.com/envoy.service.discovery.v3.Resource',
              resource_name: { name: 'shop', dynamic_parameter_constraints: { constraint } },
              resource: {
                '@type': 'type.googleapis.com/envoy.config.cluster.v3.Cluster',
                name: 'shop',
                alt_stat_name: `of-${tenant}`,
              },
            },
          ],
        }),
      );
    }
    const parameter = {
      key: 'tenant',
      from: 'peer.uri_san',
      pattern: '^spiffe://example.com/(.*)$',
      trusted: true,
    };
    const relay = await start(
      { authorization: {} },
      { upstreams: [variants.upstream], parameters: [parameter] },
    );
    for (const [own, id] of [
      [red, 'red-a'],
      [blue, 'blue-a'],
    ] as const) {
      const client = subscriber(relay, own, id);
      client.delta('cds', {
        resourceLocatorsSubscribe: [{ name: 'shop', dynamicParameters: { tenant: 'blue' } }],
      });
      await client.gets('cds');
    }
    const told = Buffer.from(
      toBinary(ClientStatusResponseSchema, answerOf(await clientStatus(stranger(relay, red)))),
    );
    expect([told.includes('of-red'), told.includes('blue')]).to.deep.equal([true, false]);
  });

  it('a peer that may read nothing is refused before its request is looked at', async () => {
    const relay = await start();
    await tenants(relay);
    const request = { nodeMatchers: [safeRegex('(')] };
    const { code } = await fails(clientStatus(stranger(relay, denied), request));
    expect(code).to.equal(Code.PERMISSION_DENIED);
    expect((await fails(clientStatus(stranger(relay), request))).code).to.equal(Code.PERMISSION_DENIED);
    expect((await fails(clientStatus(stranger(relay, red), request))).code).to.equal(Code.INVALID_ARGUMENT);
  });

  it('enabled: false turns it off, for its principals too, and takes it out of the reflection; true brings it back', async () => {
    const relay = await start();
    await tenants(relay);
    const client = stranger(relay, operator);
    expect(await clientStatus(client)).to.have.length(4);
    relay.configure(config({ client_status: clientStatusOf({ enabled: false }) }));
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
    relay.configure(config());
    await eventually(async () => expect(await clientStatus(client)).to.have.length(4));
    expect(await listed(relay)).to.include('envoy.service.status.v3.ClientStatusDiscoveryService');
  });

  it('over a Unix socket: the streams of the same connection', async () => {
    const socket = join(directory.path, 'xds.sock');
    const child = await RelayProcess.start({
      upstreams: [files.upstream],
      xds: { address: `unix:${socket}` },
    });
    await using relay = child;
    await using one = new XdsClient(relay.xds, 'delta', { node: { id: 'one' } });
    await using other = new XdsClient(relay.xds, 'delta', { node: { id: 'other' } });
    for (const client of [one, other]) {
      client.subscribe('cds');
      await client.gets('cds');
    }
    expect(nodesOf(await clientStatus(one.connection))).to.deep.equal(['one']);
  });

  async function listed(relay: RelayProcess): Promise<readonly string[]> {
    const transport = createGrpcTransport({
      baseUrl: `https://${relay.xds}`,
      nodeOptions: {
        ca: authority.certificate,
        servername: 'relay.test',
        checkServerIdentity: () => undefined,
      },
      idleConnectionTimeoutMs: 100,
    });
    const asked = (async function* () {
      yield { messageRequest: { case: 'listServices' as const, value: '*' } };
    })();
    const names: string[] = [];
    for await (const { messageResponse } of createClient(ServerReflection, transport).serverReflectionInfo(
      asked,
    )) {
      if (messageResponse.case === 'listServicesResponse') {
        names.push(...messageResponse.value.service.map(({ name }) => name));
      }
    }
    return names;
  }
});
