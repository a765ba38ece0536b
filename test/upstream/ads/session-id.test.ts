import { expect } from 'chai';
import fc from 'fast-check';
import { internParameters } from '../../../src/model/parameters.ts';
import { sessionId } from '../../../src/upstream/ads/node.ts';

const id = (keys: readonly string[], values: Readonly<Record<string, string>>): string =>
  sessionId('relay-1', keys, internParameters(Object.entries(values)));

describe('the node id of a session', () => {
  for (const { keys, values, expected } of [
    { keys: [], values: {}, expected: 'relay-1' },
    { keys: ['env'], values: {}, expected: 'relay-1' },
    { keys: ['env'], values: { env: 'prod' }, expected: 'relay-1~prod' },
    { keys: ['env'], values: { env: '' }, expected: 'relay-1~%' },
    { keys: ['env', 'zone'], values: { env: 'prod', zone: 'eu-1' }, expected: 'relay-1~prod~eu-1' },
    { keys: ['env', 'zone'], values: { env: 'prod' }, expected: 'relay-1~prod' },
    { keys: ['env', 'zone'], values: { zone: 'eu-1' }, expected: 'relay-1~~eu-1' },
    { keys: ['env', 'env', 'zone'], values: { env: 'a', zone: 'b' }, expected: 'relay-1~a~b' },
    { keys: ['a', 'b'], values: { a: 'a~b', b: 'c' }, expected: 'relay-1~a%7Eb~c' },
    { keys: ['a', 'b'], values: { a: 'a', b: 'b~c' }, expected: 'relay-1~a~b%7Ec' },
    { keys: ['a'], values: { a: '%7E' }, expected: 'relay-1~%257E' },
    { keys: ['a'], values: { a: 'spiffe://x.org/ns/a' }, expected: 'relay-1~spiffe://x.org/ns/a' },
    { keys: ['a'], values: { a: 'é *\n' }, expected: 'relay-1~%C3%A9%20%2A%0A' },
  ]) {
    it(`${JSON.stringify(values)} of ${keys.join(', ') || 'no rule'} is ${expected}`, () => {
      expect(id(keys, values)).to.equal(expected);
    });
  }

  it('is bounded: a long value becomes its beginning and a hash', () => {
    const [one, two] = ['1', '2'].map((end) => id(['a'], { a: 'x'.repeat(10_000) + end }));
    expect(one).to.match(/^relay-1~x{36}\*[\w-]{22}$/);
    expect(two)
      .to.have.length(one?.length ?? 0)
      .and.not.equal(one);
    expect(id(['a'], { a: one?.slice('relay-1~'.length) ?? '' })).to.not.equal(one);
    expect(id(['a'], { a: '~'.repeat(100) })).to.match(/^relay-1~(%7E){12}\*[\w-]{22}$/);
  });

  it('is unique to the parameter set', () => {
    const keys = ['a', 'b', 'c'];
    const value = fc.string({ unit: fc.constantFrom('~', '%', '*', '7', 'E', 'x', 'é'), maxLength: 5 });
    const values = fc.record({ a: value, b: value, c: value }, { requiredKeys: [] });
    fc.assert(
      fc.property(values, values, (one, other) => {
        const same = internParameters(Object.entries(one)) === internParameters(Object.entries(other));
        expect(id(keys, one) === id(keys, other)).to.equal(same);
      }),
    );
  });
});
