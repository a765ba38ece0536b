import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'chai';
import { blocksOf } from '../../../page/runbook-blocks.ts';
import { root } from '../../e2e/support/paths.ts';

describe('runbooks on the page', () => {
  for (const path of globSync('docs/runbooks/*.md', { cwd: root, exclude: ['**/README.md'] })) {
    it(`${path}: nothing is lost, and nothing is more than the page knows`, () => {
      const text = readFileSync(join(root, path), 'utf8');
      const blocks = blocksOf(text);
      const fences = (text.match(/^ *```/gm) ?? []).length;
      const code = blocks.filter(({ kind }) => kind === 'sh' || kind === 'pre');
      expect(code, 'blocks of code').to.have.length(fences / 2);
      const written = text.split('\n').filter((line) => line.trim() !== '' && !/^ *```/.test(line));
      const bare = written.map((line) => line.replace(/^(#+|-|\d+\.) /, '').trim());
      expect(blocks.flatMap(({ lines }) => lines.map((line) => line.trim()))).to.deep.equal(bare);
      let step = 0;
      for (const { kind, lines, start } of blocks) {
        if (kind === 'h3') step = 0;
        if (kind === 'sh' || kind === 'pre') continue;
        for (const line of lines) {
          // A paragraph within a step is one like any other.
          const shown = kind === 'p' ? line.trim() : line;
          expect(shown, 'a mark that the page does not know').to.not.match(/^\s|^([-*>|]|\d+\.|```) ?/);
        }
        if (start === undefined) continue;
        expect(start, lines[0]).to.equal(step + 1);
        step += lines.length;
      }
    });
  }
});
