import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Any } from '@bufbuild/protobuf/wkt';
import { expect } from 'chai';
import { z } from 'zod';
import { cases } from '../support/cases.ts';
import { when } from '../support/in-memory-relay.ts';
import { startBackend } from './support/backend.ts';
import { ControlPlane, controlPlaneBinary } from './support/controlplane.ts';
import { Envoy } from './support/envoy.ts';
import { envoyBinary } from './support/envoy-binary.ts';
import { eventually } from './support/eventually.ts';
import { ResourceFiles } from './support/files.ts';
import { root } from './support/paths.ts';
import { RelayProcess, relayCommand, upstream } from './support/relay.ts';
import { type Resource, website } from './support/resources.ts';
import { need } from './support/skip.ts';
import { Connections } from './support/variant-client.ts';
import { writeVariants } from './support/variant-files.ts';

const environments = ['prod', 'test', 'dev'] as const;
const byEnv = [{ key: 'env', from: 'node.metadata.env' }];

/** Endpoints whose locality tells them apart. */
const endpointsOf = (region: string, padding = ''): Resource => ({
  '@type': 'type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment',
  cluster_name: 'shop',
  endpoints: [{ locality: { region, zone: padding } }],
});
const clusterOf = (name: string, alt_stat_name: string): Resource => ({
  '@type': 'type.googleapis.com/envoy.config.cluster.v3.Cluster',
  name,
  alt_stat_name,
});
const regionOf = (any: Any | undefined): string =>
  /in-[a-z]+/.exec(Buffer.from(any?.value ?? []).toString('latin1'))?.[0] ?? '';
const inEnv = (env: string) => ({ id: `client-${env}`, cluster: 'fleet', metadata: { env } });

describe('control planes that decide by node (PER_PARAMETERS)', () => {
  let binary: string;

  before(async function () {
    await need(this, relayCommand());
    binary = await need(this, controlPlaneBinary());
  });

  it('1,000 clients of three environments are three streams, and each gets what its environment has', async () => {
    await using plane = await ControlPlane.start(binary, { cache: 'snapshot', key: 'env' });
    for (const env of environments) await plane.set([endpointsOf(`in-${env}`)], { key: env });
    await using relay = await RelayProcess.start({
      drain_timeout: '100ms',
      upstreams: [upstream(plane.address, 'DELTA')],
      parameters: byEnv,
    });
    using connections = new Connections(relay.xds, 8);
    const clients = Array.from({ length: 1000 }, (_, index) => {
      const env = environments[index % environments.length] ?? '';
      const protocol = index % 2 === 0 ? 'delta' : 'sotw';
      const client = connections.open({ protocol, node: inEnv(env), content: regionOf });
      client.want('eds', { names: ['shop'] });
      return { client, env };
    });
    for (const { client, env } of clients) await client.gets('eds', [`shop: in-${env}`]);
    const stats = await plane.stats();
    expect([stats.opened, stats.open]).to.deep.equal([3, 3]);
    expect(stats.requests.filter(({ names }) => names.includes('shop'))).to.have.length(3);
    expect(await relay.metric('upstream_sessions')).to.equal(3);
    expect(await relay.metric('cache_variants', 'type="eds"')).to.equal(3);

    await plane.set([endpointsOf('in-moved')], { key: 'test' });
    for (const { client, env } of clients) {
      await client.gets('eds', [`shop: ${env === 'test' ? 'in-moved' : `in-${env}`}`]);
    }
    expect((await plane.stats()).opened).to.equal(3);
  });

  for (const protocol of ['DELTA', 'SOTW'] as const) {
    it(`keyed by node id (IDHash), no rule writes it: no class gets another's resources (${protocol})`, async () => {
      await using plane = await ControlPlane.start(binary, { cache: 'snapshot', key: 'id' });
      await using relay = await RelayProcess.start({
        drain_timeout: '100ms',
        upstreams: [upstream(plane.address, protocol)],
        parameters: byEnv,
      });
      using connections = new Connections(relay.xds);
      const clients = ['prod', 'test'].map((env) => {
        const client = connections.open({ protocol: 'delta', node: inEnv(env), content: regionOf });
        client.want('eds', { names: ['shop'] });
        return { client, env };
      });
      // As a controller does: of each node that asks, it makes the snapshot and keeps it under the node's id.
      const nodes = await eventually(async () => {
        const seen = (await plane.stats()).requests.flatMap(({ node }) => node ?? []);
        expect(seen).to.have.length(2);
        return seen;
      });
      for (const node of nodes) {
        const { metadata } = z.object({ metadata: z.object({ env: z.string() }) }).parse(node);
        await plane.set([endpointsOf(`in-${metadata.env}`)], { key: node.id });
      }
      for (const { client, env } of clients) await client.gets('eds', [`shop: in-${env}`]);
      expect(nodes.map(({ id }) => id).toSorted()).to.deep.equal(['relay~prod', 'relay~test']);
      const heard = clients.map(({ client }) => client.heard());
      expect(heard, 'nothing else on the way').to.deep.equal([[['+shop']], [['+shop']]]);
    });
  }

  for (const workers of cases(2, 0)) {
    it(`the least limits.max_constraint_depth, which stamps are deeper than: all is served (workers: ${workers})`, async () => {
      await using plane = await ControlPlane.start(binary, { cache: 'snapshot', key: 'env' });
      await plane.set([endpointsOf('in-prod')], { key: 'prod' });
      await using relay = await RelayProcess.start({
        drain_timeout: '100ms',
        upstreams: [upstream(plane.address, 'DELTA')],
        // No client has the second one, which makes the stamp deeper.
        parameters: [...byEnv, { key: 'group', from: 'node.metadata.group' }],
        limits: { max_constraint_depth: 1 },
        workers,
      });
      using connections = new Connections(relay.xds);
      const client = connections.open({ protocol: 'delta', node: inEnv('prod'), content: regionOf });
      client.want('eds', { names: ['shop'] });
      await client.gets('eds', ['shop: in-prod']);
    });
  }

  it('keyed by node id: the rule says where the control plane sees it', async () => {
    await using plane = await ControlPlane.start(binary, { cache: 'snapshot', key: 'id' });
    for (const id of ['edge', 'inner']) await plane.set([endpointsOf(`in-${id}`)], { key: id });
    await using relay = await RelayProcess.start({
      drain_timeout: '100ms',
      upstreams: [upstream(plane.address, 'SOTW')],
      parameters: [{ key: 'tier', from: 'node.id', pattern: '^([a-z]+)', to: 'node.id' }],
    });
    using connections = new Connections(relay.xds);
    const clients = ['edge', 'inner'].flatMap((tier) =>
      [1, 2, 3].map((number) => {
        const node = { id: `${tier}-${number}`, cluster: 'fleet' };
        const client = connections.open({ protocol: 'delta', node, content: regionOf });
        client.want('eds', { names: ['shop'] });
        return { client, tier };
      }),
    );
    for (const { client, tier } of clients) await client.gets('eds', [`shop: in-${tier}`]);
    const stats = await plane.stats();
    expect(stats.opened).to.equal(2);
    const seen = new Set(stats.requests.flatMap(({ node }) => node?.id ?? []));
    expect([...seen].toSorted()).to.deep.equal(['edge', 'inner']);
  });

  for (const workers of cases(2, 0)) {
    it(`idle sessions end, their number is bounded with a clear error, equal bodies are held once; workers: ${workers}`, async () => {
      const body = 'x'.repeat(50_000);
      await using plane = await ControlPlane.start(binary, { cache: 'snapshot', key: 'env' });
      for (const env of environments) await plane.set([endpointsOf('in-all', body)], { key: env });
      const config = (sessions: number) => ({
        drain_timeout: '100ms',
        workers,
        upstreams: [upstream(plane.address, 'DELTA')],
        parameters: byEnv,
        limits: { max_upstream_sessions: sessions },
        cache: { idle_ttl: '300ms' },
      });
      await using relay = await RelayProcess.start(config(2));
      using connections = new Connections(relay.xds);
      const open = (env: string, protocol: 'sotw' | 'delta') => {
        const client = connections.open({ protocol, node: inEnv(env), content: regionOf });
        client.want('eds', { names: ['shop'] });
        return client;
      };
      const prod = open('prod', 'delta');
      const test = open('test', 'sotw');
      await prod.gets('eds', ['shop: in-all']);
      await test.gets('eds', ['shop: in-all']);
      expect(await relay.metric('cache_variants', 'type="eds"')).to.equal(2);
      expect(await relay.metric('cache_bytes')).to.be.within(body.length, body.length * 1.5);

      for (const protocol of ['sotw', 'delta'] as const) {
        const status = await open('dev', protocol).ends();
        expect(status.code, status.details).to.equal(8);
        expect(status.details).to.include('limits.max_upstream_sessions').and.to.include('central');
      }
      expect(await relay.metric('downstream_rejected_total', 'reason="upstream_sessions"')).to.be.at.least(2);
      expect(prod.status).to.equal(undefined);

      prod.close();
      await eventually(async () => {
        expect((await plane.stats()).open).to.equal(1);
        const again = open('dev', 'delta');
        // It may be refused: then it is too early, and nothing comes.
        await eventually(() =>
          expect(again.status !== undefined || again.has('eds').length > 0).to.equal(true),
        );
        expect([again.status, again.has('eds')]).to.deep.equal([undefined, ['shop: in-all']]);
      });
      test.close();
      await eventually(async () => expect((await plane.stats()).open).to.equal(1));

      const late = open('prod', 'delta');
      await late.gets('eds', ['shop: in-all']);
      expect((await open('test', 'delta').ends()).code).to.equal(8);
      const { opened } = await plane.stats();
      relay.configure(config(3));
      await relay.says(/^configuration reloaded$/);
      await eventually(() => open('test', 'delta').gets('eds', ['shop: in-all']));
      expect((await plane.stats()).opened, 'the other sessions go on').to.equal(opened + 1);
    });
  }

  for (const protocol of ['sotw', 'delta'] as const) {
    it(`a changed node moves a ${protocol} stream with one response, without a gap`, async () => {
      await using plane = await ControlPlane.start(binary, { cache: 'snapshot', key: 'env' });
      for (const env of environments) {
        await plane.set(
          [endpointsOf(`in-${env}`), clusterOf('shop', `in-${env}`), clusterOf(env, 'in-own')],
          {
            key: env,
          },
        );
      }
      await using relay = await RelayProcess.start({
        drain_timeout: '100ms',
        upstreams: [upstream(plane.address, 'DELTA')],
        parameters: byEnv,
      });
      using connections = new Connections(relay.xds);
      const client = connections.open({ protocol, node: inEnv('prod'), content: regionOf });
      client.want('cds');
      await client.gets('cds', ['prod: in-own', 'shop: in-prod']);
      client.heard();
      client.become('cds', inEnv('test'));
      await client.gets('cds', ['shop: in-test', 'test: in-own']);
      expect(client.heard()).to.have.length(1);
      // Back again: what is known is there at once, also in one response.
      client.become('cds', inEnv('prod'));
      await client.gets('cds', ['prod: in-own', 'shop: in-prod']);
      expect(client.heard()).to.have.length(1);
    });
  }
});

describe('Envoys that know nothing of TP2', () => {
  let envoy: string;

  before(async function () {
    await need(this, relayCommand());
    envoy = await need(this, envoyBinary());
  });

  it('over the resources of deploy/demo, each gets the variants of its environment', async () => {
    using files = new ResourceFiles();
    for (const name of ['clusters', 'endpoints', 'listeners', 'routes']) {
      const text = readFileSync(join(root, `deploy/demo/resources/${name}.yaml`), 'utf8');
      files.writeText(`${name}.yaml`, text.replaceAll(/port_value: 1000\d/g, 'port_value: 0'));
    }
    await using relay = await RelayProcess.start({
      upstreams: [files.upstream],
      parameters: [...byEnv, { key: 'version', from: 'node.metadata.version' }],
      drain_timeout: '100ms',
    });
    const start = (transport: 'ads-sotw' | 'ads-delta', metadata: object) =>
      Envoy.start(envoy, { xds: relay.xds, transport, id: JSON.stringify(metadata), metadata });
    await using prod = await start('ads-sotw', { env: 'prod' });
    await using test = await start('ads-delta', { env: 'test', version: 'v1' });
    await prod.answers('web', '/where', 'prod\n');
    await test.answers('web', '/where', 'test\n');
    await test.answers('debug', '/', 'only in test\n');
    expect((await prod.admin('/listeners')).body).to.not.contain('debug');
    expect(await prod.configDump())
      .to.contain('shop_prod')
      .and.to.not.contain('shop_prod_v1');
    expect(await test.configDump()).to.contain('shop_test_v1');
  });

  it('a control plane that decides by node: each is given by the session of its environment', async function () {
    const binary = await need(this, controlPlaneBinary());
    await using plane = await ControlPlane.start(binary, { cache: 'snapshot', key: 'env' });
    await using one = await startBackend('one');
    await using two = await startBackend('two');
    await plane.set(website('ads', one.port), { key: 'prod' });
    await plane.set(website('ads', two.port), { key: 'test' });
    await using relay = await RelayProcess.start({
      upstreams: [upstream(plane.address, 'DELTA')],
      parameters: byEnv,
      drain_timeout: '100ms',
    });
    await using prod = await Envoy.start(envoy, {
      xds: relay.xds,
      transport: 'ads-delta',
      metadata: { env: 'prod' },
    });
    await using test = await Envoy.start(envoy, {
      xds: relay.xds,
      transport: 'ads-sotw',
      metadata: { env: 'test' },
    });
    await prod.answers('web', '/', 'one');
    await test.answers('web', '/', 'two');
    await plane.set(website('ads', one.port), { key: 'test' });
    await test.answers('web', '/', 'one');
    await prod.answers('web', '/', 'one');
  });
});

describe('a swap of variants on the wire', () => {
  it('is one update for whoever sees it, and nothing for the others', async () => {
    using files = new ResourceFiles();
    writeVariants(files, 'eds', [
      ['shop', 'old', when({ env: 'prod' })],
      ['shop', 'test', when({ env: 'test' })],
    ]);
    await using relay = await RelayProcess.start({
      upstreams: [files.upstream],
      parameters: [...byEnv, { key: 'version', from: 'node.metadata.version' }],
      drain_timeout: '100ms',
    });
    using connections = new Connections(relay.xds);
    const plain = (protocol: 'sotw' | 'delta', metadata: Record<string, string>) => {
      const client = connections.open({ protocol, node: { id: 'plain', metadata } });
      client.want('eds', { names: ['shop'] });
      return client;
    };
    const located = (protocol: 'sotw' | 'delta', shop: Record<string, string>) => {
      const client = connections.open({ protocol });
      client.want('eds', { locators: { shop } });
      return client;
    };
    const v2 = { env: 'prod', version: 'v2' };
    const delta = plain('delta', v2);
    const sotw = plain('sotw', v2);
    const unversioned = plain('delta', { env: 'prod' });
    const other = plain('delta', { env: 'test' });
    const locator = located('delta', v2);
    const wrapped = located('sotw', v2);
    for (const client of [delta, sotw, unversioned]) await client.gets('eds', ['shop: old']);
    await other.gets('eds', ['shop: test']);
    for (const client of [locator, wrapped]) await client.gets('eds', ['shop {env == "prod"}: old']);
    for (const client of [delta, sotw, unversioned, other, locator, wrapped]) client.heard();

    writeVariants(files, 'eds', [
      ['shop', 'one', when({ env: 'prod', version: 'v1' })],
      ['shop', 'two', when({ env: 'prod', version: 'v2' })],
      ['shop', 'test', when({ env: 'test' })],
    ]);
    await delta.gets('eds', ['shop: two']);
    await sotw.gets('eds', ['shop: two']);
    await unversioned.gets('eds', []);
    await locator.gets('eds', ['shop {env == "prod" and version == "v2"}: two']);
    await eventually(() =>
      expect(wrapped.has('eds')).to.include('shop {env == "prod" and version == "v2"}: two'),
    );
    expect(delta.heard()).to.deep.equal([['+shop two']]);
    expect(sotw.heard()).to.deep.equal([['+shop two']]);
    expect(unversioned.heard()).to.deep.equal([['-shop']]);
    expect(other.heard()).to.deep.equal([]);
    expect(locator.heard()).to.deep.equal([
      ['+shop {env == "prod" and version == "v2"} two', '-shop {env == "prod"}'],
    ]);
    expect(wrapped.heard()).to.deep.equal([['+shop {env == "prod" and version == "v2"} two']]);
  });
});
