import { expect } from 'chai';
import { type ModelInputs, pageModel } from '../../../src/admin/page/page-model.ts';
import type { Plain } from '../../../src/admin/plain.ts';
import type { ClientClass } from '../../../src/gen/distributary/admin/v1/fleet_pb.ts';
import { problemsOf } from '../../../src/inspect/problems.ts';
import { NO_PAGE, sampleStatus } from '../../support/inspector.ts';

const oneClass: Plain<ClientClass> = {
  id: 'c1',
  parameters: { env: 'prod' },
  restricted: false,
  streams: 4,
  rejecting: 0,
  unacknowledged: 0,
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

describe('model of the status page', () => {
  it('stays small whatever peers name, and has no more than so many of anything', () => {
    const long = 'x'.repeat(10_000);
    const many = Array.from({ length: 300 }, (_, index) => ({
      ...{ kind: 'REJECTED', type: 'rds', class: 'c1', parameters: { env: long }, clients: 11 },
      ...{ name: `${long}${index}`, what: `${long}${index}`, error: long, version: long, since: '' },
      ...{ why: '', elsewhere: false, otherClasses: 0, sentence: '' },
    }));
    const classes = Array.from({ length: 500 }, (_, index) => ({
      ...oneClass,
      id: `c${index}`,
      parameters: { env: `${long}${index}` },
    }));
    const fleet = { classes, total: 700, streams: 5000, problems: many, missing: {} };
    const found = problemsOf({ status: sampleStatus, classes: fleet, facts: NO_PAGE.facts(), now: 0 });
    const made = model({
      status: { ...sampleStatus, ...found },
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
    expect(made.otherClasses).to.deep.equal({ classes: 620, streams: 5000 - 80 * 4 });
    expect(made.events).to.have.length(50);
    expect(JSON.stringify(made).length).to.be.below(100_000);
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
