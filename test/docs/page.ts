import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { root } from '../e2e/support/paths.ts';

/** All documents, from the project's root. */
export const pages: readonly string[] = [
  'README.md',
  'CHANGELOG.md',
  'CONTRIBUTING.md',
  'SECURITY.md',
  ...globSync('{docs,deploy}/**/*.md', { cwd: root }),
];

/** A fenced block of a page: what stands after the fence, and the text inside. */
export interface Block {
  readonly info: string;
  readonly text: string;
}

export const read = (path: string): string => readFileSync(join(root, path), 'utf8');

/** The fenced blocks of a page, in order; those in lists are indented. */
export const blocksOf = (page: string): readonly Block[] => blocksIn(read(page));

/** Those of a text. */
export function blocksIn(page: string): readonly Block[] {
  return [...page.matchAll(/^( *)```(.*)\n([^]*?)^\1```$/gm)].map(
    ([, indent = '', info = '', text = '']) => ({
      info,
      text: indent === '' ? text : text.replaceAll(new RegExp(`^${indent}`, 'gm'), ''),
    }),
  );
}

/** A page without its fenced blocks. */
export const proseOf = (page: string): string => read(page).replaceAll(/^( *)```.*\n[^]*?^\1```$/gm, '');
