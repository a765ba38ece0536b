import type {
  Client,
  ListClientsResponse,
  StatusResponse,
  TypeStatus,
  UpstreamStatus,
} from '../../gen/distributary/admin/v1/admin_pb.ts';
import { errorText } from '../../model/error-text.ts';
import { counted, shorten } from '../../model/text.ts';
import { ago, formatSeconds } from '../../observe/format.ts';
import { readyText, sentence } from '../../observe/problems.ts';
import { type Html, html } from '../html.ts';
import { type Column, table } from '../html-table.ts';
import type { Plain } from '../plain.ts';
import { flowPicture } from './flow.ts';

/** How many clients the page lists; there may be tens of thousands. */
export const clientsShown = 100;
/** Types that are listed of a client; Envoy has fewer. */
const typesShown = 12;

/** What browsers without scripts show. `now` is milliseconds since the epoch. */
export function fallback(
  status: Plain<StatusResponse>,
  clients: Plain<ListClientsResponse>,
  now: number,
): Html {
  return html`${heading(status)}<p class="summary">${summary(status, now)}</p>${problemList(status, now)}${rollout(status, now)}${flowPicture(status)}
<h2>Upstreams</h2>${table(upstreamColumns(now), status.upstreams, 'No upstream is configured.')}
<h2>Types</h2>${table(typeColumns, status.types, 'Nothing is cached or subscribed to yet.')}
<h2>Clients</h2>${table(clientColumns(now), clients.clients, 'No client is connected.')}${more(clients)}`;
}

function heading(status: Plain<StatusResponse>): Html {
  const state = status.ready
    ? html`<span class="state good">${readyText(true, status.problems, status.moreProblems)}</span>`
    : html`<span class="state bad">not ready: ${status.reason}</span>`;
  return html`<header><h1>${shorten(status.nodeId, 200)}</h1>${state}<span class="dim">distributary on ${shorten(status.host, 200)}, version ${status.version}, up for ${formatSeconds(status.uptimeSeconds)}</span>
<nav><a href="/ready">ready</a><a href="/metrics">metrics</a><a href="/config_dump">configuration</a></nav></header>`;
}

/** What is wrong, the worst first. */
function problemList({ problems, moreProblems }: Plain<StatusResponse>, now: number): Html {
  if (problems.length === 0) return html``;
  const items = problems.map(({ severity, title, detail, since, commands, runbook }) => {
    const time = ago(since, now);
    const typed = commands.map((one) => html`<br><code>${one}</code>`);
    return html`<li><b class="${severity === 'critical' ? 'bad' : ''}">${severity}</b>: ${title}${time === undefined ? '' : ` for ${time}`} <a href="runbooks/${runbook}">runbook</a><br>${detail}${typed}</li>`;
  });
  const rest = moreProblems === 0 ? html`` : html`<p class="dim">and ${moreProblems} more</p>`;
  return html`<h2>Problems</h2><ul>${items}</ul>${rest}`;
}

function summary(status: Plain<StatusResponse>, now: number): string {
  const { clients, pollingClients, problems, moreProblems } = status;
  return sentence(clients + pollingClients, problems, moreProblems, now);
}

/** Where a change stands; nothing while there is none. */
function rollout({ rollout: change }: Plain<StatusResponse>, now: number): Html {
  if (change === undefined || change.state === 'IDLE') return html``;
  const { state, reason, pending, types, names, canaries } = change;
  const { total = 0, accepted = 0, rejected = 0, ended = 0 } = canaries ?? {};
  const shown = names.slice(0, 10).map((name) => shorten(name, 200));
  const what =
    pending === 0
      ? html``
      : html`<p>Pending: ${counted(pending, 'name')} (${types.join(', ')}) of ${change.upstream}: <code>${shown.join(', ')}</code></p>
<p>Canaries: ${counted(total, 'stream')}; ${accepted} accepted, ${rejected} rejected, ${ended} ended</p>`;
  return html`<h2>Rollout</h2><p><span class="${state === 'HELD' ? 'bad' : 'good'}">${state}</span> for ${ago(change.since, now) ?? ''} ${errorText(reason, 500)}</p>
${what}`;
}

const upstreamColumns = (now: number): readonly Column<Plain<UpstreamStatus>>[] => [
  { title: 'Name', cell: ({ name }) => name },
  {
    title: 'State',
    cell: ({ connected, refusedStreams }) => {
      if (!connected) return html`<span class="bad">not connected</span>`;
      return refusedStreams === 0
        ? html`<span class="good">connected</span>`
        : html`<span class="bad">connected, ${counted(refusedStreams, 'refused stream')}</span>`;
    },
  },
  {
    title: 'Data',
    cell: ({ stale, staleSince, fromSiblingsSince }) =>
      stale
        ? html`<span class="bad">out of date for ${ago(staleSince, now) ?? 'unknown time'}${fromSiblingsSince === '' ? '' : ', from siblings'}</span>`
        : 'current',
  },
  { title: 'Endpoint', mono: true, cell: ({ kind, endpoint }) => `${kind} ${endpoint}` },
  { title: 'Sessions', number: true, cell: ({ sessions }) => sessions },
  {
    title: 'Held removals',
    cell: ({ heldRemovals }) => heldRemovals.map(({ type, count }) => `${count} ${type}`).join(', '),
  },
  {
    title: 'Isolated types',
    cell: ({ suspectTypes }) =>
      suspectTypes.map(({ type, reason }) => {
        const title = `on an isolated stream, because a stream ended: ${errorText(reason, 300)}`;
        return html`<span class="bad" title="${title}">${shorten(type, 80)}</span> `;
      }),
  },
  { title: 'Last error', cell: ({ lastError }) => errorText(lastError, 300) },
];

const typeColumns: readonly Column<Plain<TypeStatus>>[] = [
  { title: 'Type', cell: ({ type }) => type },
  { title: 'Resources', number: true, cell: ({ resources }) => resources },
  { title: 'Variants', number: true, cell: ({ variants }) => variants },
  { title: 'Subscriptions', number: true, cell: ({ subscriptions }) => subscriptions },
  {
    title: 'Ambiguous',
    number: true,
    cell: ({ ambiguous }) => (ambiguous === 0 ? 0 : html`<span class="bad">${ambiguous}</span>`),
  },
];

const clientColumns = (now: number): readonly Column<Plain<Client>>[] => [
  { title: 'Stream', mono: true, cell: ({ id }) => id },
  { title: 'Node', mono: true, cell: ({ node }) => shorten(node?.id ?? '', 80) },
  { title: 'Cluster', cell: ({ node }) => shorten(node?.cluster ?? '', 60) },
  { title: 'Peer', mono: true, cell: ({ peer }) => peer },
  {
    title: 'Speaks',
    cell: ({ transport, types }) => {
      const last = types.map(({ lastPoll }) => lastPoll).toSorted();
      const time = ago(last.at(-1) ?? '', now);
      return time === undefined ? transport : `${transport}, polled ${time} ago`;
    },
  },
  {
    title: 'Types',
    cell: ({ types }) => {
      const shown = types.slice(0, typesShown).map(({ type, state, version, lastNack }) => {
        const taken = shorten(version, 60);
        const title = lastNack === '' ? taken : `${taken}: ${errorText(lastNack, 500)}`;
        const name = shorten(type, 100);
        return html`<span class="${state === 'ERROR' ? 'bad' : 'dim'}" title="${title}">${name} ${state}</span> `;
      });
      const rest = types.length - shown.length;
      return rest > 0 ? [...shown, html`and ${rest} more`] : shown;
    },
  },
];

function more({ clients, total }: Plain<ListClientsResponse>): Html {
  const rest = Math.max(0, total - clients.length);
  return rest === 0
    ? html``
    : html`<p class="dim">and ${rest} more: distributary clients lists them all.</p>`;
}
