import { expect } from 'chai';
import { itsOwn } from '../../src/model/load.ts';
import type { Change, HeardChange } from '../../src/releases/changes.ts';
import { Judge, unjudged } from '../../src/releases/judge.ts';
import { Traffic } from '../../src/releases/traffic.ts';
import type { CanaryStream, Standing } from '../../src/releases/waiting.ts';
import { VirtualClock } from '../support/virtual-clock.ts';

const settings = { maxErrorIncrease: 5, maxRequestDrop: 50, minRequests: 100, intervalMs: 10_000 };
const change: Change = {
  names: [],
  keys: new Set(),
  classes: new Set(['c']),
  judge: new Judge(unjudged, 0),
};

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

  function report(
    node: string,
    requests: number,
    errors = 0,
    classKey = 'c',
    origin = itsOwn,
    milliseconds = 10_000,
  ): void {
    traffic.add({
      stream: `s-${node}`,
      node,
      classKey,
      classLabel: classKey,
      origin,
      requests,
      errors,
      milliseconds,
    });
  }

  const look = (changes: readonly HeardChange[], ...frozen: readonly string[]) =>
    traffic.look(changes, new Set(frozen));

  const counts = (...canaries: readonly CanaryStream[]) => {
    look([{ change, canaries, isNew: false }]);
    const { state, canaries: own, others } = traffic.verdictOn(change) ?? {};
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
      origin: itsOwn,
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
      origin: itsOwn,
      requests: 1,
      errors: 0,
      milliseconds: 1000,
    });
    traffic.add({
      stream: 'other',
      node: 'a',
      classKey: 'c',
      classLabel: 'c',
      origin: itsOwn,
      requests: 7,
      errors: 0,
      milliseconds: 1000,
    });
    expect(counts(canary('a'), canary('a')).slice(0, 2)).to.deep.equal(['GOOD', 307]);
  });

  describe('of a client that was idle before its first request', () => {
    /** A canary, with or without another client: what is found where no request comes any more, in a bake of three intervals. */
    const found = (idle: number, busy: number, other: boolean): unknown => {
      const all = (requests: number): void => {
        report('a', requests);
        if (other) report('b', 200);
      };
      if (other) for (let at = 0; at < 10; at++) report('b', 200);
      for (let at = 0; at < idle; at++) all(0);
      // It began in the middle of it.
      all(30);
      for (let at = 1; at < busy; at++) all(200);
      counts(canary('a'));
      for (let at = 0; at < 3; at++) all(0);
      return counts(canary('a'))[0];
    };

    for (const [idle, other] of [
      [0, false],
      [1, false],
      [20, false],
      [1, true],
      [20, true],
    ] as const)
      it(`that is no burst: no requests any more are found; ${idle} intervals, ${other ? 'beside another one' : 'alone'}`, () => {
        expect(found(idle, 7, other)).to.equal('BAD');
      });

    it('it may be idle again, if it had requests only once', () => {
      for (let at = 0; at < 10; at++) report('b', 200);
      for (const requests of [0, 0, 200, 0, 0, 0, 0, 0, 0]) report('a', requests);
      counts(canary('a'));
      for (let at = 0; at < 3; at++)
        for (const [node, requests] of [
          ['a', 0],
          ['b', 200],
        ] as const)
          report(node, requests);
      expect(counts(canary('a'))[0]).to.equal('UNKNOWN');
    });
  });

  for (const milliseconds of [100, 10_000, 300_000])
    it(`what is usual is known from the sixth report on; one in ${milliseconds} ms`, () => {
      const found = (before: number): unknown => {
        traffic = new Traffic({ traffic: settings }, clock);
        const times = (count: number, requests: number): void => {
          for (let at = 0; at < count; at++) report('a', requests, 0, 'c', itsOwn, milliseconds);
        };
        times(before, 200);
        counts(canary('a'));
        times(3, 0);
        return counts(canary('a'))[0];
      };
      expect([found(5), found(6)]).to.deep.equal(['UNKNOWN', 'BAD']);
    });

  describe('of a relay', () => {
    const relay = { stages: 2, isPartial: false };
    const partial = { stages: 2, isPartial: true };
    const reports = (times: number, errors: number, origin = relay): void => {
      for (let at = 0; at < times; at++)
        for (const node of ['a', 'b']) report(node, 1000, node === 'a' ? errors : 10, 'c', origin);
    };
    const reason = () => traffic.verdictOn(change)?.reason;

    it('counts later, by as many reports as it was added up on its way', () => {
      reports(1, 10);
      counts(canary('a'));
      reports(3, 500);
      expect(counts(canary('a'))).to.deep.equal(['UNKNOWN', 0, 0]);
      expect(reason()).to.equal('no client that has it has reported 4 times since it accepted it');
      reports(1, 10);
      expect(counts(canary('a'))).to.deep.equal(['GOOD', 1000, 1000]);
    });

    it('what it says when a change has ended is not usual for as long', () => {
      reports(5, 0);
      counts(canary('a'));
      reports(5, 500);
      expect(counts(canary('a'))[0]).to.equal('BAD');
      look([]);
      reports(3, 500);
      reports(1, 0);
      const both = [canary('a'), canary('b')];
      counts(...both);
      reports(4, 300);
      expect(counts(...both)[0]).to.equal('BAD');
      expect(reason()).to.match(
        /^15.5 % of 2000 requests failed for clients that have it, 0\.\d % of \d+ before/,
      );
    });

    it('says nothing of the change while something waits there', () => {
      reports(1, 10);
      counts(canary('a'));
      reports(9, 500, partial);
      expect(counts(canary('a'))).to.deep.equal(['UNKNOWN', 0, 6000]);
      expect(reason()).to.match(/^only relays that hold something back have accepted it/);
      reports(3, 500);
      expect(counts(canary('a'))).to.deep.equal(['UNKNOWN', 0, 9000]);
      reports(1, 500);
      expect(counts(canary('a'))).to.deep.equal(['BAD', 1000, 10_000]);
    });
  });

  it('another content counts anew', () => {
    for (const node of ['a', 'b']) report(node, 1);
    counts(canary('a'));
    for (const node of ['a', 'b', 'a', 'b']) report(node, 300);
    expect(counts(canary('a'))).to.deep.equal(['GOOD', 300, 300]);
    look([{ change, canaries: undefined, isNew: true }]);
    // It has not got that yet.
    for (const node of ['a', 'a', 'b']) report(node, 0);
    expect(counts(canary('a', 'waiting'))[0]).to.equal('UNKNOWN');
    counts(canary('a'));
    for (const node of ['a', 'b', 'a']) report(node, 200);
    expect(counts(canary('a'))).to.deep.equal(['GOOD', 200, 200]);
  });

  it('what joins a change counts anew, though nobody knew at first whose it is', () => {
    for (const node of ['a', 'b']) report(node, 1);
    counts(canary('a'));
    for (const node of ['a', 'b', 'a', 'b']) report(node, 300);
    expect(counts(canary('a'))).to.deep.equal(['GOOD', 300, 300]);
    const fresh = { ...change, keys: new Set(['cds b']), classes: new Set<string>() };
    look([
      { change, canaries: undefined, isNew: false },
      { change: fresh, canaries: undefined, isNew: true },
    ]);
    const both = { ...change, keys: fresh.keys };
    const requests = () => {
      look([{ change: both, canaries: [canary('a')], isNew: false }]);
      return [traffic.verdictOn(both)?.canaries.requests, traffic.verdictOn(both)?.others.requests];
    };
    expect(requests()).to.deep.equal([0, 0]);
    for (const node of ['a', 'b', 'a', 'b']) report(node, 200);
    expect(requests(), 'once').to.deep.equal([200, 200]);
  });

  it('remembers how the counts of a change grew: a point for each interval, and the last one', () => {
    const recent = () => {
      look([{ change, canaries: [canary('a')], isNew: false }]);
      return traffic
        .verdictOn(change)
        ?.recent.map(({ at, canaries, others }) => [at - started, canaries.requests, others.requests]);
    };
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
    look([{ change, canaries: undefined, isNew: true }]);
    expect(recent(), 'another content').to.deep.equal([]);
  });

  it('a part of a change that goes on alone has its own course', () => {
    const [c, d] = [change, { ...change, classes: new Set(['d']) }];
    const both = { ...change, classes: new Set(['c', 'd']) };
    const own = [canary('a'), { ...canary('x'), classKey: 'd' }];
    for (const [node, of] of [
      ['a', 'c'],
      ['x', 'd'],
    ] as const)
      report(node, 1, 0, of);
    const recent = (...changes: readonly Change[]) => {
      look(changes.map((one) => ({ change: one, canaries: own, isNew: false })));
      return changes.map((one) => traffic.verdictOn(one)?.recent.map(({ canaries }) => canaries.requests));
    };
    recent(both);
    for (let at = 0; at < 2; at++)
      for (const [node, of] of [
        ['a', 'c'],
        ['x', 'd'],
      ] as const)
        report(node, 50, 0, of);
    expect(recent(both)).to.deep.equal([[100]]);
    clock.advance(20_000);
    report('a', 50);
    expect(recent(c, d)).to.deep.equal([
      [100, 100],
      [100, 50],
    ]);
  });

  it('a look at many changes costs nothing by how many there are beside each', () => {
    let looks = 0;
    const many = Array.from({ length: 100 }, (_, at): HeardChange => {
      const classes = new Set([`c${at}`]);
      const isDisjointFrom = classes.isDisjointFrom.bind(classes);
      classes.isDisjointFrom = (other) => {
        looks++;
        return isDisjointFrom(other);
      };
      return { change: { ...change, classes }, canaries: [], isNew: false };
    });
    look(many);
    look(many);
    expect(looks).to.equal(0);
  });

  it('a class that has no canary says nothing of the change', () => {
    const both = { ...change, classes: new Set(['c', 'd']) };
    const verdict = () => {
      look([{ change: both, canaries: [canary('a')], isNew: false }]);
      return traffic.verdictOn(both)?.state;
    };
    for (const [node, of] of [
      ['a', 'c'],
      ['b', 'c'],
      ['x', 'd'],
    ] as const)
      report(node, 1000, 0, of);
    verdict();
    for (let at = 0; at < 2; at++) for (const node of ['a', 'b']) report(node, 300);
    expect(verdict()).to.equal('GOOD');
  });

  it('what a canary does with a change is not what is usual for it', () => {
    for (let at = 0; at < 3; at++) report('a', 1000, 10);
    counts(canary('a'));
    for (let at = 0; at < 3; at++) report('a', 1000, 500);
    expect(counts(canary('a'))[0]).to.equal('BAD');
    look([]);
    report('a', 1000, 10);
    counts(canary('a'));
    for (let at = 0; at < 3; at++) report('a', 1000, 10);
    expect(counts(canary('a'))[0]).to.equal('GOOD');
  });

  describe('while a change is frozen', () => {
    const all = (errors: number): void => {
      report('a', 1000, errors);
      report('b', 1000, 10);
    };

    beforeEach(() => {
      for (let at = 0; at < 6; at++) all(10);
      counts(canary('a'));
      for (let at = 0; at < 3; at++) all(500);
      look([], 'c');
    });

    for (const [who, comesBack] of [
      ['a canary', false],
      ['a canary that reports on another stream', true],
    ] as const)
      it(`what ${who} does with it is not what is usual for it`, () => {
        if (comesBack) traffic.left('s-a');
        for (let at = 0; at < 9; at++) all(500);
        look([], 'c');
        all(500);
        counts(canary('a'));
        for (let at = 0; at < 3; at++) all(500);
        expect(counts(canary('a'))).to.deep.equal(['BAD', 2000, 2000]);
      });

    it('nor does it count for another one of the class', () => {
      look([{ change, canaries: [canary('b')], isNew: false }], 'c');
      for (let at = 0; at < 3; at++) all(500);
      look([{ change, canaries: [canary('b')], isNew: false }], 'c');
      expect(traffic.verdictOn(change)?.reason).to.match(/^1\.0 % of 2000 .* 1\.0 % of \d+ before$/);
    });

    it('it is usual again when nothing of the class is frozen', () => {
      look([]);
      for (let at = 0; at < 90; at++) all(500);
      counts(canary('a'));
      for (let at = 0; at < 3; at++) all(500);
      expect(counts(canary('a'))[0]).to.equal('GOOD');
    });
  });

  it('a change that is known no more is not found bad again while nobody knows who has the next one', () => {
    for (let at = 0; at < 3; at++) report('a', 1000, 10);
    counts(canary('a'));
    for (let at = 0; at < 3; at++) report('a', 1000, 500);
    const heard = look([{ change, canaries: [canary('a')], isNew: false }]);
    expect(heard[0]?.verdict?.cause).to.equal('traffic');
    const next = { ...change };
    expect(look([{ change: next, canaries: undefined, isNew: true }])).to.deep.equal([]);
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
    const ofNobody = { ...change, classes: new Set<string>() };
    look([{ change: ofNobody, canaries: [], isNew: false }]);
    expect(traffic.verdictOn(ofNobody)?.state).to.equal('UNKNOWN');
    traffic.reload(undefined);
    report('a', 1);
    expect(counts(canary('a'))).to.deep.equal([undefined, undefined, undefined]);
  });
});
