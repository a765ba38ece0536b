import type { StatusResponse } from '../../gen/distributary/admin/v1/admin_pb.ts';
import { counted, shorten } from '../../model/text.ts';
import { formatBytes } from '../../observe/format.ts';
import { type Html, html } from '../html.ts';
import type { Plain } from '../plain.ts';

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
export function flowPicture(status: Plain<StatusResponse>): Html {
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
