import { styleText } from 'node:util';
import type { Terminal } from './usage.ts';

export type Style = 'red' | 'yellow' | 'green' | 'bold';

/** Adds a colour, or leaves the text as it is. */
export type Paint = (style: Style, text: string) => string;

/** Colours are for terminals that have them: not for files and pipes, and not with NO_COLOR. */
export function painter({ screen }: Terminal): Paint {
  if (screen?.colours !== true) return (_, text) => text;
  return (style, text) => styleText(style, text, { validateStream: false });
}
