import { printable } from '../model/printable.ts';

/** Text that is HTML already. */
export class Html {
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }
}

const escapes: ReadonlyMap<string, string> = new Map([
  ['&', '&amp;'],
  ['<', '&lt;'],
  ['>', '&gt;'],
  ['"', '&quot;'],
  ["'", '&#39;'],
]);

type Part = Html | string | number | readonly Html[];

/**
 * Escapes every value that is not Html, because names and errors come from peers; control characters and marks of
 * direction too. Attributes must be in quotes.
 */
export function html(strings: TemplateStringsArray, ...parts: readonly Part[]): Html {
  const texts = parts.map(render);
  return new Html(strings.map((text, index) => text + (texts[index] ?? '')).join(''));
}

function render(part: Part): string {
  if (part instanceof Html) return part.text;
  if (typeof part === 'object') return part.map(({ text }) => text).join('');
  return printable(String(part)).replaceAll(/[&<>"']/g, (character) => escapes.get(character) ?? '');
}
