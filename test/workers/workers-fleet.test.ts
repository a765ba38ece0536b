import { expect } from 'chai';
import type { Cohort } from '../../src/model/access.ts';
import { resourceName } from '../../src/model/brand.ts';
import type { CanaryStream, Standing, Waiting } from '../../src/releases/waiting.ts';
import type { Message, ToWorker } from '../../src/workers/ipc-messages.ts';
import { WorkersFleet } from '../../src/workers/reporters.ts';
import { type } from '../support/in-memory-relay.ts';
import { VirtualClock } from '../support/virtual-clock.ts';

const named = (...names: readonly string[]): Waiting =>
  new Map([[type('cds'), new Set(names.map(resourceName))]]);
const waiting = named('a');
type CanaryReport = Message<'canary_report'>;
const nobody: CanaryReport = {
  kind: 'canary_report',
  round: 0,
  members: [],
  canaries: [],
  ended: [],
};
const bad: CanaryStream = {
  stream: '1-1',
  node: 'n1',
  classKey: 'one',
  standing: { kind: 'rejected', reason: 'cds a: bad', names: new Set(['cds a']), isFinal: true },
  names: [],
};
const accepted: CanaryStream = { ...bad, stream: '', standing: { kind: 'accepted' } };
const waits: CanaryStream = { ...accepted, standing: { kind: 'waiting' } };

const isFinal = (standing: Standing): boolean | undefined =>
  standing.kind === 'rejected' ? standing.isFinal : undefined;

/** A primary with two workers. */
class Setting {
  readonly clock = new VirtualClock();
  readonly fleet = new WorkersFleet(this.clock);
  readonly told: ToWorker[] = [];
  readonly ended: Standing[] = [];
  readonly undelivered = new Set<Cohort>();
  readonly reports: (CanaryReport | undefined)[] = [undefined, undefined];
  elected: readonly string[] = [];
  reached: ReadonlyMap<string, number> = new Map();
  waiting = waiting;
  looks = 0;
  leftAt: number | undefined;

  constructor() {
    const elected = (): ReadonlySet<string> => new Set(this.elected);
    const reached = (): ReadonlyMap<string, number> => this.reached;
    this.fleet.serve({
      rollout: {
        canaries: {
          waves: [{ path: 'rollout.canary', percent: 1, match: [], elects: true, bakeMs: undefined }],
          open: undefined,
          get reached() {
            return reached();
          },
          get named() {
            return elected();
          },
          clientsLeft: (now) => {
            this.leftAt = now;
          },
        },
        answered: () => this.looks++,
        canaryEnded: ({ standing }) => this.ended.push(standing),
        waiting: () => this.waiting,
      },
      hasDelivered: (cohort) => !this.undelivered.has(cohort),
    });
    this.waiting = new Map();
    this.fleet.workersStarted({
      tell: (message) => this.told.push(message),
      reports: () => this.reports,
    });
    this.waiting = waiting;
  }

  get round(): number {
    return this.told.findLast((one) => one.kind === 'waiting')?.round ?? 0;
  }

  /** All workers answer the last question. */
  answer(...reports: readonly Partial<CanaryReport>[]): void {
    this.reports.splice(0, 2, ...reports.map((report) => ({ ...nobody, round: this.round, ...report })));
  }

  /** Something else waits now. */
  waits(...names: readonly string[]): void {
    this.waiting = names.length === 0 ? new Map() : named(...names);
    this.fleet.waitingChanged();
  }

  /** Each question, as the names that it is about. */
  questions(): readonly string[] {
    return this.told.flatMap((one) =>
      one.kind === 'waiting' ? [[...one.waiting.values()].flatMap((names) => [...names]).join(' ')] : [],
    );
  }

  /** n1 was elected, and goes back once the workers have what was released. */
  goesBack(): void {
    this.elected = ['n1'];
    this.fleet.moved();
    this.undelivered.add('released');
    this.elected = [];
    this.fleet.moved();
  }

  standings(): readonly string[] {
    return this.fleet.survey(this.waiting).canaries.map(({ standing }) => standing.kind);
  }
}

describe('the clients of workers', () => {
  it('a verdict needs the reports of all workers that listen', () => {
    const setting = new Setting();
    expect(setting.standings()).to.deep.equal(['waiting']);
    setting.reports[0] = { ...nobody, round: setting.round, canaries: [accepted, accepted] };
    expect(setting.standings()).to.deep.equal(['waiting']);
    setting.answer({ canaries: [accepted, accepted] }, { canaries: [accepted] });
    expect(setting.standings()).to.deep.equal(['accepted', 'accepted', 'accepted']);
    setting.reports.pop();
    expect(setting.standings(), 'one of them has ended').to.deep.equal(['accepted', 'accepted']);
  });

  it('what a worker said before it had the change says nothing of it', () => {
    const setting = new Setting();
    setting.undelivered.add('canary');
    setting.standings();
    setting.answer({ canaries: [accepted] }, { canaries: [accepted] });
    expect(setting.standings()).to.deep.equal(['waiting']);
    setting.undelivered.clear();
    expect(setting.standings(), 'asked again').to.deep.equal(['waiting']);
    setting.answer({ canaries: [accepted] }, { canaries: [accepted] });
    expect(setting.standings()).to.deep.equal(['accepted', 'accepted']);
    setting.fleet.waitingChanged();
    expect(setting.standings(), 'of the change before').to.deep.equal(['waiting']);
  });

  it('a rejection stays until the workers have answered for what waits now', () => {
    const setting = new Setting();
    setting.standings();
    setting.answer({ canaries: [bad] }, {});
    expect(setting.standings()).to.deep.equal(['rejected']);
    setting.fleet.waitingChanged();
    expect(setting.standings()).to.deep.equal(['waiting', 'rejected']);
    setting.answer({ canaries: [accepted] }, {});
    expect(setting.standings()).to.deep.equal(['accepted']);
  });

  it('a canary is told at once, and goes back when its worker has what was released', () => {
    const setting = new Setting();
    const nodes = (): readonly (readonly string[])[] =>
      setting.told.flatMap((message) => (message.kind === 'canaries' ? [[...message.named]] : []));
    setting.undelivered.add('released');
    setting.elected = ['n1'];
    setting.fleet.moved();
    expect(nodes()).to.deep.equal([['n1']]);
    setting.elected = [];
    setting.fleet.moved();
    setting.clock.advance(1000);
    expect(nodes()).to.deep.equal([['n1']]);
    setting.undelivered.clear();
    setting.clock.advance(100);
    expect(nodes()).to.deep.equal([['n1'], []]);
  });

  it('a worker that does not take what was released keeps nobody in the cohort of canaries', () => {
    const setting = new Setting();
    setting.goesBack();
    setting.clock.advance(10_000);
    expect(setting.told.at(-1)).to.deep.include({ kind: 'canaries', named: new Set() });
  });

  it('the end of a worker is the end of its canaries, with what they rejected', () => {
    const setting = new Setting();
    setting.standings();
    setting.answer({ canaries: [bad, accepted] }, {});
    setting.standings();
    const [report] = setting.reports.splice(0, 1);
    setting.fleet.workerEnded(report);
    setting.standings();
    expect(setting.ended.map(({ kind }) => kind)).to.deep.equal(['rejected', 'accepted']);
  });

  it('the end of a stream is told at once; what it rejected before the round that counts is not final', () => {
    const setting = new Setting();
    setting.undelivered.add('canary');
    setting.standings();
    setting.fleet.reported({ ...nobody, round: setting.round, ended: [bad, waits] });
    expect(setting.ended.map(isFinal), 'of the change before, perhaps').to.deep.equal([false, undefined]);
    setting.undelivered.clear();
    setting.standings();
    const ended = { ...nobody, round: setting.round, ended: [bad, waits] };
    setting.fleet.reported(ended);
    expect(setting.ended.slice(2).map(isFinal)).to.deep.equal([true, undefined]);
    setting.fleet.waitingChanged();
    setting.fleet.reported(ended);
    expect(setting.ended.slice(4).map(isFinal)).to.deep.equal([false, undefined]);
  });

  it('workers are told when nothing waits for a verdict any more, as under a freeze', () => {
    const setting = new Setting();
    setting.standings();
    setting.waits();
    expect(setting.told.at(-1)).to.deep.include({ kind: 'waiting', waiting: new Map() });
  });

  it('what was said before nothing waited is nothing: no rejection, no end, nor the end of the worker', () => {
    const setting = new Setting();
    setting.standings();
    setting.answer({ canaries: [bad] }, {});
    expect(setting.standings()).to.deep.equal(['rejected']);
    const late = { ...nobody, round: setting.round, ended: [bad] };
    setting.waits();
    setting.waits('a');
    expect(setting.standings()).to.deep.equal(['waiting', 'waiting']);
    const there = setting.fleet.survey(waiting).canaries.map(({ stream, node }) => [stream, node]);
    expect(there, 'it has not left').to.deep.equal([
      ['', ''],
      ['1-1', ''],
    ]);
    setting.fleet.reported(late);
    setting.fleet.workerEnded(setting.reports[0]);
    expect(setting.ended).to.deep.equal([]);
  });

  it('the question goes out with the change: a canary may end before anybody looks', () => {
    const setting = new Setting();
    setting.waits('a');
    expect(setting.questions()).to.deep.equal(['a']);
    setting.fleet.waitingChanged();
    expect(setting.questions(), 'of what they were asked about nothing is lost').to.deep.equal(['a']);
    setting.standings();
    setting.fleet.waitingChanged();
    setting.clock.advance(100);
    setting.waits('a', 'b');
    expect(setting.questions().at(-1)).to.equal('a b');
    expect(new Set(setting.questions())).to.deep.equal(new Set(['a', 'a b']));
  });

  it('changes that come in a burst are told each 10 ms, and the last is not forgotten', () => {
    const setting = new Setting();
    const names: string[] = [];
    for (let change = 0; change < 100; change++) {
      names.push(`n${change}`);
      setting.waits(...names);
      setting.clock.advance(1);
    }
    setting.clock.advance(10);
    expect(setting.questions().length).to.be.within(9, 12);
    expect(setting.questions().at(-1)).to.equal(names.join(' '));
  });

  it('what waits when the workers have started is told, too', () => {
    const setting = new Setting();
    expect(setting.questions()).to.deep.equal([]);
    const told: ToWorker[] = [];
    setting.fleet.workersStarted({ tell: (message) => told.push(message), reports: () => [] });
    expect(told).to.deep.include({ kind: 'waiting', round: 1, waiting });
  });

  it('nobody knows what canaries say while some are on the way to their cohort, and then it is looked at', () => {
    const setting = new Setting();
    setting.undelivered.add('released');
    setting.reached = new Map([['one', 3]]);
    setting.standings();
    // The change of one class was released, and that of another has come further.
    setting.reached = new Map([['two', 2]]);
    setting.standings();
    setting.answer({}, {});
    expect(setting.fleet.survey(waiting).complete).to.equal(false);
    const { looks } = setting;
    setting.undelivered.clear();
    setting.clock.advance(50);
    expect(setting.told.at(-1)).to.deep.include({ kind: 'canaries', reached: new Map([['two', 2]]) });
    expect(setting.looks).to.be.above(looks);
    expect(setting.fleet.survey(waiting).complete, 'asked again').to.equal(false);
    setting.answer({}, {});
    expect(setting.fleet.survey(waiting).complete).to.equal(true);
  });

  it('where no worker listens, nothing is known of clients; after the end of one they may come back', () => {
    const setting = new Setting();
    setting.standings();
    setting.answer({}, {});
    expect(setting.fleet.survey(waiting).complete).to.equal(true);
    setting.clock.advance(7);
    setting.reports.splice(0);
    setting.fleet.workerEnded(undefined);
    expect(setting.leftAt).to.equal(setting.clock.monotonic());
    expect(setting.fleet.survey(waiting).complete).to.equal(false);
  });

  it('a worker that starts hears what the others were told, not what they will be', () => {
    const setting = new Setting();
    setting.goesBack();
    expect(setting.fleet.told?.named).to.deep.equal(new Set(['n1']));
  });
});
