import { create, toBinary } from '@bufbuild/protobuf';
import { AnySchema } from '@bufbuild/protobuf/wkt';
import { expect } from 'chai';
import { NodeSchema } from '../../src/gen/envoy/config/core/v3/base_pb.ts';
import type { DiscoveryResponse } from '../../src/gen/envoy/service/discovery/v3/discovery_pb.ts';
import { resourceName, typeUrl } from '../../src/model/brand.ts';
import type { Put } from '../../src/model/transaction.ts';
import { typeInfo } from '../../src/model/types.ts';
import { USER_AGENT } from '../../src/wire/between-relays.ts';
import {
  any,
  InMemoryRelay,
  namedHolder,
  node,
  put,
  resources,
  type SotwClient,
  type,
} from '../support/in-memory-relay.ts';
import { compiled, is, told } from '../support/variants.ts';

const prod = compiled(is('env', 'prod'));

/** A Cluster of type EDS. */
function warming(name: string, content: string): Put {
  const { value } = any(type('cds'), name, content);
  const message = create(AnySchema, {
    typeUrl: type('cds'),
    value: Buffer.concat([value, Buffer.from([0x10, 3])]),
  });
  return put(type('cds'), name, content, { any: toBinary(AnySchema, message) });
}

const clusters = (relay: InMemoryRelay, state: Readonly<Record<string, string>>): void =>
  relay.says({
    type: type('cds'),
    complete: true,
    puts: Object.entries(state).map(([name, content]) => warming(name, content)),
  });

const named = (relay: InMemoryRelay, short: string, name: string, content: string): void =>
  relay.says({ type: type(short), holder: namedHolder, puts: [put(type(short), name, content)] });

const line = (response: DiscoveryResponse): string =>
  [
    typeInfo(typeUrl(response.typeUrl)).short,
    ...Object.entries(resources(response)).map((pair) => pair.join(':')),
  ].join(' ');

const said = (client: SotwClient): string[] => client.received().map(line);

/** A client with clusters, endpoints, a listener and routes, all of them accepted. */
function settled(userAgentName = ''): { lab: InMemoryRelay; client: SotwClient; eds: DiscoveryResponse } {
  const relay = new InMemoryRelay();
  const client = relay.sotw();
  client.send('cds', { node: { ...node(), userAgentName } });
  clusters(relay, { x: '1' });
  client.ack('cds', client.one());
  client.send('eds', { resourceNames: ['x'] });
  named(relay, 'eds', 'x', '1');
  const eds = client.one();
  client.ack('eds', eds, ['x']);
  client.send('lds');
  relay.full('lds', { l: '1' });
  client.ack('lds', client.one());
  client.send('rds', { resourceNames: ['r'] });
  named(relay, 'rds', 'r', '1');
  client.ack('rds', client.one(), ['r']);
  return { lab: relay, client, eds };
}

describe('routes and the clusters that they lead to (§8)', () => {
  it('changed routes and listeners wait until the client has accepted its clusters: their endpoints go first', () => {
    const { lab: relay, client, eds } = settled();
    clusters(relay, { x: '1', y: '1' });
    const cds = client.one();
    named(relay, 'rds', 'r', '2');
    relay.full('lds', { l: '2' });
    expect(said(client)).to.deep.equal([]);
    client.ack('eds', eds, ['x', 'y']);
    named(relay, 'eds', 'y', '1');
    expect(said(client)).to.deep.equal(['eds y:1']);
    client.ack('cds', cds);
    expect(said(client)).to.deep.equal(['lds l:2', 'rds r:2']);
  });

  it('what is gone meanwhile goes after that', () => {
    const { lab: relay, client } = settled();
    clusters(relay, { x: '1', y: '1' });
    const cds = client.one();
    named(relay, 'rds', 'r', '2');
    clusters(relay, { y: '1' });
    expect(said(client)).to.deep.equal([]);
    client.ack('cds', cds);
    expect(said(client)).to.deep.equal(['rds r:2', 'cds y:1']);
  });

  it('what is gone meanwhile and unknown again, for a node that has changed, stays until that is known (delta)', () => {
    const relay = new InMemoryRelay();
    const client = relay.delta();
    client.send('cds', { node: create(NodeSchema, node({ env: 'prod' })) });
    clusters(relay, { x: '1' });
    client.ack('cds', client.one());
    client.send('eds', { resourceNamesSubscribe: ['c'] });
    relay.says({
      type: type('eds'),
      holder: namedHolder,
      puts: [put(type('eds'), 'c', '1', { constraints: prod })],
    });
    client.ack('eds', client.one());
    client.send('rds', { resourceNamesSubscribe: ['r'] });
    named(relay, 'rds', 'r', '1');
    client.ack('rds', client.one());
    clusters(relay, { x: '1', y: '1' });
    const cds = client.one();
    named(relay, 'rds', 'r', '2');
    const gone = [{ name: resourceName('c'), constraints: prod }];
    relay.says({ type: type('eds'), holder: namedHolder, removals: gone });
    client.send('eds', { node: create(NodeSchema, node({ env: 'test' })) });
    client.ack('cds', cds);
    expect(client.received().flatMap(told)).to.deep.equal(['+r 2']);
    relay.says({ type: type('eds'), holder: namedHolder });
    expect(client.received().flatMap(told)).to.deep.equal(['-c']);
  });

  it('clusters that the client rejects are not waited for', () => {
    const { lab: relay, client } = settled();
    clusters(relay, { x: '1', y: '1' });
    const cds = client.one();
    named(relay, 'rds', 'r', '2');
    client.nack('cds', cds);
    expect(said(client)).to.deep.equal(['rds r:2']);
  });

  it('§3.11 nobody waits for ever: a second after the clusters, however many come', () => {
    const { lab: relay, client } = settled();
    clusters(relay, { x: '1', y: '1' });
    named(relay, 'rds', 'r', '2');
    relay.clock.advance(900);
    clusters(relay, { x: '1', y: '2' });
    said(client);
    relay.clock.advance(99);
    expect(said(client)).to.deep.equal([]);
    relay.clock.advance(1);
    expect(said(client)).to.deep.equal(['rds r:2']);
    named(relay, 'rds', 'r', '3');
    expect(said(client), 'and not again for the same clusters').to.deep.equal(['rds r:3']);
  });

  it('routes that the client had none of do not wait', () => {
    const relay = new InMemoryRelay();
    const client = relay.sotw();
    client.send('cds');
    client.send('rds', { resourceNames: ['r'] });
    clusters(relay, { x: '1' });
    named(relay, 'rds', 'r', '1');
    expect(said(client)).to.deep.equal(['cds x:1', 'rds r:1']);
  });

  it('clusters that can be used at once, and those that are gone, are not waited for', () => {
    const { lab: relay, client } = settled();
    relay.says({
      type: type('cds'),
      complete: true,
      puts: [warming('x', '1'), put(type('cds'), 'static', '1')],
    });
    named(relay, 'rds', 'r', '2');
    expect(said(client)).to.deep.equal(['cds x:1 static:1', 'rds r:2']);
    clusters(relay, { x: '1' });
    named(relay, 'rds', 'r', '3');
    expect(said(client)).to.deep.equal(['cds x:1', 'rds r:3']);
  });

  it('a relay passes on what it gets: its clients wait at it', () => {
    const { lab: relay, client } = settled(USER_AGENT);
    clusters(relay, { x: '1', y: '1' });
    named(relay, 'rds', 'r', '2');
    expect(said(client)).to.deep.equal(['cds x:1 y:1', 'rds r:2']);
  });
});
