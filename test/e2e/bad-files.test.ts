import { expect } from 'chai';
import { z } from 'zod';
import { type as typeOf } from '../support/in-memory-relay.ts';
import { always, eventually } from './support/eventually.ts';
import { ResourceFiles } from './support/files.ts';
import { ModelPlane } from './support/model-plane.ts';
import { temporaryDirectory } from './support/paths.ts';
import { RelayProcess, upstream } from './support/relay.ts';
import { Connections, type VariantClient } from './support/variant-client.ts';

const readiness = z.object({
  reason: z.string(),
  upstreams: z.array(z.looseObject({ stale: z.boolean(), reason: z.string().optional() })),
});

describe('what clients have of a file that is empty', () => {
  const cluster = `resources: [{ "@type": ${typeOf('cds')}, name: cart }]`;

  for (const protocol of ['sotw', 'delta'] as const) {
    it(`§3.9 stays at a reload, and after a restart with a cache on disk (${protocol})`, async () => {
      using files = new ResourceFiles();
      using kept = temporaryDirectory();
      files.write('cds', new Map([['shop', '0']]));
      files.writeText('cart.yaml', cluster);
      const config = {
        upstreams: [files.upstream],
        cache: { persistence: { path: kept.path } },
        drain_timeout: '100ms',
      };
      const open = (connections: Connections): VariantClient => {
        const client = connections.open({ protocol, content: () => '' });
        client.want('cds');
        return client;
      };
      const unknown = 'what is cached already stays, of all types';
      const both = ['cart: ', 'shop: '];
      {
        await using relay = await RelayProcess.start(config);
        using connections = new Connections(relay.xds);
        const client = open(connections);
        await client.gets('cds', both);
        files.writeText('cart.yaml', '');
        await eventually(() => void expect(relay.output).to.include('the file is empty'));
        // Neither by what was read before nor by what is read now is it known what the file has.
        await relay.reconfigure({ ...config, limits: { max_constraint_depth: 33 } });
        await eventually(() => void expect(relay.output).to.include(unknown));
        await always(() => void expect(client.has('cds')).to.deep.equal(both), 300);
      }
      await using relay = await RelayProcess.start(config);
      using connections = new Connections(relay.xds);
      const client = open(connections);
      await client.gets('cds', both);
      await eventually(() => void expect(relay.output).to.include(unknown));
      await always(() => void expect(client.has('cds')).to.deep.equal(both), 300);
      files.remove('cart.yaml');
      await client.gets('cds', ['shop: ']);
    });
  }
});

describe('what files have beside a control plane', () => {
  it('§6.6 its wildcard shows, also after all its clients were away for long', async () => {
    await using plane = await ModelPlane.start();
    using files = new ResourceFiles();
    plane.set('cds', { other: '1' });
    files.write('cds', new Map([['shop', '1']]));
    await using relay = await RelayProcess.start({
      upstreams: [{ ...files.upstream, names: ['shop*'] }, upstream(plane.address, 'DELTA')],
      cache: { idle_ttl: '1s' },
      drain_timeout: '100ms',
    });
    using connections = new Connections(relay.xds);
    for (let visit = 0; visit < 2; visit++) {
      const client = connections.open({ protocol: 'sotw' });
      client.want('cds');
      await client.gets('cds', ['other: 1', 'shop: 1']);
      client.close();
      await eventually(async () => expect(await relay.metric('cache_resources', 'type="cds"')).to.equal(1));
    }
  });

  for (const limit of [{}, { max_removal_percent: 100 }])
    it(`§6.6 stays after a restart until they can be read, and goes if they lack it then (${JSON.stringify(limit)})`, async () => {
      await using plane = await ModelPlane.start();
      using files = new ResourceFiles();
      using kept = temporaryDirectory();
      plane.set('cds', { other: '1' });
      files.write('cds', new Map([['shop', '0']]));
      const config = {
        upstreams: [{ ...files.upstream, names: ['shop*'], ...limit }, upstream(plane.address, 'DELTA')],
        cache: { persistence: { path: kept.path } },
        drain_timeout: '100ms',
      };
      const open = (connections: Connections): VariantClient => {
        const client = connections.open({ protocol: 'sotw', content: () => '' });
        client.want('cds');
        return client;
      };
      {
        await using relay = await RelayProcess.start(config);
        using connections = new Connections(relay.xds);
        await open(connections).gets('cds', ['other: ', 'shop: ']);
      }
      files.writeText('cds.pb', '');
      await using relay = await RelayProcess.start(config);
      using connections = new Connections(relay.xds);
      const client = open(connections);
      await client.gets('cds', ['other: ', 'shop: ']);
      // That it answers is no reason to drop it.
      plane.set('cds', { other: '1', late: '1' });
      const all = ['late: ', 'other: ', 'shop: '];
      await client.gets('cds', all);
      await always(() => void expect(client.has('cds')).to.deep.equal(all), 300);
      files.remove('cds.pb');
      await client.gets('cds', ['late: ', 'other: ']);
    });
});

describe('a file that is empty, or no file of resources, when the relay starts', () => {
  for (const protocol of ['sotw', 'delta'] as const) {
    it(`§3.9 holds up nobody: clients get what the other files have (${protocol})`, async () => {
      using files = new ResourceFiles();
      files.write('cds', new Map([['shop', '0']]));
      files.writeText('empty.yaml', '');
      files.writeText('notes.json', '{ "notes": ');
      await using relay = await RelayProcess.start({ upstreams: [files.upstream] });
      using connections = new Connections(relay.xds);
      const client = connections.open({ protocol, content: () => '' });
      client.want('cds');
      await client.gets('cds', ['shop: ']);
    });
  }
});

describe('max_removal_percent, beside a file that is no file of resources', () => {
  it('what is held back goes after max_removal_hold', async () => {
    using files = new ResourceFiles();
    const names = Array.from({ length: 10 }, (_, index) => `c${index}`);
    files.write('cds', new Map(names.map((name) => [name, '0'])));
    files.writeText('notes.json', '{ "notes": ');
    const limited = { ...files.upstream, max_removal_percent: 10, max_removal_hold: '2s' };
    await using relay = await RelayProcess.start({ upstreams: [limited] });
    using connections = new Connections(relay.xds);
    const client = connections.open({ protocol: 'delta', content: () => '' });
    client.want('cds');
    const all = names.map((name) => `${name}: `);
    await client.gets('cds', all);
    files.write('cds', new Map([['c0', '0']]));
    await eventually(() => void expect(relay.output).to.include('removals are held back'));
    expect(client.has('cds')).to.deep.equal(all);
    await client.gets('cds', ['c0: ']);
  });
});

describe('files that are refused', () => {
  let files: ResourceFiles;
  let relay: RelayProcess;

  beforeEach(async () => {
    files = new ResourceFiles();
    files.write('cds', new Map([['shop', '0']]));
    relay = await RelayProcess.start({ upstreams: [files.upstream], drain_timeout: '100ms' });
  });

  afterEach(async () => {
    await relay.stop();
    files[Symbol.dispose]();
  });

  const rejected = (type: string): Promise<number> =>
    relay.metric('upstream_updates_total', `type="${type}",result="rejected"`);
  const becomes = (type: string, count: number) =>
    eventually(async () => expect(await rejected(type), relay.output).to.equal(count));

  it('count as rejected updates of their types: once for each problem, not for each scan', async () => {
    files.writeText('bad.yaml', `resources:\n  - "@type": ${typeOf('eds')}\n    cluster_nam: shop\n`);
    await becomes('eds', 1);
    files.writeText('also.yaml', `resources: [{ "@type": ${typeOf('cds')}, name: shop }]\n`);
    await becomes('cds', 1);
    files.writeText('cut.json', '{ "resources": [');
    await becomes('other', 1);
    expect(await rejected('eds')).to.equal(1);
    files.writeText('bad.yaml', `resources:\n  - "@type": ${typeOf('eds')}\n    cluster_name: [shop]\n`);
    await becomes('eds', 2);
  });

  it('/ready and status say why what is served may be out of date, and what is wrong with which file', async () => {
    files.writeText('bad.yaml', 'resources: [\n');
    const stale = /^stale: files \(\S+bad\.yaml:\d+:.*\)$/;
    await eventually(async () => {
      const { status, body } = await relay.get('/ready');
      const ready = readiness.parse(JSON.parse(body));
      expect([status, ready.upstreams[0]?.stale]).to.deep.equal([200, true]);
      expect(ready.reason).to.match(stale);
      expect(ready.upstreams[0]?.reason).to.include('bad.yaml');
    });
    files.remove('bad.yaml');
    await eventually(async () => {
      const { body } = await relay.get('/ready');
      const ready = readiness.parse(JSON.parse(body));
      expect([ready.reason, ready.upstreams[0]]).to.deep.equal([
        '',
        { name: 'files', connected: true, stale: false, since: null },
      ]);
    });
  });
});
