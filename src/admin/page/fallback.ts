import type {
  Client,
  ListClientsResponse,
  NackStatus,
  StatusResponse,
  TypeStatus,
  UpstreamStatus,
} from '../../gen/distributary/admin/v1/admin_pb.ts';
import { errorText } from '../../model/error-text.ts';
import { counted, shorten } from '../../model/text.ts';
import { ago, formatSeconds } from '../../observe/format.ts';
import { rejectedText } from '../../observe/rejection-text.ts';
import { noCanary, releaseCommand } from '../../observe/rollout-text.ts';
import { type Html, html } from '../html.ts';
import { type Column, table } from '../html-table.ts';
import type { Plain } from '../plain.ts';
import { flowPicture } from './flow.ts';

/** How many clients the page lists; there may be tens of thousands. */
export const clientsShown = 100;
/** Rejections that are listed. */
const rejectionsShown = 30;
/** Types that are listed of a client; Envoy has fewer. */
const typesShown = 12;

/** What browsers without scripts show. `now` is milliseconds since the epoch. */
export function fallback(
  status: Plain<StatusResponse>,
  clients: Plain<ListClientsResponse>,
  now: number,
): Html {
  return html`${heading(status)}<p class="summary">${summary(status, now)}</p>${warnings(status)}${rollout(status, now)}${flowPicture(status)}
<h2>Upstreams</h2>${table(upstreamColumns(now), status.upstreams, 'No upstream is configured.')}
<h2>Rejected by clients</h2>${table(nackColumns(now), status.nacks.slice(0, rejectionsShown), 'Nothing: clients took what they were sent.')}
<h2>Types</h2>${table(typeColumns, status.types, 'Nothing is cached or asked for yet.')}
<h2>Clients</h2>${table(clientColumns(now), clients.clients, 'No client is connected.')}${more(clients)}`;
}

function heading(status: Plain<StatusResponse>): Html {
  const state = status.ready
    ? html`<span class="state good">ready</span>`
    : html`<span class="state bad">not ready: ${status.reason}</span>`;
  return html`<header><h1>${shorten(status.nodeId, 200)}</h1>${state}<span class="dim">distributary on ${shorten(status.host, 200)}, version ${status.version}, up for ${formatSeconds(status.uptimeSeconds)}</span>
<nav><a href="/ready">ready</a><a href="/metrics">metrics</a><a href="/config_dump">configuration</a></nav></header>`;
}

/** What matters most, in one sentence: as somebody would say it on the phone. */
function summary(status: Plain<StatusResponse>, now: number): string {
  const { clients, pollingClients, upstreams, nacks, rollout: change } = status;
  const away = upstreams
    .filter(({ connected }) => !connected)
    .map(({ name, staleSince }) => `${shorten(name, 60)} away${forTime(ago(staleSince, now))}`);
  const rejecting = nacks
    .slice(0, 2)
    .map((nack) => `${nack.clients} reject ${nack.type} ${shorten(rejectedText(nack), 80)}`);
  const rest = nacks.length > 2 ? [`${nacks.length - 2} more rejections`] : [];
  const waits =
    change?.noCanary === true ? [`a change is ${change.state}: ${noCanary}; ${releaseCommand}`] : [];
  const held =
    change === undefined || change.state === 'IDLE' || change.noCanary ? [] : [`a change is ${change.state}`];
  return `Serving ${counted(clients + pollingClients, 'client')}; ${[...waits, ...away, ...rejecting, ...rest, ...held].join('; ') || 'all is well'}.`;
}

const forTime = (time: string | undefined): string => (time === undefined ? '' : ` for ${time}`);

function warnings({ warnings: list }: Plain<StatusResponse>): Html {
  const items = list.map((warning) => html`<li>${shorten(warning, 500)}</li>`);
  return items.length === 0 ? html`` : html`<ul class="bad">${items}</ul>`;
}

/** Where a change stands; nothing while there is none. */
function rollout({ rollout: change }: Plain<StatusResponse>, now: number): Html {
  if (change === undefined || (change.state === 'IDLE' && change.freezes.length === 0)) return html``;
  const { state, reason, pending, types, names, canaries, freezes } = change;
  const { total = 0, accepted = 0, rejected = 0, ended = 0 } = canaries ?? {};
  const shown = names.slice(0, 10).map((name) => shorten(name, 200));
  const what =
    pending === 0
      ? html``
      : html`<p>Pending: ${counted(pending, 'name')} (${types.join(', ')}) of ${change.upstream}: <code>${shown.join(', ')}</code></p>
<p>Canaries: ${counted(total, 'stream')}; ${accepted} accepted, ${rejected} rejected, ${ended} ended</p>`;
  const frozen = freezes.map(
    (freeze) =>
      html`<li>frozen: ${freeze.type || 'everything'} ${freeze.upstream} for ${ago(freeze.since, now) ?? ''}: ${shorten(freeze.reason, 300)}</li>`,
  );
  return html`<h2>Rollout</h2><p><span class="${state === 'HELD' ? 'bad' : 'good'}">${state}</span> for ${ago(change.since, now) ?? ''} ${errorText(reason, 500)}</p>
${what}<ul>${frozen}</ul>`;
}

const upstreamColumns = (now: number): readonly Column<Plain<UpstreamStatus>>[] => [
  { title: 'Name', cell: ({ name }) => name },
  {
    title: 'State',
    cell: ({ connected, refusedStreams }) => {
      if (!connected) return html`<span class="bad">not connected</span>`;
      return refusedStreams === 0
        ? html`<span class="good">connected</span>`
        : html`<span class="bad">connected, ${refusedStreams} refused streams</span>`;
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

const nackColumns = (now: number): readonly Column<Plain<NackStatus>>[] => [
  { title: 'Type', cell: ({ type }) => type },
  { title: 'Name', mono: true, cell: (nack) => shorten(rejectedText(nack), 200) },
  { title: 'Version', mono: true, cell: ({ version }) => shorten(version, 60) },
  { title: 'Clients', number: true, cell: ({ clients }) => clients },
  { title: 'For', cell: ({ since }) => ago(since, now) ?? '' },
  { title: 'Error', cell: ({ error }) => errorText(error, 500) },
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
  return rest === 0 ? html`` : html`<p class="dim">and ${rest} more: ask the ListClients RPC for all.</p>`;
}
