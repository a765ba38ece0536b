import { printable } from '../src/model/text.ts';

/** Names come from peers. They may have kilobytes, and marks that turn the direction of text. */
const longest = 120;

export function shown(text: string, most = longest): string {
  return printable(text.length <= most ? text : `${text.slice(0, most - 1)}…`);
}
