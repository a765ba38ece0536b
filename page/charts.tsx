import { useEffect, useRef } from 'preact/hooks';
import Plot from 'uplot';
import 'uplot/dist/uPlot.min.css';
import type { PageLine } from '../src/admin/page/page-model.ts';
import type { Figure } from '../src/observe/figures.ts';
import { formatBytes } from '../src/observe/format.ts';

interface Chart {
  readonly title: string;
  readonly value: (figure: Figure) => number | null;
  readonly text: (value: number) => string;
  /** Steps of the axis; else round decimal numbers. */
  readonly steps?: number[];
}

const seconds = (value: number): string =>
  value === 0 ? '0' : value < 1 ? `${digits(value * 1000)} ms` : `${digits(value)} s`;
export const rounded = (value: number): string => (value === 0 ? '0' : digits(value));
/** Two digits at least, and no fraction of what is large. */
function digits(value: number): string {
  return value >= 10 ? Math.round(value).toLocaleString('en') : String(Number(value.toPrecision(2)));
}

const powersOfTwo = Array.from({ length: 24 }, (_, index) => 2 ** (20 + index));

const charts: readonly Chart[] = [
  { title: 'Updates to clients per second', value: ({ updates }) => updates, text: rounded },
  { title: 'Receipt to ACK, 99%', value: ({ acknowledged }) => acknowledged, text: seconds },
  { title: 'Streams', value: ({ streams }) => streams, text: rounded },
  { title: 'Memory', value: ({ memory }) => memory, text: formatBytes, steps: powersOfTwo },
  { title: 'Event loop busy', value: ({ busy }) => busy, text: (part) => `${Math.round(part * 100)}%` },
];

/** The last five minutes. */
export function Charts({ figures }: { readonly figures: readonly Figure[] }) {
  return (
    <section class="charts" aria-labelledby="charts">
      <h2 id="charts">Last five minutes</h2>
      {charts.map((chart) => (
        <Figure key={chart.title} chart={chart} figures={figures} />
      ))}
    </section>
  );
}

function Figure({ chart, figures }: { readonly chart: Chart; readonly figures: readonly Figure[] }) {
  const values = figures.map((figure) => chart.value(figure));
  const last = values.findLast((value) => value !== null) ?? undefined;
  return (
    <figure>
      <figcaption>
        {chart.title} <strong>{last === undefined ? '–' : chart.text(last)}</strong>
      </figcaption>
      <Graph
        at={figures.map(({ at }) => at)}
        lines={[{ kind: 'value', values }]}
        text={chart.text}
        steps={chart.steps}
        mostSeconds={shownSeconds}
      />
    </figure>
  );
}

type GraphLine = Pick<PageLine, 'kind' | 'values'>;

interface GraphProps {
  /** Milliseconds since the epoch. */
  readonly at: readonly number[];
  readonly lines: readonly GraphLine[];
  readonly text: (value: number) => string;
  /** Steps of the axis; else round decimal numbers. */
  readonly steps?: number[] | undefined;
  /** What is older is not shown. */
  readonly mostSeconds?: number;
}

/** A picture alone: the words are the caller's. */
export function Graph(props: GraphProps) {
  const { at, lines } = props;
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<Plot>(undefined);
  const now = useRef(props);
  now.current = props;
  useEffect(() => {
    const element = box.current;
    if (element === null) return undefined;
    const make = (): void => {
      plot.current?.destroy();
      plot.current = new Plot(options(now.current, element), dataOf(now.current), element);
    };
    make();
    const resized = new ResizeObserver(() => plot.current?.setSize(sizeOf(element)));
    resized.observe(element);
    // A canvas does not follow the colours of the page.
    const scheme = matchMedia('(prefers-color-scheme: dark)');
    scheme.addEventListener('change', make);
    return () => {
      resized.disconnect();
      scheme.removeEventListener('change', make);
      plot.current?.destroy();
      plot.current = undefined;
    };
  }, [lines.map(({ kind }) => kind).join(' ')]);
  useEffect(() => plot.current?.setData(dataOf(props)), [at, lines]);
  return <div class="plot" ref={box} aria-hidden="true" />;
}

const dataOf = ({ at, lines }: GraphProps): Plot.AlignedData => [
  at.map((time) => time / 1000),
  ...lines.map(({ values: [first = null, ...rest] }) =>
    rest.length === 0 ? at.map(() => first) : [first, ...rest],
  ),
];

const height = 88;
const shownSeconds = 300;
const leastSeconds = 30;

function sizeOf({ clientWidth }: HTMLElement): { width: number; height: number } {
  return { width: Math.max(120, clientWidth), height };
}

function options(
  { lines, text, steps, mostSeconds = Infinity }: GraphProps,
  element: HTMLElement,
): Plot.Options {
  const colors = getComputedStyle(element);
  const color = (name: string): string => colors.getPropertyValue(name).trim();
  const axis = { stroke: color('--dim'), font: '11px system-ui, sans-serif', ticks: { show: false } };
  const grid = { stroke: color('--line'), width: 1 };
  const isBounded = lines.some(({ kind }) => kind === 'bound');
  // A line needs two.
  const points: Plot.Series.Points = { show: ({ data: [times] }) => times.length < 3, size: 5 };
  const styles: Readonly<Record<GraphLine['kind'], Plot.Series>> = {
    value: { stroke: color('--accent'), width: 1.5, fill: color('--accent-soft'), points },
    other: { stroke: color('--dim'), width: 1.5, points },
    bound: { stroke: color('--bad'), width: 1, dash: [5, 4], points: { show: false } },
  };
  return {
    ...sizeOf(element),
    legend: { show: false },
    cursor: { drag: { x: false, y: false }, y: false, points: { size: 5 } },
    padding: [6, 24, 0, 0],
    scales: {
      x: { range: (plot) => shownTime(plot, mostSeconds) },
      y: { range: (_plot, least, most) => (isBounded ? shownValues(least, most) : fromZero(most)) },
    },
    axes: [
      {
        ...axis,
        grid: { show: false },
        size: 22,
        gap: 8,
        values: (_plot, times) => clocks(times),
        space: 60,
      },
      {
        ...axis,
        grid,
        size: 62,
        values: (_plot, ticks) => ticks.map(text),
        space: 30,
        ...(steps && { incrs: steps }),
      },
    ],
    series: [{}, ...lines.map(({ kind }) => ({ ...styles[kind], spanGaps: false }))],
  };
}

const fromZero = (most: number): Plot.Range.MinMax => [0, most > 0 ? most * 1.15 : 1];

/** From 0, but for values that are all far from it: else nobody would see how near a bound is. */
function shownValues(least: number, most: number): Plot.Range.MinMax {
  const room = (most - least) * 0.15;
  if (least < 0 || least > most / 2) {
    const around = room === 0 ? Math.abs(most) * 0.05 : room;
    return [least - around, most + around];
  }
  return fromZero(most);
}

/** Up to the last point, or to now; a relay that has just started has less than five minutes. */
function shownTime({ data: [times] }: Plot, mostSeconds: number): Plot.Range.MinMax {
  const last = times.at(-1) ?? Date.now() / 1000;
  const first = times[0] ?? last;
  return [last - Math.min(mostSeconds, Math.max(leastSeconds, last - first)), last];
}

/** With seconds where marks are closer than a minute: else all would be the same. */
function clocks(times: readonly number[]): string[] {
  const seconds = times.some((time) => time % 60 > 0) ? ({ second: '2-digit' } as const) : {};
  const format = { hour: '2-digit', minute: '2-digit', ...seconds } as const;
  return times.map((time) => new Date(time * 1000).toLocaleTimeString('en-GB', format));
}
