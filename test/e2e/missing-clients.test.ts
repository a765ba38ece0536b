import { expect } from 'chai';
import { z } from 'zod';
import { missingText } from '../../src/observe/problems.ts';
import { cases } from '../support/cases.ts';
import { slower } from '../support/cpu.ts';
import { type, when } from '../support/in-memory-relay.ts';
import { explainedOf, run } from './support/command.ts';
import { eventually } from './support/eventually.ts';
import { ResourceFiles } from './support/files.ts';
import { RelayProcess } from './support/relay.ts';
import { clientsOf } from './support/relay-state.ts';
import { Connections } from './support/variant-client.ts';
import { writeVariants } from './support/variant-files.ts';

const classes = z.object({
  problems: z.array(
    z
      .object({
        kind: z.string(),
        type: z.string(),
        name: z.string(),
        class: z.string(),
        parameters: z.record(z.string(), z.string()),
        clients: z.number(),
        elsewhere: z.boolean(),
        why: z.string(),
        nearest: z.string(),
        other_classes: z.number(),
      })
      .transform((one) => ({
        ...one,
        sentence: `${one.clients} client with env=${one.parameters['env'] ?? ''} gets no ${one.type} ${one.name}: ${missingText({ ...one, otherClasses: one.other_classes })}`,
      })),
  ),
});
const changes = z.object({ changes: z.array(z.object({ revision: z.number() })) });
const csds = z.object({
  config: z.array(
    z.object({
      node: z.object({ id: z.string() }).nullish(),
      generic_xds_configs: z.array(z.object({ name: z.string(), client_status: z.string().default('') })),
    }),
  ),
});

for (const workers of cases(0, 2)) {
  describe(`a class of clients that gets nothing, with workers: ${workers}`, () => {
    let files: ResourceFiles;
    let relay: RelayProcess;
    let connections: Connections;
    const admin = (): readonly string[] => ['--admin', `http://${relay.admin}`];
    const forEnvs = (short: string, envs: readonly string[]): void =>
      writeVariants(
        files,
        short,
        envs.map((env) => ['web', env, when({ env })]),
      );
    const foundOf = async () => {
      const { body } = await relay.rpc('distributary.admin.v1.AdminService/ListClasses', {});
      return classes.parse(JSON.parse(body)).problems.filter(({ kind }) => kind === 'MISSING');
    };
    const stateOf = async (node: string, short: string) =>
      (await clientsOf(relay)).find((one) => one.node.id === node)?.types.find(({ type }) => type === short)
        ?.state;

    beforeEach(async () => {
      files = new ResourceFiles();
      for (const short of ['lds', 'rds']) forEnvs(short, ['prod', 'test', 'dev']);
      relay = await RelayProcess.start({
        upstreams: [files.upstream],
        parameters: [{ key: 'env', from: 'node.metadata.env' }],
        workers,
        drain_timeout: '100ms',
      });
      connections = new Connections(relay.xds, 8);
      for (const env of ['prod', 'test', 'dev', 'prd']) {
        const node = { id: env, cluster: 'web', metadata: { env } };
        const client = connections.open({ protocol: env === 'test' ? 'sotw' : 'delta', node });
        client.want('lds', env === 'test' ? {} : { names: ['*'] });
        client.want('rds', { names: ['web'] });
        client.want('cds', env === 'test' ? {} : { names: ['*'] });
        if (env === 'prd') continue;
        await client.gets('lds', [`web: ${env}`]);
        await client.gets('rds', [`web: ${env}`]);
      }
    });

    afterEach(async () => {
      connections[Symbol.dispose]();
      await relay.stop();
      files[Symbol.dispose]();
    });

    it('is MISSING in status, ListClasses, ListClients, clients, explain and CSDS, with why and who else has it', async () => {
      await eventually(async () => {
        const found = await foundOf();
        expect(found.map(({ sentence }) => sentence).toSorted()).to.deep.equal([
          '1 client with env=prd gets no lds *: no variant matches; env=prod has 1, env=dev has 1, env=test has 1; 3 other classes have one',
          '1 client with env=prd gets no rds web: no variant matches; env=prod has one, env=dev has one, env=test has one; 3 other classes have one',
        ]);
        for (const one of found) expect(one).to.include({ clients: 1, elsewhere: true, other_classes: 3 });
      });
      expect(await stateOf('prd', 'lds')).to.equal('MISSING');
      expect(await stateOf('prd', 'rds')).to.equal('MISSING');
      expect(await stateOf('prd', 'cds'), 'nobody has a cluster').not.to.equal('MISSING');
      for (const short of ['lds', 'rds']) expect(await stateOf('prod', short)).to.equal('SYNCED');
      const listed = await run('clients', '--state', 'missing', ...admin());
      expect(listed.out)
        .to.match(/ prd .* MISSING +lds rds MISSING/)
        .and.to.match(/no (lds \*|web): no variant matches; env=prod has (1|one), .*, and 1 more name$/m)
        .and.to.match(/1 of 4 clients$/);
      const seen = await run('status', ...admin());
      expect(seen.out).to.include(
        '1 client with env=prd gets no rds web: no variant matches; env=prod has one, ',
      );
      expect(seen.out).to.include(
        '1 client with env=prd gets no lds *: no variant matches; env=prod has 1, ',
      );
      const checked = await run('status', '--check', ...admin());
      expect(checked.out).to.match(/^WARNING: .*1 client with env=prd gets no rds web: no variant matches/);
      const why = await explainedOf(relay, 'prd', 'rds', 'web');
      expect(why).to.include('no variant matches').and.to.include('; 3 other classes have one');
      expect(why).to.include('It subscribes to this resource, which does not exist for it: MISSING.');
      const path = 'envoy.service.status.v3.ClientStatusDiscoveryService/FetchClientStatus';
      const { config } = csds.parse(JSON.parse((await relay.rpc(path, {})).body));
      const shown = config.find(({ node }) => node?.id === 'prd')?.generic_xds_configs ?? [];
      expect(shown.find(({ name }) => name === 'web')?.client_status).to.equal('DOES_NOT_EXIST');
    });

    it('explain says all that one client lacks, and of a client that has everything so', async () => {
      const explainedOf = async (node: string, ...flags: readonly string[]) => {
        const id = (await clientsOf(relay)).find((one) => one.node.id === node)?.id ?? '';
        return { ...(await run('explain', '--client', id, ...flags, ...admin())), id };
      };
      // Which other classes have one may be a second old.
      const lacks = await eventually(async () => {
        const told = await explainedOf('prd');
        expect(told.err).to.equal(`client ${told.id} (node prd, env=prd): 2 missing`);
        for (const type of ['lds', 'rds'])
          expect(told.out).to.match(new RegExp(`^${type} .*; 3 other classes have one$`, 'm'));
        return told;
      });
      expect(lacks.code).to.equal(1);
      expect(lacks.out)
        .to.match(/^lds +\* +MISSING +no variant matches; env=prod has 1, .*; 3 other classes have one$/m)
        .and.to.match(
          /^rds +web +MISSING +no variant matches; env=prod has one, .*; 3 other classes have one$/m,
        )
        .and.to.include(`$ distributary explain --client ${lacks.id} --type rds --name web`);
      const ofType = await explainedOf('prd', '--type', 'rds');
      expect(ofType.err).to.match(/: 1 missing$/);
      expect(ofType.out).not.to.match(/^lds/m);
      expect((await explainedOf('prd', '--name', 'web')).err).to.match(/: 1 missing$/);
      const well = await explainedOf('test', '-o', 'wide');
      expect(well.code, well.out).to.equal(0);
      expect(well.out).to.match(/^client \S+ \(node test, env=test\): 2 acknowledged$/m);
      expect(well.out).to.match(/^rds +web +SYNCED +env == "test" +\S+ +20\S+Z$/m);
      const json = await explainedOf('prd', '-o', 'json');
      const said = z
        .object({ states: z.record(z.string(), z.number()), total: z.number() })
        .parse(JSON.parse(json.out.slice(json.out.indexOf('{'))));
      expect(said).to.deep.equal({ states: { MISSING: 2 }, total: 2 });
      const none = await explainedOf('prd', '--type', 'eds', '--name', '*');
      expect(none.err, 'with both it is about one resource').to.include('explain takes one name');
      expect((await explainedOf('prd', '--type', 'eds')).err).to.match(
        / has no eds: it does not subscribe to it/,
      );
    });

    it('is counted, and is over once there is a variant for it', async () => {
      const counts = () =>
        Promise.all(
          ['missing_subscriptions', 'unmatched_subscriptions'].map((name) =>
            relay.metric(name, 'type="rds"'),
          ),
        );
      await eventually(async () => {
        expect(await counts()).to.deep.equal([1, 1]);
        expect(await relay.metric('unmatched_subscriptions', 'type="lds"')).to.equal(1);
      });
      for (const short of ['lds', 'rds']) forEnvs(short, ['prod', 'test', 'dev', 'prd']);
      await eventually(async () => {
        expect(await counts()).to.deep.equal([0, 0]);
        expect(await foundOf()).to.be.empty;
        expect(await stateOf('prd', 'rds')).to.equal('SYNCED');
      });
    });

    it('a wildcard that shows nothing because of a rollback says so, not that no variant matches', async () => {
      const newest = async (): Promise<number> => {
        const { out } = await run('history', '--limit', '1', '-o', 'json', ...admin());
        return changes.parse(JSON.parse(out)).changes[0]?.revision ?? 0;
      };
      const before = await newest();
      forEnvs('cds', ['prod']);
      await eventually(async () => expect(await newest()).to.be.above(before));
      const back = await run(
        'rollback',
        '--to',
        String(before),
        '--type',
        'cds',
        '--reason',
        'bad',
        ...admin(),
      );
      expect(back.code, back.out).to.equal(0);
      await eventually(async () => {
        const found = (await foundOf()).filter(({ type }) => type === 'cds').map(({ sentence }) => sentence);
        expect(found).to.include.members([
          '1 client with env=prod gets no cds *: it was rolled back and frozen',
          '1 client with env=test gets no cds *: no variant matches; env=prod has 1; 1 other class has one',
        ]);
      });
      expect((await run('history', '--name', 'nothing', ...admin())).out).to.equal(
        'no change of this is known',
      );
    });

    it('what nobody has is MISSING too, and known to be nowhere else', async () => {
      const client = connections.open({ protocol: 'delta', node: { id: 'odd', metadata: { env: 'dev' } } });
      client.want('rds', { names: ['nowhere'] });
      await eventually(async () => {
        const found = (await foundOf()).find(({ name }) => name === 'nowhere');
        expect(found).to.include({
          elsewhere: false,
          sentence: '1 client with env=dev gets no rds nowhere: upstream files does not have it',
        });
        expect(await relay.metric('missing_subscriptions', 'type="rds"')).to.equal(2);
        expect(await relay.metric('unmatched_subscriptions', 'type="rds"')).to.equal(1);
      });
    });
  });
}

it('constraints with many values are compared with those of a client that lacks all of them, and nobody waits', async () => {
  const [names, values] = [300, 100];
  const value = (at: number): string => `${at}-`.padEnd(64, 'x');
  const variant = (at: number): object => ({
    '@type': 'type.googleapis.com/envoy.service.discovery.v3.Resource',
    resource_name: {
      name: `shop-${at}`,
      dynamic_parameter_constraints: {
        or_constraints: {
          constraints: Array.from({ length: values }, (_, index) => ({
            constraint: { key: 'env', value: value(at * values + index) },
          })),
        },
      },
    },
    resource: { '@type': type('cds'), name: `shop-${at}` },
  });
  using files = new ResourceFiles();
  files.writeText(
    'cds.json',
    JSON.stringify({ resources: Array.from({ length: names }, (_, at) => variant(at)) }),
  );
  await using relay = await RelayProcess.startProbed({
    upstreams: [files.upstream],
    parameters: [{ key: 'env', from: 'node.metadata.env' }],
  });
  using connections = new Connections(relay.xds, 1);
  const client = connections.open({
    protocol: 'delta',
    node: { id: 'odd', metadata: { env: 'y'.repeat(64) } },
  });
  client.want('cds', { names: ['*'] });
  const why = await eventually(async () => {
    const { body } = await relay.rpc('distributary.admin.v1.AdminService/ListClasses', {});
    const [found] = classes.parse(JSON.parse(body)).problems;
    expect(found?.kind).to.equal('MISSING');
    return found?.sentence ?? '';
  });
  expect(why).to.match(/no variant matches; env=0-x+… has at least 1, /);
  // It was 2.7 s, each time somebody asked.
  expect((await relay.blocked()).cpu / slower()).to.be.below(500);
});
