import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { createServer } from 'node:net';
import { mock } from 'node:test';
import { fileURLToPath } from 'node:url';
import { stripVTControlCharacters } from 'node:util';
import { expect } from 'chai';
import { startAdminServer } from '../../src/admin/admin-server.ts';
import type { HttpListener } from '../../src/admin/http-listener.ts';
import type { Plain } from '../../src/admin/service.ts';
import { diff, history } from '../../src/commands/changes.ts';
import { commands } from '../../src/commands/commands.ts';
import { faultyNode } from '../../src/commands/node-version.ts';
import { freeze } from '../../src/commands/operations.ts';
import { explain, get } from '../../src/commands/resources.ts';
import { clients, status } from '../../src/commands/status.ts';
import type { Terminal } from '../../src/commands/terminal.ts';
import { tap } from '../../src/commands/wait.ts';
import type { StatusResponse } from '../../src/gen/distributary/admin/v1/admin_pb.ts';
import { createLog } from '../../src/observe/log.ts';
import { textTable } from '../../src/observe/text-table.ts';
import { OPEN as access, fakeInspector, statusWith } from '../support/inspector.ts';

type Command = (argv: readonly string[], terminal: Terminal) => Promise<number>;

async function call(command: Command, ...argv: string[]) {
  let out = '';
  let err = '';
  const terminal: Terminal = {
    out: (text) => {
      out += text;
    },
    err: (text) => {
      err += text;
    },
    environment: {},
  };
  return { code: await command(argv, terminal), out, err };
}

describe('commands that ask a relay', () => {
  const inspector = fakeInspector();
  let server: HttpListener;
  let url: string;

  before(async () => {
    const log = createLog({ level: 'silent' });
    const started = await startAdminServer({
      host: '127.0.0.1',
      port: 0,
      tls: undefined,
      access,
      inspector,
      log,
    });
    if (!started.ok) throw new Error(started.error);
    server = started.value;
    url = `http://${server.address}`;
  });
  after(() => server.close());

  it('status prints upstreams, staleness, types, clients and rejections', async () => {
    const { code, out } = await call(status, '--admin', url);
    expect(code).to.equal(0);
    expect(out).to.match(
      /^distributary 1\.2\.3, up for 1 h 2 min: ready \(serves; 5 problems\)\nServing 4 clients; upstream second is unreachable \(for .*; 2 more problems\.\nclients: 4 streams; cache: 4\.7 GiB\nnode: relay-eu-1 on machine-7\n/,
    );
    expect(out).to.match(
      /^warning: The configuration is accepted with a warning\n {2}xds\.address: <everybody> may read\n {2}see docs\/runbooks\/configuration-dangerous\.md$/m,
    );
    expect(out).to.match(
      /^critical: 7 removals of cds from second are held back \(for \d+ d.*\n {2}\$ distributary release --upstream second --type cds --reason "…"$/m,
    );
    expect(out).to.match(/^central +connected +current +ads cp-1:18000 +2$/m);
    expect(out).to.match(/^second +not connected +out of date for \d+ d( \d+ h)?, from siblings/m);
    expect(out).to.match(/^cds +3 +5 +7 +1$/m);
    expect(out).to.include('no such "filter" & more');
  });

  it("status lets no peer's escapes or line ends reach the terminal", async () => {
    const { out } = await call(status, '--admin', url);
    expect(out).not.to.include('\u001B');
    expect(out).to.match(/connection refused <b> \[31m$/m);
  });

  it('status has colours on a terminal that has them, and columns as without', async () => {
    let out = '';
    const terminal = { out: (text: string) => (out += text), err: () => {}, environment: {} };
    await status(['--admin', url], {
      ...terminal,
      screen: { colours: true, rows: () => 50, columns: () => 300 },
    });
    expect(out)
      .to.include('\u001B[31mnot connected\u001B[39m')
      .and.to.include('\u001B[32mconnected\u001B[39m');
    const plain = (await call(status, '--admin', url)).out;
    const rows = (text: string) => stripVTControlCharacters(text).split('\n').slice(1);
    expect(rows(out)).to.deep.equal(rows(plain));
  });

  it('status --check is one line: 0 well, 1 warning, 2 critical, 3 cannot ask', async () => {
    const answers: Plain<StatusResponse>[] = [];
    const checked = await startAdminServer({
      host: '127.0.0.1',
      port: 0,
      tls: undefined,
      access,
      log: createLog({ level: 'silent' }),
      inspector: fakeInspector({ status: () => answers.shift() ?? statusWith() }),
    });
    if (!checked.ok) throw new Error(checked.error);
    const check = () => call(status, '--check', '--admin', `http://${checked.value.address}`);
    const well = { upstreams: [], types: [], warnings: [], nacks: [] };
    answers.push(statusWith(well), statusWith({ ...well, warnings: ['oh'] }));
    try {
      expect(await check()).to.deep.equal({ code: 0, out: 'OK: Serving 4 clients; all is well.\n', err: '' });
      expect(await check()).to.deep.equal({
        code: 1,
        out: 'WARNING: Serving 4 clients; the configuration is accepted with a warning (oh).\n',
        err: '',
      });
      const { code, out } = await check();
      expect(code).to.equal(2);
      expect(out).to.match(
        /^CRITICAL: Serving 4 clients; upstream second is unreachable \(for [^\n(;]+; connection refused <b> [^\n]+\); [^\n]+; 2 more problems\.\n$/,
      );
    } finally {
      await checked.value.close();
    }
    const nobody = await check();
    expect(nobody.code).to.equal(3);
    expect(nobody.out).to.match(/^UNKNOWN: cannot reach the relay's admin listener at [^\n]+\n$/);
    const asData = await call(status, '--check', '--admin', 'http://127.0.0.1:1', '--json');
    expect([asData.code, asData.out]).to.deep.equal([3, '']);
    expect(asData.err).to.match(/^UNKNOWN: cannot reach the relay/);
    const nowhere = await call(status, '--check', '--admin', 'nonsense');
    expect(nowhere.code).to.equal(3);
  });

  it('status --json prints every field', async () => {
    const { code, out } = await call(status, '--admin', `${url}/`, '--json');
    expect(code).to.equal(0);
    expect(JSON.parse(out)).to.deep.include({ ready: true, reason: '', clients: 4 });
  });

  it('a password in the URL is in no error', async () => {
    const { err } = await call(status, '--admin', 'http://me:secret@127.0.0.1:1');
    expect(err).to.include('127.0.0.1:1').and.not.to.include('secret');
  });

  it('every command that asks gives up after 10 s where a listener does not answer', async () => {
    const silent = createServer((socket) => socket.resume());
    await new Promise<void>((resolve) => {
      silent.listen(0, '127.0.0.1', resolve);
    });
    const address = silent.address();
    const at = `http://127.0.0.1:${typeof address === 'object' ? address?.port : ''}`;
    mock.timers.enable({ apis: ['setTimeout'] });
    try {
      for (const command of [tap, status, clients]) {
        const connected = once(silent, 'connection');
        const asked = call(command, '--admin', at);
        await connected;
        mock.timers.tick(10_000);
        expect(await asked).to.deep.equal({ code: 1, out: '', err: `${at}: the operation timed out\n` });
      }
    } finally {
      mock.timers.reset();
      silent.close();
    }
  });

  it('diff, get, clients and history go on until nothing is left', async () => {
    const names = ['a', 'b', 'c'];
    /** One row in each answer. */
    const next = (offset: number): number => (offset + 1 < names.length ? offset + 1 : 0);
    const rowAt = (offset: number): string => names[offset] ?? '';
    const paged = await startAdminServer({
      host: '127.0.0.1',
      port: 0,
      tls: undefined,
      access,
      log: createLog({ level: 'silent' }),
      inspector: fakeInspector({
        diff: ({ offset }) => ({
          differences: [{ type: 'cds', name: rowAt(offset), change: 'ADDED' }],
          total: names.length,
          nextOffset: next(offset),
        }),
        history: ({ before }) => ({
          changes: [{ upstream: rowAt(before), type: 'cds' }],
          nextBefore: next(before),
        }),
        getResource: ({ offset }) => ({
          variants: [{ constraints: rowAt(offset), omitted: 'it has no body' }],
          nextOffset: next(offset),
        }),
        listClients: ({ offset }) => ({ clients: [{ id: rowAt(offset) }], nextOffset: next(offset) }),
      }),
    });
    if (!paged.ok) throw new Error(paged.error);
    const to = ['--json', '--admin', `http://${paged.value.address}`];
    try {
      const asked = [
        await call(diff, '--pending', ...to),
        await call(get, '--type', 'cds', '--name', 'web', ...to),
        await call(clients, ...to),
        await call(history, ...to),
      ];
      for (const { code, out } of asked) {
        expect(code).to.equal(0);
        for (const name of names) expect(out).to.include(`"${name}"`);
      }
    } finally {
      await paged.value.close();
    }
  });

  it('explain prints the match and why others do not match; 0', async () => {
    const { code, out } = await call(
      explain,
      '--type',
      'cds',
      '--name',
      'web',
      '--param',
      'env=prod',
      '--admin',
      url,
    );
    expect(code).to.equal(0);
    expect(out).to.match(/^cds web for env=prod: env == "prod"\n/);
    expect(out).to.match(/^yes +env == "prod" +5e1f +7 +env == "prod" holds$/m);
  });

  it('explain ends with 1 where no variant matches, and says why', async () => {
    const { code, out, err } = await call(
      explain,
      '--type',
      'cds',
      '--name',
      'web',
      '--param',
      'a=b=c',
      '--admin',
      url,
    );
    expect(code).to.equal(1);
    expect(err).to.include('for a=b=c: no variant matches');
    expect(out).to.include('env is not given');
    expect((await call(explain, '--type', 'cds', '--name', 'x', '--admin', url)).err).to.include(
      'does not exist upstream',
    );
  });

  it('a type has its short name in what is said, however it is given', async () => {
    for (const type of ['CDS', 'type.googleapis.com/envoy.config.cluster.v3.Cluster'])
      expect((await call(explain, '--type', type, '--name', 'x', '--admin', url)).err).to.match(
        /^cds x for /,
      );
  });

  it('explain of a wildcard or a glob says what that selects, and what lists it; 1', async () => {
    const explained = (name: string) => call(explain, '--type', 'cds', '--name', name, '--admin', url);
    const all = await explained('*');
    expect(all.code).to.equal(1);
    expect(all.err).to.include(
      'it selects every cds that exists for a client, and explain takes one name: "distributary resources --type cds" lists them',
    );
    expect((await explained('xdstp://a/envoy.config.cluster.v3.Cluster/eu/*?env=prod')).err).to.include(
      `what is one level below, and explain takes one name: "distributary resources --type cds --name 'xdstp://a/envoy.config.cluster.v3.Cluster/eu/*'"`,
    );
    // `*` at the end of a plain name is a letter (docs/protocol.md).
    expect((await explained('shop/*')).err).not.to.include('it selects');
  });

  it('explain --client tells what that client was sent', async () => {
    const { code, out } = await call(
      explain,
      '--type',
      'cds',
      '--name',
      'web',
      '--client',
      '17',
      '--admin',
      url,
    );
    expect(code).to.equal(0);
    expect(out).to.include('This client was last sent version v1: ERROR (rejected), last rejected: bad');
    const nobody = await call(
      explain,
      '--type',
      'cds',
      '--name',
      'web',
      '--client',
      'nobody',
      '--admin',
      url,
    );
    expect(nobody).to.deep.equal({ code: 1, out: '', err: 'there is no client "nobody"\n' });
  });

  it('explain --json prints what the RPC answers', async () => {
    const { out } = await call(
      explain,
      '--type',
      'cds',
      '--name',
      'web',
      '--param',
      'env=prod',
      '--json',
      '--admin',
      url,
    );
    expect(JSON.parse(out)).to.deep.include({ match: 'env == "prod"', match_found: true, ambiguous: false });
  });

  it('a relay that is not there is one clear line; 1', async () => {
    const free = 'http://127.0.0.1:1';
    for (const argv of [[status], [explain, '--type', 'cds', '--name', 'web']] as const) {
      const [command, ...rest] = argv;
      const { code, out, err } = await call(command, ...rest, '--admin', free);
      expect([code, out]).to.deep.equal([1, '']);
      expect(err).to.equal(
        `cannot reach the relay's admin listener at ${free}: connection refused: nothing listens there (ECONNREFUSED)\n`,
      );
    }
  });

  it('wrong flags: usage on stderr; 2', async () => {
    for (const [command, ...argv] of [
      [status, '--nope'],
      [status, '--admin', 'localhost:19000'],
      [explain, '--name', 'web'],
      [explain, '--type', 'cds'],
      [explain, '--type', 'nope', '--name', 'web'],
      [explain, '--type', 'cds', '--name', 'web', '--param', 'env'],
      [explain, '--type', 'cds', '--name', 'web', '--param', 'a=1', '--param', 'a=2'],
    ] as const) {
      const { code, out, err } = await call(command, ...argv);
      expect([code, out], argv.join(' ')).to.deep.equal([2, '']);
      expect(err).to.match(/Usage: distributary (status|explain)/);
    }
  });

  it('--version is one of every command, and no value: of a flag it is that its value is missing', async () => {
    for (const command of commands)
      expect(await call(command, '--version'), command.name).to.deep.equal({
        code: 0,
        out: '0.1.0\n',
        err: '',
      });
    const { code, out, err } = await call(freeze, '--reason', '--version', '--admin', url);
    expect([code, out]).to.deep.equal([2, '']);
    expect(err).to.match(
      /^the value of --reason is missing \(if it begins with "-", write --reason=--version\)\n/,
    );
  });

  it('--help: usage on stdout; 0', async () => {
    for (const command of [status, explain]) {
      const { code, out, err } = await call(command, '--help');
      expect([code, err]).to.deep.equal([0, '']);
      expect(out).to.match(/^Usage: distributary/);
    }
  });
});

describe('text table', () => {
  it('aligns columns and leaves no trailing spaces', () => {
    expect(
      textTable(
        [
          { a: 'wide cell', long: 1 },
          { a: 'b', long: '' },
        ],
        ['a', 'long'],
        { paint: (_, text) => text, wide: false, columns: Number.POSITIVE_INFINITY },
      ),
    ).to.equal('A          LONG\nwide cell  1\nb');
  });
});

describe('the command distributary', () => {
  const main = fileURLToPath(new URL('../../src/main.ts', import.meta.url));
  const launch = (...argv: string[]) =>
    new Promise<{ code: number | null; out: string; err: string }>((resolve) => {
      const child = execFile(process.execPath, [main, ...argv], (_error, out, err) =>
        resolve({ code: child.exitCode, out, err }),
      );
    });

  it('knows --version and --help everywhere', async () => {
    expect(await launch('--version')).to.deep.include({ code: 0, out: '0.1.0\n' });
    expect(await launch('status', '--version')).to.deep.include({ code: 0, out: '0.1.0\n' });
    expect((await launch('freeze', '--reason', '--version')).code).to.equal(2);
    expect((await launch('serve', '--version')).code).to.equal(2);
    const help = await launch('--help');
    expect(help.code).to.equal(0);
    for (const command of ['run', 'validate', 'status', 'explain', 'demo'])
      expect(help.out).to.include(command);
  });

  it('refuses what it does not know with the usage on stderr; 2', async () => {
    for (const argv of [['serve'], [], ['constructor']]) {
      const { code, out, err } = await launch(...argv);
      expect([code, out]).to.deep.equal([2, '']);
      expect(err).to.include('Usage: distributary COMMAND');
    }
    expect((await launch('clinets')).err).to.match(
      /^unknown command "clinets": did you mean "clients"\?\n\nUsage/,
    );
    expect((await launch('\u202Ex')).err).to.match(/^unknown command "\\u\{202e\}x": expected run, /);
  });

  it('version prints it, and with --json those of Node and the system', async () => {
    const fault = faultyNode(process.versions.node);
    const err = fault === undefined ? '' : `${fault}\n`;
    expect(await launch('version')).to.deep.equal({ code: 0, out: '0.1.0\n', err });
    const { out } = await launch('version', '--json');
    expect(JSON.parse(out)).to.include({ version: '0.1.0', node: process.versions.node });
  });

  it("passes a command's exit code on", async () => {
    expect((await launch('status', '--admin', 'http://127.0.0.1:1')).code).to.equal(1);
    expect((await launch('status', '--nope')).code).to.equal(2);
  });
});
