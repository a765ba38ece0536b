import { type Html, html } from './html.ts';

export interface Column<Row> {
  readonly title: string;
  readonly number?: boolean;
  readonly mono?: boolean;
  readonly cell: (row: Row) => Html | string | number | readonly Html[];
}

/** `empty` is said where there is no row. */
export function table<Row>(columns: readonly Column<Row>[], rows: readonly Row[], empty: string): Html {
  if (rows.length === 0) return html`<p class="none">${empty}</p>`;
  const heads = columns.map((column) => html`<th class="${classOf(column)}">${column.title}</th>`);
  const lines = rows.map((row) => {
    const cells = columns.map((column) => html`<td class="${classOf(column)}">${column.cell(row)}</td>`);
    return html`<tr>${cells}</tr>`;
  });
  return html`<div class="scroll"><table><thead><tr>${heads}</tr></thead><tbody>${lines}</tbody></table></div>`;
}

function classOf<Row>({ number, mono }: Column<Row>): string {
  if (number === true) return 'number';
  return mono === true ? 'mono' : '';
}
