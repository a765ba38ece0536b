import { errorLine } from '../model/text.ts';

/** How an answer is shown to people. */
export interface View {
  readonly paint: Paint;
  /** With all columns of its tables, and as wide as they are. */
  readonly wide: boolean;
  /** Of the terminal; infinite: a file or a pipe, or `wide`. */
  readonly columns: number;
}

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

type Style = 'red' | 'yellow' | 'green' | 'bold';

/** Adds a colour, or leaves the text as it is. */
export type Paint = (style: Style, text: string) => string;

/** A text with a colour, where there are any. */
export interface Painted {
  readonly text: string;
  readonly style: Style | undefined;
}

export const painted = (style: Style, text: string): Painted => ({ text, style });

const stateStyles: ReadonlyMap<string, Style> = new Map([
  ['ERROR', 'red'],
  ['MISSING', 'yellow'],
  ['STALE', 'yellow'],
  ['SYNCED', 'green'],
]);

/** The state of a client, or of a name that it has. */
export function stateCell(state: string): Cell {
  const style = stateStyles.get(state);
  return style === undefined ? state : painted(style, state);
}

export type Cell = string | number | Painted;

type Field<Row> = { [Key in keyof Row]: Row[Key] extends Cell ? Key : never }[keyof Row] & string;

/** What a column shows of a row, below its head. `wide`: only with `-o wide`; `rare`: only where a row has something in it. */
type ShownColumn<Row> = readonly [
  head: string,
  cell: Field<Row> | ((row: Row) => Cell),
  ...shown: readonly ('wide' | 'rare')[],
];

/** A field alone has its name as its head. */
export type Column<Row> = Field<Row> | ShownColumn<Row>;

/** A peer's name may have kilobytes. `-o json` has all of it. */
const longestCell = 300;
/** Columns are no wider: what is longer moves the rest of its own line. */
const widestColumn = 60;
/** A last column of this width is one like the others. */
const shortColumn = 24;
/** To fit a terminal, columns become no narrower. */
const narrowestColumn = 8;

/**
 * Columns as wide as their widest cell, two spaces apart; no trailing spaces. Where a terminal has no room for that, a long
 * last column has lines of its own; then the widest columns lose the middle of their cells.
 */
export function textTable<Row>(
  rows: readonly Row[],
  all: readonly Column<Row>[],
  { paint, columns, wide }: View,
): string {
  const shown = all.map(readColumn).filter(({ when }) => wide || !when.includes('wide'));
  const cells = shown.map(({ head, cell, when }) => {
    const own = rows.map((row) => readCell(cell(row)));
    return when.includes('rare') && own.every(({ text }) => text === '') ? [] : [readCell(head)].concat(own);
  });
  const full = cells.filter(({ length }) => length > 0);
  const lines = [undefined, ...rows].map((_, at) => full.map((column) => column[at] ?? readCell('')));
  const longest = full.map((column) => Math.max(...column.map(({ text }) => text.length)));
  const widths = longest.map((width) => Math.min(widestColumn, width));
  const drawn = (own: readonly number[], cut: Cut): string =>
    lines.map((line) => lineText(line, own, paint, cut)).join('\n');
  if (widthOf(longest) <= columns || columns === Number.POSITIVE_INFINITY)
    return drawn(widths, (text) => text);
  if ((longest.at(-1) ?? 0) <= shortColumn) {
    const fitted = fitting(widths, columns);
    return drawn(fitted, (text, at) => elided(text, fitted[at]));
  }
  const fitted = fitting(widths.slice(0, -1), columns);
  const cut: Cut = (text, column) => elided(text, fitted[column]);
  const [head = [], ...others] = lines;
  const name = head.at(-1)?.text.toLowerCase() ?? '';
  const shownLines = [lineText(head.slice(0, -1), fitted, paint, cut)];
  for (const line of others) {
    shownLines.push(lineText(line.slice(0, -1), fitted, paint, cut));
    const { text = '', style } = line.at(-1) ?? {};
    const below = wrapped(`${indentation}${name}: ${wordsWithin(text, columns - 4)}`, columns, 4);
    if (text !== '') shownLines.push(style === undefined ? below : paint(style, below));
  }
  return shownLines.join('\n');
}

const indentation = '\u00A0'.repeat(4);

const widthOf = (widths: readonly number[]): number => widths.reduce((total, width) => total + width + 2, -2);

function fitting(widths: readonly number[], columns: number): readonly number[] {
  const fitted = [...widths];
  for (let over = widthOf(fitted) - columns; over > 0; over--) {
    const widest = Math.max(...fitted);
    if (widest <= narrowestColumn) break;
    fitted[fitted.indexOf(widest)] = widest - 1;
  }
  return fitted;
}

function readColumn<Row>(column: Column<Row>) {
  const [head, what, ...when]: ShownColumn<Row> = typeof column === 'string' ? [column, column] : column;
  const cell = typeof what === 'function' ? what : (row: Row): Cell => String(row[what]);
  // `lastError` is LAST ERROR.
  return { head: head === what ? head.replaceAll(/(?=[A-Z])/g, ' ').toUpperCase() : head, cell, when };
}

function readCell(cell: Cell): Painted {
  const { text, style } = typeof cell === 'object' ? cell : { text: String(cell), style: undefined };
  return { text: errorLine(text, longestCell), style };
}

/** What is shown of a cell. */
type Cut = (text: string, column: number) => string;

function lineText(line: readonly Painted[], widths: readonly number[], paint: Paint, cut: Cut): string {
  const last = line.findLastIndex(({ text }) => text !== '');
  return line
    .slice(0, last + 1)
    .map(({ text: whole, style }, column) => {
      const text = cut(whole, column);
      const space = column === last ? '' : ' '.repeat(Math.max(0, (widths[column] ?? 0) - text.length));
      return (style === undefined ? text : paint(style, text)) + space;
    })
    .join('  ');
}

const wordsWithin = (text: string, width: number): string =>
  text
    .split(' ')
    .map((word) => elided(word, width))
    .join(' ');

/** What is too long for its column loses its middle: names differ at their ends. */
function elided(text: string, width = 0): string {
  if (text.length <= width) return text;
  const end = Math.floor((width - 1) / 2);
  return `${text.slice(0, width - 1 - end)}…${text.slice(text.length - end)}`;
}
