import { fromBinary, toJson } from '@bufbuild/protobuf';
import { expect } from 'chai';
import { z } from 'zod';
import { DynamicParameterConstraintsSchema } from '../../src/gen/envoy/service/discovery/v3/discovery_pb.ts';
import type { Constraints } from '../../src/model/constraints.ts';
import { cases } from '../support/cases.ts';
import { when } from '../support/in-memory-relay.ts';
import { run } from './support/command.ts';
import { eventually } from './support/eventually.ts';
import { ResourceFiles } from './support/files.ts';
import { ModelPlane } from './support/model-plane.ts';
import { RelayProcess } from './support/relay.ts';
import { clientsOf } from './support/relay-state.ts';
import { Connections } from './support/variant-client.ts';
import { writeVariants } from './support/variant-files.ts';

const admin = 'distributary.admin.v1.AdminService';
const clients = z.object({
  clients: z.array(z.object({ id: z.string(), node: z.object({ id: z.string() }), transport: z.string() })),
});
const variant = z.object({ constraints: z.string(), matches: z.boolean(), reason: z.string() });
const explained = z.looseObject({
  match: z.string(),
  ambiguous: z.boolean(),
  variants: z.array(variant.loose()),
});

const notAllowed = 'xds.authorization does not allow it';

const cluster = (name: string, alias = name, constraints?: Constraints): string => {
  const envoy = 'type.googleapis.com/envoy';
  const resource = { '@type': `${envoy}.config.cluster.v3.Cluster`, name };
  const aliases = alias === name ? [] : [alias];
  const wrapper = { '@type': `${envoy}.service.discovery.v3.Resource`, aliases, resource };
  if (constraints === undefined) return `\n- ${JSON.stringify({ ...wrapper, name })}`;
  const proto = fromBinary(DynamicParameterConstraintsSchema, constraints.bytes);
  const dynamic_parameter_constraints = toJson(DynamicParameterConstraintsSchema, proto);
  const resource_name = { name, dynamic_parameter_constraints };
  return `\n- ${JSON.stringify({ ...wrapper, resource_name })}`;
};

describe('explain', () => {
  let files: ResourceFiles;
  let relay: RelayProcess;

  beforeEach(async () => {
    files = new ResourceFiles();
    relay = await RelayProcess.start({
      upstreams: [files.upstream],
      parameters: ['env', 'version'].map((key) => ({ key, from: `node.metadata.${key}` })),
      drain_timeout: '100ms',
    });
  });

  afterEach(async () => {
    await relay.stop();
    files[Symbol.dispose]();
  });

  it('shows which variant a client gets, why each other one does not match, and where it is from', async () => {
    writeVariants(files, 'eds', [
      ['shop', 'prod', when({ env: 'prod' })],
      ['shop', 'old', when({ env: 'test', version: 'v1' })],
      ['shop', 'new', when({ env: 'test', version: 'v2' })],
    ]);
    using connections = new Connections(relay.xds);
    const client = connections.open({
      protocol: 'delta',
      node: { id: 'envoy-7', metadata: { env: 'prod' } },
    });
    client.want('eds', { names: ['shop'] });
    await client.gets('eds', ['shop: prod']);

    const url = `http://${relay.admin}`;
    const asked = ['explain', '--admin', url, '--type', 'eds', '--name', 'shop'];
    const found = await run(...asked, '--param', 'env=test', '--param', 'version=v2', '-o', 'wide');
    expect(found.code, found.out).to.equal(0);
    expect(found.out).to.match(/^eds shop for env=test, version=v2: env == "test" and version == "v2"$/m);
    const bytes = '[0-9]+';
    const since = '\\d{4}-\\d\\d-\\d\\dT[\\d:.]+Z';
    const row = (matches: string, constraints: string, why: string): RegExp =>
      new RegExp(`^${matches} +${constraints} +[0-9a-f]{16} +\\S+ +${bytes} +${since} +files +${why}$`, 'm');
    expect(found.out).to.match(row('no', 'env == "prod"', 'env == "prod" fails: env is "test"'));
    expect(found.out).to.match(
      row('no', 'env == "test" and version == "v1"', 'version == "v1" fails: version is "v2"'),
    );
    expect(found.out).to.match(row('yes', 'env == "test" and version == "v2"', '.* holds'));

    const nothing = await run(...asked, '--param', 'env=test');
    expect(nothing.code).to.equal(1);
    expect(nothing.out).to.include('no variant matches').and.to.include('version is not given');

    const { body } = await relay.rpc(`${admin}/ListClients`, {});
    const [stream] = clients.parse(JSON.parse(body)).clients;
    expect(stream).to.deep.include({ node: { id: 'envoy-7' }, transport: 'delta' });
    const mine = await eventually(async () => {
      const told = await run(...asked, '--client', stream?.id ?? '');
      expect(told.out).to.match(/^This client was last sent version \S+: SYNCED \(acknowledged\)$/m);
      return told;
    });
    expect(mine.code, mine.out).to.equal(0);
    expect(mine.out).to.match(/^eds shop for env=prod: env == "prod"$/m);
    expect(mine.out).to.match(
      /^It has the variant env == "prod", version [0-9a-f]{16}, \S+ at the control plane\.$/m,
    );
  });

  it('says as of when, while the upstream that claims the name is away', async () => {
    await using plane = await ModelPlane.start();
    plane.set('cds', { shop: '1' });
    const central = { name: 'central', types: ['cds'], ads: { endpoints: [plane.address] } };
    await using other = await RelayProcess.start({ upstreams: [central, files.upstream] });
    using connections = new Connections(other.xds);
    const client = connections.open({ protocol: 'delta' });
    client.want('cds', { names: ['shop', 'gone'] });
    await client.gets('cds', ['shop: 1']);
    const explainIn = (type: string, name: string, ...flags: readonly string[]) =>
      run('explain', '--admin', `http://${other.admin}`, '--type', type, '--name', name, ...flags);
    const away = /^as of 20\S+Z: upstream central is away since then: \S/m;
    expect((await explainIn('cds', 'shop')).out).not.to.match(away);
    plane.kill();
    await eventually(async () => expect((await explainIn('cds', 'shop')).out).to.match(away));
    expect((await explainIn('cds', 'gone')).err).to.match(away);
    expect((await explainIn('eds', 'shop')).out, 'it is from another upstream').not.to.match(away);
    const { stale_upstreams: stale } = z
      .object({ stale_upstreams: z.array(z.object({ name: z.string(), connected: z.boolean() })) })
      .parse(JSON.parse((await explainIn('cds', 'shop', '-o', 'json')).out));
    expect(stale).to.deep.equal([{ name: 'central', connected: false }]);
    // It is back, and has not answered yet. Without it, a stream that waits for it ends.
    plane.silentOn.add('cds');
    await plane.again();
    await eventually(() => {
      expect(plane.openStreams).to.be.above(0);
    });
    const late = connections.open({ protocol: 'delta', node: { id: 'late' } });
    late.want('cds', { names: ['*'] });
    await eventually(async () => {
      const id = (await clientsOf(other)).find(({ node }) => node.id === 'late')?.id ?? '';
      const waits = await run('explain', '--client', id, '--admin', `http://${other.admin}`);
      expect(waits.code).to.equal(1);
      expect(waits.err).to.match(
        /^client \S+ \(node late, no parameters\): 1 not sent yet\nas of 20\S+Z: upstream/,
      );
      expect(waits.out).to.match(/^cds +\* +NOT_SENT +upstream central has not answered yet$/m);
    });
  });

  it('says of each locator of a client why it has nothing, by the parameters of the locator', async () => {
    writeVariants(files, 'eds', [['shop', 'prod', when({ env: 'prod' })]]);
    await using other = await RelayProcess.start({
      upstreams: [files.upstream],
      parameters: [{ key: 'env', from: 'node.metadata.env' }],
      xds: { authorization: { rules: [{ names: ['s*'], allow: true }] } },
    });
    using connections = new Connections(other.xds);
    const client = connections.open({ protocol: 'delta', node: { id: 'typist', metadata: { env: 'prod' } } });
    client.want('eds', { locators: { shop: { env: 'prd' } } });
    await eventually(async () => {
      const [{ id } = { id: '' }] = await clientsOf(other);
      const { out } = await run('explain', '--client', id, '--admin', `http://${other.admin}`);
      expect(out).to.match(
        /^eds +shop +MISSING +no variant matches; env=prod has one; 1 other class has one$/m,
      );
    });
  });

  for (const workers of cases(0, 2))
    it(`says what xds.authorization keeps from a client, a name or a variant, workers: ${workers}`, async () => {
      files.writeText(
        'cds.yaml',
        `resources:${cluster('web')}${cluster('secret')}${cluster('b/host', 'alias')}`,
      );
      const denied = ['secret', 'nowhere', 'b/*'];
      await using other = await RelayProcess.start({
        upstreams: [files.upstream],
        xds: { authorization: { rules: [{ names: denied, allow: false }, { allow: true }] } },
        workers,
      });
      using connections = new Connections(other.xds);
      const client = connections.open({ protocol: 'delta', node: { id: 'tenant' }, content: () => 'x' });
      client.want('cds', { names: ['web', 'secret', 'alias', 'nowhere', 'gone'] });
      await client.gets('cds', ['web: x']);
      const [{ id } = { id: '' }] = await clientsOf(other);
      const explainIt = (...flags: readonly string[]) =>
        run('explain', '--admin', `http://${other.admin}`, ...flags);
      const reasons = new Map([
        ['secret', notAllowed],
        ['alias', notAllowed],
        ['nowhere', notAllowed],
        ['gone', 'it does not exist upstream'],
      ]);
      for (const [name, why] of reasons) {
        const { code, err } = await explainIt('--type', 'cds', '--name', name, '--client', id);
        expect([code, err.split('\n')[0]]).to.deep.equal([1, `cds ${name} for no parameters: ${why}`]);
      }
      const asked = ['--type', 'cds', '--name', 'secret', '--client', id];
      expect((await explainIt(...asked)).out).to.match(
        /^no +\(all\) +[0-9a-f]{16} .* xds\.authorization does not allow it$/m,
      );
      const json = explained.parse(
        JSON.parse((await explainIt(...asked, '--json')).out.split(/^(?={)/m)[1] ?? ''),
      );
      expect(json).to.deep.include({ match: '', match_found: false, state: 'denied' });
      expect((await explainIt('--type', 'cds', '--name', 'web', '--client', id)).code).to.equal(0);
      expect((await explainIt('--type', 'cds', '--name', 'secret')).code, 'of some client').to.equal(0);

      const { out } = await explainIt('--client', id);
      for (const name of denied.slice(0, 2).concat('alias'))
        expect(out).to.match(new RegExp(`^cds +${name} +MISSING +${notAllowed}$`, 'm'));
      expect(out).to.match(/^cds +gone +MISSING +upstream files does not have it$/m);
    });

  it('of an alias lists the variants of the resources that have it, with their names', async () => {
    const variant = (name: string, env: string, alias: string) => cluster(name, alias, when({ env }));
    files.writeText(
      'cds.yaml',
      `resources:${variant('one', 'prod', 'alias')}${variant('two', 'test', 'alias')}${variant('two', 'dev', 'other')}`,
    );
    const explainIt = (name: string, env: string) =>
      run(
        'explain',
        '--admin',
        `http://${relay.admin}`,
        '--type',
        'cds',
        '--name',
        name,
        '--param',
        `env=${env}`,
      );
    await eventually(async () => expect((await explainIt('one', 'prod')).code).to.equal(0));
    const found = await explainIt('alias', 'test');
    expect([found.code, found.out.split('\n')[0]]).to.deep.equal([
      0,
      'cds alias for env=test: env == "test"',
    ]);
    expect(found.out).to.match(/^no +one +env == "prod" .*env == "prod" fails: env is "test"$/m);
    expect(found.out).to.match(/^yes +two +env == "test" .*holds$/m);
    expect(found.out, 'it has another alias').not.to.include('dev');
    const nothing = await explainIt('alias', 'dev');
    expect([nothing.code, nothing.err]).to.deep.equal([
      1,
      'cds alias for env=dev: no variant matches, so it does not exist for such a client',
    ]);
    expect((await explainIt('one', 'prod')).out).not.to.include('NAME');
    const got = await run('get', '--admin', `http://${relay.admin}`, '--type', 'cds', '--name', 'alias');
    expect(got.out)
      .to.match(/^name: one$/m)
      .and.match(/^name: two$/m);
  });

  it('shows what a client rejected, and that it has another variant than it would get now', async () => {
    writeVariants(files, 'eds', [['shop', 'prod', when({ env: 'prod' })]]);
    using connections = new Connections(relay.xds);
    const client = connections.open({
      protocol: 'delta',
      node: { id: 'picky', metadata: { env: 'prod' } },
      accepts: (said) => !said.includes('+shop bad'),
    });
    client.want('eds', { names: ['shop'] });
    await client.gets('eds', ['shop: prod']);
    writeVariants(files, 'eds', [['shop', 'bad', when({ env: 'prod' })]]);
    await eventually(async () => {
      const { out } = await run('status', '--admin', `http://${relay.admin}`);
      expect(out).to.include('not to my taste');
    });
    const { body } = await relay.rpc(`${admin}/ListClients`, {});
    const id = clients.parse(JSON.parse(body)).clients[0]?.id ?? '';
    const { out } = await run(
      'explain',
      '--admin',
      `http://${relay.admin}`,
      '--type',
      'eds',
      '--name',
      'shop',
      '--client',
      id,
    );
    const url = `http://${relay.admin}`;
    const all = await run('explain', '--admin', url, '--client', id);
    expect(all.code, all.out).to.equal(0);
    expect(all.out)
      .to.match(/^client \S+ \(node picky, env=prod\): 1 rejected$/m)
      .and.to.match(/^eds +shop +ERROR +env == "prod" +not to my taste$/m);
    const only = await run('explain', '--admin', url, '--type', 'eds');
    expect(only.code).to.equal(2);
    expect(only.err).to.match(/^--name N is missing: .* \(or only --client ID\)\n/);
    const both = await run('explain', '--admin', url, '--client', id, '--param', 'env=test');
    expect(both.err).to.match(/^--param is for one resource/);
    expect(out).to.match(/ERROR \(rejected\), last rejected: not to my taste/);
    expect(out).to.match(
      /^It has rejected the variant env == "prod", version [0-9a-f]{16}, \S+ at the control plane\.$/m,
    );
  });

  it('finds what a client has by an xdstp name in any spelling', async () => {
    const name = (query: string) => `xdstp://a/envoy.config.endpoint.v3.ClusterLoadAssignment/x?${query}`;
    files.write('eds', new Map([[name('a=1&b=2'), 'one']]));
    using connections = new Connections(relay.xds);
    const client = connections.open({ protocol: 'delta', node: { id: 'speller' } });
    client.want('eds', { names: [name('b=2&a=1')] });
    await eventually(async () => {
      const { body } = await relay.rpc(`${admin}/ListClients`, {});
      const id = clients.parse(JSON.parse(body)).clients[0]?.id ?? '';
      for (const query of ['a=1&b=2', 'b=2&a=1']) {
        const asked = ['--type', 'eds', '--name', name(query), '--client', id];
        const { out } = await run('explain', '--admin', `http://${relay.admin}`, ...asked);
        expect(out).to.match(
          /^It has the variant \(all\), version [0-9a-f]{16}, \S+ at the control plane\.$/m,
        );
      }
    });
  });

  it('of what does not exist exits 1, and says so on stderr', async () => {
    writeVariants(files, 'eds', [['shop', 'prod', when({ env: 'prod' })]]);
    const url = `http://${relay.admin}`;
    const explain = (...more: readonly string[]) => run('explain', '--admin', url, '--type', 'eds', ...more);
    // The files are read.
    await eventually(async () =>
      expect((await explain('--name', 'shop', '--param', 'env=prod')).code).to.equal(0),
    );
    const nothing = await explain('--name', 'mistyped', '--param', 'env=prod');
    expect(nothing.code).to.equal(1);
    expect(nothing.err).to.match(/^eds mistyped for env=prod: nothing is known about it/);
    expect(nothing.out).to.equal(nothing.err);

    const json = await explain('--name', 'mistyped', '--json');
    expect(json.code).to.equal(1);
    expect(json.err).to.match(/^eds mistyped for no parameters: nothing is known about it/);

    const other = await explain('--name', 'shop', '--param', 'env=test');
    expect(other.code).to.equal(1);
    expect(other.err).to.equal(
      'eds shop for env=test: no variant matches, so it does not exist for such a client',
    );
    expect(other.out).to.include('env == "prod" fails: env is "test"');
  });

  it('§5 ambiguity: one choice over 100 updates, counted and logged once, and shown', async () => {
    const some = when({ env: 'prod' });
    const other = when({ version: 'v1' });
    const write = (round: number): void =>
      writeVariants(files, 'eds', [
        ['shop', `some ${round}`, some],
        ['shop', `other ${round}`, other],
      ]);
    write(0);
    using connections = new Connections(relay.xds);
    const node = { id: 'both', metadata: { env: 'prod', version: 'v1' } };
    const client = connections.open({ protocol: 'delta', node });
    client.want('eds', { names: ['shop'] });
    await client.gets('eds', ['shop: some 0']);
    client.heard(); // it may have asked before the files were read
    const seen = new Set<string>();
    for (let round = 1; round <= 100; round++) {
      write(round);
      if (round % 10 === 0) await client.gets('eds', [`shop: some ${round}`]);
      for (const line of client.heard().flat()) seen.add(line.replace(/\d+/, 'N'));
    }
    expect([...seen]).to.deep.equal(['+shop some N']);
    expect(await relay.metric('ambiguous_matches_total', 'type="eds"')).to.equal(1);
    const logged = await relay.says(/^several variants/);
    expect(logged).to.have.length(1);
    expect(JSON.stringify(logged[0])).to.include('"env":"prod"').and.to.include('eds shop');

    const request = { type: 'eds', name: 'shop', parameters: { env: 'prod', version: 'v1' } };
    const { body } = await relay.rpc(`${admin}/Explain`, request);
    const answer = explained.parse(JSON.parse(body));
    expect(answer.ambiguous).to.equal(true);
    expect(answer.match).to.equal('env == "prod"');
    expect(answer.variants.map(({ matches }) => matches)).to.deep.equal([true, true]);
    const { out } = await run('status', '--admin', `http://${relay.admin}`);
    expect(out).to.match(/^eds +1 +2 +1 +1$/m);
  });
});
