import { create, toBinary } from '@bufbuild/protobuf';
import { expect } from 'chai';
import { NodeSchema } from '../../src/gen/envoy/config/core/v3/base_pb.ts';
import { DiscoveryRequestSchema } from '../../src/gen/envoy/service/discovery/v3/discovery_pb.ts';
import { heapAfterCollection } from '../support/heap.ts';
import { InMemoryRelay, namedHolder, node, put, resources, type } from '../support/in-memory-relay.ts';

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
    const [stream] = relay.relay.server.streams();
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
});
