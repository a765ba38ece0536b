import { setImmediate } from 'node:timers/promises';
import { expect } from 'chai';
import { type Counters, figure, takeFigures } from '../../src/observe/figures.ts';
import { delayBuckets, type Happened } from '../../src/observe/metrics.ts';
import { VirtualClock } from '../support/virtual-clock.ts';

interface Counts {
  readonly responses?: number;
  readonly acknowledged?: readonly number[];
  readonly rejections?: number;
}

const counters = ({
  responses = 0,
  acknowledged = [],
  rejections = 0,
  ...changes
}: Counts & Partial<Counters> = {}): Counters => ({
  pid: 1,
  happened: [
    [responses, 'responses'],
    [rejections, 'rejections'],
    ...acknowledged.map(
      (count, at): Happened => [count, 'acknowledged', String(delayBuckets[at] ?? Infinity)],
    ),
  ],
  refusals: [],
  lagMs: 0,
  streams: 0,
  connections: 0,
  memoryBytes: 0,
  busyMs: 0,
  idleMs: 0,
  certificates: [],
  ...changes,
});

/** So many ACKs within this bucket. */
const acks = (counts: Readonly<Record<number, number>>): number[] =>
  [...delayBuckets, Infinity].map((bound) => counts[bound] ?? 0);

describe('a point of the charts', () => {
  it('is what happened between two looks, over all processes', () => {
    const before = [counters({ responses: 10, busyMs: 0, idleMs: 0 }), counters({ pid: 2, responses: 5 })];
    const now = [
      counters({ responses: 30, streams: 3, memoryBytes: 100, busyMs: 20, idleMs: 80 }),
      counters({ pid: 2, responses: 15, streams: 4, memoryBytes: 50, busyMs: 60, idleMs: 40 }),
    ];
    expect(figure(1, 5, before, now)).to.deep.equal({
      at: 1,
      updates: 6,
      acknowledged: null,
      streams: 7,
      memory: 150,
      busy: 0.6,
    });
  });

  it('has the 99 % of the ACKs since the last look, between the bounds of a bucket', () => {
    const before = [counters({ acknowledged: acks({ 0.01: 1000 }) })];
    const now = [counters({ acknowledged: acks({ 0.01: 1098, 0.5: 2 }) })];
    expect(figure(1, 5, before, now).acknowledged).to.be.within(0.25, 0.5);
    const slow = [counters({ acknowledged: acks({ [Infinity]: 3 }) })];
    expect(figure(1, 5, [counters()], slow).acknowledged).to.equal(60);
  });

  it('never goes below nothing when a worker has ended', () => {
    const { updates, busy } = figure(1, 5, [counters({ responses: 9, busyMs: 5 })], [counters({ pid: 2 })]);
    expect([updates, busy]).to.deep.equal([0, 0]);
  });
});

describe('what has happened of late', () => {
  /** Each look finds one of these. */
  async function after(...looks: readonly (readonly (Counters | number)[])[]) {
    const clock = new VirtualClock();
    const left = [...looks];
    const figures = takeFigures(clock, () => Promise.resolve(left.shift() ?? []));
    figures.start();
    await setImmediate();
    for (let look = 1; look < looks.length; look++) {
      clock.advance(5000);
      await setImmediate();
    }
    return figures;
  }
  const [own, other] = [counters(), counters({ pid: 3, rejections: 5 })];
  const worker = counters({ pid: 2, rejections: 100, responses: 50, streams: 7, busyMs: 90, idleMs: 10 });

  it('a worker that does not answer once has done nothing new, and keeps its streams meanwhile', async () => {
    const figures = await after([own, worker, other], [own, 2, other], [own, worker, other]);
    expect(figures.points.map(({ streams, updates, busy }) => [streams, updates, busy])).to.deep.equal([
      [7, 0, 0],
      [7, 0, 0],
    ]);
    expect(figures.recent().rejections).to.equal(0);
  });

  it('counts of a worker that has ended hide nothing of its successor', async () => {
    const figures = await after([own, worker], [own, 0], [own, counters({ pid: 4, rejections: 3 })]);
    expect(figures.points.map(({ streams }) => streams)).to.deep.equal([0, 0]);
    expect(figures.recent().rejections).to.equal(3);
  });
});
