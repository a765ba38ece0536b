import { globSync, readFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { expect } from 'chai';
import { blocksOf, proseOf, read } from '../docs/page.ts';
import { root } from '../e2e/support/paths.ts';
import { notRehearsed } from '../e2e/support/runbook.ts';

const pages = globSync('docs/runbooks/*.md', { cwd: root });
const runbooks = pages.map((page) => basename(page, '.md')).filter((name) => name !== 'README');

describe('runbooks', () => {
  it('are all in their list', () => {
    const list = read('docs/runbooks/README.md');
    for (const name of runbooks) expect(list).to.include(`(${name}.md)`);
  });

  it('are rehearsed, each in the state that it is for, or have a reason why not', () => {
    const tests = globSync('test/e2e/{problems,certificates}*.ts', { cwd: root }).map((file) =>
      readFileSync(join(root, file), 'utf8'),
    );
    const rehearsed = tests.flatMap((text) =>
      Array.from(text.matchAll(/\brunbook: '([a-z-]+)'/g), ([, name = '']) => name),
    );
    expect([...new Set([...rehearsed, ...notRehearsed.keys()])].toSorted()).to.deep.equal(
      runbooks.toSorted(),
    );
    for (const name of notRehearsed.keys()) expect(rehearsed).not.to.include(name);
  });

  it('have what is typed in blocks of their own, where a test reads it', () => {
    for (const name of runbooks.filter((one) => !notRehearsed.has(one))) {
      const page = `docs/runbooks/${name}.md`;
      expect(
        blocksOf(page).map(({ info }) => info),
        page,
      ).to.include('sh');
      expect(proseOf(page), page).not.to.match(/`distributary (?!status`)[a-z]/);
    }
  });
});
