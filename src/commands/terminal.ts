import { styleText } from 'node:util';
import { errorLine } from '../model/error-text.ts';

/** Where a command writes, and its environment: the process's, or a test's. */
export interface Terminal {
  readonly out: (text: string) => void;
  readonly err: (text: string) => void;
  readonly environment: Readonly<Record<string, string | undefined>>;
  /** Of `out`; left out: it is a file or a pipe. */
  readonly screen?: Screen | undefined;
}

interface Screen {
  readonly colours: boolean;
  /** Its size, called each time. */
  readonly rows: () => number;
  readonly columns: () => number;
}

export const processTerminal: Terminal = {
  out: (text) => process.stdout.write(text),
  err: (text) => process.stderr.write(text),
  environment: process.env,
  screen: process.stdout.isTTY
    ? {
        colours: process.stdout.hasColors(),
        rows: () => process.stdout.rows,
        columns: () => process.stdout.columns,
      }
    : undefined,
};

/** As wide as the terminal; 80 for a file, unless COLUMNS is exported. */
export const columnsOf = ({ screen, environment }: Terminal): number =>
  Math.max(40, screen?.columns() ?? (Number(environment['COLUMNS']) || 80));

/** How an answer is shown to people. */
export interface View {
  readonly paint: Paint;
  /** With all columns of its tables. */
  readonly wide: boolean;
}

export const viewOf = (terminal: Terminal, wide: boolean): View => ({ paint: painter(terminal), wide });

/** Broken at spaces; the lines after the first are indented. A non-breaking space stays, and becomes a space. */
export function wrapped(text: string, columns: number, indent: number): string {
  const lines: string[] = [];
  let line = '';
  for (const word of text.split(' ')) {
    const longer = line === '' ? word : `${line} ${word}`;
    if (longer.length <= columns || line.trim() === '') line = longer;
    else {
      lines.push(line);
      line = ' '.repeat(indent) + word;
    }
  }
  return [...lines, line].join('\n').replaceAll('\u00A0', ' ');
}

export type Style = 'red' | 'yellow' | 'green' | 'bold';

/** Adds a colour, or leaves the text as it is. */
export type Paint = (style: Style, text: string) => string;

/** Colours are for terminals that have them: not for files and pipes, and not with NO_COLOR. */
function painter({ screen }: Terminal): Paint {
  if (screen?.colours !== true) return (_, text) => text;
  return (style, text) => styleText(style, text, { validateStream: false });
}

/** A text with a colour, where there are any. */
export interface Painted {
  readonly text: string;
  readonly style: Style;
}

export const painted = (style: Style, text: string): Painted => ({ text, style });

export type Cell = string | number | Painted;

/** A peer's name may have kilobytes. `--json` has all of it. */
const longestCell = 300;
/** Columns are no wider: what is longer moves the rest of its own line. */
const widestColumn = 60;

/** Columns as wide as their widest cell, two spaces apart; no trailing spaces. */
export function textTable(
  heads: readonly string[],
  rows: readonly (readonly Cell[])[],
  paint: Paint = (_, text) => text,
): string {
  const lines = [heads, ...rows].map((row) => row.map(readCell));
  const widths = heads.map((_, column) =>
    lines.reduce(
      (widest, line) => Math.min(widestColumn, Math.max(widest, line[column]?.text.length ?? 0)),
      0,
    ),
  );
  return lines.map((line) => lineText(line, widths, paint)).join('\n');
}

interface ReadCell {
  readonly text: string;
  readonly style: Style | undefined;
}

function readCell(cell: Cell): ReadCell {
  const { text, style } = typeof cell === 'object' ? cell : { text: String(cell), style: undefined };
  return { text: errorLine(text, longestCell), style };
}

function lineText(line: readonly ReadCell[], widths: readonly number[], paint: Paint): string {
  const last = line.findLastIndex(({ text }) => text !== '');
  return line
    .slice(0, last + 1)
    .map(({ text, style }, column) => {
      const space = column === last ? '' : ' '.repeat(Math.max(0, (widths[column] ?? 0) - text.length));
      return (style === undefined ? text : paint(style, text)) + space;
    })
    .join('  ');
}

export interface SignalWait {
  readonly promise: Promise<NodeJS.Signals>;
  /** Stops waiting. */
  release(): void;
}

/** Waits for the first of these signals. A second one ends the process at once, because the handlers are gone by then. */
export function firstSignal(...signals: readonly NodeJS.Signals[]): SignalWait {
  const { promise, resolve } = Promise.withResolvers<NodeJS.Signals>();
  const release = (): void => {
    for (const signal of signals) process.off(signal, caught);
  };
  const caught = (signal: NodeJS.Signals): void => {
    release();
    resolve(signal);
  };
  for (const signal of signals) process.on(signal, caught);
  return { promise, release };
}
