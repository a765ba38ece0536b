import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { create, toBinary } from '@bufbuild/protobuf';
import { expect } from 'chai';
import { DiscoveryRequestSchema } from '../../src/gen/envoy/service/discovery/v3/discovery_pb.ts';
import { frameOf } from '../../src/wire/grpc-frames.ts';
import { Code } from '../../src/wire/grpc-status.ts';
import { type Issued, issueCertificate } from '../support/certificates.ts';
import { type as typeOf } from '../support/in-memory-relay.ts';
import { eventually } from './support/eventually.ts';
import { ResourceFiles } from './support/files.ts';
import { type TemporaryDirectory, temporaryDirectory } from './support/paths.ts';
import { type Credentials, RawConnection, type RawStream, tcp } from './support/raw-http2.ts';
import { RelayProcess } from './support/relay.ts';
import { deltaNames, XdsClient } from './support/xds-client.ts';

const authority = issueCertificate({ name: 'authority', authority: true });
const server = issueCertificate({ name: 'relay', issuer: authority, ips: ['127.0.0.1'] });
const tenant = (name: string): Issued =>
  issueCertificate({ name, issuer: authority, uris: [`spiffe://example.com/${name}`] });

const firstRequest = Buffer.from(
  toBinary(
    DiscoveryRequestSchema,
    create(DiscoveryRequestSchema, { node: { id: 'raw' }, typeUrl: typeOf('cds') }),
  ),
);

/** Attacks by connections and streams that cost a client nothing. */
describe('hostile connections', function () {
  this.timeout(180_000);
  let files: ResourceFiles;
  let pem: TemporaryDirectory;
  const open: Disposable[] = [];

  before(() => {
    pem = temporaryDirectory();
    files = new ResourceFiles();
    files.write('cds', new Map([['shop', '0']]));
  });

  afterEach(() => {
    for (const one of open.splice(0)) one[Symbol.dispose]();
  });

  after(() => {
    files?.[Symbol.dispose]();
    pem?.[Symbol.dispose]();
  });

  const start = (limits: object, more: object = {}): Promise<RelayProcess> =>
    RelayProcess.start({ upstreams: [files.upstream], limits, ...more });

  function write(name: string, text: string): string {
    const path = join(pem.path, name);
    writeFileSync(path, text);
    return path;
  }

  const mutualTls = () => ({
    tls: {
      ca: write('ca.crt', authority.certificate),
      certificate: write('server.crt', server.certificate),
      private_key: write('server.key', server.privateKey),
      require_client_certificate: true,
    },
  });

  const as = (who: Issued): Credentials => ({
    ca: authority.certificate,
    cert: who.certificate,
    key: who.privateKey,
  });

  function connection(relay: RelayProcess, tls?: Credentials): RawConnection {
    const made = new RawConnection(relay.xds, tls);
    open.push(made);
    return made;
  }

  /** Streams of one connection that the relay has taken, and that say nothing. */
  async function silentStreams(relay: RelayProcess, count: number): Promise<readonly RawStream[]> {
    const before = await relay.metric('downstream_streams');
    const from = await connection(relay).ready();
    const streams = Array.from({ length: count }, () => from.call());
    await eventually(async () =>
      expect(await relay.metric('downstream_streams')).to.equal((before || 0) + count),
    );
    return streams;
  }

  const messages = (relay: RelayProcess): readonly string[] => relay.log.map(({ message }) => message);

  async function isServed(relay: RelayProcess): Promise<void> {
    await using client = new XdsClient(relay.xds, 'delta');
    client.subscribe('cds');
    const received = await client.gets('cds');
    expect(deltaNames(received)).to.deep.equal(['shop']);
  }

  it('silent streams up to max_streams: they end after first_request_timeout, and good clients are served', async () => {
    await using relay = await start({ max_streams: 20, first_request_timeout: '4s' });
    await using good = new XdsClient(relay.xds, 'delta');
    good.subscribe('cds');
    await good.gets('cds');
    const silent = await silentStreams(relay, 19);
    const endings = await Promise.all(silent.map(({ ends }) => ends));
    for (const { code, details } of endings) {
      expect([code, details]).to.deep.equal([
        Code.DEADLINE_EXCEEDED,
        'no request came within 4000 ms (limits.first_request_timeout)',
      ]);
    }
    expect(await relay.metric('downstream_rejected_total', 'first_request')).to.equal(19);
    await isServed(relay);
    expect(good.status, 'one that has asked may be silent').to.equal(undefined);
  });

  it('calls of Fetch have places of max_streams too', async () => {
    await using relay = await start({ max_streams: 20, first_request_timeout: '4s' });
    const from = await connection(relay).ready();
    const path = '/envoy.service.cluster.v3.ClusterDiscoveryService/FetchClusters';
    const calls = Array.from({ length: 30 }, () => from.call(path));
    const endings = await Promise.all(calls.map(({ ends }) => ends));
    const codes = Map.groupBy(endings, ({ code }) => code);
    expect(codes.get(Code.RESOURCE_EXHAUSTED)).to.have.length(10);
    expect(codes.get(Code.DEADLINE_EXCEEDED)).to.have.length(20);
    expect(await relay.metric('downstream_rejected_total', '"streams"')).to.equal(10);
    await isServed(relay);
  });

  it('a first request that trickles in ends after first_request_timeout too', async () => {
    await using relay = await start({ first_request_timeout: '4s' });
    const [slow] = await silentStreams(relay, 1);
    if (slow === undefined) throw new Error('no stream');
    slow.begin(1_000_000, 1);
    const trickle = setInterval(() => slow.stream.write(Buffer.alloc(1)), 100);
    const { code } = await slow.ends;
    clearInterval(trickle);
    expect(code).to.equal(Code.DEADLINE_EXCEEDED);
  });

  it('a request that waits for the turn of its peer is not late', async () => {
    await using relay = await start({ first_request_timeout: '1s', max_held_bytes_per_peer: 2 ** 30 });
    const connections = await Promise.all(Array.from({ length: 50 }, () => connection(relay).ready()));
    // Each takes tens of milliseconds, and they come at once.
    const calls = connections.map((from, at) => {
      const resourceNames = Array.from({ length: 3000 }, (_, index) => `${at}-${index}`);
      const fields = { node: { id: 'raw' }, typeUrl: typeOf('cds'), resourceNames };
      const call = from.call('/envoy.service.cluster.v3.ClusterDiscoveryService/FetchClusters');
      const request = create(DiscoveryRequestSchema, fields);
      call.stream.end(frameOf(Buffer.from(toBinary(DiscoveryRequestSchema, request))));
      return call;
    });
    const endings = await Promise.all(calls.map(({ ends }) => ends));
    expect(endings.filter(({ code }) => code === Code.DEADLINE_EXCEEDED)).to.deep.equal([]);
  });

  it('connections that are cut, or speak no HTTP/2, leave no warning in the log', async () => {
    await using relay = await start({});
    const preface = Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n');
    for (const bytes of [preface, Buffer.concat([preface, Buffer.alloc(100, 0xff)]), Buffer.alloc(100, 1)]) {
      const cut = await tcp(relay.xds);
      const closed = once(cut, 'close');
      await new Promise((written) => cut.write(bytes, written));
      cut.resetAndDestroy();
      await closed;
    }
    const streaming = await connection(relay).ready();
    streaming.call().stream.write(frameOf(firstRequest));
    await eventually(async () => expect(await relay.metric('downstream_streams')).to.equal(1));
    streaming.session.socket.destroy();
    await eventually(async () => expect(await relay.metric('downstream_connections')).to.equal(0));
    await isServed(relay);
    expect(relay.faults('warn')).to.deep.equal([]);
  });

  it('a later request that trickles in ends after stalled_timeout', async () => {
    await using relay = await start({ stalled_timeout: '2s' });
    await using slow = new XdsClient(relay.xds, 'delta');
    slow.subscribe('cds');
    await slow.gets('cds');
    const from = await connection(relay).ready();
    const trickling = from.call();
    trickling.stream.write(frameOf(firstRequest));
    trickling.begin(1_000_000, 1);
    const trickle = setInterval(() => trickling.stream.write(Buffer.alloc(1)), 100);
    const { code, details } = await trickling.ends;
    clearInterval(trickle);
    expect(code).to.equal(Code.DEADLINE_EXCEEDED);
    expect(details).to.include('limits.stalled_timeout');
    expect(await relay.metric('downstream_rejected_total', 'half_sent')).to.equal(1);
    expect(slow.status, 'one that sends nothing is not slow').to.equal(undefined);
  });

  it('40 half-sent messages of 4 MiB: what they hold is bounded, and small requests are served', async () => {
    await using relay = await RelayProcess.startMeasurable({
      upstreams: [files.upstream],
      limits: { first_request_timeout: '120s' }, // it is the bytes that are refused
    });
    await isServed(relay);
    const before = await relay.memory();
    const streams: RawStream[] = [];
    for (let count = 0; count < 4; count++) {
      const from = await connection(relay).ready();
      for (let index = 0; index < 10; index++) {
        const stream = from.call();
        stream.begin(4 << 20, (4 << 20) - 1);
        streams.push(stream);
      }
    }
    const refused = () => streams.filter(({ status }) => status !== undefined);
    await eventually(() => expect(refused().length).to.be.at.least(24));
    await isServed(relay);
    const { used } = await relay.memory();
    expect((used - before.used) / 2 ** 20).to.be.below(100);
    for (const { status } of refused()) {
      expect(status?.code).to.equal(Code.RESOURCE_EXHAUSTED);
    }
    expect(await relay.metric('downstream_rejected_total', 'half_sent')).to.be.at.least(20);
  });

  it('peers that may read nothing are refused before their first message, and hold no place', async () => {
    const rules = [{ principals: ['spiffe://example.com/good'], allow: true }];
    await using relay = await start({ max_streams: 2 }, { xds: { authorization: { rules } } });
    const from = await connection(relay).ready();
    const endings = await Promise.all(Array.from({ length: 50 }, () => from.call().ends));
    for (const { code, details } of endings) {
      expect([code, details]).to.deep.equal([
        Code.PERMISSION_DENIED,
        'this client may not subscribe to anything',
      ]);
    }
    expect(await relay.metric('downstream_rejected_total', 'denied')).to.equal(50);
    expect(await relay.metric('downstream_rejected_total', '"streams"')).to.equal(0);
  });

  it('on the service of a type that is denied: refused before the first message', async () => {
    const rules = [{ types: ['cds'], allow: true }];
    await using relay = await start({}, { xds: { authorization: { rules } } });
    const from = await connection(relay).ready();
    const { code, details } = await from.call('/envoy.service.secret.v3.SecretDiscoveryService/StreamSecrets')
      .ends;
    expect(code).to.equal(Code.PERMISSION_DENIED);
    expect(details).to.include('Secret');
    await isServed(relay);
  });

  it('max_streams_per_peer by address: another connection of the same address does not help', async () => {
    await using relay = await start({ max_streams_per_peer: 3 });
    await using good = new XdsClient(relay.xds, 'delta');
    good.subscribe('cds');
    await good.gets('cds');
    const taken = await silentStreams(relay, 2);
    const { code, details } = await (await connection(relay).ready()).call().ends;
    expect(code).to.equal(Code.RESOURCE_EXHAUSTED);
    expect(details).to.match(/^address 127\.0\.0\.1 has 3 streams open, .*limits\.max_streams_per_peer/);
    expect(await relay.metric('downstream_rejected_total', 'streams_per_peer')).to.equal(1);
    taken[0]?.stream.close();
    await eventually(() => isServed(relay));
    expect(good.status).to.equal(undefined);
  });

  it('max_streams_per_peer and max_connections_per_peer by certificate: other tenants are served', async () => {
    const limits = { max_streams_per_peer: 2, max_connections_per_peer: 2 };
    await using relay = await start(limits, { xds: mutualTls() });
    const greedy = as(tenant('greedy'));
    const one = await connection(relay, greedy).ready();
    const two = await connection(relay, greedy).ready();
    one.call();
    two.call();
    await eventually(async () => expect(await relay.metric('downstream_streams')).to.equal(2));
    expect((await two.call().ends).details).to.match(
      /^identity spiffe:\/\/example\.com\/greedy has 2 streams open/,
    );
    await connection(relay, greedy).ended;
    expect(await relay.metric('downstream_rejected_total', 'connections_per_peer')).to.equal(1);
    await eventually(() =>
      expect(messages(relay)).to.include(
        'identity spiffe://example.com/greedy has 2 connections open, the maximum for one peer (limits.max_connections_per_peer)',
      ),
    );
    const modest = await connection(relay, as(tenant('modest'))).ready();
    modest.call();
    await eventually(async () => expect(await relay.metric('downstream_streams')).to.equal(3));
    expect(await relay.metric('downstream_connections')).to.equal(3);
    one[Symbol.dispose]();
    await eventually(async () => (await connection(relay, greedy).ready()).session.closed);
  });

  it('relay_peers are bound by neither', async () => {
    const limits = {
      max_streams_per_peer: 1,
      max_connections_per_peer: 1,
      relay_peers: ['spiffe://example.com/relay'],
    };
    await using relay = await start(limits, { xds: mutualTls() });
    const own = as(tenant('relay'));
    for (let index = 0; index < 2; index++) {
      const from = await connection(relay, own).ready();
      from.call();
      from.call();
    }
    await eventually(async () => expect(await relay.metric('downstream_streams')).to.equal(4));
  });

  it('connections above max_connections are closed, counted and said once; those that are open go on', async () => {
    await using relay = await start({ max_connections: 3 });
    await using good = new XdsClient(relay.xds, 'delta');
    good.subscribe('cds');
    await good.gets('cds');
    const held = [await tcp(relay.xds), await tcp(relay.xds)];
    await eventually(async () => expect(await relay.metric('downstream_connections')).to.equal(3));
    for (let refused = 0; refused < 5; refused++) await connection(relay).ended;
    expect(await relay.metric('downstream_rejected_total', '"connections"')).to.equal(5);
    await eventually(() =>
      expect(messages(relay).filter((one) => one.includes('(limits.max_connections)'))).to.deep.equal([
        '3 connections are open, the maximum of this relay (limits.max_connections): others are refused',
      ]),
    );
    files.write('cds', new Map([['shop', '1']]));
    await eventually(() => expect(good.of('cds')).to.have.length(2));
    for (const socket of held) socket.destroy();
    await eventually(() => isServed(relay));
    files.write('cds', new Map([['shop', '0']]));
  });

  it('connections that say nothing give way while there are too many', async () => {
    await using relay = await start({ max_connections: 4 });
    await using good = new XdsClient(relay.xds, 'delta');
    good.subscribe('cds');
    await good.gets('cds');
    const silent = await Promise.all([tcp(relay.xds), tcp(relay.xds), tcp(relay.xds)]);
    for (const socket of silent) socket.resume();
    await connection(relay).ended;
    await eventually(() => isServed(relay));
    expect(await relay.metric('downstream_rejected_total', 'idle')).to.be.at.least(1);
    expect(good.status, 'one that has a stream stays').to.equal(undefined);
    for (const socket of silent) socket.destroy();
  });

  it('a TLS handshake that trickles in ends after 15 s, on xds and on rest', async () => {
    const rest = { ...mutualTls(), address: '127.0.0.1:0' };
    await using relay = await start({}, { xds: mutualTls(), rest });
    await Promise.all(
      [relay.xds, relay.rest].map(async (address) => {
        const started = Date.now();
        const socket = await tcp(address);
        socket.write(Buffer.from([0x16, 0x03, 0x01, 0x02, 0x00]));
        const trickle = setInterval(() => socket.write(Buffer.of(0)), 500);
        socket.resume();
        socket.on('error', () => undefined); // what trickles in after the end is answered by a reset
        await new Promise((resolve) => socket.once('close', resolve));
        clearInterval(trickle);
        expect(Date.now() - started).to.be.at.least(14_000);
      }),
    );
    await eventually(async () => expect(await relay.metric('downstream_connections')).to.equal(0));
  });

  it('a reload changes the bounds, for what is open too', async () => {
    await using relay = await start({});
    const streams = await silentStreams(relay, 2);
    expect(streams).to.have.length(2);
    const limits = { max_streams_per_peer: 2, max_connections_per_peer: 1 };
    relay.configure({ upstreams: [files.upstream], limits });
    await eventually(async () => expect(await relay.metric('config_reloads_total', 'accepted')).to.equal(1));
    await connection(relay).ended;
    expect(await relay.metric('downstream_rejected_total', 'connections_per_peer')).to.equal(1);
  });
});
