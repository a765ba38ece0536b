import { expect } from 'chai';
import { ResourceFiles } from '../e2e/support/files.ts';
import { RelayProcess } from '../e2e/support/relay.ts';
import { need } from '../e2e/support/skip.ts';
import { h2specEitherWay, h2specExceptions } from './h2spec-exceptions.ts';
import { type Cases, h2specBinary, runH2spec } from './support/h2spec.ts';
import type { Target } from './support/target.ts';

/** As many as h2spec has, so that a part of it is not taken for all. */
const count = 145;

const failing = (cases: Cases): readonly string[] =>
  [...cases].flatMap(([name, outcome]) => (outcome === 'passed' ? [] : [name]));

describe('h2spec', function () {
  this.timeout(240_000);

  it('every case passes, or stands in h2spec-exceptions.ts with the reason', async function () {
    const binary = await need(this, h2specBinary());
    using files = new ResourceFiles();
    files.write('cds', new Map([['shop', 'x']]));
    await using relay = await RelayProcess.start({ upstreams: [files.upstream] });
    const [host = '', port = ''] = relay.xds.split(':');
    const target: Target = { host, port: Number(port) };
    const cases = new Map(await runH2spec(binary, target, 1));
    expect(cases.size).to.equal(count);
    expect([...cases.keys()]).to.include.members([...h2specEitherWay]);
    const sections = [...cases].flatMap(([name, outcome]) =>
      outcome !== 'passed' && !h2specExceptions.has(name) ? [name.slice(0, name.indexOf(':'))] : [],
    );
    // A second may be too short on a busy machine.
    if (sections.length > 0) {
      for (const [name, outcome] of await runH2spec(binary, target, 5, [...new Set(sections)]))
        cases.set(name, outcome);
    }
    const always = failing(cases).filter((name) => !h2specEitherWay.has(name));
    expect(always, 'what does not pass').to.have.members([...h2specExceptions.keys()]);
  });
});
