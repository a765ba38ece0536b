import { expect } from 'chai';
import type { DeltaDiscoveryResponse } from '../../src/gen/envoy/service/discovery/v3/discovery_pb.ts';
import type { Access } from '../../src/model/access.ts';
import { resourceName } from '../../src/model/brand.ts';
import { UNCONSTRAINED } from '../../src/model/constraints.ts';
import { internParameters } from '../../src/model/parameters.ts';
import { canonicalName } from '../../src/model/xdstp.ts';
import { encodeStatus } from '../../src/wire/responses.ts';
import {
  type DeltaClient,
  InMemoryRelay,
  namedHolder,
  node,
  put,
  resources,
  type,
  wildcardHolder,
} from '../support/in-memory-relay.ts';
import { compiled, exists, is, locator, not, told, wrapped } from '../support/variants.ts';

const eds = type('eds');
const kind = 'envoy.config.endpoint.v3.ClusterLoadAssignment';
const uri = (id: string, query = ''): string => `xdstp://authority.example/${kind}/${id}${query}`;
const glob = (path: string, query = ''): string => uri(`${path}/*`, query);

function canonical(name: string): string {
  const result = canonicalName(name, eds);
  if (!result.ok) throw new Error(result.error);
  return result.value;
}

const member = (id: string, content: string, query = '') => put(eds, canonical(uri(id, query)), content);
const removal = (id: string, query = '') => ({
  name: resourceName(canonical(uri(id, query))),
  constraints: UNCONSTRAINED,
});

function subscribing(relay: InMemoryRelay, ...names: string[]): DeltaClient {
  const client = relay.delta();
  client.send('eds', { resourceNamesSubscribe: names });
  return client;
}

function says(
  relay: InMemoryRelay,
  puts: readonly ReturnType<typeof member>[],
  removals: readonly ReturnType<typeof removal>[] = [],
): void {
  relay.says({ type: eds, holder: namedHolder, puts, removals });
}

describe('xdstp names downstream (protocol §6, TP1)', () => {
  describe('spelling', () => {
    const [mine, yours, known] = [
      uri('a', '?b=2&a=1'),
      uri('a', '?b=%32&a=1'),
      canonical(uri('a', '?a=1&b=2')),
    ];

    it('context parameters in another order are the same resource: one subscription upstream', () => {
      const relay = new InMemoryRelay();
      subscribing(relay, mine);
      subscribing(relay, yours);
      subscribing(relay, known);
      expect(relay.upstream.journal).to.deep.equal([`+eds ${known}`]);
    });
    it('each subscriber is answered in its own spelling: resources, updates and removals', () => {
      const relay = new InMemoryRelay();
      const clients = [mine, yours, known].map((name) => [name, subscribing(relay, name)] as const);
      says(relay, [member('a', 'x', '?a=1&b=2')]);
      for (const [name, client] of clients) expect(told(client.one())).to.deep.equal([`+${name} x`]);
      says(relay, [member('a', 'y', '?a=1&b=2')]);
      for (const [name, client] of clients) expect(told(client.one())).to.deep.equal([`+${name} y`]);
      says(relay, [], [removal('a', '?a=1&b=2')]);
      for (const [name, client] of clients) expect(told(client.one())).to.deep.equal([`-${name}`]);
    });
    it('over SotW, wrapped, too', () => {
      const relay = new InMemoryRelay();
      const client = relay.sotw();
      client.send('eds', { node: node({}, ['xds.config.resource-in-sotw']), resourceNames: [mine] });
      says(relay, [member('a', 'x', '?a=1&b=2')]);
      expect(wrapped(client.one())).to.deep.equal([`+${mine} x`]);
    });
    it('an absent name is removed in the spelling of its subscriber', () => {
      const relay = new InMemoryRelay();
      const client = subscribing(relay, mine);
      says(relay, []);
      expect(told(client.one())).to.deep.equal([`-${mine}`]);
    });
    it('an unsubscribe in another order takes the subscription back', () => {
      const relay = new InMemoryRelay({ idleMilliseconds: 1000 });
      const client = subscribing(relay, mine);
      says(relay, [member('a', 'x', '?a=1&b=2')]);
      client.received();
      client.send('eds', { resourceNamesUnsubscribe: [yours] });
      relay.clock.advance(1000);
      expect(relay.upstream.journal).to.deep.equal([`+eds ${known}`, `-eds ${known}`]);
      expect(client.received()).to.have.length(0);
    });
    it('initial_resource_versions count in the spelling that they were sent in', () => {
      const relay = new InMemoryRelay();
      const first = subscribing(relay, mine);
      says(relay, [member('a', 'x', '?a=1&b=2')]);
      const initialResourceVersions = Object.fromEntries(
        first.one().resources.map(({ name, version }) => [name, version]),
      );
      const client = relay.delta();
      client.send('eds', { resourceNamesSubscribe: [mine], initialResourceVersions });
      expect(client.received()).to.have.length(0);
    });
    it('other parameters, or none, are another resource', () => {
      const relay = new InMemoryRelay();
      const client = subscribing(relay, uri('a'), uri('a', '?a=1'));
      says(relay, [member('a', 'x', '?a=1')]);
      expect(told(client.one())).to.deep.equal([`+${uri('a', '?a=1')} x`, `-${uri('a')}`]);
    });
    it('another authority is another resource', () => {
      const relay = new InMemoryRelay();
      const other = `xdstp://other.example/${kind}/a`;
      const client = subscribing(relay, uri('a'), other);
      says(relay, [member('a', 'x')]);
      expect(told(client.one())).to.deep.equal([`+${uri('a')} x`, `-${other}`]);
    });
  });

  describe('globs', () => {
    it('one level, with the same context parameters', () => {
      const relay = new InMemoryRelay();
      const client = subscribing(relay, glob('dir', '?p=1'));
      says(relay, [
        member('dir/a', 'x', '?p=1'),
        member('dir/sub/b', 'x', '?p=1'),
        member('dir/c', 'x'),
        member('dir/d', 'x', '?p=1&q=2'),
        member('elsewhere/e', 'x', '?p=1'),
        member('dir/f', 'y', '?p=1'),
      ]);
      expect(told(client.one())).to.deep.equal([`+${uri('dir/a', '?p=1')} x`, `+${uri('dir/f', '?p=1')} y`]);
    });
    it('context parameters of a glob in another order: the same glob', () => {
      const relay = new InMemoryRelay();
      const client = subscribing(relay, glob('dir', '?b=2&a=1'));
      says(relay, [member('dir/a', 'x', '?a=1&b=2')]);
      expect(told(client.one())).to.deep.equal([`+${canonical(uri('dir/a', '?a=1&b=2'))} x`]);
    });
    it('waits until upstream has answered', () => {
      const relay = new InMemoryRelay();
      const client = subscribing(relay, glob('dir'));
      relay.says({ type: eds, holder: namedHolder, puts: [member('dir/a', 'x')], resolved: [] });
      expect(client.received()).to.have.length(0);
      says(relay, []);
      expect(told(client.one())).to.deep.equal([`+${uri('dir/a')} x`]);
    });
    it('an empty one: its URL in removed_resources, as the subscriber spells it', () => {
      const relay = new InMemoryRelay();
      const client = subscribing(relay, glob('dir', '?b=2&a=1'));
      expect(client.received()).to.have.length(0);
      says(relay, []);
      expect(told(client.one())).to.deep.equal([`-${glob('dir', '?b=2&a=1')}`]);
      says(relay, []);
      expect(client.received()).to.have.length(0);
    });
    it('an empty one is told at once where that is known, and again when it is subscribed again', () => {
      const relay = new InMemoryRelay();
      subscribing(relay, glob('dir'));
      says(relay, []);
      const client = subscribing(relay, glob('dir'));
      expect(told(client.one())).to.deep.equal([`-${glob('dir')}`]);
      client.send('eds', { resourceNamesSubscribe: [glob('dir')] });
      expect(told(client.one())).to.deep.equal([`-${glob('dir')}`]);
    });
    it('an empty one beside one with members', () => {
      const relay = new InMemoryRelay();
      const client = subscribing(relay, glob('empty'), glob('dir'));
      says(relay, [member('dir/a', 'x')]);
      expect(told(client.one())).to.deep.equal([`+${uri('dir/a')} x`, `-${glob('empty')}`]);
    });
    it('an empty one by locator: removed_resource_names', () => {
      const relay = new InMemoryRelay();
      const client = relay.delta();
      client.send('eds', { resourceLocatorsSubscribe: [locator(glob('dir'), { env: 'prod' })] });
      says(relay, [{ ...member('dir/a', 'x'), constraints: compiled(is('env', 'test')) }]);
      expect(told(client.one())).to.deep.equal([`-${glob('dir')} {}`]);
    });
    it('a deleted member is named, and the last one too', () => {
      const relay = new InMemoryRelay();
      const client = subscribing(relay, glob('dir'));
      says(relay, [member('dir/a', 'x'), member('dir/b', 'x')]);
      client.received();
      says(relay, [], [removal('dir/a')]);
      expect(told(client.one())).to.deep.equal([`-${uri('dir/a')}`]);
      says(relay, [], [removal('dir/b')]);
      expect(told(client.one())).to.deep.equal([`-${uri('dir/b')}`]);
    });
    it('a new member comes', () => {
      const relay = new InMemoryRelay();
      const client = subscribing(relay, glob('dir'));
      says(relay, []);
      client.received();
      says(relay, [member('dir/a', 'x')]);
      expect(told(client.one())).to.deep.equal([`+${uri('dir/a')} x`]);
    });
    it('a member of another spelling that is subscribed by name as well comes once, as it was spelled', () => {
      const relay = new InMemoryRelay();
      const named = uri('dir/a', '?b=2&a=1');
      const client = subscribing(relay, glob('dir', '?a=1&b=2'), named);
      says(relay, [member('dir/a', 'x', '?a=1&b=2')]);
      expect(told(client.one())).to.deep.equal([`+${named} x`]);
      says(relay, [member('dir/a', 'y', '?a=1&b=2')]);
      expect(told(client.one())).to.deep.equal([`+${named} y`]);
      says(relay, [], [removal('dir/a', '?a=1&b=2')]);
      expect(told(client.one())).to.deep.equal([`-${named}`]);
    });
    it('a name unsubscribed under a glob that covers it in another spelling is told of as a member', () => {
      const relay = new InMemoryRelay();
      const named = uri('dir/a', '?b=2&a=1');
      const client = subscribing(relay, glob('dir', '?a=1&b=2'), named);
      says(relay, [member('dir/a', 'x', '?a=1&b=2')]);
      client.received();
      client.send('eds', { resourceNamesUnsubscribe: [named] });
      expect(told(client.one())).to.deep.equal([`+${canonical(named)} x`]);
    });
    it('§4.9 a member that is subscribed in another spelling is told of so, and not removed as a member', () => {
      const relay = new InMemoryRelay();
      const named = uri('dir/a', '?b=2&a=1');
      const client = subscribing(relay, glob('dir', '?a=1&b=2'));
      says(relay, [member('dir/a', 'x', '?a=1&b=2')]);
      client.received();
      client.send('eds', { resourceNamesSubscribe: [named] });
      says(relay, []);
      expect(client.received().flatMap(told)).to.deep.equal([`+${named} x`]);
      says(relay, [], [removal('dir/a', '?a=1&b=2')]);
      expect(told(client.one())).to.deep.equal([`-${named}`]);
    });
    it('claims of what the glob does not select are not spoken of, of what it selects they are', () => {
      const relay = new InMemoryRelay();
      subscribing(relay, glob('dir'));
      says(relay, [member('dir/a', 'x')]);
      const client = relay.delta();
      const version = '1@0123456789abcdef';
      client.send('eds', {
        resourceNamesSubscribe: [glob('dir')],
        initialResourceVersions: { [uri('dir/gone')]: version, [uri('elsewhere')]: version },
      });
      expect(told(client.one())).to.deep.equal([`+${uri('dir/a')} x`, `-${uri('dir/gone')}`]);
    });
    it('claims in another spelling of what the glob shows are no removals, however many', () => {
      const relay = new InMemoryRelay();
      const [query, theirs] = ['?a=1&b=2', '?b=2&a=1'];
      const ids = Array.from({ length: 1001 }, (_, at) => `dir/m-${at}`);
      const client = relay.delta();
      const claimed = [...ids, 'dir/gone'].map((id): [string, string] => [
        uri(id, theirs),
        '1@0123456789abcdef',
      ]);
      client.send('eds', {
        resourceNamesSubscribe: [glob('dir', theirs)],
        initialResourceVersions: Object.fromEntries(claimed),
      });
      relay.clock.advance(0);
      says(
        relay,
        ids.map((id) => member(id, 'x', query)),
      );
      const response = client.one();
      expect(Object.keys(resources(response))).to.have.length(1001);
      expect(response.removedResources).to.deep.equal([uri('dir/gone', theirs)]);
    });
    it('§4.2 subscribed again before it is answered: all comes, though the client says that it has it', () => {
      const first = new InMemoryRelay();
      const before = subscribing(first, uri('dir/a'), uri('b'));
      says(first, [member('dir/a', 'x'), member('b', 'x')]);
      const initialResourceVersions = Object.fromEntries(
        before.one().resources.map(({ name, version }) => [name, version]),
      );
      const relay = new InMemoryRelay();
      const client = relay.delta();
      client.send('eds', { resourceNamesSubscribe: [glob('dir'), uri('b')], initialResourceVersions });
      client.send('eds', { resourceNamesSubscribe: [glob('dir')] });
      says(relay, [member('dir/a', 'x'), member('b', 'x')]);
      expect(told(client.one()).toSorted()).to.deep.equal([`+${uri('b')} x`, `+${uri('dir/a')} x`]);
    });
    it('a name unsubscribed beside a glob that does not cover it: no response', () => {
      const relay = new InMemoryRelay();
      const client = subscribing(relay, glob('dir'), uri('a'));
      says(relay, [member('dir/a', 'x'), member('a', 'x')]);
      client.received();
      client.send('eds', { resourceNamesUnsubscribe: [uri('a')] });
      expect(client.received()).to.have.length(0);
    });
    it('unsubscribed: no response, and its members come no more', () => {
      const relay = new InMemoryRelay();
      const client = subscribing(relay, glob('dir'));
      says(relay, [member('dir/a', 'x')]);
      client.received();
      client.send('eds', { resourceNamesUnsubscribe: [glob('dir')] });
      says(relay, [member('dir/a', 'y')]);
      expect(client.received()).to.have.length(0);
    });
    describe('§3.9 beside a wildcard', () => {
      /** Only this wildcard or glob is answered. */
      function answers(relay: InMemoryRelay, selector: string, ...puts: ReturnType<typeof member>[]): void {
        const resolved = [...relay.upstream.interests].filter((one) => one.selector === selector);
        const holder = selector === '*' ? wildcardHolder : namedHolder;
        relay.says({ type: eds, holder, puts, resolved });
      }

      for (const form of ['names', 'locators'] as const) {
        const ask = (client: DeltaClient, ...selectors: readonly string[]): void =>
          client.send(
            'eds',
            form === 'names'
              ? { resourceNamesSubscribe: [...selectors] }
              : { resourceLocatorsSubscribe: selectors.map((one) => locator(one, { env: 'prod' })) },
          );
        const heard = (client: DeltaClient): string[] =>
          client.received().flatMap((response) => told(response).map((one) => one.replace(' {}', '')));

        it(`it does not wait for its answer (${form})`, () => {
          const relay = new InMemoryRelay();
          const client = relay.delta();
          ask(client, '*', glob('dir'), glob('empty'));
          answers(relay, glob('dir'), member('dir/a', 'x'));
          expect(heard(client)).to.deep.equal([`+${uri('dir/a')} x`]);
          answers(relay, glob('dir'), member('dir/a', 'y'));
          expect(heard(client)).to.deep.equal([`+${uri('dir/a')} y`]);
          answers(relay, '*', member('b', 'x'));
          expect(heard(client)).to.deep.equal([`+${uri('b')} x`]);
        });

        it(`what it shows is updated although a wildcard is added, and removed once that is answered (${form})`, () => {
          const relay = new InMemoryRelay();
          const client = relay.delta();
          ask(client, glob('dir'));
          answers(relay, glob('dir'), member('dir/a', 'x'));
          client.received();
          ask(client, '*');
          client.received();
          answers(relay, glob('dir'), member('dir/a', 'y'));
          expect(heard(client)).to.deep.equal([`+${uri('dir/a')} y`]);
          ask(client, glob('dir'));
          expect(heard(client)).to.deep.equal([`+${uri('dir/a')} y`]);
          relay.says({ type: eds, holder: namedHolder, removals: [removal('dir/a')], resolved: [] });
          expect(heard(client)).to.deep.equal([]);
          answers(relay, '*');
          expect(heard(client)).to.deep.equal([`-${uri('dir/a')}`]);
        });

        it(`what a wildcard shows is updated although a glob over it is added (${form})`, () => {
          const relay = new InMemoryRelay();
          const client = relay.delta();
          ask(client, '*');
          answers(relay, '*', member('dir/a', 'x'));
          client.received();
          ask(client, glob('dir'));
          client.received();
          answers(relay, '*', member('dir/a', 'y'));
          expect(heard(client)).to.deep.equal([`+${uri('dir/a')} y`]);
        });
      }
    });
    const [outside, prod] = [compiled(not(exists('env'))), compiled(is('env', 'prod'))];
    /** A client with a wildcard without parameters, and a glob with those of its authority. */
    function byAuthority(): { relay: InMemoryRelay; client: DeltaClient } {
      const rule = {
        from: 'node.metadata.env',
        pattern: undefined,
        default: undefined,
        values: [],
        trusted: false,
      };
      const rules = [{ ...rule, key: 'env', authorities: ['authority.example'] }];
      const relay = new InMemoryRelay({ rules });
      const client = relay.delta();
      client.send('eds', {
        node: node({ env: 'prod' }),
        resourceNamesSubscribe: ['*', glob('dir')],
      });
      return { relay, client };
    }
    for (const shown of ['by the wildcard', 'by the glob', 'not at all']) {
      it(`§8.2 with parameters of its authority: the errors of what it covers are told, once (shown ${shown})`, () => {
        const { relay, client } = byAuthority();
        relay.says({ type: eds });
        const constraints = shown === 'by the glob' ? prod : outside;
        if (shown !== 'not at all') says(relay, [{ ...member('dir/a', 'x'), constraints }]);
        client.received();
        const errors = (of: DeltaClient): number[] =>
          of
            .received()
            .flatMap(({ resourceErrors }) => resourceErrors.map(({ errorDetail }) => errorDetail?.code ?? 0));
        for (const [code, one, holder] of [
          [14, prod, namedHolder],
          [13, outside, wildcardHolder],
          [9, UNCONSTRAINED, wildcardHolder],
        ] as const) {
          const status = encodeStatus(code, 'x');
          const error = { ...removal('dir/a'), constraints: one, code, message: 'x', status };
          relay.says({ type: eds, holder, resourceErrors: [error], resolved: [] });
        }
        expect(errors(client)).to.deep.equal([14, 13, 9]);
        const later = relay.delta();
        later.send('eds', { node: node({ env: 'prod' }), resourceNamesSubscribe: ['*', glob('dir')] });
        expect(errors(later).toSorted((a, b) => a - b)).to.deep.equal([9, 13, 14]);
      });
    }
    it('§8.2 the errors of what its own parameters of that authority do not match are not told', () => {
      const own = internParameters([['env', 'test']]);
      const access: Access = {
        key: 'env=test',
        unrestricted: false,
        cohort: 'released',
        allows: () => true,
        deniesEverything: () => false,
        admits: ({ constraints }) => constraints.matches(own),
      };
      const relay = new InMemoryRelay({ access: () => access });
      const client = relay.delta();
      client.send('eds', {
        node: node(),
        resourceLocatorsSubscribe: [{ name: '*', dynamicParameters: { env: 'prod' } }],
      });
      relay.says({ type: eds });
      client.received();
      for (const [code, constraints] of [
        [14, prod],
        [9, UNCONSTRAINED],
      ] as const) {
        const error = {
          ...removal('dir/a'),
          constraints,
          code,
          message: 'x',
          status: encodeStatus(code, 'x'),
        };
        relay.says({ type: eds, holder: wildcardHolder, resourceErrors: [error], resolved: [] });
      }
      const told = client.received().flatMap(({ resourceErrors }) => resourceErrors);
      expect(told.map(({ errorDetail }) => errorDetail?.code)).to.deep.equal([9]);
    });
    it('§5.13 with parameters of its authority: what it shows comes before what the wildcard shows', () => {
      const { relay, client } = byAuthority();
      const heard = (): string[] => client.received().flatMap(told);
      const both = { type: eds, puts: [{ ...member('dir/a', 'x'), constraints: outside }] };
      relay.says(both);
      expect(heard()).to.deep.equal([`+${uri('dir/a')} x`]);
      says(relay, [{ ...member('dir/a', 'y'), constraints: prod }]);
      expect(heard()).to.deep.equal([`+${uri('dir/a')} y`]);
      says(relay, [], [{ ...removal('dir/a'), constraints: prod }]);
      expect(heard()).to.deep.equal([`+${uri('dir/a')} x`]);
      relay.says({ type: eds, removals: [{ ...removal('dir/a'), constraints: outside }] });
      expect(heard()).to.deep.equal([`-${uri('dir/a')}`]);
    });
    it('over SotW: the members, and an answer though it is empty', () => {
      const relay = new InMemoryRelay();
      const client = relay.sotw();
      client.send('eds', { resourceNames: [glob('dir')] });
      expect(client.received()).to.have.length(0);
      says(relay, []);
      expect(resources(client.one())).to.deep.equal({});
      says(relay, [member('dir/a', 'x')]);
      expect(Object.values(resources(client.one()))).to.deep.equal(['x']);
    });
    it('a plain name that ends in /* is no glob', () => {
      const relay = new InMemoryRelay();
      const client = subscribing(relay, 'routes/*');
      says(relay, [put(eds, 'routes/*', 'x'), put(eds, 'routes/a', 'x')]);
      expect(told(client.one())).to.deep.equal(['+routes/* x']);
    });
  });

  it('TP2 applies within each canonical name', () => {
    const relay = new InMemoryRelay();
    const client = relay.delta();
    const name = uri('a', '?b=2&a=1');
    client.send('eds', {
      resourceLocatorsSubscribe: [locator(name, { env: 'prod' }), locator(name, { env: 'test' })],
    });
    says(relay, [
      { ...member('a', 'p', '?a=1&b=2'), constraints: compiled(is('env', 'prod')) },
      { ...member('a', 't', '?a=1&b=2'), constraints: compiled(is('env', 'test')) },
    ]);
    expect(told(client.one())).to.deep.equal([`+${name} {env == "prod"} p`, `+${name} {env == "test"} t`]);
  });

  describe('refused with INVALID_ARGUMENT and a reason that names it', () => {
    const rows: readonly [string, string, RegExp][] = [
      ['duplicate context parameters', uri('a', '?a=1&a=2'), /"a" is given twice/],
      [
        "another type than the stream's",
        'xdstp://authority.example/envoy.config.cluster.v3.Cluster/a',
        /its type/,
      ],
      ['no id', `xdstp://authority.example/${kind}`, /no id/],
      ['percent-encoding that is none', uri('%zz'), /percent-encoding/],
    ];
    for (const [what, name, reason] of rows) {
      it(what, () => {
        const relay = new InMemoryRelay();
        const client = subscribing(relay, name);
        expect(client.status?.code).to.equal(3);
        expect(client.status?.message).to.match(reason);
        expect(relay.upstream.journal).to.deep.equal([]);
      });
    }
  });

  it('a collection of the type is accepted, and passes opaquely', () => {
    const relay = new InMemoryRelay();
    const list = `xdstp://authority.example/${kind}Collection/list`;
    const client = subscribing(relay, list);
    says(relay, [put(eds, canonical(list), 'entries')]);
    expect(told(client.one())).to.deep.equal([`+${list} entries`]);
  });

  it('an authority that no upstream serves: an error, and an end to the waiting', () => {
    const relay = new InMemoryRelay();
    relay.upstream.claimOnly((_, selector) => !selector.startsWith('xdstp://authority.example/'));
    const client = subscribing(relay, uri('a'));
    const response = client.one();
    expect(told(response)).to.deep.equal([`-${uri('a')}`]);
    expect(response.resourceErrors.map(({ resourceName: of }) => of?.name)).to.deep.equal([uri('a')]);
  });

  it('§6.5 a glob of such an authority, too', () => {
    const relay = new InMemoryRelay();
    relay.upstream.claimOnly((_, selector) => !selector.startsWith('xdstp://authority.example/'));
    const [written, other] = [glob('shop', '?b=2&a=1'), glob('shop', '?b=%32&a=1')];
    const client = subscribing(relay, written);
    const response = client.one();
    expect(told(response)).to.deep.equal([`-${written}`]);
    expect(response.resourceErrors.map(({ resourceName: of }) => of?.name)).to.deep.equal([written]);
    const sotw = relay.sotw();
    sotw.send('eds', { resourceNames: [other] });
    expect(sotw.one().resourceErrors.map(({ resourceName: of }) => of?.name)).to.deep.equal([other]);
  });

  it('§8.2 an error of a glob is told to those who ask for it, once, and is over when it is answered', () => {
    const relay = new InMemoryRelay();
    const of = (response: DeltaDiscoveryResponse): unknown[] =>
      response.resourceErrors.map(({ resourceName: name }) => name?.name);
    const [client, sibling, all] = [[glob('shop')], [glob('other')], [uri('shop/a'), '*']].map((names) =>
      subscribing(relay, ...names),
    );
    const error = {
      name: resourceName(canonical(glob('shop'))),
      constraints: UNCONSTRAINED,
      code: 7,
      message: 'not you',
      status: encodeStatus(7, 'not you'),
    };
    const fails = (): void =>
      relay.says({ type: eds, holder: namedHolder, resourceErrors: [error], resolved: [] });
    fails();
    const refused = client?.one();
    expect(refused && of(refused)).to.deep.equal([glob('shop')]);
    expect(refused && told(refused), 'nothing is said of its members').to.deep.equal([]);
    fails();
    expect(client?.received()).to.deep.equal([]);
    expect([...(sibling?.received() ?? []), ...(all?.received() ?? [])]).to.deep.equal([]);
    expect(of(subscribing(relay, glob('shop')).one()), 'a newcomer').to.deep.equal([glob('shop')]);
    const interest = [...relay.upstream.interests].find(({ selector }) => selector === error.name);
    says(relay, [member('shop/a', '1')]);
    relay.says({ type: eds, holder: namedHolder, resolved: interest === undefined ? [] : [interest] });
    expect(client?.received().flatMap(told)).to.deep.equal([`+${uri('shop/a')} 1`]);
    const later = subscribing(relay, glob('shop')).one();
    expect([told(later), of(later)]).to.deep.equal([[`+${uri('shop/a')} 1`], []]);
  });
});
