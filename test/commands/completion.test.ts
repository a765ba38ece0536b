import { spawnSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'chai';
import { commands } from '../../src/commands/commands.ts';
import { completionOf } from '../../src/commands/completion.ts';
import { temporaryDirectory } from '../e2e/support/paths.ts';

async function call(...argv: string[]) {
  let [out, err] = ['', ''];
  const code = await completionOf(() => commands)(argv, {
    out: (text) => (out += text),
    err: (text) => (err += text),
    environment: {},
  });
  return { code, out, err };
}

describe('distributary completion', () => {
  /** What bash suggests for the last of these words. */
  async function suggested(...words: string[]): Promise<readonly string[]> {
    const list = words.map((word) => `'${word}'`).join(' ');
    const question = `COMP_WORDS=(${list}); COMP_CWORD=${words.length - 1}; _distributary; printf '%s\\n' "\${COMPREPLY[@]}"`;
    const { out } = await call('bash');
    const { stdout, stderr } = spawnSync('bash', ['-c', `${out}\n${question}`], { encoding: 'utf8' });
    expect(stderr).to.equal('');
    return stdout.split('\n').filter((line) => line !== '');
  }

  it('bash: commands, flags of a command, and what a flag takes', async () => {
    expect(await suggested('distributary', 'cl')).to.deep.equal(['clients']);
    expect(await suggested('distributary', '')).to.include.members(commands.map(({ name }) => name));
    expect(await suggested('distributary', 'get', '--c')).to.have.members(['--client', '--cert', '--ca']);
    expect(await suggested('distributary', 'clients', '--type', 'r')).to.deep.equal(['rds', 'rtds']);
    expect(await suggested('distributary', 'clients', '--state', '')).to.include('ERROR');
    expect(await suggested('distributary', 'clients', '--node', 'x')).to.deep.equal([]);
    expect(await suggested('distributary', 'completion', '')).to.include.members(['bash', 'zsh', 'fish']);
    const here = join(import.meta.dirname, 'comple');
    expect(await suggested('distributary', 'run', '--config', here)).to.deep.equal([import.meta.filename]);
  });

  it('every command that prints a table takes -o', () => {
    const without = commands.filter(({ flags }) => !Object.hasOwn(flags, 'output'));
    expect(without.map(({ name }) => name)).to.deep.equal([
      ...['run', 'tap', 'reach', 'demo', 'completion', 'version'],
    ]);
  });

  for (const shell of ['bash', 'zsh', 'fish']) {
    it(`${shell}: a script that has every command and flag, and that the shell can read`, async () => {
      const { code, out, err } = await call(shell);
      expect([code, err]).to.deep.equal([0, '']);
      for (const { name, flags } of commands) {
        expect(out).to.match(new RegExp(`\\b${name}\\b`));
        for (const flag of Object.keys(flags)) {
          expect(out).to.include(shell === 'fish' ? ` -l ${flag}` : `--${flag}`);
        }
      }
      using directory = temporaryDirectory();
      const path = join(directory.path, 'script');
      writeFileSync(path, out);
      const { error, status, stderr } = spawnSync(shell, ['-n', path], { encoding: 'utf8' });
      // The shell may not be installed here.
      if (error === undefined) expect([status, stderr]).to.deep.equal([0, '']);
    });
  }

  it('refuses another shell, a second one and none; 2', async () => {
    for (const [argv, problem] of [
      [['tcsh'], /^unknown shell "tcsh": expected bash, zsh or fish\n\nUsage: /],
      [['bash', 'zsh'], /^unexpected argument "zsh"\n/],
      [[], /^the shell is missing/],
      [['--shell'], /^unknown flag "--shell"/],
    ] as const) {
      const { code, out, err } = await call(...argv);
      expect([code, out]).to.deep.equal([2, '']);
      expect(err).to.match(problem);
    }
    expect((await call('--help')).out).to.match(/^Usage: distributary completion/);
  });
});
