import { globSync, readFileSync } from 'node:fs';
import { basename, join, resolve } from 'node:path';
import { expect } from 'chai';
import { parse } from 'yaml';
import { z } from 'zod';
import { problemLog } from '../../src/admin/inspection.ts';
import { problemsOf } from '../../src/admin/problems.ts';
import type { PageFacts, Plain } from '../../src/admin/service.ts';
import type { StatusResponse } from '../../src/gen/distributary/admin/v1/admin_pb.ts';
import type { ClassProblem } from '../../src/gen/distributary/admin/v1/fleet_pb.ts';
import type { RolloutStatus } from '../../src/gen/distributary/admin/v1/rollout_pb.ts';
import type { CertificateState } from '../../src/observe/certificates.ts';
import type { Recent } from '../../src/observe/figures.ts';
import { createLog, type Log } from '../../src/observe/log.ts';
import { problemKinds, readyText, sentence, worstOf } from '../../src/observe/problems.ts';
import { rejections } from '../../src/observe/rejections.ts';
import { root } from '../e2e/support/paths.ts';
import { NO_PAGE, sampleStatus } from '../support/inspector.ts';

const now = Date.parse('2026-01-01T00:10:00Z');
const day = 86_400_000;
const since = '2026-01-01T00:09:00Z';

const [central, second] = sampleStatus.upstreams;
if (central === undefined || second === undefined) throw new Error('the sample has no upstreams');
const well = { upstreams: [central], types: [], warnings: [], nacks: [] };

const rejection: Plain<ClassProblem> = {
  kind: 'REJECTED',
  type: 'rds',
  name: 'web',
  class: 'c1',
  parameters: { env: 'prod' },
  clients: 11,
  since,
  error: 'no such cluster',
  version: 'v7',
  what: 'web',
  why: '',
  elsewhere: false,
  otherClasses: 0,
  nearest: '',
};
const late = { ...rejection, kind: 'LATE', name: '', error: '', version: '', what: '', clients: 1 };
const missing = { ...rejection, kind: 'MISSING', error: '', version: '', clients: 60, elsewhere: true };

const rollout: Plain<RolloutStatus> = {
  state: 'CANARY',
  since: '2026-01-01T00:05:00Z',
  upstream: 'central',
  types: ['cds'],
  names: ['a'],
  pending: 1,
  masked: 0,
  queued: 0,
  queuedTypes: [],
  queuedHeld: false,
  canaries: { total: 1, accepted: 0, rejected: 1, ended: 0 },
  wave: 0,
  waves: 1,
  checks: [],
  bakeSeconds: [30],
  noCanary: false,
  reason: 'cds a: no',
  revision: 1,
  pendingRevision: 2,
  freezes: [],
};
const freeze = { type: 'cds', upstream: '', operator: '192.0.2.1:5000', reason: 'incident 7', since };

const discarded = {
  names: 1,
  types: ['cds'],
  upstreams: ['central'],
  only: { type: 'cds', name: 'a' },
  reason: 'a bad change',
};

const unnamed = 'resource 2 of 3: a resource has no name';

interface Given {
  readonly status?: Partial<Plain<StatusResponse>>;
  readonly facts?: Partial<PageFacts>;
  readonly recent?: Partial<Recent>;
  readonly classes?: readonly Plain<ClassProblem>[];
}

function problems({ status = {}, facts = {}, recent = {}, classes = [] }: Given = {}) {
  return problemsOf({
    status: { ...sampleStatus, ...well, ...status },
    facts: { ...NO_PAGE.facts(), recent: { ...NO_PAGE.facts().recent, ...recent }, ...facts },
    classes: { classes: [], total: 0, streams: 0, problems: [...classes], missing: {} },
    now,
  }).problems;
}

const told = (given: Given, at?: number): string => sentence(4, problems(given), 0, at);

const certificate = (listener: string, expiresAt: number): CertificateState => ({
  owner: { listener },
  kind: 'certificate',
  file: `${listener}.crt`,
  expiresAt,
});

/** What makes each kind of problem. */
const causes: Readonly<Record<keyof typeof problemKinds, Given>> = {
  not_ready: { status: { ready: false, reason: 'draining' } },
  upstream_away: { status: { upstreams: [{ ...second, heldRemovals: [] }] } },
  change_held: { status: { rollout: { ...rollout, state: 'HELD' } } },
  removals_held: { status: { upstreams: [{ ...central, heldRemovals: second.heldRemovals }] } },
  clients_reject: { classes: [rejection] },
  changes_late: { recent: { acknowledged: 100, late: 12 } },
  workers_restart: { recent: { restarts: 3 } },
  certificate_expires: { facts: { certificates: [certificate('xds', now + 6 * day)] } },
  certificate_refused: {
    facts: {
      certificates: [
        {
          ...certificate('xds', now + 60 * day),
          refused: { error: 'the key is of another one', since: now },
        },
      ],
    },
  },
  configuration_refused: {
    facts: {
      refusedConfiguration: { file: 'relay.yaml', problems: ['relay.yaml:1:1: node: no'], since: now },
    },
  },
  updates_refused: {
    recent: { refusedUpdates: [{ upstream: 'central', type: 'cds', count: 2, reason: unnamed }] },
  },
  upstream_stale: { status: { upstreams: [{ ...central, stale: true, staleSince: since }] } },
  upstream_streams_end: { status: { upstreams: [{ ...central, refusedStreams: 2 }] } },
  disk_fails: {
    facts: {
      disk: { path: '/data/cache', failing: [{ what: 'cache', reason: 'full', since: now }], lagSeconds: 1 },
    },
  },
  disk_late: { facts: { disk: { path: '/data/cache', failing: [], lagSeconds: 301 } } },
  clients_silent: { classes: [late] },
  clients_stall: { recent: { turnedAway: [{ reason: 'stalled', count: 1 }] } },
  clients_refused: { recent: { turnedAway: [{ reason: 'denied', count: 7 }] } },
  clients_turned_away: { recent: { turnedAway: [{ reason: 'streams', count: 7 }] } },
  limit_near: { facts: { usage: [{ name: 'limits.max_streams', used: 80, limit: 100 }] } },
  peer_heavy: {
    status: {
      accounts: [
        {
          key: 'address 10.0.0.1',
          connections: 1,
          streams: 1,
          heldBytes: 0n,
          workPerSecond: 500,
          waits: true,
        },
      ],
    },
    facts: { workPerPeerMs: 500 },
  },
  busy: { recent: { lagMs: 501 } },
  missing: { classes: [missing] },
  ambiguous: {
    status: { types: [{ type: 'cds', resources: 3, variants: 5, subscriptions: 7, ambiguous: 1 }] },
  },
  frozen: { status: { rollout: { ...rollout, state: 'FROZEN', freezes: [freeze] } } },
  discarded: { facts: { discarded } },
  configuration_dangerous: { status: { warnings: ['xds.address: everybody may read'] } },
  change_pending: { status: { rollout } },
};

type ControlPlane = NonNullable<ReturnType<PageFacts['controlPlanes']['get']>>;

const controlPlane = (given: Partial<ControlPlane>) => ({
  controlPlanes: new Map<string, ControlPlane>([
    ['central', { variants: 'NATIVE', maxRemovalHoldMs: 0, tls: undefined, ...given }],
  ]),
});

describe('alerts, problems and runbooks', () => {
  const rule = z.object({
    alert: z.string(),
    expr: z.string(),
    annotations: z.object({ runbook_url: z.string() }),
  });
  const alerts = z
    .object({ groups: z.array(z.object({ rules: z.array(rule) })) })
    .parse(parse(readFileSync(join(root, 'deploy/observability/alerts.yaml'), 'utf8')))
    .groups.flatMap(({ rules }) => rules);
  const runbooks = globSync('docs/runbooks/*.md', { cwd: root })
    .map((path) => basename(path, '.md'))
    .filter((name) => name !== 'README');
  /** A relay that is gone lists nothing. */
  const unseen = new Map([
    ['DistributaryDown', 'relay-down'],
    ['DistributaryGone', 'relay-down'],
  ]);
  /** Its process is gone: only the log says it. */
  const inTheLog = ['standstill'];

  it("a rejection has the content's version, and the control plane's beside it where that is known", () => {
    const detailOf = (more: Partial<Plain<ClassProblem>>) =>
      problems({ classes: [{ ...rejection, ...more }] })[0]?.detail;
    expect(detailOf({})).to.equal('no such cluster (version v7)');
    expect(detailOf({ content: '5e1f' })).to.equal('no such cluster (version 5e1f)');
    expect(detailOf({ content: '5e1f', controlPlaneVersion: '7' })).to.equal(
      'no such cluster (version 5e1f, 7 at the control plane)',
    );
  });

  it('every alert has its problem, with the same runbook', () => {
    const known = new Map<string, string>(unseen);
    for (const { alerts: own, runbook } of Object.values(problemKinds))
      for (const alert of own) known.set(alert, runbook);
    const wanted = new Map(
      alerts.map(({ alert, annotations }) => [alert, basename(annotations.runbook_url, '.md')]),
    );
    expect(Object.fromEntries(known)).to.deep.equal(Object.fromEntries(wanted));
  });

  for (const kind of ['clients_turned_away', 'clients_refused'] as const) {
    it(`a reason to refuse clients is a problem, an alert and a step of the runbook: ${kind}`, () => {
      const { alerts: own, runbook } = problemKinds[kind];
      const expression = alerts.find(({ alert }) => own.some((name) => name === alert))?.expr ?? '';
      const alerted = (/reason=~"([^"]+)"/.exec(expression)?.[1] ?? '').split('|');
      const [, steps = ''] = readFileSync(join(root, `docs/runbooks/${runbook}.md`), 'utf8').split(
        '## What to do',
      );
      const turnsAway = (reason: string) =>
        problems({ recent: { turnedAway: [{ reason, count: 1 }] } }).some((found) => found.kind === kind);
      const reasons = [...rejections.keys()];
      const inSteps = reasons.filter((reason) => steps.includes(`\`${reason}\``));
      expect(alerted).to.have.members(inSteps);
      expect(reasons.filter(turnsAway)).to.have.members(inSteps);
    });
  }

  it('every problem has its runbook, and every runbook its problem', () => {
    const used = new Set([
      ...Object.values(problemKinds).map(({ runbook }) => runbook),
      ...unseen.values(),
      ...inTheLog,
    ]);
    expect([...used].toSorted()).to.deep.equal(runbooks.toSorted());
  });

  for (const [kind, given] of Object.entries(causes)) {
    it(`${kind} is one problem, and nothing else is`, () => {
      const found = problems(given);
      expect(found.map((one) => one.kind)).to.deep.equal([kind]);
      expect(found[0]?.title).to.match(/^[\p{Lu}0-9][^`]*[^.]$|^limits\.|^address /u);
    });
  }
});

describe('the log of problems', () => {
  it('says when one begins and when it ends, once each, in the words of the page', () => {
    const lines: string[] = [];
    const line = (level: string) => (message: string, fields?: object) =>
      void lines.push(`${level} ${message} ${JSON.stringify(fields ?? {})}`);
    const log: Log = {
      debug: line('debug'),
      info: line('info'),
      warn: line('warn'),
      error: line('error'),
      child: () => log,
    };
    const known = problemLog(log, { now: () => now }, now);
    const found = problems({ classes: [rejection], status: { rollout } });
    for (const list of [found, problems({ classes: [{ ...rejection, clients: 12 }] }), [], []])
      known({ problems: list, moreProblems: 0 });
    expect(lines).to.deep.equal([
      'warn problem: 11 clients with env=prod reject rds web {"kind":"clients_reject","severity":"critical","since":"2026-01-01T00:09:00Z","detail":"no such cluster (version v7)","clients":11,"runbook":"clients-reject"}',
      'info resolved: 12 clients with env=prod reject rds web {"kind":"clients_reject","since":"2026-01-01T00:09:00Z"}',
    ]);
  });

  it('has 20 lines a minute for a kind, however many causes clients make', () => {
    const lines: string[] = [];
    const log = createLog({ format: 'text', write: (one) => lines.push(one) });
    const known = problemLog(log, { now: () => now }, now);
    for (const text of ['a', 'b']) {
      const classes = Array.from({ length: 100 }, (_, at) => ({ ...rejection, error: `${text} ${at}` }));
      known({ problems: problems({ classes }), moreProblems: 0 });
    }
    expect(lines).to.have.length(20);
  });

  it('says that an upstream is away, however often another one comes and goes', () => {
    const lines: string[] = [];
    const log = createLog({ format: 'text', write: (one) => lines.push(one) });
    const known = problemLog(log, { now: () => now }, now);
    const away = (...names: readonly string[]) =>
      problems({ status: { upstreams: names.map((name) => ({ ...second, name, heldRemovals: [] })) } });
    for (let round = 0; round < 20; round++)
      for (const list of [away('flaps'), []]) known({ problems: list, moreProblems: 0 });
    known({ problems: away('steady'), moreProblems: 0 });
    expect(lines.filter((one) => one.includes('steady'))).to.have.length(1);
  });

  it('does not call over what a list has no room for', () => {
    const lines: string[] = [];
    const log = createLog({ format: 'text', write: (one) => lines.push(one) });
    const known = problemLog(log, { now: () => now }, now);
    known({ problems: problems({ classes: [rejection] }), moreProblems: 0 });
    known({ problems: [], moreProblems: 1 });
    expect(lines).to.have.length(1);
  });

  it('every problem says since when: by itself, or since it is listed', () => {
    let time = now;
    const known = problemLog(createLog({ format: 'text', write: () => {} }), { now: () => time }, now - day);
    const sinceOf = (given: Given) =>
      known({ problems: problems(given), moreProblems: 0 }).problems.map((one) => one.since);
    const at = (milliseconds: number): string => new Date(milliseconds).toISOString();
    const [draining, busy] = [causes.not_ready, causes.busy];
    expect(sinceOf(draining), 'what is there first').to.deep.equal([at(now - day)]);
    time += 5000;
    expect(sinceOf({ ...draining, ...busy })).to.deep.equal([at(now - day), at(time)]);
    time += 5000;
    expect(sinceOf(busy), 'the same goes on').to.deep.equal([at(time - 5000)]);
    expect(sinceOf({})).to.be.empty;
    expect(sinceOf(busy), 'it is back').to.deep.equal([at(time)]);
    for (const given of Object.values(causes)) expect(sinceOf(given)[0]).to.match(/^20\d\d-.*Z$/);
  });
});

describe('problems', () => {
  it('are none when all is well, and the sentence says so', () => {
    expect(problems()).to.be.empty;
    expect(told({})).to.equal('Serving 4 clients; all is well.');
    expect(sentence(0, [], 0), 'nobody is served').to.equal('No client is connected; all is well.');
  });

  it('one cause is one problem with its classes inside, those with the most clients first', () => {
    const classes = Array.from({ length: 20 }, (_, index) => ({
      ...rejection,
      class: `c${index}`,
      parameters: { env: `e${index}` },
      clients: index + 1,
    }));
    const found = problems({ classes: [...classes, { ...missing, class: 'c3' }] });
    expect(found.map(({ title }) => title)).to.deep.equal([
      '210 clients of 20 classes reject rds web',
      '60 clients with env=prod get no rds web',
    ]);
    expect(found[0]?.clients).to.equal(210);
    expect(found[0]?.classes).to.have.length(20);
    expect(found[0]?.classes[0]).to.deep.equal({ class: 'c19', parameters: { env: 'e19' }, clients: 20 });
  });

  it('another resource or another error is another cause; the one of more clients comes first', () => {
    const found = problems({
      classes: [
        { ...rejection, clients: 3 },
        { ...rejection, what: 'shop', name: 'shop', clients: 2 },
        { ...rejection, error: 'out of memory', clients: 7 },
      ],
    });
    expect(found.map(({ clients }) => clients)).to.deep.equal([7, 3, 2]);
  });

  it('who was sent several resources at once says the error of one of them: the same cause', () => {
    const several = { ...rejection, name: '', what: 'one of web, shop', class: 'c2', clients: 5 };
    const found = problems({ classes: [several, rejection] });
    expect(found.map(({ title, clients, name }) => [title, clients, name])).to.deep.equal([
      ['16 clients of 2 classes reject rds web', 16, 'web'],
    ]);
    const shop = { ...rejection, name: 'shop', what: 'shop', clients: 2 };
    const unclear = problems({ classes: [several, rejection, shop] });
    expect(unclear.map(({ title }) => title)).to.deep.equal([
      '11 clients with env=prod reject rds web',
      '5 clients with env=prod reject rds one of web, shop',
      '2 clients with env=prod reject rds shop',
    ]);
  });

  it('what concerns the whole relay comes first, and the sentence counts causes and clients', () => {
    const given: Given = {
      status: { upstreams: [second] },
      classes: [rejection, { ...rejection, class: 'c2', clients: 2 }, late, missing],
    };
    expect(problems(given).map(({ kind }) => kind)).to.deep.equal([
      'upstream_away',
      'removals_held',
      'clients_reject',
      'missing',
      'clients_silent',
    ]);
    expect(told(given)).to.equal(
      'Serving 4 clients; upstream second is unreachable; 7 removals of cds from second are held back; 13 clients of 2 classes reject rds web; 2 more problems.',
    );
    expect(told({ classes: [rejection] }, now)).to.equal(
      'Serving 4 clients; 11 clients with env=prod reject rds web (for 1 min).',
    );
  });

  it('names that the same clients do not get are one problem', () => {
    const names = ['a', 'b', 'c', 'd'].map((name) => ({ ...missing, name, what: name, clients: 15 }));
    const found = problems({ classes: names });
    expect(found.map(({ title }) => title)).to.deep.equal([
      '15 clients with env=prod get no rds a, b, c and 1 more',
    ]);
    expect(found[0]?.commands).to.deep.equal(['distributary explain --type rds --name a --param env=prod']);
  });

  it('who gets nothing of a wildcard is answered by the list of what there is: a wildcard has no variants to explain', () => {
    const [nothing] = problems({ classes: [{ ...missing, type: 'lds', name: '*', what: '*' }] });
    expect(nothing?.commands).to.deep.equal(['distributary resources --type lds']);
    const name = 'xdstp://a/envoy.config.listener.v3.Listener/*';
    const [glob] = problems({ classes: [{ ...missing, type: 'lds', name, what: name }] });
    expect(glob?.commands).to.deep.equal([`distributary resources --type lds --name '${name}'`]);
  });

  it('a name that others have is a warning, one that nobody has is for information', () => {
    const nowhere = { ...missing, name: 'shop', what: 'shop', elsewhere: false };
    const found = problems({ classes: [nowhere, missing] });
    expect(found.map(({ severity, name }) => [severity, name])).to.deep.equal([
      ['warning', 'web'],
      ['info', 'shop'],
    ]);
    expect(worstOf(problems({ classes: [nowhere] }))).to.equal('info');
  });

  it('a rollback freezes its types for one reason: one problem, with one command', () => {
    const freezes = ['lds', 'rds', 'cds'].map((type) => ({
      ...freeze,
      type,
      reason: 'rollback to revision 7',
    }));
    const found = problems({ status: { rollout: { ...rollout, state: 'FROZEN', freezes } } });
    expect(found.map(({ title, commands }) => [title, commands])).to.deep.equal([
      ['Frozen: lds, rds, cds', ['distributary unfreeze --reason "…"']],
    ]);
    const two = problems({
      status: { rollout: { ...rollout, state: 'FROZEN', freezes: [...freezes, freeze] } },
    });
    expect(two.map(({ commands }) => commands)).to.deep.equal([
      ['lds', 'rds', 'cds'].map((type) => `distributary unfreeze --type ${type} --reason "…"`),
      ['distributary unfreeze --type cds --reason "…"'],
    ]);
  });

  it('what was discarded is a warning for as long as upstream says it, with why and what ends it', () => {
    const [found] = problems({ facts: { discarded } });
    expect(found).to.deep.include({
      severity: 'warning',
      detail: '1 name (cds) of central; reason: a bad change; over when the upstream sends something else',
      since: '',
      commands: ['distributary diff --pending'],
      upstream: 'central',
      type: 'cds',
      name: 'a',
    });
    expect(told({ facts: { discarded } })).to.equal(
      'Serving 4 clients; a discarded change is still what the upstream sends.',
    );
  });

  it('a change that canaries have is for information, and ends with max_wait; a held one waits for an operator', () => {
    const [pending] = problems({
      status: { rollout },
      facts: { rollout: { mode: 'AUTOMATIC', maxWaitMs: 600_000 } },
    });
    expect(pending).to.include({ severity: 'info', until: '2026-01-01T00:15:00.000Z' });
    expect(readyText(true, [pending ?? { severity: '', short: '', since: '' }], 0)).to.equal('ready');
    expect(pending?.title).to.equal('A change waits for its canaries, checks or traffic');
    const [held] = problems(causes.change_held);
    expect(held).to.include({ severity: 'critical', until: '', runbook: 'change-held' });
    expect(held?.detail).to.include('cds a: no').and.to.include('1 rejected');
  });

  it('a change that waits for an operator has no end, and the command that lets it go on', () => {
    for (const [waves, verb] of [
      [1, 'release'],
      [3, 'promote'],
    ] as const) {
      const [pending] = problems({
        status: { rollout: { ...rollout, waves } },
        facts: { rollout: { mode: 'MANUAL', maxWaitMs: 600_000 } },
      });
      expect(pending).to.deep.include({
        until: '',
        title: 'A change waits for an operator',
        commands: ['distributary diff --pending', `distributary ${verb} --reason "…"`],
      });
    }
  });

  it('within the sentence a title begins with a small letter', () => {
    expect(told(causes.not_ready)).to.match(/; the relay is not ready/);
  });

  it('for a change that a canary has rejected the first command takes it back, the last gives it to everybody', () => {
    const [held] = problems(causes.change_held);
    expect(held?.commands).to.deep.equal([
      'distributary discard --reason "…"',
      'distributary release --reason "…"',
    ]);
  });

  it('a change that waits because no canary is connected comes before everything else, with the command', () => {
    const command = 'distributary release --reason "…"';
    const waits = { ...rollout, state: 'HELD', noCanary: true };
    const given = { status: { ready: false, reason: 'starting', rollout: waits } };
    const [first] = problems(given);
    expect(first).to.include({ title: 'A change is held: no canary is connected' });
    expect(first?.commands[0]).to.equal(command);
    expect(told(given)).to.include(`; a change is held: no canary is connected (run ${command}); `);
  });

  it('held removals have a countdown and the command that ends it', () => {
    const facts = controlPlane({ maxRemovalHoldMs: 3_600_000 });
    const [held] = problems({ ...causes.removals_held, facts });
    expect(held?.until).to.equal('2026-01-01T01:00:00.000Z');
    expect(held?.commands).to.deep.equal(['distributary release --upstream central --type cds --reason "…"']);
  });

  it('certificates and limits are warnings first', () => {
    const found = problems({
      facts: {
        usage: [
          { name: 'limits.max_streams', used: 79, limit: 100 },
          { name: 'cache.max_bytes', used: 100, limit: 100 },
          { name: 'limits.max_connections', used: 0, limit: 0 },
        ],
        certificates: [
          certificate('xds', now + 8 * day),
          certificate('rest', now + 6 * day),
          certificate('admin', now - day),
        ],
      },
    });
    expect(found.map(({ severity, title }) => `${severity}: ${title}`)).to.deep.equal([
      'critical: The certificate of listener admin has expired',
      'critical: cache.max_bytes is at 100%',
      'warning: The certificate of listener rest expires within 7 d',
    ]);
    expect(found[0]?.since).to.equal('2025-12-31T00:10:00.000Z');
  });

  it('a certificate that expires soon is a problem since 7 days before, or since a quarter of its lifetime before', () => {
    const sinceOf = (own: CertificateState) => problems({ facts: { certificates: [own] } })[0]?.since;
    const soon = certificate('xds', now + 2 * day);
    expect(sinceOf(soon)).to.equal('2025-12-27T00:10:00.000Z');
    expect(sinceOf({ ...soon, validFrom: now - 300 * day })).to.equal('2025-12-27T00:10:00.000Z');
    expect(sinceOf({ ...soon, validFrom: now - 10 * day })).to.equal('2025-12-31T00:10:00.000Z');
  });

  it('a certificate that lives for hours is a problem by its share of the lifetime, not while it is fresh', () => {
    const hour = day / 24;
    const left = (hours: number, lifetime: number) => {
      const expiresAt = now + hours * hour;
      const own = { ...certificate('xds', expiresAt), validFrom: expiresAt - lifetime * hour };
      return problems({ facts: { certificates: [own] } }).map(({ severity, title }) => [severity, title]);
    };
    // As the chart's default: 24 h, renewed 8 h before the end.
    expect([left(24, 24), left(8, 24), left(1, 1), left(0.5, 1)]).to.deep.equal([[], [], [], []]);
    const of = 'The certificate of listener xds';
    expect(left(5, 24)).to.deep.equal([['warning', `${of} expires within 6 h`]]);
    expect(left(2, 24)).to.deep.equal([['critical', `${of} expires within 2 h 24 min`]]);
    expect(left(-1, 24)).to.deep.equal([['critical', `${of} has expired`]]);
  });

  it('an update that is refused says which resource it was, and why', () => {
    const [refused] = problems(causes.updates_refused);
    expect(refused?.detail).to.equal(`2 responses in the last 10 minutes; the last reason: ${unnamed}`);
  });

  it('a file that several present is one problem, whoever presents it', () => {
    const refused = { error: 'no', since: now - day };
    const shared = { kind: 'certificate', file: 'svid.pem', expiresAt: now - day } as const;
    const [expired, ...rest] = problems({
      facts: {
        certificates: [
          { ...shared, owner: { listener: 'xds' } },
          // Of another worker.
          { ...shared, owner: { listener: 'xds' }, refused },
          { ...shared, owner: { upstream: 'central' }, refused: { ...refused, since: now } },
          { ...shared, owner: { upstream: 'central', siblings: 'true' } },
          // No certificate, only authorities.
          { kind: 'ca', owner: { upstream: 'other' }, file: 'ca.pem' },
        ],
      },
    });
    expect(expired).to.include({
      title:
        'The certificate of listener xds and client certificate for upstream central and the siblings of central has expired',
      detail: 'svid.pem: valid until 2025-12-31T00:10:00.000Z',
      upstream: 'central',
    });
    expect(expired?.commands).to.deep.equal([
      `openssl x509 -noout -subject -enddate -in ${resolve('svid.pem')}`,
    ]);
    expect(rest.map(({ title, since: from }) => [title, from])).to.deep.equal([
      [
        'The new certificate of listener xds and client certificate for upstream central is refused',
        '2025-12-31T00:10:00.000Z',
      ],
    ]);
  });

  it('what the relay shows to an upstream is called its client certificate: refused, expiring and expired', () => {
    const titles = (state: Partial<CertificateState>): readonly string[] => {
      const owner = { upstream: 'central' };
      const kind = 'certificate';
      const own = { owner, kind, file: 'relay.crt', expiresAt: now + 60 * day, ...state } as const;
      return problems({ facts: { certificates: [own] } }).map(({ title }) => title);
    };
    expect([
      titles({ refused: { error: 'no', since: now } }),
      titles({ expiresAt: now + day }),
      titles({ expiresAt: now - day }),
    ]).to.deep.equal([
      ['The new client certificate for upstream central is refused'],
      ['The client certificate for upstream central expires within 7 d'],
      ['The client certificate for upstream central has expired'],
    ]);
  });

  it('of an upstream without a client certificate it is the CA file that is refused', () => {
    const refused = { error: 'ca has no PEM certificate', since: now };
    const certificates = [{ owner: { upstream: 'central' }, kind: 'ca', file: 'ca.pem', refused }] as const;
    expect(problems({ facts: { certificates } }).map(({ title, detail }) => [title, detail])).to.deep.equal([
      [
        'The new CA file for upstream central is refused',
        'ca has no PEM certificate; the previous file stays in use',
      ],
    ]);
  });

  it('of a control plane that is away: a command that reaches it as the relay does, with paths for every directory', () => {
    const away = (endpoint: string, tls?: Partial<ControlPlane['tls']>, kind = 'ads'): string | undefined => {
      const none = { ca: undefined, identity: undefined, serverName: undefined, serverIdentities: [] };
      const facts = controlPlane({ tls: tls && { ...none, ...tls } });
      const upstreams = [{ ...central, kind, endpoint, connected: false }];
      return problems({ status: { upstreams }, facts })[0]?.commands[0];
    };
    expect([
      away('cp-1:18000'),
      away('resources', undefined, 'filesystem'),
      away('unix:run/cp.sock', {}),
      away('cp-1:18000', {}),
      away('[::1]:18000', { ca: 'tls/ca.crt' }),
      away('10.0.0.1:18000', {
        serverName: 'cp.test',
        identity: { certificate: '/tls/relay.crt', privateKey: 'relay key' },
      }),
    ]).to.deep.equal([
      'distributary reach --endpoint cp-1:18000',
      `ls -l ${resolve('resources')}`,
      `ls -l ${resolve('run/cp.sock')}`,
      'distributary reach --endpoint cp-1:18000 --tls',
      `distributary reach --endpoint '[::1]:18000' --tls --ca ${resolve('tls/ca.crt')}`,
      `distributary reach --endpoint 10.0.0.1:18000 --tls --server-name cp.test --cert /tls/relay.crt --key '${resolve('relay key')}'`,
    ]);
  });

  it('says which file cannot be written, or could not be read', () => {
    const titles = (...all: readonly ('cache' | 'rollout' | 'unread')[]) => {
      const failing = all.map((what) => ({ what, reason: 'io', since: now }));
      return problems({ facts: { disk: { path: 'cache', failing, lagSeconds: 0 } } }).map(
        ({ title }) => title,
      );
    };
    expect(titles('cache')).to.deep.equal(['The cache cannot be written to disk']);
    expect(titles('rollout')).to.deep.equal(['The file rollout.json cannot be written to disk']);
    expect(titles('unread')).to.deep.equal(['The file rollout.json could not be read']);
    expect(titles('cache', 'rollout'), 'a restart forgets both').to.have.length(2);
  });

  it('a command names the file by its whole path', () => {
    expect(problems(causes.configuration_refused)[0]?.commands).to.deep.equal([
      `distributary validate --config ${resolve('relay.yaml')}`,
    ]);
    const disk = { path: 'cache', failing: [], lagSeconds: 301 };
    expect(problems({ facts: { disk } })[0]?.commands).to.deep.equal([
      `df -h ${resolve('cache')}`,
      `ls -ld ${resolve('cache')}`,
    ]);
  });

  it('files that are refused are not reported as a control plane that is out of date', () => {
    const files = {
      ...central,
      kind: 'filesystem',
      stale: true,
      staleSince: since,
      lastError: 'a.yaml:3: no',
    };
    const refusedUpdates = [{ upstream: 'central', type: 'cds', count: 2, reason: unnamed }];
    const found = problems({ status: { upstreams: [files] }, recent: { refusedUpdates } });
    const command = `distributary validate --config ${resolve('relay.yaml')}`;
    expect(found.map(({ kind, detail, commands }) => [kind, detail, commands])).to.deep.equal([
      ['updates_refused', 'a.yaml:3: no', [command]],
    ]);
  });

  it('commands can be pasted into a shell, whatever peers call themselves', () => {
    const hostile = (name: string) =>
      problems({ classes: [{ ...rejection, name, what: name }] })[0]?.commands[0];
    expect(hostile('web')).to.equal('distributary history --type rds --name web');
    expect(hostile("a'; reboot #")).to.equal("distributary history --type rds --name 'a'\\''; reboot #'");
    expect(hostile('$(reboot)')).to.equal("distributary history --type rds --name '$(reboot)'");
    expect(hostile('a\nreboot')).to.equal('distributary clients --type rds --state ERROR');
  });

  it('of one kind or one class, however many, leave others their places', () => {
    const own = Array.from({ length: 300 }, (_, at) => ({ ...rejection, error: `no ${at}` }));
    const other = { ...rejection, class: 'c2', parameters: { env: 'test' }, clients: 1, error: 'of another' };
    const found = problems({ ...causes.frozen, classes: [...own, other, late] });
    expect(found).to.have.length(100);
    expect(new Set(found.map(({ kind }) => kind))).to.deep.equal(
      new Set(['clients_reject', 'clients_silent', 'frozen']),
    );
    expect(found.filter(({ detail }) => detail.startsWith('of another'))).to.have.length(1);
    expect(
      found.map(({ severity }) => severity === 'critical').lastIndexOf(true),
      'the worst first',
    ).to.equal(97);
  });

  it('are bounded, and have no character of a peer that turns or hides text', () => {
    const long = 'x'.repeat(10_000);
    const classes = Array.from({ length: 300 }, (_, index) => ({
      ...rejection,
      name: `${long}${index}`,
      what: `\u202E${index}${long}`,
      error: `${long}\u001B[31m${index}`,
    }));
    const made = problemsOf({
      status: { ...sampleStatus, ...well },
      facts: NO_PAGE.facts(),
      classes: { classes: [], total: 0, streams: 0, problems: classes, missing: {} },
      now,
    });
    expect([made.problems.length, made.moreProblems]).to.deep.equal([100, 200]);
    for (const { title, short, detail } of made.problems)
      expect(`${title}${short}${detail}`.length).to.be.below(1500);
    expect(made.problems.map(({ title, detail }) => title + detail).join())
      .not.to.include('\u202E')
      .and.not.include('\u001B');
    expect(worstOf(made.problems)).to.equal('critical');
  });
});
