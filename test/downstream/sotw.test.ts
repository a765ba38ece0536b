import { create } from '@bufbuild/protobuf';
import { AnySchema, anyIs } from '@bufbuild/protobuf/wkt';
import { expect } from 'chai';
import { NodeSchema } from '../../src/gen/envoy/config/core/v3/base_pb.ts';
import { ResourceSchema } from '../../src/gen/envoy/service/discovery/v3/discovery_pb.ts';
import { resourceName } from '../../src/model/brand.ts';
import { UNCONSTRAINED } from '../../src/model/constraints.ts';
import { knownTypes } from '../../src/model/types.ts';
import { encodeStatus } from '../../src/wire/responses.ts';
import {
  InMemoryRelay,
  namedHolder,
  nameOf,
  node,
  put,
  resources,
  type SotwClient,
  type,
  when,
} from '../support/in-memory-relay.ts';

const cdsPath = '/envoy.service.cluster.v3.ClusterDiscoveryService/StreamClusters';
const edsPath = '/envoy.service.endpoint.v3.EndpointDiscoveryService/StreamEndpoints';

/** A client that holds the wildcard of CDS. */
function wildcardClient(relay: InMemoryRelay, held: Record<string, string> = { a: '1' }) {
  const client = relay.sotw();
  client.send('cds');
  relay.full('cds', held);
  const response = client.one();
  return { client, response };
}

/** Upstream says something about names; every interest is answered unless `silent`. */
function says(
  relay: InMemoryRelay,
  short: string,
  held: Record<string, string>,
  silent: readonly string[] = [],
  version = '1',
): void {
  const url = type(short);
  relay.says({
    type: url,
    holder: namedHolder,
    version,
    puts: Object.entries(held).map(([name, content]) => put(url, name, content)),
    resolved: [...relay.upstream.interests].filter(
      (one) => one.type === url && !silent.includes(one.selector),
    ),
  });
}

function named(relay: InMemoryRelay, short: string, names: readonly string[]): SotwClient {
  const client = relay.sotw();
  client.send(short, { resourceNames: [...names] });
  return client;
}

describe('SotW server', () => {
  describe('§3.1 node and type_url', () => {
    it('§3.1 a first request without node is refused', () => {
      const client = new InMemoryRelay().sotw();
      client.send('cds', { node: undefined });
      expect(client.status?.code).to.equal(3);
      expect(client.status?.message).to.contain('node');
    });

    it('§3.1 only the first request of the stream must carry node, whatever the type', () => {
      const relay = new InMemoryRelay();
      const { client } = wildcardClient(relay);
      client.send('lds');
      relay.full('lds', { l: '1' });
      expect(resources(client.one())).to.deep.equal({ l: '1' });
    });

    it('§3.1 the same node is not decoded again', () => {
      const relay = new InMemoryRelay();
      const { client, response } = wildcardClient(relay);
      for (let count = 0; count < 5; count++) {
        client.send('cds', { node: create(NodeSchema, node()), responseNonce: response.nonce });
      }
      expect(relay.contexts).to.equal(1);
    });

    it('§3.1 a changed node of the same length is decoded', () => {
      const relay = new InMemoryRelay();
      const client = relay.sotw();
      for (const env of ['aaa', 'bbb', 'bbb', 'aaa']) {
        client.send('cds', { node: create(NodeSchema, node({ env })) });
      }
      expect(relay.contexts).to.equal(3);
    });

    it('§3.1 a changed node mid-stream is taken, with one response of the new view', () => {
      const relay = new InMemoryRelay();
      const client = relay.sotw();
      client.send('cds', { node: create(NodeSchema, node({ env: 'a' })) });
      const puts = ['a', 'b'].map((env) =>
        put(type('cds'), `only-${env}`, env, { constraints: when({ env }) }),
      );
      relay.says({ type: type('cds'), puts, complete: true });
      const first = client.one();
      expect(resources(first)).to.deep.equal({ 'only-a': 'a' });
      client.send('cds', { node: create(NodeSchema, node({ env: 'b' })), responseNonce: first.nonce });
      expect(client.received(), 'unknown for now').to.deep.equal([]);
      relay.says({ type: type('cds') });
      expect(resources(client.one())).to.deep.equal({ 'only-b': 'b' });
    });

    it('§3.1 a changed node is taken from a request with a stale nonce too', () => {
      const relay = new InMemoryRelay();
      const client = relay.sotw();
      client.send('cds', { node: create(NodeSchema, node({ env: 'a' })) });
      relay.says({ type: type('cds'), puts: [put(type('cds'), 'x', '1')], complete: true });
      client.one();
      client.send('cds', { node: create(NodeSchema, node({ env: 'b' })), responseNonce: 'stale' });
      expect(relay.upstream.journal).to.deep.equal(['+cds * [["env","a"]]', '+cds * [["env","b"]]']);
    });

    it('§3.1 an empty type_url is inferred on a per-type service', () => {
      const relay = new InMemoryRelay();
      const client = relay.sotw(cdsPath);
      client.send('cds', { typeUrl: '' });
      relay.full('cds', { a: '1' });
      expect(client.one().typeUrl).to.equal(type('cds'));
    });

    it('§3.1 an empty type_url is refused on ADS', () => {
      const client = new InMemoryRelay().sotw();
      client.send('cds', { typeUrl: '' });
      expect(client.status?.code).to.equal(3);
    });

    it('§3.1 another type on a per-type service is refused', () => {
      const client = new InMemoryRelay().sotw(cdsPath);
      client.send('lds');
      expect(client.status?.code).to.equal(3);
      expect(client.status?.message).to.contain('Listener').and.to.contain('Cluster');
    });

    it('§3.1 an unknown type on ADS is served', () => {
      const relay = new InMemoryRelay();
      const client = relay.sotw();
      const url = 'type.googleapis.com/example.Thing';
      client.send(url);
      relay.says({ type: type(url), puts: [put(type(url), 'a', '1')], complete: true });
      expect(resources(client.one())).to.deep.equal({ a: '1' });
    });
  });

  describe('§3.2–3.4 nonces', () => {
    it('§3.2 before anything was sent a request counts whatever nonce it carries', () => {
      const relay = new InMemoryRelay();
      const client = relay.sotw();
      client.send('cds', { responseNonce: 'of the last stream', versionInfo: '7' });
      client.send('cds', { responseNonce: 'another', resourceNames: ['b'] });
      says(relay, 'cds', { a: '1', b: '1' });
      expect(resources(client.one())).to.deep.equal({ b: '1' });
    });

    it('§3.2 what was sent for one type does not matter to another', () => {
      const relay = new InMemoryRelay();
      const { client } = wildcardClient(relay);
      client.send('eds', { responseNonce: 'leaked', resourceNames: ['x'] });
      says(relay, 'eds', { x: '1' });
      expect(resources(client.one())).to.deep.equal({ x: '1' });
    });

    it('§3.3 a stale nonce gets no response, and is neither ACK nor NACK', () => {
      const relay = new InMemoryRelay();
      const { client, response } = wildcardClient(relay);
      relay.full('cds', { a: '2' }, '2');
      client.one();
      relay.events.length = 0;
      client.ack('cds', response, ['other']);
      client.nack('cds', response);
      expect(client.received()).to.deep.equal([]);
      expect(relay.events).to.deep.equal(['request cds stale', 'request cds stale']);
      expect(relay.upstream.journal).to.deep.equal(['+cds *']);
    });

    it('§3.3 after a NACK the last accepted nonce is current too', () => {
      const relay = new InMemoryRelay();
      const { client, response } = wildcardClient(relay, { a: '1', b: '1' });
      client.ack('cds', response);
      relay.full('cds', { a: 'bad', b: '1' }, '2');
      client.nack('cds', client.one(), [], '1');
      client.ack('cds', response, ['b']);
      expect(relay.events.at(-2)).to.equal('request cds subscribe');
      expect(resources(client.one())).to.deep.equal({ b: '1' });
    });

    it('§3.3 it may be that of a response that a newer one has overtaken', () => {
      const relay = new InMemoryRelay();
      const client = named(relay, 'eds', ['x', 'y']);
      says(relay, 'eds', { x: 'bad', y: '1' });
      client.nack('eds', client.one(), ['x', 'y']);
      const [first, last] = client.received();
      if (first === undefined || last === undefined) throw new Error('each goes out alone');
      client.ack('eds', first, ['x', 'y']);
      client.nack('eds', last, ['x', 'y']);
      client.ack('eds', first, ['x', 'y', 'z']);
      expect(relay.events.at(-1)).to.equal('request eds subscribe');
      says(relay, 'eds', { z: '1' });
      expect(resources(client.one())).to.deep.equal({ z: '1' });
    });

    it('§3.3 after a NACK of the first response an empty nonce is current: nothing was accepted yet', () => {
      const relay = new InMemoryRelay();
      const { client, response } = wildcardClient(relay, { a: 'bad', b: '1' });
      client.nack('cds', response);
      client.send('cds', { resourceNames: ['b'] });
      expect(resources(client.one())).to.deep.equal({ b: '1' });
    });

    it('§3.3 without a NACK the last accepted nonce is stale', () => {
      const relay = new InMemoryRelay();
      const { client, response } = wildcardClient(relay);
      client.ack('cds', response);
      relay.full('cds', { a: '2' }, '2');
      client.one();
      client.ack('cds', response, ['other']);
      expect(relay.events.at(-1)).to.equal('request cds stale');
    });

    it('§3.3 once something newer was sent the accepted nonce of before a NACK is stale again', () => {
      const relay = new InMemoryRelay();
      const { client, response } = wildcardClient(relay);
      client.ack('cds', response);
      relay.full('cds', { a: 'bad' }, '2');
      client.nack('cds', client.one());
      relay.full('cds', { a: '3' }, '3');
      client.one();
      client.ack('cds', response);
      expect(relay.events.at(-1)).to.equal('request cds stale');
    });

    for (const [what, detail] of [
      ['INTERNAL of Envoy', { code: 13, message: 'no' }],
      ['UNAVAILABLE of grpc-js', { code: 14, message: 'no' }],
      ['INVALID_ARGUMENT of C-core', { code: 3, message: 'no' }],
      ['an empty one', {}],
    ] as const) {
      it(`§3.4, §10.4 error_detail present is a NACK: ${what}`, () => {
        const relay = new InMemoryRelay();
        const { client, response } = wildcardClient(relay);
        client.send('cds', { responseNonce: response.nonce, errorDetail: detail });
        expect(relay.events.slice(-2)[0]).to.equal('request cds nack');
      });
    }

    it('§3.4, §10.4 a NACK with the rejected version is one all the same', () => {
      const relay = new InMemoryRelay();
      const { client, response } = wildcardClient(relay);
      client.nack('cds', response, [], response.versionInfo);
      expect(relay.events.at(-1)).to.equal('nack cds 1 rejected');
    });

    it('§3.4 an ACK with an old version is one all the same', () => {
      const relay = new InMemoryRelay();
      const { client, response } = wildcardClient(relay);
      client.send('cds', { responseNonce: response.nonce, versionInfo: 'older' });
      expect(relay.events.at(-1)).to.equal('request cds ack');
    });

    it('§3.4 subscription changes apply on a NACK too', () => {
      const relay = new InMemoryRelay();
      const client = named(relay, 'eds', ['x']);
      says(relay, 'eds', { x: 'bad' });
      client.nack('eds', client.one(), ['x', 'y']);
      says(relay, 'eds', { y: '1' });
      expect(resources(client.one())).to.deep.equal({ y: '1' });
    });
  });

  describe('§3.5 additions and removals', () => {
    it('§3.5 an ACK gets no response', () => {
      const relay = new InMemoryRelay();
      const { client, response } = wildcardClient(relay);
      for (let count = 0; count < 3; count++) client.ack('cds', response);
      expect(client.received()).to.deep.equal([]);
    });

    it('§3.5 an added name is sent if it exists: of a partial type, it alone', () => {
      const relay = new InMemoryRelay();
      const client = named(relay, 'eds', ['x']);
      says(relay, 'eds', { x: '1' });
      const other = named(relay, 'eds', ['y']);
      says(relay, 'eds', { y: '1' });
      other.one();
      client.ack('eds', client.one(), ['x', 'y']);
      expect(resources(client.one())).to.deep.equal({ y: '1' });
    });

    it('§3.5 a name that was removed and is added again is sent though it is unchanged', () => {
      const relay = new InMemoryRelay();
      const client = named(relay, 'eds', ['x', 'y']);
      says(relay, 'eds', { x: '1', y: '1' });
      const response = client.one();
      client.ack('eds', response, ['x']);
      client.ack('eds', response, ['x', 'y']);
      expect(resources(client.one())).to.deep.equal({ y: '1' });
    });

    it('§3.5 so it is while the client does not read in between', () => {
      const relay = new InMemoryRelay();
      const client = named(relay, 'eds', ['x', 'y', 'z']);
      says(relay, 'eds', { x: '1', y: '1', z: '1' });
      client.blocked = true;
      client.ack('eds', client.one(), ['x', 'y', 'z']);
      says(relay, 'eds', { z: '2' });
      const response = client.one();
      client.ack('eds', response, ['x']);
      client.ack('eds', response, ['x', 'y']);
      expect(client.received()).to.deep.equal([]);
      client.unblock();
      expect(resources(client.one())).to.deep.equal({ y: '1' });
    });

    for (const short of ['cds', 'eds']) {
      it(`§3.5 a pure removal gets no response (${short})`, () => {
        const relay = new InMemoryRelay();
        const client = named(relay, short, ['x', 'y']);
        says(relay, short, { x: '1', y: '1' });
        client.ack(short, client.one(), ['x']);
        expect(client.received()).to.deep.equal([]);
      });

      it(`§3.5 what is no longer subscribed is not sent (${short})`, () => {
        const relay = new InMemoryRelay();
        const client = named(relay, short, ['x', 'y']);
        says(relay, short, { x: '1', y: '1' });
        client.ack(short, client.one(), ['x']);
        says(relay, short, { y: '2' });
        expect(client.received()).to.deep.equal([]);
      });
    }

    it('§3.5 names in another order, or twice, are no change', () => {
      const relay = new InMemoryRelay();
      const client = named(relay, 'cds', ['x', 'y']);
      says(relay, 'cds', { x: '1', y: '1' });
      const response = client.one();
      client.ack('cds', response, ['y', 'x']);
      client.ack('cds', response, ['x', 'y', 'x']);
      expect(client.received()).to.deep.equal([]);
    });

    it('§3.5 the wildcard added to a name is answered, though it shows nothing more', () => {
      const relay = new InMemoryRelay();
      const client = named(relay, 'cds', ['a']);
      says(relay, 'cds', { a: '1' });
      client.ack('cds', client.one(), ['*', 'a']);
      expect(client.received(), 'not answered upstream yet').to.deep.equal([]);
      relay.full('cds', { a: '1' });
      expect(resources(client.one())).to.deep.equal({ a: '1' });
    });

    it('§3.5 the wildcard instead of names is answered with nothing, if there is nothing', () => {
      const relay = new InMemoryRelay();
      const client = named(relay, 'cds', ['a']);
      says(relay, 'cds', {});
      client.ack('cds', client.one(), ['*']);
      relay.full('cds', {});
      expect(client.one().resources).to.deep.equal([]);
      says(relay, 'cds', {});
      expect(client.received(), 'once').to.deep.equal([]);
    });
  });

  describe('§3.6 what is subscribed', () => {
    const wildcardTypes = knownTypes.filter(({ streamMethod }) => streamMethod !== undefined);
    for (const { short, legacyWildcard } of wildcardTypes) {
      it(`§3.6 nothing named yet means ${legacyWildcard ? 'everything' : 'nothing'} of ${short}`, () => {
        const relay = new InMemoryRelay();
        relay.sotw().send(short);
        expect(relay.upstream.journal).to.deep.equal(legacyWildcard ? [`+${short} *`] : []);
      });
    }

    it('§3.6 nothing named yet means everything of an unknown type', () => {
      const relay = new InMemoryRelay();
      relay.sotw().send('type.googleapis.com/example.Thing');
      expect(relay.upstream.journal).to.deep.equal(['+type.googleapis.com/example.Thing *']);
    });

    it('§3.6 nothing named means everything for as long as nothing was named', () => {
      const relay = new InMemoryRelay();
      const { client, response } = wildcardClient(relay);
      client.ack('cds', response);
      client.ack('cds', response);
      relay.full('cds', { a: '2' });
      expect(resources(client.one())).to.deep.equal({ a: '2' });
    });

    it('§3.6 after an explicit name nothing named unsubscribes from all', () => {
      const relay = new InMemoryRelay();
      const client = named(relay, 'cds', ['a']);
      says(relay, 'cds', { a: '1' });
      client.ack('cds', client.one(), []);
      says(relay, 'cds', { a: '2' });
      relay.full('cds', { a: '3' });
      expect(client.received()).to.deep.equal([]);
      expect(relay.upstream.journal).to.deep.equal(['+cds a']);
    });

    it('§3.6 an explicit "*" counts as a name', () => {
      const relay = new InMemoryRelay();
      const first = named(relay, 'cds', ['*']); // so that the relay has read these bytes before
      const client = relay.sotw();
      client.send('cds');
      relay.full('cds', { a: '1' });
      first.one();
      const response = client.one();
      client.ack('cds', response, ['*']);
      client.ack('cds', response, []);
      relay.full('cds', { a: '2' });
      expect(client.received()).to.deep.equal([]);
    });

    it('§3.6 "*" and a name hold both; the name alone drops "*"', () => {
      const relay = new InMemoryRelay();
      const client = named(relay, 'cds', ['*', 'a']);
      relay.full('cds', { a: '1', b: '1' });
      const response = client.one();
      expect(resources(response)).to.deep.equal({ a: '1', b: '1' });
      client.ack('cds', response, ['a']);
      relay.full('cds', { a: '1', b: '2' });
      expect(client.received()).to.deep.equal([]);
      relay.full('cds', { a: '2', b: '2' });
      expect(resources(client.one())).to.deep.equal({ a: '2' });
    });

    for (const short of ['cds', 'eds']) {
      it(`§3.6 an empty name alone unsubscribes: no response, no error, nothing upstream (${short})`, () => {
        const relay = new InMemoryRelay();
        const client = relay.sotw();
        client.send(short, { resourceNames: ['a'] });
        relay.says({ type: type(short), holder: namedHolder, puts: [put(type(short), 'a', '1')] });
        const { versionInfo, nonce } = client.one();
        client.send(short, { resourceNames: [''], versionInfo, responseNonce: nonce });
        relay.says({ type: type(short), holder: namedHolder, puts: [put(type(short), 'a', '2')] });
        relay.clock.advance(60_000);
        expect(client.received()).to.deep.equal([]);
        expect(relay.upstream.journal).to.not.include(`+${short} `);

        const another = relay.sotw();
        another.send(short, { resourceNames: [''] });
        relay.clock.advance(60_000);
        expect(another.received()).to.deep.equal([]);
        another.send(short, { resourceNames: ['a'] });
        expect(another.one().resources.map(nameOf)).to.deep.equal(['a']);
      });
    }

    it('§3.6 names and locators together are the subscription', () => {
      const relay = new InMemoryRelay();
      const client = relay.sotw();
      client.send('eds', {
        resourceNames: ['x'],
        resourceLocators: [{ name: 'y', dynamicParameters: { env: 'prod' } }],
      });
      expect(relay.upstream.journal).to.deep.equal(['+eds x', '+eds y [["env","prod"]]']);
    });
  });

  describe('§3.7 what a response holds', () => {
    for (const short of ['lds', 'cds', 'srds']) {
      it(`§3.7 ${short}: the complete subscribed set in one message; absence deletes`, () => {
        const relay = new InMemoryRelay();
        const client = named(relay, short, ['x', 'y', 'z']);
        says(relay, short, { x: '1', y: '1', z: '1' });
        client.one();
        says(relay, short, { x: '2' });
        expect(resources(client.one())).to.deep.equal({ x: '2', y: '1', z: '1' });
        relay.says({
          type: type(short),
          holder: namedHolder,
          removals: [{ name: resourceName('y'), constraints: UNCONSTRAINED }],
        });
        expect(resources(client.one())).to.deep.equal({ x: '2', z: '1' });
      });
    }

    for (const short of ['eds', 'rds', 'sds', 'ecds', 'rtds']) {
      it(`§3.7 ${short}: only what changed; absence means nothing`, () => {
        const relay = new InMemoryRelay();
        const client = named(relay, short, ['x', 'y']);
        says(relay, short, { x: '1', y: '1' });
        client.one();
        says(relay, short, { x: '2' });
        expect(resources(client.one())).to.deep.equal({ x: '2' });
        relay.says({
          type: type(short),
          holder: namedHolder,
          removals: [{ name: resourceName('y'), constraints: UNCONSTRAINED }],
        });
        expect(client.received()).to.deep.equal([]);
      });
    }

    it('§3.7 a wildcard of any type is complete', () => {
      const relay = new InMemoryRelay();
      const client = named(relay, 'rds', ['*']);
      relay.full('rds', { x: '1', y: '1' });
      client.one();
      relay.full('rds', { x: '2', y: '1' });
      expect(resources(client.one())).to.deep.equal({ x: '2', y: '1' });
      relay.full('rds', { x: '2' });
      expect(resources(client.one())).to.deep.equal({ x: '2' });
    });

    it('§3.7 equal bytes under another version are no update', () => {
      const relay = new InMemoryRelay();
      const { client } = wildcardClient(relay);
      relay.full('cds', { a: '1' }, '2');
      expect(client.received()).to.deep.equal([]);
    });
  });

  describe('§3.8, §3.9 missing and unknown', () => {
    it('§3.8 a missing resource is left out, and sent when it is created', () => {
      const relay = new InMemoryRelay();
      const client = named(relay, 'eds', ['x', 'y']);
      says(relay, 'eds', { x: '1' });
      expect(resources(client.one())).to.deep.equal({ x: '1' });
      says(relay, 'eds', { y: '1' });
      expect(resources(client.one())).to.deep.equal({ y: '1' });
    });

    it('§3.9 a subscribed wildcard is withheld until it is answered', () => {
      const relay = new InMemoryRelay();
      const client = named(relay, 'cds', ['*']);
      says(relay, 'cds', { a: '1' }, ['*']);
      expect(client.received()).to.deep.equal([]);
      relay.full('cds', { a: '1' });
      expect(resources(client.one())).to.deep.equal({ a: '1' });
    });

    it('§3.9 so is a name with it that is known', () => {
      const relay = new InMemoryRelay();
      const client = named(relay, 'cds', ['*', 'a']);
      says(relay, 'cds', { a: '1' }, ['*']);
      expect(client.received()).to.deep.equal([]);
    });

    it('§3.9 another unknown name is left out: one mistyped name does not withhold CDS', () => {
      const relay = new InMemoryRelay();
      const client = named(relay, 'cds', ['a', 'typo']);
      says(relay, 'cds', { a: '1' }, ['typo']);
      expect(resources(client.one())).to.deep.equal({ a: '1' });
    });

    it('§3.9 a name that the client may hold from before is waited for', () => {
      const relay = new InMemoryRelay();
      const client = relay.sotw();
      client.send('cds', { resourceNames: ['a', 'b'], versionInfo: '1' });
      says(relay, 'cds', { a: '1' }, ['b']);
      expect(client.received()).to.deep.equal([]);
      says(relay, 'cds', { b: '1' });
      expect(resources(client.one())).to.deep.equal({ a: '1', b: '1' });
    });

    it('§3.9 a name added later cannot be held from before', () => {
      const relay = new InMemoryRelay();
      const client = relay.sotw();
      client.send('cds', { resourceNames: ['a'], versionInfo: '1' });
      says(relay, 'cds', { a: '1' });
      client.ack('cds', client.one(), ['a', 'b']);
      says(relay, 'cds', { a: '2' }, ['b']);
      expect(resources(client.one())).to.deep.equal({ a: '2' });
    });

    it('§3.9 a name sent on this stream that has become unknown is waited for', () => {
      const relay = new InMemoryRelay();
      const client = relay.sotw();
      client.send('cds', { resourceNames: ['a', 'b'], node: create(NodeSchema, node({ env: 'x' })) });
      const constraints = when({ env: 'x' });
      const puts = ['a', 'b'].map((name) => put(type('cds'), name, '1', { constraints }));
      relay.says({ type: type('cds'), holder: namedHolder, puts });
      const response = client.one();
      // Of what the new node sees, upstream only tells of a.
      client.send('cds', {
        resourceNames: ['a', 'b'],
        node: create(NodeSchema, node({ env: 'y' })),
        responseNonce: response.nonce,
      });
      const later = (name: string) => put(type('cds'), name, '2', { constraints: when({ env: 'y' }) });
      relay.says({ type: type('cds'), holder: namedHolder, puts: [later('a')], resolved: [] });
      expect(client.received()).to.deep.equal([]);
      relay.says({ type: type('cds'), holder: namedHolder, puts: [later('b')], resolved: [] });
      expect(resources(client.one())).to.deep.equal({ a: '2', b: '2' });
    });

    it('§3.9 a known-empty wildcard gets an empty response', () => {
      const relay = new InMemoryRelay();
      const client = relay.sotw();
      client.send('lds');
      relay.full('lds', {});
      const response = client.one();
      expect(response.resources).to.deep.equal([]);
      client.ack('lds', response);
      expect(client.received()).to.deep.equal([]);
    });

    it('§3.9 of full-state types an absent name is told by an answer without it', () => {
      const relay = new InMemoryRelay();
      const client = named(relay, 'lds', ['nowhere']);
      says(relay, 'lds', {});
      expect(client.one().resources).to.deep.equal([]);
    });

    it('§3.9 SotW RDS, EDS and the like: never; stay silent', () => {
      const relay = new InMemoryRelay();
      const client = named(relay, 'eds', ['nowhere']);
      says(relay, 'eds', {});
      expect(client.received()).to.deep.equal([]);
    });

    it('§3.9 resource_errors NOT_FOUND makes what is not cached absent', () => {
      const relay = new InMemoryRelay();
      const client = relay.sotw();
      client.send('cds', { resourceNames: ['a'], versionInfo: '1' });
      const fault = {
        name: resourceName('a'),
        constraints: UNCONSTRAINED,
        code: 5,
        message: 'no',
        status: encodeStatus(5, 'no'),
      };
      relay.says({ type: type('cds'), holder: namedHolder, resourceErrors: [fault], resolved: [] });
      const response = client.one();
      expect(response.resources).to.deep.equal([]);
      expect(response.resourceErrors.map(({ errorDetail }) => errorDetail?.code)).to.deep.equal([5]);
    });
  });

  describe('§3.10 version_info', () => {
    it("§3.10 is the upstream's own, verbatim, of its last response that changed this view", () => {
      const relay = new InMemoryRelay();
      const one = named(relay, 'eds', ['x']);
      const other = named(relay, 'eds', ['y']);
      says(relay, 'eds', { x: '1' }, [], 'first');
      says(relay, 'eds', { y: '1' }, [], 'second');
      says(relay, 'eds', { x: '2' }, [], 'third');
      expect(one.received().map(({ versionInfo }) => versionInfo)).to.deep.equal(['first', 'third']);
      expect(other.received().map(({ versionInfo }) => versionInfo)).to.deep.equal(['second']);
    });

    it('§3.10 without one upstream it is a deterministic hash of what is visible', () => {
      const relay = new InMemoryRelay();
      const client = named(relay, 'eds', ['x', 'y']);
      says(relay, 'eds', { x: '1', y: '1' }, [], '');
      const first = client.one().versionInfo;
      says(relay, 'eds', { x: '2' }, [], '');
      const second = client.one().versionInfo;
      says(relay, 'eds', { x: '1' }, [], '');
      expect(client.one().versionInfo)
        .to.equal(first)
        .and.to.match(/^[0-9a-f]{16}$/);
      expect(second).not.to.equal(first);
      // Another relay and a client that comes late see the same.
      const elsewhere = new InMemoryRelay();
      const late = named(elsewhere, 'eds', ['y', 'x']);
      says(elsewhere, 'eds', { y: '1', x: '2' }, [], '');
      expect(late.one().versionInfo).to.equal(second);
    });

    it('§3.10 a client that comes back is sent its state again, whatever version it has', () => {
      const relay = new InMemoryRelay();
      const { client } = wildcardClient(relay);
      client.disconnect();
      const again = relay.sotw();
      again.send('cds', { versionInfo: '1' });
      expect(resources(again.one())).to.deep.equal({ a: '1' });
    });

    describe('§3.10 sotw_versions: CONTENT', () => {
      it('§3.10 the version is <upstream’s>@<hash of the view>', () => {
        const { response } = wildcardClient(new InMemoryRelay({ contentVersions: true }));
        expect(response.versionInfo).to.match(/^1@[0-9a-f]{16}$/);
      });

      for (const [what, names] of [
        ['a legacy wildcard', []],
        ['an explicit wildcard', ['*']],
      ] as const) {
        it(`§3.10 ${what} with that suffix needs no resend, and hears of the next change`, () => {
          const relay = new InMemoryRelay({ contentVersions: true });
          const { client, response } = wildcardClient(relay);
          client.disconnect();
          const again = relay.sotw();
          again.send('cds', { versionInfo: response.versionInfo, resourceNames: [...names] });
          expect(again.received()).to.deep.equal([]);
          relay.full('cds', { a: '2' });
          expect(resources(again.one())).to.deep.equal({ a: '2' });
        });
      }

      for (const [what, now, expected] of [
        ['is told nothing if it has all', { a: '1', b: '2' }, undefined],
        ['is told if it has not', { a: '1' }, { a: '1' }],
      ] as const) {
        it(`§3.10 who comes before a relay that was restarted has its answer ${what}`, () => {
          const before = new InMemoryRelay({ contentVersions: true });
          const first = before.sotw();
          first.send('cds');
          before.full('cds', { a: '1', b: '2' });
          const relay = new InMemoryRelay({ contentVersions: true });
          const client = relay.sotw();
          client.send('cds', { versionInfo: first.one().versionInfo });
          expect(client.received()).to.deep.equal([]);
          relay.full('cds', now);
          const [response] = client.received();
          expect(response === undefined ? response : resources(response)).to.deep.equal(expected);
          relay.full('cds', { a: '3' });
          expect(resources(client.one())).to.deep.equal({ a: '3' });
        });
      }

      it('§3.10 equal upstream versions with other content are sent', () => {
        const relay = new InMemoryRelay({ contentVersions: true });
        const { client, response } = wildcardClient(relay);
        client.disconnect();
        relay.full('cds', { a: '2' });
        const again = relay.sotw();
        again.send('cds', { versionInfo: response.versionInfo });
        expect(resources(again.one())).to.deep.equal({ a: '2' });
      });

      it('§3.10 with times to live everything is sent', () => {
        const relay = new InMemoryRelay({ contentVersions: true });
        const client = relay.sotw();
        client.send('cds');
        const puts = [put(type('cds'), 'a', '1', { ttlMilliseconds: 5000 })];
        relay.says({ type: type('cds'), puts, complete: true });
        const again = relay.sotw();
        again.send('cds', { versionInfo: client.one().versionInfo });
        expect(resources(again.one())).to.deep.equal({ a: '1' });
      });

      it('§3.10 names are sent again', () => {
        const relay = new InMemoryRelay({ contentVersions: true });
        const client = named(relay, 'cds', ['a']);
        says(relay, 'cds', { a: '1' });
        const again = relay.sotw();
        again.send('cds', { resourceNames: ['a'], versionInfo: client.one().versionInfo });
        expect(resources(again.one())).to.deep.equal({ a: '1' });
      });
    });
  });

  describe('§3.11 responses', () => {
    it('§3.11 a newer request supersedes an older one', () => {
      const relay = new InMemoryRelay();
      const client = named(relay, 'eds', ['x']);
      client.send('eds', { resourceNames: ['y'] });
      says(relay, 'eds', { x: '1', y: '1' });
      expect(resources(client.one())).to.deep.equal({ y: '1' });
    });

    it('§3.11 no name is twice in one response', () => {
      const relay = new InMemoryRelay();
      const a = 'xdstp://auth/envoy.config.cluster.v3.Cluster/a?x=1&y=2';
      const same = 'xdstp://auth/envoy.config.cluster.v3.Cluster/a?y=2&x=1';
      const client = named(relay, 'cds', ['*', 'b', 'b', a, same]);
      relay.full('cds', { b: '1', [a]: '1' });
      expect(client.one().resources.map(nameOf).toSorted()).to.deep.equal(['b', a]);
    });

    it('§3.11 nothing waits for an ACK', () => {
      const relay = new InMemoryRelay();
      const { client } = wildcardClient(relay);
      for (const version of ['2', '3', '4']) relay.full('cds', { a: version }, version);
      expect(client.received().map(({ versionInfo }) => versionInfo)).to.deep.equal(['2', '3', '4']);
    });
  });

  describe('§3.12 after a NACK', () => {
    it('§3.12 what was rejected is not sent again', () => {
      const relay = new InMemoryRelay();
      const { client, response } = wildcardClient(relay, { a: 'bad', b: '1' });
      client.nack('cds', response);
      relay.full('cds', { a: 'bad', b: '1' }, '2');
      expect(client.received()).to.deep.equal([]);
      expect(relay.events).to.contain('nack cds 1 rejected');
    });

    it('§3.12 the next change is', () => {
      const relay = new InMemoryRelay();
      const { client, response } = wildcardClient(relay, { a: 'bad' });
      client.nack('cds', response);
      relay.full('cds', { a: '2' }, '2');
      expect(resources(client.one())).to.deep.equal({ a: '2' });
    });

    it('§3.12 of several resources of a partial type each goes out once more, alone', () => {
      const relay = new InMemoryRelay();
      const client = named(relay, 'eds', ['x', 'y', 'z']);
      says(relay, 'eds', { x: 'bad', y: '1', z: '1' });
      client.nack('eds', client.one(), ['x', 'y', 'z']);
      const alone = client.received();
      expect(alone.map(resources)).to.deep.equal([{ x: 'bad' }, { y: '1' }, { z: '1' }]);
      const last = alone.at(-1);
      if (last !== undefined) client.nack('eds', last, ['x', 'y', 'z']);
      expect(client.received(), 'once').to.deep.equal([]);
    });

    it('§3.12 though the NACK changes the subscription', () => {
      const relay = new InMemoryRelay();
      const client = named(relay, 'eds', ['x', 'y', 'z']);
      says(relay, 'eds', { x: 'bad', y: '1', z: '1' });
      client.nack('eds', client.one(), ['x', 'y', 'w']);
      expect(client.received().map(resources)).to.deep.equal([{ x: 'bad' }, { y: '1' }]);
    });

    it('§3.12 also of a response that a newer one has overtaken, but for what that has', () => {
      const relay = new InMemoryRelay();
      const client = named(relay, 'eds', ['x', 'y', 'z']);
      says(relay, 'eds', { x: 'bad', y: '1', z: '1' });
      const response = client.one();
      says(relay, 'eds', { z: '2' });
      const newer = client.one();
      relay.events.length = 0;
      client.nack('eds', response, ['x', 'y', 'z']);
      expect(relay.events[0], 'it counts as stale all the same (§3.3)').to.equal('request eds stale');
      client.ack('eds', newer, ['x', 'y', 'z']);
      expect(client.received().map(resources)).to.deep.equal([{ x: 'bad' }, { y: '1' }]);
    });

    it('§3.12 but not what a newer update brings anyway', () => {
      const relay = new InMemoryRelay();
      const client = named(relay, 'eds', ['x', 'y']);
      client.blocked = true;
      says(relay, 'eds', { x: 'bad', y: '1' });
      const response = client.one();
      says(relay, 'eds', { x: '2' });
      client.nack('eds', response, ['x', 'y']);
      client.blocked = false;
      client.unblock();
      expect(client.received().map(resources)).to.deep.equal([{ y: '1' }, { x: '2' }]);
    });

    it('§3.12 a rejected resource that was alone is not repeated', () => {
      const relay = new InMemoryRelay();
      const client = named(relay, 'eds', ['x']);
      says(relay, 'eds', { x: 'bad' });
      client.nack('eds', client.one(), ['x']);
      expect(client.received()).to.deep.equal([]);
    });
  });

  describe('§8 downstream NACK', () => {
    it('§8 is recorded, and does not go upstream', () => {
      const relay = new InMemoryRelay();
      const { client, response } = wildcardClient(relay);
      client.nack('cds', response);
      const [stream] = relay.relay.server.values();
      expect(stream?.types[0]?.subscription?.responses.state).to.equal('ERROR');
      expect(stream?.types[0]?.subscription?.responses.lastNack).to.include({
        code: 13,
        message: 'rejected',
        name: 'a',
      });
      expect(relay.upstream.journal).to.deep.equal(['+cds *']);
    });

    it('§8 is over with the next ACK, and not forgotten', () => {
      const relay = new InMemoryRelay();
      const { client, response } = wildcardClient(relay);
      client.nack('cds', response);
      relay.full('cds', { a: '2' }, '2');
      client.ack('cds', client.one());
      const [stream] = relay.relay.server.values();
      expect(stream?.types[0]?.subscription?.responses.state).to.equal('SYNCED');
      expect(stream?.types[0]?.subscription?.responses.lastNack?.message).to.equal('rejected');
    });
  });

  describe('wrapping', () => {
    it('§5 clients with xds.config.resource-in-sotw get every resource inside a Resource', () => {
      const relay = new InMemoryRelay();
      const client = relay.sotw(edsPath);
      client.send('eds', {
        node: create(NodeSchema, node({}, ['xds.config.resource-in-sotw'])),
        resourceNames: ['x'],
      });
      says(relay, 'eds', { x: '1' });
      const [resource] = client.one().resources;
      expect(anyIs(resource ?? create(AnySchema), ResourceSchema)).to.equal(true);
    });
  });
});
