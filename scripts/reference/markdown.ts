/** The top of a page that is generated. */
export const heading = (title: string, about: string): string =>
  `# ${title}\n\n<!-- Written by scripts/reference.ts. Do not edit. -->\n\n${about}\n`;

export function table(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const line = (cells: readonly string[]): string => `| ${cells.map(cell).join(' | ')} |`;
  return [line(head), `|${head.map(() => '-').join('|')}|`, ...rows.map(line)].join('\n');
}

export const code = (text: string): string => `\`${text}\``;

/** Keys of the configuration are set as code. */
export const withKeys = (text: string): string =>
  text.replaceAll(/\b(?:limits|xds|rest|cache)\.[a-z_]+\b|\b[a-z]+_[a-z_]+\b/g, code);

const cell = (text: string): string => text.replaceAll('|', '\\|').replaceAll('<', '&lt;');
