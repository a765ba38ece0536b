import { join } from 'node:path';
import { expect } from 'chai';
import { type, when } from '../support/in-memory-relay.ts';
import { ControlPlane } from '../upstream/ads/control-plane.ts';
import { Envoy, type Transport } from './support/envoy.ts';
import { envoyBinary } from './support/envoy-binary.ts';
import { always, eventually } from './support/eventually.ts';
import { ResourceFiles } from './support/files.ts';
import { temporaryDirectory } from './support/paths.ts';
import { RelayProcess } from './support/relay.ts';
import { listener } from './support/resources.ts';
import { need } from './support/skip.ts';
import { Connections, type VariantClient } from './support/variant-client.ts';
import { type VariantOf, writeVariants } from './support/variant-files.ts';

const byEnv = [{ key: 'env', from: 'node.metadata.env' }];
const inEnv = (env: string) => ({ id: `client-${env}`, cluster: 'fleet', metadata: { env } });

/** Constraints that are not in canonical order: they must arrive as they are. */
const newer = when({ version: 'v2', env: 'prod' });
const files: readonly VariantOf[] = [
  ['shop', 'prod', when({ env: 'prod' })],
  ['shop', 'test', when({ env: 'test' })],
  ['office', 'all', undefined],
];

interface Tier {
  readonly id: string;
  /** Where it gets its resources: the relay above, or files. */
  readonly above: RelayProcess | object;
  readonly changes?: object;
  /** Path of the socket that it listens on. */
  readonly unix?: string;
}

function relay({ id, above, changes = {}, unix }: Tier): Promise<RelayProcess> {
  const endpoint = above instanceof RelayProcess ? above.xds : undefined;
  const ads = {
    endpoints: [endpoint],
    variants: 'NATIVE',
    backoff: { initial: '100ms', max: '1s' },
    ...changes,
  };
  return RelayProcess.start({
    node: { id, cluster: 'relays' },
    ...(unix === undefined ? {} : { xds: { address: `unix:${unix}` } }),
    upstreams: [endpoint === undefined ? above : { name: 'above', ads }],
    parameters: byEnv,
    drain_timeout: '200ms',
  });
}

describe('relays behind relays', function () {
  this.timeout(180_000);

  for (const [protocol, ids] of [
    ['DELTA', ['top', 'middle', 'bottom']],
    ['SOTW', ['distributary', 'distributary', 'distributary']], // relays of one name are no loop
  ] as const) {
    it(`three tiers deep, over TCP and a Unix socket, variants pass unchanged (${protocol}, ${ids.join(', ')})`, async () => {
      using directory = temporaryDirectory();
      using resources = new ResourceFiles();
      writeVariants(resources, 'rds', files);
      writeVariants(resources, 'cds', files);
      const changes = { protocol };
      await using top = await relay({
        id: ids[0],
        above: resources.upstream,
        unix: join(directory.path, 'top'),
      });
      await using middle = await relay({ id: ids[1], above: top, changes });
      await using bottom = await relay({
        id: ids[2],
        above: middle,
        changes,
        unix: join(directory.path, 'low'),
      });

      using connections = new Connections(bottom.xds);
      const prod = connections.open({ protocol: 'sotw', node: inEnv('prod') });
      const test = connections.open({ protocol: 'delta', node: inEnv('test') });
      const nowhere = connections.open({ protocol: 'delta' });
      for (const client of [prod, test, nowhere]) client.want('cds');
      for (const client of [prod, test, nowhere]) client.want('rds', { names: ['shop', 'office'] });
      await prod.gets('cds', ['office: all', 'shop: prod']);
      await test.gets('cds', ['office: all', 'shop: test']);
      await nowhere.gets('cds', ['office: all']);
      await prod.gets('rds', ['office: all', 'shop: prod']);
      await test.gets('rds', ['office: all', 'shop: test']);
      await nowhere.gets('rds', ['office: all']);

      const locators = { shop: { env: 'prod', version: 'v2' } };
      const far = connections.open({ protocol: 'delta' });
      far.want('rds', { locators });
      await far.gets('rds', ['shop {env == "prod"}: prod']);
      far.heard();

      // A swap upstream is one update for each of them, three tiers down.
      for (const client of [prod, test, nowhere]) client.heard();
      writeVariants(resources, 'rds', [
        ['shop', 'new', newer],
        ['shop', 'old', when({ env: 'prod', version: 'v1' })],
        ...files.slice(1),
      ]);
      await far.gets('rds', ['shop {version == "v2" and env == "prod"}: new']);
      expect(far.heard()).to.deep.equal([
        ['+shop {version == "v2" and env == "prod"} new', '-shop {env == "prod"}'],
      ]);
      expect(far.variant('rds', 'shop').constraints).to.deep.equal(Buffer.from(newer.bytes));
      expect(test.heard()).to.deep.equal([]);

      // The version of a resource is the same at every tier: a fleet may move between them.
      using above = new Connections(top.xds);
      const near = above.open({ protocol: 'delta' });
      near.want('rds', { locators });
      await near.gets('rds', far.has('rds'));
      expect(near.variant('rds', 'shop').version).to.equal(far.variant('rds', 'shop').version);
      expect(far.variant('rds', 'shop').version).to.match(/^\S*@[0-9a-f]{16}$/);
      // A busy machine may stop it for a while. A client in no environment has no shop, which is said after some seconds.
      const expected = /event loop|gets? no rds shop/;
      const wrong = top.log.filter(({ level, message }) => level !== 'info' && !expected.test(message));
      expect(wrong).to.deep.equal([]);
    });
  }

  it('§3.13 SotW below SotW: a name that nobody knows yet does not hold back the others, and is not absent', async () => {
    const plane = await new ControlPlane().listen();
    await using stack = new AsyncDisposableStack();
    stack.defer(() => plane.kill());
    const cds = type('cds');
    // It says nothing of "office", neither that it is there nor that it is not.
    plane.answer = (stream, request) => {
      const asks = 'resourceNamesSubscribe' in request && request.resourceNamesSubscribe.includes('shop');
      if (asks) stream.send(cds, '1', 'shop:@1');
    };
    const central = {
      name: 'central',
      ads: { endpoints: [`127.0.0.1:${plane.port}`], variants: 'NATIVE', resource_timeout: '60s' },
    };
    const changes = { protocol: 'SOTW', resource_timeout: '2s' };
    await using top = await relay({ id: 'top', above: central });
    await using middle = await relay({ id: 'middle', above: top, changes });
    await using bottom = await relay({ id: 'bottom', above: middle, changes });
    using connections = new Connections(bottom.xds);
    const client = connections.open({ protocol: 'delta' });
    client.want('cds', { names: ['shop', 'office'] });
    await client.gets('cds', ['shop: ']);
    client.heard();
    // Longer than the lower relays wait: they know that the one above does not know.
    await always(() => {
      expect(client.heard()).to.deep.equal([]);
    }, 4500);
    plane.streams.find(({ open }) => open)?.send(cds, '2', 'office:@1');
    await client.gets('cds', ['office: ', 'shop: ']);
  });

  it('Envoys below the second tier get the variants of their environment', async function () {
    const envoy = await need(this, envoyBinary());
    using directory = temporaryDirectory();
    using resources = new ResourceFiles();
    const route = (env: string): string => `
  - "@type": type.googleapis.com/envoy.service.discovery.v3.Resource
    resource_name:
      name: web-routes
      dynamic_parameter_constraints: { constraint: { key: env, value: ${env} } }
    resource:
      "@type": type.googleapis.com/envoy.config.route.v3.RouteConfiguration
      name: web-routes
      virtual_hosts:
        - name: all
          domains: ["*"]
          routes: [{ match: { prefix: / }, direct_response: { status: 200, body: { inline_string: ${env} } } }]`;
    resources.writeText('routes.yaml', `resources:${route('prod')}${route('test')}\n`);
    resources.writeText('listeners.json', JSON.stringify({ resources: [listener('web', 'web-routes')] }));
    await using top = await relay({
      id: 'top',
      above: resources.upstream,
      unix: join(directory.path, 'top'),
    });
    await using bottom = await relay({ id: 'bottom', above: top });
    const start = (transport: Transport, env: string) =>
      Envoy.start(envoy, { xds: bottom.xds, transport, id: env, metadata: { env } });
    await using prod = await start('ads-sotw', 'prod');
    await using test = await start('ads-delta', 'test');
    await prod.answers('web', '/', 'prod');
    await test.answers('web', '/', 'test');
  });

  it('a tier that restarts, and what has gone meanwhile: nothing is lost, nothing stays', async () => {
    using directory = temporaryDirectory();
    using resources = new ResourceFiles();
    writeVariants(resources, 'cds', files);
    writeVariants(resources, 'eds', files);
    const path = join(directory.path, 'top');
    const top = await relay({ id: 'top', above: resources.upstream, unix: path });
    await using bottom = await relay({ id: 'bottom', above: top });
    using connections = new Connections(bottom.xds);
    const clients = ['prod', 'test'].map((env) => connections.open({ protocol: 'delta', node: inEnv(env) }));
    const [prod, test] = clients as [VariantClient, VariantClient];
    for (const client of clients) client.want('cds');
    for (const client of clients) client.want('eds', { names: ['shop', 'office'] });
    await prod.gets('eds', ['office: all', 'shop: prod']);
    await prod.gets('cds', ['office: all', 'shop: prod']);
    await test.gets('cds', ['office: all', 'shop: test']);

    await top.kill();
    for (const client of clients) client.heard();
    writeVariants(resources, 'cds', [...files.slice(0, 1), ['depot', 'all', undefined]]);
    writeVariants(resources, 'eds', files.slice(1));
    await always(() => {
      expect(clients.flatMap((client) => client.heard())).to.deep.equal([]);
    }, 300);
    await using again = await relay({ id: 'top', above: resources.upstream, unix: path });
    await prod.gets('cds', ['depot: all', 'shop: prod']);
    await test.gets('cds', ['depot: all']);
    await prod.gets('eds', ['office: all']);
    await test.gets('eds', ['office: all', 'shop: test']);
    expect(clients.flatMap((client) => client.heard()).flat()).to.not.include('+shop prod');
    expect(again.xds).to.equal(`unix:${path}`);
  });

  it('a loop is refused with an error that names it, on both sides', async () => {
    using directory = temporaryDirectory();
    const [a, b] = ['a', 'b'].map((name) => join(directory.path, name)) as [string, string];
    const open = async (id: string, unix: string, other: string) =>
      RelayProcess.start({
        node: { id, cluster: 'relays' },
        xds: { address: `unix:${unix}` },
        upstreams: [
          {
            name: 'above',
            ads: {
              endpoints: [`unix:${other}`],
              variants: 'NATIVE',
              backoff: { initial: '100ms', max: '200ms' },
            },
          },
        ],
        drain_timeout: '200ms',
      });
    await using one = await open('relay-a', a, b);
    await using two = await open('relay-b', b, a);
    using toOne = new Connections(one.xds);
    using toTwo = new Connections(two.xds);
    // Both at once: neither knows of the other when it subscribes.
    for (const connections of [toOne, toTwo]) connections.open({ protocol: 'delta' }).want('cds');
    const logs = () => [...one.log, ...two.log].map((line) => JSON.stringify(line)).join('\n');
    await eventually(async () => {
      expect(logs()).to.match(/loop: relay-(a → relay-b → relay-a|b → relay-a → relay-b)/);
      const statuses = await Promise.all(
        [one, two].map((side) => side.rpc('distributary.admin.v1.AdminService/Status', {})),
      );
      expect(statuses.map(({ body }) => body).join('\n')).to.match(
        /last_error":"[^"]*FAILED_PRECONDITION: loop: relay-/,
      );
      expect(
        (await one.metric('downstream_rejected_total', 'reason="loop"')) ||
          (await two.metric('downstream_rejected_total', 'reason="loop"')),
      ).to.be.at.least(1);
    });
  });

  it('two cold relays that point at each other say that it is a loop: in the log and on /ready of both', async () => {
    using directory = temporaryDirectory();
    const [a, b] = ['a', 'b'].map((name) => join(directory.path, name)) as [string, string];
    const open = (id: string, unix: string, other: string) =>
      RelayProcess.start({
        node: { id, cluster: 'relays' },
        xds: { address: `unix:${unix}` },
        upstreams: [
          {
            name: 'above',
            ads: { endpoints: [`unix:${other}`], backoff: { initial: '100ms', max: '200ms' } },
          },
        ],
        drain_timeout: '200ms',
      });
    await using one = await open('relay-a', a, b);
    // The first one is down before the second one is there.
    await eventually(async () =>
      expect((await one.get('/ready')).body).to.match(/not connected yet: above \(/),
    );
    await using two = await open('relay-b', b, a);
    using toOne = new Connections(one.xds);
    using toTwo = new Connections(two.xds);
    // Clients come back when their streams end.
    const retry = setInterval(() => {
      for (const connections of [toOne, toTwo]) connections.open({ protocol: 'delta' }).want('cds');
    }, 300);
    try {
      await eventually(async () => {
        for (const side of [one, two]) {
          expect((await side.get('/ready')).body).to.match(/loop: relay-/);
          expect(side.log.map(({ message }) => message)).to.include('a relay is refused');
        }
      });
    } finally {
      clearInterval(retry);
    }
  });
});
