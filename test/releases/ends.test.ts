import { expect } from 'chai';
import { type JudgeSettings, unjudged } from '../../src/releases/judge.ts';
import { Ends } from '../../src/releases/verdicts.ts';
import type { CanaryStream } from '../../src/releases/waiting.ts';
import { cpuSeconds } from '../support/cpu.ts';

const settings: JudgeSettings = { ...unjudged, bakeMs: 30_000, maxDisconnects: 20 };
const a = new Set(['cds a']);
const of = (node: string, classKey = 'one', names: ReadonlySet<string> = a): CanaryStream => ({
  stream: `${node}-1`,
  node,
  classKey,
  standing: { kind: 'accepted' },
  names: [names],
});
const many = (count: number, classKey = 'one'): readonly CanaryStream[] =>
  Array.from({ length: count }, (_, index) => of(`other${index}`, classKey));
const second = 1000;

/** How many names are read of all sets. */
class CountedSet extends Set<string> {
  static read = 0;

  override *[Symbol.iterator](): SetIterator<string> {
    for (const name of super[Symbol.iterator]()) {
      CountedSet.read++;
      yield name;
    }
    return undefined;
  }

  override keys(): SetIterator<string> {
    return this[Symbol.iterator]();
  }
}

type Step =
  | { readonly at: number; readonly ended: CanaryStream }
  | { readonly at: number; readonly changed: ReadonlySet<string> }
  /** Nothing waits for a verdict; that much is frozen. */
  | { readonly at: number; readonly over: ReadonlySet<string> }
  | {
      readonly at: number;
      readonly sees: readonly CanaryStream[];
      readonly found: number;
      readonly mayReturn?: boolean;
    };

const ended = (at: number, ...streams: readonly CanaryStream[]): readonly Step[] =>
  streams.map((stream) => ({ at, ended: stream }));
const sees = (at: number, there: readonly CanaryStream[], found: number, mayReturn = false): Step => ({
  at,
  sees: there,
  found,
  mayReturn,
});

const rows: readonly { readonly rule: string; readonly steps: readonly Step[] }[] = [
  {
    rule: 'max_disconnects percent of the nodes may end',
    steps: [...ended(0, of('n1'), of('n2')), sees(0, many(8), 0, true), sees(second, many(8), 0)],
  },
  {
    rule: 'one more is too many, until upstream says something else under one of their names',
    steps: [
      ...ended(0, of('n1'), of('n2'), of('n3')),
      sees(0, many(8), 0, true),
      sees(second, many(8), 1),
      sees(90 * second, many(11), 1),
      { at: 91 * second, changed: new Set(['cds b']) },
      sees(91 * second, many(11), 1),
      { at: 92 * second, changed: a },
      sees(92 * second, many(11), 0),
    ],
  },
  {
    rule: 'a node that has another stream has not ended',
    steps: [...ended(0, of('n1')), sees(0, [of('n1')], 0), sees(second, [of('n1')], 0)],
  },
  {
    rule: 'a node that comes back at once has not ended',
    steps: [
      ...ended(0, of('n1')),
      sees(0, [], 0, true),
      sees(500, [of('n1')], 0),
      sees(second, [of('n1')], 0),
    ],
  },
  {
    rule: 'one that comes back within the bake has not either',
    steps: [
      ...ended(0, of('n1')),
      sees(0, [], 0, true),
      sees(second, [], 1),
      sees(29 * second, [of('n1')], 0),
    ],
  },
  {
    rule: 'one that comes back later has',
    steps: [
      ...ended(0, of('n1')),
      sees(second, [], 1),
      sees(30 * second, [], 1),
      sees(31 * second, [of('n1')], 1),
    ],
  },
  {
    rule: 'one that ends three times within the bake has, though it comes back each time',
    steps: [
      ...ended(0, of('n1')),
      sees(0, [], 0, true),
      sees(100, [of('n1')], 0),
      ...ended(200, of('n1')),
      sees(200, [], 0, true),
      sees(300, [of('n1')], 0),
      ...ended(400, of('n1')),
      sees(400, [], 1),
      sees(500, [of('n1')], 1),
    ],
  },
  {
    rule: 'so has one that is back each time before anybody has looked',
    steps: [
      sees(0, [of('n1')], 0),
      ...ended(100, of('n1')),
      sees(110, [of('n1')], 0),
      ...ended(200, of('n1')),
      sees(210, [of('n1')], 0),
      ...ended(300, of('n1')),
      sees(310, [of('n1')], 1),
    ],
  },
  {
    rule: 'one of several streams may end as often as it likes',
    steps: [
      sees(0, [of('n1'), of('n1')], 0),
      ...[100, 200, 300, 400].flatMap((at) => [
        ...ended(at, of('n1')),
        sees(at + 10, [of('n1')], 0),
        sees(at + 20, [of('n1'), of('n1')], 0),
      ]),
    ],
  },
  {
    rule: 'the streams of one node that end together are one end',
    steps: [
      sees(0, [of('n1'), of('n1'), of('n1')], 0),
      ...ended(100, of('n1'), of('n1'), of('n1')),
      sees(110, [], 0, true),
      sees(600, [of('n1')], 0),
    ],
  },
  {
    rule: 'each class is counted for itself',
    steps: [...ended(0, of('n1', 'two')), sees(0, many(50), 0, true), sees(second, many(50), 1)],
  },
  {
    rule: 'what was found before a freeze stays found after it, though the bake is not over',
    steps: [
      ...ended(0, of('n1')),
      sees(0, [], 0, true),
      sees(second, [], 1),
      { at: 2 * second, over: a },
      sees(5 * second, [], 1),
      sees(90 * second, many(3), 1),
    ],
  },
  {
    rule: 'one that has ended just before a freeze has ended after it, if it is not back',
    steps: [
      ...ended(0, of('n1')),
      sees(0, [], 0, true),
      ...ended(100, of('n2')),
      { at: 200, over: a },
      sees(90 * second, [of('n1')], 1),
    ],
  },
  {
    rule: 'one that is back after a freeze has not, if that was not too late',
    steps: [
      ...ended(0, of('n1')),
      sees(second, [], 1),
      { at: 2 * second, over: a },
      sees(5 * second, [of('n1')], 0),
    ],
  },
  {
    rule: 'nothing is left of what neither waits nor is frozen',
    steps: [...ended(0, of('n1')), sees(0, [], 0, true), { at: 100, over: new Set() }, sees(second, [], 0)],
  },
  {
    rule: 'one that has ended just before upstream says something else has not ended because of that',
    steps: [...ended(0, of('n1')), { at: 5, changed: a }, sees(10, [], 0), sees(second, [], 0)],
  },
  {
    rule: 'that it was seen late changes nothing',
    steps: [...ended(0, of('n1')), sees(100, [], 0, true), sees(90 * second, [], 1)],
  },
];

describe('the ends of canaries', () => {
  for (const { rule, steps } of rows) {
    it(rule, () => {
      const ends = new Ends();
      for (const step of steps) {
        if ('ended' in step) ends.ended(step.ended, step.at);
        else if ('changed' in step) ends.changed(step.changed);
        else if ('over' in step) ends.over(step.over);
        else {
          ends.observe(step.sees, settings, step.at);
          expect(ends.verdicts, `at ${step.at}`).to.have.length(step.found);
          expect(ends.mayReturn(a), `may return at ${step.at}`).to.equal(step.mayReturn ?? false);
        }
      }
    });
  }

  it('says what was found: the names that those who ended subscribed to', () => {
    const ends = new Ends();
    ends.ended(of('n1', 'one', new Set(['cds a', 'cds b'])), 0);
    ends.observe([], settings, 0);
    expect(ends.nextAt(settings)).to.equal(second);
    ends.observe([], settings, second);
    const [verdict] = ends.verdicts;
    expect(verdict?.names).to.deep.equal(new Set(['cds a', 'cds b']));
    expect(verdict?.reason).to.equal(
      '1 of 1 canary streams ended within the bake: max_disconnects is 20 percent',
    );
    ends.observe([], settings, 2 * second);
    expect(ends.verdicts[0]).to.equal(verdict);
  });

  it('a node that had several streams has subscribed to what any of them did', () => {
    const ends = new Ends();
    for (const name of ['cds a', 'cds b']) ends.ended(of('n1', 'one', new Set([name])), 0);
    for (const at of [0, second]) ends.observe([], settings, at);
    expect(ends.verdicts.map(({ names }) => names)).to.deep.equal([new Set(['cds a', 'cds b'])]);
  });

  it('names that many subscribed to who ended are read once for all of them, and what they share is kept', () => {
    const names = new CountedSet(Array.from({ length: 1000 }, (_, at) => `cds ${at}`));
    const ends = new Ends();
    CountedSet.read = 0;
    for (let at = 0; at < 1000; at++) ends.ended({ ...of(`n${at}`), names: [a, names] }, 0);
    ends.observe([], settings, 0);
    expect(ends.mayReturn(new Set(['cds none']))).to.equal(false);
    expect(CountedSet.read, 'before any of them counts').to.equal(0);
    ends.observe([], settings, second);
    expect(ends.verdicts[0]?.names).to.deep.equal(a.union(names));
    expect(CountedSet.read).to.be.below(5 * names.size);
    expect(ends.count(new Set(['cds 7']))).to.equal(1000);
  });

  it('a wave may have a longer bake: three ends within that are found, and one that is away that long', () => {
    const waves = [{ bakeMs: 120 * second }];
    const crashing = new Ends();
    for (const at of [0, 40, 80]) {
      crashing.ended(of('n1'), at * second);
      crashing.observe([], { ...settings, waves }, at * second);
      if (at < 80) crashing.observe([of('n1')], { ...settings, waves }, at * second + 500);
    }
    expect(crashing.verdicts).to.have.length(1);
    const away = new Ends();
    away.ended(of('n1'), 0);
    away.observe([], { ...settings, waves }, second);
    away.observe([of('n1')], { ...settings, waves }, 100 * second);
    expect(away.verdicts).to.deep.equal([]);
  });

  it('max_disconnects: 100 turns it off', () => {
    const ends = new Ends();
    ends.ended(of('n1'), 0);
    ends.observe([], { ...settings, maxDisconnects: 100 }, second);
    expect(ends.verdicts).to.deep.equal([]);
  });

  it('many nodes that end at once, and one that ends for ever, cost what they are', () => {
    const ends = new Ends();
    const before = cpuSeconds();
    for (let at = 0; at < 40_000; at++) ends.ended(of(`n${at}`), 0);
    ends.observe([], settings, 0);
    ends.observe([], settings, second);
    expect(ends.count(a)).to.equal(40_000);
    expect(ends.verdicts).to.have.length(1);
    const again = new Ends();
    for (let at = 0; at < 40_000; at++) {
      again.ended(of('n'), at / 1000);
      again.observe([], settings, at / 1000);
    }
    expect(again.count(a)).to.equal(1);
    // It was 23 s for the first half alone.
    expect(cpuSeconds() - before).to.be.below(3);
  });
});
