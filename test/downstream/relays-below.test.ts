import { expect } from 'chai';
import type { DiscoveryResponse } from '../../src/gen/envoy/service/discovery/v3/discovery_pb.ts';
import { UNCONSTRAINED } from '../../src/model/constraints.ts';
import { internParameters } from '../../src/model/parameters.ts';
import { exactly, PASSES_VARIANTS, UNKNOWN_NAMES, USER_AGENT } from '../../src/wire/between-relays.ts';
import {
  type DeltaClient,
  envAndVersion,
  InMemoryRelay,
  namedHolder,
  nameOf,
  node,
  put,
  type SotwClient,
  type,
  UpstreamStream,
  when,
} from '../support/in-memory-relay.ts';
import { locator, shown, told, wrapped } from '../support/variants.ts';

const eds = type('eds');
const prod = when({ env: 'prod' });

describe('a relay of variants below (client feature distributary.passes-variants)', () => {
  const below = (metadata: Record<string, string> = {}) => ({ node: node(metadata, [PASSES_VARIANTS]) });
  const says = (relay: InMemoryRelay, ...puts: readonly ReturnType<typeof put>[]): void =>
    relay.says({ type: eds, holder: namedHolder, puts });
  const heard = (client: DeltaClient): string[][] => client.received().map(told);

  it('its plain names are locators without parameters, whatever the rules make of its node', () => {
    const lab = new InMemoryRelay();
    const relay = lab.delta();
    relay.send('eds', { ...below({ env: 'prod' }), resourceNamesSubscribe: ['a', 'b'] });
    expect(lab.upstream.journal).to.deep.equal(['+eds a', '+eds b']);
    says(
      lab,
      put(eds, 'a', 'for prod', { constraints: prod }),
      put(eds, 'a', 'for others', { constraints: when({ env: 'test' }) }),
      put(eds, 'b', 'all'),
    );
    expect(heard(relay)).to.deep.equal([['+b {} all', '-a {}']]);
  });

  it('its wildcard, too: also the empty first request of SotW', () => {
    const lab = new InMemoryRelay();
    const relay = lab.sotw();
    relay.send('cds', below({ env: 'prod' }));
    const unset = when({ env: 'test' });
    lab.says({
      type: type('cds'),
      complete: true,
      puts: [put(type('cds'), 'a', 'x', { constraints: unset }), put(type('cds'), 'b', 'y')],
    });
    expect(relay.received().map(wrapped)).to.deep.equal([['+b {} y']]);
  });

  it('§4.1 what it says it has is not sent again, and what has gone is taken back', () => {
    const relay = new InMemoryRelay();
    const first = relay.delta();
    first.send('eds', { ...below(), resourceNamesSubscribe: ['a', 'b', 'c'] });
    says(relay, put(eds, 'a', '1'), put(eds, 'b', '1'), put(eds, 'c', '1'));
    const versions = Object.fromEntries(
      first.one().resources.map(({ resourceName, version }) => [resourceName?.name ?? '', version]),
    );
    first.disconnect();
    relay.says({
      type: eds,
      holder: namedHolder,
      puts: [put(eds, 'b', '2'), put(eds, 'c', '2', { constraints: prod })],
      removals: [{ name: put(eds, 'c', '').name, constraints: UNCONSTRAINED }],
    });
    const again = relay.delta();
    again.send('eds', {
      ...below(),
      initialResourceVersions: versions,
      resourceNamesSubscribe: ['a', 'b'],
      resourceLocatorsSubscribe: [locator('c', { env: 'prod' })],
    });
    relay.says({ type: eds, holder: namedHolder });
    expect(heard(again).flat().toSorted()).to.deep.equal(['+b {} 2', '+c {env == "prod"} 2', '-c {}']);
  });

  it('§5 a name that misses for several parameter sets is said once in a response', () => {
    const lab = new InMemoryRelay();
    const relay = lab.delta();
    relay.send('eds', {
      ...below(),
      resourceLocatorsSubscribe: [
        locator('a', { env: 'x' }),
        locator('a', { env: 'y' }),
        locator('a', { env: 'prod' }),
      ],
    });
    says(lab, put(eds, 'a', '1', { constraints: prod }));
    expect(heard(relay)).to.deep.equal([['+a {env == "prod"} 1', '-a {}']]);
  });
});

describe('a relay below that is told which wildcards are unknown (client feature distributary.unknown-names)', () => {
  const all = [locator('*', { env: 'prod' }), locator('*', { env: 'prod', version: '2' })];
  const unknown = (client: DeltaClient): (readonly string[])[] =>
    client.received().map((response) => [
      ...told(response),
      ...response.resourceErrors.map(({ resourceName: of, errorDetail }) => {
        const { value } = of?.dynamicParameterConstraints?.type ?? {};
        const keys = value !== undefined && 'constraints' in value ? value.constraints : [];
        return `?${of?.name} for ${keys.length} keys: ${errorDetail?.message}`;
      }),
    ]);

  for (const [what, features, said] of [
    [
      'the relay is told, until they are answered',
      [UNKNOWN_NAMES],
      ['?* for 2 keys: distributary: not known yet'],
    ],
    ['another client is not', [], []],
  ] as const) {
    it(`§3.13 over delta ${what}`, () => {
      const relay = new InMemoryRelay();
      const client = relay.delta();
      client.send('eds', { node: node({}, [...features]), resourceLocatorsSubscribe: all });
      const wildcard = { key: 'w', role: 'wildcard', upstream: 'test' } as const;
      const ofKeys = (count: number) =>
        [...relay.upstream.interests].filter(({ parameters }) => parameters.entries.size === count);
      const one = put(eds, 'a', '1', { constraints: prod });
      relay.says({ type: eds, holder: wildcard, puts: [one], resolved: ofKeys(1) });
      expect(unknown(client)).to.deep.equal([['+a {env == "prod"} 1', ...said]]);
      relay.says({ type: eds, holder: wildcard, puts: [put(eds, 'b', '1')], resolved: ofKeys(2) });
      expect(unknown(client)).to.deep.equal([['+a {env == "prod"} 1', '+b {} 1']]);
    });
  }
});

it('§3.13 a relay below is told of its own parameters, where trusted ones count instead', () => {
  const relay = new InMemoryRelay({ rules: envAndVersion.map((rule) => ({ ...rule, trusted: true })) });
  const client = relay.delta();
  client.send('eds', {
    node: node({ env: 'test' }, [UNKNOWN_NAMES]),
    resourceNamesSubscribe: ['a'],
    resourceLocatorsSubscribe: [locator('*', { env: 'prod' }), locator('*', { zone: '2' })],
  });
  const resolved = [...relay.upstream.interests].filter(({ selector }) => selector === 'a');
  relay.says({ type: eds, holder: namedHolder, puts: [put(eds, 'a', '1')], resolved });
  const told = client.one().resourceErrors.flatMap(({ resourceName: of }) => (of ? shown(of) : []));
  expect(told.toSorted()).to.deep.equal(['* {env == "prod"}', '* {zone == "2"}']);
});

it('§3.13 what says for exactly which parameters a wildcard is unknown is made once', () => {
  const parameters = internParameters([['env', 'prod']]);
  expect(exactly(parameters)).to.equal(exactly(parameters));
});

describe('a relay below that is told what is unknown (client feature distributary.unknown-names)', () => {
  const cds = type('cds');
  const below = { node: node({}, [UNKNOWN_NAMES]) };
  const of = (response: DiscoveryResponse): string[] => [
    ...response.resources.map((one) => `+${nameOf(one)}`),
    ...response.resourceErrors.map(
      ({ resourceName, errorDetail }) => `?${resourceName?.name} ${errorDetail?.message}`,
    ),
  ];
  const heard = (client: SotwClient): string[][] => client.received().map(of);
  /** The first response for [a, b] when only a is known. */
  const asked = (request: object): { lab: InMemoryRelay; client: SotwClient } => {
    const lab = new InMemoryRelay();
    const client = lab.sotw();
    client.send('cds', { resourceNames: ['a', 'b'], ...request });
    const resolved = [...lab.upstream.interests].filter(({ selector }) => selector === 'a');
    lab.says({ type: cds, holder: namedHolder, puts: [put(cds, 'a', '1')], resolved });
    return { lab, client };
  };

  it('§3.13 is sent what is known at once, and which names are not', () => {
    const { lab, client } = asked({ ...below, versionInfo: 'from an earlier stream' });
    expect(heard(client)).to.deep.equal([['+a', '?b distributary: not known yet']]);
    lab.says({ type: cds, holder: namedHolder, puts: [put(cds, 'a', '2')], resolved: [] });
    expect(heard(client)).to.deep.equal([['+a', '?b distributary: not known yet']]);
    lab.says({ type: cds, holder: namedHolder });
    expect(heard(client)).to.deep.equal([['+a']]);
  });

  it('§3.9 other clients are not, and a response that would delete waits', () => {
    const { lab, client } = asked({ versionInfo: 'from an earlier stream' });
    expect(heard(client)).to.deep.equal([]);
    lab.says({ type: cds, holder: namedHolder });
    expect(heard(client)).to.deep.equal([['+a']]);
    expect(heard(asked({}).client)).to.deep.equal([['+a']]);
  });

  it('the wildcard is waited for: what it has can only be told as a whole', () => {
    const lab = new InMemoryRelay();
    const client = lab.sotw();
    client.send('cds', { resourceNames: ['*', 'b'], ...below });
    lab.says({ type: cds, holder: namedHolder, puts: [put(cds, 'b', '1')], resolved: [] });
    expect(heard(client)).to.deep.equal([]);
  });
});

describe('a relay below that asks for a glob with names of the same type', () => {
  const glob = 'xdstp://x/envoy.config.cluster.v3.Cluster/foo/*';
  const below = { node: { ...node(), userAgentName: USER_AGENT } };
  const heard = (client: DeltaClient): string[] =>
    client
      .received()
      .flatMap((response) => [
        ...told(response),
        ...response.resourceErrors.map(({ resourceName }) => `!${resourceName?.name}`),
      ]);
  const asked = (lab: InMemoryRelay): DeltaClient => {
    const client = lab.delta();
    client.send('cds', { ...below, resourceNamesSubscribe: [glob, 'a', 'b'] });
    return client;
  };

  it('§5b.2 is sent the names at once when the glob is refused, and the reason', () => {
    const lab = new InMemoryRelay();
    const client = asked(lab);
    const upstream = new UpstreamStream(lab, 'DELTA');
    upstream.says('cds', `!${glob}:PERMISSION_DENIED`, 'a:1');
    const first = heard(client);
    expect(first.filter((one) => one.startsWith('+a'))).to.have.length(1);
    expect(first).to.include(`!${glob}`);
    upstream.says('cds', 'b:1');
    expect(heard(client).filter((one) => one.startsWith('+b'))).to.have.length(1);
    const late = heard(asked(lab));
    expect(late).to.have.length(first.length + 1);
    expect(late).to.include(`!${glob}`);
  });

  it('ADR 16 and also when what there is of the glob is from before a restart', () => {
    const lab = new InMemoryRelay();
    const client = asked(lab);
    const interest = [...lab.upstream.interests].filter(({ selector }) => selector === glob);
    const holder = { ...namedHolder, key: 'disk', restored: true as const };
    lab.says({
      type: type('cds'),
      holder,
      puts: [put(type('cds'), glob.replace('*', 'm'), '1')],
      resolved: interest,
    });
    lab.says({ type: type('cds'), holder: namedHolder, puts: [put(type('cds'), 'a', '1')], resolved: [] });
    expect(heard(client).filter((one) => one.startsWith('+'))).to.have.length(2);
  });
});
