import { spawnSync } from 'node:child_process';
import { expect } from 'chai';
import { parseAllDocuments, parse as parseYaml } from 'yaml';
import { z } from 'zod';
import { when } from '../support/in-memory-relay.ts';
import { run, runProcess } from './support/command.ts';
import { eventually } from './support/eventually.ts';
import { ResourceFiles } from './support/files.ts';
import { Process } from './support/process.ts';
import { distributary, RelayProcess } from './support/relay.ts';
import { clientsOf } from './support/relay-state.ts';
import { Connections } from './support/variant-client.ts';
import { writeVariants } from './support/variant-files.ts';

const listed = z.object({ clients: z.array(z.object({ node: z.object({ id: z.string() }) })) });

const variant = z.object({ upstream: z.string() });
const cached = z.object({
  resources: z.array(z.object({ type: z.string(), name: z.string(), variants: z.array(variant) })),
});

const sent = z.object({ variants: z.array(z.object({ resource: z.looseObject({}) })) });

/** Markup, an escape, a line end, a mark that turns the direction, a byte-order mark. */
const hostile = '<script>\u001B[31mred\n\u202Etxt.exe\u2066\uFEFF';
/** None of these may reach a terminal. */
const raw = /(?!\n)[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/u;

describe('commands about clients and resources', () => {
  let files: ResourceFiles;
  let relay: RelayProcess;
  let connections: Connections;

  const start = (more: object = {}): Promise<RelayProcess> =>
    RelayProcess.start({
      upstreams: [files.upstream],
      parameters: [{ key: 'env', from: 'node.metadata.env' }],
      drain_timeout: '100ms',
      ...more,
    });
  const writeShop = (): void =>
    writeVariants(files, 'eds', [
      ['shop', 'prod', when({ env: 'prod' })],
      ['shop', 'test', when({ env: 'test' })],
    ]);

  before(async () => {
    files = new ResourceFiles();
    writeShop();
    relay = await start();
  });

  beforeEach(() => {
    connections = new Connections(relay.xds, 4);
  });

  afterEach(async () => {
    connections[Symbol.dispose]();
    await eventually(async () => expect(await clientsOf(relay)).to.deep.equal([]));
  });

  after(async () => {
    await relay?.[Symbol.asyncDispose]();
    files?.[Symbol.dispose]();
  });

  const ask = (...argv: readonly string[]) => run(...argv, '--admin', `http://${relay.admin}`);
  /** Each command once as users run it: it prints much, or exits with something else than 0. */
  const askProcess = (...argv: readonly string[]) => runProcess(...argv, '--admin', `http://${relay.admin}`);

  /** So many streams that have subscribed to a resource and got it; of each third node the first half is of `prod`. */
  async function connect(count: number, env = 'prod'): Promise<void> {
    const streams = Array.from({ length: count }, (_, index) =>
      connections.open({ protocol: 'delta', node: { id: `${env}-${index}`, metadata: { env } } }),
    );
    for (const stream of streams) stream.want('eds', { names: ['shop'] });
    await Promise.all(streams.map((stream) => stream.gets('eds', [`shop: ${env}`])));
  }

  const cluster = (name: string, more: object): object => ({
    '@type': 'type.googleapis.com/envoy.config.cluster.v3.Cluster',
    name,
    ...more,
  });
  const write = (...resources: readonly object[]): void =>
    files.writeText('cds.json', JSON.stringify({ resources }));

  /** What `get` prints once the relay has read its files. */
  const shown = (...argv: readonly string[]) =>
    eventually(async () => {
      const found = await ask('get', ...argv);
      expect(found.code, found.out).to.equal(0);
      return found.out;
    });

  async function showsWhatAClientWasSent(): Promise<void> {
    write(cluster('taken', { connect_timeout: '1s' }));
    const nodes = ['takes', 'rejects'];
    const [takes, rejects] = nodes.map((id) =>
      connections.open({
        protocol: 'delta',
        node: { id, metadata: { env: 'prod' } },
        content: () => 'x',
        accepts: () => id === 'takes',
      }),
    );
    for (const client of [takes, rejects]) client?.want('cds', { names: ['taken'] });
    await takes?.gets('cds', ['taken: x']);
    // Each has a connection of its own, with workers perhaps a worker of its own.
    const byNode = await eventually(async () => {
      const ids = new Map((await clientsOf(relay)).map(({ id, node }) => [node.id, id]));
      expect([...ids.keys()]).to.include.members(nodes);
      return ids;
    });
    const get = (node: string) =>
      shown('--type', 'cds', '--name', 'taken', '--client', byNode.get(node) ?? '');
    // What a client says to it comes a moment later than the client has it.
    await eventually(async () => expect(await get('takes')).to.match(/, sent to client \S+: SYNCED$/m));
    expect(await get('takes')).to.match(/^connect_timeout: 1s$/m);
    expect(await get('takes'), 'a version without the hash of the relay').to.match(
      /, [^@ ]+ at the control plane, /,
    );
    const csds = 'envoy.service.status.v3.ClientStatusDiscoveryService/FetchClientStatus';
    expect((await relay.rpc(csds, {})).body).not.to.match(/"version_?[iI]nfo":"[^"]*@/);
    await eventually(async () => expect(await get('rejects')).to.match(/: ERROR \(not to my taste\)$/m));

    const nothing = await ask(
      'get',
      '--type',
      'eds',
      '--name',
      'shop',
      '--client',
      byNode.get('takes') ?? '',
    );
    expect(nothing.code).to.equal(1);
    expect(nothing.err).to.match(/^client \S+ has not been sent eds "shop"/);
  }

  describe('clients', () => {
    it('without any says so and exits 0', async () => {
      expect(await ask('clients')).to.deep.include({ code: 0, out: 'no client is connected', err: '' });
      expect(JSON.parse((await ask('clients', '--json')).out)).to.deep.equal({
        clients: [],
        total: 0,
        matching: 0,
        next_offset: 0,
        rejecting: 0,
        truncated: false,
      });
    });

    it('lists hundreds, filtered by node, type and state, those that reject first', async () => {
      await connect(300);
      await connect(1, 'test');
      const picky = connections.open({
        protocol: 'delta',
        node: { id: 'picky', metadata: { env: 'prod' } },
        accepts: () => false,
      });
      picky.want('eds', { names: ['shop'] });
      const rejecting = await eventually(async () => {
        const found = await ask('clients', '--state', 'error');
        expect(found.out).to.match(/^\d\S* +picky .* ERROR +eds ERROR +not to my taste$/m);
        return found;
      });
      expect(rejecting.code).to.equal(0);
      expect(rejecting.out).to.match(/\n\n1 of 302 clients$/);

      await eventually(async () =>
        expect((await ask('clients', '--state', 'SYNCED')).out).to.match(/\n\n301 of 302 clients$/),
      );
      const all = (await askProcess('clients', '-o', 'wide')).out.split('\n');
      expect(all[0]).to.match(/^CLIENT +NODE +CLUSTER +PEER +PROTOCOL +STATE +TYPES +WHY$/);
      expect(all[1]).to.include('picky');
      expect(all.filter((line) => / SYNCED +eds$/.test(line))).to.have.length(301);
      expect(all.at(-1)).to.equal('302 clients');
      const few = await ask('clients', '--node', 'prod-1*', '--type', 'eds', '--limit', '5', '--json');
      const nodes = listed.parse(JSON.parse(few.out)).clients.map(({ node }) => node.id);
      expect(nodes).to.have.length(5);
      expect(nodes.every((id) => id.startsWith('prod-1'))).to.equal(true);
      expect((await ask('clients', '--type', 'rds')).out).to.equal('no client matches (302 clients in all)');
    });

    it('writes no raw character of hostile names, neither in the table nor as JSON', async () => {
      const stream = connections.open({
        protocol: 'delta',
        node: { id: hostile + 'n'.repeat(900), cluster: hostile, metadata: { env: 'prod' } },
      });
      stream.want('eds', { names: ['shop', hostile] });
      await stream.gets('eds', ['shop: prod']);
      const { out } = await ask('clients');
      expect(out).not.to.match(raw);
      expect(out).to.include('<script> [31mred \\u{202e}txt.exe\\u{2066}\\u{feff}');
      expect(Math.max(...out.split('\n').map((line) => line.length))).to.be.below(1000);
      const json = (await ask('clients', '--json')).out;
      expect(json).not.to.match(raw);
      expect(listed.parse(JSON.parse(json)).clients[0]?.node.id).to.equal(hostile + 'n'.repeat(900));
    });

    it('--watch shows changes until Ctrl-C, and then exits 0', async () => {
      const watching = new Process(distributary('clients', '--watch', '--admin', `http://${relay.admin}`));
      try {
        await watching.line(/^no client is connected$/);
        await connect(1);
        await watching.line(/prod-0 .* SYNCED/);
      } finally {
        expect(await watching.stop('SIGINT')).to.equal(0);
      }
      expect(watching.errors).to.deep.equal([]);
    });

    it('whose reader has gone ends with 0 only if it shows something', () => {
      const codeOf = (...argv: readonly string[]): number | null => {
        const { command, args } = distributary(...argv);
        const script = 'set -o pipefail; "$0" "$@" 2>&1 | true';
        return spawnSync('bash', ['-c', script, command, ...args], { stdio: 'ignore' }).status;
      };
      const admin = ['--admin', `http://${relay.admin}`];
      expect(codeOf('wait', '--timeout', '2s', '--name', 'nobody', ...admin)).not.to.equal(0);
      expect(codeOf('status', '--check', '--admin', 'http://127.0.0.1:9')).not.to.equal(0);
      expect(codeOf('resources', ...admin)).to.equal(0);
    });

    it('refuses what it does not know with the usage line, and exits 2', async () => {
      const { code, out, err } = await askProcess('clients', '--nod', 'x');
      expect([code, out]).to.deep.equal([2, err]);
      expect(err).to.match(/^unknown flag "--nod": did you mean --node\?\n\nUsage: distributary clients /);
      expect(err).to.match(/\n\ndistributary clients --help shows what each flag is for\.$/);
      expect(err.split('\n').length).to.be.below(8);
      expect((await ask('clients', '--state', 'good')).err).to.match(
        /^unknown --state "good": expected SYNCED, NOT_SENT, STALE, ERROR or MISSING\n/,
      );
      expect((await ask('clients', '--type')).err).to.match(/^the value of --type is missing/);
    });

    it('exits 1 where no relay answers, in one line', async () => {
      const { code, err } = await run('clients', '--admin', 'http://127.0.0.1:1');
      expect(code).to.equal(1);
      expect(err).to.match(/^cannot reach the relay's admin listener at http:\/\/127\.0\.0\.1:1: [^\n]+$/);
      expect(await clientsOf(relay)).to.deep.equal([]);
    });
  });

  describe('resources', () => {
    it('lists each variant, by type and name', async () => {
      await eventually(async () => {
        const { code, out } = await ask('resources', '-o', 'wide');
        expect(code).to.equal(0);
        expect(out).to.match(/^TYPE +NAME +CONSTRAINTS +VERSION +UPSTREAM VERSION +BYTES +SINCE +UPSTREAM$/m);
        expect(out).to.match(/^eds +shop +env == "prod" +[0-9a-f]{16} +\S+ +\d+ +\S+Z +files$/m);
        expect(out).to.match(/^eds +shop +env == "test" /m);
        expect(out).to.match(/\n\n1 resource in 2 variants$/);
      });
      for (const [name, found] of [
        ['sho*', true],
        ['shop', true],
        ['sho', false],
      ] as const) {
        const { code, out } = await ask('resources', '--type', 'eds', '--name', name);
        expect([code, out.includes('env == "test"')], out).to.deep.equal([0, found]);
      }
      expect(cached.parse(JSON.parse((await ask('resources', '--json')).out)).resources).to.deep.equal([
        { type: 'eds', name: 'shop', variants: [{ upstream: 'files' }, { upstream: 'files' }] },
      ]);
      expect((await ask('resources', '--name', 's*p')).code).to.equal(2);
    });

    it('without any says so and exits 0; hundreds and hostile names fit', async () => {
      files.remove('eds.pb');
      await eventually(async () =>
        expect(await ask('resources')).to.deep.include({ code: 0, out: 'no cached resource matches' }),
      );
      writeVariants(files, 'eds', [
        [hostile + 'n'.repeat(10_000), 'x', undefined],
        ...Array.from({ length: 400 }, (_, index) => [`name-${index}`, 'x', undefined] as const),
      ]);
      await eventually(async () => expect((await ask('resources')).out).to.match(/\n\n401 resources in 401/));
      const { out } = await askProcess('resources');
      expect(out).not.to.match(raw);
      expect(Math.max(...out.split('\n').map((line) => line.length))).to.be.below(1000);
      expect((await ask('resources', '--limit', '10')).out).to.match(/\n\n10 resources .*there are more/);
    });
  });

  describe('get', () => {
    const inline = {
      name: 'tls',
      typed_config: {
        '@type': 'type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext',
        sni: 'shop.internal',
        common_tls_context: { tls_certificates: [{ private_key: { inline_string: 'the-inline-key' } }] },
      },
    };
    before(writeShop);

    it('shows every variant as a YAML document, without what is sensitive', async () => {
      write(cluster('shop', { connect_timeout: '2s', alt_stat_name: hostile, transport_socket: inline }));
      const out = await shown('--type', 'cds', '--name', 'shop');
      expect(out).to.match(
        /^# \(all\), version [0-9a-f]{16}, \S+ at the control plane, \d+ B, cached since \S+Z, from files$/m,
      );
      expect(out).not.to.include('the-inline-key');
      expect(out).not.to.match(raw);
      const body: unknown = parseYaml(out);
      expect(body).to.deep.include({ name: 'shop', connect_timeout: '2s', alt_stat_name: hostile });
      expect(JSON.stringify(body)).to.include('shop.internal');

      const both = await shown('--type', 'eds', '--name', 'shop');
      expect(parseAllDocuments(both)).to.have.length(2);
      expect(both)
        .to.match(/^# env == "prod", /m)
        .and.to.match(/^---\n# env == "test", /m);
      const json = await shown('--type', 'cds', '--name', 'shop', '--json');
      expect(json).not.to.match(raw).and.not.to.include('the-inline-key');
      expect(sent.parse(JSON.parse(json)).variants[0]?.resource).to.include({ connect_timeout: '2s' });
    });

    it('shows no secret at all', async () => {
      const secret = {
        '@type': 'type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret',
        name: 'key',
        generic_secret: { secret: { inline_string: 'the-password' } },
      };
      files.writeText('sds.json', JSON.stringify({ resources: [secret] }));
      const out = await shown('--type', 'sds', '--name', 'key');
      expect(out).to.include('# secrets are not shown').and.not.to.include('the-password');
      expect(await shown('--type', 'sds', '--name', 'key', '--json')).not.to.include('the-password');
    });

    it('--client shows what that client was sent and whether it took it', showsWhatAClientWasSent);

    it('of what is not there exits 1 and says so; without a type or name 2', async () => {
      const missing = await askProcess('get', '--type', 'cds', '--name', hostile);
      expect(missing.code).to.equal(1);
      expect(missing.err)
        .to.match(/^no cds "<script>.* is cached/)
        .and.not.to.match(raw);
      const nobody = await ask('get', '--type', 'cds', '--name', 'x', '--client', 'nobody');
      expect([nobody.code, nobody.err]).to.deep.equal([
        1,
        'there is no client nobody: the ids are in the column CLIENT of distributary clients; --node there finds those of a node',
      ]);
      expect((await ask('get', '--name', 'x')).err).to.match(
        /^--type T is missing: a type URL, or one of [a-z ]+\n\nUsage: distributary get /,
      );
      expect((await ask('get', '--type', 'cds')).code).to.equal(2);
    });
  });

  describe('with 2 workers', () => {
    let alone: RelayProcess;

    before(async () => {
      alone = relay;
      relay = await start({ workers: 2 });
    });
    after(async () => {
      await relay?.[Symbol.asyncDispose]();
      relay = alone;
    });

    it('clients lists those of all workers', async () => {
      await connect(20);
      await eventually(async () => {
        const { out } = await ask('clients', '--node', 'prod-*', '--state', 'SYNCED');
        expect(out).to.match(/\n\n20 clients$/);
      });
    });

    it('get --client shows what that client was sent and whether it took it', showsWhatAClientWasSent);
  });
});
