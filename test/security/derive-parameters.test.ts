import { create, type MessageInitShape, toBinary } from '@bufbuild/protobuf';
import { expect } from 'chai';
import { NodeSchema } from '../../src/gen/envoy/config/core/v3/base_pb.ts';
import { wantedMetadata } from '../../src/model/node-path.ts';
import { internParameters, NO_PARAMETERS } from '../../src/model/parameters.ts';
import { type ClientNode, readClientNode } from '../../src/security/client-node.ts';
import { compileParameterRules, type ParameterRule } from '../../src/security/derive-parameters.ts';
import type { Peer } from '../../src/wire/server-stream.ts';
import { cpuSeconds } from '../support/cpu.ts';
import { testPeer } from '../support/peers.ts';

const nobody = testPeer();

function node(init: MessageInitShape<typeof NodeSchema>): ClientNode {
  const read = readClientNode(Buffer.from(toBinary(NodeSchema, create(NodeSchema, init))));
  if (!read.ok) throw new Error(read.error);
  return read.value;
}

const NO_NODE = node({});

describe('what is kept of a node', () => {
  it('is not more of a text than shows that it is too long for any rule', () => {
    const long = 'é'.repeat(1_000_000);
    const kept = node({
      userAgentName: long,
      userAgentVersionType: { case: 'userAgentVersion', value: long },
      locality: { region: long, zone: long, subZone: long },
      metadata: { env: long },
      clientFeatures: [...Array.from({ length: 100 }, (_, at) => `feature-${at}`), long, 'last'],
    });
    const { region, zone, subZone } = kept.locality;
    const texts = [
      kept.userAgentName,
      kept.userAgentVersion,
      region,
      zone,
      subZone,
      kept.metadata.get('env'),
    ];
    for (const text of texts) expect(text).to.have.length.within(4097, 16_388);
    expect(kept.clientFeatures).to.have.lengthOf(100);
  });
});

const rule = (part: Partial<ParameterRule> & Pick<ParameterRule, 'from'>): ParameterRule => ({
  key: 'k',
  authorities: [],
  pattern: undefined,
  default: undefined,
  values: [],
  trusted: false,
  ...part,
});

function derive(rules: readonly ParameterRule[], from: ClientNode, peer = nobody, authority?: string) {
  return Object.fromEntries(compileParameterRules(rules).of(from, peer).for(authority).entries);
}

const value = (from: string, given: ClientNode, peer = nobody) => derive([rule({ from })], given, peer)['k'];

const full = node({
  id: 'web-1',
  cluster: 'web',
  locality: { region: 'eu', zone: 'eu-1', subZone: 'eu-1-a' },
  userAgentName: 'envoy',
  userAgentVersionType: {
    case: 'userAgentBuildVersion',
    value: { version: { majorNumber: 1, minorNumber: 40, patch: 2 } },
  },
  metadata: {
    env: 'prod',
    empty: '',
    number: 1.5,
    yes: true,
    nothing: null,
    list: ['a'],
    nested: { deep: { er: 'x' } },
    constructor: 'c',
  },
});

describe('parameter rules', () => {
  it('read every place of the contract', () => {
    const read = (path: string) => value(path, full);
    expect(read('node.id')).to.equal('web-1');
    expect(read('node.cluster')).to.equal('web');
    expect(read('node.locality.region')).to.equal('eu');
    expect(read('node.locality.zone')).to.equal('eu-1');
    expect(read('node.locality.sub_zone')).to.equal('eu-1-a');
    expect(read('node.user_agent_name')).to.equal('envoy');
    expect(read('node.user_agent_version')).to.equal('1.40.2');
    expect(read('node.metadata.env')).to.equal('prod');
    expect(read('node.metadata.nested.deep.er')).to.equal('x');
    const peer = { ...nobody, uriSans: ['spiffe://e/a'], dnsSans: ['a.e', 'b.e'] };
    expect(value('peer.uri_san', full, peer)).to.equal('spiffe://e/a');
    expect(value('peer.dns_san', full, peer)).to.equal('a.e');
  });

  it('take strings as they are, numbers and booleans as JSON, and nothing else', () => {
    expect(value('node.metadata.empty', full)).to.equal('');
    expect(value('node.metadata.number', full)).to.equal('1.5');
    expect(value('node.metadata.yes', full)).to.equal('true');
    for (const key of ['nothing', 'list', 'nested', 'env.deeper', 'missing', '__proto__', 'toString']) {
      expect(value(`node.metadata.${key}`, full), key).to.be.undefined;
    }
    expect(value('node.metadata.constructor', full)).to.equal('c');
    expect(value('node.metadata.n', node({ metadata: { n: 1e21 } }))).to.equal('1e+21');
  });

  it('leave a key absent without a value, or give its default', () => {
    expect(derive([rule({ from: 'node.id' })], NO_NODE)).to.deep.equal({});
    expect(derive([rule({ from: 'node.id', default: 'none' })], NO_NODE)).to.deep.equal({ k: 'none' });
    expect(derive([rule({ from: 'node.metadata.empty', default: 'none' })], full)).to.deep.equal({ k: '' });
  });

  it('take the first group of the pattern, or the whole match where it has none', () => {
    const by = (pattern: string, fallback?: string) =>
      derive([rule({ from: 'node.id', pattern, default: fallback })], full)['k'];
    expect(by('^([a-z]+)-')).to.equal('web');
    expect(by('[0-9]')).to.equal('1');
    expect(by('^x')).to.be.undefined;
    expect(by('^x', 'd')).to.equal('d');
    expect(by('web(-x)?')).to.be.undefined;
    expect(by('web(x?)')).to.equal('');
  });

  it('take the first of several SANs that the pattern matches', () => {
    const peer = { ...nobody, uriSans: ['https://e', 'spiffe://e/prod/a', 'spiffe://e/test/a'] };
    const rules = [rule({ from: 'peer.uri_san', pattern: '^spiffe://e/([^/]+)/' })];
    expect(derive(rules, full, peer)).to.deep.equal({ k: 'prod' });
  });

  describe('from node.client_features', () => {
    const one = node({ clientFeatures: ['envoy.lrs.v1', 'acme.plan.gold', 'acme.plan.silver', 'fast'] });
    const from = 'node.client_features';
    const cases: readonly (readonly [string, Partial<ParameterRule>, string | undefined])[] = [
      ['the first group of the first feature that matches', { pattern: '^acme\\.plan\\.(.*)$' }, 'gold'],
      ['the whole match without a group', { pattern: '^fast$' }, 'fast'],
      ['absent if none matches', { pattern: '^slow$' }, undefined],
      ['the default if none matches', { pattern: '^slow$', default: 'no' }, 'no'],
      ['the first with an allowed value', { pattern: '^acme\\.plan\\.(.*)$', values: ['silver'] }, 'silver'],
    ];
    for (const [title, changes, expected] of cases) {
      it(title, () => {
        expect(derive([rule({ from, ...changes })], one)['k']).to.equal(expected);
      });
    }

    it('reads 4,096 characters of features in all', () => {
      const clientFeatures = ['a'.repeat(2048), 'b'.repeat(2048), 'c'];
      const read = (pattern: string) => derive([rule({ from, pattern })], node({ clientFeatures }))['k'];
      expect(read('^b+$')).to.have.length(2048);
      expect(read('^c$')).to.be.undefined;
    });
  });

  it('are not held up by a pattern that makes others backtrack, nor by a huge value', () => {
    const rules = [rule({ from: 'node.user_agent_name', pattern: '^(a+)+$' })];
    const before = cpuSeconds();
    expect(derive(rules, node({ userAgentName: `${'a'.repeat(4000)}b` }))).to.deep.equal({});
    expect(derive(rules, node({ userAgentName: 'a'.repeat(1_000_000) }))).to.deep.equal({});
    expect(cpuSeconds() - before).to.be.below(2);
  });

  it('take a value that is not listed for none: the next SAN, the next rule, the default', () => {
    const peer = { ...nobody, uriSans: ['spiffe://e/evil', 'spiffe://e/prod'] };
    const bySan = rule({ from: 'peer.uri_san', pattern: '^spiffe://e/(.*)', values: ['prod', 'test'] });
    expect(derive([bySan], full, peer)).to.deep.equal({ k: 'prod' });
    const listed = rule({ from: 'node.id', values: ['a', 'b'] });
    expect(derive([listed], full)).to.deep.equal({});
    expect(derive([listed, rule({ from: 'node.cluster' })], full)).to.deep.equal({ k: 'web' });
    expect(derive([{ ...listed, default: 'b' }], full)).to.deep.equal({ k: 'b' });
    expect(derive([{ ...listed, values: ['web-1'] }], full)).to.deep.equal({ k: 'web-1' });
  });

  it('take a value of a locator that is not listed for none', () => {
    const given = (rules: readonly ParameterRule[], own: Record<string, string>, authority?: string) => {
      const derived = compileParameterRules(rules).of(full, nobody);
      return Object.fromEntries(derived.merge(internParameters(Object.entries(own)), authority).entries);
    };
    const listed = rule({ from: 'node.id', values: ['a', 'b'] });
    expect(given([listed], { k: 'a', other: 'x' })).to.deep.equal({ k: 'a', other: 'x' });
    expect(given([listed], { k: 'invented', other: 'x' })).to.deep.equal({ other: 'x' });
    // Each rule of the key allows what it lists.
    const others = [listed, rule({ from: 'node.cluster', values: ['c'] })];
    expect(given(others, { k: 'c' })).to.deep.equal({ k: 'c' });
    expect(given(others, { k: 'd' })).to.deep.equal({});
    // Of names that the rule is not for it says nothing.
    const elsewhere = [{ ...listed, authorities: ['e.com'] }];
    expect(given(elsewhere, { k: 'invented' }, 'e.com')).to.deep.equal({});
    expect(given(elsewhere, { k: 'invented' }, 'f.com')).to.deep.equal({ k: 'invented' });
    expect(given(elsewhere, { k: 'invented' })).to.deep.equal({ k: 'invented' });
    const trusted = [rule({ from: 'node.id', trusted: true, values: ['web-1'] })];
    expect(given(trusted, { k: 'invented' })).to.deep.equal({ k: 'web-1' });
  });

  it('take the first rule for a key that has a value', () => {
    const rules = [
      rule({ from: 'node.metadata.missing' }),
      rule({ from: 'node.id' }),
      rule({ from: 'node.cluster' }),
    ];
    expect(derive(rules, full)).to.deep.equal({ k: 'web-1' });
  });

  it('hold for their authorities only', () => {
    const rules = [
      rule({ key: 'all', from: 'node.id' }),
      rule({ key: 'some', from: 'node.cluster', authorities: ['example.com'] }),
    ];
    expect(derive(rules, full)).to.deep.equal({ all: 'web-1' });
    expect(derive(rules, full, nobody, 'other.com')).to.deep.equal({ all: 'web-1' });
    expect(derive(rules, full, nobody, 'example.com')).to.deep.equal({ all: 'web-1', some: 'web' });
  });

  describe('a trusted rule makes the others of its key void', () => {
    const tenant = { ...nobody, uriSans: ['a'] };
    const claimed = node({ metadata: { k: 'b' } });
    const own = internParameters([['k', 'b']]);
    const untrusted = rule({ from: 'node.metadata.k' });
    const trusted = rule({ from: 'peer.uri_san', trusted: true });

    for (const [order, rules] of [
      ['before it', [untrusted, trusted]],
      ['after it', [trusted, untrusted]],
    ] as const) {
      it(`that come ${order}`, () => {
        expect(derive(rules, claimed, tenant)).to.deep.equal({ k: 'a' });
        expect(derive(rules, claimed, nobody), 'no certificate: absent').to.deep.equal({});
        const merged = compileParameterRules(rules).of(claimed, nobody).merge(own, undefined);
        expect(merged, "the client's own are void, too").to.equal(NO_PARAMETERS);
      });
    }

    it('for the names of its authorities', () => {
      const rules = [untrusted, { ...trusted, authorities: ['example.com'] }];
      expect(derive(rules, claimed, nobody, 'example.com')).to.deep.equal({});
      expect(derive(rules, claimed, tenant, 'example.com')).to.deep.equal({ k: 'a' });
      expect(derive(rules, claimed, tenant, 'other.com')).to.deep.equal({ k: 'b' });
    });
  });

  it('give equal clients the same object', () => {
    const rules = compileParameterRules([rule({ from: 'node.cluster' })]);
    const one = rules.of(node({ id: 'a', cluster: 'web' }), nobody);
    const two = rules.of(node({ id: 'b', cluster: 'web' }), nobody);
    expect(one).to.equal(two);
    expect(one.for('a.com')).to.equal(two.for(undefined));
  });

  it('without any derive nothing', () => {
    const none = compileParameterRules([]).of(full, nobody);
    expect(none.for(undefined)).to.equal(NO_PARAMETERS);
    const own = internParameters([['k', 'v']]);
    expect(none.merge(own, undefined)).to.equal(own);
  });

  describe('merged with what a client sends', () => {
    const rules = [
      rule({ key: 'env', from: 'node.metadata.env' }),
      rule({ key: 'team', from: 'peer.uri_san', trusted: true }),
      rule({ key: 'site', from: 'node.cluster', trusted: true, authorities: ['example.com'] }),
    ];
    const own = internParameters([
      ['env', 'mine'],
      ['team', 'mine'],
      ['site', 'mine'],
    ]);
    const merged = (peer: Peer, authority?: string) =>
      Object.fromEntries(compileParameterRules(rules).of(full, peer).merge(own, authority).entries);

    it("leave the client's own where they are not trusted", () => {
      expect(merged({ ...nobody, uriSans: ['a'] })).to.deep.equal({ env: 'mine', team: 'a', site: 'mine' });
    });

    it('win where they are trusted, also by being absent', () => {
      expect(merged(nobody)).to.deep.equal({ env: 'mine', site: 'mine' });
      expect(merged(nobody, 'example.com')).to.deep.equal({ env: 'mine', site: 'web' });
    });
  });
});

describe('client node', () => {
  it('skips extensions, keeps features, and takes a plain user agent version', () => {
    const extensions = Array.from({ length: 1000 }, (_, index) => ({ name: `e${index}`, category: 'c' }));
    const read = node({
      id: 'a',
      extensions,
      clientFeatures: ['xds.config.resource-in-sotw', 'b'],
      userAgentVersionType: { case: 'userAgentVersion', value: '9' },
    });
    expect(read).to.deep.equal({
      ...NO_NODE,
      id: 'a',
      userAgentVersion: '9',
      clientFeatures: ['xds.config.resource-in-sotw', 'b'],
    });
  });

  it('of metadata only the keys that are wanted are read, the last of several', () => {
    const bytes = Buffer.concat(
      [
        { env: 'a', huge: 'x' },
        { env: 'b', other: { deep: 1 } },
      ].map((metadata) => Buffer.from(toBinary(NodeSchema, create(NodeSchema, { metadata })))),
    );
    const read = readClientNode(bytes, wantedMetadata(['node.metadata.env', 'node.metadata.absent']));
    expect(read.ok && [...read.value.metadata]).to.deep.equal([['env', 'b']]);
  });

  it('says that garbage is garbage', () => {
    const read = readClientNode(Buffer.from([0x0a, 0xff, 0x01]));
    expect(read.ok).to.be.false;
    expect(!read.ok && read.error).to.match(/^node cannot be decoded: /);
  });

  it('refuses metadata of more than 20,000 entries', () => {
    const entry = Buffer.from([0x0a, 0x00]);
    const of = (entries: number): boolean => {
      const struct = Buffer.concat(Array.from({ length: entries }, () => entry));
      const metadata = toBinary(NodeSchema, create(NodeSchema, { id: 'a' }));
      const length = [
        0x80 | (struct.length & 0x7f),
        0x80 | ((struct.length >> 7) & 0x7f),
        struct.length >> 14,
      ];
      return readClientNode(Buffer.concat([metadata, Buffer.of(0x1a, ...length), struct])).ok;
    };
    expect([of(20_000), of(20_001)]).to.deep.equal([true, false]);
  });

  it('survives metadata nested without end', () => {
    // Struct { fields { value { struct_value … } } }: each level wraps the last in three length-delimited fields.
    let bytes = Buffer.alloc(0);
    const wrap = (field: number, inner: Buffer) => {
      const length: number[] = [];
      let rest = inner.length;
      for (; rest > 127; rest = Math.floor(rest / 128)) length.push((rest % 128) + 128);
      return Buffer.concat([Buffer.from([field * 8 + 2, ...length, rest]), inner]);
    };
    for (let depth = 0; depth < 2000; depth++) bytes = wrap(1, wrap(2, wrap(5, bytes)));
    const read = readClientNode(wrap(3, bytes));
    expect(typeof read.ok).to.equal('boolean');
  });
});
