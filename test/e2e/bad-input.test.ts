import { connect as connectTcp } from 'node:net';
import { create, toBinary } from '@bufbuild/protobuf';
import { expect } from 'chai';
import { NodeSchema } from '../../src/gen/envoy/config/core/v3/base_pb.ts';
import { DiscoveryRequestSchema } from '../../src/gen/envoy/service/discovery/v3/discovery_pb.ts';
import { ADS_SERVICE } from '../../src/model/types.ts';
import { Code } from '../../src/wire/grpc-status.ts';
import { type as typeOf } from '../support/in-memory-relay.ts';
import { eventually } from './support/eventually.ts';
import { ResourceFiles } from './support/files.ts';
import { RelayProcess } from './support/relay.ts';
import { deltaNames, type Received, XdsClient } from './support/xds-client.ts';

const ads = `/${ADS_SERVICE}/StreamAggregatedResources`;
const cdsService = '/envoy.service.cluster.v3.ClusterDiscoveryService';
const strangeNames = [
  '__proto__',
  'constructor',
  'toString',
  'hasOwnProperty',
  '',
  ' ',
  '\u0000',
  '*/',
  'é\u{1F600}',
];

describe('bad input, over real sockets', () => {
  let files: ResourceFiles;
  let relay: RelayProcess;
  let bystander: XdsClient;
  let updates = 0;

  before(async () => {
    files = new ResourceFiles();
    files.write('cds', new Map([['shop', '0']]));
    files.write('eds', new Map(strangeNames.filter((name) => name !== '').map((name) => [name, 'here'])));
    files.writeText('variants.yaml', variants);
    relay = await RelayProcess.start({
      upstreams: [files.upstream],
      parameters: ['env', '__proto__', 'constructor'].map((key) => ({ key, from: `node.metadata.${key}` })),
    });
    bystander = new XdsClient(relay.xds, 'sotw');
    bystander.subscribe('cds');
    await bystander.gets('cds');
  });

  after(async () => {
    await bystander?.[Symbol.asyncDispose]();
    await relay?.[Symbol.asyncDispose]();
    files?.[Symbol.dispose]();
  });

  afterEach('the process and the other streams are untouched', async () => {
    expect((await relay.get('/healthz')).status).to.equal(200);
    files.write('cds', new Map([['shop', String(++updates)]]));
    await eventually(() => {
      expect(bystander.status).to.equal(undefined);
      expect(bystander.of('cds')).to.have.length(updates + 1);
    });
    expect(relay.faults()).to.deep.equal([]);
  });

  async function ends(client: XdsClient, code: Code, message: RegExp): Promise<void> {
    await using ending = client;
    const status = await ending.ends();
    expect([status.code, status.details]).to.satisfy(
      ([got, details]: [number, string]) => got === code && message.test(details),
      `${status.code} ${status.details}`,
    );
  }

  const open = (protocol: 'sotw' | 'delta' = 'sotw', path?: string): XdsClient =>
    new XdsClient(relay.xds, protocol, path === undefined ? {} : { path });

  it('bytes that are no message: INVALID_ARGUMENT', async () => {
    for (const protocol of ['sotw', 'delta'] as const) {
      for (const bytes of [
        Buffer.from('GET / HTTP/1.1\r\n\r\n'),
        Buffer.alloc(100, 0xff),
        Buffer.of(0x12, 0x7f, 1),
      ]) {
        const client = open(protocol);
        client.raw(bytes);
        await ends(client, Code.INVALID_ARGUMENT, /malformed (Delta)?DiscoveryRequest/);
      }
    }
  });

  it('a node that cannot be decoded: INVALID_ARGUMENT', async () => {
    const client = open();
    client.raw(Buffer.of(0x12, 3, 0x0a, 0x7f, 1));
    await ends(client, Code.INVALID_ARGUMENT, /node/);
  });

  it('bytes that are not HTTP/2: the connection is closed', async () => {
    const [host = '', port = ''] = relay.xds.split(':');
    await new Promise<void>((resolve, reject) => {
      const socket = connectTcp(Number(port), host, () => socket.end(Buffer.alloc(4096, 0x47)));
      socket.on('close', () => resolve());
      socket.on('error', (error) => ('code' in error ? resolve() : reject(error)));
      socket.resume();
    });
  });

  it('a request of 5 MB: RESOURCE_EXHAUSTED with the limit', async () => {
    const client = open();
    client.sotw('cds', { versionInfo: 'x'.repeat(5_000_000) });
    await ends(client, Code.RESOURCE_EXHAUSTED, /4194304 bytes \(limits\.max_request_bytes\)/);
    expect(await relay.metric('downstream_rejected_total', 'request_bytes')).to.equal(1);
  });

  it('another type on a per-type service: INVALID_ARGUMENT with both types', async () => {
    for (const url of ['type.googleapis.com/no.such.Type', typeOf('eds')]) {
      const client = open('sotw', `${cdsService}/StreamClusters`);
      client.sotw(url);
      await ends(
        client,
        Code.INVALID_ARGUMENT,
        /type_url .*(no\.such\.Type|ClusterLoadAssignment).*v3\.Cluster/,
      );
    }
  });

  it('§3.1 no type on ADS: INVALID_ARGUMENT; on a per-type service it is known', async () => {
    const client = open();
    client.sotw('');
    await ends(client, Code.INVALID_ARGUMENT, /type_url/);
    await using known = open('sotw', `${cdsService}/StreamClusters`);
    known.sotw('');
    expect((await known.gets('cds')).resources).to.equal(1);
  });

  it('§3.1 no node in the first request: INVALID_ARGUMENT', async () => {
    for (const path of [ads, `${cdsService}/StreamClusters`]) {
      const client = open('sotw', path);
      client.raw(
        Buffer.from(
          toBinary(DiscoveryRequestSchema, create(DiscoveryRequestSchema, { typeUrl: typeOf('cds') })),
        ),
      );
      await ends(client, Code.INVALID_ARGUMENT, /node/);
    }
  });

  it('§3.1 a changed node is taken: the variants for what it says now', async () => {
    await using client = new XdsClient(relay.xds, 'delta', { node: { id: 'a', metadata: { env: 'prod' } } });
    client.subscribe('rds', ['main']);
    expect(bodyOf(await client.gets('rds'))).to.contain('prod');
    client.delta('rds', { node: create(NodeSchema, { id: 'a', metadata: { env: 'test' } }) });
    expect(bodyOf(await client.gets('rds', 2))).to.contain('test');
  });

  it('100,000 names: RESOURCE_EXHAUSTED with the limit', async () => {
    const names = Array.from({ length: 100_000 }, (_, index) => `name-${index}`);
    for (const protocol of ['sotw', 'delta'] as const) {
      const client = open(protocol);
      client.subscribe('eds', names);
      await ends(
        client,
        Code.RESOURCE_EXHAUSTED,
        /100000 .*at most 10000 .*\(limits\.max_subscriptions_per_stream\)/,
      );
    }
    await eventually(async () => expect(await relay.metric('downstream_streams')).to.equal(1));
    // Refused before anything was subscribed: neither the cache nor an upstream has heard of them.
    expect(await relay.metric('cache_lookups_total', 'type="eds"')).to.be.NaN;
  });

  it('names and keys such as __proto__ and constructor are names and keys like any other', async () => {
    const odd = { ['__proto__']: 'x', constructor: 'y', env: 'prod' };
    const metadata: Record<string, string> = Object.fromEntries(Object.entries(odd));
    await using client = new XdsClient(relay.xds, 'delta', { node: { id: '__proto__', metadata } });
    const asked = ['__proto__', 'constructor', 'toString', 'valueOf'];
    client.subscribe('eds', asked);
    await eventually(() => {
      const answers = client.of('eds');
      expect(answers.flatMap(deltaNames).toSorted()).to.deep.equal(['__proto__', 'constructor', 'toString']);
      expect(answers.flatMap(({ removed }) => removed)).to.deep.equal(['valueOf']);
    });
    client.delta('cds', {
      resourceLocatorsSubscribe: [
        {
          name: '__proto__',
          dynamicParameters: Object.fromEntries([
            ['__proto__', 'a'],
            ['constructor', 'b'],
          ]),
        },
      ],
      initialResourceVersions: Object.fromEntries([
        ['__proto__', '1'],
        ['constructor', '2'],
      ]),
    });
    client.delta('__proto__/constructor', { resourceNamesSubscribe: ['__proto__'] });
    client.delta('hasOwnProperty', { resourceNamesSubscribe: ['__proto__'] });
    await client.gets('cds');
    expect(client.status).to.equal(undefined);
  });

  it('strange names are answered or refused as INVALID_ARGUMENT, never more', async () => {
    for (const name of [
      ...strangeNames,
      'xdstp://',
      'xdstp:///x',
      'xdstp://a/b/c?x=1&x=2',
      'x'.repeat(1_000_000),
    ]) {
      await using client = open('delta');
      client.subscribe('eds', [name]);
      client.subscribe('cds');
      await eventually(() => {
        const over = client.status?.code === Code.INVALID_ARGUMENT;
        expect(over || client.of('cds').length > 0, JSON.stringify(name.slice(0, 30))).to.equal(true);
      });
    }
  });

  it('v2 paths, unknown methods and services: UNIMPLEMENTED', async () => {
    for (const [path, message] of [
      ['/envoy.service.discovery.v2.AggregatedDiscoveryService/StreamAggregatedResources', /v2 was removed/],
      ['/envoy.api.v2.ClusterDiscoveryService/StreamClusters', /v2 was removed/],
      [`${cdsService}/NoSuchMethod`, /not served/],
      ['/no.such.Service/Method', /not served/],
      ['/', /not served/],
    ] as const) {
      const client = open('sotw', path);
      client.subscribe('cds');
      await ends(client, Code.UNIMPLEMENTED, message);
    }
  });

  it('a stream is opened and reset a thousand times: nothing is left of them', async () => {
    for (let round = 0; round < 20; round++) {
      const clients = Array.from({ length: 50 }, () => open('delta'));
      for (const client of clients) client.subscribe('cds');
      await Promise.all(clients.map((client) => client[Symbol.asyncDispose]()));
    }
    await eventually(async () => expect(await relay.metric('downstream_streams')).to.equal(1));
  });

  it('counts what it refused, by reasons of its own', async () => {
    const { body } = await relay.get('/metrics');
    const reasons = [
      ...body.matchAll(/^distributary_downstream_rejected_total\{reason="(\w+)"\} [1-9]/gm),
    ].map(([, reason]) => reason);
    expect(reasons).to.include.members(['malformed', 'no_node', 'type', 'subscriptions']);
  });
});

const bodyOf = ({ first }: Received): string => first.map((bytes) => bytes.toString('latin1')).join();

const variant = (env: string): string => `
  - "@type": type.googleapis.com/envoy.service.discovery.v3.Resource
    resource_name:
      name: main
      dynamic_parameter_constraints: { constraint: { key: env, value: ${env} } }
    resource:
      "@type": type.googleapis.com/envoy.config.route.v3.RouteConfiguration
      name: main
      virtual_hosts: [{ name: ${env}, domains: ["*"] }]`;
const variants = `version_info: "1"
type_url: type.googleapis.com/envoy.config.route.v3.RouteConfiguration
resources:${variant('prod')}${variant('test')}
`;
