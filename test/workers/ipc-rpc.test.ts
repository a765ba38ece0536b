import { expect } from 'chai';
import { fail, ok } from '../../src/model/result.ts';
import { Code } from '../../src/wire/grpc-status.ts';
import type { IpcRequest, IpcResponse } from '../../src/workers/ipc-messages.ts';
import { type IpcResult, IpcRpc } from '../../src/workers/ipc-rpc.ts';
import { VirtualClock } from '../support/virtual-clock.ts';

type Responder = (what: string, body: unknown) => Promise<IpcResult>;

/** Two ends; `cut` keeps what one of them says from the other. */
function pair(respond: Responder) {
  const clock = new VirtualClock();
  const state = { cut: false };
  const options = { clock, timeoutMs: 1000 };
  const here: IpcRpc = new IpcRpc({
    ...options,
    send: (message: IpcRequest | IpcResponse) => {
      if (!state.cut) there.receive(message);
    },
    answer: (what) => Promise.resolve(ok(`${what} here`)),
  });
  const there: IpcRpc = new IpcRpc({ ...options, send: (message) => here.receive(message), answer: respond });
  return { here, there, clock, state };
}

describe('questions between processes', () => {
  it('each answer goes to its question, in whatever order they come', async () => {
    const open = new Map<string, (answered: IpcResult) => void>();
    const { here } = pair((what) => new Promise((resolve) => open.set(what, resolve)));
    const [first, second] = [here.call('first', undefined), here.call('second', undefined)];
    open.get('second')?.(ok(2));
    open.get('first')?.(ok(1));
    expect([await first, await second]).to.deep.equal([ok(1), ok(2)]);
  });

  it('both ends can ask', async () => {
    const { here, there } = pair((what, body) => Promise.resolve(ok([what, body])));
    expect(await here.call('a', 1)).to.deep.equal(ok(['a', 1]));
    expect(await there.call('b', 2)).to.deep.equal(ok('b here'));
  });

  it('a refusal arrives as it was, a bug as INTERNAL', async () => {
    const refusal = fail({ code: Code.NOT_FOUND, message: 'no such client' });
    const { here } = pair((what) =>
      what === 'bug' ? Promise.reject(new Error('a bug')) : Promise.resolve(refusal),
    );
    expect(await here.call('anything', undefined)).to.deep.equal(refusal);
    const bug = await here.call('bug', undefined);
    expect(bug.ok ? undefined : bug.error.code).to.equal(Code.INTERNAL);
  });

  it('silence ends in DEADLINE_EXCEEDED; what comes later is nobody’s', async () => {
    const { here, clock, state } = pair(() => Promise.resolve(ok('late')));
    state.cut = true;
    const asked = here.call('anything', undefined);
    clock.advance(1000);
    const answered = await asked;
    expect(answered.ok ? undefined : answered.error.code).to.equal(Code.DEADLINE_EXCEEDED);
    here.receive({ kind: 'answer', id: 1, body: 'late' });
  });

  it('whoever waits for a process that ends is told, and so is whoever asks afterwards', async () => {
    const { here } = pair(() => new Promise(() => {}));
    const asked = here.call('anything', undefined);
    here.close();
    for (const answered of [await asked, await here.call('more', undefined)]) {
      expect(answered.ok ? undefined : answered.error.code).to.equal(Code.UNAVAILABLE);
    }
  });
});
