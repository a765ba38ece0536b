import { expect } from 'chai';
import { Judge, type JudgeSettings, type Observation } from '../../src/releases/judge.ts';

const settings: JudgeSettings = {
  bakeMs: 30,
  waves: [{ bakeMs: undefined }],
  maxWaitMs: 600,
  onTimeout: 'HOLD',
  maxDisconnects: 20,
  mode: 'AUTOMATIC',
};

const tooMany = { cause: 'removals', reason: 'cds: 5 of 6' } as const;

/** Two canaries that have accepted one change. */
const accepted: Observation = {
  total: 2,
  accepted: 2,
  found: undefined,
  mayReturn: false,
  objection: undefined,
  clientsMayComeBack: false,
  nodes: new Set(),
  goodSince: 0,
  waitsFor: '',
};
const waiting: Observation = { ...accepted, accepted: 1 };
const rejects: Observation = {
  ...accepted,
  accepted: 1,
  found: { cause: 'rejected', reason: 'lds web: no such filter' },
};
const nobody: Observation = { ...accepted, total: 0, accepted: 0 };

type Step =
  | { readonly at: number; readonly joined: true }
  | { readonly at: number; readonly sees: Observation; readonly gives: string };

interface Row {
  readonly rule: string;
  readonly settings?: Partial<JudgeSettings>;
  readonly steps: readonly Step[];
}

/** Upstream says something else, and it waits. */
const joined = (at: number): Step => ({ at, joined: true });
/** `gives`: the state with its cause, or why it is released. */
const sees = (at: number, observation: Observation, gives: string): Step => ({
  at,
  sees: observation,
  gives,
});

const rows: readonly Row[] = [
  {
    rule: 'accepted by all, and baked: released',
    steps: [
      joined(0),
      sees(0, waiting, 'CANARY'),
      sees(5, accepted, 'CANARY'),
      sees(34, accepted, 'CANARY'),
      sees(35, accepted, 'accepted'),
    ],
  },
  {
    rule: 'the bake starts again when something joins',
    steps: [
      joined(0),
      sees(0, accepted, 'CANARY'),
      joined(20),
      sees(20, accepted, 'CANARY'),
      sees(30, accepted, 'CANARY'),
      sees(50, accepted, 'accepted'),
    ],
  },
  {
    rule: 'max_wait does not start again when something joins',
    steps: [
      joined(0),
      sees(0, waiting, 'CANARY'),
      joined(580),
      sees(580, waiting, 'CANARY'),
      sees(600, waiting, 'HELD timeout'),
    ],
  },
  {
    rule: 'one that has not accepted it: not released, however long',
    steps: [
      joined(0),
      sees(0, waiting, 'CANARY'),
      sees(599, waiting, 'CANARY'),
      sees(600, waiting, 'HELD timeout'),
      sees(9999, waiting, 'HELD timeout'),
    ],
  },
  {
    rule: 'after a timeout it goes on when the canaries accept it',
    steps: [
      joined(0),
      sees(600, waiting, 'HELD timeout'),
      sees(700, accepted, 'HELD timeout'),
      sees(730, accepted, 'accepted'),
    ],
  },
  {
    rule: 'on_timeout: PROCEED',
    settings: { onTimeout: 'PROCEED' },
    steps: [joined(0), sees(0, waiting, 'CANARY'), sees(600, waiting, 'timeout')],
  },
  {
    rule: 'on_timeout: PROCEED does not release what a canary rejects',
    settings: { onTimeout: 'PROCEED' },
    steps: [joined(0), sees(0, rejects, 'HELD rejected'), sees(601, rejects, 'HELD rejected')],
  },
  {
    rule: 'a rejection holds',
    steps: [
      joined(0),
      sees(0, waiting, 'CANARY'),
      sees(1, rejects, 'HELD rejected'),
      sees(31, rejects, 'HELD rejected'),
    ],
  },
  {
    rule: 'HELD goes on when upstream sends something that the canaries accept',
    steps: [
      joined(0),
      sees(1, rejects, 'HELD rejected'),
      joined(100),
      sees(100, waiting, 'CANARY'),
      sees(101, accepted, 'CANARY'),
      sees(131, accepted, 'accepted'),
    ],
  },
  {
    rule: 'HELD does not go on for a change that leaves the rejection',
    steps: [
      joined(0),
      sees(1, rejects, 'HELD rejected'),
      joined(100),
      sees(100, rejects, 'HELD rejected'),
      sees(140, rejects, 'HELD rejected'),
    ],
  },
  {
    rule: 'what was held for long gets the whole max_wait again',
    steps: [
      joined(0),
      sees(1, rejects, 'HELD rejected'),
      joined(9000),
      sees(9000, waiting, 'CANARY'),
      sees(9599, waiting, 'CANARY'),
      sees(9600, waiting, 'HELD timeout'),
    ],
  },
  {
    rule: 'a client that accepts at the second try: the rejection is over, and the bake starts',
    steps: [
      joined(0),
      sees(1, rejects, 'HELD rejected'),
      sees(2, accepted, 'CANARY'),
      sees(31, accepted, 'CANARY'),
      sees(32, accepted, 'accepted'),
    ],
  },
  {
    rule: 'nobody subscribes: it passes after the bake',
    steps: [joined(0), sees(0, nobody, 'CANARY'), sees(29, nobody, 'CANARY'), sees(30, nobody, 'accepted')],
  },
  {
    rule: 'after a restart, clients may come back: nobody says nothing',
    steps: [
      joined(0),
      sees(0, { ...nobody, clientsMayComeBack: true }, 'CANARY'),
      sees(500, { ...nobody, clientsMayComeBack: true }, 'CANARY'),
      sees(501, nobody, 'CANARY'),
      sees(531, nobody, 'accepted'),
    ],
  },
  {
    rule: 'a client that comes when the bake is over still has to answer',
    steps: [
      joined(0),
      sees(0, nobody, 'CANARY'),
      sees(30, { ...waiting, total: 1, accepted: 0 }, 'CANARY'),
      sees(31, { ...accepted, total: 1, accepted: 1 }, 'accepted'),
    ],
  },
  {
    rule: 'too many removals hold, until they are fewer',
    steps: [
      joined(0),
      sees(0, { ...accepted, objection: tooMany }, 'HELD removals'),
      sees(40, { ...accepted, objection: tooMany }, 'HELD removals'),
      joined(50),
      sees(50, accepted, 'CANARY'),
      sees(80, accepted, 'accepted'),
    ],
  },
  {
    rule: 'max_wait does not run while something else holds it: an objection that ends leaves the whole of it',
    steps: [
      joined(0),
      sees(0, { ...waiting, objection: tooMany }, 'HELD removals'),
      sees(650, waiting, 'CANARY'),
      sees(1249, waiting, 'CANARY'),
      sees(1250, waiting, 'HELD timeout'),
    ],
  },
  {
    rule: 'on_timeout: PROCEED gives nobody the removals that were held for longer than max_wait before their bake',
    settings: { onTimeout: 'PROCEED' },
    steps: [
      joined(0),
      sees(0, { ...accepted, objection: tooMany }, 'HELD removals'),
      sees(650, accepted, 'CANARY'),
      sees(679, accepted, 'CANARY'),
      sees(680, accepted, 'accepted'),
    ],
  },
  {
    rule: 'nor what was rejected for longer than max_wait',
    settings: { onTimeout: 'PROCEED' },
    steps: [joined(0), sees(1, rejects, 'HELD rejected'), sees(700, accepted, 'CANARY')],
  },
  {
    rule: 'mode: MANUAL never releases by itself, and has no timeout',
    settings: { mode: 'MANUAL', onTimeout: 'PROCEED' },
    steps: [
      joined(0),
      sees(0, accepted, 'CANARY'),
      sees(31, accepted, 'CANARY'),
      sees(9999, accepted, 'CANARY'),
    ],
  },
  {
    rule: 'mode: MANUAL holds what a canary rejects',
    settings: { mode: 'MANUAL' },
    steps: [joined(0), sees(0, rejects, 'HELD rejected')],
  },
];

describe('judge', () => {
  for (const { rule, settings: own = {}, steps } of rows) {
    it(rule, () => {
      const judge = new Judge({ ...settings, ...own }, 0);
      for (const step of steps) {
        const { at } = step;
        if ('joined' in step) judge.joined(at);
        else expect(outcome(judge, at, step.sees), `at ${at}`).to.equal(step.gives);
      }
    });
  }

  it('says when to look again: the end of the bake, or of max_wait', () => {
    const judge = new Judge(settings, 0);
    judge.joined(0);
    expect(judge.judge(0, waiting).nextAt).to.equal(600);
    expect(judge.judge(5, accepted).nextAt).to.equal(35);
    expect(judge.judge(6, rejects).nextAt).to.equal(undefined);
  });

  it('max_wait does not run with mode: MANUAL, and begins with a reload to AUTOMATIC', () => {
    const judge = new Judge({ ...settings, mode: 'MANUAL' }, 0);
    expect(outcome(judge, 9000, waiting)).to.equal('CANARY');
    judge.configure(settings);
    expect(outcome(judge, 9001, waiting)).to.equal('CANARY');
    expect(outcome(judge, 9600, waiting)).to.equal('HELD timeout');
  });

  it('nothing is decided while a canary may come back', () => {
    const judge = new Judge(settings, 0);
    const away: Observation = { ...accepted, mayReturn: true };
    expect(outcome(judge, 0, away)).to.equal('CANARY');
    expect(judge.acceptedAt).to.equal(undefined);
    expect(outcome(judge, 5, accepted)).to.equal('CANARY');
    expect(outcome(judge, 35, away)).to.equal('CANARY');
    expect(outcome(judge, 36, accepted)).to.equal('accepted');
  });

  it('changes that are one now: they wait since the first began, and the bake is the last one', () => {
    const [first, second] = [new Judge(settings, 0), new Judge(settings, 10)];
    first.judge(1, accepted);
    second.judge(12, accepted);
    const both = Judge.of([second, first], settings, 20);
    expect([both.startedAt, both.acceptedAt]).to.deep.equal([0, 12]);
    const joined = Judge.of([both, new Judge(settings, 15)], settings, 20);
    expect(joined.acceptedAt).to.equal(undefined);
    second.judge(13, rejects);
    expect(Judge.of([first, second], settings, 20).state.kind).to.equal('HELD');
  });

  it('what held it first is the cause as long as that is so', () => {
    const judge = new Judge(settings, 0);
    const content: Observation = { ...accepted, objection: { cause: 'content', reason: '2 of 3 are empty' } };
    const found = { cause: 'traffic', reason: 'no requests' } as const;
    const causes = [content, { ...content, found }, { ...accepted, found }].map((seen, at) => {
      judge.judge(at, seen);
      return judge.state.kind === 'HELD' && judge.state.cause;
    });
    expect(causes).to.deep.equal(['content', 'content', 'traffic']);
  });

  it('a state keeps its beginning while it lasts', () => {
    const judge = new Judge(settings, 3);
    judge.joined(3);
    judge.judge(3, waiting);
    judge.judge(9, accepted);
    expect(judge.state.since).to.equal(3);
    judge.judge(10, rejects);
    expect(judge.state.since).to.equal(10);
  });
});

describe('judge: waves', () => {
  const three = { ...settings, waves: [{ bakeMs: undefined }, { bakeMs: 100 }, { bakeMs: undefined }] };
  const by = (...nodes: string[]): Observation => ({
    ...accepted,
    total: nodes.length,
    accepted: nodes.length,
    nodes: new Set(nodes),
  });
  const none = by();

  it('each has its own bake, and `max_wait` counts for each', () => {
    const judge = new Judge(three, 0);
    expect(outcome(judge, 0, by('a'))).to.equal('CANARY');
    expect(outcome(judge, 30, by('a'))).to.equal('accepted');
    judge.advance(new Set(['a']), 30);
    expect(outcome(judge, 31, by('a', 'b'))).to.equal('CANARY');
    expect(outcome(judge, 130, by('a', 'b'))).to.equal('CANARY');
    expect(outcome(judge, 131, by('a', 'b'))).to.equal('accepted');
    judge.advance(new Set(['a', 'b']), 131);
    const slow: Observation = { ...by('a', 'b', 'c'), accepted: 2 };
    expect(outcome(judge, 730, slow)).to.equal('CANARY');
    expect(outcome(judge, 731, slow)).to.equal('HELD timeout');
    expect([judge.wave, judge.isLastWave]).to.deep.equal([3, true]);
  });

  it('one that adds nobody passes at once', () => {
    const judge = new Judge(three, 0);
    expect(outcome(judge, 0, none)).to.equal('accepted');
    judge.advance(new Set(), 0);
    expect(outcome(judge, 0, by('a'))).to.equal('CANARY');
    judge.advance(new Set(['a']), 100);
    expect(outcome(judge, 100, by('a'))).to.equal('accepted');
  });

  it('one whose clients have left bakes: they may have left because of the change', () => {
    const judge = new Judge(three, 0);
    judge.judge(0, by('a'));
    judge.advance(new Set(['a']), 30);
    expect(outcome(judge, 31, by('a', 'b'))).to.equal('CANARY');
    expect(outcome(judge, 40, by('a'))).to.equal('CANARY');
    expect(outcome(judge, 131, by('a'))).to.equal('accepted');
    const manual = new Judge({ ...three, mode: 'MANUAL' }, 0);
    manual.judge(0, by('a'));
    expect(outcome(manual, 99, none)).to.equal('CANARY');
  });

  it('what nobody has seen joins the first wave that met somebody', () => {
    const [later, fresh] = [new Judge(three, 0), new Judge(three, 5)];
    expect(outcome(later, 0, none)).to.equal('accepted');
    later.advance(new Set(), 0);
    later.reach(new Set(['tests']));
    expect(Judge.of([later, fresh], three, 3).wave, 'before its clients have answered').to.equal(2);
    expect(outcome(later, 4, by('a'))).to.equal('CANARY');
    expect(Judge.of([later, fresh], three, 6).wave).to.equal(2);
    later.advance(new Set(['a']), 40);
    expect(Judge.of([later, fresh], three, 41).wave, 'it is past that').to.equal(1);
    const unseen = new Judge(three, 0);
    unseen.advance(new Set(), 1);
    expect(unseen.isPastFirst, 'an operator has ended it, whoever was there').to.equal(true);
  });

  it('what no wave meets bakes once', () => {
    const judge = new Judge(three, 0);
    for (const at of [0, 0]) {
      expect(outcome(judge, at, none)).to.equal('accepted');
      judge.advance(new Set(), at);
    }
    expect(outcome(judge, 0, none)).to.equal('CANARY');
    expect(outcome(judge, 29, none)).to.equal('CANARY');
    expect(outcome(judge, 30, none)).to.equal('accepted');
  });

  it('one that adds nobody does not pass while clients may come back', () => {
    const judge = new Judge(three, 0);
    expect(outcome(judge, 0, { ...none, clientsMayComeBack: true })).to.equal('CANARY');
    expect(outcome(judge, 1, { ...none, mayReturn: true })).to.equal('CANARY');
  });

  it('MANUAL: the last one waits, whoever it adds', () => {
    const judge = new Judge({ ...three, waves: three.waves.slice(0, 2), mode: 'MANUAL' }, 0);
    expect(outcome(judge, 50, by('a'))).to.equal('CANARY');
    judge.advance(new Set(['a']), 50);
    expect(outcome(judge, 500, by('a'))).to.equal('CANARY');
  });

  it('what joins starts at the first wave where nobody has come to a later one', () => {
    const [alone, reached] = [new Judge(three, 0), new Judge(three, 0)];
    for (const judge of [alone, reached]) {
      expect(outcome(judge, 0, none)).to.equal('accepted');
      judge.advance(new Set(), 0);
    }
    reached.reach(new Set(['tests']));
    for (const judge of [alone, reached]) judge.joined(5);
    expect([alone.wave, reached.wave]).to.deep.equal([1, 2]);
  });

  it('what joins in the first bakes there where its clients have left: they may have left because of it', () => {
    const judge = new Judge(three, 0);
    expect(outcome(judge, 0, by('a'))).to.equal('CANARY');
    expect(outcome(judge, 5, { ...none, found: rejects.found })).to.equal('HELD rejected');
    judge.joined(10);
    expect(outcome(judge, 10, none)).to.equal('CANARY');
    expect(outcome(judge, 39, none)).to.equal('CANARY');
    expect(outcome(judge, 40, none)).to.equal('accepted');
  });

  it('what joins in a later wave bakes there, though the wave adds nobody: no wave has judged it', () => {
    const judge = new Judge(three, 0);
    expect(outcome(judge, 0, by('a'))).to.equal('CANARY');
    judge.advance(new Set(['a']), 30);
    judge.reach(new Set(['one']));
    expect(outcome(judge, 30, { ...by('a'), found: rejects.found })).to.equal('HELD rejected');
    judge.joined(40);
    expect(outcome(judge, 40, by('a'))).to.equal('CANARY');
    expect(outcome(judge, 139, by('a'))).to.equal('CANARY');
    expect(outcome(judge, 140, by('a'))).to.equal('accepted');
    judge.advance(new Set(['a']), 140);
    expect(outcome(judge, 140, by('a')), 'a wave has judged it').to.equal('accepted');
  });

  it('two changes that become one are where the one is that fewer have seen', () => {
    const [first, second] = [new Judge(three, 0), new Judge(three, 5)];
    second.advance(new Set(['a']), 10);
    second.reach(new Set(['tests']));
    const both = Judge.of([first, second], three, 20);
    expect(both.wave).to.equal(1);
    // Who has it keeps it.
    expect([...both.reach(new Set(['shops', 'tests']))]).to.deep.equal([['tests', 2]]);
  });

  it('says up to which wave what waits now was accepted: what joins a later wave, by nobody yet', () => {
    const judge = new Judge(three, 0);
    judge.judge(0, { ...by('a'), accepted: 0 });
    expect(judge.acceptedWave).to.equal(0);
    judge.judge(1, by('a'));
    expect(judge.acceptedWave).to.equal(1);
    judge.advance(new Set(['a']), 31);
    judge.reach(new Set(['one']));
    judge.judge(31, { ...by('a', 'b'), accepted: 1 });
    expect(judge.acceptedWave).to.equal(1);
    judge.judge(32, { ...by('a', 'b'), found: rejects.found });
    judge.joined(40);
    judge.judge(40, { ...by('a', 'b'), accepted: 0 });
    expect(judge.acceptedWave, 'a fix').to.equal(0);
    const alone = new Judge(three, 0);
    judge.judge(41, by('a', 'b'));
    expect(judge.acceptedWave).to.equal(2);
    expect(Judge.of([judge, alone], three, 42).acceptedWave, 'it has what nobody has accepted').to.equal(0);
  });

  it('what mends what a later wave holds may come in parts, until that wave has passed', () => {
    const judge = new Judge(three, 0);
    judge.judge(0, by('a'));
    expect(judge.isOpen).to.equal(true);
    judge.advance(new Set(['a']), 30);
    expect(outcome(judge, 31, by('a', 'b'))).to.equal('CANARY');
    expect(judge.isOpen).to.equal(false);
    expect(outcome(judge, 32, { ...by('a', 'b'), found: rejects.found })).to.equal('HELD rejected');
    judge.joined(40);
    expect(outcome(judge, 40, by('a', 'b'))).to.equal('CANARY');
    expect([judge.wave, judge.isOpen]).to.deep.equal([2, true]);
    expect(Judge.of([judge], three, 41).isOpen, 'of a part of it').to.equal(true);
    expect(outcome(judge, 140, by('a', 'b'))).to.equal('accepted');
    judge.advance(new Set(['a', 'b']), 140);
    expect(judge.isOpen).to.equal(false);
  });

  it('waves before the first that met somebody are passed, whatever joins', () => {
    const judge = new Judge(three, 0);
    expect(outcome(judge, 0, none)).to.equal('accepted');
    judge.advance(new Set(), 0);
    judge.reach(new Set(['one']));
    judge.joined(5);
    expect([judge.wave, judge.acceptedWave]).to.deep.equal([2, 1]);
  });

  it('a reload that takes waves away: the last one is where it is', () => {
    const judge = new Judge(three, 0);
    for (const at of [30, 130]) judge.advance(new Set(['a']), at);
    judge.reach(new Set(['one']));
    expect([judge.wave, judge.waves, judge.isLastWave]).to.deep.equal([3, 3, true]);
    judge.configure({ ...three, waves: three.waves.slice(0, 2) });
    expect([judge.wave, judge.waves, judge.isLastWave]).to.deep.equal([2, 2, true]);
    expect(judge.acceptedWave, 'nobody of it has accepted').to.equal(1);
    expect([...judge.reach(new Set(['one', 'two']))]).to.deep.equal([
      ['one', 2],
      ['two', 2],
    ]);
    expect(outcome(judge, 131, by('a', 'b'))).to.equal('CANARY');
    expect(outcome(judge, 230, by('a', 'b')), 'its own bake').to.equal('CANARY');
    expect(outcome(judge, 231, by('a', 'b'))).to.equal('accepted');
  });

  it('checks: the bake counts while they are good, and an unknown one does not pass', () => {
    const judge = new Judge(settings, 0);
    const unknown = { ...accepted, goodSince: undefined, waitsFor: 'check errors: no answer' };
    expect(outcome(judge, 0, unknown)).to.equal('CANARY');
    expect(judge.state.reason).to.equal('check errors: no answer');
    expect(outcome(judge, 100, { ...accepted, goodSince: 90 })).to.equal('CANARY');
    expect(outcome(judge, 119, { ...accepted, goodSince: 90 })).to.equal('CANARY');
    expect(outcome(judge, 120, { ...accepted, goodSince: 90 })).to.equal('accepted');
    const timedOut = new Judge(settings, 0);
    expect(outcome(timedOut, 600, unknown)).to.equal('HELD timeout');
    expect(timedOut.state.reason).to.include('check errors: no answer');
  });
});

function outcome(judge: Judge, at: number, observation: Observation): string {
  const { passes } = judge.judge(at, observation);
  if (passes !== undefined) return passes;
  const { state } = judge;
  return state.kind === 'HELD' ? `HELD ${state.cause}` : state.kind;
}
