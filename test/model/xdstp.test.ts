import { expect } from 'chai';
import * as fc from 'fast-check';
import { resourceName, type TypeUrl, typeUrl } from '../../src/model/brand.ts';
import {
  authorityOf,
  canonicalName,
  globMatches,
  isGlob,
  isXdstp,
  parentGlob,
} from '../../src/model/xdstp.ts';
import { error, value } from './trees.ts';

const lds = typeUrl('type.googleapis.com/envoy.config.listener.v3.Listener');
const L = 'envoy.config.listener.v3.Listener';
const canonical = (name: string, type: TypeUrl = lds): string => value(canonicalName(name, type));

describe('xdstp: the canonical name', () => {
  const table: readonly (readonly [why: string, given: string, expected: string])[] = [
    ['a plain name is kept as it is', 'a%20b?z=1&a=2#x', 'a%20b?z=1&a=2#x'],
    ['an empty name too', '', ''],
    ['and one that only looks similar', 'XDSTP://a/b', 'XDSTP://a/b'],
    ['nothing to do', `xdstp://auth/${L}/a/b`, `xdstp://auth/${L}/a/b`],
    ['an empty authority', `xdstp:///${L}/a`, `xdstp:///${L}/a`],
    ['parameters are sorted', `xdstp://auth/${L}/a?z=1&b=2`, `xdstp://auth/${L}/a?b=2&z=1`],
    ['parameters are sorted decoded', `xdstp://auth/${L}/a?b=2&%61=1`, `xdstp://auth/${L}/a?a=1&b=2`],
    ['directives are dropped', `xdstp://auth/${L}/a?b=2#alt=x,entry=y`, `xdstp://auth/${L}/a?b=2`],
    ['a question mark among directives is theirs', `xdstp://auth/${L}/a#b?c=d`, `xdstp://auth/${L}/a`],
    ['an empty query is none', `xdstp://auth/${L}/a?`, `xdstp://auth/${L}/a`],
    ['a parameter without value is an empty one', `xdstp://auth/${L}/a?b`, `xdstp://auth/${L}/a?b=`],
    ['needless percent-encoding goes', `xdstp://a%75th/${L}/%61%2Db`, `xdstp://auth/${L}/a-b`],
    ['hex digits in upper case', `xdstp://auth/${L}/a%5bb%5d`, `xdstp://auth/${L}/a%5Bb%5D`],
    ['an encoded slash is no separator', `xdstp://auth/${L}/a%2fb/c`, `xdstp://auth/${L}/a%2Fb/c`],
    ['an encoded colon is a colon', `xdstp://auth/${L}/%5B%3A%3A1%5D%3A80`, `xdstp://auth/${L}/%5B::1%5D:80`],
    ['what must be encoded is', `xdstp://auth/${L}/a b[é]`, `xdstp://auth/${L}/a%20b%5B%C3%A9%5D`],
    [
      'plus is plus, = and & in values stay encoded',
      `xdstp://auth/${L}/a?b=c+d%26%3d%3F/`,
      `xdstp://auth/${L}/a?b=c+d%26%3D?/`,
    ],
    ['an IPv6 authority', `xdstp://[::1]:80/${L}/a`, `xdstp://[::1]:80/${L}/a`],
    ['a collection of the type', `xdstp://auth/${L}Collection/a`, `xdstp://auth/${L}Collection/a`],
    ['a glob', `xdstp://auth/${L}/a/*?z=1&b=2`, `xdstp://auth/${L}/a/*?b=2&z=1`],
    [
      '__proto__ is an ordinary parameter',
      `xdstp://auth/${L}/a?b=1&__proto__=2`,
      `xdstp://auth/${L}/a?__proto__=2&b=1`,
    ],
  ];
  for (const [why, given, expected] of table)
    it(`§6 ${why}`, () => {
      expect(canonical(given)).to.equal(expected);
    });

  const wrong: readonly (readonly [why: string, given: string, said: string])[] = [
    ['another type', 'xdstp://auth/envoy.config.cluster.v3.Cluster/a', `not ${L}`],
    ['a type with more behind it', `xdstp://auth/${L}s/a`, `not ${L}`],
    ['a duplicate key', `xdstp://auth/${L}/a?b=1&c=2&b=1`, '"b" is given twice'],
    ['a duplicate key in two spellings', `xdstp://auth/${L}/a?b=1&%62=2`, '"b" is given twice'],
    ['a parameter without key', `xdstp://auth/${L}/a?=1`, 'no key'],
    ['no slashes', `xdstp:auth/${L}/a`, 'xdstp://[authority]/type/id'],
    ['no type', 'xdstp://auth', 'xdstp://[authority]/type/id'],
    ['no id', `xdstp://auth/${L}`, 'no id'],
    ['an empty id', `xdstp://auth/${L}/?a=1`, 'no id'],
    ['a bare percent sign', `xdstp://auth/${L}/100%`, 'percent-encoding'],
    ['percent-encoding that is not UTF-8', `xdstp://auth/${L}/%ff`, 'percent-encoding'],
    ['a broken parameter', `xdstp://auth/${L}/a?b=%zz`, 'percent-encoding'],
    ['half a surrogate pair', `xdstp://auth/${L}/\ud800`, 'percent-encoding'],
  ];
  for (const [why, given, said] of wrong)
    it(`§6 is refused for ${why}`, () => {
      const reason = error(canonicalName(given, lds));
      expect(reason).to.include(said);
      expect(reason).to.include(JSON.stringify(given));
    });

  const part = fc.oneof(
    fc.string({ maxLength: 6, unit: 'grapheme' }),
    fc.constantFrom('a', '*', ':', '/', '%', '?', '#', '&', '=', '+', '[', '__proto__'),
  );
  const given = fc.record({
    authority: part,
    id: fc.array(part, { minLength: 1, maxLength: 3 }).filter((id) => id.join('') !== ''),
    params: fc.uniqueArray(
      fc.tuple(
        part.filter((key) => key !== ''),
        part,
      ),
      { selector: ([key]) => key, maxLength: 4 },
    ),
  });
  /** Percent-encodes every byte, or only what encodeURIComponent does. */
  const spell = (text: string, all: boolean): string =>
    all
      ? [...Buffer.from(text)].map((byte) => `%${byte.toString(16).padStart(2, '0')}`).join('')
      : encodeURIComponent(text);
  const uri = (
    parts: { authority: string; id: string[]; params: [string, string][] },
    all: boolean,
  ): string => {
    const params = parts.params.map(([key, text]) => `${spell(key, all)}=${spell(text, all)}`);
    if (all) params.reverse();
    return `xdstp://${spell(parts.authority, all)}/${L}/${parts.id.map((text) => spell(text, all)).join('/')}?${params.join('&')}`;
  };

  it('§6 all spellings of a name have one canonical form, which is its own', () => {
    const property = fc.property(given, (parts) => {
      const name = canonical(uri(parts, false));
      expect(canonical(uri(parts, true))).to.equal(name);
      expect(canonical(name)).to.equal(name);
      expect(authorityOf(name)).to.equal(parts.authority);
    });
    fc.assert(property, { numRuns: 2_000 });
  });

  it('§6 different names have different canonical forms', () => {
    const sorted = (params: [string, string][]) => params.toSorted(([a], [b]) => (a < b ? -1 : 1));
    const property = fc.property(given, given, (a, b) => {
      const same =
        JSON.stringify([a.authority, a.id, sorted(a.params)]) ===
        JSON.stringify([b.authority, b.id, sorted(b.params)]);
      return same === (canonical(uri(a, false)) === canonical(uri(b, false)));
    });
    fc.assert(property, { numRuns: 2_000 });
  });

  it('§6 no text makes it throw', () => {
    const property = fc.property(fc.string({ unit: 'binary' }), fc.boolean(), (text, whole) => {
      const name = whole ? text : `xdstp://auth/${L}/${text}`;
      const result = canonicalName(name, lds);
      isGlob(name);
      authorityOf(name);
      if (result.ok) expect(canonical(result.value)).to.equal(result.value);
    });
    fc.assert(property, { numRuns: 5_000 });
  });
});

describe('xdstp: parts of names', () => {
  it('§6 a name is xdstp by its scheme', () => {
    expect(['xdstp://a/b/c', 'xdstp:///b/c', 'xdstp:x'].every(isXdstp)).to.equal(true);
    expect(['', '*', 'a', 'http://a/b', 'xdstp', 'axdstp://a'].some(isXdstp)).to.equal(false);
  });

  it('§6 the authority: undefined for plain names, empty where it is left out', () => {
    expect(authorityOf('a')).to.equal(undefined);
    expect(authorityOf('*')).to.equal(undefined);
    expect(authorityOf(`xdstp:///${L}/a`)).to.equal('');
    expect(authorityOf(`xdstp://example.com/${L}/a`)).to.equal('example.com');
    expect(authorityOf(`xdstp://a%20b/${L}/a`)).to.equal('a b');
    expect(authorityOf(`xdstp://a%zz/${L}/a`)).to.equal('a%zz');
  });

  it('§6 a glob ends in /*; the wildcard and plain names never are one', () => {
    expect(isGlob(`xdstp://auth/${L}/a/*`)).to.equal(true);
    expect(isGlob(`xdstp://auth/${L}/*?a=b`)).to.equal(true);
    expect(
      ['*', 'a/*', `xdstp://auth/${L}/a*`, `xdstp://auth/${L}/*/a`, `xdstp://auth/${L}/a?b=/*`].some(isGlob),
    ).to.equal(false);
  });

  const glob = `xdstp://auth/${L}/a/*?p=1&q=2`;
  const members: readonly (readonly [string, boolean])[] = [
    [`xdstp://auth/${L}/a/b?p=1&q=2`, true],
    [`xdstp://auth/${L}/a/b/c?p=1&q=2`, false],
    [`xdstp://auth/${L}/a?p=1&q=2`, false],
    [`xdstp://auth/${L}/a/?p=1&q=2`, false],
    [`xdstp://auth/${L}/a/*?p=1&q=2`, false],
    [`xdstp://auth/${L}/a/b?p=1`, false],
    [`xdstp://auth/${L}/a/b`, false],
    [`xdstp://auth/${L}/a/b?p=1&q=2&r=3`, false],
    [`xdstp://other/${L}/a/b?p=1&q=2`, false],
    [`xdstp://auth/${L}Collection/a/b?p=1&q=2`, false],
    ['b', false],
  ];
  for (const [name, expected] of members)
    it(`§6 ${glob} ${expected ? 'selects' : 'does not select'} ${name}`, () => {
      expect(globMatches(resourceName(glob), resourceName(name))).to.equal(expected);
    });

  it('names that are only long are refused, with what is accepted', () => {
    const query = (count: number): string => Array.from({ length: count }, (_, at) => `k${at}=1`).join('&');
    expect(canonicalName(`xdstp://a/${L}/a?${query(128)}`, lds).ok).to.equal(true);
    expect(error(canonicalName(`xdstp://a/${L}/a?${query(129)}`, lds))).to.contain('more than 128');
    const long = error(canonicalName(`xdstp://a/${L}/${'/'.repeat(1_000_000)}`, lds));
    expect(long).to.contain('at most 65536 are accepted').and.have.length.below(300);
  });

  it('§6 the glob over a name is the one that selects it', () => {
    const segment = fc.constantFrom('a', 'b', '*', '');
    const part = fc.tuple(
      fc.array(segment, { minLength: 1, maxLength: 3 }),
      fc.constantFrom('', '?k=1', '?k=1/2'),
    );
    const uri = part.map(([path, query]) => resourceName(`xdstp://auth/${L}/${path.join('/')}${query}`));
    fc.assert(
      fc.property(uri, uri, (name, other) => {
        const over = parentGlob(name);
        if (over !== undefined) expect([isGlob(over), globMatches(over, name)]).to.deep.equal([true, true]);
        if (isGlob(other)) expect(globMatches(other, name)).to.equal(over === other);
      }),
      { numRuns: 1000 },
    );
    expect(parentGlob(resourceName('a/b'))).to.equal(undefined);
  });

  it('§6 a name that is no glob selects nothing', () => {
    expect(globMatches(resourceName('*'), resourceName('a'))).to.equal(false);
    expect(globMatches(resourceName(`xdstp://auth/${L}/a`), resourceName(`xdstp://auth/${L}/a`))).to.equal(
      false,
    );
  });
});
