import { expect } from 'chai';
import { parse } from 'yaml';
import { z } from 'zod';
import { when } from '../support/in-memory-relay.ts';
import { run } from './support/command.ts';
import { eventually } from './support/eventually.ts';
import { ResourceFiles } from './support/files.ts';
import { type RelayConfig, RelayProcess } from './support/relay.ts';
import { clientsOf } from './support/relay-state.ts';
import { Connections } from './support/variant-client.ts';
import { writeVariants } from './support/variant-files.ts';

const history = z.object({
  revision: z.number(),
  changes: z.array(
    z.object({
      revision: z.number(),
      upstream: z.string(),
      type: z.string(),
      verdict: z.string(),
      bodies: z.boolean(),
      names: z.array(z.object({ name: z.string(), change: z.string() })),
    }),
  ),
});
const different = z.object({
  total: z.number(),
  differences: z.array(
    z.object({
      type: z.string(),
      name: z.string(),
      change: z.string(),
      variants: z.array(z.object({ constraints: z.string(), yaml: z.string() })),
    }),
  ),
});

/** Markup, an escape, a line end, a mark that turns the direction, a byte-order mark. */
const hostile = '<script>\u001B[31mred\n\u202Etxt.exe\u2066\uFEFF: 1 #';
/** None of these may reach a terminal. */
const raw = /(?!\n)[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/u;

const cluster = (name: string, timeout: string, more = ''): string =>
  `{"@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster", "name": "${name}", "connect_timeout": "${timeout}"${more}}`;
const clusters = (...list: readonly string[]): string => `{"resources": [${list.join(',')}]}`;

describe('history and diff', () => {
  let files: ResourceFiles;
  let relay: RelayProcess;
  let connections: Connections;
  const admin = (): readonly string[] => ['--admin', `http://${relay.admin}`];

  const start = (config: Partial<RelayConfig> = {}): Promise<RelayProcess> =>
    RelayProcess.start({
      upstreams: [files.upstream],
      parameters: [{ key: 'env', from: 'node.metadata.env' }],
      drain_timeout: '100ms',
      ...config,
    });

  before(async () => {
    files = new ResourceFiles();
    files.writeText('cds.json', clusters(cluster('shop', '1s'), cluster('old', '1s')));
    relay = await start();
  });

  beforeEach(() => {
    connections = new Connections(relay.xds);
  });

  afterEach(() => connections[Symbol.dispose]());

  after(async () => {
    await relay?.[Symbol.asyncDispose]();
    files?.[Symbol.dispose]();
  });

  const json = async (...argv: readonly string[]): Promise<unknown> => {
    const { code, out, err } = await run(...argv, '--json', ...admin());
    expect(code, err).to.equal(0);
    return JSON.parse(out);
  };
  const changesOf = async (...argv: readonly string[]) =>
    history.parse(await json('history', ...argv)).changes;
  const diff = async (...argv: readonly string[]) => different.parse(await json('diff', ...argv));

  async function open(id: string, env: string) {
    const client = connections.open({
      protocol: 'delta',
      node: { id, cluster: 'web', metadata: { env } },
      content: () => '',
    });
    client.want('cds', { names: ['*'] });
    await eventually(() => {
      if (client.has('cds').length === 0) throw new Error('it has nothing yet');
    });
    return client;
  }

  async function changed(count: number): Promise<void> {
    await eventually(async () => {
      const known = (await changesOf('--type', 'cds')).length;
      if (known < count) throw new Error(`there are ${known} changes`);
    });
  }

  it('shows each change, and what differs between two of them, field by field', async () => {
    await open('a', 'prod');
    await changed(1);
    files.writeText(
      'cds.json',
      clusters(cluster('shop', '5s', ', "lb_policy": "RANDOM"'), cluster('new', '1s')),
    );
    await changed(2);
    const [second, first] = await changesOf('--type', 'cds');
    expect(first).to.include({
      revision: 1,
      upstream: 'files',
      type: 'cds',
      verdict: 'RELEASED',
      bodies: true,
    });
    expect(second?.revision).to.equal(2);
    expect(second?.names).to.have.deep.members([
      { name: 'shop', change: 'CHANGED' },
      { name: 'old', change: 'REMOVED' },
      { name: 'new', change: 'ADDED' },
    ]);
    expect(await changesOf('--name', 'new')).to.have.length(1);
    await eventually(async () => {
      const table = await run('history', '-o', 'wide', ...admin());
      expect(table.out).to.match(/^2 +\S+Z +files +cds +RELEASED +1 +0 +yes .*~shop/m);
    });

    const names = await diff('1', '2');
    expect(names.differences.map(({ name, change }) => `${name} ${change}`)).to.deep.equal([
      'new ADDED',
      'old REMOVED',
      'shop CHANGED',
    ]);
    const { differences } = await diff('--from', '1', '--to', '2', '--type', 'cds', '--name', 'shop');
    expect(differences[0]?.variants[0]?.yaml).to.equal(
      'connect_timeout:\n  from: 1s\n  to: 5s\nlb_policy:\n  to: RANDOM\n',
    );
    expect((await diff('--from', '2', '--to', '2')).total).to.equal(0);

    for (const [argv, why] of [
      [['--from', '1', '--to', '99'], /there is no revision 99: the last one is 2$/m],
      [['--client', 'x', '--client', 'y'], /there is no client x/],
    ] as const) {
      const refused = await run('diff', ...argv, ...admin());
      expect(refused.code).to.equal(1);
      expect(refused.err).to.match(why);
    }
    const accepted =
      'expected REV REV, --from REV --to REV, --pending, --client ID --client ID, or --param KEY=VALUE --against KEY=VALUE';
    const number = 'expected a whole number from 1 to 4294967295, got';
    for (const [argv, why] of [
      [[], `nothing to compare: ${accepted}`],
      [['1'], `the second revision is missing: ${accepted}`],
      [['--from', '1'], `--to is missing: ${accepted}`],
      [['--to', '2'], `--from is missing: ${accepted}`],
      [['x', '2'], `the first revision: ${number} "x"`],
      [['1', '0'], `the second revision: ${number} "0"`],
      [['--from', 'x', '--to', '2'], `--from: ${number} "x"`],
      [['--from', '1', '--to', '5000000000'], `--to: ${number} "5000000000"`],
      [['--client', 'a'], '--client: expected two, got 1'],
      [['--pending', '--from', '1', '--to', '2'], `too much to compare: ${accepted}`],
    ] as const) {
      const { code, err } = await run('diff', ...argv, ...admin());
      expect([code, err.split('\n')[0]], argv.join(' ')).to.deep.equal([2, why]);
    }
  });

  it('writes no raw character of hostile names, fields and values; its YAML is read back as they are', async () => {
    const more = (value: string): string =>
      `, "metadata": ${JSON.stringify({ filter_metadata: { [hostile]: { [hostile]: value } } })}`;
    const named = (value: string): string => cluster(JSON.stringify(hostile).slice(1, -1), '1s', more(value));
    const before = (await changesOf('--type', 'cds')).length;
    files.writeText('cds.json', clusters(named('safe')));
    await open('a', 'prod');
    await changed(before + 1);
    files.writeText('cds.json', clusters(named(hostile)));
    await changed(before + 2);
    const [newest, older] = await changesOf('--type', 'cds');
    const range = ['--from', String(older?.revision), '--to', String(newest?.revision)];
    const asked = ['diff', ...range, '--name', hostile, ...admin()];
    const { code, out, err } = await run(...asked);
    expect(code, err).to.equal(0);
    expect(out).not.to.match(raw);
    const path = `metadata.filter_metadata.${hostile}.${hostile}`;
    const difference: unknown = { [path]: { from: 'safe', to: hostile } };
    expect(parse(out.slice(out.indexOf('# changed')))).to.deep.equal(difference);
    const listed = (await run('history', ...admin())).out;
    expect(listed).to.include('txt.exe').and.not.to.match(raw);
    const whole = await run(...asked, '--json');
    expect(whole.out).not.to.match(raw);
    const [shown] = different.parse(JSON.parse(whole.out)).differences;
    expect(shown?.name).to.equal(hostile);
    expect(parse(shown?.variants[0]?.yaml ?? '')).to.deep.equal(difference);
  });

  it('compares what two clients have, and two parameter sets; secrets are not shown', async () => {
    writeVariants(files, 'cds', [
      ['shop', 'prod', when({ env: 'prod' })],
      ['shop', 'test', when({ env: 'test' })],
      ['debug', 'test', when({ env: 'test' })],
      ['common', 'all', undefined],
    ]);
    const tls = 'type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret';
    const secret = (value: string): string =>
      `{"resources": [{"@type": "${tls}", "name": "key", "generic_secret": {"secret": {"inline_string": "${value}"}}}]}`;
    files.writeText('sds.json', secret('hidden-1'));
    const prod = await open('p', 'prod');
    await open('t', 'test');
    prod.want('sds', { names: ['key'] });
    await eventually(async () => {
      if ((await changesOf('--type', 'sds')).length === 0) throw new Error('the secret is not there yet');
    });
    const expected = ['debug ADDED', 'shop CHANGED'];
    const shown = ({ differences }: z.infer<typeof different>): readonly string[] =>
      differences.map(({ name, change }) => `${name} ${change}`);
    const sets = ['--param', 'env=prod', '--against', 'env=test', '--type', 'cds'];
    await eventually(async () => expect(shown(await diff(...sets))).to.deep.equal(expected));
    const clients = await clientsOf(relay);
    const id = (node: string): string => clients.find((one) => one.node.id === node)?.id ?? '';
    const ofClients = ['--client', id('p'), '--client', id('t'), '--type', 'cds'];
    await eventually(async () => expect(shown(await diff(...ofClients))).to.deep.equal(expected));

    files.writeText('sds.json', secret('hidden-2'));
    await eventually(async () => {
      if ((await changesOf('--type', 'sds')).length < 2) throw new Error('the secret has not changed yet');
    });
    const [newest] = await changesOf('--type', 'sds');
    const to = newest?.revision ?? 0;
    const difference = await run(
      'diff',
      '--from',
      String(to - 1),
      '--to',
      String(to),
      '--name',
      'key',
      ...admin(),
    );
    expect(difference.out).to.include('secrets are not shown').and.not.to.include('hidden');
  });

  it('an xdstp name means the same in every spelling, that of a client too', async () => {
    const spelled = (id: string): string => `xdstp://a/envoy.config.cluster.v3.Cluster/${id}`;
    const [canonical, other] = [spelled('web?a=1&b=2'), spelled('we%62?b=2&a=1')];
    const before = (await changesOf('--type', 'cds')).length;
    files.writeText('cds.json', clusters(cluster(canonical, '1s')));
    await open('a', 'prod');
    await changed(before + 1);
    files.writeText('cds.json', clusters(cluster(canonical, '2s')));
    await changed(before + 2);
    const [newest, older] = await changesOf('--type', 'cds');
    const range = ['--from', String(older?.revision), '--to', String(newest?.revision)];
    for (const type of [[], ['--type', 'cds']]) {
      expect(await changesOf('--name', other, ...type)).to.have.length(2);
      const { differences } = await diff(...range, '--name', other, ...type);
      expect(differences.map(({ variants }) => variants.map(({ yaml }) => yaml))).to.deep.equal([
        ['connect_timeout:\n  from: 1s\n  to: 2s\n'],
      ]);
      for (const asked of [['history'], ['diff', ...range]]) {
        const wrong = await run(...asked, '--name', 'xdstp://a', ...type, ...admin());
        expect(wrong.code).to.equal(1);
        expect(wrong.err).to.include('it is not of the form xdstp://[authority]/type/id');
      }
    }
    const ids = ['one', 'two'];
    for (const [at, id] of ids.entries()) {
      const client = connections.open({ protocol: 'delta', node: { id } });
      client.want('cds', { names: [at === 0 ? canonical : other] });
      await eventually(() => expect(client.has('cds')).to.have.length(1));
    }
    const known = await clientsOf(relay);
    const flags = ids.flatMap((id) => ['--client', known.find(({ node }) => node.id === id)?.id ?? '']);
    expect((await diff(...flags, '--type', 'cds')).total).to.equal(0);
  });

  it('keeps 100 changes without bodies where history is false', async () => {
    await relay[Symbol.asyncDispose]();
    connections[Symbol.dispose]();
    using own = new ResourceFiles();
    own.writeText('cds.json', clusters(cluster('shop', '1s')));
    relay = await start({ upstreams: [own.upstream], history: false });
    connections = new Connections(relay.xds);
    await open('a', 'prod');
    own.writeText('cds.json', clusters(cluster('shop', '2s')));
    await changed(2);
    const [second] = await changesOf('--type', 'cds');
    expect(second).to.include({ revision: 2, bodies: false });
    const refused = await run('diff', '--from', '1', '--to', '2', ...admin());
    expect(refused.code).to.equal(1);
    expect(refused.err).to.match(/was not kept: the configuration has history: false/);
  });
});
