import { once } from 'node:events';
import { fromBinary } from '@bufbuild/protobuf';
import { createClient } from '@connectrpc/connect';
import { createConnectTransport, createGrpcTransport, Http2SessionManager } from '@connectrpc/connect-node';
import { expect } from 'chai';
import { ClientResourceStatus } from '../../src/gen/envoy/admin/v3/config_dump_shared_pb.ts';
import { AggregatedDiscoveryService } from '../../src/gen/envoy/service/discovery/v3/ads_pb.ts';
import {
  type ClientConfig,
  ClientStatusDiscoveryService,
  ClientStatusResponseSchema,
  ConfigStatus,
} from '../../src/gen/envoy/service/status/v3/csds_pb.ts';
import { Code } from '../../src/wire/grpc-status.ts';
import { envoyRegistry } from '../../src/wire/registry.ts';
import { nextMessage, openCall } from '../support/grpc-calls.ts';
import { type } from '../support/in-memory-relay.ts';
import { explainedOf, run } from './support/command.ts';
import { clientStatus, nodesOf } from './support/csds.ts';
import { always, eventually } from './support/eventually.ts';
import { ResourceFiles } from './support/files.ts';
import { ModelPlane } from './support/model-plane.ts';
import { ClientPool, type RecordedResponse, type RecordingClient } from './support/recording-client.ts';
import { RelayProcess } from './support/relay.ts';
import { clientsOf, csdsOf, statusOf } from './support/relay-state.ts';

const states = new Map<number, string>(Object.entries(ConfigStatus).map(([name, value]) => [value, name]));

describe('what clients make of what they are told', () => {
  let plane: ModelPlane;
  let relay: RelayProcess;
  let pool: ClientPool;
  let good: RecordingClient;
  let bad: RecordingClient;

  before(async () => {
    plane = await ModelPlane.start();
    plane.set('cds', { a: '1', b: '1' });
    plane.set('eds', { a: '1' });
    relay = await RelayProcess.start({
      upstreams: [{ name: 'central', ads: { endpoints: [plane.address], resource_timeout: '500ms' } }],
    });
    pool = new ClientPool(relay.xds, 1);
    good = pool.open('delta', 'good');
    bad = pool.open('delta', 'bad');
    const isBad = ({ resources }: RecordedResponse) => resources.get('b') === '2';
    bad.rejects = (said) => (isBad(said) ? 'b is no good' : undefined);
    for (const client of [good, bad]) {
      client.subscribe('cds');
      client.subscribe('eds', ['a', 'nowhere']);
      await client.gets('cds', { a: '1', b: '1' });
      await client.gets('eds', { a: '1' });
    }
  });

  after(async () => {
    pool?.[Symbol.dispose]();
    await relay?.[Symbol.asyncDispose]();
    await plane?.[Symbol.asyncDispose]();
  });

  /** The clusters after the test of what is rejected. */
  const current = { a: '3', b: '4' };

  const csds = (request?: Parameters<typeof clientStatus>[1]) => clientStatus(pool.connection, request);
  const stateOf = (configs: readonly ClientConfig[], id: string): Record<string, string> => {
    const config = configs.find(({ node }) => node?.id === id);
    return Object.fromEntries(
      (config?.genericXdsConfigs ?? []).map(({ typeUrl, name, configStatus }) => [
        `${typeUrl.slice(typeUrl.lastIndexOf('.') + 1)} ${name}`,
        states.get(configStatus) ?? '',
      ]),
    );
  };

  it('SYNCED, and NOT_SENT for what does not exist: over gRPC, unary and streaming, and over Connect', async () => {
    const expected = {
      'Cluster a': 'SYNCED',
      'Cluster b': 'SYNCED',
      'ClusterLoadAssignment a': 'SYNCED',
      'ClusterLoadAssignment nowhere': 'NOT_SENT',
    };
    await eventually(async () => {
      const told = await csds();
      for (const id of ['good', 'bad']) expect(stateOf(told, id)).to.deep.equal(expected);
    });
    const path = '/envoy.service.status.v3.ClientStatusDiscoveryService/StreamClientStatus';
    const call = openCall(pool.connection, path);
    for (let asked = 0; asked < 2; asked++) {
      const answer = nextMessage(call);
      call.write(Buffer.alloc(0));
      expect(stateOf(fromBinary(ClientStatusResponseSchema, await answer).config, 'bad')).to.deep.equal(
        expected,
      );
    }
    call.end();
    const told = await csdsOf(relay, 'good');
    expect(told.toSorted()).to.deep.equal(['NOT_SENT', 'SYNCED', 'SYNCED', 'SYNCED']);
  });

  it('node_matchers: only those nodes; on the admin listener the relay itself too, if it is one', async () => {
    const matching = (exact: readonly string[]) =>
      exact.map((id) => ({ nodeId: { matchPattern: { case: 'exact' as const, value: id } } }));
    const ids = async (...exact: readonly string[]) => nodesOf(await csds({ nodeMatchers: matching(exact) }));
    expect(await ids()).to.deep.equal(['bad', 'good']);
    expect(await ids('good')).to.deep.equal(['good']);
    expect(await ids('relay', 'bad')).to.deep.equal(['bad']);
    const orAny = { nodeMatchers: [...matching(['good']), {}] };
    expect(nodesOf(await csds(orAny)), 'an empty matcher matches every node').to.deep.equal(['bad', 'good']);
    const admin = createClient(
      ClientStatusDiscoveryService,
      createConnectTransport({ baseUrl: `http://${relay.admin}`, httpVersion: '1.1' }),
    );
    const told = async (...exact: readonly string[]) =>
      nodesOf((await admin.fetchClientStatus({ nodeMatchers: matching(exact) })).config);
    expect(await told()).to.deep.equal(['bad', 'good', 'relay']);
    expect(await told('relay', 'bad')).to.deep.equal(['bad', 'relay']);
  });

  it('over Connect with JSON on the xDS port too, whatever the resources hold', async () => {
    const baseUrl = `http://${relay.xds}`;
    const sessionManager = new Http2SessionManager(baseUrl, { idleConnectionTimeoutMs: 100 });
    const json = createClient(
      ClientStatusDiscoveryService,
      createConnectTransport({
        baseUrl,
        httpVersion: '2',
        useBinaryFormat: false,
        jsonOptions: { registry: envoyRegistry() },
        sessionManager,
      }),
    );
    const grpc = createGrpcTransport({ baseUrl, sessionManager });
    const leave = new AbortController();
    const subscribes = (async function* () {
      yield { node: { id: 'third' }, typeUrl: type('cds') };
      await once(leave.signal, 'abort');
    })();
    const discovery = createClient(AggregatedDiscoveryService, grpc);
    const stream = discovery.streamAggregatedResources(subscribes, { signal: leave.signal });
    await stream[Symbol.asyncIterator]().next();
    const bodies = ({ config }: { config: readonly ClientConfig[] }) =>
      config.flatMap(({ genericXdsConfigs }) => genericXdsConfigs).filter(({ xdsConfig }) => xdsConfig)
        .length;
    expect(bodies(await json.fetchClientStatus({}))).to.be.above(0);
    const asked = (async function* () {
      yield {};
    })();
    for await (const answer of json.streamClientStatus(asked)) expect(bodies(answer)).to.be.above(0);
    leave.abort();
  });

  it('ERROR with version and reason; a rejected response is not sent again until its content changes', async () => {
    const before = bad.of('cds').length;
    plane.set('cds', { a: '1', b: '2' });
    await good.gets('cds', { a: '1', b: '2' });
    await eventually(() => expect(bad.of('cds')).to.have.length(before + 1));
    await eventually(async () => {
      const config = await csds();
      expect(stateOf(config, 'good')).to.include({ 'Cluster b': 'SYNCED' });
      const one = config.find(({ node }) => node?.id === 'bad');
      const cluster = one?.genericXdsConfigs.find(
        ({ name, typeUrl }) => name === 'b' && typeUrl.endsWith('Cluster'),
      );
      expect(cluster?.configStatus).to.equal(ConfigStatus.ERROR);
      expect(cluster?.errorState?.details).to.equal('b is no good');
    });
    const types = (await clientsOf(relay)).find(({ node }) => node.id === 'bad')?.types ?? [];
    expect(types.find(({ type }) => type === 'cds')).to.include({
      state: 'ERROR',
      last_nack: 'b is no good',
    });
    await eventually(async () => {
      const { nacks } = await statusOf(relay);
      expect(nacks).to.have.length(1);
      expect(nacks[0]).to.include({ type: 'cds', name: 'b', clients: 1, error: 'b is no good' });
    });
    expect(await relay.metric('downstream_requests_total', 'kind="nack"')).to.equal(1);
    await always(() => {
      expect(bad.of('cds')).to.have.length(before + 1);
    }, 500);
    // Something else changes: what was rejected does not come with it.
    plane.set('cds', { a: '3', b: '2' });
    await eventually(() => expect(bad.of('cds')).to.have.length(before + 2));
    expect([...(bad.of('cds').at(-1)?.resources ?? [])]).to.deep.equal([['a', '3']]);
    // Its ACK is about that: what was rejected stays so, for CSDS, for the status and for explain.
    await eventually(async () => {
      const told = stateOf(await csds(), 'bad');
      expect(told).to.include({ 'Cluster a': 'SYNCED', 'Cluster b': 'ERROR' });
    });
    expect((await statusOf(relay)).nacks.map(({ name, error }) => [name, error])).to.deep.equal([
      ['b', 'b is no good'],
    ]);
    expect(await explainedOf(relay, 'bad', 'cds', 'a')).to.match(/^It has the variant \(all\), version/m);
    expect(await explainedOf(relay, 'bad', 'cds', 'b')).to.match(
      /^It has rejected the variant \(all\), version .*[^:]\.$/m,
    );
    plane.set('cds', { a: '3', b: '4' });
    await bad.gets('cds', { a: '3', b: '4' });
    await eventually(async () => {
      expect((await statusOf(relay)).nacks).to.deep.equal([]);
      expect(stateOf(await csds(), 'bad')).to.include({
        'Cluster b': 'SYNCED',
      });
    });
  });

  it('a rejected removal has its name, and each client counts once, however much it rejects', async () => {
    const keeps = [pool.open('delta', 'keeps-1'), pool.open('delta', 'keeps-2')];
    const before = (await statusOf(relay)).rejecting_clients;
    for (const client of keeps) {
      client.rejects = ({ removed, resources }) =>
        removed.length > 0 || resources.get('y') === '2' ? 'I keep them' : undefined;
      client.subscribe('cds');
    }
    const all = { ...current, x: '1', y: '1' };
    plane.set('cds', all);
    for (const client of keeps) await client.gets('cds', all);
    plane.set('cds', { ...current, y: '2' });
    await eventually(async () => {
      const { nacks, rejecting_clients } = await statusOf(relay);
      const ours = nacks.filter(({ error }) => error === 'I keep them');
      const told = ours.map(({ what, clients }) => `${what} ${clients}`);
      expect(told.toSorted()).to.deep.equal(['removal of x 2', 'y 2']);
      expect(rejecting_clients).to.equal(before + 2);
    });
    // Whoever asks within a second gets the same list of problems.
    await eventually(async () => {
      const { out } = await run('status', '--admin', `http://${relay.admin}`);
      expect(out).to.match(/^critical: 2 clients with .* reject cds removal of x \(for .*\n {2}I keep them/m);
    });
    expect(await explainedOf(relay, 'keeps-1', 'cds', 'x')).to.match(
      /^It was told that this resource was removed, and has rejected that\.$/m,
    );
    for (const client of keeps) client[Symbol.dispose]();
    plane.set('cds', current);
    await good.gets('cds', current);
  });

  it('what was sent and not acknowledged: STALE, and explain does not say that the client has it', async () => {
    const silent = pool.open('delta', 'silent');
    silent.answers = false;
    silent.subscribe('eds', ['a']);
    await silent.gets('eds', { a: '1' });
    expect(stateOf(await csds(), 'silent')).to.deep.equal({ 'ClusterLoadAssignment a': 'STALE' });
    const sent = /^It was sent the variant \(all\), version .*, and has not acknowledged it yet\.$/m;
    expect(await explainedOf(relay, 'silent', 'eds', 'a')).to.match(sent);
    silent[Symbol.dispose]();
  });

  it('a late NACK of an earlier response is shown, though a later one was accepted', async () => {
    const late = pool.open('delta', 'late');
    late.answers = false;
    late.subscribe('cds');
    await late.gets('cds', current);
    late.subscribe('eds', ['a']);
    await eventually(() => expect(late.of('eds')).to.have.length(1));
    late.subscribe('cds', ['a']);
    await eventually(() => expect(late.of('cds')).to.have.length(2));
    const [first, second] = late.of('cds');
    late.answer('cds', second?.nonce ?? '');
    late.answer('cds', first?.nonce ?? '', 'too late');
    await eventually(async () => {
      const { types = [] } = (await clientsOf(relay)).find(({ node }) => node.id === 'late') ?? {};
      expect(types.find((one) => one.type === 'cds')).to.include({ state: 'ERROR', last_nack: 'too late' });
    });
    late[Symbol.dispose]();
  });

  it('a NACK of a SotW response names no resource: any of them may be at fault', async () => {
    const whole = pool.open('sotw', 'whole');
    whole.rejects = ({ resources }) => (resources.get('a') === '9' ? 'no' : undefined);
    whole.subscribe('cds');
    await whole.gets('cds', current);
    plane.set('cds', { ...current, a: '9' });
    await eventually(async () => {
      const told = stateOf(await csds(), 'whole');
      expect(told).to.deep.equal({ 'Cluster a': 'ERROR', 'Cluster b': 'ERROR' });
    });
    await eventually(async () => {
      const { nacks } = await statusOf(relay);
      expect(nacks.map(({ name, error }) => [name, error])).to.deep.equal([['', 'no']]);
    });
    whole[Symbol.dispose]();
  });

  it('§9 the relay itself: what is served by an alias or a glob is not said to be missing', async () => {
    using files = new ResourceFiles();
    const host = `{ "@type": ${type('vhds')}, name: bar, domains: [bar] }`;
    const wrapper = 'type.googleapis.com/envoy.service.discovery.v3.Resource';
    const glob = 'xdstp://site/envoy.config.cluster.v3.Cluster/*';
    const member = glob.replace('*', 'one');
    files.writeText(
      'all.yaml',
      `resources:
  - { "@type": ${wrapper}, name: rc/bar, aliases: [rc/foo], resource: ${host} }
  - { "@type": ${type('cds')}, name: "${member}" }`,
    );
    await using serving = await RelayProcess.start({ upstreams: [files.upstream] });
    using clients = new ClientPool(serving.xds);
    const client = clients.open('delta');
    client.subscribe('vhds', ['rc/foo', 'rc/nobody']);
    client.subscribe('cds', [glob]);
    const own = createClient(
      ClientStatusDiscoveryService,
      createConnectTransport({ baseUrl: `http://${serving.admin}`, httpVersion: '1.1' }),
    );
    await eventually(async () => {
      const config = (await own.fetchClientStatus({})).config.find(({ node }) => node?.id === 'relay');
      const told = config?.genericXdsConfigs.map(({ name, clientStatus }) => [name, clientStatus]);
      expect(Object.fromEntries(told ?? [])).to.deep.equal({
        'rc/bar': ClientResourceStatus.ACKED,
        [member]: ClientResourceStatus.ACKED,
        'rc/nobody': ClientResourceStatus.DOES_NOT_EXIST,
      });
    });
  });

  it('limits.max_response_bytes: a larger response is not sent, RESOURCE_EXHAUSTED; counted, and logged once', async () => {
    const some = (count: number) =>
      Object.fromEntries(Array.from({ length: count }, (_, at) => [`cluster-${at}`, 'x']));
    await using large = await ModelPlane.start();
    large.set('cds', some(40));
    await using small = await RelayProcess.start({
      upstreams: [{ name: 'central', ads: { endpoints: [large.address] } }],
      limits: { max_response_bytes: 5000 },
    });
    using clients = new ClientPool(small.xds);
    const first = clients.open('delta');
    first.subscribe('cds');
    await first.gets('cds', some(40));
    // Another 40 are a small response to whoever has the first ones, and all of them a large one.
    large.set('cds', some(80));
    await first.gets('cds', some(80));
    for (const protocol of ['delta', 'sotw'] as const) {
      const client = clients.open(protocol);
      client.subscribe('cds');
      const { code, details } = await client.ends();
      expect(code).to.equal(Code.RESOURCE_EXHAUSTED);
      expect(details).to.include('limits.max_response_bytes');
      expect(client.said).to.deep.equal([]);
    }
    expect(first.status).to.equal(undefined);
    expect(await small.metric('downstream_rejected_total', 'response_bytes')).to.equal(2);
    expect(await small.says(/max_response_bytes/)).to.have.length.within(1, 2);
  });
});
