import { expect } from 'chai';
import * as fc from 'fast-check';
import {
  type Expression,
  explainMatch,
  formatConstraints,
  parseConstraints,
} from '../../src/model/constraints.ts';
import { internParameters } from '../../src/model/parameters.ts';
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
  unset,
  value,
} from './trees.ts';

const env = equal('env', 'prod');
const version = exists('version');
const poisoned = value(parseConstraints(Uint8Array.of(0x48, 0x01), 64));

describe('constraints: as text', () => {
  const table: readonly (readonly [Tree, string])[] = [
    [unset(), '(all)'],
    [env, 'env == "prod"'],
    [version, 'exists(version)'],
    [not(env), 'not env == "prod"'],
    [not(not(version)), 'not not exists(version)'],
    [and(env, not(version)), 'env == "prod" and not exists(version)'],
    [or(and(env, version), version), 'env == "prod" and exists(version) or exists(version)'],
    [and(or(env, version), version), '(env == "prod" or exists(version)) and exists(version)'],
    [and(and(env, version), version), 'env == "prod" and exists(version) and exists(version)'],
    [not(or(env, version)), 'not (env == "prod" or exists(version))'],
    [not(and(env)), 'not env == "prod"'],
    [and(or(or(env, version)), version), '(env == "prod" or exists(version)) and exists(version)'],
    [not(unset()), 'not (all)'],
    [or(), 'or()'],
    [not(and()), 'not and()'],
    [equal('a key', 'a "value"'), '"a key" == "a \\"value\\""'],
    [exists('not'), 'exists("not")'],
    [exists(''), 'exists("")'],
  ];
  for (const [tree, expected] of table)
    it(expected, () => {
      expect(formatConstraints(parse(tree).expression)).to.equal(expected);
    });

  it('an unknown kind is said to be one', () => {
    expect(formatConstraints(poisoned.expression)).to.equal('(never: unknown kind of constraint)');
  });
});

describe('constraints: why they match or not', () => {
  type Given = Readonly<Record<string, string>>;
  const table: readonly (readonly [Tree, Given, boolean, string])[] = [
    [unset(), {}, true, 'no constraints'],
    [env, { env: 'prod' }, true, 'env == "prod" holds'],
    [env, { env: 'test' }, false, 'env == "prod" fails: env is "test"'],
    [env, {}, false, 'env == "prod" fails: env is not given'],
    [version, {}, false, 'exists(version) fails: version is not given'],
    [not(version), { version: 'v1' }, false, 'not exists(version) fails: version is "v1"'],
    [not(env), { env: 'prod' }, false, 'not env == "prod" fails: env is "prod"'],
    [
      and(env, not(version)),
      { env: 'prod', version: 'v1' },
      false,
      'not exists(version) fails: version is "v1"',
    ],
    [and(env, version), { env: 'test' }, false, 'env == "prod" fails: env is "test"'],
    [
      or(env, version),
      { env: 'x' },
      false,
      'env == "prod" fails: env is "x"; exists(version) fails: version is not given',
    ],
    [or(), {}, false, 'or() fails: it has no alternatives'],
    [not(not(env)), {}, false, 'env == "prod" fails: env is not given'],
    [not(and(env)), { env: 'prod' }, false, 'not env == "prod" fails: env == "prod" holds'],
    [not(unset()), {}, false, 'not (all) fails: (all) holds'],
  ];
  for (const [tree, parameters, matches, reason] of table)
    it(reason, () => {
      const { expression } = parse(tree);
      expect(explainMatch(expression, internParameters(Object.entries(parameters)))).to.deep.equal({
        matches,
        reason,
      });
    });

  it('says as much of a long one as people read, and looks at each part once', () => {
    let looks = 0;
    const value = (at: number): Expression => ({
      kind: 'value',
      key: 'env',
      get value() {
        looks++;
        return `v${at}`;
      },
    });
    let deep: Expression = { kind: 'or', of: Array.from({ length: 5000 }, (_, at) => value(at)) };
    for (let level = 0; level < 50; level++)
      deep = { kind: 'and', of: [deep, { kind: 'exists', key: 'env' }] };
    const failed = explainMatch(deep, internParameters([['env', 'x']]));
    expect(failed.reason).to.match(/^env == "v0" fails: env is "x"; .*; 4980 more alternatives$/);
    const held = explainMatch(deep, internParameters([['env', 'v4999']]));
    expect([held.matches, held.reason.length]).to.deep.equal([true, 1006]);
    expect(looks).to.be.below(15_000);
  });

  it('an unknown kind never matches', () => {
    const { matches, reason } = explainMatch(poisoned.expression, internParameters([]));
    expect(matches).to.equal(false);
    expect(reason).to.include('unknown kind of constraint');
  });

  it('agrees with the matcher', () => {
    const property = fc.property(treeArbitrary, parametersArbitrary, (tree, entries) => {
      const constraints = parse(tree);
      const parameters = internParameters(entries);
      const { matches, reason } = explainMatch(constraints.expression, parameters);
      expect(matches).to.equal(constraints.matches(parameters));
      expect(reason).to.not.equal('');
    });
    fc.assert(property, { numRuns: 2_000 });
  });
});
