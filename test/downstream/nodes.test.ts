import { mock } from 'node:test';
import { create, toBinary } from '@bufbuild/protobuf';
import { expect } from 'chai';
import { NodeSchema } from '../../src/gen/envoy/config/core/v3/base_pb.ts';
import { DiscoveryRequestSchema } from '../../src/gen/envoy/service/discovery/v3/discovery_pb.ts';
import type { Access } from '../../src/model/access.ts';
import { Selection } from '../../src/model/selection.ts';
import { ALLOW_ALL } from '../../src/security/authorization.ts';
import { heapAfterCollection } from '../support/heap.ts';
import {
  InMemoryRelay,
  namedHolder,
  node,
  put,
  resources,
  type SotwClient,
  type,
} from '../support/in-memory-relay.ts';

function request(part: object): Buffer {
  return Buffer.from(toBinary(DiscoveryRequestSchema, create(DiscoveryRequestSchema, part)));
}

describe('nodes (§3.1)', () => {
  const large = create(NodeSchema, {
    ...node(),
    extensions: Array.from({ length: 600 }, (_, index) => ({
      name: `envoy.extension.number_${index}`,
      category: 'envoy.filters.http',
      typeUrls: [`type.googleapis.com/envoy.extensions.filters.http.number_${index}.v3.Number`],
    })),
  });

  it('a node of 61 KB in every request is decoded once', () => {
    const relay = new InMemoryRelay();
    const client = relay.sotw();
    client.send('cds', { node: large });
    relay.full('cds', { a: '1' });
    const response = client.one();
    for (let count = 0; count < 20; count++) {
      client.send('cds', { node: large, responseNonce: response.nonce, versionInfo: '1' });
    }
    expect(toBinary(NodeSchema, large).length).to.be.greaterThan(61_000);
    expect(relay.contexts).to.equal(1);
    expect(client.received()).to.deep.equal([]);
  });

  it('nothing of it is kept: the bytes may be overwritten, and are by the next request', () => {
    const relay = new InMemoryRelay();
    const client = relay.sotw();
    const bytes = request({
      node: create(NodeSchema, node({ env: 'prod' })),
      typeUrl: type('eds'),
      resourceNames: ['x'],
    });
    client.raw(bytes);
    bytes.fill(0xff);
    relay.says({ type: type('eds'), holder: namedHolder, puts: [put(type('eds'), 'x', '1')] });
    expect(resources(client.one())).to.deep.equal({ x: '1' });
    const [stream] = relay.relay.server.values();
    expect([...(stream?.client?.derived(undefined).entries ?? [])]).to.deep.equal([['env', 'prod']]);
    expect(stream?.client?.nodeId).to.equal('envoy-1');
  });

  it('200 streams with nodes of 61 KB hold none of them', async () => {
    const relay = new InMemoryRelay();
    const open = (count: number): void => {
      for (let index = 0; index < count; index++) {
        const client = relay.sotw();
        client.send('cds', { node: { ...large, id: `envoy-${index}` } });
      }
    };
    open(50); // what is made once
    const before = await heapAfterCollection();
    open(200);
    const perStream = ((await heapAfterCollection()) - before) / 200;
    expect(relay.contexts, 'they are all different').to.equal(250);
    expect(perStream).to.be.lessThan(12_000);
  });

  it('a node that changes with every request is bound by the rate of subscription changes', () => {
    const relay = new InMemoryRelay({ limits: { changesPerSecond: 5 } });
    const client = relay.sotw();
    for (let count = 0; count < 10 && !client.paused; count++) {
      client.send('cds', { node: create(NodeSchema, node({ env: String(count) })) });
    }
    expect(client.paused).to.equal(true);
  });

  describe('when the rules change', () => {
    const nothing: Access = {
      key: 'nothing',
      unrestricted: false,
      cohort: 'released',
      allows: () => false,
      admits: () => false,
      deniesEverything: () => false,
    };
    /** Looking at one client anew takes a millisecond; `reapplied`: how many were. */
    function setting(
      streams: number,
      now: Access = ALLOW_ALL,
    ): { relay: InMemoryRelay; clients: SotwClient[]; reapplied: () => number } {
      let [reapplied, isRunning] = [0, false];
      const access = (): Access => {
        if (!isRunning) return ALLOW_ALL;
        relay.clock.advance(1);
        reapplied++;
        return now;
      };
      const relay = new InMemoryRelay({ access });
      const clients = Array.from({ length: streams }, () => relay.sotw());
      for (const client of clients) client.send('eds', { node: node(), resourceNames: ['a', 'b'] });
      isRunning = true;
      return { relay, clients, reapplied: () => reapplied };
    }

    it('clients are looked at in slices: other events get their turn in between', () => {
      const { relay, reapplied } = setting(100);
      relay.relay.server.reidentify();
      expect(reapplied()).to.be.within(1, 10);
      expect(relay.relay.server.isMoving).to.equal(true);
      while (relay.relay.server.isMoving) relay.clock.turn();
      expect(reapplied()).to.equal(100);
    });

    it('the next request of a client is judged by the new ones', () => {
      const { relay, clients, reapplied } = setting(100);
      relay.relay.server.reidentify();
      const before = reapplied();
      clients.at(-1)?.send('eds', { resourceNames: ['c'] });
      expect(reapplied()).to.equal(before + 1);
    });

    it('nothing is sent by the old ones', () => {
      const { relay, clients } = setting(100, nothing);
      relay.relay.server.reidentify();
      relay.says({ type: type('eds'), holder: namedHolder, puts: [put(type('eds'), 'a', '1')] });
      while (relay.relay.server.isMoving) relay.clock.turn();
      expect(clients.flatMap((client) => client.received())).to.deep.equal([]);
    });

    it('a large request that is read meanwhile is answered by the new ones', () => {
      const { relay, clients } = setting(100, nothing);
      const resourceNames = Array.from({ length: 5000 }, (_, index) => `name-${index}`);
      clients.at(-1)?.send('eds', { resourceNames });
      relay.relay.server.reidentify();
      while (relay.relay.server.isMoving || clients.at(-1)?.paused === true) relay.clock.turn();
      relay.says({ type: type('eds'), holder: namedHolder, puts: [put(type('eds'), 'name-7', '1')] });
      expect(clients.flatMap((client) => client.received())).to.deep.equal([]);
      expect(clients.at(-1)?.status).to.equal(undefined);
    });

    it('what they select is not hashed again if its parameters are the same', () => {
      const { relay } = setting(3);
      const made = mock.method(Selection, 'of');
      relay.relay.server.reidentify();
      made.mock.restore();
      expect(made.mock.callCount()).to.equal(0);
    });
  });
});
