import { setTimeout as sleep } from 'node:timers/promises';
import { create, fromBinary, type MessageInitShape, toBinary } from '@bufbuild/protobuf';
import { Metadata, type StatusObject } from '@grpc/grpc-js';
import { expect } from 'chai';
import {
  DeltaDiscoveryRequestSchema,
  DeltaDiscoveryResponseSchema,
} from '../../src/gen/envoy/service/discovery/v3/discovery_pb.ts';
import { ADS_SERVICE } from '../../src/model/types.ts';
import { INTERESTS_TYPE } from '../../src/wire/between-relays.ts';
import { Code } from '../../src/wire/grpc-status.ts';
import { longTest } from '../support/cases.ts';
import { issueCertificate } from '../support/certificates.ts';
import { openCall, rawClient } from '../support/grpc-calls.ts';
import { type } from '../support/in-memory-relay.ts';
import { ControlPlane } from '../upstream/ads/control-plane.ts';
import { eventually } from './support/eventually.ts';
import { ModelPlane } from './support/model-plane.ts';
import { PemFiles, trusting } from './support/pem-files.ts';
import { cpuSeconds } from './support/process-figures.ts';
import { ClientPool, type RecordingClient, wildcardAnswered } from './support/recording-client.ts';
import { RelayProcess } from './support/relay.ts';
import { readyOf } from './support/relay-state.ts';
import { clusters, endpoints, protocols, replaceAllButOne, started } from './support/replaced-replicas.ts';
import { isReadyAndStale, peersName, Replicas } from './support/replicas.ts';
import { Connections } from './support/variant-client.ts';
import { XdsClient } from './support/xds-client.ts';

/** Subscribes to everything of a fleet, and waits until it has it. */
async function getsAll(client: RecordingClient): Promise<void> {
  client.subscribe('cds');
  client.subscribe('eds', ['a', 'b']);
  await client.gets('cds', clusters);
  await client.gets('eds', endpoints);
}

describe('siblings, on the real process', () => {
  it('a replica that starts in an outage is ready and stale with what the other one has, and not more; then the control plane decides', async () => {
    await using plane = await started();
    await using replicas = await Replicas.of(plane.address);
    const first = await replicas.start();
    using before = new ClientPool(first.xds);
    for (const protocol of protocols) await getsAll(before.open(protocol));
    await wildcardAnswered(before);
    plane.kill();

    const second = await replicas.start();
    await isReadyAndStale(second);
    using pool = new ClientPool(second.xds);
    const clients = protocols.map((protocol) => pool.open(protocol));
    for (const client of clients) await getsAll(client);
    // What no sibling has is unavailable, and not absent.
    for (const protocol of protocols) {
      const other = pool.open(protocol);
      other.subscribe('lds');
      expect((await other.ends()).code).to.equal(Code.UNAVAILABLE);
      expect(other.said).to.deep.equal([]);
    }

    // The first one goes: what it had stays.
    await replicas.kill(first);
    using late = new ClientPool(second.xds);
    for (const protocol of protocols) await getsAll(late.open(protocol));

    plane.set('cds', { a: '2', c: '1', d: '1' });
    await plane.again();
    for (const client of clients) await client.gets('cds', { a: '2', c: '1', d: '1' });
    for (const client of clients) expect(client.status, 'the stream lives').to.equal(undefined);
    await eventually(async () => expect((await readyOf(second)).stale).to.equal(false));
    expect(await second.metric('upstream_from_siblings')).to.equal(0);
  });

  it('replicas without anything do not make each other ready', async () => {
    await using plane = await started();
    plane.kill();
    await using replicas = await Replicas.of(plane.address);
    const both = [await replicas.start(), await replicas.start()];
    for (const relay of both) {
      using pool = new ClientPool(relay.xds);
      const client = pool.open('delta');
      client.subscribe('cds');
      expect((await client.ends()).code).to.equal(Code.UNAVAILABLE);
      expect((await readyOf(relay)).status).to.equal(503);
    }
  });

  it('each replica asks with the parameters of its own clients: variants stay apart', async () => {
    const plane = await new ControlPlane().listen();
    await using stack = new AsyncDisposableStack();
    stack.defer(() => plane.kill());
    plane.answer = (stream, request) => {
      const env = JSON.stringify(request.node?.metadata?.['env'] ?? stream.first?.node?.metadata?.['env']);
      if (request.responseNonce === '') stream.send(type('cds'), '1', `shop-${JSON.parse(env)}:@1`);
    };
    const parameters = [{ key: 'env', from: 'node.metadata.env' }];
    await using replicas = await Replicas.of(`127.0.0.1:${plane.port}`);
    const first = await replicas.start({ parameters });
    using before = new Connections(first.xds);
    const gets = async (connections: Connections, env: string): Promise<void> => {
      for (const protocol of protocols) {
        const client = connections.open({ protocol, node: { id: env, cluster: 'fleet', metadata: { env } } });
        client.want('cds');
        await client.gets('cds', [`shop-${env}: `]);
      }
    };
    await gets(before, 'prod');
    await gets(before, 'test');
    plane.kill();
    const second = await replicas.start({ parameters });
    await isReadyAndStale(second);
    await replicas.kill(first);
    using after = new Connections(second.xds);
    await gets(after, 'prod');
    await gets(after, 'test');
  });

  it('with workers: a worker answers from its cache, the primary asks, and the clients of workers are served', async () => {
    await using plane = await started();
    await using replicas = await Replicas.of(plane.address);
    const first = await replicas.start({ workers: 1 });
    using before = new ClientPool(first.xds);
    for (const protocol of protocols) await getsAll(before.open(protocol));
    await wildcardAnswered(before);
    plane.kill();
    const second = await replicas.start({ workers: 1 });
    await isReadyAndStale(second);
    using pool = new ClientPool(second.xds);
    for (const protocol of protocols) await getsAll(pool.open(protocol));
  });

  it('mutual TLS and trusted parameters: relay_peers are siblings, a tenant that says it is one is refused', async () => {
    const authority = issueCertificate({ name: 'authority', authority: true });
    const server = issueCertificate({
      name: 'replica',
      issuer: authority,
      dns: [peersName],
      uris: ['spiffe://example.com/relay'],
    });
    const tenant = issueCertificate({
      name: 'tenant',
      issuer: authority,
      uris: ['spiffe://example.com/tenant/a'],
    });
    using pem = new PemFiles();
    const ca = pem.write('ca.crt', authority.certificate);
    const identity = pem.identity('replica', server);
    await using plane = await started();
    await using replicas = await Replicas.of(plane.address, {
      server: { ...identity, ca, require_client_certificate: true },
      client: { ...identity, ca },
    });
    const keys = {
      parameters: [{ key: 'tenant', from: 'peer.uri_san', pattern: '/tenant/([^/]+)', trusted: true }],
      limits: { relay_peers: ['spiffe://example.com/relay'] },
    };
    const first = await replicas.start(keys);
    const secure = trusting(authority, tenant);
    await using before = new XdsClient(first.xds, 'delta', { secure, serverName: peersName });
    before.subscribe('cds');
    expect((await before.gets('cds')).resources).to.equal(3);
    plane.kill();
    const second = await replicas.start(keys);
    await isReadyAndStale(second);
    await using after = new XdsClient(second.xds, 'delta', { secure, serverName: peersName });
    after.subscribe('cds');
    expect((await after.gets('cds')).resources).to.equal(3);

    const metadata = new Metadata();
    metadata.set('x-distributary-sibling', 'b/1');
    const call = openCall(after.connection, `/${ADS_SERVICE}/DeltaAggregatedResources`, metadata);
    const status = await new Promise<StatusObject>((resolve) => call.on('status', resolve));
    expect(status.code).to.equal(Code.PERMISSION_DENIED);
    expect(status.details).to.include('limits.relay_peers');
  });

  longTest('who reads what can be asked for is told changes only, and costs next to nothing', async () => {
    const names = Array.from({ length: 27_000 }, (_, index) => `endpoint-${index}`);
    await using plane = await ModelPlane.start();
    plane.set('eds', Object.fromEntries([...names, 'late'].map((name) => [name, '1'])));
    await using relay = await RelayProcess.start({
      upstreams: [{ name: 'central', ads: { endpoints: [plane.address] } }],
    });
    await using more = new AsyncDisposableStack();
    for (let at = 0; at < names.length; at += 9000) {
      const other = more.use(new XdsClient(relay.xds, 'delta'));
      other.subscribe('eds', names.slice(at, at + 9000));
      await other.gets('eds');
    }
    const connection = rawClient(relay.xds, undefined, { 'grpc.max_receive_message_length': -1 });
    using _ = { [Symbol.dispose]: () => connection.close() };
    const metadata = new Metadata();
    metadata.set('x-distributary-sibling', 'b/1');
    const call = openCall(connection, `/${ADS_SERVICE}/DeltaAggregatedResources`, metadata);
    const told: number[] = [];
    let listed = 0;
    const say = (fields: MessageInitShape<typeof DeltaDiscoveryRequestSchema>): void => {
      const request = create(DeltaDiscoveryRequestSchema, { typeUrl: INTERESTS_TYPE, ...fields });
      call.write(Buffer.from(toBinary(DeltaDiscoveryRequestSchema, request)));
    };
    call.on('error', () => {});
    call.on('data', (bytes: Buffer) => {
      const { resources, nonce } = fromBinary(DeltaDiscoveryResponseSchema, bytes);
      told.push(resources.length);
      listed += resources.length;
      say({ responseNonce: nonce });
    });
    say({ node: { id: 'b', cluster: 'b' }, resourceNamesSubscribe: ['*'] });
    await eventually(() => expect(listed).to.be.at.least(names.length));
    const before = cpuSeconds(relay.pid);
    await sleep(4000);
    expect(cpuSeconds(relay.pid) - before, 'CPU in 4 s without a change').to.be.below(0.6);
    const [all, responses] = [listed, told.length];
    await using client = new XdsClient(relay.xds, 'delta');
    client.subscribe('eds', ['late']);
    await eventually(() => expect(listed).to.equal(all + 1));
    expect(told.slice(responses)).to.deep.equal([1]);
    call.cancel();
  });

  it('three replicas, no control plane, two replaced one after the other: every client has everything all the time', async () => {
    await replaceAllButOne(3);
  });
});
