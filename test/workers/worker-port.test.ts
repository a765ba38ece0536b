import { EventEmitter, once } from 'node:events';
import { createServer } from 'node:net';
import { expect } from 'chai';
import { reservePort } from '../../src/workers/worker-serving.ts';
import { ownPort } from '../support/ports.ts';

const host = '127.0.0.1';
const inUse = (port: number): string =>
  `cannot listen on ${host}:${port}: the address is in use: another process listens there (EADDRINUSE)`;

class Reserved extends AsyncDisposableStack {
  lock: EventEmitter | undefined;

  override use<T extends AsyncDisposable | Disposable | null | undefined>(value: T): T {
    if (value instanceof EventEmitter) this.lock = value;
    return super.use(value);
  }
}

async function reserve(port: number) {
  const reserved = new Reserved();
  const result = await reservePort({ host, port }, reserved);
  return { result, reserved };
}

describe('the port of the workers', () => {
  it('is chosen if it is 0, and each worker may listen on it', async () => {
    const { result, reserved } = await reserve(0);
    await using _ = reserved;
    if (!result.ok) throw new Error(result.error);
    const { port, shared } = result.value;
    expect(shared).to.equal(process.platform === 'linux');
    await using stack = new AsyncDisposableStack();
    for (let worker = 0; worker < (shared ? 2 : 1); worker++) {
      const server = stack.use(createServer());
      server.listen({ host, port, reusePort: shared });
      await once(server, 'listening');
    }
  });

  it('stays reserved when its socket cannot accept a connection, again and again', async function () {
    if (process.platform !== 'linux') this.skip();
    const port = await ownPort();
    const { result, reserved } = await reserve(port);
    await using _ = reserved;
    expect(result.ok).to.equal(true);
    for (let time = 0; time < 2; time++) reserved.lock?.emit('error', new Error('accept EMFILE'));
    expect((await reserve(port)).result).to.deep.equal({ ok: false, error: inUse(port) });
  });

  for (const reusePort of process.platform === 'linux' ? [false, true] : [false])
    it(`is refused if a program listens on it${reusePort ? ' that shares it' : ''}`, async () => {
      await using other = createServer();
      const port = await ownPort();
      other.listen({ host, port, reusePort });
      await once(other, 'listening');
      const { result, reserved } = await reserve(port);
      await using _ = reserved;
      expect(result).to.deep.equal({ ok: false, error: inUse(port) });
    });

  it('is no other relay’s, also while no worker listens, until it is given up', async function () {
    if (process.platform !== 'linux') this.skip();
    const port = await ownPort();
    const first = await reserve(port);
    expect(first.result).to.deep.equal({ ok: true, value: { port, shared: true } });
    const second = await reserve(port);
    expect(second.result).to.deep.equal({ ok: false, error: inUse(port) });
    await first.reserved.disposeAsync();
    const third = await reserve(port);
    expect(third.result).to.deep.equal({ ok: true, value: { port, shared: true } });
    await third.reserved.disposeAsync();
  });
});
