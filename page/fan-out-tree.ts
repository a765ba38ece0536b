import type { PageClass, PageModel } from '../src/admin/page/model.ts';

type Worst = 'ok' | 'warn' | 'bad';

/** A node of the fan-out: an upstream, one of its sessions, a class of clients, or clients in one state. */
export interface FanNode {
  readonly id: string;
  readonly label: string;
  /** What the color says, in words. */
  readonly note: string;
  readonly worst: Worst;
  readonly streams: number;
  /** The clients that are meant; empty: all. */
  readonly filter: { readonly class?: string; readonly state?: string };
  readonly children: readonly FanNode[];
}

/** More would be lines without a label. */
const classesShown = 14;

/** Upstream → session → class of clients → clients, by their state. Pure. */
export function fanOut({ upstreams, classes, otherClasses }: PageModel): readonly FanNode[] {
  const shown = classes.slice(0, classesShown);
  const rest = restOf(classes.slice(classesShown), otherClasses);
  const serving = upstreams.map((upstream) =>
    upstreamNode(
      upstream,
      shown.flatMap((one) => throughUpstream(one, upstream.name) ?? []),
    ),
  );
  const unserved = shown.filter((one) => one.upstreams.length === 0).map(classNode);
  return [
    ...serving,
    ...elsewhere('no upstream', 'nothing is subscribed', unserved),
    ...elsewhere('smaller classes', 'of all upstreams', rest === undefined ? [] : [rest]),
  ];
}

/** Classes that are not drawn below an upstream, in the column of the classes all the same. */
function elsewhere(label: string, note: string, classes: readonly FanNode[]): readonly FanNode[] {
  if (classes.length === 0) return [];
  return [group(label, label, note, [group(`${label} session`, '', note, classes)])];
}

type Upstream = PageModel['upstreams'][number];

/** A class with the troubles that it has with one upstream. Undefined: it has nothing from there. */
function throughUpstream(all: PageClass, name: string): PageClass | undefined {
  const own = all.upstreams.find((upstream) => upstream.name === name);
  return own === undefined ? undefined : { ...all, rejecting: own.rejecting, late: own.late };
}

function upstreamNode(upstream: Upstream, classes: readonly PageClass[]): FanNode {
  const { name, connected, stale, perParameters } = upstream;
  const nodes = classes.map(classNode);
  const sessions = perParameters
    ? [...Map.groupBy(classes, ({ label }) => label)].map(([label, own]) =>
        group(`${name} ${label}`, label, 'session', own.map(classNode)),
      )
    : nodes.length === 0
      ? []
      : [group(`${name} session`, 'one session', 'session', nodes)];
  const note = connected ? (stale ? 'may be out of date' : 'connected') : 'away';
  const own: Worst = connected ? (stale ? 'warn' : 'ok') : 'bad';
  const node = group(name, name, note, sessions);
  return { ...node, worst: own === 'ok' ? 'ok' : own };
}

function classNode({ id, label, restricted, streams, rejecting, late }: PageClass): FanNode {
  const waiting = Math.max(0, Math.min(late, streams - rejecting));
  const fine = Math.max(0, streams - rejecting - waiting);
  const clients = (state: string, text: string, count: number, worst: Worst): readonly FanNode[] =>
    count === 0
      ? []
      : [
          {
            id: `${id} ${state}`,
            label: `${count.toLocaleString('en')} ${text}`,
            note: text,
            worst,
            streams: count,
            filter: { class: id, state },
            children: [],
          },
        ];
  return {
    id,
    label: restricted ? `${label} (restricted)` : label,
    note: rejecting > 0 ? 'some reject' : late > 0 ? 'some do not acknowledge' : 'class',
    worst: rejecting > 0 ? 'bad' : late > 0 ? 'warn' : 'ok',
    streams,
    filter: { class: id },
    children: [
      ...clients('ERROR', 'rejecting', rejecting, 'bad'),
      ...clients('STALE', 'not acknowledged', waiting, 'warn'),
      ...clients('', 'up to date', fine, 'ok'),
    ],
  };
}

const order: readonly Worst[] = ['bad', 'warn', 'ok'];

function group(id: string, label: string, note: string, children: readonly FanNode[]): FanNode {
  const worst = order.find((level) => children.some((child) => child.worst === level)) ?? 'ok';
  const streams = children.reduce((sum, child) => sum + child.streams, 0);
  const classes = new Set(children.map(({ filter }) => filter.class));
  const [only] = classes;
  return {
    id,
    label,
    note,
    worst,
    streams,
    filter: classes.size === 1 && only !== undefined ? { class: only } : {},
    children,
  };
}

function restOf(more: readonly PageClass[], others: PageModel['otherClasses']): FanNode | undefined {
  const count = more.length + others.classes;
  if (count === 0) return undefined;
  const streams = more.reduce((sum, one) => sum + one.streams, others.streams);
  const worst = more.some((one) => one.rejecting > 0)
    ? 'bad'
    : more.some((one) => one.late > 0)
      ? 'warn'
      : 'ok';
  const label = `${count.toLocaleString('en')} more classes`;
  return { id: 'more', label, note: 'smaller ones', worst, streams, filter: {}, children: [] };
}
