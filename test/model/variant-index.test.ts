import { expect } from 'chai';
import * as fc from 'fast-check';
import { type Constraints, stampConstraints, UNCONSTRAINED } from '../../src/model/constraints.ts';
import { internParameters, NO_PARAMETERS } from '../../src/model/parameters.ts';
import { VariantIndex } from '../../src/model/variant-index.ts';
import {
  and,
  equal,
  exists,
  not,
  or,
  parametersArbitrary,
  parse,
  type Tree,
  treeArbitrary,
} from './trees.ts';

interface Held {
  readonly constraints: Constraints;
  readonly label: string;
}

const held = (tree: Tree, label: string): Held => ({ constraints: parse(tree), label });
const labels = (variants: readonly Held[]): string[] => variants.map(({ label }) => label);
const prod = internParameters([['env', 'prod']]);

describe('variant index', () => {
  it('is empty at first', () => {
    const index = new VariantIndex<Held>();
    expect(index.size).to.equal(0);
    expect(index.match(NO_PARAMETERS)).to.deep.equal([]);
    expect(index.values()).to.deep.equal([]);
    expect(index.get(UNCONSTRAINED.key)).to.equal(undefined);
    expect(index.delete(UNCONSTRAINED.key)).to.equal(undefined);
  });

  it('holds one unconstrained variant that matches everybody', () => {
    const index = new VariantIndex<Held>();
    const only: Held = { constraints: UNCONSTRAINED, label: 'only' };
    expect(index.add(only)).to.equal(undefined);
    expect(index.size).to.equal(1);
    expect(index.match(prod)).to.deep.equal([only]);
    expect(index.get(UNCONSTRAINED.key)).to.equal(only);
    expect(index.delete(parse(equal('env', 'prod')).key)).to.equal(undefined);
    expect(index.delete(UNCONSTRAINED.key)).to.equal(only);
    expect(index.size).to.equal(0);
  });

  it('looks at no more than it is asked for', () => {
    const index = new VariantIndex<Held>();
    for (let at = 0; at < 100; at++)
      index.add(held(and(equal('env', 'prod'), not(equal('k', String(at)))), String(at)));
    expect(index.match(prod)).to.have.length(100);
    expect(index.match(prod, 2)).to.have.length(2);
  });

  it('replaces the variant of the same canonical key', () => {
    const index = new VariantIndex<Held>();
    const first = held(and(exists('a'), equal('env', 'prod')), 'first');
    const second = held(and(equal('env', 'prod'), exists('a')), 'second');
    index.add(first);
    expect(index.add(second)).to.equal(first);
    expect(labels(index.values())).to.deep.equal(['second']);
    index.add(held(equal('env', 'test'), 'other'));
    expect(index.add(first)).to.equal(second);
    expect(index.size).to.equal(2);
  });

  it('§5 an ambiguous match begins with the lowest canonical key, whatever the order of arrival', () => {
    const variants = [
      held(equal('env', 'prod'), 'value'),
      held(exists('env'), 'exists'),
      held(not(exists('x')), 'not'),
    ];
    const sorted = labels(variants.toSorted((a, b) => (a.constraints.key < b.constraints.key ? -1 : 1)));
    for (const order of [variants, variants.toReversed()]) {
      const index = new VariantIndex<Held>();
      for (const variant of order) index.add(variant);
      expect(labels(index.match(prod))).to.deep.equal(sorted);
      expect(labels(index.values())).to.deep.equal(sorted);
    }
  });

  it('§5 and[a,b] added, then and[b,a] removed: gone', () => {
    const index = new VariantIndex<Held>();
    index.add(held(and(equal('a', '1'), equal('b', '2')), 'ab'));
    index.add(held(equal('c', '3'), 'c'));
    index.delete(parse(and(equal('b', '2'), equal('a', '1'))).key);
    expect(labels(index.values())).to.deep.equal(['c']);
  });

  it('§5 e=prod split into v1 and v2: {e:prod,v:v2} has its variant, {e:prod} has none', () => {
    const index = new VariantIndex<Held>();
    index.add(held(equal('e', 'prod'), 'before'));
    index.delete(parse(equal('e', 'prod')).key);
    for (const v of ['v1', 'v2']) index.add(held(and(equal('e', 'prod'), equal('v', v)), v));
    expect(labels(index.match(internParameters(Object.entries({ e: 'prod', v: 'v2' }))))).to.deep.equal([
      'v2',
    ]);
    expect(index.match(internParameters([['e', 'prod']]))).to.deep.equal([]);
  });

  it('§5 parameters named __proto__ and constructor are found', () => {
    const index = new VariantIndex<Held>();
    index.add(held(equal('__proto__', 'constructor'), 'proto'));
    index.add(held(equal('constructor', '__proto__'), 'constructor'));
    expect(index.match(NO_PARAMETERS)).to.deep.equal([]);
    expect(labels(index.match(internParameters([['__proto__', 'constructor']])))).to.deep.equal(['proto']);
  });

  it('looks only at the variants that the required parameter leaves', () => {
    const index = new VariantIndex<Held>();
    let looked = 0;
    for (let i = 0; i < 1000; i++) {
      const constraints = stampConstraints(['env'], internParameters([['env', String(i)]]));
      const counting: Constraints = {
        ...constraints,
        matches(parameters) {
          looked++;
          return constraints.matches(parameters);
        },
      };
      index.add({ constraints: counting, label: String(i) });
    }
    expect(labels(index.match(internParameters([['env', '7']])))).to.deep.equal(['7']);
    expect(looked).to.equal(1);
  });

  it('agrees with a linear scan, through additions and removals', () => {
    const change = fc.tuple(
      fc.boolean(),
      fc.oneof(
        treeArbitrary,
        fc.constantFrom('1', '2').map((v) => or(equal('a', v))),
      ),
    );
    const property = fc.property(
      fc.array(change, { maxLength: 30 }),
      fc.array(parametersArbitrary, { minLength: 1, maxLength: 4 }),
      (changes, clients) => {
        const index = new VariantIndex<Held>();
        const plain = new Map<string, Held>();
        for (const [added, tree] of [...changes, ...changes.map(([a, tree]) => [!a, tree] as const)]) {
          const variant = held(tree, '');
          const { key } = variant.constraints;
          const before = plain.get(key);
          if (added) plain.set(key, variant);
          else plain.delete(key);
          expect(added ? index.add(variant) : index.delete(key)).to.equal(before);
          expect(index.size).to.equal(plain.size);
          expect(index.get(key)).to.equal(plain.get(key));
          for (const client of clients) {
            const parameters = internParameters(client);
            const scanned = [...plain.values()]
              .filter(({ constraints }) => constraints.matches(parameters))
              .toSorted((a, b) => (a.constraints.key < b.constraints.key ? -1 : 1));
            const matched = index.match(parameters);
            expect(matched.length).to.equal(scanned.length);
            expect(matched.every((variant_, i) => variant_ === scanned[i])).to.equal(true);
          }
        }
      },
    );
    fc.assert(property, { numRuns: 1_000 });
  });
});
