import { createHash } from 'node:crypto';
import type { ListClientsResponse, StatusResponse } from '../../gen/distributary/admin/v1/admin_pb.ts';
import { fallbackStyle, script, style } from '../../gen/page.ts';
import { printable, shorten } from '../../model/text.ts';
import type { Figure } from '../../observe/figures.ts';
import { formatSeconds } from '../../observe/format.ts';
import { lasting, readyText, sentence } from '../../observe/problems.ts';
import type { View } from '../../observe/text-table.ts';
import type { Plain } from '../service.ts';
import { clientsText, stateText } from '../status-text.ts';
import type { PageModel } from './page-model.ts';

/** How many clients the page lists; there may be tens of thousands. */
export const clientsShown = 100;

/** What browsers without scripts show: as `status` and `clients` print it. `now` is milliseconds since the epoch. */
export function fallback(
  status: Plain<StatusResponse>,
  clients: Plain<ListClientsResponse>,
  now: number,
): Html {
  const view: View = { paint: (_, text) => text, wide: true, columns: Number.POSITIVE_INFINITY };
  return html`${heading(status)}<p>${summary(status, now)}</p>${problemList(status, now)}
<h2>State</h2><pre>${lines(stateText(status, now, view))}</pre>
<h2>Clients</h2><pre>${lines(clientsText(clients, [], view, now))}</pre>`;
}

/** Escaped one by one: a line end is no text of a peer's. */
const lines = (text: string): readonly Html[] =>
  text.split('\n').map((line) => html`${line}${new Html('\n')}`);

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
