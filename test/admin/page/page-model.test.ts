import { expect } from 'chai';
import { sentence } from '../../../src/admin/page/model.ts';
import { type ModelInputs, pageModel } from '../../../src/admin/page/page-model.ts';
import type { PageFacts } from '../../../src/admin/page-ports.ts';
import type { Plain } from '../../../src/admin/plain.ts';
import type { ClassProblem, ClientClass } from '../../../src/gen/distributary/admin/v1/fleet_pb.ts';
import { sampleStatus } from '../../support/inspector.ts';

const now = Date.parse('2026-01-01T00:10:00Z');
const day = 86_400_000;

const facts: PageFacts = {
  configuration: 'abc',
  configuredAt: now,
  startedAt: now,
  readOnly: false,
  usage: [{ name: 'limits.max_streams', used: 10, limit: 100 }],
  certificates: new Map([['admin', now + 90 * day]]),
  rolloutMaxWaitMs: 600_000,
  workPerPeerMs: 500,
  removalHoldMs: new Map([['second', 3_600_000]]),
  perParameters: new Set(['central']),
};

const well: Partial<Plain<typeof sampleStatus>> = {
  upstreams: sampleStatus.upstreams.slice(0, 1),
  types: [],
  warnings: [],
};

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

const oneProblem: Plain<ClassProblem> = {
  kind: 'REJECTED',
  type: 'rds',
  name: 'web',
  class: 'c1',
  parameters: { env: 'prod' },
  clients: 11,
  since: '2026-01-01T00:09:00Z',
  error: 'no such cluster',
  version: 'v7',
  what: 'web',
};

function model(
  changes: Partial<Omit<ModelInputs, 'status' | 'facts'>> & {
    readonly status?: object;
    readonly facts?: Partial<PageFacts>;
    readonly problems?: readonly Plain<ClassProblem>[];
  } = {},
) {
  const { status, facts: known, problems = [], ...rest } = changes;
  return pageModel({
    status: { ...sampleStatus, ...well, ...status },
    facts: { ...facts, ...known },
    classes: { classes: [oneClass], total: 1, streams: 4, problems: [...problems] },
    now,
    changes: [],
    lines: [],
    upstreamOf: () => 'central',
    ...rest,
  });
}

const titles = (of: ReturnType<typeof model>) => of.problems.map(({ title }) => title);

describe('model of the status page', () => {
  it('has no problems when all is well, and says so in a sentence', () => {
    expect(model().problems).to.be.empty;
    expect(sentence(model())).to.equal('Serving 4 clients; all is well.');
  });

  it('an upstream that is away and who rejects what come first, in one sentence', () => {
    const made = model({ status: { upstreams: sampleStatus.upstreams }, problems: [oneProblem] });
    expect(sentence(made)).to.match(/^Serving 4 clients; `second` away; .*11 clients reject rds\/web/);
    const later = Date.parse('2026-01-01T00:00:23Z');
    expect(sentence(made, later)).to.include('`second` away for 23 s');
    const [away] = made.problems;
    expect(away).to.include({ severity: 'bad', runbook: 'control-plane-away' });
    expect(away?.since).to.equal(Date.parse('2026-01-01T00:00:00Z'));
  });

  it('the sentence says once what clients of several classes reject, with all of them', () => {
    const later = { class: 'c2', parameters: { env: 'dev' }, clients: 3, since: '2026-01-01T00:09:30Z' };
    const made = model({
      problems: [oneProblem, { ...oneProblem, ...later }, { ...oneProblem, type: 'cds', clients: 1 }],
    });
    expect(made.problems.map(({ title }) => title)).to.deep.equal([
      '11 clients with env=prod reject rds web',
      '3 clients with env=dev reject rds web',
      '1 client with env=prod rejects cds web',
    ]);
    const told = '14 clients reject rds/web for 1 min; 1 client rejects cds/web for 1 min';
    expect(sentence(made, Date.parse('2026-01-01T00:10:00Z'))).to.equal(`Serving 4 clients; ${told}.`);
    const late = { ...oneProblem, kind: 'LATE', name: '', clients: 1 };
    const silent = model({ problems: [late, { ...late, ...later }] });
    expect(sentence(silent)).to.equal('Serving 4 clients; 4 clients have not acknowledged rds.');
  });

  it('a rejection links to its clients and its runbook', () => {
    const [rejection] = model({ problems: [oneProblem] }).problems;
    expect(rejection?.title).to.equal('11 clients with env=prod reject rds web');
    expect(rejection?.detail).to.equal('no such cluster (version v7)');
    expect(rejection?.runbook).to.equal('clients-reject');
    const query = new URLSearchParams(rejection?.link.slice(1, -'#clients'.length));
    expect(Object.fromEntries(query)).to.deep.equal({
      type: 'rds',
      state: 'ERROR',
      class: 'c1',
      resource: 'web',
    });
  });

  it('held removals have a countdown and the command that ends it', () => {
    const made = model({ status: { upstreams: sampleStatus.upstreams } });
    const held = made.problems.find(({ runbook }) => runbook === 'removals-held');
    expect(held?.until).to.equal(Date.parse('2026-01-01T01:00:00Z'));
    expect(held?.command).to.equal('distributary release --upstream second --type cds --reason "…"');
  });

  it('a change that canaries have ends with max_wait; a held one waits for an operator; so does a freeze', () => {
    const rollout = {
      state: 'CANARY',
      since: '2026-01-01T00:05:00Z',
      upstream: 'central',
      types: ['cds'],
      names: ['a'],
      pending: 1,
      masked: 0,
      canaries: { total: 1, accepted: 0, rejected: 1, ended: 0 },
      noCanary: false,
      reason: 'cds a: no',
      revision: 1,
      pendingRevision: 2,
      freezes: [{ type: 'cds', upstream: '', reason: 'incident 7', since: '2026-01-01T00:05:00Z' }],
    };
    const [canary, freeze] = model({ status: { rollout } }).problems;
    expect(canary).to.include({ severity: 'warn', until: Date.parse('2026-01-01T00:15:00Z') });
    expect(freeze).to.include({
      command: 'distributary unfreeze --type cds --reason "…"',
      runbook: 'frozen',
    });
    const [held] = model({ status: { rollout: { ...rollout, state: 'HELD', freezes: [] } } }).problems;
    expect(held).to.include({ severity: 'bad', until: 0, runbook: 'change-held' });
    expect(held?.detail).to.include('cds a: no').and.to.include('1 rejected');
  });

  it('a change that waits because no canary is connected comes before everything else, with the command', () => {
    const rollout = {
      state: 'HELD',
      since: '2026-01-01T00:05:00Z',
      upstream: 'central',
      types: ['cds'],
      names: ['a'],
      pending: 1,
      masked: 0,
      canaries: { total: 0, accepted: 0, rejected: 0, ended: 1 },
      noCanary: true,
      reason: '1 of 1 canary streams ended within the bake',
      revision: 1,
      pendingRevision: 2,
      freezes: [],
    };
    const made = model({ status: { ready: false, reason: 'starting', rollout } });
    const command = 'distributary release --reason "…"';
    expect(made.problems[0]).to.include({ title: 'A change is held: no canary is connected', command });
    expect(sentence(made)).to.include(`; held: no canary is connected; \`${command}\`; `);
    expect(made.problems.filter(({ runbook }) => runbook === 'change-held')).to.have.length(1);
  });

  it('limits from 80 % on, and certificates of the last two weeks', () => {
    const near = model({
      facts: {
        usage: [
          { name: 'limits.max_streams', used: 79, limit: 100 },
          { name: 'cache.max_bytes', used: 80, limit: 100 },
          { name: 'limits.max_connections', used: 0, limit: 0 },
        ],
        certificates: new Map([
          ['xds', now + 13 * day],
          ['admin', now + day],
        ]),
      },
    });
    expect(titles(near)).to.deep.equal([
      'The certificate of admin ends soon',
      'cache.max_bytes is at 80 %',
      'The certificate of xds ends soon',
    ]);
  });

  it('what is late, missing or ambiguous', () => {
    const late = { ...oneProblem, kind: 'LATE', name: '', clients: 1 };
    const missing = ['a', 'b', 'c', 'd'].map((name) => ({
      ...oneProblem,
      kind: 'MISSING',
      type: 'eds',
      name,
      class: '',
    }));
    const types = [{ type: 'cds', resources: 3, variants: 5, subscriptions: 7, ambiguous: 1 }];
    const made = model({ problems: [late, ...missing], status: { types } });
    expect(titles(made)).to.deep.equal([
      '1 client with env=prod has not acknowledged rds',
      '4 names of eds are asked for and missing',
      '1 lookup of cds matches several variants',
    ]);
    expect(made.problems[1]?.detail).to.include('a, b, c and 1 more');
  });

  it('stays small whatever peers name, and has no more than so many of anything', () => {
    const long = 'x'.repeat(10_000);
    const many = Array.from({ length: 300 }, (_, index) => ({
      ...oneProblem,
      name: `${long}${index}`,
      what: `${long}${index}`,
      error: long,
    }));
    const classes = Array.from({ length: 500 }, (_, index) => ({
      ...oneClass,
      id: `c${index}`,
      parameters: { env: `${long}${index}` },
    }));
    const made = model({
      classes: { classes, total: 700, streams: 5000, problems: many },
      lines: Array.from({ length: 60 }, (_, index) => ({
        at: index,
        level: 'info' as const,
        message: 'm',
        fields: '',
      })),
    });
    expect(made.problems).to.have.length(40);
    expect(made.moreProblems).to.equal(260);
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
