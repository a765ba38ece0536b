import { expect } from 'chai';
import fc from 'fast-check';
import { typeUrl } from '../../src/model/brand.ts';
import { ALLOW_ALL, type AuthorizationRule, compileAuthorization } from '../../src/security/authorization.ts';
import { compileGlob } from '../../src/security/pattern.ts';
import type { Peer } from '../../src/wire/server-stream.ts';
import { testPeer } from '../support/peers.ts';
import { namePatterns } from './name-patterns.ts';

const cds = typeUrl('type.googleapis.com/envoy.config.cluster.v3.Cluster');
const sds = typeUrl('type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret');

const peer = (uriSans: readonly string[] = [], dnsSans: readonly string[] = []): Peer =>
  testPeer({ uriSans, dnsSans });

type RuleTexts = Omit<AuthorizationRule, 'names'> & { readonly names: readonly string[] | undefined };

const rule = ({ names, ...part }: Partial<RuleTexts> = {}): AuthorizationRule => ({
  principals: undefined,
  types: undefined,
  names: names && namePatterns(names),
  allow: true,
  ...part,
});

const access = (rules: readonly AuthorizationRule[], of: Peer = peer()) =>
  compileAuthorization(rules).accessOf(of);

describe('authorization', () => {
  it('without rules allows everything, to everyone as one class', () => {
    const authorization = compileAuthorization([]);
    expect(authorization.accessOf(peer())).to.equal(ALLOW_ALL);
    expect(authorization.accessOf(peer(['spiffe://a/b']))).to.equal(ALLOW_ALL);
    expect(ALLOW_ALL.allows(cds, 'x')).to.be.true;
    expect(ALLOW_ALL.deniesEverything(cds)).to.be.false;
  });

  it('with a rule denies what none matches', () => {
    const some = access([rule({ types: [cds] })]);
    expect(some.allows(cds, 'x')).to.be.true;
    expect(some.allows(sds, 'x')).to.be.false;
    expect(some.deniesEverything(cds)).to.be.false;
    expect(some.deniesEverything(sds)).to.be.true;
  });

  it('takes the first rule that matches', () => {
    const some = access([rule({ names: ['secret*'], allow: false }), rule({ names: ['*'] })]);
    expect(some.allows(cds, 'secret-1')).to.be.false;
    expect(some.allows(cds, 'public')).to.be.true;
  });

  it('compares names exactly, or by a prefix with a trailing *', () => {
    const some = access([rule({ names: ['web', 'team-a/*'] })]);
    expect(some.allows(cds, 'web')).to.be.true;
    expect(some.allows(cds, 'web2')).to.be.false;
    expect(some.allows(cds, 'team-a/x')).to.be.true;
    expect(some.allows(cds, 'team-b/x')).to.be.false;
    expect(some.allows(cds, '__proto__')).to.be.false;
  });

  it('knows peers by URI SANs and by DNS SANs', () => {
    const rules = [rule({ principals: ['spiffe://example.com/ns/*', 'dns:*.Example.com'] })];
    expect(access(rules, peer(['spiffe://example.com/ns/a'])).allows(cds, 'x')).to.be.true;
    expect(access(rules, peer(['spiffe://example.org/ns/a'])).allows(cds, 'x')).to.be.false;
    expect(access(rules, peer(['spiffe://example.com/NS/a'])).allows(cds, 'x')).to.be.false;
    expect(access(rules, peer([], ['web.EXAMPLE.com'])).allows(cds, 'x')).to.be.true;
    expect(access(rules, peer([], ['example.com'])).allows(cds, 'x')).to.be.false;
    expect(access(rules, peer(['web.example.com'])).allows(cds, 'x')).to.be.false;
  });

  it('takes a peer without a certificate for nobody, even by *', () => {
    expect(access([rule({ principals: ['*', 'dns:*'] })]).allows(cds, 'x')).to.be.false;
    expect(access([rule()]).allows(cds, 'x')).to.be.true;
  });

  it('denies all of a type only if no name of it is allowed', () => {
    const shadowed = [rule({ names: ['a*'], allow: false }), rule({ names: ['ab*', 'abc'] })];
    expect(access(shadowed).deniesEverything(cds)).to.be.true;
    expect(access([...shadowed, rule({ names: ['b'] })]).deniesEverything(cds)).to.be.false;
    expect(access([rule({ allow: false }), rule()]).deniesEverything(cds)).to.be.true;
    expect(access([rule({ types: [sds], allow: false }), rule()]).deniesEverything(cds)).to.be.false;
    expect(access([rule({ names: [] })]).deniesEverything(cds)).to.be.true;
  });

  it('denies all of every type only if no type has a name that is allowed', () => {
    const closed = rule({ types: [cds], allow: false });
    expect(access([closed, rule({ types: [cds] })]).deniesEverything(undefined)).to.be.true;
    expect(access([closed, rule({ types: [cds, sds] })]).deniesEverything(undefined)).to.be.false;
    expect(access([closed, rule()]).deniesEverything(undefined), 'of some other type').to.be.false;
    const shadowed = [rule({ names: ['a*'], allow: false }), rule({ names: ['ab'] })];
    expect(access(shadowed).deniesEverything(undefined)).to.be.true;
    expect(access([rule({ principals: ['dns:x'] })]).deniesEverything(undefined)).to.be.true;
  });

  describe('of xdstp names', () => {
    const type = 'envoy.config.cluster.v3.Cluster';
    for (const [pattern, matching, others] of [
      [
        `xdstp://a/${type}/t%65am/x?b=2&a=%31`,
        [`xdstp://a/${type}/team/x?a=1&b=2`],
        [`xdstp://a/${type}/team/x`, `xdstp://a/${type}/team/x?a=1`],
      ],
      [
        `xdstp://%61/${type}/te%61*`,
        [`xdstp://a/${type}/tea`, `xdstp://a/${type}/team/x?a=1`],
        [`xdstp://a/${type}/te`, `xdstp://b/${type}/team`],
      ],
      [`xdstp://a/${type}/x%2f*`, [`xdstp://a/${type}/x%2Fy`], [`xdstp://a/${type}/x/y`]],
      [`xdstp://a/${type}/x/%2A`, [`xdstp://a/${type}/x/*`], [`xdstp://a/${type}/x/y`]],
      ['xd*', [`xdstp://a/${type}/x`], []],
    ] as const) {
      it(`${pattern} means the same in any spelling`, () => {
        const some = access([rule({ names: [pattern] })]);
        for (const name of matching) expect(some.allows(cds, name), name).to.be.true;
        for (const name of others) expect(some.allows(cds, name), name).to.be.false;
      });
    }
  });

  it('puts peers that are treated equally into one class', () => {
    const rules = [rule({ principals: ['spiffe://e/a*'], types: [sds] }), rule({ types: [cds] })];
    const authorization = compileAuthorization(rules);
    const [a1, a2, b] = ['spiffe://e/a1', 'spiffe://e/a2', 'spiffe://e/b'].map((uri) =>
      authorization.accessOf(peer([uri])),
    );
    expect(a1).to.equal(a2);
    expect(a1?.key).not.to.equal(b?.key);
    expect(b).to.equal(authorization.accessOf(peer()));
  });

  it('keeps the key of a class when rules are read again, and changes it with what it may see', () => {
    const before = access([rule({ types: [cds] })]);
    const unrelated = access([rule({ principals: ['dns:x'], allow: false }), rule({ types: [cds] })]);
    const changed = access([rule({ types: [sds] })]);
    expect(unrelated.key).to.equal(before.key);
    expect(changed.key).not.to.equal(before.key);
    expect(access([rule({ allow: true })])).to.equal(ALLOW_ALL);
  });

  it('agrees with a plain reading of the rules', () => {
    const name = fc.stringMatching(/^[ab]{0,3}$/);
    const pattern = fc.oneof(
      name,
      name.map((text) => `${text}*`),
    );
    const arbitraryRule = fc.record({
      principals: fc.option(fc.subarray(['u:a', 'u:b', 'dns:c']), { nil: undefined }),
      types: fc.option(fc.subarray([cds, sds]), { nil: undefined }),
      names: fc.option(fc.array(pattern, { maxLength: 3 }), { nil: undefined }),
      allow: fc.boolean(),
    });
    const uris = fc.subarray(['u:a', 'u:b']);
    fc.assert(
      fc.property(fc.array(arbitraryRule, { minLength: 1 }), uris, name, (rules, sans, asked) => {
        const found = rules.find(
          ({ principals, types, names }) =>
            (principals?.some((principal) => sans.includes(principal)) ?? true) &&
            (types?.includes(cds) ?? true) &&
            (names?.some((one) => (one.endsWith('*') ? asked.startsWith(one.slice(0, -1)) : one === asked)) ??
              true),
        );
        const some = access(
          rules.map((part) => rule(part)),
          peer(sans),
        );
        expect(some.allows(cds, asked)).to.equal(found?.allow ?? false);
        if (some.deniesEverything(cds)) expect(some.allows(cds, asked)).to.be.false;
      }),
      { numRuns: 1000 },
    );
  });
});

describe('glob', () => {
  it('agrees with a regular expression', () => {
    const text = fc.stringMatching(/^[ab]{0,8}$/);
    fc.assert(
      fc.property(fc.stringMatching(/^[ab*]{0,6}$/), text, (pattern, given) => {
        const expected = new RegExp(`^${pattern.replaceAll('*', '.*')}$`).test(given);
        expect(compileGlob(pattern)(given)).to.equal(expected);
      }),
      { numRuns: 5000 },
    );
  });
});
