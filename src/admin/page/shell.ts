import { createHash } from 'node:crypto';
import { script, style } from '../../gen/page.ts';
import { shorten } from '../../model/text.ts';
import { Html, html } from '../html.ts';
import type { HttpAnswer } from '../respond.ts';
import { fallbackStyle } from './fallback-style.ts';
import type { Figure, RelayFacts } from './model.ts';

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

export interface ShellInputs {
  readonly relay: Pick<RelayFacts, 'nodeId' | 'ready'>;
  /** The model as JSON. */
  readonly model: string;
  readonly figures: readonly Figure[];
  /** What browsers without scripts show. */
  readonly fallback: Html;
}

/** The page with the state to begin with, so that its first paint waits for nothing else. */
export function shell({ relay, model, figures, fallback }: ShellInputs): HttpAnswer {
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
