import { expect } from 'chai';
import type { Side } from '../../src/model/access.ts';
import { resourceName } from '../../src/model/brand.ts';
import type { CanaryStream, Standing, Waiting } from '../../src/rollout/waiting.ts';
import type { Message, ToWorker } from '../../src/workers/ipc-messages.ts';
import { WorkersFleet } from '../../src/workers/workers-fleet.ts';
import { type } from '../support/in-memory-relay.ts';
import { VirtualClock } from '../support/virtual-clock.ts';

const waiting: Waiting = new Map([[type('cds'), new Set([resourceName('a')])]]);
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
  readonly undelivered = new Set<Side>();
  readonly reports: (CanaryReport | undefined)[] = [undefined, undefined];
  elected: readonly string[] = [];
  waits = true;

  constructor() {
    const named = (): ReadonlySet<string> => new Set(this.elected);
    this.fleet.serve({
      rollout: {
        canaries: {
          waves: [{ path: 'rollout.canary', percent: 1, match: [], elects: true, bakeMs: undefined }],
          reached: new Map(),
          open: undefined,
          get named() {
            return named();
          },
        },
        answered: () => {},
        canaryEnded: ({ standing }) => this.ended.push(standing),
      },
      hasDelivered: (side) => !this.undelivered.has(side),
      waits: () => this.waits,
    });
    this.fleet.workersStarted({
      tell: (message) => this.told.push(message),
      reports: () => this.reports,
    });
  }

  get round(): number {
    return this.told.findLast((one) => one.kind === 'waiting')?.round ?? 0;
  }

  /** All workers answer the last question. */
  answer(...reports: readonly Partial<CanaryReport>[]): void {
    this.reports.splice(0, 2, ...reports.map((report) => ({ ...nobody, round: this.round, ...report })));
  }

  standings(): readonly string[] {
    return this.fleet.survey(waiting).canaries.map(({ standing }) => standing.kind);
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

  it('a worker that does not take what was released keeps nobody on the side of canaries', () => {
    const setting = new Setting();
    setting.elected = ['n1'];
    setting.fleet.moved();
    setting.undelivered.add('released');
    setting.elected = [];
    setting.fleet.moved();
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

  it('the ends of streams count when it is known how many there are; what they rejected before does not', () => {
    const setting = new Setting();
    setting.standings();
    const ended = { ...nobody, round: setting.round, ended: [bad, waits] };
    setting.fleet.reported(ended);
    setting.standings();
    expect(setting.ended).to.deep.equal([]);
    setting.answer({}, {});
    setting.standings();
    expect(setting.ended.map(isFinal)).to.deep.equal([true, undefined]);
    setting.fleet.reported(ended);
    setting.fleet.waitingChanged();
    setting.standings();
    setting.answer({}, {});
    setting.standings();
    expect(setting.ended.slice(2).map(isFinal)).to.deep.equal([false, undefined]);
  });

  it('workers are told when nothing waits any more', () => {
    const setting = new Setting();
    setting.standings();
    setting.waits = false;
    setting.fleet.waitingChanged();
    expect(setting.told.at(-1)).to.deep.include({ kind: 'waiting', waiting: new Map() });
  });
});
