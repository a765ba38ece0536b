import { fromBinary } from '@bufbuild/protobuf';
import { expect } from 'chai';
import * as fc from 'fast-check';
import { DynamicParameterConstraintsSchema } from '../../src/gen/envoy/service/discovery/v3/discovery_pb.ts';
import {
  areDisjoint,
  type Expression,
  parseConstraints,
  stampConstraints,
  UNCONSTRAINED,
} from '../../src/model/constraints.ts';
import { internParameters } from '../../src/model/parameters.ts';
import { cpuSeconds } from '../support/cpu.ts';
import {
  and,
  encode,
  equal,
  exists,
  not,
  or,
  parametersArbitrary,
  parse,
  type Tree,
  treeArbitrary,
  unset,
  value,
} from './trees.ts';

type Given = Readonly<Record<string, string>>;
const given = (parameters: Given) => internParameters(Object.entries(parameters));
const matches = (tree: Tree, parameters: Given) => parse(tree).matches(given(parameters));

describe('constraints: whether two can match the same parameters', () => {
  const prod = equal('e', 'prod');
  const test = equal('e', 'test');
  for (const [name, a, b, expected] of [
    ['another value', prod, test, true],
    ['the same value', prod, prod, false],
    ['another key', prod, equal('v', 'test'), false],
    ['all, e=prod', unset(), prod, false],
    ['e=prod, not(e=prod)', prod, not(prod), true],
    ['e=prod, not(e=test)', prod, not(test), false],
    ['e=prod, not(exists e)', prod, not(exists('e')), true],
    ['exists e, not(exists e)', exists('e'), not(exists('e')), true],
    ['exists e, not(e=prod)', exists('e'), not(prod), false],
    ['or[e=prod,e=test], not(or[e=prod,e=test])', or(prod, test), not(or(prod, test)), true],
    ['or[e=prod,e=test], not(e=prod)', or(prod, test), not(prod), false],
    ['and with another value in it', and(equal('v', '1'), prod), and(equal('v', '1'), test), true],
    ['and with the same', and(equal('v', '1'), prod), and(equal('w', '1'), prod), false],
    ['or[] matches nothing', or(), unset(), true],
  ] as const) {
    it(`${name}: ${expected ? 'no' : 'yes'}`, () => {
      const both = [parse(a).expression, parse(b).expression] as const;
      expect(areDisjoint(...both)).to.equal(expected);
      expect(areDisjoint(both[1], both[0])).to.equal(expected);
    });
  }

  it('of tens of thousands of values it is not known whether they are disjoint', () => {
    const values = (key: string, from: number, count: number): Expression =>
      parse(or(...Array.from({ length: count }, (_, at) => equal(key, `${from + at}`)))).expression;
    expect(areDisjoint(values('k', 0, 100), values('k', 1000, 100))).to.equal(true);
    const before = cpuSeconds();
    expect(areDisjoint(values('k', 0, 20_000), values('k', 50_000, 20_000))).to.equal(false);
    const nested = (from: number): Expression => ({
      kind: 'or',
      of: Array.from({ length: 200 }, (_, at) => ({ kind: 'and', of: [values('k', from + 200 * at, 200)] })),
    });
    expect(areDisjoint(nested(0), nested(100_000))).to.equal(false);
    expect(cpuSeconds() - before).to.be.below(1.5);
  });

  it('what is disjoint never matches the same', () => {
    fc.assert(
      fc.property(treeArbitrary, treeArbitrary, parametersArbitrary, (a, b, parameters) => {
        const [one, other] = [parse(a), parse(b)];
        const all = internParameters(parameters);
        if (one.matches(all) && other.matches(all))
          expect(areDisjoint(one.expression, other.expression)).to.equal(false);
      }),
    );
  });
});

describe('constraints: matching', () => {
  const table: readonly (readonly [name: string, tree: Tree, parameters: Given, expected: boolean])[] = [
    ['none, {e:prod,x:1}', unset(), { e: 'prod', x: '1' }, true],
    ['none, {}', unset(), {}, true],
    ['e=prod, {e:prod,x:1}', equal('e', 'prod'), { e: 'prod', x: '1' }, true],
    ['e=prod, {}', equal('e', 'prod'), {}, false],
    ['not(e=prod), {}', not(equal('e', 'prod')), {}, true],
    ['not(exists e), {e:""}', not(exists('e')), { e: '' }, false],
    ['or[], {}', or(), {}, false],
    ['or[], {e:prod}', or(), { e: 'prod' }, false],
    ['and[], {}', and(), {}, true],
    ['and[], {e:prod}', and(), { e: 'prod' }, true],
    ['not(or[]), {}', not(or()), {}, true],
    ['not(or[]), {e:prod}', not(or()), { e: 'prod' }, true],
    ['and[e=prod, not(exists v)], {e:prod}', and(equal('e', 'prod'), not(exists('v'))), { e: 'prod' }, true],
    [
      'and[e=prod, not(exists v)], {e:prod,v:v1}',
      and(equal('e', 'prod'), not(exists('v'))),
      { e: 'prod', v: 'v1' },
      false,
    ],
    ['e=prod, {e:Prod}', equal('e', 'prod'), { e: 'Prod' }, false],
    ['e=prod, {E:prod}', equal('e', 'prod'), { E: 'prod' }, false],
    ['exists constructor, {}', exists('constructor'), {}, false],
    ['__proto__=x, {}', equal('__proto__', 'x'), {}, false],
    [
      'and[e=prod,v=v2], {e:prod,v:v2}',
      and(equal('e', 'prod'), equal('v', 'v2')),
      { e: 'prod', v: 'v2' },
      true,
    ],
    ['and[e=prod,v=v2], {e:prod}', and(equal('e', 'prod'), equal('v', 'v2')), { e: 'prod' }, false],
  ];
  for (const [name, tree, parameters, expected] of table)
    it(`§5 vector ${name}: ${expected}`, () => {
      expect(matches(tree, parameters)).to.equal(expected);
    });

  const truth: readonly (readonly [name: string, tree: Tree, row: readonly [boolean, boolean, boolean]])[] = [
    ['value', equal('k', 'v'), [false, true, false]],
    ['exists', exists('k'), [false, true, true]],
    ['not(value)', not(equal('k', 'v')), [true, false, true]],
    ['not(exists)', not(exists('k')), [true, false, false]],
  ];
  for (const [name, tree, row] of truth)
    it(`§5 truth table, ${name}: key absent ${row[0]}, equal ${row[1]}, another value ${row[2]}`, () => {
      expect([{}, { k: 'v' }, { k: 'w' }].map((parameters) => matches(tree, parameters))).to.deep.equal(row);
    });

  it('§5 parameters that no constraint names never block', () => {
    expect(matches(equal('e', 'prod'), { e: 'prod', x: '1', y: '2' })).to.equal(true);
  });

  it('§5 an unset type inside another expression matches all', () => {
    expect(matches(not(unset()), {})).to.equal(false);
    expect(matches(or(equal('a', '1'), unset()), {})).to.equal(true);
    expect(matches(and(equal('a', '1'), unset()), { a: '1' })).to.equal(true);
  });

  it('§5 keys that plain objects have by birth are ordinary keys', () => {
    const parameters = internParameters([
      ['__proto__', 'x'],
      ['constructor', 'y'],
    ]);
    expect(parse(equal('__proto__', 'x')).matches(parameters)).to.equal(true);
    expect(parse(exists('constructor')).matches(parameters)).to.equal(true);
    expect(parse(exists('toString')).matches(parameters)).to.equal(false);
  });

  it('§5 agrees with a naive evaluator over 15,000 random trees', () => {
    const property = fc.property(treeArbitrary, parametersArbitrary, (tree, parameters) => {
      const decoded = fromBinary(DynamicParameterConstraintsSchema, encode(tree));
      return parse(tree).matches(internParameters(parameters)) === naive(decoded, new Map(parameters));
    });
    fc.assert(property, { numRuns: 15_000 });
  });

  it('§5 many values, which are looked up, match as a few do', () => {
    const several = (of: (value: string) => Tree): Tree[] =>
      Array.from({ length: 20 }, (_, at) => of(String(at)));
    const wide = fc
      .tuple(treeArbitrary, fc.constantFrom('a', 'b', 'c'), fc.boolean(), fc.boolean())
      .map(([tree, key, isAnd, isNot]) => {
        const parts = several((value) => (isNot ? not(equal(key, value)) : equal(key, value)));
        return isAnd ? and(tree, ...parts) : or(...parts, tree);
      });
    const values = fc.array(fc.tuple(fc.constantFrom('a', 'b', 'c'), fc.constantFrom('', '7', '20')));
    const property = fc.property(wide, values, (tree, parameters) => {
      const decoded = fromBinary(DynamicParameterConstraintsSchema, encode(tree));
      const interned = internParameters(parameters);
      return parse(tree).matches(interned) === naive(decoded, new Map(interned.entries));
    });
    fc.assert(property, { numRuns: 5_000 });
  });

  it('§5 whatever matches has one of the required parameters', () => {
    const property = fc.property(treeArbitrary, parametersArbitrary, (tree, entries) => {
      const constraints = parse(tree);
      const parameters = internParameters(entries);
      const { required } = constraints;
      return (
        required === undefined ||
        !constraints.matches(parameters) ||
        required.some(({ key, value }) => parameters.entries.get(key) === value)
      );
    });
    fc.assert(property, { numRuns: 5_000 });
  });

  it('is fast enough to be called for every view: 200,000 matches take well below a second', () => {
    const constraints = parse(and(equal('env', 'prod'), or(equal('v', '1'), not(exists('v')))));
    const parameters = given({ env: 'prod', region: 'eu' });
    const before = cpuSeconds();
    let found = 0;
    for (let i = 0; i < 200_000; i++) if (constraints.matches(parameters)) found++;
    expect(found).to.equal(200_000);
    expect(cpuSeconds() - before).to.be.below(1);
  });

  it('nor do 50,000 values take longer than a few', () => {
    const values = Array.from({ length: 50_000 }, (_, at) => equal('v', String(at)));
    const constraints = parse(or(...values));
    const before = cpuSeconds();
    for (let i = 0; i < 20_000; i++) expect(constraints.matches(given({ v: 'x' }))).to.equal(false);
    // One after the other they took some seconds.
    expect(cpuSeconds() - before).to.be.below(1);
  });
});

describe('constraints: what is required', () => {
  const table: readonly (readonly [string, Tree, string | undefined])[] = [
    ['a value', equal('a', '1'), 'a=1'],
    ['a part of AND', and(exists('b'), equal('a', '1')), 'a=1'],
    ['a part of AND in AND', and(exists('b'), and(not(exists('c')), equal('a', '1'))), 'a=1'],
    ['the only part of OR', or(equal('a', '1')), 'a=1'],
    ['the lowest of several', and(equal('b', '1'), equal('a', '2')), 'a=2'],
    ['one of two', or(equal('a', '1'), equal('a', '2')), 'a=1,a=2'],
    ['the fewest', and(or(equal('a', '1'), equal('a', '2')), equal('b', '1')), 'b=1'],
    ['OR of a value and no value', or(equal('a', '1'), exists('a')), undefined],
    ['NOT', not(equal('a', '1')), undefined],
    ['exists', exists('a'), undefined],
    ['empty OR', or(), ''],
    ['nothing', unset(), undefined],
  ];
  for (const [name, tree, expected] of table)
    it(`${name}: ${expected ?? 'nothing'}`, () => {
      const { required } = parse(tree);
      expect(required?.map(({ key, value }) => `${key}=${value}`).join()).to.equal(expected);
    });
});

describe('constraints: identity', () => {
  it('§5 an unset expression is the same as none', () => {
    expect(parse(unset())).to.equal(UNCONSTRAINED);
    expect(UNCONSTRAINED.key).to.equal('');
    expect(UNCONSTRAINED.bytes).to.have.length(0);
  });

  it('§5 and[a,b] added, then and[b,a] removed: the same variant', () => {
    expect(parse(and(equal('a', '1'), equal('b', '2'))).key).to.equal(
      parse(and(equal('b', '2'), equal('a', '1'))).key,
    );
  });

  it('§5 children of AND and OR are sorted and deduplicated, at every depth, and nothing else is simplified', () => {
    const a = equal('a', '1');
    const b = exists('b');
    expect(parse(or(not(and(a, b, a)), b)).key).to.equal(parse(or(b, not(and(b, a)), b)).key);
    const different = [
      a,
      b,
      not(a),
      not(not(a)),
      and(a),
      or(a),
      and(a, b),
      or(a, b),
      and(and(a), b),
      and(),
      or(),
      not(unset()),
      and(unset()),
    ];
    expect(new Set(different.map((tree) => parse(tree).key)).size).to.equal(different.length);
  });

  it('§5 no key or value imitates another expression', () => {
    const imitations = [
      and(equal('a', '1'), equal('b', '2')),
      equal('a', '1"],["=","b","2'),
      equal('a","1', ''),
      equal('', 'a'),
      equal('a', ''),
      exists('a'),
      equal('exists', 'a'),
      exists('exists","a'),
    ];
    expect(new Set(imitations.map((tree) => parse(tree).key)).size).to.equal(imitations.length);
  });

  it('§5 the canonical key is stable when children are permuted and repeated', () => {
    const property = fc.property(
      treeArbitrary,
      fc.array(fc.nat(), { minLength: 7, maxLength: 7 }),
      (tree, random) => {
        let at = 0;
        const next = (): number => random[at++ % random.length] ?? 0;
        const shuffled = shuffle(tree, next);
        return parse(shuffled).key === parse(tree).key;
      },
    );
    fc.assert(property, { numRuns: 5_000 });
  });

  it('§5 equal keys mean equal matching', () => {
    const property = fc.property(
      treeArbitrary,
      treeArbitrary,
      parametersArbitrary,
      (left, right, entries) => {
        const [a, b] = [parse(left), parse(right)];
        const parameters = internParameters(entries);
        return a.key !== b.key || a.matches(parameters) === b.matches(parameters);
      },
    );
    fc.assert(property, { numRuns: 5_000 });
  });

  it('§5 the original bytes are kept, as an own copy', () => {
    const received = Buffer.concat([
      Buffer.from('before'),
      encode(and(equal('b', '2'), equal('a', '1'), equal('b', '2'))),
    ]);
    const constraints = value(parseConstraints(received.subarray(6), 64));
    const original = [...received.subarray(6)];
    received.fill(0);
    expect([...constraints.bytes]).to.deep.equal(original);
    expect(constraints.bytes.buffer.byteLength).to.equal(original.length);
  });

  it('equal bytes give the same object, so that many resources share it', () => {
    expect(parse(equal('shared', '1'))).to.equal(parse(equal('shared', '1')));
  });
});

describe('constraints: the stamp of a session', () => {
  it('§5 keys that the session has are equal, keys that it lacks must be absent', () => {
    const stamp = stampConstraints(['v', 'env'], given({ env: 'prod', other: 'x' }));
    expect(stamp.key).to.equal(parse(and(equal('env', 'prod'), not(exists('v')))).key);
    expect(stamp.matches(given({ env: 'prod' }))).to.equal(true);
    expect(stamp.matches(given({ env: 'prod', v: '' }))).to.equal(false);
    expect(stamp.matches(given({ env: 'test' }))).to.equal(false);
    expect(stamp.required).to.deep.equal([{ kind: 'value', key: 'env', value: 'prod' }]);
  });

  it('no keys: unconstrained', () => {
    expect(stampConstraints([], given({ env: 'prod' }))).to.equal(UNCONSTRAINED);
  });

  it('order and repetition of the keys do not matter', () => {
    const parameters = given({ a: '1' });
    const stamp = stampConstraints(['a', 'b'], parameters);
    expect([...stampConstraints(['b', 'a', 'b'], parameters).bytes]).to.deep.equal([...stamp.bytes]);
  });

  it('its bytes say what it says', () => {
    const keys = fc.array(
      fc.constantFrom('a', 'b', 'c', '', '__proto__', 'a long key of more than thirty-two letters'),
    );
    const property = fc.property(keys, parametersArbitrary, (names, entries) => {
      const stamp = stampConstraints(names, internParameters(entries));
      const read = value(parseConstraints(stamp.bytes, 3));
      expect(read.key).to.equal(stamp.key);
      expect(read.expression).to.deep.equal(stamp.expression);
    });
    fc.assert(property, { numRuns: 1_000 });
  });
});

/** The rules of protocol §5 read off the message itself, as plainly as possible. */
function naive(tree: Tree, parameters: ReadonlyMap<string, string>): boolean {
  const { type } = tree;
  if (type.case === undefined) return true;
  if (type.case === 'notConstraints') return !naive(type.value, parameters);
  if (type.case === 'andConstraints')
    return type.value.constraints.filter((child) => !naive(child, parameters)).length === 0;
  if (type.case === 'orConstraints')
    return type.value.constraints.filter((child) => naive(child, parameters)).length > 0;
  const found = [...parameters].filter(([key]) => key === type.value.key);
  const wanted = type.value.constraintType;
  return wanted.case === 'value' ? found.some(([, held]) => held === wanted.value) : found.length === 1;
}

/** The same tree with the children of AND and OR in another order and some of them twice. */
function shuffle(tree: Tree, next: () => number): Tree {
  const { type } = tree;
  if (type.case === 'notConstraints') return not(shuffle(type.value, next));
  if (type.case !== 'andConstraints' && type.case !== 'orConstraints') return tree;
  const children = type.value.constraints
    .flatMap((child) => (next() % 3 === 0 ? [child, child] : [child]))
    .map((child) => ({ child: shuffle(child, next), at: next() }))
    .toSorted((left, right) => left.at - right.at)
    .map(({ child }) => child);
  return type.case === 'andConstraints' ? and(...children) : or(...children);
}
