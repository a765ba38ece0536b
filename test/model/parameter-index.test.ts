import { expect } from 'chai';
import fc from 'fast-check';
import { ParameterIndex } from '../../src/model/parameter-index.ts';
import { internParameters } from '../../src/model/parameters.ts';
import { heapAfterCollection } from '../support/heap.ts';
import { and, compiled, exists, is, not, or } from '../support/variants.ts';

const keys = fc.constantFrom(...Array.from({ length: 24 }, (_, index) => `k${index}`));
const values = fc.constantFrom('a', 'b');
const sets = fc.array(fc.tuple(keys, values), { maxLength: 4 }).map(internParameters);
const constraints = fc.oneof(
  fc.tuple(keys, values).map(([key, value]) => compiled(is(key, value))),
  fc.tuple(keys, values).map(([key, value]) => compiled(not(is(key, value)))),
  keys.map((key) => compiled(exists(key))),
  fc
    .tuple(keys, values, keys)
    .map(([key, value, other]) => compiled(and(is(key, value), not(exists(other))))),
  // More than one of them may be in a set.
  fc
    .array(fc.tuple(keys, values), { minLength: 2, maxLength: 12 })
    .map((pairs) => compiled(or(...pairs.map(([key, value]) => is(key, value))))),
);
const steps = fc.array(
  fc.oneof(
    { weight: 3, arbitrary: sets.map((parameters) => ({ kind: 'set', parameters }) as const) },
    { weight: 1, arbitrary: sets.map((parameters) => ({ kind: 'delete', parameters }) as const) },
    { weight: 3, arbitrary: constraints.map((wanted) => ({ kind: 'find', wanted }) as const) },
  ),
  { minLength: 50, maxLength: 200 },
);

describe('an index of parameter sets', () => {
  it('finds what a look at each would find, whatever was asked for before', () => {
    fc.assert(
      fc.property(steps, (all) => {
        const index = new ParameterIndex<string>();
        const model = new Set<ReturnType<typeof internParameters>>();
        for (const step of all) {
          if (step.kind === 'set') {
            index.set(step.parameters, step.parameters.key);
            model.add(step.parameters);
          } else if (step.kind === 'delete') {
            index.delete(step.parameters);
            model.delete(step.parameters);
          } else {
            const expected = [...model].filter((one) => step.wanted.matches(one)).map(({ key }) => key);
            expect([...index.matching(step.wanted)].toSorted()).to.deep.equal(expected.toSorted());
          }
        }
        expect(index.size).to.equal(model.size);
      }),
    );
  });

  it('keeps nothing of keys that clients have invented and that nobody has any more', async () => {
    const index = new ParameterIndex<number>();
    // Asked for so many keys, and by so many sets, that all keys are indexed.
    for (let at = 0; at < 20; at++) index.set(internParameters([[`k${at}`, 'a']]), at);
    for (let at = 0; at < 20; at++)
      expect([...index.matching(compiled(is(`k${at}`, 'a')))]).to.deep.equal([at]);
    const before = await heapAfterCollection();
    for (let at = 0; at < 100_000; at++) {
      const parameters = internParameters([[`invented-${at}`, 'a']]);
      index.set(parameters, at);
      index.delete(parameters);
    }
    expect((await heapAfterCollection()) - before).to.be.below(5_000_000);
    expect([...index.matching(compiled(is('k7', 'a')))]).to.deep.equal([7]);
  }).timeout(20_000);
});
