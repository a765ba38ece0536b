import { expect } from 'chai';
import * as fc from 'fast-check';
import { internParameters, NO_PARAMETERS } from '../../src/model/parameters.ts';
import { parametersArbitrary } from './trees.ts';

describe('parameters', () => {
  it('equal sets are the same object, whatever the order', () => {
    const set = internParameters([
      ['a', '1'],
      ['b', '2'],
    ]);
    expect(
      internParameters([
        ['b', '2'],
        ['a', '1'],
      ]),
    ).to.equal(set);
    expect(
      internParameters(
        new Map([
          ['a', '1'],
          ['b', '2'],
        ]),
      ),
    ).to.equal(set);
  });

  it('no parameters are NO_PARAMETERS, with the empty key', () => {
    expect(internParameters([])).to.equal(NO_PARAMETERS);
    expect(NO_PARAMETERS.key).to.equal('');
    expect(NO_PARAMETERS.entries.size).to.equal(0);
  });

  it('of a repeated key the last value counts, as in a protobuf map', () => {
    expect(
      internParameters([
        ['a', '1'],
        ['a', '2'],
      ]),
    ).to.equal(internParameters([['a', '2']]));
  });

  it('§5 keys and values are compared exactly, case-sensitively', () => {
    const spellings = [
      ['env', 'prod'],
      ['Env', 'prod'],
      ['env', 'Prod'],
      ['env', ' prod'],
      ['env', ''],
    ] as const;
    const sets = spellings.map((pair) => internParameters([pair]));
    expect(new Set(sets.map(({ key }) => key)).size).to.equal(spellings.length);
    expect(new Set(sets.map(({ id }) => id)).size).to.equal(spellings.length);
  });

  it('__proto__ and constructor are ordinary keys', () => {
    const set = internParameters([['__proto__', 'x']]);
    expect(set.entries.get('__proto__')).to.equal('x');
    expect(set.entries.has('constructor')).to.equal(false);
    expect(set).to.not.equal(NO_PARAMETERS);
  });

  it('keys are equal exactly when the sets are', () => {
    const property = fc.property(parametersArbitrary, parametersArbitrary, (left, right) => {
      const [a, b] = [internParameters(left), internParameters(right)];
      const [x, y] = [new Map(left), new Map(right)];
      const same = x.size === y.size && [...x].every(([key, value]) => y.get(key) === value);
      expect(a === b).to.equal(same);
      expect(a.key === b.key).to.equal(same);
      expect(a.id === b.id).to.equal(same);
    });
    fc.assert(property, { numRuns: 2_000 });
  });
});
