import { execFileSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { expect } from 'chai';
import { resourceName } from '../../src/model/brand.ts';
import { internParameters, NO_PARAMETERS } from '../../src/model/parameters.ts';
import { covers, coversResource, Selection } from '../../src/model/selection.ts';

const glob = 'xdstp://a/envoy.config.listener.v3.Listener/x/*';
const member = 'xdstp://a/envoy.config.listener.v3.Listener/x/y';

describe('what a selector covers (protocol §6)', () => {
  for (const [selector, name, expected] of [
    ['*', 'a', true],
    ['*', member, true],
    ['a', 'a', true],
    ['a', 'b', false],
    ['a/*', 'a/b', false],
    [glob, member, true],
    [glob, `${member}/z`, false],
    [glob, 'a', false],
    [member, member, true],
    [member, glob, false],
  ] as const) {
    it(`${selector} ${expected ? 'covers' : 'does not cover'} ${name}`, () => {
      expect(covers(resourceName(selector), resourceName(name))).to.equal(expected);
    });
  }

  it('a resource is covered by its name and by its aliases, but not by a glob over an alias', () => {
    const resource = { name: resourceName('a'), aliases: ['b', member] };
    const covered = ['*', 'a', 'b', 'c', member, glob].filter((selector) =>
      coversResource(resourceName(selector), resource),
    );
    expect(covered).to.deep.equal(['*', 'a', 'b', member]);
  });
});

const select = (...names: readonly string[]): Selection =>
  Selection.of(
    names.map((name) => ({
      selector: resourceName(name),
      requestedName: name,
      locator: false,
      parameters: NO_PARAMETERS,
      locatorParameters: undefined,
    })),
  );

describe("a selection's hash", () => {
  it('is the same in any order, and another for other names', () => {
    expect(select('a', 'b', 'cd').hash).to.equal(select('cd', 'b', 'a').hash);
    const hashes = ['', 'a', 'aa', 'a\0', 'b'].map((name) => select(name).hash);
    expect(new Set(hashes).size).to.equal(hashes.length);
  });

  it('counts what locators came with, in any order, where a trusted parameter makes them one entry', () => {
    const parameters = internParameters([['env', 'prod']]);
    const locators = (...environments: readonly string[]): Selection =>
      Selection.of(
        environments.map((env) => ({
          selector: resourceName('x'),
          requestedName: 'x',
          locator: true,
          parameters,
          locatorParameters: internParameters([['env', env]]),
        })),
      );
    const both = locators('a', 'b');
    expect([both.equals(locators('b', 'a')), both.hash === locators('b', 'a').hash]).to.deep.equal([
      true,
      true,
    ]);
    expect(locators('a').equals(locators('b'))).to.equal(false);
    expect(locators('a').hash, 'each has a bucket of its own').not.to.equal(locators('b').hash);
  });

  it('is keyed: another process has others', () => {
    const source = fileURLToPath(new URL('../../src/model/selection.ts', import.meta.url));
    const script = `import { keyedHash } from ${JSON.stringify(source)}; console.log(keyedHash(1, 'a'))`;
    const run = (): string =>
      execFileSync(process.execPath, ['--input-type=module', '--eval', script], { encoding: 'utf8' });
    expect(run()).to.not.equal(run());
  });

  it('stands names that are chosen so that sums collide whatever the key', () => {
    // Of names that differ in one bit of their last character, hashes of the FNV family differ by one constant.
    const pairs = Array.from({ length: 1000 }, (_, at): [string, string] => [`x${at}`, `z${at}`]);
    const collisions = pairs.filter(
      ([x, z]) => select(`${x}b`, `${z}c`).hash === select(`${x}c`, `${z}b`).hash,
    );
    expect(collisions).to.be.empty;
  });
});
