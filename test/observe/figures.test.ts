import { expect } from 'chai';
import type { Counters } from '../../src/observe/counters.ts';
import { figure } from '../../src/observe/figures.ts';
import { delayBuckets } from '../../src/observe/metrics.ts';

const counters = (changes: Partial<Counters> = {}): Counters => ({
  responses: 0,
  acknowledged: [],
  rejections: 0,
  turnedAway: [],
  refusedUpdates: [],
  restarts: 0,
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
    const before = [counters({ responses: 10, busyMs: 0, idleMs: 0 }), counters({ responses: 5 })];
    const now = [
      counters({ responses: 30, streams: 3, memoryBytes: 100, busyMs: 20, idleMs: 80 }),
      counters({ responses: 15, streams: 4, memoryBytes: 50, busyMs: 60, idleMs: 40 }),
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
    const { updates, busy } = figure(1, 5, [counters({ responses: 9, busyMs: 5 })], [counters()]);
    expect([updates, busy]).to.deep.equal([0, 0]);
  });
});
