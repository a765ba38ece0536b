import { errorLine } from '../model/error-text.ts';
import type { Paint, Style } from './paint.ts';

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
