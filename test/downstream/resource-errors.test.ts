import { create } from '@bufbuild/protobuf';
import { expect } from 'chai';
import { NodeSchema } from '../../src/gen/envoy/config/core/v3/base_pb.ts';
import type { DeltaDiscoveryResponse } from '../../src/gen/envoy/service/discovery/v3/discovery_pb.ts';
import type { Access } from '../../src/model/access.ts';
import { resourceName } from '../../src/model/brand.ts';
import { UNCONSTRAINED } from '../../src/model/constraints.ts';
import { NO_PARAMETERS } from '../../src/model/parameters.ts';
import { type Interest, type ResourceError, WILDCARD } from '../../src/model/transaction.ts';
import { encodeStatus } from '../../src/wire/responses.ts';
import {
  DeltaClient,
  InMemoryRelay,
  namedHolder,
  node,
  put,
  resources,
  type SotwClient,
  type,
  UpstreamStream,
} from '../support/in-memory-relay.ts';
import { compiled, is, locator, told, wrapped } from '../support/variants.ts';

const eds = type('eds');

function fault(name: string, code = 14, message = 'overloaded'): ResourceError {
  return {
    name: resourceName(name),
    constraints: UNCONSTRAINED,
    code,
    message,
    status: encodeStatus(code, message),
  };
}

function subscribed(relay: InMemoryRelay, names: readonly string[]): SotwClient {
  const client = relay.sotw();
  client.send('eds', { resourceNames: [...names] });
  return client;
}

function fails(relay: InMemoryRelay, ...resourceErrors: ResourceError[]): void {
  relay.says({ type: eds, holder: namedHolder, resourceErrors, resolved: [] });
}

const errors = (client: SotwClient): string[] =>
  client
    .received()
    .flatMap(({ resourceErrors }) => resourceErrors)
    .map(({ resourceName: of, errorDetail }) => `${of?.name} ${errorDetail?.code} ${errorDetail?.message}`);

describe('resource_errors (§8)', () => {
  it('§8 is forwarded as it came', () => {
    const relay = new InMemoryRelay();
    const client = subscribed(relay, ['a']);
    fails(relay, fault('a'));
    expect(errors(client)).to.deep.equal(['a 14 overloaded']);
  });

  it('a name of which only an error is known is not counted as cached', () => {
    const relay = new InMemoryRelay();
    subscribed(relay, ['a', 'b']);
    fails(relay, fault('a'));
    relay.says({ type: eds, holder: namedHolder, puts: [put(eds, 'b', '1')], resolved: [] });
    const cached = [...relay.relay.store.tables].map(([, { resourceCount: names, variants }]) => [
      names,
      variants,
    ]);
    expect(cached).to.deep.equal([[1, 1]]);
  });

  it('§8 only to those who subscribe to it', () => {
    const relay = new InMemoryRelay();
    const client = subscribed(relay, ['a']);
    fails(relay, fault('b'));
    expect(client.received()).to.deep.equal([]);
  });

  it('§8 once: not again with the next update', () => {
    const relay = new InMemoryRelay();
    const client = subscribed(relay, ['a', 'b']);
    fails(relay, fault('a'));
    errors(client);
    relay.says({ type: eds, holder: namedHolder, puts: [put(eds, 'b', '1')], resolved: [] });
    expect(errors(client)).to.deep.equal([]);
  });

  it('§8 once: not again when the subscription changes', () => {
    const relay = new InMemoryRelay();
    const client = subscribed(relay, ['a']);
    fails(relay, fault('a'));
    const told = client.one();
    client.ack('eds', told, ['a', 'b']);
    expect(client.received()).to.deep.equal([]);
    relay.says({ type: eds, holder: namedHolder, puts: [put(eds, 'b', '1')], resolved: [] });
    expect(errors(client)).to.deep.equal([]);
  });

  it('§8 once: not again when the subscription changes twice before the client reads', () => {
    const relay = new InMemoryRelay();
    relay.delta().send('eds', { resourceNamesSubscribe: ['known'] });
    fails(relay, fault('known'));
    const client = relay.delta();
    const heard = (): string[] =>
      client
        .received()
        .flatMap(({ resourceErrors }) => resourceErrors.map(({ resourceName: of }) => of?.name ?? ''));
    client.send('eds', { resourceNamesSubscribe: ['unknown', 'shown', 'absent', 'other'] });
    const isAbsent = [...relay.upstream.interests].filter(({ selector }) => selector === 'absent');
    const said = ['absent', 'shown', 'unknown'];
    relay.says({
      type: eds,
      holder: namedHolder,
      puts: [put(eds, 'shown', '1')],
      resourceErrors: said.map((name) => fault(name)),
      resolved: isAbsent,
    });
    expect(heard().toSorted()).to.deep.equal(said);
    client.blocked = true;
    relay.says({ type: eds, holder: namedHolder, puts: [put(eds, 'other', '1')], resolved: [] });
    for (const name of ['known', 'more', 'last']) client.send('eds', { resourceNamesSubscribe: [name] });
    client.unblock();
    expect(heard()).to.deep.equal(['known']);
  });

  it('§8 once: when a client is allowed to see more, it is told what it was not told', () => {
    const all = ['a', 'b'];
    let allowed = ['a'];
    const seeing = (names: readonly string[]): Access => ({
      key: names.join(' '),
      unrestricted: false,
      cohort: 'released',
      allows: (_, name) => names.includes(name),
      admits: ({ name }) => names.includes(name),
      deniesEverything: () => false,
    });
    const relay = new InMemoryRelay({ access: ({ address }) => seeing(address === 'some' ? allowed : all) });
    const [other, client] = [relay.sotw(), relay.sotw()];
    client.peer = { ...client.peer, address: 'some' };
    for (const one of [other, client]) one.send('eds', { resourceNames: all });
    fails(relay, fault('b'));
    fails(relay, fault('a'));
    expect(errors(client)).to.deep.equal(['a 14 overloaded']);
    allowed = all;
    relay.relay.server.reidentify();
    relay.settle();
    expect(errors(client)).to.deep.equal(['b 14 overloaded']);
  });

  it('§8 again when upstream says it again', () => {
    const relay = new InMemoryRelay();
    const client = subscribed(relay, ['a']);
    fails(relay, fault('a'));
    fails(relay, fault('a', 13, 'broken'));
    expect(errors(client)).to.deep.equal(['a 14 overloaded', 'a 13 broken']);
  });

  it('§8 not again when upstream repeats it, as one that sends its whole state does', () => {
    const relay = new InMemoryRelay();
    const client = subscribed(relay, ['a', 'b']);
    fails(relay, fault('a'));
    client.one();
    relay.says({ type: eds, holder: namedHolder, resourceErrors: [fault('a')], resolved: [], version: '2' });
    expect(client.received()).to.deep.equal([]);
    const puts = [put(eds, 'b', '1')];
    relay.says({
      type: eds,
      holder: namedHolder,
      puts,
      resourceErrors: [fault('a')],
      resolved: [],
      version: '3',
    });
    expect(client.one().resourceErrors).to.deep.equal([]);
  });

  it('§8 is replayed to new subscribers, and to one who asks anew', () => {
    const relay = new InMemoryRelay();
    const first = subscribed(relay, ['a']);
    fails(relay, fault('a'));
    const told = first.one();
    expect(errors(subscribed(relay, ['a']))).to.deep.equal(['a 14 overloaded']);
    first.ack('eds', told, ['b']);
    first.ack('eds', told, ['a', 'b']);
    expect(errors(first)).to.deep.equal(['a 14 overloaded']);
  });

  it('§8 is told to who has the resource by a wildcard, and subscribes to its name', () => {
    const relay = new InMemoryRelay();
    const cds = type('cds');
    const [named, client] = [relay.delta(), relay.delta()];
    named.send('cds', { resourceNamesSubscribe: ['a'] });
    client.send('cds');
    relay.full('cds', { a: '1' });
    client.received();
    relay.says({ type: cds, holder: namedHolder, resourceErrors: [fault('a')], resolved: [] });
    relay.says({ type: cds, puts: [put(cds, 'b', '1')] });
    const told = () => client.received().map(({ resourceErrors }) => resourceErrors.length);
    expect(told()).to.deep.equal([0]);
    client.send('cds', { resourceNamesSubscribe: ['a'] });
    expect(told()).to.deep.equal([1]);
  });

  it('§8 is cleared when the resource arrives', () => {
    const relay = new InMemoryRelay();
    const client = subscribed(relay, ['a']);
    fails(relay, fault('a'));
    errors(client);
    relay.says({ type: eds, holder: namedHolder, puts: [put(eds, 'a', '1')] });
    expect(resources(client.one())).to.deep.equal({ a: '1' });
    expect(errors(subscribed(relay, ['a']))).to.deep.equal([]);
  });

  for (const code of [5, 14]) {
    it(`§8 does not drop what is cached, whatever it is (${code})`, () => {
      const relay = new InMemoryRelay();
      const client = subscribed(relay, ['a']);
      relay.says({ type: eds, holder: namedHolder, puts: [put(eds, 'a', '1')] });
      client.one();
      fails(relay, fault('a', code));
      expect(client.one().resourceErrors).to.have.length(1);
      expect(resources(subscribed(relay, ['a']).one())).to.deep.equal({ a: '1' });
    });
  }

  it('§8 in a full-state response comes with the complete set', () => {
    const relay = new InMemoryRelay();
    const client = relay.sotw();
    client.send('cds', { resourceNames: ['a', 'b'] });
    relay.says({ type: type('cds'), holder: namedHolder, puts: [put(type('cds'), 'a', '1')] });
    client.one();
    relay.says({ type: type('cds'), holder: namedHolder, resourceErrors: [fault('b')] });
    const response = client.one();
    expect(resources(response)).to.deep.equal({ a: '1' });
    expect(response.resourceErrors).to.have.length(1);
  });

  it('§8 does not hide from a slow client that a resource is gone: it comes after the full state that lacks that', () => {
    const relay = new InMemoryRelay();
    const cds = type('cds');
    const client = relay.sotw();
    client.send('cds', { resourceNames: ['a', 'b'] });
    relay.says({ type: cds, puts: [put(cds, 'a', '1'), put(cds, 'b', '1')] });
    client.one();
    client.blocked = true;
    relay.says({ type: cds, puts: [put(cds, 'a', '2')] });
    client.one();
    relay.says({ type: cds, removals: [{ name: resourceName('b'), constraints: UNCONSTRAINED }] });
    relay.says({ type: cds, holder: namedHolder, resourceErrors: [fault('b')], resolved: [] });
    client.unblock();
    const told = client
      .received()
      .map((response) => [resources(response), response.resourceErrors.length] as const);
    expect(told).to.deep.equal([
      [{ a: '2' }, 0],
      [{ a: '2' }, 1],
    ]);
  });

  it('§8 a slow client is told the last one', () => {
    const relay = new InMemoryRelay();
    const client = subscribed(relay, ['a', 'b']);
    client.blocked = true;
    relay.says({ type: eds, holder: namedHolder, puts: [put(eds, 'b', '1')], resolved: [] });
    client.one();
    fails(relay, fault('a'));
    fails(relay, fault('a', 13, 'broken'));
    client.unblock();
    expect(errors(client)).to.deep.equal(['a 13 broken']);
  });

  for (const protocol of ['sotw', 'delta'] as const) {
    describe(`§8 of what a wildcard does not show (${protocol})`, () => {
      const cds = type('cds');
      const told = (client: SotwClient | DeltaClient): readonly (readonly string[])[] =>
        client
          .received()
          .map((response) => [
            ...Object.keys(resources(response)),
            ...response.resourceErrors.map(({ resourceName: of }) => `!${of?.name}`),
          ]);
      const open = (relay: InMemoryRelay): SotwClient | DeltaClient => {
        const client = relay[protocol]();
        client.send('cds');
        return client;
      };
      const whole = protocol === 'sotw' ? ['a'] : [];

      it('is forwarded to those who have the wildcard, once, and replayed to new ones', () => {
        const relay = new InMemoryRelay();
        const client = open(relay);
        relay.full('cds', { a: '1' });
        expect(told(client)).to.deep.equal([['a']]);
        relay.says({ type: cds, resourceErrors: [fault('b')] });
        expect(told(client)).to.deep.equal([[...whole, '!b']]);
        relay.says({ type: cds, resourceErrors: [fault('b')] });
        expect(told(client)).to.deep.equal([]);
        expect(told(open(relay))).to.deep.equal([['a', '!b']]);
      });

      it('comes with the first response', () => {
        const relay = new InMemoryRelay();
        const client = open(relay);
        relay.says({ type: cds, puts: [put(cds, 'a', '1')], resourceErrors: [fault('b')], complete: true });
        expect(told(client)).to.deep.equal([['a', '!b']]);
      });

      it('is cleared when the resource arrives, also for whoever comes after it has gone', () => {
        const relay = new InMemoryRelay();
        const client = open(relay);
        relay.full('cds', { a: '1' });
        relay.says({ type: cds, resourceErrors: [fault('b')] });
        client.received();
        relay.full('cds', { a: '1', b: '1' });
        expect(told(client)).to.deep.equal([[...whole, 'b']]);
        relay.full('cds', { a: '1' });
        expect(told(client)).to.deep.equal([whole]);
        expect(told(open(relay))).to.deep.equal([['a']]);
      });

      it('is not what was only said to a name', () => {
        const relay = new InMemoryRelay();
        const [client, named] = [open(relay), relay[protocol]()];
        relay.full('cds', { a: '1' });
        client.received();
        if (named instanceof DeltaClient) named.send('cds', { resourceNamesSubscribe: ['b'] });
        else named.send('cds', { resourceNames: ['b'] });
        relay.says({ type: cds, holder: namedHolder, resourceErrors: [fault('b')], resolved: [] });
        expect(told(named)).to.deep.equal([['!b']]);
        expect(told(client)).to.deep.equal([]);
        expect(told(open(relay))).to.deep.equal([['a']]);
      });
    });
  }

  for (const protocol of ['sotw', 'delta'] as const) {
    describe(`NOT_FOUND where parameters decide (${protocol})`, () => {
      const missing = (constraints = UNCONSTRAINED): ResourceError => ({
        ...fault('x', 5, 'gone'),
        constraints,
      });
      const asking = (relay: InMemoryRelay, env: string): Interest[] =>
        [...relay.upstream.interests].filter(({ parameters }) => parameters.key.includes(env));
      /** Only what asks with this parameter is answered. */
      const says = (relay: InMemoryRelay, env: string, part: object): void =>
        relay.says({ type: eds, holder: namedHolder, ...part, resolved: asking(relay, env) });
      const heard = (client: SotwClient | DeltaClient): string[] => {
        const shown =
          client instanceof DeltaClient
            ? client.received().map(both(told))
            : client.received().map(both(wrapped));
        return shown.flat();
      };
      const both =
        <Response extends Pick<DeltaDiscoveryResponse, 'nonce' | 'resourceErrors'>>(
          read: (response: Response) => string[],
        ) =>
        (response: Response): string[] => {
          responseNonce = response.nonce;
          const said = response.resourceErrors.map(
            ({ resourceName: of, errorDetail }) => `!${of?.name} ${errorDetail?.code}`,
          );
          return [...read(response), ...said];
        };
      let responseNonce = '';
      /** SotW says it by the error alone. */
      const absent = protocol === 'delta' ? ['-x {}'] : [];
      const [prod, test] = [compiled(is('env', 'prod')), compiled(is('env', 'test'))];

      function ask(client: SotwClient | DeltaClient, ...envs: readonly string[]): void {
        const locators = envs.map((env) => locator('x', { env }));
        if (client instanceof DeltaClient) client.send('eds', { resourceLocatorsSubscribe: locators });
        else client.send('eds', { resourceLocators: locators, responseNonce });
      }

      function leave(client: SotwClient | DeltaClient): void {
        if (client instanceof DeltaClient)
          client.send('eds', { resourceLocatorsUnsubscribe: [locator('x', { env: 'test' })] });
        else ask(client, 'prod');
      }

      function locating(): { relay: InMemoryRelay; client: SotwClient | DeltaClient } {
        const relay = new InMemoryRelay();
        const client = relay[protocol]();
        ask(client, 'prod', 'test');
        return { relay, client };
      }

      for (const [other, part, more] of [
        ['shown', { puts: [put(eds, 'x', '1', { constraints: test })] }, ['+x {env == "test"} 1']],
        ['absent', {}, []],
        ['absent by an error as well', { resourceErrors: [missing(test)] }, ['!x 5']],
      ] as const) {
        it(`§5.10 is withheld with the absence, and told with it: the other one is ${other}`, () => {
          const { relay, client } = locating();
          says(relay, 'prod', { resourceErrors: [missing(prod)] });
          expect(heard(client)).to.deep.equal([]);
          says(relay, 'test', part);
          expect(heard(client).toSorted()).to.deep.equal(['!x 5', ...more, ...absent].toSorted());
          says(relay, 'test', { puts: [put(eds, 'x', '2', { constraints: test })] });
          expect(heard(client)).to.deep.equal(['+x {env == "test"} 2']);
        });
      }

      it('§5.10 is told once the other one is unsubscribed', () => {
        const { relay, client } = locating();
        says(relay, 'prod', { resourceErrors: [missing(prod)] });
        leave(client);
        expect(heard(client)).to.deep.equal([...absent, '!x 5']);
      });

      it('§5.10 is not told again when another one is added', () => {
        const { relay, client } = locating();
        leave(client);
        says(relay, 'prod', { resourceErrors: [missing(prod)] });
        expect(heard(client)).to.deep.equal([...absent, '!x 5']);
        ask(client, 'prod', 'test');
        says(relay, 'test', { puts: [put(eds, 'x', '1', { constraints: test })] });
        expect(heard(client)).to.deep.equal(['+x {env == "test"} 1']);
      });

      it('§8.2 is not told again when the other one was unknown again meanwhile', () => {
        const { relay, client } = locating();
        const [of, inTest] = [{ type: eds, holder: namedHolder, resolved: [] }, { constraints: test }];
        relay.says({ ...of, puts: [put(eds, 'x', '1', inTest)] });
        says(relay, 'prod', { resourceErrors: [missing(prod)] });
        expect(heard(client)).to.deep.equal(['+x {env == "test"} 1', ...absent, '!x 5']);
        const removals = [{ name: resourceName('x'), ...inTest }];
        relay.says({ ...of, removals, unanswered: asking(relay, 'test') });
        expect(heard(client)).to.deep.equal([]);
        says(relay, 'test', { puts: [put(eds, 'x', '2', inTest)] });
        expect(heard(client)).to.deep.equal(['+x {env == "test"} 2']);
      });

      for (const [how, answers] of [
        ['answered', (relay: InMemoryRelay) => says(relay, 'test', {})],
        ['unsubscribed', (_: InMemoryRelay, client: SotwClient | DeltaClient) => leave(client)],
      ] as const) {
        it(`§5.10 is told of what the client has got, or knows to be absent, once the other one is ${how}`, () => {
          for (const has of ['a variant', 'nothing']) {
            const { relay, client } = locating();
            if (has === 'nothing') leave(client);
            const inProd = { constraints: prod };
            says(relay, 'prod', has === 'nothing' ? {} : { puts: [put(eds, 'x', '1', inProd)] });
            const shown = has === 'nothing' ? absent : ['+x {env == "prod"} 1'];
            expect(heard(client)).to.deep.equal(shown);
            if (has === 'nothing') ask(client, 'prod', 'test');
            const removals = has === 'nothing' ? [] : [{ name: resourceName('x'), ...inProd }];
            says(relay, 'prod', { removals, resourceErrors: [missing(prod)] });
            const removed = protocol === 'delta' && has !== 'nothing' ? ['-x {env == "prod"}'] : [];
            expect(heard(client)).to.deep.equal(removed);
            answers(relay, client);
            expect(heard(client)).to.deep.equal([...absent, '!x 5']);
          }
        });
      }

      it('one error for all parameter sets is told once', () => {
        const { relay, client } = locating();
        relay.says({ type: eds, holder: namedHolder, resourceErrors: [missing()] });
        expect(heard(client)).to.deep.equal([...absent, '!x 5']);
      });

      it('§8.2 is told to nobody who waits for another answer, and to each with its own', () => {
        const relay = new InMemoryRelay();
        const [first, second] = ['prod', 'test'].map((env) => {
          const client = relay[protocol]();
          ask(client, env);
          return client;
        });
        if (first === undefined || second === undefined) throw new Error('two clients');
        const unanswered = asking(relay, 'test');
        says(relay, 'prod', { resourceErrors: [missing()], unanswered });
        expect([heard(first), heard(second)]).to.deep.equal([[...absent, '!x 5'], []]);
        const late = relay[protocol]();
        ask(late, 'test');
        expect(heard(late)).to.deep.equal([]);
        says(relay, 'test', { resourceErrors: [missing()] });
        expect([heard(first), heard(second), heard(late)]).to.deep.equal([
          [],
          [...absent, '!x 5'],
          [...absent, '!x 5'],
        ]);
      });
    });
  }

  it('NOT_FOUND over delta is not told again when the name is subscribed again', () => {
    const relay = new InMemoryRelay();
    const client = relay.delta();
    const locators = ['prod', 'test'].map((env) => locator('x', { env }));
    client.send('eds', { resourceLocatorsSubscribe: locators });
    fails(relay, fault('x', 5));
    client.received();
    client.send('eds', { resourceLocatorsSubscribe: locators.slice(1) });
    expect(client.received().map((one) => [told(one), one.resourceErrors.length])).to.deep.equal([
      [['-x {}'], 0],
    ]);
  });

  for (const protocol of ['sotw', 'delta'] as const) {
    describe(`§8.2 NOT_FOUND beside another variant, which is shown (${protocol})`, () => {
      const [prod, second] = [compiled(is('env', 'prod')), compiled(is('version', '2'))];
      const missing = (constraints: ResourceError['constraints']) => ({
        resourceErrors: [{ ...fault('x', 5, 'gone'), constraints }],
      });
      const wildcard = { key: 'w', role: 'wildcard', upstream: 'test' } as const;
      const asks = {
        'by its name': { names: ['x'], locators: [], holder: namedHolder },
        'by a locator': {
          names: [],
          locators: [locator('x', { env: 'prod', version: '2' })],
          holder: namedHolder,
        },
        'by a wildcard': { names: ['*'], locators: [], holder: wildcard },
      };
      const heard = (client: SotwClient | DeltaClient): string[] =>
        client
          .received()
          .flatMap((response) => [
            ...response.resources.map(() => '+x'),
            ...response.resourceErrors.map(({ resourceName: of }) => `!${of?.name}`),
          ]);

      for (const [how, { names, locators, holder }] of Object.entries(asks)) {
        const open = (relay: InMemoryRelay, env = 'prod'): SotwClient | DeltaClient => {
          const client = relay[protocol]();
          const about = { node: create(NodeSchema, node({ env, version: '2' })) };
          if (client instanceof DeltaClient) {
            const of = { resourceNamesSubscribe: names, resourceLocatorsSubscribe: locators };
            client.send('eds', { ...about, ...of });
          } else client.send('eds', { ...about, resourceNames: names, resourceLocators: locators });
          return client;
        };
        const shown = () => {
          const relay = new InMemoryRelay();
          const client = open(relay);
          const says = (part: object): void => relay.says({ type: eds, holder, resolved: [], ...part });
          relay.says({
            type: eds,
            holder,
            puts: [put(eds, 'x', '1', { constraints: prod, ttlMilliseconds: 60_000 })],
          });
          expect(heard(client)).to.deep.equal(['+x']);
          return { relay, client, says };
        };

        for (const constraints of [UNCONSTRAINED, second])
          it(`is told to nobody who has that, and once when that has gone: ${how}, ${constraints.key}`, () => {
            const { relay, client, says } = shown();
            says(missing(constraints));
            expect(heard(client)).to.deep.equal([]);
            expect(heard(open(relay))).to.deep.equal(['+x']);
            relay.clock.advance(60_000);
            relay.settle();
            expect(heard(client)).to.deep.equal(['!x']);
            expect(heard(open(relay))).to.deep.equal(['!x']);
            says(missing(constraints));
            says({ puts: [put(eds, 'y', '1')] });
            expect(heard(client).filter((what) => what !== '+x')).to.deep.equal([]);
          });

        it(`is told as it was if a body came and has gone: ${how}`, () => {
          const { client, says } = shown();
          says(missing(second));
          says({ removals: [{ name: resourceName('x'), constraints: prod }] });
          expect(heard(client)).to.deep.equal(['!x']);
          says({ puts: [put(eds, 'x', '1', { constraints: prod })] });
          expect(heard(client)).to.deep.equal(['+x']);
          says({ removals: [{ name: resourceName('x'), constraints: prod }] });
          expect(heard(client)).to.deep.equal(['!x']);
        });
      }

      it('of exactly what is shown is kept too, where absence deletes', () => {
        const relay = new InMemoryRelay();
        const cds = type('cds');
        const client = relay[protocol]();
        if (client instanceof DeltaClient) client.send('cds', { resourceNamesSubscribe: ['x'] });
        else client.send('cds', { resourceNames: ['x'] });
        relay.says({ type: cds, puts: [put(cds, 'x', '1', { ttlMilliseconds: 60_000 })] });
        expect(heard(client)).to.deep.equal(['+x']);
        relay.says({ type: cds, holder: namedHolder, resourceErrors: [fault('x', 5, 'gone')] });
        expect(heard(client)).to.deep.equal([]);
        relay.clock.advance(60_000);
        relay.settle();
        expect(heard(client)).to.deep.equal(['!x']);
      });

      it('is told to whom that is not for', () => {
        const relay = new InMemoryRelay();
        const clients = ['prod', 'test'].map((env) => {
          const client = relay[protocol]();
          const about = { node: create(NodeSchema, node({ env })) };
          if (client instanceof DeltaClient) client.send('eds', { ...about, resourceNamesSubscribe: ['x'] });
          else client.send('eds', { ...about, resourceNames: ['x'] });
          return client;
        });
        const puts = [put(eds, 'x', '1', { constraints: prod })];
        relay.says({ type: eds, holder: namedHolder, puts, ...missing(UNCONSTRAINED) });
        expect(clients.map(heard)).to.deep.equal([['+x'], ['!x']]);
      });
    });
  }

  it('a wildcard that no upstream is configured for is an error, too, and over when one is', () => {
    const relay = new InMemoryRelay();
    relay.upstream.claimOnly(() => false);
    const client = relay.delta();
    client.send('cds');
    const refused = client.one();
    expect(refused.resourceErrors.map(({ resourceName: of }) => of?.name)).to.deep.equal(['*']);
    expect(refused.resources).to.deep.equal([]);
    const interest = { type: type('cds'), selector: WILDCARD, parameters: NO_PARAMETERS };
    relay.says({ type: type('cds'), puts: [put(type('cds'), 'a', '1')], resolved: [interest] });
    expect(resources(client.one())).to.deep.equal({ a: '1' });
    const later = relay.delta();
    later.send('cds');
    expect(later.one().resourceErrors).to.deep.equal([]);
  });

  for (const selector of ['*', 'xdstp://nobody/envoy.config.cluster.v3.Cluster/*']) {
    it(`§6.5 so it is for every parameter set, whoever comes first (${selector})`, () => {
      const relay = new InMemoryRelay();
      relay.upstream.claimOnly(() => false);
      const refusals = ['prod', 'test', 'prod', 'test'].map((env) => {
        const client = relay.delta();
        client.send('cds', {
          node: create(NodeSchema, node({ env })),
          resourceNamesSubscribe: [selector],
        });
        return client.one().resourceErrors.map(({ resourceName: of }) => of?.name);
      });
      expect(refusals).to.deep.equal([[selector], [selector], [selector], [selector]]);
    });
  }

  for (const protocol of ['DELTA', 'SOTW'] as const) {
    describe(`§5b.2 from a control plane over ${protocol}`, () => {
      const heard = (client: DeltaClient | SotwClient): string[] =>
        client
          .received()
          .flatMap((response) => [
            ...Object.keys(resources(response)).map((name) => `+${name}`),
            ...response.resourceErrors.map(
              ({ resourceName: of, errorDetail }) => `!${of?.name} ${errorDetail?.code}`,
            ),
          ]);
      const open = (relay: InMemoryRelay): (DeltaClient | SotwClient)[] =>
        [relay.sotw(), relay.delta()].map((client) => {
          client.send('cds');
          return client;
        });

      it('that of the wildcard, of which nothing is held, is its answer: everybody is told, newcomers too', () => {
        const relay = new InMemoryRelay();
        const clients = open(relay);
        const upstream = new UpstreamStream(relay, protocol);
        upstream.says('cds', '!*:PERMISSION_DENIED');
        expect(clients.map(heard)).to.deep.equal([['!* 7'], ['!* 7']]);
        relay.clock.advance(60_000);
        relay.settle();
        expect(open(relay).map(heard), 'a minute later').to.deep.equal([['!* 7'], ['!* 7']]);
        upstream.says('cds', 'a:1');
        expect(clients.map(heard)).to.deep.equal([['+a'], ['+a']]);
        relay.clock.advance(1000);
        expect(open(relay).map(heard), 'it is over').to.deep.equal([['+a'], ['+a']]);
      });

      it('beside all that is there, it stays until the next answer', () => {
        const relay = new InMemoryRelay();
        const clients = open(relay);
        const upstream = new UpstreamStream(relay, protocol);
        upstream.says('cds', 'a:1', '!*:PERMISSION_DENIED');
        relay.clock.advance(1000);
        relay.settle();
        expect(clients.map(heard)).to.deep.equal([
          ['+a', '!* 7'],
          ['+a', '!* 7'],
        ]);
        expect(open(relay).map(heard)).to.deep.equal([
          ['+a', '!* 7'],
          ['+a', '!* 7'],
        ]);
        upstream.says('cds', 'a:1', 'b:1');
        expect(open(relay).map((client) => heard(client).toSorted())).to.deep.equal([
          ['+a', '+b'],
          ['+a', '+b'],
        ]);
      });
    });
  }

  /** What a client that asks for `a` is told first. */
  function newcomer(relay: InMemoryRelay): string[] {
    const client = relay.delta();
    client.send('eds', { resourceNamesSubscribe: ['a'] });
    return client
      .received()
      .flatMap((response) => [...told(response), ...response.resourceErrors.map(() => '!a')]);
  }

  it('§3.9 of a name stays when silence makes it absent, and ends with the next answer', () => {
    const relay = new InMemoryRelay();
    const open = (): string[] => newcomer(relay);
    open();
    const upstream = new UpstreamStream(relay, 'DELTA');
    upstream.says('eds', '!a:UNAVAILABLE');
    relay.clock.advance(15_000);
    relay.settle();
    expect(open()).to.have.members(['-a', '!a']);
    upstream.says('eds', '-a');
    expect(open()).to.deep.equal(['-a']);
  });

  it('§8 of a name is over when upstream says that it is not there', () => {
    const relay = new InMemoryRelay();
    const open = (): string[] => newcomer(relay);
    expect(open()).to.deep.equal([]);
    fails(relay, fault('a', 8, 'all sessions are in use'));
    expect(open()).to.deep.equal(['!a']);
    relay.says({ type: eds, holder: namedHolder });
    expect(open()).to.deep.equal(['-a']);
  });

  it('§8 is over for newcomers, also if what came has the content that was there', () => {
    const relay = new InMemoryRelay();
    const open = (): number => {
      const client = relay.delta();
      client.send('eds', { resourceNamesSubscribe: ['a'] });
      return client.received().flatMap(({ resourceErrors }) => resourceErrors).length;
    };
    open();
    relay.says({ type: eds, holder: namedHolder, puts: [put(eds, 'a', '1')] });
    fails(relay, fault('a'));
    expect([open(), open()]).to.deep.equal([1, 1]);
    relay.says({ type: eds, holder: namedHolder, puts: [put(eds, 'a', '1')] });
    expect(open()).to.equal(0);
  });

  it('a name that no upstream is configured for is an error, not silence (§6)', () => {
    const relay = new InMemoryRelay();
    relay.upstream.claimOnly(() => false);
    const client = subscribed(relay, ['a']);
    const [response] = client.received();
    expect(response?.resourceErrors[0]?.errorDetail?.code).to.equal(5);
    expect(response?.resourceErrors[0]?.errorDetail?.message).to.contain('no upstream');
  });
});
