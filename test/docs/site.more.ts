import { existsSync, globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'chai';
import { buildSite, installGenerator } from '../../scripts/site/build-site.ts';
import { fail, ok, type Result } from '../../src/model/result.ts';
import { temporaryDirectory } from '../e2e/support/paths.ts';
import { need } from '../e2e/support/skip.ts';
import { slowness } from '../support/cpu.ts';
import { pages } from './page.ts';

async function generator(): Promise<Result<true>> {
  try {
    installGenerator();
    return ok(true);
  } catch (error) {
    return fail(`the site of the documents needs Python with venv and pip: ${String(error)}`);
  }
}

/** Seconds of CPU of the processes that this one has waited for, from the kernel (Linux); elsewhere none. */
function ofChildren(): number {
  if (process.platform !== 'linux') return 0;
  const stat = readFileSync('/proc/self/stat', 'utf8');
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  return (Number(fields[13]) + Number(fields[14])) / 100 / slowness();
}

describe('the site of the documents', function () {
  this.timeout(500_000);

  it('has every page, no link that leads nowhere, and a search', async function () {
    await need(this, generator());
    using directory = temporaryDirectory();
    const output = join(directory.path, 'site');
    const before = ofChildren();
    buildSite(output); // throws at a link that leads nowhere
    expect(ofChildren() - before, 'seconds of CPU').to.be.below(60);
    const missing = pages
      .map((page) => page.replace(/README[.]md$/, 'index.html').replace(/[.]md$/, '.html'))
      .filter((page) => !existsSync(join(output, page)));
    expect(missing).to.deep.equal([]);
    const index = readFileSync(join(output, 'search.json'), 'utf8');
    for (const word of ['max_upstream_sessions', 'Persistence and siblings']) expect(index).to.include(word);
  });

  it('loads nothing from elsewhere, and understands every fence', async function () {
    await need(this, generator());
    using directory = temporaryDirectory();
    buildSite(directory.path);
    const home = readFileSync(join(directory.path, 'index.html'), 'utf8');
    expect(home.match(/<(?:script|link|img)[^>]+(?:src|href)="?https?:[^>]*>/g) ?? []).to.deep.equal([]);
    const wrong = globSync('**/*.html', { cwd: directory.path }).filter((path) =>
      /<p>[^<]*```/.test(readFileSync(join(directory.path, path), 'utf8')),
    );
    expect(wrong).to.deep.equal([]);
  });
});
