import { expect } from 'chai';
import { fanOut } from '../../../page/fan-out-tree.ts';
import { type ModelInputs, pageModel } from '../../../src/admin/page/page-model.ts';
import { problemsOf } from '../../../src/admin/problems.ts';
import type { Plain } from '../../../src/admin/service.ts';
import type { ClientClass } from '../../../src/gen/distributary/admin/v1/fleet_pb.ts';
import type { CheckStatus, RolloutStatus } from '../../../src/gen/distributary/admin/v1/rollout_pb.ts';
import { NO_PAGE, sampleStatus } from '../../support/inspector.ts';

const oneClass: Plain<ClientClass> = {
  id: 'c1',
  parameters: { env: 'prod' },
  restricted: false,
  streams: 4,
  rejecting: 0,
  late: 0,
  subscriptions: [{ type: 'cds', name: '*' }],
};

function model(changes: Partial<ModelInputs> = {}) {
  return pageModel({
    status: sampleStatus,
    facts: NO_PAGE.facts(),
    classes: { classes: [oneClass], total: 1, streams: 4, problems: [], missing: {} },
    changes: [],
    lines: [],
    upstreamOf: () => 'central',
    ...changes,
  });
}

const waits: Plain<RolloutStatus> = {
  ...{ state: 'CANARY', since: '2026-01-01T00:00:00Z', upstream: 'central', types: ['cds'], names: ['a'] },
  ...{
    pending: 1,
    reason: '',
    revision: 1,
    pendingRevision: 2,
    freezes: [],
    masked: 0,
    queued: 0,
    queuedTypes: [],
    queuedHeld: false,
    noCanary: false,
  },
  bakeSeconds: [30],
  ...{ wave: 1, waves: 1, checks: [] },
};

const answered = (state: string, value?: number) => ({ at: '2026-01-01T00:00:01Z', state, value });
const check: Plain<CheckStatus> = { name: 'errors', state: 'GOOD', reason: 'well', recent: [] };

const chartsOf = (rollout: Partial<Plain<RolloutStatus>>) =>
  model({ status: { ...sampleStatus, rollout: { ...waits, ...rollout } } }).change?.verdicts.map(
    ({ chart }) => chart,
  );

describe('model of the status page', () => {
  it('stays small whatever peers name, and has no more than so many of anything', () => {
    const long = 'x'.repeat(10_000);
    const many = Array.from({ length: 300 }, (_, index) => ({
      ...{ kind: 'REJECTED', type: 'rds', class: 'c1', parameters: { env: long }, clients: 11 },
      ...{ name: `${long}${index}`, what: `${long}${index}`, error: long, version: long, since: '' },
      ...{ why: '', elsewhere: false, otherClasses: 0, nearest: '' },
    }));
    const classes = Array.from({ length: 500 }, (_, index) => ({
      ...oneClass,
      id: `c${index}`,
      parameters: { env: `${long}${index}` },
    }));
    const fleet = { classes, total: 700, streams: 5000, problems: many, missing: {} };
    const found = problemsOf({ status: sampleStatus, classes: fleet, facts: NO_PAGE.facts(), now: 0 });
    const answers = Array.from({ length: 60 }, () => answered('BAD', 1234.567890123));
    const checks = Array.from({ length: 30 }, (_, index) => ({
      ...{ ...check, name: `${long}${index}`, reason: long, min: 0.123456789, max: 0.987654321 },
      recent: answers,
    }));
    const made = model({
      status: { ...sampleStatus, ...found, rollout: { ...waits, names: Array(100).fill(long), checks } },
      classes: fleet,
      lines: Array.from({ length: 60 }, (_, index) => ({
        at: index,
        level: 'info' as const,
        message: 'm',
        fields: '',
      })),
    });
    expect(made.problems).to.have.length(40);
    expect(made.moreProblems).to.be.at.least(260);
    expect(made.classes).to.have.length(80);
    expect(made.otherClasses).to.include({ classes: 620, streams: 5000 - 80 * 4 });
    expect(made.events).to.have.length(50);
    expect(made.change?.verdicts).to.have.length(20);
    expect(made.change?.verdicts.filter(({ chart }) => chart !== undefined)).to.have.length(6);
    expect(JSON.stringify(made).length).to.be.below(100_000);
  });

  it('classes past those that are drawn one by one have the colors of their clients', () => {
    const wrong = { rejecting: 1, late: 2 };
    const classes = Array.from({ length: 500 }, (_, index) => ({
      ...{ ...oneClass, id: `c${index}` },
      ...(index < 14 || index > 400 ? {} : wrong),
    }));
    const beyond = {
      ...{ kind: 'REJECTED', type: 'rds', class: 'not listed', parameters: {}, clients: 7 },
      ...{ name: 'a', what: 'a', error: 'no', version: '', since: '', why: '', elsewhere: false },
      ...{ otherClasses: 0, nearest: '' },
    };
    const made = model({ classes: { classes, total: 510, streams: 2040, problems: [beyond], missing: {} } });
    expect(made.otherClasses).to.deep.equal({
      ...{ classes: 430, streams: 1720 },
      ...{ rejecting: 321 + 7, late: 642 },
    });
    const rest = fanOut(made).at(-1);
    expect(rest?.shares).to.deep.equal({ bad: 394, warn: 774, ok: 2040 - 14 * 4 - 394 - 774 });
    expect(rest?.children[0]?.children[0]?.note).to.equal('394 rejecting, 774 not acknowledged');
  });

  it('draws what a check said: values with their bounds, or marks', () => {
    const values = [
      answered('GOOD', 0.5),
      answered('UNKNOWN'),
      answered('BAD', 2),
      answered('BAD', Infinity),
    ];
    const at = Date.parse('2026-01-01T00:00:01Z');
    expect(chartsOf({ checks: [{ ...check, recent: values, max: 1 }] })).to.deep.equal([
      {
        at: [at, at, at, at],
        lines: [
          { name: 'value', kind: 'value', values: [0.5, null, 2, null] },
          { name: 'max 1', kind: 'bound', values: [1] },
        ],
        marks: '',
        unit: '',
        text: '4 answers: from 0.5 to 2, the last 2; max 1',
      },
    ]);
    const said = [answered('GOOD'), answered('BAD'), answered('GOOD'), answered('UNKNOWN')];
    expect(chartsOf({ checks: [check, { ...check, recent: said }] })).to.deep.equal([
      undefined,
      {
        ...{ at: [at, at, at, at], lines: [], marks: 'GBGU', unit: '' },
        text: '4 answers: 2 GOOD, 1 BAD, 1 UNKNOWN',
      },
    ]);
  });

  it('draws which part of the requests failed in both cohorts, and how much is too much', () => {
    const point = (own: number, others: number) => ({
      at: '2026-01-01T00:00:01Z',
      canaries: { requests: 200, errors: own },
      others: { requests: others, errors: 3 },
    });
    const traffic = { state: 'GOOD', reason: '', maxErrorIncrease: 5, recent: [point(2, 0), point(5, 300)] };
    const [chart] = chartsOf({ traffic }) ?? [];
    expect(chart?.lines).to.deep.equal([
      { name: 'with the change', kind: 'value', values: [1, 2.5] },
      { name: 'without it', kind: 'other', values: [null, 1] },
      { name: 'bound', kind: 'bound', values: [null, 6] },
    ]);
    expect(chart?.text).to.equal(
      'percent of requests that failed: with the change 2.5, without it 1, bound 6',
    );
    expect(chartsOf({ traffic: { ...traffic, recent: [] } })).to.deep.equal([undefined]);
  });

  it('says of each wave how many are in it, and how long it bakes', () => {
    const waveClients = [2, 40, 300].map((clients) => ({ clients, accepted: 2, rejected: 1 }));
    const status = { ...sampleStatus, waveClients, rollout: { ...waits, waves: 2, bakeSeconds: [30, 120] } };
    expect(model({ status }).change?.clients).to.deep.equal([
      { clients: 2, accepted: 2, rejected: 1, seconds: 30 },
      { clients: 40, accepted: 2, rejected: 1, seconds: 120 },
      { clients: 300, accepted: 2, rejected: 1, seconds: 0 },
    ]);
  });

  it('changes and lines of the log are one list, the newest first', () => {
    const change = {
      revision: 3,
      since: '2026-01-01T00:00:05Z',
      upstream: 'central',
      type: 'cds',
      added: 1,
      changed: 0,
      removed: 2,
      names: [{ name: 'a', change: 'ADDED', bytes: 1n }],
      bytes: 1n,
      bodies: false,
      verdict: 'PENDING',
      released: '',
      reason: '',
      canariesSeconds: 0,
      clientsSeconds: 0,
      accepted: 0,
      rejected: 0,
    };
    const line = {
      at: Date.parse('2026-01-01T00:00:06Z'),
      level: 'warn' as const,
      message: 'oh',
      fields: 'k=v',
    };
    const { events } = model({ changes: [change], lines: [line] });
    expect(events.map(({ text, detail }) => [text, detail])).to.deep.equal([
      ['oh', 'k=v'],
      ['cds: 1 added, 2 removed by central, pending', 'a'],
    ]);
  });
});
