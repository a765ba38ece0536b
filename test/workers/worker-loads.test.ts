import { expect } from 'chai';
import type { Load } from '../../src/core.ts';
import type { ToWorker } from '../../src/workers/ipc-messages.ts';
import { WorkerLoads } from '../../src/workers/worker-pool.ts';

class FakeWorker {
  load: Load = { streams: 0, connections: 0 };
  readonly #heard: ToWorker[] = [];

  send(message: ToWorker): void {
    this.#heard.push(message);
  }

  /** The last message. */
  get hears(): ToWorker | undefined {
    return this.#heard.at(-1);
  }
}

const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));
const load = (streams: number) => ({ streams, connections: 1 });

function start(maxStreams: number, maxConnections = 10) {
  const [first, second] = [new FakeWorker(), new FakeWorker()];
  const loads = new WorkerLoads([first, second], { maxStreams, maxConnections });
  const report = async (one: number, two: number): Promise<void> => {
    first.load = load(one);
    second.load = load(two);
    loads.changed();
    await turn();
  };
  return { first, second, loads, report };
}

const told = (streams: number, mostStreams?: number): ToWorker => ({
  kind: 'load_elsewhere',
  load: load(streams),
  most: mostStreams === undefined ? {} : { streams: mostStreams },
});

describe('the loads of workers', () => {
  it('each worker hears what the others have', async () => {
    const { first, second, report } = start(10);
    await report(3, 4);
    expect([first.hears, second.hears]).to.deep.equal([told(4), told(3)]);
  });

  it('who was reported first keeps its streams, if two workers took the last places', async () => {
    const { first, second, report } = start(3);
    await report(0, 2);
    await report(3, 2);
    expect([first.hears, second.hears]).to.deep.equal([told(2, 1), told(3)]);
    await report(1, 2);
    expect([first.hears, second.hears]).to.deep.equal([told(2), told(1)]);
  });

  it('several reports at once give no more places than there are', async () => {
    const { first, second, report } = start(3);
    await report(2, 3);
    expect([first.hears, second.hears]).to.deep.equal([told(3), told(2, 1)]);
  });

  it('a place that a stream leaves is free for any worker', async () => {
    const { second, report } = start(3);
    await report(3, 0);
    await report(1, 2);
    expect(second.hears).to.deep.equal(told(1));
  });

  it('connections have places as streams have', async () => {
    const { first, second, loads } = start(10, 5);
    first.load = { streams: 1, connections: 4 };
    second.load = { streams: 1, connections: 3 };
    loads.changed();
    await turn();
    expect([first.hears, second.hears]).to.deep.equal([
      { kind: 'load_elsewhere', load: { streams: 1, connections: 3 }, most: {} },
      { kind: 'load_elsewhere', load: { streams: 1, connections: 4 }, most: { connections: 1 } },
    ]);
  });

  it('a lower limit ends nothing', async () => {
    const { first, second, loads, report } = start(5);
    await report(2, 3);
    loads.limits = { maxStreams: 1, maxConnections: 10 };
    await report(2, 3);
    expect([first.hears, second.hears]).to.deep.equal([told(3), told(2)]);
  });
});
