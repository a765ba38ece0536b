import { type HierarchyRectangularNode, hierarchy, partition } from 'd3-hierarchy';
import { area, curveBumpX } from 'd3-shape';
import { useEffect, useRef, useState } from 'preact/hooks';
import { shorten } from '../src/model/text.ts';
import { type FanNode, fanOut, group, type Shares, states } from './fan-out-tree.ts';
import type { PartProps } from './live.ts';
import { hrefOf, type Query } from './location.ts';

/** Pixels. */
const row = 26;
const bar = 9;
const gap = 3;
const narrow = 560;
const characterWidth = 6.7;

type Placed = HierarchyRectangularNode<FanNode>;

/** How data flows: width is streams, each part of it in the color of its state; a click shows the clients. */
export function FanOut({ model, query }: Pick<PartProps, 'model' | 'query'>) {
  const box = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(640);
  useEffect(() => {
    const element = box.current;
    if (element === null) return undefined;
    // Before it is laid out, or while it is hidden, it has no width.
    const resized = new ResizeObserver(() => {
      if (element.clientWidth > 0) setWidth(element.clientWidth);
    });
    resized.observe(element);
    return () => resized.disconnect();
  }, []);
  const roots = fanOut(model);
  const streams = model.clients.toLocaleString('en');
  return (
    <section class="fan-out" aria-labelledby="fan-out">
      <h2 id="fan-out">From upstreams to {streams === '1' ? '1 client' : `${streams} clients`}</h2>
      <div ref={box}>
        {roots.length === 0 ? (
          <p class="dim">No upstream is configured.</p>
        ) : (
          <Picture roots={roots} width={width} query={query} />
        )}
      </div>
    </section>
  );
}

interface PictureProps {
  readonly roots: readonly FanNode[];
  readonly width: number;
  readonly query: Query;
}

function Picture({ roots, width, query }: PictureProps) {
  const { nodes, height } = place(roots, width);
  const titles =
    width < narrow
      ? ['Upstream', 'Session', 'Class', 'Clients']
      : ['Upstream', 'Session', 'Class of clients', 'Clients'];
  const column = columnWidth(width);
  return (
    <svg
      class="delta"
      width={width}
      height={height + 22}
      role="group"
      aria-label="Upstreams, their sessions, classes of clients, and clients"
    >
      {titles.map((title, depth) => (
        <text
          key={title}
          class={depth === 3 ? 'column last' : 'column'}
          x={depth * column + (depth === 3 ? bar : 0)}
          y={11}
        >
          {title}
        </text>
      ))}
      <g transform="translate(0 22)">
        {nodes.map((node) => (
          <Ribbon key={`ribbon ${key(node)}`} node={node} column={column} />
        ))}
        {nodes.map((node) => (
          <Node key={key(node)} node={node} column={column} query={query} />
        ))}
      </g>
    </svg>
  );
}

const columnWidth = (width: number): number => (width - bar) / 3;
const key = (node: Placed): string =>
  node
    .ancestors()
    .map(({ data }) => data.id)
    .join('\n');

/** Each leaf has room for a label; what is left is shared by streams. */
function place(roots: readonly FanNode[], width: number): { nodes: readonly Placed[]; height: number } {
  const tree = hierarchy<FanNode>(group('', '', '', roots), ({ children }) => [...children]);
  const leaves = tree.leaves();
  const height = Math.max(240, leaves.length * row);
  const total = leaves.reduce((sum, { data }) => sum + data.streams, 0);
  const least = total === 0 ? 1 : (total * row * 0.7) / Math.max(1, height - leaves.length * row * 0.7);
  tree.sum(({ children, streams }) => (children.length > 0 ? 0 : streams + least));
  const placed = partition<FanNode>().size([height, width]).padding(0)(tree);
  return { nodes: placed.descendants().filter(({ depth }) => depth > 0), height };
}

interface Band {
  readonly state: string;
  readonly top: number;
  readonly bottom: number;
}

/** However few they are, they must be seen: pixels. */
const leastBand = 2;

/** A height by the shares of states, from the top the worst first. */
function bands(shares: Shares, top: number, bottom: number): readonly Band[] {
  const present = states.filter((state) => shares[state] > 0);
  const total = present.reduce((sum, state) => sum + shares[state], 0);
  const spare = Math.max(0, bottom - top - present.length * leastBand);
  let at = top;
  return present.map((state) => {
    const from = at;
    at += leastBand + (spare * shares[state]) / total;
    return { state, top: from, bottom: Math.min(at, bottom) };
  });
}

/** From the side of the parent's bar to this one. */
function Ribbon({ node, column }: { readonly node: Placed; readonly column: number }) {
  const { parent, depth, data, x0, x1 } = node;
  if (parent === null || depth < 2) return null;
  const away = depth === 2 ? parent.data.own : 'ok';
  const shares = away === 'ok' ? data.shares : { bad: 0, warn: 0, ok: 0, [away]: data.streams || 1 };
  const starts = bands(shares, x0 + gap / 2, x1 - gap / 2);
  const ends = bands(shares, x0 + gap, x1 - gap);
  return (
    <>
      {starts.map(({ state, top, bottom }, index) => (
        <path
          key={state}
          class={`ribbon ${state}`}
          d={ribbonPath(
            { x: (depth - 2) * column + bar, top, bottom },
            { x: (depth - 1) * column, top: ends[index]?.top ?? top, bottom: ends[index]?.bottom ?? bottom },
          )}
        />
      ))}
    </>
  );
}

type Side = Readonly<Record<'x' | 'top' | 'bottom', number>>;

function ribbonPath(start: Side, end: Side): string {
  const shape = area<Side>()
    .x(({ x }) => x)
    .y0(({ top }) => top)
    .y1(({ bottom }) => bottom)
    .curve(curveBumpX);
  return shape([start, end]) ?? '';
}

/** What a label of the last column says: the number alone where there is no room for words. */
const leafLabel = ({ streams, label }: FanNode, column: number): string =>
  column < narrow / 3 ? streams.toLocaleString('en') : label;

/** A label ends before those of the next column begin, which are at its right end. */
function labelOf({ data, depth, children = [] }: Placed, column: number): string {
  const room = Math.floor((column - bar - 10) / characterWidth);
  if (depth === 4) return shorten(leafLabel(data, column), Math.max(2, room));
  const before = children.filter((child) => child.depth === 4).map((child) => leafLabel(child.data, column));
  const taken = before.length === 0 ? 0 : Math.max(...before.map(({ length }) => length)) + 2;
  return shorten(data.label, Math.max(4, room - taken));
}

function Node({
  node,
  column,
  query,
}: {
  readonly node: Placed;
  readonly column: number;
  readonly query: Query;
}) {
  const { data, depth, x0, x1 } = node;
  const { label, note, own, shares, streams, filter } = data;
  const x = (depth - 1) * column;
  // The clients' bars are at the right edge: their labels are before them, and share the room with those of the classes.
  const isLast = depth === 4;
  const about = `${label}: ${streams.toLocaleString('en')} ${streams === 1 ? 'stream' : 'streams'}, ${note}`;
  const { class: ofClass = '', state = '' } = filter;
  const isChosen = ofClass !== '' && query['class'] === ofClass && (query['state'] ?? '') === state;
  return (
    <a
      href={hrefOf({ ...query, class: ofClass, state, page: '' }, '#clients')}
      aria-label={about}
      aria-current={isChosen}
    >
      <title>{about}</title>
      <rect
        class="target"
        x={isLast ? x - 4 : x}
        y={x0}
        width={isLast ? bar + 4 : column}
        height={Math.max(1, x1 - x0)}
      />
      {bands(own === 'ok' ? shares : { bad: 0, warn: 0, ok: 0, [own]: 1 }, x0 + gap / 2, x1 - gap / 2).map(
        ({ state, top, bottom }) => (
          <rect
            key={state}
            class={`bar ${state}`}
            x={x}
            y={top}
            width={bar}
            height={Math.max(leastBand, bottom - top)}
            rx={1.5}
          />
        ),
      )}
      <text class={isLast ? 'last' : ''} x={isLast ? x - 6 : x + bar + 5} y={(x0 + x1) / 2 + 4}>
        {labelOf(node, column)}
      </text>
    </a>
  );
}
