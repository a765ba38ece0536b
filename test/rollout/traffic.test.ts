import { expect } from 'chai';
import { Traffic } from '../../src/rollout/traffic.ts';
import type { CanaryStream, Standing } from '../../src/rollout/waiting.ts';
import { VirtualClock } from '../support/virtual-clock.ts';

const settings = { maxErrorIncrease: 5, maxRequestDrop: 50, minRequests: 100, intervalMs: 10_000 };
const classes = new Set(['c']);

function canary(node: string, kind: 'accepted' | 'waiting' = 'accepted'): CanaryStream {
  const standing: Standing = { kind };
  return { stream: node, node, classKey: 'c', standing, names: [] };
}

describe('what clients report of their traffic', () => {
  let clock: VirtualClock;
  let traffic: Traffic;

  beforeEach(() => {
    clock = new VirtualClock();
    traffic = new Traffic({ traffic: settings }, clock);
  });

  function report(node: string, requests: number, errors = 0, classKey = 'c'): void {
    traffic.add({
      stream: `s-${node}`,
      node,
      classKey,
      classLabel: classKey,
      requests,
      errors,
      milliseconds: 10_000,
    });
  }

  const counts = (...canaries: readonly CanaryStream[]) => {
    const { state, canaries: own, others } = traffic.verdict(classes, canaries) ?? {};
    return [state, own?.requests, others?.requests];
  };

  it('counts from the second report after the change was accepted', () => {
    for (const node of ['a', 'b']) report(node, 1000);
    expect(counts(canary('a'))).to.deep.equal(['UNKNOWN', 0, 0]);
    for (const node of ['a', 'b']) report(node, 1000);
    expect(counts(canary('a'))).to.deep.equal(['UNKNOWN', 0, 0]);
    for (const node of ['a', 'b']) report(node, 300);
    expect(counts(canary('a'))).to.deep.equal(['GOOD', 300, 300]);
  });

  it('of a client with several streams all must have accepted, and all that it reports counts', () => {
    for (const node of ['a', 'b']) report(node, 1);
    traffic.add({
      stream: 'other',
      node: 'a',
      classKey: 'c',
      classLabel: 'c',
      requests: 1,
      errors: 0,
      milliseconds: 1000,
    });
    const both = [canary('a'), canary('a', 'waiting')];
    counts(...both);
    for (const node of ['a', 'b', 'b']) report(node, 300);
    expect(counts(...both)).to.deep.equal(['UNKNOWN', undefined, undefined].map((one) => one ?? 0));
    counts(canary('a'), canary('a'));
    for (const node of ['a', 'b', 'a', 'b']) report(node, 300);
    traffic.add({
      stream: 'other',
      node: 'a',
      classKey: 'c',
      classLabel: 'c',
      requests: 1,
      errors: 0,
      milliseconds: 1000,
    });
    traffic.add({
      stream: 'other',
      node: 'a',
      classKey: 'c',
      classLabel: 'c',
      requests: 7,
      errors: 0,
      milliseconds: 1000,
    });
    expect(counts(canary('a'), canary('a')).slice(0, 2)).to.deep.equal(['GOOD', 307]);
  });

  it('another content counts anew', () => {
    for (const node of ['a', 'b']) report(node, 1);
    counts(canary('a'));
    for (const node of ['a', 'b', 'a', 'b']) report(node, 300);
    expect(counts(canary('a'))).to.deep.equal(['GOOD', 300, 300]);
    traffic.restart(classes);
    // It has not got that yet.
    for (const node of ['a', 'a', 'b']) report(node, 0);
    expect(counts(canary('a', 'waiting'))[0]).to.equal('UNKNOWN');
    counts(canary('a'));
    for (const node of ['a', 'b', 'a']) report(node, 200);
    expect(counts(canary('a'))).to.deep.equal(['GOOD', 200, 200]);
  });

  it('remembers how the counts of a change grew: a point for each interval, and the last one', () => {
    const recent = () =>
      traffic
        .verdict(classes, [canary('a')])
        ?.recent.map(({ at, canaries, others }) => [at - started, canaries.requests, others.requests]);
    const started = clock.now();
    for (const node of ['a', 'b']) report(node, 1);
    expect(recent()).to.deep.equal([]);
    for (const node of ['a', 'b', 'a']) report(node, 100);
    expect(recent()).to.deep.equal([[0, 100, 0]]);
    clock.advance(2000);
    report('b', 100);
    expect(recent()).to.deep.equal([
      [0, 100, 0],
      [2000, 100, 100],
    ]);
    clock.advance(3000);
    expect(recent(), 'nothing was reported').to.have.length(2);
    report('a', 100);
    expect(recent()).to.deep.equal([
      [0, 100, 0],
      [5000, 200, 100],
    ]);
    for (let at = 0; at < 100; at++) {
      clock.advance(10_000);
      report('a', 100);
      recent();
    }
    expect(recent()).to.have.length(60);
    expect(recent()?.at(-1)?.slice(0, 2)).to.deep.equal([1_005_000, 10_200]);
    traffic.restart(classes);
    expect(recent(), 'another content').to.deep.equal([]);
  });

  it('a part of a change that goes on alone has its own course', () => {
    const [c, d] = [new Set(['c']), new Set(['d'])];
    const both = new Set(['c', 'd']);
    const own = [canary('a'), { ...canary('x'), classKey: 'd' }];
    for (const [node, of] of [
      ['a', 'c'],
      ['x', 'd'],
    ] as const)
      report(node, 1, 0, of);
    traffic.verdict(both, own);
    for (let at = 0; at < 2; at++)
      for (const [node, of] of [
        ['a', 'c'],
        ['x', 'd'],
      ] as const)
        report(node, 50, 0, of);
    expect(traffic.verdict(both, own)?.recent.map(({ canaries }) => canaries.requests)).to.deep.equal([100]);
    clock.advance(20_000);
    report('a', 50);
    expect(traffic.verdict(c, own)?.recent.map(({ canaries }) => canaries.requests)).to.deep.equal([
      100, 100,
    ]);
    expect(traffic.verdict(d, own)?.recent.map(({ canaries }) => canaries.requests)).to.deep.equal([100, 50]);
  });

  it('what a canary does with a change is not what is usual for it', () => {
    for (let at = 0; at < 3; at++) report('a', 1000, 10);
    counts(canary('a'));
    for (let at = 0; at < 3; at++) report('a', 1000, 500);
    expect(counts(canary('a'))[0]).to.equal('BAD');
    traffic.keep(new Set());
    report('a', 1000, 10);
    counts(canary('a'));
    for (let at = 0; at < 3; at++) report('a', 1000, 10);
    expect(counts(canary('a'))[0]).to.equal('GOOD');
  });

  it('who reports no more, is of another class, or is silent for long, is not compared', () => {
    for (const node of ['a', 'b', 'c', 'd', 'e']) report(node, 1000);
    counts(canary('a'));
    for (let at = 0; at < 2; at++) for (const node of ['a', 'b', 'c', 'd', 'e']) report(node, 1000);
    expect(counts(canary('a'))).to.deep.equal(['GOOD', 1000, 4000]);
    traffic.left('s-b');
    report('c', 1, 0, 'other');
    expect(counts(canary('a'))).to.deep.equal(['GOOD', 1000, 2000]);
    clock.advance(100_001);
    for (const node of ['a', 'd']) report(node, 1);
    clock.advance(100_001);
    report('a', 1);
    expect(counts(canary('a'))[2]).to.be.below(1002);
  });

  it('nobody reports, or no class: nothing is said', () => {
    expect(counts(canary('a'))).to.deep.equal(['UNKNOWN', 0, 0]);
    expect(traffic.verdict(new Set(), [])?.state).to.equal('UNKNOWN');
    traffic.reload(undefined);
    report('a', 1);
    expect(traffic.verdict(classes, [canary('a')])).to.equal(undefined);
  });
});
