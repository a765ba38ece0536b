import { existsSync, globSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { expect } from 'chai';
import { end, reference, start } from '../../scripts/config-reference.ts';
import { Metrics } from '../../src/observe/metrics.ts';
import { rejections } from '../../src/observe/rejections.ts';
import { fixedKeys } from '../../src/reload-effect.ts';
import { envoyBinary } from '../e2e/support/envoy-binary.ts';
import { root, temporaryDirectory } from '../e2e/support/paths.ts';
import { run } from '../e2e/support/process.ts';
import { need } from '../e2e/support/skip.ts';
import { blocksOf, pages, proseOf, read } from './page.ts';

/** The fenced blocks of a page with this info string. */
const blocks = (page: string, info: string): readonly string[] =>
  blocksOf(page)
    .filter((block) => block.info === info)
    .map(({ text }) => text);

/** The anchors that GitHub and the site make of a page's headings. */
const anchorsOf = (page: string): readonly string[] =>
  [...proseOf(page).matchAll(/^#+ (.*)$/gm)].map(([, heading = '']) =>
    heading
      .replaceAll(/\[([^\]]*)\]\([^)]*\)/g, '$1')
      .toLowerCase()
      .replaceAll(/[^\p{L}\p{N}\s_-]/gu, '')
      .trim()
      .replaceAll(/\s/g, '-'),
  );

/** What stands in backticks in each line. */
function* codes(page: string): Iterable<readonly string[]> {
  for (const line of read(page).split('\n'))
    yield [...line.matchAll(/`([^`]+)`/g)].map(([, code = '']) => code);
}

describe('the documentation', () => {
  it('names files that exist, and functions that are in them', () => {
    const wrong: string[] = [];
    for (const page of pages) {
      for (const line of codes(page)) {
        let files: string[] = [];
        let fresh = true;
        for (const code of line) {
          if (/^(src|test|docs|deploy|bench|scripts|proto)\/[\w./-]*$/.test(code)) {
            if (!existsSync(join(root, code))) wrong.push(`${page}: ${code} does not exist`);
            else if (code.endsWith('.ts')) files = fresh ? [code] : [...files, code];
            fresh = false;
          } else if (/^#?[A-Za-z]\w*\(\)$|^#[A-Za-z]\w*$/.test(code) && files.length > 0) {
            const name = code.replace(/\(\)$/, '');
            const found = files.some((file) => new RegExp(`${name.replace('#', '\\#')}\\b`).test(read(file)));
            if (!found) wrong.push(`${page}: there is no ${name} in ${files.join(', ')}`);
          }
        }
      }
    }
    expect(wrong).to.deep.equal([]);
  });

  it('has no marks of a merge that was not finished', () => {
    expect(pages.filter((page) => /^(<{7} |={7}$|>{7} )/m.test(read(page)))).to.deep.equal([]);
  });

  it('says beside operations on changes that they are of one replica', () => {
    const operation = /^.*\bdistributary (?:freeze|unfreeze|rollback|release|discard|promote) /m;
    const several = pages.filter((page) => /^docs\/(?:runbooks|how-to|kubernetes)/.test(page));
    const silent = several.filter(
      (page) => operation.test(read(page)) && !read(page).includes('safe-change.md#with-several-replicas'),
    );
    expect(silent).to.deep.equal([]);
  });

  it('lists the keys that only a restart changes', () => {
    const [, list = ''] =
      /take effect with the next start[^:]*: ([^]*?)\. /.exec(read('docs/operations.md')) ?? [];
    expect(Array.from(list.matchAll(/`([^`]+)`/g), ([, key]) => key)).to.deep.equal(fixedKeys);
  });

  it('has a glossary of names that are in the code', () => {
    const sources = globSync('src/**/*.ts', { cwd: root }).map(read).join('\n');
    const names = [...codes('docs/glossary.md')]
      .flat()
      .filter((code) => /^[A-Za-z]+(\.[A-Za-z]+)?$/.test(code))
      .flatMap((code) => code.split('.'));
    expect(names.length).to.be.above(30);
    expect(names.filter((name) => !new RegExp(`\\b${name}\\b`).test(sources))).to.deep.equal([]);
  });

  it('has links that lead somewhere, to headings too', () => {
    const wrong: string[] = [];
    for (const page of pages) {
      for (const [, path = '', anchor] of proseOf(page).matchAll(/\]\(([^)#\s]*)(?:#([^)]*))?\)/g)) {
        if (/^https?:/.test(path)) continue;
        const target = path === '' ? page : join(dirname(page), path);
        if (!existsSync(join(root, target))) wrong.push(`${page}: ${path} does not exist`);
        else if (anchor !== undefined && target.endsWith('.md') && !anchorsOf(target).includes(anchor))
          wrong.push(`${page}: ${target} has no heading #${anchor}`);
      }
    }
    expect(wrong).to.deep.equal([]);
  });

  it('has the reference of the configuration as the code has it (else: node scripts/config-schema.ts)', () => {
    const text = read('docs/configuration.md');
    const found = text.slice(text.indexOf(start) + start.length, text.indexOf(end)).trim();
    expect(found).to.equal(reference());
  });

  it('names metrics that exist', async () => {
    const metrics = new Metrics();
    metrics.relay('', () => ({}));
    metrics.persistence(() => ({}));
    // The propagation of a primary to its workers goes by another name.
    const text = `${await metrics.text()}\n# TYPE distributary_worker_feed_seconds histogram`;
    for (const page of pages) {
      for (const [name] of read(page).matchAll(/(?<!:)\bdistributary_[a-z_]+/g)) {
        expect(text, page).to.include(`# TYPE ${name.replace(/_(bucket|sum|count)$/, '')} `);
      }
    }
  });

  it('tells every reason for which clients are turned away, and counts it from 0', async () => {
    const given = new Set(['streams', 'draining']);
    for (const file of globSync('src/**/*.ts', { cwd: root, exclude: ['src/gen/**'] })) {
      for (const [, reason = ''] of read(file).matchAll(
        /(?:#refuse\(|[.]rejected\(|reason: )'([a-z_]+)'[,)]/g,
      ))
        given.add(reason);
    }
    expect([...rejections.keys()]).to.include.members([...given]);
    const metrics = await new Metrics().text();
    for (const reason of rejections.keys()) expect(metrics).to.include(`{reason="${reason}"} 0`);
  });

  it('gives the status of each reason as the code does', () => {
    const wrong: string[] = [];
    for (const file of globSync('src/**/*.ts', { cwd: root, exclude: ['src/gen/**'] })) {
      for (const [, reason = '', status] of read(file).matchAll(
        /(?:#refuse\(|reason: )'([a-z_]+)',\s+(?:status: )?\{\s*code: Code[.]([A-Z_]+)/g,
      ))
        if (reason !== 'rate' && rejections.get(reason)?.code !== status)
          wrong.push(`${file}: ${reason} ${status}`);
    }
    expect(wrong).to.deep.equal([]);
  });

  it('has each rule of the protocol that code and tests cite, and names its tests', () => {
    const text = read('docs/protocol.md');
    const cited = new Set<string>();
    for (const file of globSync('{src,test}/**/*.{ts,txt}', { cwd: root, exclude: ['src/gen/**'] })) {
      for (const [, rule = ''] of read(file).matchAll(/protocol §(\d+b?(?:\.\d+)?)/g)) cited.add(rule);
    }
    expect(cited.size).to.be.above(20);
    const missing = [...cited].filter(
      (rule) => !text.includes(`\n**${rule} `) && !text.includes(`\n## ${rule}. `),
    );
    expect(missing).to.deep.equal([]);
    const rules = text.split(/\n(?=\*\*\d+b?\.\d+ )/).slice(1);
    expect(rules.length).to.be.above(50);
    for (const rule of rules) expect(rule, rule.slice(0, 40)).to.match(/Test: `test\//);
    const tests = new Set(Array.from(text.matchAll(/`(test\/[^`]+)`/g), ([, file = '']) => file));
    expect([...tests].filter((file) => !existsSync(join(root, file)))).to.deep.equal([]);
  });

  it('has the two commands of the README', () => {
    expect(blocks('README.md', 'sh').map((text) => text.trim())).to.include.members([
      'npm ci && npm start',
      'npm ci && npm test',
    ]);
  });

  it('has a bootstrap that Envoy takes', async function () {
    const envoy = await need(this, envoyBinary());
    using directory = temporaryDirectory();
    const [bootstrap = ''] = blocks('docs/how-to/first-relay.md', 'yaml envoy');
    const path = join(directory.path, 'envoy.yaml');
    writeFileSync(path, bootstrap);
    await run({ command: envoy, args: ['--mode', 'validate', '-c', path] });
  });

  it('numbers the decisions, and lists each of them', () => {
    const files = globSync('docs/adr/[0-9]*.md', { cwd: root });
    const index = read('docs/adr/README.md');
    const numbers = files.map((file) => /(\d{4})-/.exec(file)?.[1]);
    expect(numbers).to.have.length(new Set(numbers).size);
    for (const file of files) {
      expect(index, file).to.include(`(${file.slice('docs/adr/'.length)})`);
      for (const part of ['## Decision', '## Consequences']) expect(read(file), file).to.include(part);
    }
  });
});
