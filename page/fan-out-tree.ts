import type { PageClass, PageModel } from '../src/admin/page/page-model.ts';

/** The worst first. */
export const states = ['bad', 'warn', 'ok'] as const;
type State = (typeof states)[number];

/** How many of the streams are in which state. */
export type Shares = Readonly<Record<State, number>>;

/** A node of the fan-out: an upstream, one of its sessions, a class of clients, or clients in one state. */
export interface FanNode {
  readonly id: string;
  readonly label: string;
  /** What the color says, in words. */
  readonly note: string;
  /** Of the node itself, whatever its streams: an upstream that is away. */
  readonly own: State;
  readonly shares: Shares;
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
  const note = connected ? (stale ? 'may be out of date' : 'connected') : 'unreachable';
  return { ...group(name, name, note, sessions), own: connected ? (stale ? 'warn' : 'ok') : 'bad' };
}

function sharesOf({ streams, rejecting, late }: Pick<PageClass, 'streams' | 'rejecting' | 'late'>): Shares {
  const warn = Math.max(0, Math.min(late, streams - rejecting));
  return { bad: rejecting, warn, ok: Math.max(0, streams - rejecting - warn) };
}

function classNode(one: PageClass): FanNode {
  const { id, label, restricted, streams, rejecting } = one;
  const shares = sharesOf(one);
  const { warn: waiting, ok: fine } = shares;
  const clients = (state: string, text: string, count: number, worst: State): readonly FanNode[] =>
    count === 0
      ? []
      : [
          {
            id: `${id} ${state}`,
            label: `${count.toLocaleString('en')} ${text}`,
            note: text,
            own: 'ok',
            shares: { bad: 0, warn: 0, ok: 0, [worst]: count },
            streams: count,
            filter: { class: id, state },
            children: [],
          },
        ];
  return {
    id,
    label: restricted ? `${label} (restricted)` : label,
    note: noteOf(rejecting, waiting),
    own: 'ok',
    shares,
    streams,
    filter: { class: id },
    children: [
      ...clients('ERROR', 'rejecting', rejecting, 'bad'),
      ...clients('STALE', 'not acknowledged', waiting, 'warn'),
      ...clients('', 'up to date', fine, 'ok'),
    ],
  };
}

function noteOf(rejecting: number, waiting: number): string {
  const parts = [
    ...(rejecting === 0 ? [] : [`${rejecting.toLocaleString('en')} rejecting`]),
    ...(waiting === 0 ? [] : [`${waiting.toLocaleString('en')} not acknowledged`]),
  ];
  return parts.length === 0 ? 'class' : parts.join(', ');
}

const sumOf = (all: readonly Shares[]): Shares => ({
  bad: all.reduce((sum, { bad }) => sum + bad, 0),
  warn: all.reduce((sum, { warn }) => sum + warn, 0),
  ok: all.reduce((sum, { ok }) => sum + ok, 0),
});

export function group(id: string, label: string, note: string, children: readonly FanNode[]): FanNode {
  const shares = sumOf(children.map((child) => child.shares));
  const streams = children.reduce((sum, child) => sum + child.streams, 0);
  const classes = new Set(children.map(({ filter }) => filter.class));
  const [only] = classes;
  return {
    id,
    label,
    note,
    own: 'ok',
    shares,
    streams,
    filter: classes.size === 1 && only !== undefined ? { class: only } : {},
    children,
  };
}

function restOf(more: readonly PageClass[], others: PageModel['otherClasses']): FanNode | undefined {
  const count = more.length + others.classes;
  if (count === 0) return undefined;
  const streams = more.reduce((sum, one) => sum + one.streams, others.streams);
  const shares = sumOf([...more, others].map(sharesOf));
  const label = `${count.toLocaleString('en')} more ${count === 1 ? 'class' : 'classes'}`;
  const note = shares.bad + shares.warn === 0 ? 'smaller ones' : noteOf(shares.bad, shares.warn);
  return { id: 'more', label, note, own: 'ok', shares, streams, filter: {}, children: [] };
}
