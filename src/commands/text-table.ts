/** Columns as wide as their widest cell, two spaces apart; no trailing spaces. */
export function textTable(heads: readonly string[], rows: readonly (readonly (string | number)[])[]): string {
  const lines = [heads, ...rows].map((row) => row.map((cell) => printable(String(cell))));
  const widths = heads.map((_, column) => Math.max(...lines.map((line) => (line[column] ?? '').length)));
  return lines
    .map((line) =>
      line
        .map((cell, column) => cell.padEnd(widths[column] ?? 0))
        .join('  ')
        .trimEnd(),
    )
    .join('\n');
}

/** What peers say may hold line ends and terminal escapes: neither must reach the operator's terminal. */
export function printable(text: string): string {
  return text.replaceAll(/\p{Cc}+/gu, ' ');
}
