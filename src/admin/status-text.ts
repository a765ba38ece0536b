import type { StatusResponse, UpstreamStatus } from '../gen/distributary/admin/v1/admin_pb.ts';
import type { RolloutStatus, WaveStatus } from '../gen/distributary/admin/v1/rollout_pb.ts';
import { counted, errorLine, printable, shorten } from '../model/text.ts';
import { ago, canariesText, formatBytes, formatSeconds } from '../observe/format.ts';
import { lasting, readyText, sentence } from '../observe/problems.ts';
import { type Painted, painted, textTable, type View, wrapped } from '../observe/text-table.ts';
import type { Plain } from './service.ts';

/* What `status` prints, and the page shows where there are no scripts. */

/** `now` is milliseconds since the epoch. */
export function statusText(response: Plain<StatusResponse>, now: number, view: View): string {
  const { paint } = view;
  const { ready, reason, clients, pollingClients, problems, moreProblems, types } = response;
  const polling = pollingClients === 0 ? '' : `, ${pollingClients} polling`;
  const state = ready
    ? paint('green', readyText(true, problems, moreProblems))
    : paint('red', `not ready: ${printable(reason)}`);
  const sections = [
    [
      `distributary ${response.version}, up for ${formatSeconds(response.uptimeSeconds)}: ${state}`,
      wrapped(printable(sentence(clients + pollingClients, problems, moreProblems, now)), view.columns, 2),
      `clients: ${counted(clients, 'stream')}${polling}; cache: ${formatBytes(Number(response.cacheBytes))}`,
      `node: ${printable(response.nodeId)} on ${printable(response.host)}`,
    ].join('\n'),
    problemsText(response, now, view),
    rolloutText(response, now),
    upstreamsText(response, now, view),
    workersText(response, view),
    types.length === 0
      ? 'nothing is cached or subscribed to yet'
      : textTable(types, ['type', 'resources', 'variants', 'subscriptions', 'ambiguous'], view),
    accountsText(response, view),
  ];
  return sections.filter((section) => section !== '').join('\n\n');
}

/** What is wrong, the worst first, with what to type. */
function problemsText(
  { problems, moreProblems }: Plain<StatusResponse>,
  now: number,
  { paint, columns }: View,
): string {
  const lines = problems.flatMap(({ severity, title, since: from, detail, commands, runbook }) => {
    const lasts = lasting(from, now);
    const colour = severity === 'critical' ? 'red' : 'yellow';
    const name = severity === 'info' ? severity : paint(colour, severity);
    return [
      wrapped(`${name}: ${printable(title)}${lasts === '' ? '' : ` (${lasts})`}`, columns, 2),
      ...(detail === '' ? [] : [wrapped(`\u00A0\u00A0${errorLine(detail)}`, columns, 2)]),
      ...commands.map((command) => `  $ ${printable(command)}`),
      `  see docs/runbooks/${runbook}.md`,
    ];
  });
  const more = moreProblems === 0 ? [] : [`and ${counted(moreProblems, 'more problem')}`];
  return [...lines, ...more].join('\n');
}

/** Where a change stands; nothing while there is none. */
function rolloutText({ rollout, waveClients }: Plain<StatusResponse>, now: number): string {
  if (rollout === undefined) return '';
  const { state, reason, pending, queued, queuedTypes, queuedHeld, wave, waves } = rollout;
  if (state === 'IDLE' && pending === 0) return '';
  const why = reason === '' || state === 'IDLE' ? '' : `: ${errorLine(reason)}`;
  const where =
    wave === 0 || waves < 2 || queuedHeld ? '' : `, wave ${wave} of ${waves}${endText(rollout, now)}`;
  return [
    `rollout: ${state} for ${since(rollout.since, now)}${where}${why}`,
    ...pendingLines(rollout),
    ...(queued === 0
      ? []
      : [
          `queued: ${counted(queued, 'name')} (${queuedTypes.join(', ')}) until the change before it has ended`,
        ]),
    ...(waves < 2 ? [] : waveClients.map((clients, index) => waveLine(clients, index + 1, rollout))),
  ].join('\n');
}

/** How many are in a wave, what they say, and how long it takes from then on. */
function waveLine(
  { clients, accepted, rejected }: Plain<WaveStatus>,
  wave: number,
  { wave: now, bakeSeconds, waveEnds }: Plain<RolloutStatus>,
): string {
  const said = wave > now ? '' : `; ${accepted} accepted, ${rejected} rejected`;
  const bake = bakeSeconds[wave - 1];
  if (bake === undefined) return `everybody else: ${counted(clients, 'client')}`;
  const isBaking = wave === now && waveEnds !== undefined;
  const bakes = wave < now || isBaking ? '' : `, bakes ${formatSeconds(bake)}`;
  return `wave ${wave}: ${counted(clients, 'client')}${said}${wave < now ? ', done' : bakes}`;
}

function endText({ waveEnds }: Plain<RolloutStatus>, now: number): string {
  return waveEnds === undefined
    ? ''
    : `, ends in ${formatSeconds(Math.max(0, Date.parse(waveEnds) - now) / 1000)}`;
}

/** What is pending while the state is IDLE was discarded. */
function pendingLines(rollout: Plain<RolloutStatus>): readonly string[] {
  const { state, canaries, types, upstream, names, pending, masked, reason, checks, traffic } = rollout;
  if (pending === 0) return [];
  const shown =
    names
      .slice(0, 5)
      .map((name) => printable(shorten(name, 200)))
      .join(', ') + (names.length > 5 ? ', …' : '');
  const what = `${counted(pending, 'name')} (${types.join(', ')}) of ${printable(upstream)}: ${shown}`;
  if (state === 'IDLE') return [`discarded: ${what}${reason === '' ? '' : ` (${errorLine(reason)})`}`];
  const hidden = masked > 0 && masked < pending ? `; ${masked} of them with nobody` : '';
  const checked = checks.map((one) => printable(`check ${one.name}: ${one.state}: ${one.reason}`));
  const traffics = traffic === undefined ? [] : [printable(`traffic: ${traffic.state}: ${traffic.reason}`)];
  return [`pending: ${what}${hidden}`, `canaries: ${canariesText(state, canaries)}`, ...checked, ...traffics];
}

function upstreamsText({ upstreams }: Plain<StatusResponse>, now: number, view: View): string {
  return textTable(
    upstreams,
    [
      ['UPSTREAM', 'name'],
      ['STATE', upstreamCell],
      ['DATA', (upstream) => dataCell(upstream, now)],
      ['ENDPOINT', ({ kind, endpoint }) => `${kind} ${endpoint}`],
      'sessions',
      [
        'HELD REMOVALS',
        ({ heldRemovals }) => heldRemovals.map(({ type, count }) => `${count} ${type}`).join(', '),
        'wide',
        'rare',
      ],
      [
        'ISOLATED TYPES',
        ({ suspectTypes }) => suspectTypes.map(({ type }) => type).join(', '),
        'wide',
        'rare',
      ],
      ['LAST ERROR', ({ lastError, staleReason }) => lastError || staleReason],
    ],
    view,
  );
}

function dataCell(
  { stale, staleSince, fromSiblingsSince }: Plain<UpstreamStatus>,
  now: number,
): Painted | string {
  if (!stale) return 'current';
  const from = fromSiblingsSince === '' ? '' : ', from siblings';
  return painted('yellow', `out of date for ${since(staleSince, now)}${from}`);
}

function upstreamCell({ connected, refusedStreams }: Plain<UpstreamStatus>): Painted {
  if (!connected) return painted('red', 'not connected');
  if (refusedStreams === 0) return painted('green', 'connected');
  return painted('yellow', `connected, ${counted(refusedStreams, 'refused stream')}`);
}

/** Only of a relay that has some. */
function workersText({ workers }: Plain<StatusResponse>, view: View): string {
  if (workers.length === 0) return '';
  return textTable(
    workers,
    [
      ['WORKER', 'number'],
      ['STATE', ({ listening, pid }) => (listening ? 'listening' : pid === 0 ? 'exited' : 'starting')],
      ['PROCESS', ({ pid }) => (pid === 0 ? '' : pid)],
      'clients',
      'restarts',
      'lastError',
    ],
    view,
  );
}

/** Who has most done for it; nothing where nobody stands out. */
function accountsText({ accounts }: Plain<StatusResponse>, view: View): string {
  const heavy = accounts.filter(
    ({ waits, heldBytes, workPerSecond }) => waits || heldBytes >= muchHeld || workPerSecond >= muchWork,
  );
  if (heavy.length === 0) return '';
  return textTable(
    heavy,
    [
      ['HEAVY PEER', 'key'],
      'connections',
      'streams',
      ['HELD', ({ heldBytes }) => formatBytes(Number(heldBytes))],
      ['WORK', ({ workPerSecond }) => `${Math.round(workPerSecond)} ms/s`],
      ['STATE', ({ waits }) => (waits ? painted('yellow', 'throttled') : '')],
    ],
    view,
  );
}

/** Less is not worth a line. */
const muchHeld = 16 << 20;
const muchWork = 50;

const since = (time: string, now: number): string => ago(time, now) ?? 'an unknown time';
