import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'chai';
import type { Command } from '../../src/commands/command.ts';
import { context } from '../../src/commands/context.ts';
import { reach } from '../../src/commands/reach.ts';
import { status } from '../../src/commands/status.ts';
import { validate } from '../../src/commands/validate.ts';
import { tap } from '../../src/commands/wait.ts';
import { makeDirectory } from '../../src/package/files.ts';
import { temporaryDirectory } from '../config/support.ts';

describe('which relay a command asks', () => {
  const directory = temporaryDirectory();

  async function call(environment: Readonly<Record<string, string>>, command: Command, ...argv: string[]) {
    let [out, err] = ['', ''];
    const code = await command(argv, {
      out: (text) => (out += text),
      err: (text) => (err += text),
      environment: { XDG_CONFIG_HOME: directory(), ...environment },
    });
    return { code, out, err, said: err.split('\n')[0] };
  }

  const form = 'expected http://HOST:PORT or https://HOST:PORT (as in http://127.0.0.1:19000)';
  const https = 'https://127.0.0.1:1';

  it('an error names what was given: a flag, a variable or the context', async () => {
    makeDirectory(join(directory(), 'distributary'));
    const kept = (one: object): void =>
      writeFileSync(
        join(directory(), 'distributary/contexts.json'),
        JSON.stringify({ current: 'prod', contexts: { prod: one } }),
      );
    const cases: readonly (readonly [Readonly<Record<string, string>>, object, readonly string[], string])[] =
      [
        [{}, {}, ['--admin', 'relay:1'], `--admin: ${form}, got "relay:1"`],
        [{ DISTRIBUTARY_ADMIN: 'relay:1' }, {}, [], `DISTRIBUTARY_ADMIN: ${form}, got "relay:1"`],
        [{}, { admin: 'relay:1' }, [], `admin of context prod: ${form}, got "relay:1"`],
        [{}, {}, ['--admin', 'http://:80'], `--admin: ${form}, got "http://:80"`],
        [
          { DISTRIBUTARY_CERT: 'c' },
          {},
          ['--admin', https],
          'DISTRIBUTARY_CERT and DISTRIBUTARY_KEY belong together: DISTRIBUTARY_KEY is missing',
        ],
        [
          { DISTRIBUTARY_CERT: 'c', DISTRIBUTARY_KEY: 'k' },
          {},
          ['--admin', https, '--key', 'k'],
          '--cert and --key belong together: --cert is missing',
        ],
        [
          {},
          { admin: https, key: 'k' },
          [],
          'cert of context prod and key of context prod belong together: cert of context prod is missing',
        ],
        [
          { DISTRIBUTARY_CA: '/none/ca.pem' },
          {},
          ['--admin', https],
          'DISTRIBUTARY_CA /none/ca.pem cannot be read: there is no such file or directory (ENOENT)',
        ],
        [
          {},
          { admin: https, ca: '/none/ca.pem' },
          [],
          'ca of context prod /none/ca.pem cannot be read: there is no such file or directory (ENOENT)',
        ],
        [
          {},
          {},
          ['--admin', 'http://127.0.0.1:1', '--ca', 'f'],
          '--cert, --key and --ca are only for https://, not for http://127.0.0.1:1',
        ],
      ];
    for (const [environment, one, flags, said] of cases) {
      kept({ admin: 'http://127.0.0.1:1', ...one });
      for (const command of [status, tap])
        expect(await call(environment, command, ...flags)).to.deep.include({ code: 2, said });
    }
  });

  it('validate --against: what is wrong with that is said before the file is looked at; 2', async () => {
    const path = join(directory(), 'relay.yaml');
    writeFileSync(path, 'upstreams: [{ name: a, ads: { endpoints: ["127.0.0.1:1"] } }]\n');
    const against = (...flags: string[]) => call({}, validate, '--config', path, '--against', ...flags);
    const wrong: readonly (readonly [readonly string[], string])[] = [
      [['relay:1'], `--against: ${form}, got "relay:1"`],
      [[https, '--cert', 'c'], '--cert and --key belong together: --key is missing'],
      [[https, '--ca', '/none'], '--ca /none cannot be read: there is no such file or directory (ENOENT)'],
    ];
    for (const [flags, said] of wrong)
      expect(await against(...flags)).to.deep.include({ code: 2, out: '', said });
  });

  it('context add refuses what no command can use, and what is not for it; 2', async () => {
    const add = (...flags: string[]) => call({}, context, 'add', 'prod', ...flags);
    const wrong: readonly (readonly [readonly string[], string])[] = [
      [[], `--admin: ${form}, got ""`],
      [['--admin', 'http://:80'], `--admin: ${form}, got "http://:80"`],
      [['--admin', 'ftp://relay:1'], `--admin: ${form}, got "ftp://relay:1"`],
      [['--admin', https, '--cert', 'c'], '--cert and --key belong together: --key is missing'],
      [['--admin', https, '--key', 'k'], '--cert and --key belong together: --cert is missing'],
      [
        ['--admin', 'http://relay:1', '--ca', 'f'],
        '--cert, --key and --ca are only for https://, not for http://relay:1',
      ],
    ];
    for (const [flags, said] of wrong)
      expect(await add(...flags)).to.deep.include({ code: 2, out: '', said });
    expect((await call({}, context, 'list')).out).to.match(/^no contexts/);
    expect(await add('--admin', https, '--cert', 'c', '--key', 'k')).to.deep.include({ code: 0, err: '' });
    for (const verb of [['use', 'prod'], ['list']]) {
      const { code, said } = await call({}, context, ...verb, '--admin', https);
      expect([code, said]).to.deep.equal([2, `${verb[0]} takes no --admin`]);
    }
  });

  it('reach refuses half a pair; 2', async () => {
    const { code, said } = await call({}, reach, '--endpoint', '127.0.0.1:1', '--cert', 'c');
    expect([code, said]).to.deep.equal([2, '--cert and --key belong together: --key is missing']);
  });
});
