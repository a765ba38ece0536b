import { printable, shorten } from '../src/model/text.ts';

/** Names come from peers. They may have kilobytes, and marks that turn the direction of text. */
const longest = 120;

export function shown(text: string, most = longest): string {
  return printable(shorten(text, most));
}
