import { expect } from 'chai';
import { z } from 'zod';
import { cases } from '../support/cases.ts';
import { when } from '../support/in-memory-relay.ts';
import { run } from './support/command.ts';
import { eventually } from './support/eventually.ts';
import { ResourceFiles } from './support/files.ts';
import { ModelPlane } from './support/model-plane.ts';
import { RelayProcess, upstream } from './support/relay.ts';
import { readyOf } from './support/relay-state.ts';
import { Connections } from './support/variant-client.ts';
import { writeVariants } from './support/variant-files.ts';

const answer = z.object({
  accepted: z.boolean(),
  stale_upstreams: z.array(z.object({ name: z.string(), since: z.string(), reason: z.string() })),
});
const counted = z.object({ missing: z.number() });

for (const workers of cases(0, 2)) {
  describe(`wait is not green when it is not, with workers: ${workers}`, () => {
    const wait = (relay: RelayProcess, ...flags: readonly string[]) =>
      run('wait', '--admin', `http://${relay.admin}`, '--timeout', '300ms', ...flags);

    it('while the control plane is away it fails and says as of when, unless --allow-stale', async () => {
      await using plane = await ModelPlane.start();
      plane.set('cds', { shop: '1' });
      await using relay = await RelayProcess.start({
        upstreams: [
          { name: 'central', ads: { endpoints: [plane.address], backoff: { initial: '20ms', max: '1s' } } },
        ],
        workers,
      });
      using connections = new Connections(relay.xds);
      const client = connections.open({ protocol: 'delta' });
      client.want('cds', { names: ['*'] });
      await client.gets('cds', ['shop: 1']);
      const well = await wait(relay, '--timeout', '20s');
      expect(well.code, well.out).to.equal(0);

      plane.kill();
      await eventually(async () => expect((await readyOf(relay)).stale).to.equal(true));
      for (const flags of [
        [],
        ['--type', 'cds'],
        ['--type', 'cds', '--name', 'shop'],
        ['--name', 'shop'],
        ['--wave', '1'],
      ]) {
        const failed = await wait(relay, ...flags);
        expect(failed.code, flags.join(' ')).to.equal(1);
        expect(failed.err).to.match(
          /^not accepted after 300ms: as of 20\S+Z: upstream central is away since then: \S/,
        );
      }
      const allowed = await wait(relay, '--allow-stale');
      expect(allowed.code, allowed.out).to.equal(0);
      expect(allowed.out).to.match(/^accepted by all: 1 stream subscribes\nas of 20\S+Z: upstream central /);
      const wave = await wait(relay, '--allow-stale', '--wave', '1');
      expect(wave.code, wave.out).to.equal(0);
      expect(wave.out).to.match(
        /^wave 1 has accepted the change, or everybody has it\nas of 20\S+Z: upstream /,
      );
      const json = await wait(relay, '--json');
      const said = answer.parse(
        JSON.parse(json.out.slice(json.out.indexOf('{'), json.out.lastIndexOf('}') + 1)),
      );
      expect(said.stale_upstreams[0]).to.include({ name: 'central' });

      await plane.again();
      const again = await wait(relay, '--timeout', '30s');
      expect(again.code, again.out).to.equal(0);
    });

    it('an upstream that has no part in it may be out of date', async () => {
      using files = new ResourceFiles();
      files.write('cds', new Map([['shop', '1']]));
      await using relay = await RelayProcess.start({
        upstreams: [
          { ...files.upstream, types: ['cds'] },
          { name: 'away', ads: { endpoints: ['127.0.0.1:9'] }, required: false },
        ],
        workers,
      });
      using connections = new Connections(relay.xds);
      const client = connections.open({ protocol: 'delta' });
      client.want('cds', { names: ['*'] });
      await client.gets('cds', ['shop: 1']);
      for (const flags of [[], ['--type', 'cds'], ['--name', 'shop']]) {
        const well = await wait(relay, '--timeout', '20s', ...flags);
        expect(well.code, well.out).to.equal(0);
      }
      const other = await wait(relay, '--type', 'eds', '--name', 'shop');
      expect(other.err).to.include('upstream away is away since then');
    });

    it('an upstream of which clients ask last counts as the first ones do', async () => {
      using clusters = new ResourceFiles();
      using listeners = new ResourceFiles();
      await using plane = await ModelPlane.start();
      clusters.write('cds', new Map([['shop', '1']]));
      listeners.write('lds', new Map([['front', '1']]));
      plane.set('rds', { web: '1' });
      await using relay = await RelayProcess.start({
        upstreams: [
          { ...clusters.upstream, name: 'clusters', types: ['cds'] },
          { ...listeners.upstream, name: 'listeners', types: ['lds'] },
          { name: 'routes', ads: { endpoints: [plane.address] }, types: ['rds'] },
        ],
        workers,
      });
      using connections = new Connections(relay.xds);
      const client = connections.open({ protocol: 'delta' });
      client.want('cds', { names: ['*'] });
      await client.gets('cds', ['shop: 1']);
      client.want('lds', { names: ['*'] });
      await client.gets('lds', ['front: 1']);
      client.want('rds', { names: ['web'] });
      await client.gets('rds', ['web: 1']);
      const well = await wait(relay, '--timeout', '20s');
      expect(well.code, well.out).to.equal(0);

      plane.kill();
      await eventually(async () =>
        expect(await relay.metric('upstream_stale_seconds', 'routes')).to.be.greaterThan(0),
      );
      const failed = await wait(relay);
      expect(failed.code, failed.out).to.equal(1);
      expect(failed.err).to.include('upstream routes is away since then');
      const allowed = await wait(relay, '--allow-stale');
      expect(allowed.code, allowed.err).to.equal(0);
      expect(allowed.out).to.include('upstream routes is away since then');
    });

    it('with fewer streams than --min-clients, and with a name that nobody knows, it fails', async () => {
      using files = new ResourceFiles();
      files.write('cds', new Map([['shop', '1']]));
      await using relay = await RelayProcess.start({ upstreams: [files.upstream], workers });
      const modes = [[], ['--wave', '1']];
      for (const flags of modes) {
        const nobody = await wait(relay, ...flags);
        expect(nobody.code, nobody.out).to.equal(1);
        expect(nobody.err).to.equal(
          'not accepted after 300ms: no stream subscribes; expected at least 1 (--min-clients)',
        );
        const none = await wait(relay, '--min-clients', '0', ...flags);
        expect(none.code, none.err).to.equal(0);
      }
      using connections = new Connections(relay.xds);
      const client = connections.open({ protocol: 'delta' });
      client.want('cds', { names: ['*'] });
      await client.gets('cds', ['shop: 1']);
      for (const flags of modes) {
        const one = await wait(relay, '--timeout', '20s', ...flags);
        expect(one.code, one.out).to.equal(0);
        const two = await wait(relay, '--min-clients', '2', ...flags);
        expect(two.code).to.equal(1);
        expect(two.err).to.equal(
          'not accepted after 300ms: 1 stream subscribes; expected at least 2 (--min-clients)',
        );
        const misspelled = await wait(relay, '--type', 'cds', '--name', 'shpo', ...flags);
        expect(misspelled.code).to.equal(1);
        expect(misspelled.err).to.match(
          /nothing is known about 1 name:\n\n.*\n +cds +shpo +MISSING +no upstream has it/,
        );
      }
      files.write('cds', new Map([['cart', '1']]));
      await client.gets('cds', ['cart: 1']);
      const removed = await wait(relay, '--type', 'cds', '--name', 'shop', '--timeout', '20s');
      expect(removed.code, removed.out).to.equal(0);
    });

    it('a stream counts only where what it subscribes to may show the name', async () => {
      const assignment = (authority: string, id: string) =>
        `xdstp://${authority}/envoy.config.endpoint.v3.ClusterLoadAssignment/${id}`;
      using files = new ResourceFiles();
      files.write('cds', new Map([['shop', '1']]));
      files.write('lds', new Map([['front', '1']]));
      files.write(
        'eds',
        new Map([
          [assignment('t1', 'a'), '1'],
          [assignment('t2', 'b'), '1'],
        ]),
      );
      await using relay = await RelayProcess.start({ upstreams: [files.upstream], workers });
      using connections = new Connections(relay.xds);
      const client = connections.open({ protocol: 'delta' });
      client.want('lds', { names: ['*'] });
      await client.gets('lds', ['front: 1']);
      client.want('eds', { names: [assignment('t1', '*')] });
      await client.gets('eds', [`${assignment('t1', 'a')}: 1`]);
      for (const flags of [
        ['--name', 'shop'],
        ['--type', 'eds', '--name', assignment('t2', 'b')],
      ]) {
        const nobody = await wait(relay, ...flags);
        expect(nobody.code, flags.join(' ')).to.equal(1);
        expect(nobody.err).to.include('no stream subscribes');
      }
      const one = await wait(relay, '--type', 'eds', '--name', assignment('t1', 'a'), '--timeout', '20s');
      expect(one.code, one.err).to.equal(0);
    });

    it('20,000 names that nobody knows hold up nothing', async () => {
      // As many as a request has room for: three characters each.
      const names = Array.from({ length: 20_000 }, (_, at) => (36 ** 2 + at).toString(36));
      using files = new ResourceFiles();
      files.write('eds', new Map([['web', '1']]));
      await using relay = await RelayProcess.startProbed({ upstreams: [files.upstream], workers });
      using connections = new Connections(relay.xds);
      const client = connections.open({ protocol: 'delta' });
      client.want('eds', { names: [...names.slice(0, 2000), 'web'] });
      await client.gets('eds', ['web: 1']);
      const missing = async () => {
        const { body } = await relay.rpc('distributary.admin.v1.AdminService/Wait', { type: 'eds', names });
        return counted.parse(JSON.parse(body)).missing;
      };
      // And the client, which lacks those that it asks for.
      expect(await missing()).to.be.within(18_000, 18_001);
      await relay.blocked();
      await missing();
      expect((await relay.blocked()).cpu).to.be.below(100);
    });

    it('an xdstp name counts in whatever spelling it is asked for, here and by the client', async () => {
      const spelled = (id: string) => `xdstp://a/envoy.config.cluster.v3.Cluster/${id}`;
      using files = new ResourceFiles();
      files.write('cds', new Map([[spelled('web?a=1&b=2'), '1']]));
      await using relay = await RelayProcess.start({ upstreams: [files.upstream], workers });
      using connections = new Connections(relay.xds);
      const client = connections.open({ protocol: 'delta' });
      client.want('cds', { names: [spelled('we%62?b=2&a=1')] });
      await client.gets('cds', [`${spelled('we%62?b=2&a=1')}: 1`]);
      for (const id of ['web?a=1&b=2', 'we%62?b=2&a=1', '%77eb?b=2&a=1'])
        for (const flags of [[], ['--type', 'cds']]) {
          const well = await wait(relay, '--name', spelled(id), '--timeout', '20s', ...flags);
          expect(well.code, well.out).to.equal(0);
        }
      for (const flags of [[], ['--type', 'cds']]) {
        const wrong = await wait(relay, '--name', 'xdstp://a', ...flags);
        expect([wrong.code, wrong.err]).to.deep.equal([
          1,
          `http://${relay.admin}: xdstp name "xdstp://a": it is not of the form xdstp://[authority]/type/id`,
        ]);
      }
    });

    it('what was polled for, and no control plane answers, holds nobody up', async () => {
      await using plane = await ModelPlane.start();
      plane.set('cds', { shop: '1' });
      await using relay = await RelayProcess.start({
        upstreams: [upstream(plane.address, 'SOTW')],
        rest: { address: '127.0.0.1:0' },
        workers,
      });
      using connections = new Connections(relay.xds);
      const client = connections.open({ protocol: 'delta' });
      client.want('cds', { names: ['*'] });
      await client.gets('cds', ['shop: 1']);
      const polled = await fetch(`http://${relay.rest}/v3/discovery:endpoints`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify({ node: { id: 'a' }, resource_names: ['nobody'] }),
      });
      expect(polled.status).to.equal(503);
      const well = await wait(relay, '--timeout', '20s');
      expect(well.code, well.out + well.err).to.equal(0);
    });

    it('a client that asks and gets nothing is not there yet', async () => {
      using files = new ResourceFiles();
      const forEnvs = (...envs: readonly string[]) => {
        for (const short of ['lds', 'rds'])
          writeVariants(
            files,
            short,
            envs.map((env) => ['web', env, when({ env })]),
          );
      };
      forEnvs('prod');
      await using relay = await RelayProcess.start({
        upstreams: [files.upstream],
        parameters: [{ key: 'env', from: 'node.metadata.env' }],
        workers,
      });
      using connections = new Connections(relay.xds, 4);
      const open = (env: string) => {
        const client = connections.open({ protocol: 'delta', node: { id: env, metadata: { env } } });
        client.want('lds', { names: ['*'] });
        client.want('rds', { names: ['web'] });
        return client;
      };
      const good = open('prod');
      await good.gets('rds', ['web: prod']);
      const bad = open('prd');
      await eventually(async () => {
        for (const [flags, name] of [
          [['--type', 'lds'], '\\*'],
          [['--type', 'rds', '--name', 'web'], 'web'],
        ] as const) {
          const failed = await wait(relay, ...flags);
          expect(failed.code, failed.out).to.equal(1);
          expect(failed.err).to.match(/^not accepted after 300ms by 1 of 2 streams:$/m);
          expect(failed.err).to.match(
            new RegExp(`^\\S+ +prd +[lr]ds +${name} +MISSING +the client subscribes to it`, 'm'),
          );
        }
      });
      forEnvs('prod', 'prd');
      const well = await wait(relay, '--timeout', '20s');
      expect(well.code, well.out).to.equal(0);
      await bad.gets('rds', ['web: prd']);
    });
  });
}
