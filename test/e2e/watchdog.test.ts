import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'chai';
import { eventually } from './support/eventually.ts';
import { ResourceFiles } from './support/files.ts';
import { root } from './support/paths.ts';
import { signalTo } from './support/process.ts';
import { childrenOf } from './support/process-figures.ts';
import { type LogLine, RelayProcess } from './support/relay.ts';

const flags = [`--import=${join(root, 'test/e2e/support/standstill.ts')}`];
const seconds = 3;
const watchdog = { timeout: `${seconds}s` };

const isAlive = (pid: number): boolean => {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
};

const linesWith = (relay: RelayProcess, text: string): readonly LogLine[] =>
  relay.log.filter(({ message }) => message.includes(text));

describe('a process whose event loop stands still', () => {
  let files: ResourceFiles;

  before(() => {
    files = new ResourceFiles();
    files.write('cds', new Map([['shop', '1']]));
  });

  after(() => files?.[Symbol.dispose]());

  const start = (config: object): Promise<RelayProcess> =>
    RelayProcess.start({ upstreams: [files.upstream], watchdog, ...config }, { flags });

  it('says where it stands, and aborts', async () => {
    await using relay = await start({});
    relay.signal('SIGUSR2');
    expect(await relay.exited).to.equal('SIGABRT');
    // A busy machine may have stopped it elsewhere before.
    const lines = linesWith(relay, 'the event loop is blocked').filter(({ stack }) =>
      String(stack).startsWith('standsStill '),
    );
    expect(lines.map(({ message }) => message)).to.deep.equal([
      'the event loop is blocked',
      'the event loop is blocked: the process aborts',
    ]);
    for (const { level, stack } of lines) {
      expect(level).to.equal('error');
      expect(stack).to.match(/^standsStill \(\S+standstill\.ts:3:\d+\)/);
    }
  });

  it('is the primary: its workers end with it', async () => {
    await using relay = await start({ workers: 1 });
    const workers = childrenOf(relay.pid);
    relay.signal('SIGUSR2');
    expect(await relay.exited).to.equal('SIGABRT');
    await eventually(() => expect(workers.filter(isAlive)).to.deep.equal([]));
  });

  it('is a worker: it says where it stands, and is replaced', async () => {
    // It is replaced after a third of the time. Before that, on a machine that is busy, it has to say where it stands.
    await using relay = await start({ workers: 1, watchdog: { timeout: '45s' } });
    const [worker = 0] = childrenOf(relay.pid);
    signalTo(worker, 'SIGUSR2');
    await eventually(async () => expect(await relay.metric('worker_restarts_total')).to.equal(1), {
      timeout: 60_000,
    });
    const [stands] = await relay.says(/the event loop is blocked/);
    expect(stands).to.include({ pid: worker, worker: 1 });
    expect(stands?.['stack']).to.match(/^standsStill /);
    const [ended] = await relay.says(/a worker has exited/);
    expect(ended?.['reason']).to.equal('its event loop was blocked for 15 s');
    await eventually(async () => expect((await relay.get('/ready')).status).to.equal(200));
    expect(isAlive(worker)).to.equal(false);
  });

  it('was suspended: it goes on, whether it is the worker, the primary or the whole relay', async () => {
    // A worker is replaced after a third of the time, and on a machine that is busy it gets no turn for some seconds.
    const timeout = 18;
    const goesOn = async (isSuspended: (pid: number, relay: RelayProcess) => boolean): Promise<void> => {
      await using relay = await start({ workers: 1, watchdog: { timeout: `${timeout}s` } });
      const all = [relay.pid, ...childrenOf(relay.pid)];
      const suspended = all.filter((pid) => isSuspended(pid, relay));
      for (const pid of suspended) signalTo(pid, 'SIGSTOP');
      await sleep(1500 * timeout);
      for (const pid of suspended) signalTo(pid, 'SIGCONT');
      await sleep(1000);
      await eventually(async () => expect((await relay.get('/ready')).status).to.equal(200));
      expect(await relay.metric('worker_restarts_total')).to.equal(0);
      expect(all.filter(isAlive)).to.deep.equal(all);
    };
    await Promise.all([
      goesOn(() => true),
      goesOn((pid, relay) => pid !== relay.pid),
      goesOn((pid, relay) => pid === relay.pid),
    ]);
  });

  it('is left alone with watchdog.enabled: false', async () => {
    await using relay = await start({ workers: 1, watchdog: { ...watchdog, enabled: false } });
    const all = [relay.pid, ...childrenOf(relay.pid)];
    for (const pid of all) signalTo(pid, 'SIGUSR2');
    await sleep(2000 * seconds);
    expect(all.filter(isAlive)).to.deep.equal(all);
    for (const pid of all) signalTo(pid, 'SIGKILL');
  });
});
