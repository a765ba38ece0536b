import {
  type StatusResponse,
  StatusResponseSchema,
  type UpstreamStatus,
} from '../gen/distributary/admin/v1/admin_pb.ts';
import type { RolloutStatus } from '../gen/distributary/admin/v1/rollout_pb.ts';
import { errorLine } from '../model/error-text.ts';
import { printable } from '../model/printable.ts';
import { counted } from '../model/text.ts';
import { formatBytes, formatSeconds } from '../observe/format.ts';
import { rejectedText } from '../observe/rejection-text.ts';
import { noCanary, releaseCommand } from '../observe/rollout-text.ts';
import { answer, relayCommand } from './relay-command.ts';
import { type Paint, type Painted, painted, textTable } from './terminal.ts';

export const status = relayCommand({
  name: 'status',
  does: 'upstreams, clients, types and rejections of a running relay',
  about: 'Shows a running relay: upstreams and their staleness, types, clients, and what clients rejected.',
  flags: {},
  watch: true,
  exit: '0, or 1 if the relay does not answer.',
  ask:
    () =>
    async ({ rpc }) => {
      const response = await rpc.status({});
      return answer(StatusResponseSchema, response, ({ paint }) => statusText(response, Date.now(), paint));
    },
});

/** `now` is milliseconds since the epoch. */
function statusText(response: StatusResponse, now: number, paint: Paint): string {
  const { ready, reason } = response;
  const state = ready ? paint('green', 'ready') : paint('red', `not ready: ${printable(reason)}`);
  const sections = [
    [
      `distributary ${response.version}, up for ${formatSeconds(response.uptimeSeconds)}: ${state}${withoutCanaryText(response.rollout, paint)}`,
      `clients: ${clientsText(response)}; cache: ${formatBytes(Number(response.cacheBytes))}`,
      `node: ${printable(response.nodeId)} on ${printable(response.host)}`,
    ].join('\n'),
    response.warnings.map((warning) => paint('yellow', `warning: ${printable(warning)}`)).join('\n'),
    rolloutText(response, now),
    upstreamsText(response, now, paint),
    workersText(response),
    heldText(response, now),
    suspectsText(response, now),
    typesText(response),
    accountsText(response),
    nacksText(response, now),
  ];
  return sections.filter((section) => section !== '').join('\n\n');
}

/** The others may wait for a fix: nothing else on this page is as urgent. */
function withoutCanaryText(rollout: RolloutStatus | undefined, paint: Paint): string {
  if (rollout?.noCanary !== true) return '';
  return paint('red', `; rollout ${rollout.state}: ${noCanary}; ${releaseCommand}`);
}

function clientsText({ clients, pollingClients }: StatusResponse): string {
  const streams = counted(clients, 'stream');
  return pollingClients === 0 ? streams : `${streams}, ${pollingClients} that poll`;
}

/** Where a change stands; nothing while there is none. */
function rolloutText({ rollout }: StatusResponse, now: number): string {
  if (rollout === undefined) return '';
  const { state, reason, pending, freezes } = rollout;
  if (state === 'IDLE' && freezes.length === 0 && pending === 0) return '';
  const why = reason === '' ? '' : `: ${errorLine(reason)}`;
  const frozen = freezes.map((freeze) => {
    const what = [freeze.type || 'everything', ...(freeze.upstream === '' ? [] : [`of ${freeze.upstream}`])];
    return `frozen: ${what.join(' ')} for ${since(freeze.since, now)}: ${printable(freeze.reason)}`;
  });
  return [
    `rollout: ${state} for ${since(rollout.since, now)}${why}`,
    ...pendingLines(rollout),
    ...frozen,
  ].join('\n');
}

/** What is pending while the state is IDLE was discarded. */
function pendingLines({
  state,
  canaries,
  types,
  upstream,
  names,
  pending,
  masked,
}: RolloutStatus): readonly string[] {
  if (pending === 0) return [];
  const shown = names.slice(0, 5).map(printable).join(', ') + (names.length > 5 ? ', …' : '');
  const what = `${counted(pending, 'name')} (${types.join(', ')}) of ${printable(upstream)}: ${shown}`;
  if (state === 'IDLE') return [`discarded: ${what}`];
  const hidden = masked > 0 && masked < pending ? `; nobody has ${masked} of them` : '';
  const { total = 0, accepted = 0, rejected = 0, ended = 0 } = canaries ?? {};
  const said = `${accepted} accepted, ${rejected} rejected, ${ended} ended`;
  return [`pending: ${what}${hidden}`, `canaries: ${counted(total, 'stream')}; ${said}`];
}

function upstreamsText({ upstreams }: StatusResponse, now: number, paint: Paint): string {
  const rows = upstreams.map((upstream) => [
    upstream.name,
    stateCell(upstream),
    dataCell(upstream, now),
    `${upstream.kind} ${upstream.endpoint}`,
    upstream.sessions,
    upstream.lastError || upstream.staleReason,
  ]);
  return textTable(['UPSTREAM', 'STATE', 'DATA', 'ENDPOINT', 'SESSIONS', 'LAST ERROR'], rows, paint);
}

function dataCell({ stale, staleSince, fromSiblingsSince }: UpstreamStatus, now: number): Painted | string {
  if (!stale) return 'current';
  const from = fromSiblingsSince === '' ? '' : ', from siblings';
  return painted('yellow', `out of date for ${since(staleSince, now)}${from}`);
}

function stateCell({ connected, refusedStreams }: UpstreamStatus): Painted {
  if (!connected) return painted('red', 'not connected');
  if (refusedStreams === 0) return painted('green', 'connected');
  return painted('yellow', `connected, ${refusedStreams} refused streams`);
}

/** Types that may have made a control plane end its streams. */
function suspectsText({ upstreams }: StatusResponse, now: number): string {
  const rows = upstreams.flatMap(({ name, suspectTypes }) =>
    suspectTypes.map(({ type, reason, since: from }) => [name, type, since(from, now), reason]),
  );
  return rows.length === 0 ? '' : textTable(['UPSTREAM', 'ISOLATED TYPE', 'FOR', 'STREAM ENDED'], rows);
}

/** What the shrink guard holds back: an operator must decide. */
function heldText({ upstreams }: StatusResponse, now: number): string {
  const rows = upstreams.flatMap(({ name, heldRemovals }) =>
    heldRemovals.map(({ type, count, since: from }) => [name, type, count, since(from, now)]),
  );
  return rows.length === 0 ? '' : textTable(['UPSTREAM', 'TYPE', 'REMOVALS HELD', 'FOR'], rows);
}

/** Only of a relay that has some. */
function workersText({ workers }: StatusResponse): string {
  if (workers.length === 0) return '';
  const rows = workers.map(({ number, pid, listening, clients, restarts, lastError }) => [
    number,
    listening ? 'listening' : pid === 0 ? 'ended' : 'starting',
    pid === 0 ? '' : pid,
    clients,
    restarts,
    lastError,
  ]);
  return textTable(['WORKER', 'STATE', 'PROCESS', 'CLIENTS', 'RESTARTS', 'LAST ERROR'], rows);
}

function typesText({ types }: StatusResponse): string {
  if (types.length === 0) return 'nothing is cached or asked for yet';
  const rows = types.map(({ type, resources, variants, subscriptions, ambiguous }) => [
    type,
    resources,
    variants,
    subscriptions,
    ambiguous,
  ]);
  return textTable(['TYPE', 'RESOURCES', 'VARIANTS', 'SUBSCRIPTIONS', 'AMBIGUOUS'], rows);
}

/** Who has most done for it; nothing where nobody stands out. */
function accountsText({ accounts }: StatusResponse): string {
  const heavy = accounts.filter(
    ({ waits, heldBytes, workPerSecond }) => waits || heldBytes >= muchHeld || workPerSecond >= muchWork,
  );
  const rows = heavy.map(({ key, connections, streams, heldBytes, workPerSecond, waits }) => [
    key,
    connections,
    streams,
    formatBytes(Number(heldBytes)),
    `${Math.round(workPerSecond)} ms/s`,
    waits ? painted('yellow', 'waits for its turn') : '',
  ]);
  return rows.length === 0
    ? ''
    : textTable(['HEAVY PEER', 'CONNECTIONS', 'STREAMS', 'HELD', 'WORK', 'STATE'], rows);
}

/** Less is not worth a line. */
const muchHeld = 16 << 20;
const muchWork = 50;

function nacksText({ nacks, rejectingClients }: StatusResponse, now: number): string {
  if (nacks.length === 0) return 'no client rejects what it was sent';
  const rows = nacks.map((nack) => [
    nack.type,
    rejectedText(nack),
    nack.version,
    nack.clients,
    since(nack.since, now),
    nack.error,
  ]);
  const table = textTable(['REJECTED', 'NAME', 'VERSION', 'CLIENTS', 'FOR', 'ERROR'], rows);
  return `${rejectingClients === 1 ? '1 client rejects' : `${rejectingClients} clients reject`} something\n\n${table}`;
}

function since(time: string, now: number): string {
  const then = Date.parse(time);
  return Number.isNaN(then) ? 'an unknown time' : formatSeconds((now - then) / 1000);
}
