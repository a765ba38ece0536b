import {
  type StatusResponse,
  StatusResponseSchema,
  type UpstreamStatus,
} from '../gen/distributary/admin/v1/admin_pb.ts';
import { formatBytes, formatSeconds } from '../observe/format.ts';
import { adminClient, adminOptions, adminUsage, explainFailure } from './admin-client.ts';
import { jsonText } from './json-text.ts';
import { printable } from './printable.ts';
import { textTable } from './text-table.ts';
import { parse, processTerminal, refuse, type Terminal, UsageError } from './usage.ts';

const usage = `Usage: distributary status [--admin URL] [--cert F --key F] [--ca F] [--json]

Shows a running relay: upstreams and their staleness, types, clients, and what clients rejected.

${adminUsage(13)}
  --json       as JSON
  -h, --help   this text

Exit: 0, or 1 if the relay does not answer.`;

/** The command `status`: its exit code. */
export async function status(argv: readonly string[], terminal: Terminal = processTerminal): Promise<number> {
  const parsed = parse(argv, { ...adminOptions, json: { type: 'boolean' } }, usage);
  if (!parsed.ok) return refuse(parsed.error, terminal);
  const { json, help } = parsed.value;
  if (help === true) {
    terminal.out(`${usage}\n`);
    return 0;
  }
  const client = adminClient(parsed.value);
  if (!client.ok) return refuse(new UsageError(client.error, usage), terminal);
  try {
    const response = await client.value.rpc.status({});
    terminal.out(
      `${json === true ? jsonText(StatusResponseSchema, response) : statusText(response, Date.now())}\n`,
    );
    return 0;
  } catch (error) {
    terminal.err(`${explainFailure(client.value, error)}\n`);
    return 1;
  }
}

/** `now` is milliseconds since the epoch. */
function statusText(response: StatusResponse, now: number): string {
  const state = response.ready ? 'ready' : `not ready: ${printable(response.reason)}`;
  const sections = [
    [
      `${printable(response.nodeId)} on ${printable(response.host)}: distributary ${response.version}, up for ${formatSeconds(response.uptimeSeconds)}: ${state}`,
      `clients: ${response.clients} streams; cache: ${formatBytes(Number(response.cacheBytes))}`,
    ].join('\n'),
    response.warnings.map((warning) => `warning: ${printable(warning)}`).join('\n'),
    rolloutText(response, now),
    upstreamsText(response, now),
    workersText(response),
    heldText(response, now),
    suspectsText(response, now),
    typesText(response),
    nacksText(response, now),
  ];
  return sections.filter((section) => section !== '').join('\n\n');
}

/** Where a change stands; nothing while there is none. */
function rolloutText({ rollout }: StatusResponse, now: number): string {
  if (rollout === undefined || (rollout.state === 'IDLE' && rollout.freezes.length === 0)) return '';
  const { state, canaries, reason, types, names, pending } = rollout;
  const { total = 0, accepted = 0, rejected = 0, ended = 0 } = canaries ?? {};
  const lines = [
    `rollout: ${state} for ${since(rollout.since, now)}${reason === '' ? '' : `: ${printable(reason)}`}`,
  ];
  if (pending > 0) {
    const shown = names.slice(0, 5).map(printable).join(', ');
    lines.push(
      `pending: ${pending} names (${types.join(', ')}) of ${printable(rollout.upstream)}: ${shown}${names.length > 5 ? ', …' : ''}`,
      `canaries: ${total} streams; ${accepted} accepted, ${rejected} rejected, ${ended} ended`,
    );
  }
  for (const freeze of rollout.freezes) {
    const what = [freeze.type || 'everything', ...(freeze.upstream === '' ? [] : [`of ${freeze.upstream}`])];
    lines.push(`frozen: ${what.join(' ')} for ${since(freeze.since, now)}: ${printable(freeze.reason)}`);
  }
  return lines.join('\n');
}

function upstreamsText({ upstreams }: StatusResponse, now: number): string {
  const rows = upstreams.map((upstream) => [
    upstream.name,
    stateText(upstream),
    upstream.stale ? `stale for ${since(upstream.staleSince, now)}` : 'current',
    `${upstream.kind} ${upstream.endpoint}`,
    upstream.sessions,
    upstream.lastError,
  ]);
  return textTable(['UPSTREAM', 'STATE', 'DATA', 'ENDPOINT', 'SESSIONS', 'LAST ERROR'], rows);
}

function stateText({ connected, refusedStreams }: UpstreamStatus): string {
  if (!connected) return 'not connected';
  return refusedStreams === 0 ? 'connected' : `connected, ${refusedStreams} refused streams`;
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

function nacksText({ nacks }: StatusResponse, now: number): string {
  if (nacks.length === 0) return 'no client rejects what it was sent';
  const rows = nacks.map((nack) => [
    nack.type,
    nack.name,
    nack.version,
    nack.clients,
    since(nack.since, now),
    nack.error,
  ]);
  return textTable(['REJECTED', 'NAME', 'VERSION', 'CLIENTS', 'FOR', 'ERROR'], rows);
}

function since(time: string, now: number): string {
  const then = Date.parse(time);
  return Number.isNaN(then) ? 'an unknown time' : formatSeconds((now - then) / 1000);
}
