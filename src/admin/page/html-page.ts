import { createHash } from 'node:crypto';
import type {
  Client,
  ListClientsResponse,
  StatusResponse,
  TypeStatus,
  UpstreamStatus,
} from '../../gen/distributary/admin/v1/admin_pb.ts';
import { fallbackStyle, script, style } from '../../gen/page.ts';
import { counted, errorText, printable, shorten } from '../../model/text.ts';
import type { Figure } from '../../observe/figures.ts';
import { ago, canariesText, formatBytes, formatSeconds } from '../../observe/format.ts';
import { lasting, readyText, sentence } from '../../observe/problems.ts';
import type { Plain } from '../service.ts';
import type { PageModel } from './page-model.ts';

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
    const lasts = lasting(since, now);
    const typed = commands.map((one) => html`<br><code>${one}</code>`);
    return html`<li><b class="${severity === 'critical' ? 'bad' : ''}">${severity}</b>: ${title}${lasts === '' ? '' : ` (${lasts})`} <a href="runbooks/${runbook}">runbook</a><br>${detail}${typed}</li>`;
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
  const shown = names.slice(0, 10).map((name) => shorten(name, 200));
  const what =
    pending === 0
      ? html``
      : html`<p>Pending: ${counted(pending, 'name')} (${types.join(', ')}) of ${change.upstream}: <code>${shown.join(', ')}</code></p>
<p>Canaries: ${canariesText(state, canaries)}</p>`;
  return html`<h2>Rollout</h2><p><span class="${state === 'HELD' ? 'bad' : 'good'}">${state}</span> for ${ago(change.since, now) ?? ''} ${errorText(reason, 500)}</p>
${what}`;
}

const upstreamColumns = (now: number): readonly Column<Plain<UpstreamStatus>>[] => [
  ['Name', ({ name }) => name],
  ['State', stateOf],
  [
    'Data',
    ({ stale, staleSince, fromSiblingsSince }) =>
      stale
        ? html`<span class="bad">out of date for ${ago(staleSince, now) ?? 'unknown time'}${fromSiblingsSince === '' ? '' : ', from siblings'}</span>`
        : 'current',
  ],
  ['Endpoint', ({ kind, endpoint }) => `${kind} ${endpoint}`, 'mono'],
  ['Sessions', ({ sessions }) => sessions, 'number'],
  [
    'Held removals',
    ({ heldRemovals }) => heldRemovals.map(({ type, count }) => `${count} ${type}`).join(', '),
  ],
  [
    'Isolated types',
    ({ suspectTypes }) =>
      suspectTypes.map(({ type, reason }) => {
        const title = `on an isolated stream, because a stream ended: ${errorText(reason, 300)}`;
        return html`<span class="bad" title="${title}">${shorten(type, 80)}</span> `;
      }),
  ],
  ['Last error', ({ lastError }) => errorText(lastError, 300)],
];

function stateOf({ connected, refusedStreams }: Plain<UpstreamStatus>): Html {
  if (!connected) return html`<span class="bad">not connected</span>`;
  return refusedStreams === 0
    ? html`<span class="good">connected</span>`
    : html`<span class="bad">connected, ${counted(refusedStreams, 'refused stream')}</span>`;
}

const typeColumns: readonly Column<Plain<TypeStatus>>[] = [
  ['Type', ({ type }) => type],
  ['Resources', ({ resources }) => resources, 'number'],
  ['Variants', ({ variants }) => variants, 'number'],
  ['Subscriptions', ({ subscriptions }) => subscriptions, 'number'],
  [
    'Ambiguous',
    ({ ambiguous }) => (ambiguous === 0 ? 0 : html`<span class="bad">${ambiguous}</span>`),
    'number',
  ],
];

const clientColumns = (now: number): readonly Column<Plain<Client>>[] => [
  ['Stream', ({ id }) => id, 'mono'],
  ['Node', ({ node }) => shorten(node?.id ?? '', 80), 'mono'],
  ['Cluster', ({ node }) => shorten(node?.cluster ?? '', 60)],
  ['Peer', ({ peer }) => peer, 'mono'],
  [
    'Speaks',
    ({ transport, types }) => {
      const last = types.map(({ lastPoll }) => lastPoll).toSorted();
      const time = ago(last.at(-1) ?? '', now);
      return time === undefined ? transport : `${transport}, polled ${time} ago`;
    },
  ],
  [
    'Types',
    ({ types }) => {
      const shown = types.slice(0, typesShown).map(({ type, state, version, lastNack }) => {
        const taken = shorten(version, 60);
        const title = lastNack === '' ? taken : `${taken}: ${errorText(lastNack, 500)}`;
        const name = shorten(type, 100);
        return html`<span class="${state === 'ERROR' ? 'bad' : 'dim'}" title="${title}">${name} ${state}</span> `;
      });
      const rest = types.length - shown.length;
      return rest > 0 ? [...shown, html`and ${rest} more`] : shown;
    },
  ],
];

function more({ clients, total }: Plain<ListClientsResponse>): Html {
  const rest = Math.max(0, total - clients.length);
  return rest === 0
    ? html``
    : html`<p class="dim">and ${rest} more: distributary clients lists them all.</p>`;
}

const box = { width: 220, height: 62, gap: 14 };
const column = { upstreams: 0, cache: 330, clients: 660 };
/** More would not be a picture; the table has them all. */
const mostUpstreams = 6;

interface Box {
  readonly title: string;
  readonly lines: readonly string[];
  readonly bad: boolean;
}

/** Upstreams, the cache and the clients as a picture: what is broken is dashed and says so. */
function flowPicture(status: Plain<StatusResponse>): Html {
  const upstreams = upstreamBoxes(status);
  const height = Math.max(1, upstreams.length) * (box.height + box.gap) - box.gap;
  const middle = (height - box.height) / 2;
  const top = (index: number): number => index * (box.height + box.gap);
  const center = (y: number): number => y + box.height / 2;
  const arrows = upstreams.map(({ bad }, index) =>
    arrow(column.upstreams + box.width, center(top(index)), column.cache, center(middle), bad),
  );
  arrows.push(arrow(column.cache + box.width, center(middle), column.clients, center(middle), false));
  return html`<svg class="flow" viewBox="-2 -2 884 ${height + 4}" role="img" aria-label="From upstreams through the cache to clients">
<defs><marker id="head" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="5" markerHeight="5" orient="auto"><path d="M0 0L8 4L0 8z"/></marker></defs>
${arrows}${upstreams.map((content, index) => drawBox(column.upstreams, top(index), content))}
${drawBox(column.cache, middle, cacheBox(status))}${drawBox(column.clients, middle, clientsBox(status))}</svg>`;
}

function upstreamBoxes({ upstreams }: Plain<StatusResponse>): readonly Box[] {
  const shown = upstreams.slice(0, upstreams.length > mostUpstreams ? mostUpstreams - 1 : mostUpstreams);
  const boxes = shown.map(({ name, connected, stale, endpoint, kind }) => ({
    title: name,
    lines: [connected ? (stale ? 'connected, out of date' : 'connected') : 'not connected', endpoint || kind],
    bad: !connected || stale,
  }));
  const rest = upstreams.slice(shown.length);
  if (rest.length === 0) return boxes;
  const broken = rest.filter(({ connected, stale }) => !connected || stale).length;
  return [...boxes, { title: `${rest.length} more`, lines: [`${broken} with problems`], bad: broken > 0 }];
}

function cacheBox({ types, cacheBytes }: Plain<StatusResponse>): Box {
  const resources = types.reduce((sum, type) => sum + type.resources, 0);
  const variants = types.reduce((sum, type) => sum + type.variants, 0);
  return {
    title: 'Cache',
    lines: [
      `${counted(resources, 'resource')}, ${counted(variants, 'variant')}`,
      formatBytes(Number(cacheBytes)),
    ],
    bad: false,
  };
}

function clientsBox({ clients, pollingClients, rejectingClients }: Plain<StatusResponse>): Box {
  return {
    title: 'Clients',
    lines: [
      `${counted(clients, 'stream')}${pollingClients === 0 ? '' : `, ${pollingClients} polling`}`,
      rejectingClients === 0 ? 'nothing rejected' : `${rejectingClients} rejecting something`,
    ],
    bad: rejectingClients > 0,
  };
}

function drawBox(x: number, y: number, { title, lines, bad }: Box): Html {
  const texts = lines.map(
    (line, index) => html`<text x="${x + 12}" y="${y + 39 + index * 15}">${shorten(line, 32)}</text>`,
  );
  return html`<g class="${bad ? 'bad' : 'good'}"><title>${[title, ...lines].join('\n')}</title><rect x="${x}" y="${y}" width="${box.width}" height="${box.height}" rx="7"/><text class="name" x="${x + 12}" y="${y + 21}">${shorten(title, 26)}</text>${texts}</g>`;
}

function arrow(x1: number, y1: number, x2: number, y2: number, bad: boolean): Html {
  const bend = (x1 + x2) / 2;
  return html`<path class="arrow ${bad ? 'bad' : 'good'}" d="M${x1} ${y1}C${bend} ${y1} ${bend} ${y2} ${x2 - 2} ${y2}" marker-end="url(#head)"/>`;
}

type Column<Row> = readonly [
  title: string,
  cell: (row: Row) => Html | string | number | readonly Html[],
  looks?: 'number' | 'mono',
];

/** `empty` is said where there is no row. */
function table<Row>(columns: readonly Column<Row>[], rows: readonly Row[], empty: string): Html {
  if (rows.length === 0) return html`<p class="none">${empty}</p>`;
  const heads = columns.map(([title, , looks = '']) => html`<th class="${looks}">${title}</th>`);
  const lines = rows.map((row) => {
    const cells = columns.map(([, cell, looks = '']) => html`<td class="${looks}">${cell(row)}</td>`);
    return html`<tr>${cells}</tr>`;
  });
  return html`<div class="scroll"><table><thead><tr>${heads}</tr></thead><tbody>${lines}</tbody></table></div>`;
}

/** The id of the element with the first model; page/main.tsx reads it. */
const firstState = 'first-state';

const hash = (text: string): string => `'sha256-${createHash('sha256').update(text).digest('base64')}'`;

/** Nothing but the page's own style and script runs, and it talks to its own origin only. */
const policy = [
  "default-src 'none'",
  `style-src ${hash(style)} ${hash(fallbackStyle)}`,
  `script-src ${hash(script)}`,
  "connect-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
].join('; ');

/**
 * The page with the state to begin with, so that its first paint waits for nothing else. `model`: as JSON. `fallback`:
 * what browsers without scripts show.
 */
export function shell(
  relay: Pick<PageModel['relay'], 'nodeId' | 'ready'>,
  model: string,
  figures: readonly Figure[],
  fallback: Html,
) {
  // A block of data never runs; "<" would end it.
  const state = `{"model":${model},"figures":${JSON.stringify(figures)}}`.replaceAll('<', '\\u003c');
  const page = html`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>${shorten(relay.nodeId, 60)}: ${relay.ready ? 'ready' : 'not ready'} (distributary)</title><style>${new Html(style)}</style>
<noscript><meta http-equiv="refresh" content="5"><style>${new Html(fallbackStyle)}</style></noscript></head>
<body><div id="app"></div><noscript><main>${fallback}</main></noscript>
<script type="application/json" id="${firstState}">${new Html(state)}</script><script>${new Html(script)}</script></body></html>
`;
  const headers = { 'content-security-policy': policy, 'referrer-policy': 'no-referrer' };
  return { status: 200, type: 'text/html; charset=utf-8', body: page.text, headers };
}

/** Text that is HTML already. */
class Html {
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }
}

const escapes: ReadonlyMap<string, string> = new Map([
  ['&', '&amp;'],
  ['<', '&lt;'],
  ['>', '&gt;'],
  ['"', '&quot;'],
  ["'", '&#39;'],
]);

type Part = Html | string | number | readonly Html[];

/**
 * Escapes every value that is not Html, because names and errors come from peers; control characters and marks of
 * direction too. Attributes must be in quotes.
 */
export function html(strings: TemplateStringsArray, ...parts: readonly Part[]): Html {
  const texts = parts.map(render);
  return new Html(strings.map((text, index) => text + (texts[index] ?? '')).join(''));
}

function render(part: Part): string {
  if (part instanceof Html) return part.text;
  if (typeof part === 'object') return part.map(({ text }) => text).join('');
  return printable(String(part)).replaceAll(/[&<>"']/g, (character) => escapes.get(character) ?? '');
}
