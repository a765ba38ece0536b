import { expect } from 'chai';
import { resourceName } from '../../src/model/brand.ts';
import { covers, coversResource } from '../../src/model/selection.ts';

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
