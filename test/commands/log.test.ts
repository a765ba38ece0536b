import { expect } from 'chai';
import { startAdminServer } from '../../src/admin/admin-server.ts';
import type { HttpListener } from '../../src/admin/http-listener.ts';
import { log as command } from '../../src/commands/operations.ts';
import { createLog } from '../../src/observe/log.ts';
import { fakeInspector, OPEN } from '../support/inspector.ts';

async function call(...argv: readonly string[]) {
  const texts = { out: '', err: '' };
  const code = await command(argv, {
    out: (text) => {
      texts.out += text;
    },
    err: (text) => {
      texts.err += text;
    },
    environment: {},
  });
  return { code, ...texts };
}

describe('the command log', () => {
  let server: HttpListener;
  let admin: readonly string[];

  before(async () => {
    const log = createLog({ level: 'silent' });
    const options = { host: '127.0.0.1', port: 0, tls: undefined, access: OPEN, log };
    const started = await startAdminServer({ ...options, inspector: fakeInspector() });
    if (!started.ok) throw new Error(started.error);
    server = started.value;
    admin = ['--admin', `http://${server.address}`];
  });
  after(() => server.close());

  it('prints what is in force; --json every field; 0', async () => {
    const { code, out } = await call('--node', 'a', '--level', 'debug', '--for', '10m', ...admin);
    expect(code).to.equal(0);
    expect(out).to.match(
      /^log level info, with these exceptions\nNODE +LEVEL +UNTIL\na +debug +1970-01-01T00:10:00/,
    );
    const json = await call('--level', 'warn', '--json', ...admin);
    expect(JSON.parse(json.out)).to.deep.equal({
      level: 'info',
      overrides: [{ node: '', level: 'warn', until: '1970-01-01T00:10:00.000Z' }],
    });
  });

  for (const [argv, problem] of [
    [[], '--level is missing: expected debug, info, warn, error or silent, or --reset'],
    [['--level', 'loud'], 'unknown --level "loud": expected debug, info, warn, error or silent'],
    [['--level', 'debug', '--for', '5'], '--for "5" is not a duration'],
    [['--level', 'debug', '--for', '0s'], '--for 0 is too short'],
    [['--level', 'debug', '--reset'], '--reset excludes --level and --for'],
  ] as const) {
    it(`${argv.join(' ') || 'nothing'}: ${problem}; 2`, async () => {
      const { code, err } = await call(...argv, ...admin);
      expect(code).to.equal(2);
      expect(err).to.include(problem);
    });
  }

  it('longer than a day is refused by the relay; 1', async () => {
    const { code, err } = await call('--level', 'debug', '--for', '48h', ...admin);
    expect(code).to.equal(1);
    expect(err).to.include('for_seconds: expected 0 to 86400, got 172800');
  });
});
