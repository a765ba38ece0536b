import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { root } from '../e2e/support/paths.ts';

/** A fenced block of a page: what stands after the fence, and the text inside. */
export interface Block {
  readonly info: string;
  readonly text: string;
}

/** The fenced blocks of a page, in order. */
export function blocksOf(page: string): readonly Block[] {
  const text = readFileSync(join(root, page), 'utf8');
  return [...text.matchAll(/^```(.*)\n([^]*?)^```$/gm)].map(([, info = '', inner = '']) => ({
    info,
    text: inner,
  }));
}
