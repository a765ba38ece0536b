import { create, toBinary } from '@bufbuild/protobuf';
import { expect } from 'chai';
import { DynamicParameterConstraintsSchema } from '../../src/gen/envoy/service/discovery/v3/discovery_pb.ts';
import { resourceName } from '../../src/model/brand.ts';
import { type Constraints, UNCONSTRAINED } from '../../src/model/constraints.ts';
import type { Put } from '../../src/model/transaction.ts';
import { compileAuthorization } from '../../src/security/authorization.ts';
import type { ParameterRule } from '../../src/security/derive-parameters.ts';
import { Position } from '../../src/views/position.ts';
import { namePatterns } from '../security/name-patterns.ts';
import {
  type DeltaClient,
  InMemoryRelay,
  namedHolder,
  node,
  put,
  resources,
  type SotwClient,
  type,
} from '../support/in-memory-relay.ts';
import { and, compiled, exists, is, locator, not, or, told, wrapped } from '../support/variants.ts';

const eds = type('eds');
const cds = type('cds');
const variant = (name: string, content: string, constraints: Constraints, more: Partial<Put> = {}): Put =>
  put(eds, name, content, { constraints, ...more });
const removal = (name: string, constraints: Constraints) => ({ name: resourceName(name), constraints });
const prod = compiled(is('env', 'prod'));
const test = compiled(is('env', 'test'));
const xProd = variant('x', 'p', prod);
const prod1 = compiled(and(is('env', 'prod'), is('version', 'v1')));
const prod2 = compiled(and(is('env', 'prod'), is('version', 'v2')));

/** A delta client with these locators of EDS. */
function locating(
  relay: InMemoryRelay,
  ...locators: [name: string, parameters: Record<string, string>][]
): DeltaClient {
  const client = relay.delta();
  client.send('eds', {
    resourceLocatorsSubscribe: locators.map(([name, parameters]) => locator(name, parameters)),
  });
  return client;
}

/** A delta client of today: names, and parameters from its node. */
function plain(relay: InMemoryRelay, metadata: Record<string, string>, ...names: string[]): DeltaClient {
  const client = relay.delta();
  client.send('eds', { node: node(metadata), resourceNamesSubscribe: names });
  return client;
}

function says(
  relay: InMemoryRelay,
  puts: readonly Put[],
  removals: readonly ReturnType<typeof removal>[] = [],
): void {
  relay.says({ type: eds, holder: namedHolder, puts, removals });
}

describe('variants (protocol §5, TP2)', () => {
  describe('locators', () => {
    it('over delta: resource_name with the constraints as the control plane wrote them, and no name', () => {
      const relay = new InMemoryRelay();
      const client = locating(relay, ['x', { env: 'prod', version: 'v1' }]);
      const message = create(
        DynamicParameterConstraintsSchema,
        and(is('version', 'v1'), is('env', 'prod'), is('version', 'v1')),
      );
      says(relay, [variant('x', 'a', compiled(message))]);
      const [resource] = client.one().resources;
      expect(resource?.name).to.equal('');
      expect(resource?.resourceName?.name).to.equal('x');
      const sent = resource?.resourceName?.dynamicParameterConstraints;
      expect(sent).to.not.equal(undefined);
      if (sent === undefined) return;
      expect(Buffer.from(toBinary(DynamicParameterConstraintsSchema, sent))).to.deep.equal(
        Buffer.from(toBinary(DynamicParameterConstraintsSchema, message)),
      );
    });
    it('over SotW: wrapped in Resource, with resource_name', () => {
      const relay = new InMemoryRelay();
      const client = relay.sotw();
      client.send('eds', { resourceLocators: [locator('x', { env: 'prod' })] });
      says(relay, [variant('x', 'a', prod)]);
      expect(wrapped(client.one())).to.deep.equal(['+x {env == "prod"} a']);
    });
    it('of an unconstrained resource: resource_name without constraints', () => {
      const relay = new InMemoryRelay();
      const client = locating(relay, ['x', { env: 'prod' }]);
      says(relay, [variant('x', 'a', UNCONSTRAINED)]);
      expect(told(client.one())).to.deep.equal(['+x {} a']);
    });
    it('mixed with plain names in one delta stream: each in its form', () => {
      const relay = new InMemoryRelay();
      const client = relay.delta();
      client.send('eds', {
        node: node({ env: 'test' }),
        resourceNamesSubscribe: ['x', 'y'],
        resourceLocatorsSubscribe: [locator('x', { env: 'prod' })],
      });
      says(relay, [variant('x', 'p', prod), variant('x', 't', test), variant('y', 'u', UNCONSTRAINED)]);
      expect(told(client.one())).to.deep.equal(['+x t', '+x {env == "prod"} p', '+y u']);
    });
    it('§3.12 a swap for one parameter set that takes the variant from another is one change: rejected, it is not repeated', () => {
      const relay = new InMemoryRelay();
      const client = locating(relay, ['x', { env: 'prod' }], ['x', { env: 'test' }]);
      says(relay, [variant('x', 'u', UNCONSTRAINED)]);
      client.ack('eds', client.one());
      says(relay, [xProd], [removal('x', UNCONSTRAINED)]);
      const swap = client.one();
      expect(told(swap).toSorted()).to.deep.equal(['+x {env == "prod"} p', '-x {}']);
      client.nack('eds', swap);
      expect(client.received()).to.have.length(0);
    });
    it('mixed with plain names in one SotW stream', () => {
      const relay = new InMemoryRelay();
      const client = relay.sotw();
      client.send('eds', {
        node: node({ env: 'test' }),
        resourceNames: ['x'],
        resourceLocators: [locator('x', { env: 'prod' })],
      });
      says(relay, [variant('x', 'p', prod), variant('x', 't', test)]);
      expect(wrapped(client.one())).to.deep.equal(['+x {env == "prod"} p', '=t']);
    });
    it('an unconstrained resource, by name and by locator: in both forms', () => {
      const relay = new InMemoryRelay();
      const client = relay.delta();
      client.send('eds', {
        resourceNamesSubscribe: ['x'],
        resourceLocatorsSubscribe: [locator('x', { env: 'prod' })],
      });
      says(relay, [variant('x', 'u', UNCONSTRAINED)]);
      expect(told(client.one())).to.deep.equal(['+x u', '+x {} u']);
    });
    it('{"*", parameters}: per name the variant that matches (delta)', () => {
      const relay = new InMemoryRelay();
      const client = relay.delta();
      client.send('cds', { resourceLocatorsSubscribe: [locator('*', { env: 'prod' })] });
      relay.says({
        type: cds,
        puts: [
          put(cds, 'x', 'p', { constraints: prod }),
          put(cds, 'x', 't', { constraints: test }),
          put(cds, 'y', 't', { constraints: test }),
          put(cds, 'z', 'u'),
        ],
        complete: true,
      });
      expect(told(client.one())).to.deep.equal(['+x {env == "prod"} p', '+z {} u']);
      expect(relay.upstream.journal).to.deep.equal(['+cds * [["env","prod"]]']);
    });
    it('{"*", parameters}: per name the variant that matches (SotW)', () => {
      const relay = new InMemoryRelay();
      const client = relay.sotw();
      client.send('cds', { resourceLocators: [locator('*', { env: 'prod' })] });
      const puts = [put(cds, 'x', 'p', { constraints: prod }), put(cds, 'y', 't', { constraints: test })];
      relay.says({ type: cds, puts, complete: true });
      expect(wrapped(client.one())).to.deep.equal(['+x {env == "prod"} p']);
    });
    it('§3.9 a wildcard that is not answered yet does not hold up another one', () => {
      const relay = new InMemoryRelay();
      const client = relay.delta();
      client.send('cds', { resourceLocatorsSubscribe: [locator('*', { env: 'prod' })] });
      relay.says({ type: cds, puts: [put(cds, 'x', 'p', { constraints: prod })] });
      expect(told(client.one())).to.deep.equal(['+x {env == "prod"} p']);
      client.send('cds', { resourceLocatorsSubscribe: [locator('*', { env: 'test' })] });
      const puts = [put(cds, 'x', 'p2', { constraints: prod }), put(cds, 'y', 't', { constraints: test })];
      relay.says({ type: cds, puts, resolved: [] });
      expect(told(client.one())).to.deep.equal(['+x {env == "prod"} p2']);
      relay.says({ type: cds });
      expect(told(client.one())).to.deep.equal(['+y {env == "test"} t']);
    });
    for (const together of [true, false]) {
      const how = together ? 'together with' : 'after';
      it(`§4.7 one that is unsubscribed unanswered, and was subscribed ${how} one that is answered, gets nothing`, () => {
        const relay = new InMemoryRelay();
        const client = relay.delta();
        const [inProd, inTest] = [locator('*', { env: 'prod' }), locator('*', { env: 'test' })];
        client.send('cds', { resourceLocatorsSubscribe: together ? [inProd, inTest] : [inProd] });
        const answered = [...relay.upstream.interests].filter(({ parameters }) =>
          parameters.key.includes('prod'),
        );
        relay.says({ type: cds, puts: [put(cds, 'x', 'p', { constraints: prod })], resolved: answered });
        expect(told(client.one())).to.deep.equal(['+x {env == "prod"} p']);
        if (!together) client.send('cds', { resourceLocatorsSubscribe: [inTest] });
        client.send('cds', { resourceLocatorsUnsubscribe: [inTest] });
        expect(client.received()).to.deep.equal([]);
        // It is asked for again, and known to be empty.
        client.send('cds', { resourceLocatorsSubscribe: [inTest] });
        relay.says({ type: cds });
        expect(client.received().map(told)).to.deep.equal([[]]);
      });
    }
    it('§4.7 one that is unsubscribed does not take the answer of an empty one with it', () => {
      const relay = new InMemoryRelay();
      const client = relay.delta();
      const [inProd, inTest] = [locator('*', { env: 'prod' }), locator('*', { env: 'test' })];
      client.send('cds', {
        resourceLocatorsSubscribe: [inProd, inTest, locator('x', { env: 'dev' })],
      });
      const answered = [...relay.upstream.interests].filter(
        ({ parameters }) => !parameters.key.includes('test'),
      );
      relay.says({ type: cds, resolved: answered });
      expect(client.received().map(told)).to.deep.equal([['-x {}']]);
      client.send('cds', { resourceLocatorsUnsubscribe: [inTest] });
      expect(client.received().map(told)).to.deep.equal([[]]);
    });
    it('§4.7 one that is unsubscribed unanswered gets nothing (SotW)', () => {
      const relay = new InMemoryRelay();
      const client = relay.sotw();
      const [inProd, inTest] = [locator('*', { env: 'prod' }), locator('*', { env: 'test' })];
      client.send('cds', { resourceLocators: [inProd] });
      relay.says({ type: cds, puts: [put(cds, 'x', 'p', { constraints: prod })] });
      const { nonce: responseNonce, versionInfo } = client.one();
      for (const resourceLocators of [[inProd, inTest], [inProd]])
        client.send('cds', { resourceLocators, responseNonce, versionInfo });
      expect(client.received()).to.deep.equal([]);
    });
    it('several parameter sets for one name on one stream: each its variant', () => {
      const relay = new InMemoryRelay();
      const client = locating(relay, ['x', { env: 'prod' }], ['x', { env: 'test' }]);
      says(relay, [variant('x', 'p', prod), variant('x', 't', test)]);
      expect(told(client.one())).to.deep.equal(['+x {env == "prod"} p', '+x {env == "test"} t']);
      says(relay, [variant('x', 't2', test)]);
      expect(told(client.one())).to.deep.equal(['+x {env == "test"} t2']);
    });
    it('several parameter sets that match one variant: it comes and goes once', () => {
      const relay = new InMemoryRelay();
      const client = locating(relay, ['x', { env: 'prod', a: '1' }], ['x', { env: 'prod', a: '2' }]);
      says(relay, [variant('x', 'p', prod)]);
      expect(told(client.one())).to.deep.equal(['+x {env == "prod"} p']);
      says(relay, [], [removal('x', prod)]);
      expect(told(client.one())).to.deep.equal(['-x {env == "prod"}']);
    });
    it('one set misses while another hits: removed_resource_names without constraints', () => {
      const relay = new InMemoryRelay();
      const client = locating(relay, ['x', { env: 'prod' }], ['x', { env: 'test' }], ['x', { env: 'dev' }]);
      says(relay, [variant('x', 'p', prod)]);
      expect(told(client.one())).to.deep.equal(['+x {env == "prod"} p', '-x {}']);
    });
    it('a miss that was told is not told again when another set of the name hits', () => {
      const relay = new InMemoryRelay();
      const client = locating(relay, ['x', { env: 'dev' }]);
      says(relay, []);
      expect(told(client.one())).to.deep.equal(['-x {}']);
      client.send('eds', { resourceLocatorsSubscribe: [locator('x', { env: 'prod' })] });
      client.send('eds', { resourceLocatorsSubscribe: [locator('y', { env: 'prod' })] });
      expect(client.received()).to.deep.equal([]);
      says(relay, [xProd]);
      expect(client.received().flatMap(told)).to.deep.equal(['+x {env == "prod"} p', '-y {}']);
    });
    it('a miss waits for the other sets of the name: it is told when the one that is unknown is unsubscribed', () => {
      const relay = new InMemoryRelay();
      const client = locating(relay, ['x', { env: 'dev' }], ['x', { env: 'prod' }]);
      const dev = [...relay.upstream.interests].find(({ parameters }) =>
        compiled(is('env', 'dev')).matches(parameters),
      );
      relay.says({ type: eds, holder: namedHolder, resolved: dev === undefined ? [] : [dev] });
      expect(client.received()).to.deep.equal([]);
      client.send('eds', { resourceLocatorsUnsubscribe: [locator('x', { env: 'prod' })] });
      expect(client.received().flatMap(told)).to.deep.equal(['-x {}']);
    });
    describe('§3.9 a variant goes that another set of the name has got too, and waits for its own answer', () => {
      const start = () => {
        const relay = new InMemoryRelay();
        const client = locating(relay, ['x', { env: 'prod' }]);
        says(relay, [variant('x', 'u', UNCONSTRAINED)]);
        client.send('eds', { resourceLocatorsSubscribe: [locator('x', { env: 'test' })] });
        expect(client.received().flatMap(told)).to.deep.equal(['+x {} u', '+x {} u']);
        const waiting = [...relay.upstream.interests].filter(({ parameters }) =>
          parameters.key.includes('test'),
        );
        const moves = (puts: readonly Put[]): void =>
          relay.says({
            type: eds,
            holder: namedHolder,
            puts,
            removals: [removal('x', UNCONSTRAINED)],
            resolved: [],
            unanswered: waiting,
          });
        const answers = (puts: readonly Put[]): void =>
          relay.says({ type: eds, holder: namedHolder, puts, resolved: waiting });
        const heard = (): string[] => client.received().flatMap(told);
        return { client, moves, answers, heard };
      };

      for (const [how, puts] of [
        ['replaced', [xProd]],
        ['deleted', []],
      ] as const) {
        it(`${how}: it stays until that comes, and goes then`, () => {
          const { moves, answers, heard } = start();
          moves(puts);
          expect(heard()).to.deep.equal(puts.map(() => '+x {env == "prod"} p'));
          answers([variant('x', 't', test)]);
          expect(heard()).to.deep.equal(['+x {env == "test"} t', '-x {}']);
        });
        it(`${how}: it goes with the answer that there is nothing`, () => {
          const { moves, answers, heard } = start();
          moves(puts);
          heard();
          answers([]);
          expect(heard()).to.deep.equal(['-x {}']);
        });
        it(`${how}: it goes when the other set is unsubscribed`, () => {
          const { client, moves, heard } = start();
          moves(puts);
          heard();
          client.send('eds', { resourceLocatorsUnsubscribe: [locator('x', { env: 'test' })] });
          expect(heard()).to.deep.equal(['-x {}']);
        });
      }
    });

    describe('§5.10 so does what is removed, if another variant would take its place of which it is not known whether it is there', () => {
      const forAll = compiled(is('version', 'v1'));
      const [inProd, inAll] = [locator('x', { env: 'prod', version: 'v1' }), locator('x', { version: 'v1' })];
      const unanswered = (relay: InMemoryRelay) =>
        [...relay.upstream.interests].filter(({ parameters }) => !parameters.key.includes('prod'));
      /** A client that has got both, and of the second of which nothing is known any more. */
      const start = (options: ConstructorParameters<typeof InMemoryRelay>[0] = {}) => {
        const relay = new InMemoryRelay(options);
        const client = relay.delta();
        client.send('eds', { resourceLocatorsSubscribe: [inProd] });
        says(relay, [{ ...xProd, aliases: ['alias'] }]);
        says(relay, [variant('x', 'v', forAll)]);
        client.send('eds', { resourceLocatorsSubscribe: [inAll] });
        const has = ['+x {env == "prod"} p', '+x {version == "v1"} v'];
        expect(client.received().flatMap(told)).to.deep.equal(has);
        const unknown = { removals: [removal('x', forAll)], unanswered: unanswered(relay) };
        relay.says({ type: eds, holder: namedHolder, resolved: [], ...unknown });
        return { relay, client };
      };
      const removes = (relay: InMemoryRelay): void =>
        relay.says({ type: eds, holder: namedHolder, resolved: [], removals: [removal('x', prod)] });

      it('until that is known', () => {
        const { relay, client } = start();
        removes(relay);
        expect(client.received().flatMap(told)).to.deep.equal([]);
        relay.says({ type: eds, holder: namedHolder, resolved: unanswered(relay) });
        expect(client.received().flatMap(told).toSorted()).to.deep.equal([
          '-x {env == "prod"}',
          '-x {version == "v1"}',
        ]);
      });
      it('and nothing is composed for it until then', () => {
        const { relay, client } = start();
        removes(relay);
        let looks = 0;
        const before = Object.getOwnPropertyDescriptor(Position.prototype, 'besideIn') ?? {};
        const counted = (): undefined => {
          looks++;
        };
        Object.defineProperty(Position.prototype, 'besideIn', { ...before, value: counted });
        try {
          for (let count = 0; count < 3; count++) client.unblock();
          expect(looks).to.equal(0);
          relay.says({ type: eds, holder: namedHolder, resolved: unanswered(relay) });
        } finally {
          Object.defineProperty(Position.prototype, 'besideIn', before);
        }
        expect(looks, 'it is looked at with the answer').to.be.greaterThan(0);
      });
      it('but not if it was told for another parameter set meanwhile', () => {
        const { relay, client } = start();
        client.send('eds', { resourceLocatorsSubscribe: [locator('x', { env: 'prod', version: 'v2' })] });
        const waiting = [...relay.upstream.interests].filter(({ parameters }) =>
          unanswered(relay).every((one) => one.parameters !== parameters),
        );
        expect(client.received().flatMap(told)).to.deep.equal(['+x {env == "prod"} p']);
        relay.says({ type: eds, holder: namedHolder, resolved: waiting, removals: [removal('x', prod)] });
        expect(client.received().flatMap(told)).to.deep.equal(['-x {env == "prod"}']);
        relay.says({ type: eds, holder: namedHolder, resolved: unanswered(relay) });
        expect(client.received().flatMap(told)).to.deep.equal(['-x {version == "v1"}']);
      });
      it('and that costs no more where thousands of parameter sets have one such variant', () => {
        const sets = 300;
        const { relay, client } = start();
        const inB = compiled(is('env', 'b'));
        const shards = Array.from({ length: sets }, (_, at) => `${at}`);
        const also = (own: Record<string, string>) => shards.map((shard) => locator('x', { ...own, shard }));
        says(relay, [variant('x', 'v', forAll), variant('x', 'b', inB)]);
        client.send('eds', {
          resourceLocatorsSubscribe: [...also({ version: 'v1' }), ...also({ env: 'b' })],
        });
        client.received();
        const doubtful = [...relay.upstream.interests].filter(
          ({ parameters: { entries } }) => entries.has('version') && !entries.has('env'),
        );
        relay.says({
          type: eds,
          holder: namedHolder,
          resolved: [],
          removals: [removal('x', forAll)],
          unanswered: doubtful,
        });
        expect(client.received().flatMap(told)).to.deep.equal([]);
        let looks = 0;
        const before = Object.getOwnPropertyDescriptor(forAll, 'matches') ?? {};
        const matches = forAll.matches.bind(forAll);
        const counted = (...given: Parameters<typeof matches>): boolean => {
          looks++;
          return matches(...given);
        };
        Object.defineProperty(forAll, 'matches', { ...before, value: counted });
        try {
          relay.says({ type: eds, holder: namedHolder, resolved: [], removals: [removal('x', inB)] });
        } finally {
          Object.defineProperty(forAll, 'matches', before);
        }
        expect(client.received().flatMap(told)).to.deep.equal(['-x {env == "b"}']);
        expect(looks).to.be.within(1, 20 * sets);
      });
      it('but not what the client may not see any more', () => {
        let allowed = ['x', 'alias'];
        const { relay, client } = start({
          access: (peer) =>
            compileAuthorization([
              { principals: undefined, types: [eds], names: namePatterns(allowed), allow: true },
            ]).accessOf(peer),
        });
        allowed = ['x'];
        relay.relay.server.reidentify();
        relay.settle();
        expect(client.received().flatMap(told)).to.deep.equal(['-x {env == "prod"}']);
      });
    });
    it('§5.10 so does a miss that is told because its locator was unsubscribed under a wildcard', () => {
      const relay = new InMemoryRelay();
      const client = relay.delta();
      const [dev, inProd] = [{ env: 'dev' }, { env: 'prod' }];
      const answers = (env: string, puts: readonly Put[] = []): void => {
        const resolved = [...relay.upstream.interests].filter(({ parameters }) =>
          parameters.key.includes(env),
        );
        relay.says({ type: eds, holder: namedHolder, puts, resolved });
      };
      const locators = [locator('*', dev), locator('x', dev), locator('x', inProd)];
      client.send('eds', { resourceLocatorsSubscribe: locators });
      answers('dev');
      client.received();
      client.send('eds', { resourceLocatorsUnsubscribe: [locator('x', dev)] });
      expect(client.received().flatMap(told)).to.deep.equal([]);
      answers('prod', [xProd]);
      expect(client.received().flatMap(told)).to.deep.equal(['+x {env == "prod"} p', '-x {}']);
    });
    for (const [short, userAgentName] of [
      ['eds', ''],
      ['rds', ''],
      ['rds', 'envoy'], // §10.6 leaves unsaid what an Envoy never had
    ] as const) {
      const title = `§5.10 so does a miss of what the client says that it has (${short} ${userAgentName})`;
      it(title, () => {
        const relay = new InMemoryRelay();
        const client = relay.delta();
        client.send(short, {
          node: { ...node(), userAgentName },
          resourceLocatorsSubscribe: [locator('x', { env: 'dev' }), locator('x', { env: 'prod' })],
          initialResourceVersions: { x: 'old@0123456789abcdef' },
        });
        const dev = [...relay.upstream.interests].filter(({ parameters }) => parameters.key.includes('dev'));
        relay.says({ type: type(short), holder: namedHolder, resolved: dev });
        expect(client.received().flatMap(told)).to.deep.equal([]);
        relay.says({ type: type(short), holder: namedHolder });
        expect(client.received().flatMap(told)).to.deep.equal(['-x {}']);
        relay.says({ type: type(short), holder: namedHolder });
        expect(client.received().flatMap(told)).to.deep.equal([]);
      });
    }
    it('§4.1 a variant that the client says that it has is skipped, though another one was found to be absent before', () => {
      const relay = new InMemoryRelay();
      const first = locating(relay, ['x', { env: 'prod' }]);
      says(relay, [xProd]);
      const version = first.one().resources[0]?.version ?? '';
      const returning = new InMemoryRelay();
      const client = returning.delta();
      client.send('eds', {
        resourceLocatorsSubscribe: [locator('x', { env: 'dev' }), locator('x', { env: 'prod' })],
        initialResourceVersions: { x: version },
      });
      const dev = [...returning.upstream.interests].filter(({ parameters }) =>
        parameters.key.includes('dev'),
      );
      returning.says({ type: eds, holder: namedHolder, resolved: dev });
      expect(client.received().flatMap(told)).to.deep.equal([]);
      says(returning, [xProd]);
      expect(client.received().flatMap(told)).to.deep.equal(['-x {}']);
    });
    it('§5.10 so does a glob that is empty for one parameter set', () => {
      const glob = 'xdstp://authority.example/envoy.config.endpoint.v3.ClusterLoadAssignment/dir/*';
      for (const isFilled of [true, false]) {
        const relay = new InMemoryRelay();
        const client = locating(relay, [glob, { env: 'dev' }], [glob, { env: 'prod' }]);
        const dev = relay.upstream.interests
          .values()
          .find(({ parameters }) => parameters.key.includes('dev'));
        relay.says({ type: eds, holder: namedHolder, resolved: dev === undefined ? [] : [dev] });
        expect(client.received().flatMap(told)).to.deep.equal([]);
        const member = glob.replace('*', 'a');
        says(relay, isFilled ? [variant(member, 'p', prod)] : []);
        const there = isFilled ? [`+${member} {env == "prod"} p`] : [];
        expect(client.received().flatMap(told)).to.deep.equal([...there, `-${glob} {}`]);
      }
    });
    it('a deleted variant is removed by its constraints, never by its bare name', () => {
      const relay = new InMemoryRelay();
      const client = locating(relay, ['x', { env: 'prod' }]);
      says(relay, [variant('x', 'p', prod)]);
      client.received();
      says(relay, [], [removal('x', prod)]);
      const response = client.one();
      expect(told(response)).to.deep.equal(['-x {env == "prod"}']);
      expect(response.removedResources).to.deep.equal([]);
    });
    for (const { title, accepted = false, now, expected } of [
      { title: 'on its way, and it is there: sent again', now: [xProd], expected: ['+x {env == "prod"} p'] },
      {
        title: 'on its way, and it is gone: removed by its constraints',
        now: [],
        expected: ['-x {env == "prod"}'],
      },
      {
        title: 'on its way, and there is another variant: replaced by its constraints',
        now: [variant('x', 'u', UNCONSTRAINED)],
        expected: ['+x {} u', '-x {env == "prod"}'],
      },
      {
        title: 'accepted before, and it is gone: it counts as never sent',
        accepted: true,
        now: [],
        expected: ['-x {}'],
      },
    ]) {
      it(`unsubscribed, and subscribed again. What the client was sent was ${title}`, () => {
        const relay = new InMemoryRelay();
        const x = [locator('x', { env: 'prod' })];
        const client = locating(relay, ['x', { env: 'prod' }], ['y', { env: 'prod' }]);
        says(relay, [xProd, variant('y', 'p', prod)]);
        const response = client.one();
        if (accepted) client.ack('eds', response);
        client.send('eds', { resourceLocatorsUnsubscribe: x });
        says(relay, now, now.some((one) => one === xProd) ? [] : [removal('x', prod)]);
        client.send('eds', { resourceLocatorsSubscribe: x });
        expect(client.received().flatMap(told).toSorted()).to.deep.equal(expected);
      });
    }
    it('other parameters for a name: subscribed and unsubscribed in one request, only the new one is told', () => {
      const relay = new InMemoryRelay();
      const client = locating(relay, ['x', { env: 'prod' }]);
      says(relay, [variant('x', 'p', prod), variant('x', 't', test)]);
      client.received();
      client.send('eds', {
        resourceLocatorsSubscribe: [locator('x', { env: 'test' })],
        resourceLocatorsUnsubscribe: [locator('x', { env: 'prod' })],
      });
      expect(told(client.one())).to.deep.equal(['+x {env == "test"} t']);
      says(relay, [variant('x', 'p2', prod)]);
      expect(client.received()).to.have.length(0);
    });
    it('§4.5 with {"*", parameters} held, an unsubscribed locator is told of', () => {
      const relay = new InMemoryRelay();
      const client = relay.delta();
      client.send('cds', {
        resourceLocatorsSubscribe: ['*', 'x', 'gone'].map((name) => locator(name, { env: 'prod' })),
      });
      relay.says({ type: cds, puts: [put(cds, 'x', 'p', { constraints: prod })], complete: true });
      client.received();
      client.send('cds', {
        resourceLocatorsUnsubscribe: ['x', 'gone'].map((name) => locator(name, { env: 'prod' })),
      });
      expect(told(client.one())).to.deep.equal(['+x {env == "prod"} p', '-gone {}']);
    });
    it('each distinct (name, parameters) is subscribed upstream once, however many clients have it', () => {
      const relay = new InMemoryRelay();
      for (let client = 0; client < 3; client++) {
        locating(relay, ['x', { env: 'prod' }], ['x', { env: 'test' }]);
        plain(relay, { env: 'prod' }, 'x');
      }
      expect(relay.upstream.journal).to.deep.equal(['+eds x [["env","prod"]]', '+eds x [["env","test"]]']);
    });
    it('§4.1 initial_resource_versions hold for constrained variants too', () => {
      const relay = new InMemoryRelay();
      const first = plain(relay, { env: 'prod' }, 'x', 'y');
      says(relay, [variant('x', 'p', prod), variant('x', 't', test), variant('y', 'p', prod)]);
      const initialResourceVersions = Object.fromEntries(
        first.one().resources.map(({ name, version }) => [name, version]),
      );
      says(relay, [variant('y', 'p2', prod)]);
      for (const [env, expected] of [
        ['prod', ['+y p2']],
        ['test', ['+x t', '-y']],
      ] as const) {
        const client = relay.delta();
        client.send('eds', {
          node: node({ env }),
          resourceNamesSubscribe: ['x', 'y'],
          initialResourceVersions,
        });
        relay.says({ type: eds, holder: namedHolder });
        expect(client.received().flatMap(told), env).to.deep.equal(expected);
      }
    });
    it('§4.1 a locator client that comes back with the version of its variant hears nothing, neither that of another', () => {
      const relay = new InMemoryRelay();
      const first = locating(relay, ['x', { env: 'prod' }]);
      says(relay, [variant('x', 'p', prod), variant('x', 't', test)]);
      const version = first.one().resources[0]?.version ?? '';
      for (const [env, expected] of [
        ['prod', []],
        ['test', ['+x {env == "test"} t', '-x {}']],
      ] as const) {
        const client = relay.delta();
        client.send('eds', {
          resourceLocatorsSubscribe: [locator('x', { env })],
          initialResourceVersions: { x: version },
        });
        says(relay, []);
        expect(client.received().flatMap(told), env).to.deep.equal(expected);
      }
    });
  });

  describe('swap of variants in one upstream response', () => {
    interface Everybody {
      readonly lab: InMemoryRelay;
      readonly delta: Record<string, DeltaClient>;
      readonly sotw: Record<string, SotwClient>;
    }

    /** Clients of each kind that see x as env=prod, before it splits by version. */
    function everybody(): Everybody {
      const relay = new InMemoryRelay();
      const delta = {
        locator: locating(relay, ['x', { env: 'prod', version: 'v2' }]),
        leftLocator: locating(relay, ['x', { env: 'prod' }]),
        otherLocator: locating(relay, ['x', { env: 'test' }]),
        plain: plain(relay, { env: 'prod', version: 'v2' }, 'x'),
        leftPlain: plain(relay, { env: 'prod' }, 'x'),
        otherPlain: plain(relay, { env: 'test' }, 'x'),
      };
      const sotw = { locator: relay.sotw(), plain: relay.sotw() };
      sotw.locator.send('eds', { resourceLocators: [locator('x', { env: 'prod', version: 'v2' })] });
      sotw.plain.send('eds', { node: node({ env: 'prod', version: 'v2' }), resourceNames: ['x'] });
      says(relay, [variant('x', 'old', prod), variant('x', 'other', test)]);
      for (const client of [...Object.values(delta), ...Object.values(sotw)]) client.inbox.splice(0);
      says(relay, [variant('x', 'v1', prod1), variant('x', 'v2', prod2)], [removal('x', prod)]);
      return { lab: relay, delta, sotw };
    }

    it('a locator client gets the removal and the resource in one message', () => {
      const { delta } = everybody();
      expect(delta['locator']?.received().map(told)).to.deep.equal([
        ['+x {env == "prod" and version == "v2"} v2', '-x {env == "prod"}'],
      ]);
    });
    it('a plain client gets only the new resource', () => {
      const { delta } = everybody();
      expect(delta['plain']?.received().map(told)).to.deep.equal([['+x v2']]);
    });
    it('who is left without a match gets a removal', () => {
      const { delta } = everybody();
      expect(delta['leftLocator']?.received().map(told)).to.deep.equal([['-x {env == "prod"}']]);
      expect(delta['leftPlain']?.received().map(told)).to.deep.equal([['-x']]);
    });
    it('whom it does not concern gets nothing', () => {
      const { delta } = everybody();
      expect(delta['otherLocator']?.received()).to.have.length(0);
      expect(delta['otherPlain']?.received()).to.have.length(0);
    });
    it('over SotW each gets the new resource, in one response', () => {
      const { sotw } = everybody();
      expect(sotw['plain']?.received().map(wrapped)).to.deep.equal([['=v2']]);
      expect(sotw['locator']?.received().map(wrapped)).to.deep.equal([
        ['+x {env == "prod" and version == "v2"} v2'],
      ]);
    });
    it('of a full-state type over SotW too: nothing is missing in between', () => {
      const relay = new InMemoryRelay();
      const client = relay.sotw();
      client.send('cds', { node: node({ env: 'prod', version: 'v2' }) });
      relay.says({
        type: cds,
        puts: [put(cds, 'x', 'old', { constraints: prod }), put(cds, 'y', 'y')],
        complete: true,
      });
      client.received();
      const after = [
        put(cds, 'x', 'v1', { constraints: prod1 }),
        put(cds, 'x', 'v2', { constraints: prod2 }),
      ];
      relay.says({ type: cds, puts: [...after, put(cds, 'y', 'y')], complete: true });
      expect(client.received().map(resources)).to.deep.equal([{ x: 'v2', y: 'y' }]);
    });
    it('is told as a whole to a client that did not read in between', () => {
      const relay = new InMemoryRelay();
      const client = locating(relay, ['x', { env: 'prod', version: 'v1' }], ['y', { env: 'prod' }]);
      says(relay, [variant('x', 'old', prod), variant('y', 'y', prod)]);
      client.blocked = true;
      says(relay, [variant('y', 'y2', prod)]);
      client.received();
      says(relay, [variant('x', 'v1', prod1)], [removal('x', prod)]);
      says(relay, [variant('x', 'new', prod)], [removal('x', prod1)]);
      client.unblock();
      expect(client.received().map(told)).to.deep.equal([['+x {env == "prod"} new']]);
    });
    it('adds no ambiguity: removals count before additions', () => {
      const { lab: relay } = everybody();
      expect(relay.ambiguous).to.deep.equal([]);
    });
  });

  describe('public vectors that are about transactions', () => {
    const rows: readonly [string, Record<string, string>, Constraints, boolean][] = [
      ['none / {e:prod}', { e: 'prod' }, UNCONSTRAINED, true],
      ['e=prod / {e:prod,x:1}', { e: 'prod', x: '1' }, compiled(is('e', 'prod')), true],
      ['e=prod / {}', {}, compiled(is('e', 'prod')), false],
      ['not(e=prod) / {}', {}, compiled(not(is('e', 'prod'))), true],
      ['not(exists e) / {e:""}', { e: '' }, compiled(not(exists('e'))), false],
      ['or[] / {}', {}, compiled(or()), false],
      ['and[] / {}', {}, compiled(and()), true],
      ['not(or[]) / {}', {}, compiled(not(or())), true],
      [
        'and[e=prod, not(exists v)] / {e:prod}',
        { e: 'prod' },
        compiled(and(is('e', 'prod'), not(exists('v')))),
        true,
      ],
      [
        'and[e=prod, not(exists v)] / {e:prod,v:v1}',
        { e: 'prod', v: 'v1' },
        compiled(and(is('e', 'prod'), not(exists('v')))),
        false,
      ],
      ['e=prod / {e:Prod}', { e: 'Prod' }, compiled(is('e', 'prod')), false],
      ['e=prod / {E:prod}', { E: 'prod' }, compiled(is('e', 'prod')), false],
      ['exists `constructor` / {}', {}, compiled(exists('constructor')), false],
      ['`__proto__`=x / {}', {}, compiled(is('__proto__', 'x')), false],
      [
        '`__proto__`=x / {__proto__:x}',
        Object.fromEntries([['__proto__', 'x']]),
        compiled(is('__proto__', 'x')),
        true,
      ],
    ];
    for (const [name, parameters, constraints, expected] of rows) {
      it(`${name}: ${expected ? 'seen' : 'does not exist'}`, () => {
        const relay = new InMemoryRelay();
        const client = locating(relay, ['x', parameters]);
        says(relay, [variant('x', 'c', constraints)]);
        const [line] = told(client.one());
        expect(line?.startsWith('+'), line).to.equal(expected);
      });
    }
    it('remove e=prod, add and[e=prod,v=v1] and and[e=prod,v=v2]: one update without a gap, or a removal only', () => {
      const relay = new InMemoryRelay();
      const v2 = locating(relay, ['x', { e: 'prod', v: 'v2' }]);
      const none = locating(relay, ['x', { e: 'prod' }]);
      const before = compiled(is('e', 'prod'));
      says(relay, [variant('x', 'old', before)]);
      v2.received();
      none.received();
      const after = ['v1', 'v2'].map((v) => variant('x', v, compiled(and(is('e', 'prod'), is('v', v)))));
      says(relay, after, [removal('x', before)]);
      expect(v2.received().map(told)).to.deep.equal([
        ['+x {e == "prod" and v == "v2"} v2', '-x {e == "prod"}'],
      ]);
      expect(none.received().map(told)).to.deep.equal([['-x {e == "prod"}']]);
    });
    it('and[a,b] added, then and[b,a] removed: gone', () => {
      const relay = new InMemoryRelay();
      const client = locating(relay, ['x', { a: '1', b: '2' }]);
      says(relay, [variant('x', 'c', compiled(and(is('a', '1'), is('b', '2'))))]);
      expect(told(client.one())).to.deep.equal(['+x {a == "1" and b == "2"} c']);
      says(relay, [], [removal('x', compiled(and(is('b', '2'), is('a', '1'))))]);
      expect(told(client.one())).to.deep.equal(['-x {a == "1" and b == "2"}']);
    });
    it('and[a,b], then and[b,a] with the same content: nothing is told', () => {
      const relay = new InMemoryRelay();
      const client = locating(relay, ['x', { a: '1', b: '2' }]);
      says(relay, [variant('x', 'c', compiled(and(is('a', '1'), is('b', '2'))))]);
      client.received();
      says(relay, [variant('x', 'c', compiled(and(is('b', '2'), is('a', '1'))))]);
      expect(client.received()).to.have.length(0);
    });
  });

  describe('clients that know nothing of variants', () => {
    it('get the name of a constrained resource, and no constraints', () => {
      const relay = new InMemoryRelay();
      const client = plain(relay, { env: 'prod' }, 'x');
      says(relay, [variant('x', 'p', prod)]);
      expect(told(client.one())).to.deep.equal(['+x p']);
    });
    it('without rules they have no parameters', () => {
      const relay = new InMemoryRelay({ rules: [] });
      const client = plain(relay, { env: 'prod' }, 'x', 'y');
      says(relay, [variant('x', 'p', prod), variant('y', 'n', compiled(not(exists('env'))))]);
      expect(told(client.one())).to.deep.equal(['+y n', '-x']);
    });
    it('a node that changes mid-stream: one correct response', () => {
      const relay = new InMemoryRelay();
      const client = plain(relay, { env: 'prod' }, 'x', 'y', 'z', 'u');
      plain(relay, { env: 'test' }, 'x', 'y', 'z', 'u');
      says(relay, [
        variant('x', 'p', prod),
        variant('x', 't', test),
        variant('y', 'p', prod),
        variant('z', 't', test),
        variant('u', 'u', UNCONSTRAINED),
      ]);
      client.received();
      client.send('eds', { node: node({ env: 'test' }) });
      expect(client.received().map(told)).to.deep.equal([['+x t', '+z t', '-y']]);
    });
    it('over SotW with xds.config.resource-in-sotw: wrapped, by name', () => {
      const relay = new InMemoryRelay();
      const client = relay.sotw();
      client.send('eds', {
        node: node({ env: 'prod' }, ['xds.config.resource-in-sotw']),
        resourceNames: ['x'],
      });
      says(relay, [variant('x', 'p', prod)]);
      expect(wrapped(client.one())).to.deep.equal(['+x p']);
    });

    describe('with xds.plain_clients: WITH_CONSTRAINTS', () => {
      it('get resource_name with constraints, over delta and wrapped over SotW', () => {
        const relay = new InMemoryRelay({ constrained: true });
        const client = plain(relay, { env: 'prod' }, 'x', 'u');
        const sotw = relay.sotw();
        sotw.send('eds', { node: node({ env: 'prod' }), resourceNames: ['x', 'u'] });
        says(relay, [variant('x', 'p', prod), variant('u', 'u', UNCONSTRAINED)]);
        expect(told(client.one())).to.deep.equal(['+u u', '+x {env == "prod"} p']);
        expect(wrapped(sotw.one())).to.deep.equal(['+x {env == "prod"} p', '=u']);
      });
      it('get removals by constraints, also at a swap', () => {
        const relay = new InMemoryRelay({ constrained: true });
        const client = plain(relay, { env: 'prod', version: 'v1' }, 'x');
        says(relay, [variant('x', 'p', prod)]);
        client.received();
        says(relay, [variant('x', 'v1', prod1)], [removal('x', prod)]);
        expect(client.received().map(told)).to.deep.equal([
          ['+x {env == "prod" and version == "v1"} v1', '-x {env == "prod"}'],
        ]);
        says(relay, [], [removal('x', prod1)]);
        expect(client.received().map(told)).to.deep.equal([['-x {env == "prod" and version == "v1"}']]);
      });
      it('get the removal of what was sent by its name under its name, also at a swap', () => {
        const relay = new InMemoryRelay({ constrained: true });
        const client = plain(relay, { env: 'prod' }, 'x');
        says(relay, [variant('x', 'u', UNCONSTRAINED)]);
        client.received();
        says(relay, [xProd], [removal('x', UNCONSTRAINED)]);
        expect(client.received().map(told)).to.deep.equal([['+x {env == "prod"} p', '-x']]);
        says(relay, [variant('x', 'u', UNCONSTRAINED)], [removal('x', prod)]);
        expect(client.received().map(told)).to.deep.equal([['+x u', '-x {env == "prod"}']]);
      });
    });
  });

  describe('ambiguity', () => {
    const a = compiled(is('a', '1'));
    const b = compiled(is('b', '1'));
    const both = { a: '1', b: '1' };

    it('a newcomer gets the variant of the lowest canonical key, and it is counted', () => {
      const relay = new InMemoryRelay();
      locating(relay, ['x', { a: '1' }], ['x', { b: '1' }]);
      says(relay, [variant('x', 'b', b), variant('x', 'a', a)]);
      const client = locating(relay, ['x', both]);
      expect(told(client.one())).to.deep.equal(['+x {a == "1"} a']);
      expect(relay.ambiguous).to.deep.equal(['x']);
    });
    it('who has a match keeps it when another comes', () => {
      const relay = new InMemoryRelay();
      const client = locating(relay, ['x', both]);
      says(relay, [variant('x', 'b', b)]);
      client.received();
      says(relay, [variant('x', 'a', a)]);
      expect(client.received()).to.have.length(0);
      expect(relay.ambiguous).to.deep.equal(['x']);
    });
    it('never flaps over 100 updates of either', () => {
      const relay = new InMemoryRelay();
      const client = locating(relay, ['x', both]);
      says(relay, [variant('x', 'b', b)]);
      client.received();
      for (let round = 0; round < 100; round++) {
        says(relay, [round % 2 === 0 ? variant('x', `a${round}`, a) : variant('x', `b${round}`, b)]);
      }
      const said = client.received().flatMap(told);
      expect(said).to.have.length(50);
      for (const line of said) expect(line).to.match(/^\+x \{b == "1"\} b\d+$/);
      expect(relay.ambiguous).to.deep.equal(['x']);
    });
    it('is bound for (type, name, parameters): other streams and views see the same', () => {
      const relay = new InMemoryRelay({ rules: envRules('a', 'b') });
      locating(relay, ['x', both]);
      says(relay, [variant('x', 'b', b)]);
      says(relay, [variant('x', 'a', a)]);
      expect(told(locating(relay, ['x', both]).one())).to.deep.equal(['+x {b == "1"} b']);
      expect(told(locating(relay, ['x', both], ['y', both]).one())).to.deep.equal(['+x {b == "1"} b']);
      expect(told(plain(relay, both, 'x').one())).to.deep.equal(['+x b']);
    });
    it('ends when its variant goes: the other takes its place in one update', () => {
      const relay = new InMemoryRelay();
      const client = locating(relay, ['x', both]);
      says(relay, [variant('x', 'b', b)]);
      says(relay, [variant('x', 'a', a)]);
      client.received();
      says(relay, [], [removal('x', b)]);
      expect(client.received().map(told)).to.deep.equal([['+x {a == "1"} a', '-x {b == "1"}']]);
    });
    it('of those that are there when its variant goes, the lowest key wins, whenever it came', () => {
      const relay = new InMemoryRelay();
      const c = compiled(is('c', '1'));
      const client = locating(relay, ['x', { a: '1', b: '1', c: '1' }]);
      says(relay, [variant('x', 'c', c)]);
      says(relay, [variant('x', 'b', b)]);
      client.received();
      says(relay, [variant('x', 'a', a)], [removal('x', c)]);
      expect(client.received().map(told)).to.deep.equal([['+x {a == "1"} a', '-x {c == "1"}']]);
    });

    describe('where the upstream cannot delete (SotW EDS and the like)', () => {
      const latest = (relay: InMemoryRelay, ...puts: Put[]): void => {
        relay.says({ type: eds, holder: namedHolder, puts, cannotDelete: true });
      };
      it('the last received match wins, and what nobody is bound to is dropped', () => {
        const relay = new InMemoryRelay();
        const client = locating(relay, ['x', both]);
        latest(relay, variant('x', 'b', b));
        client.received();
        latest(relay, variant('x', 'a', a));
        expect(client.received().map(told)).to.deep.equal([['+x {a == "1"} a', '-x {b == "1"}']]);
        latest(relay, variant('x', 'b2', b));
        expect(client.received().map(told)).to.deep.equal([['+x {b == "1"} b2', '-x {a == "1"}']]);
        expect(relay.relay.store.bodyBytes).to.equal(put(eds, 'x', 'b2').any?.length);
      });
      it('a variant that another parameter set is bound to stays', () => {
        const relay = new InMemoryRelay();
        const client = locating(relay, ['x', both], ['x', { b: '1' }]);
        latest(relay, variant('x', 'b', b));
        client.received();
        latest(relay, variant('x', 'a', a));
        expect(client.received().map(told)).to.deep.equal([['+x {a == "1"} a']]);
      });
    });
  });

  describe('what is served from the cache', () => {
    it('a named subscription gets a variant at once that another subscription brought', () => {
      const relay = new InMemoryRelay();
      locating(relay, ['x', { env: 'prod' }]);
      says(relay, [variant('x', 'p', prod)]);
      const client = locating(relay, ['x', { env: 'prod', version: 'v9' }]);
      expect(told(client.one())).to.deep.equal(['+x {env == "prod"} p']);
      expect(relay.upstream.journal.at(-1)).to.equal('+eds x [["env","prod"],["version","v9"]]');
    });
    it('a wildcard waits for its own answer', () => {
      const relay = new InMemoryRelay();
      const first = relay.delta();
      first.send('cds', { resourceLocatorsSubscribe: [locator('*', { env: 'prod' })] });
      relay.says({ type: cds, puts: [put(cds, 'x', 'p', { constraints: prod })], complete: true });
      const second = relay.delta();
      second.send('cds', { resourceLocatorsSubscribe: [locator('*', { env: 'prod', version: 'v9' })] });
      expect(second.received()).to.have.length(0);
      relay.says({ type: cds, puts: [put(cds, 'y', 'v', { constraints: compiled(is('version', 'v9')) })] });
      expect(told(second.one())).to.deep.equal(['+x {env == "prod"} p', '+y {version == "v9"} v']);
    });
    it('do_not_cache: a new subscription goes upstream again, without the usual linger', () => {
      const relay = new InMemoryRelay();
      const first = plain(relay, {}, 'x', 'y');
      says(relay, [put(eds, 'x', 'c', { doNotCache: true }), put(eds, 'y', 'c')]);
      expect(first.one().resources.find(({ name }) => name === 'x')?.cacheControl?.doNotCache).to.equal(true);
      first.disconnect();
      expect(relay.upstream.journal).to.deep.equal(['+eds x', '+eds y', '-eds x']);
      const second = plain(relay, {}, 'x', 'y');
      expect(relay.upstream.journal.at(-1)).to.equal('+eds x');
      expect(told(second.one())).to.deep.equal(['+y c']);
      says(relay, [put(eds, 'x', 'c2', { doNotCache: true })]);
      expect(told(second.one())).to.deep.equal(['+x c2']);
    });
    it('do_not_cache: so does that of another client, and of one that adds it, but no repetition', () => {
      const relay = new InMemoryRelay();
      plain(relay, {}, 'x', 'y');
      says(relay, [put(eds, 'x', 'c', { doNotCache: true }), put(eds, 'y', 'c')]);
      const heard = relay.upstream.journal.length;
      const news = (): string[] => relay.upstream.journal.slice(heard);
      const equal = plain(relay, {}, 'x', 'y');
      expect(news()).to.deep.equal(['again eds x']);
      expect(told(equal.one())).to.deep.equal(['+x c', '+y c']);
      const other = relay.sotw();
      other.send('eds', { resourceNames: ['y'] });
      const first = other.one();
      expect(news()).to.have.length(1);
      other.ack('eds', first, ['x', 'y']);
      expect(news()).to.deep.equal(['again eds x', 'again eds x']);
      const second = other.one();
      other.ack('eds', second, ['x', 'y', 'z']);
      equal.send('eds', { resourceNamesSubscribe: ['z'] });
      expect(news().filter((line) => line.startsWith('again'))).to.have.length(2);
      says(relay, [put(eds, 'x', 'c2')]);
      plain(relay, {}, 'x');
      expect(news().filter((line) => line.startsWith('again'))).to.have.length(2);
    });
  });

  describe('trusted parameters', () => {
    const rules: readonly ParameterRule[] = envRules('env').map((rule) => ({ ...rule, trusted: true }));

    it("win over the locator's own", () => {
      const relay = new InMemoryRelay({ rules });
      const client = relay.delta();
      client.send('eds', {
        node: node({ env: 'test' }),
        resourceLocatorsSubscribe: [locator('x', { env: 'prod', other: '1' })],
      });
      expect(relay.upstream.journal).to.deep.equal(['+eds x [["env","test"],["other","1"]]']);
      says(relay, [variant('x', 'p', prod), variant('x', 't', test)]);
      expect(told(client.one())).to.deep.equal(['+x {env == "test"} t']);
    });
    it('are absent where the rule gives none, whatever the client says', () => {
      const relay = new InMemoryRelay({ rules });
      const client = locating(relay, ['x', { env: 'prod' }]);
      says(relay, [variant('x', 'p', prod)]);
      expect(told(client.one())).to.deep.equal(['-x {}']);
    });
    it('§5.6 change with the node, mid-stream: the client has to ask anew, if it has locators', () => {
      const relay = new InMemoryRelay({ rules });
      const clients = [relay.delta(), relay.sotw()];
      const named = relay.delta();
      named.send('eds', { node: node({ env: 'prod' }), resourceNamesSubscribe: ['x'] });
      const resourceLocators = [locator('x', { a: '1' })];
      clients[0]?.send('eds', { node: node({ env: 'prod' }), resourceLocatorsSubscribe: resourceLocators });
      clients[1]?.send('eds', { node: node({ env: 'prod' }), resourceLocators });
      for (const client of [...clients, named]) client.send('eds', { node: node({ env: 'test' }) });
      expect(clients.map(({ status }) => status?.code)).to.deep.equal([14, 14]);
      expect(named.status).to.equal(undefined);
    });
    const alike: readonly [string, string, Record<string, string>, Record<string, string>][] = [
      ['the values that it overrides', 'x', { env: 'prod' }, { env: 'test' }],
      ['one without it, as relays below send', 'x', { env: 'test' }, {}],
      ['wildcards', '*', { env: 'prod' }, {}],
    ];
    for (const [what, name, one, other] of alike) {
      it(`§4.5 make locators one entry (${what}): it is subscribed until the last of them is unsubscribed`, () => {
        const relay = new InMemoryRelay({ rules });
        const client = relay.delta();
        client.send('eds', {
          node: node({ env: 'test' }),
          resourceLocatorsSubscribe: [locator(name, one), locator(name, other), locator(name, other)],
        });
        relay.says({ type: eds, puts: [variant('x', '1', test)] });
        expect(told(client.one())).to.deep.equal(['+x {env == "test"} 1']);
        client.send('eds', { resourceLocatorsUnsubscribe: [locator(name, { never: 'asked' })] });
        client.send('eds', { resourceLocatorsUnsubscribe: [locator(name, one)] });
        relay.says({ type: eds, puts: [variant('x', '2', test)] });
        expect(told(client.one())).to.deep.equal(['+x {env == "test"} 2']);
        client.send('eds', { resourceLocatorsUnsubscribe: [locator(name, other)] });
        relay.says({ type: eds, puts: [variant('x', '3', test)] });
        expect(client.received()).to.deep.equal([]);
      });
    }
    it('§4.5 another client leads to the same entry by another locator: each unsubscribes its own', () => {
      const relay = new InMemoryRelay({ rules });
      const [first, second] = ['prod', 'other'].map((env) => {
        const client = relay.delta();
        client.send('eds', {
          node: node({ env: 'test' }),
          resourceLocatorsSubscribe: [locator('x', { env })],
        });
        return client;
      });
      second?.send('eds', { resourceLocatorsUnsubscribe: [locator('x', { env: 'other' })] });
      says(relay, [variant('x', '1', test)]);
      expect(first?.received().map(told)).to.deep.equal([['+x {env == "test"} 1']]);
      expect(second?.received()).to.deep.equal([]);
    });
    it('they count one by one towards max_subscriptions', () => {
      const relay = new InMemoryRelay({ rules, limits: { maxSubscriptions: 2 } });
      const client = locating(relay, ['x', { env: '1' }], ['x', { env: '2' }]);
      expect(client.status).to.equal(undefined);
      client.send('eds', { resourceLocatorsSubscribe: [locator('x', { env: '3' })] });
      expect(client.status?.code).to.equal(8);
    });
    it('untrusted rules leave a locator as it is', () => {
      const relay = new InMemoryRelay();
      const client = relay.delta();
      client.send('eds', {
        node: node({ env: 'test' }),
        resourceLocatorsSubscribe: [locator('x', { env: 'prod' })],
      });
      expect(relay.upstream.journal).to.deep.equal(['+eds x [["env","prod"]]']);
    });
  });

  describe('bad input', () => {
    const many = Object.fromEntries(Array.from({ length: 100_000 }, (_, index) => [`k${index}`, 'v']));
    const rows: readonly [string, Record<string, string>, RegExp][] = [
      ['100,000 parameters on one locator', many, /locator "x" has 100000 dynamic parameters: at most 128/],
      ['a value of 1 MB', { key: 'v'.repeat(1 << 20) }, /parameter "key" of locator "x" is too long/],
      ['a key of 1 MB', { ['k'.repeat(1 << 20)]: 'v' }, /parameter "k+…" of locator "x" is too long/],
    ];
    for (const [name, parameters, reason] of rows) {
      it(`${name}: refused with a reason that names it, over delta and SotW`, () => {
        const relay = new InMemoryRelay();
        const other = locating(relay, ['x', { env: 'prod' }]);
        const delta = locating(relay, ['fine', {}], ['x', parameters]);
        const sotw = relay.sotw();
        sotw.send('eds', { resourceLocators: [locator('fine'), locator('x', parameters)] });
        relay.clock.advance(0);
        for (const client of [delta, sotw]) {
          expect(client.status?.code).to.equal(3);
          expect(client.status?.message).to.match(reason);
          expect(client.status?.message.length).to.be.lessThan(300);
        }
        expect(relay.upstream.journal, 'nothing of it is applied').to.deep.equal(['+eds x [["env","prod"]]']);
        says(relay, [variant('x', 'p', prod)]);
        expect(told(other.one())).to.deep.equal(['+x {env == "prod"} p']);
      });
    }
    it('a name and its parameters go as they came: no key imitates another set', () => {
      const relay = new InMemoryRelay();
      locating(
        relay,
        ['x', { 'a": "1': '' }],
        ['x', { a: '1' }],
        ['x', { 'a=1': '' }],
        ['x', { a: '1,b=2' }],
      );
      expect(new Set(relay.upstream.journal).size).to.equal(4);
    });
  });
});

function envRules(...keys: string[]): readonly ParameterRule[] {
  return keys.map((key) => ({
    key,
    from: `node.metadata.${key}`,
    authorities: [],
    pattern: undefined,
    default: undefined,
    values: [],
    trusted: false,
  }));
}
