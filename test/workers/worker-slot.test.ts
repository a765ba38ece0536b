import { expect } from 'chai';
import { createLog } from '../../src/observe/log.ts';
import type { Series } from '../../src/observe/series.ts';
import type { ToWorker } from '../../src/workers/ipc-messages.ts';
import { type WorkerHandler, type WorkerProcess, WorkerSlot } from '../../src/workers/worker-slot.ts';
import { VirtualClock } from '../support/virtual-clock.ts';

class FakeProcess implements WorkerProcess {
  readonly id: number;
  readonly pid: number;
  readonly handler: WorkerHandler;
  readonly heard: ToWorker[] = [];
  killed = false;
  suspended = false;

  constructor(id: number, handler: WorkerHandler) {
    this.id = id;
    this.pid = 1000 + id;
    this.handler = handler;
  }

  send(message: ToWorker): void {
    this.heard.push(message);
  }

  isSuspended(): boolean {
    return this.suspended;
  }

  kill(): void {
    this.killed = true;
    this.handler.ended('signal SIGKILL');
  }
}

const counted: Series = {
  name: 'distributary_downstream_requests_total',
  help: '',
  type: 'counter',
  values: [],
};

function start() {
  const clock = new VirtualClock();
  const processes: FakeProcess[] = [];
  const left: (readonly Series[])[] = [];
  const listened: boolean[] = [];
  const slot = new WorkerSlot({
    number: 1,
    socket: '/nowhere/worker-1',
    clock,
    tickMs: 1000,
    log: createLog({ write: () => {} }),
    random: () => 0.999,
    fork: (handler) => {
      const process = new FakeProcess(processes.length + 1, handler);
      processes.push(process);
      return process;
    },
    opening: () => [{ kind: 'load_elsewhere', load: { streams: 7, connections: 9 }, most: {} }],
    changed: () => {},
    ended(series, hasListened) {
      left.push(series);
      listened.push(hasListened);
    },
    restarted: () => {},
    heard: () => {},
  });
  const last = (): FakeProcess => {
    const process = processes.at(-1);
    if (process === undefined) throw new Error('no process');
    return process;
  };
  return { clock, processes, left, listened, slot, last };
}

const listening = {
  kind: 'listening' as const,
  addresses: [{ name: 'xds' as const, address: '127.0.0.1:1' }],
};

describe('a worker slot', () => {
  it('tells a new process first what it must know', () => {
    const { last } = start();
    expect(last().heard).to.deep.equal([
      { kind: 'load_elsewhere', load: { streams: 7, connections: 9 }, most: {} },
    ]);
  });

  it('listens once its process says so', () => {
    const { slot, last } = start();
    expect([slot.addresses, slot.client, slot.status.listening]).to.deep.equal([[], undefined, false]);
    last().handler.message(listening);
    expect([slot.addresses, slot.status.listening]).to.deep.equal([listening.addresses, true]);
    expect([slot.owns('1-17'), slot.owns('11-7')]).to.deep.equal([true, false]);
  });

  it('a process that ends is replaced; its streams are gone, its counts are left', () => {
    const { clock, processes, left, slot, last } = start();
    last().handler.message(listening);
    last().handler.message({ kind: 'load_here', load: { streams: 5, connections: 6 } });
    slot.series = [counted];
    last().handler.ended('signal SIGKILL');
    expect([slot.load, left]).to.deep.equal([{ streams: 0, connections: 0 }, [[counted]]]);
    expect([slot.status.pid, slot.status.lastError]).to.deep.equal([0, 'signal SIGKILL']);
    clock.advance(200);
    expect([processes.length, slot.status.restarts, slot.owns('2-1')]).to.deep.equal([2, 1, true]);
  });

  it('one that cannot start says why, and is tried ever more rarely', () => {
    const { clock, processes, slot, last } = start();
    last().handler.message({ kind: 'failed', reason: 'no memory' });
    last().handler.ended('exit code 1');
    expect(slot.lastError).to.equal('no memory');
    for (let tries = 0; tries < 20; tries++) {
      clock.advance(30_000);
      last().handler.ended('exit code 1');
    }
    const before = processes.length;
    clock.advance(29_000);
    expect(processes.length).to.equal(before);
    clock.advance(1000);
    expect(processes.length).to.equal(before + 1);
  });

  it('the reason is that of the last process, whatever ended those before it', () => {
    const { clock, listened, slot, last } = start();
    last().handler.message(listening);
    last().handler.ended('signal SIGKILL');
    clock.advance(30_000);
    last().handler.ended('exit code 1');
    expect(listened, 'whether it had clients').to.deep.equal([true, false]);
    expect(slot.lastError).to.equal('exit code 1, before it listened');
    clock.advance(30_000);
    last().handler.message({ kind: 'failed', reason: 'no memory' });
    last().handler.ended('exit code 1');
    expect(slot.lastError).to.equal('no memory');
    clock.advance(30_000);
    last().handler.ended('signal SIGSEGV');
    expect(slot.lastError).to.equal('signal SIGSEGV, before it listened');
  });

  it('one whose event loop stands still for ten ticks is killed, and replaced', () => {
    const { clock, processes, slot, last } = start();
    last().handler.message(listening);
    clock.advance(59_000); // it has not said yet that it turns
    expect(last().killed).to.equal(false);
    last().handler.message({ kind: 'turned' });
    clock.advance(9000);
    last().handler.message({ kind: 'turned' });
    clock.advance(9000);
    expect(last().killed).to.equal(false);
    clock.advance(1000);
    expect([last().killed, slot.status.lastError]).to.deep.equal([
      true,
      'its event loop was blocked for 10 s',
    ]);
    clock.advance(200);
    expect(processes.length).to.equal(2);
  });

  it('one that does not listen within sixty ticks of its start is killed, suspended or not, and the reason says so', () => {
    for (const suspended of [false, true]) {
      const { clock, processes, slot, last } = start();
      last().suspended = suspended;
      clock.advance(59_000);
      expect(last().killed).to.equal(false);
      clock.advance(1000);
      expect([last().killed, slot.lastError]).to.deep.equal([
        true,
        'nothing was heard of it for 60 s, before it listened',
      ]);
      clock.advance(200);
      expect(processes.length).to.equal(2);
    }
  });

  it('one that is suspended for longer is not', () => {
    const { clock, last } = start();
    last().handler.message(listening);
    last().handler.message({ kind: 'turned' });
    clock.advance(9000);
    last().suspended = true;
    clock.advance(60_000);
    last().suspended = false;
    clock.advance(9000);
    expect(last().killed).to.equal(false);
  });

  it('one that was well for a while is replaced at once again', () => {
    const { clock, processes, last } = start();
    for (let tries = 0; tries < 10; tries++) {
      last().handler.ended('exit code 1');
      clock.advance(30_000);
    }
    last().handler.message(listening);
    clock.advance(30_000);
    last().handler.ended('exit code 1');
    const before = processes.length;
    clock.advance(200);
    expect(processes.length).to.equal(before + 1);
  });

  it('the end: no more processes; whoever does not end in time is killed', async () => {
    const { clock, processes, slot, last } = start();
    const ended = slot.end(1000);
    expect(last().killed).to.equal(false);
    clock.advance(1000);
    await ended;
    expect(last().killed).to.equal(true);
    clock.advance(60_000);
    expect(processes.length).to.equal(1);
  });

  it('the end while a process is waited for', async () => {
    const { clock, processes, slot, last } = start();
    last().handler.ended('exit code 1');
    await slot.end(1000);
    clock.advance(60_000);
    expect(processes.length).to.equal(1);
  });
});
