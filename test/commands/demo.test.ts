import { expect } from 'chai';
import { demo } from '../../src/commands/commands.ts';

async function run(...argv: string[]) {
  let out = '';
  let err = '';
  const terminal = {
    out: (text: string) => {
      out += text;
    },
    err: (text: string) => {
      err += text;
    },
    environment: {},
  };
  return { code: await demo(argv, terminal), out, err };
}

describe('demo', () => {
  it('--once: each client gets the variants of its environment, and it ends with 0', async () => {
    const { code, out, err } = await run('--once');
    expect([code, err]).to.deep.equal([0, '']);
    for (const line of [
      /^\[prod\] +cds +shop +env == "prod" and not exists\(version\) +version [0-9a-f]{16}$/m,
      /^\[test\] +cds +shop +env == "test" and not exists\(version\) +version [0-9a-f]{16}$/m,
      /^\[prod\] +eds +shop +env == "prod"/m,
      /^\[test\] +eds +shop +env == "test"/m,
      /^\[test\] +lds +debug +env == "test"/m,
      /^\[prod\] +lds +web +\(all\)/m,
    ]) {
      expect(out).to.match(line);
    }
    expect(out).not.to.match(/^\[prod\] .*debug/m);
  });

  it('leaves no handler of signals behind', async () => {
    const before = [process.listenerCount('SIGINT'), process.listenerCount('SIGTERM')];
    await run('--once');
    expect([process.listenerCount('SIGINT'), process.listenerCount('SIGTERM')]).to.deep.equal(before);
  });

  it('refuses what it does not know; 2', async () => {
    const { code, err } = await run('--twice');
    expect(code).to.equal(2);
    expect(err).to.include('Usage: distributary demo');
  });
});
