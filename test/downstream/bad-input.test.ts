import { create, toBinary } from '@bufbuild/protobuf';
import { expect } from 'chai';
import { NodeSchema } from '../../src/gen/envoy/config/core/v3/base_pb.ts';
import { DiscoveryRequestSchema } from '../../src/gen/envoy/service/discovery/v3/discovery_pb.ts';
import { longTest } from '../support/cases.ts';
import { cpuSeconds } from '../support/cpu.ts';
import {
  contentOf,
  InMemoryRelay,
  namedHolder,
  nameOf,
  node,
  put,
  type,
} from '../support/in-memory-relay.ts';
import { checkConsistency } from './consistency-check.ts';

/** Everything that a request could be, except a request. */
const garbage: readonly (readonly [string, Buffer])[] = [
  ['a length beyond the end', Buffer.from([0x0a, 0xff, 0x01])],
  ['a node beyond the end', Buffer.from([0x12, 0x05, 0x01])],
  ['a tag that does not end', Buffer.from([0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff])],
  ['a group that nobody closes', Buffer.from([0x0b])],
  ['a version that is not UTF-8', Buffer.from([0x0a, 0x02, 0xc3, 0x28])],
  ['text', Buffer.from('GET / HTTP/1.1\r\n\r\n')],
];

function request(part: object): Buffer {
  return Buffer.from(toBinary(DiscoveryRequestSchema, create(DiscoveryRequestSchema, part)));
}

describe('bad input', () => {
  describe('malformed requests', () => {
    for (const [what, bytes] of garbage) {
      it(`${what}: INVALID_ARGUMENT, and nobody else is touched`, () => {
        const relay = new InMemoryRelay();
        const untouched = checkConsistency(relay);
        const client = relay.sotw();
        client.raw(bytes);
        expect(client.status?.code).to.equal(3);
        expect(client.status?.message).not.to.equal('');
        expect(relay.events).to.contain('rejected malformed');
        untouched();
      });
    }

    it('a name that is not UTF-8: INVALID_ARGUMENT', () => {
      const relay = new InMemoryRelay();
      const first = request({ node: create(NodeSchema, node()), typeUrl: type('eds') });
      const client = relay.sotw();
      client.raw(Buffer.concat([first, Buffer.from([0x1a, 0x02, 0xc3, 0x28])]));
      expect(client.status?.code).to.equal(3);
    });

    it('a node that cannot be decoded: INVALID_ARGUMENT', () => {
      const client = new InMemoryRelay().sotw();
      client.raw(Buffer.from([0x12, 0x03, 0x0a, 0xff, 0x01]));
      expect(client.status?.code).to.equal(3);
      expect(client.status?.message).to.contain('node');
    });

    it('an empty message: INVALID_ARGUMENT, it has no node', () => {
      const client = new InMemoryRelay().sotw();
      client.raw(Buffer.alloc(0));
      expect(client.status?.code).to.equal(3);
    });

    it('an xdstp name with a context parameter given twice: INVALID_ARGUMENT that names it', () => {
      const client = new InMemoryRelay().sotw();
      const name = 'xdstp://auth/envoy.config.endpoint.v3.ClusterLoadAssignment/x?a=1&a=2';
      client.send('eds', { resourceNames: [name] });
      expect(client.status?.code).to.equal(3);
      expect(client.status?.message).to.contain('"a"');
    });

    it('what comes after the end of a stream is not looked at', () => {
      const client = new InMemoryRelay().sotw();
      client.raw(Buffer.from([0x0b]));
      client.send('cds');
      expect(client.received()).to.deep.equal([]);
    });
  });

  describe('names', () => {
    const odd = ['__proto__', 'constructor', 'toString', 'hasOwnProperty', ' ', 'a\u0000b', '/'];

    it('such as __proto__ and constructor are names like others', () => {
      const relay = new InMemoryRelay();
      const client = relay.sotw();
      client.send('eds', { resourceNames: odd });
      const puts = odd.map((name) => put(type('eds'), name, `of ${name}`));
      relay.says({ type: type('eds'), holder: namedHolder, puts });
      const told = client.one().resources.map((any): [string, string] => [nameOf(any), contentOf(any)]);
      expect(told).to.deep.equal(odd.map((name) => [name, `of ${name}`]));
    });

    it('the empty one is nothing’s name: not asked for upstream, and answered as absent', () => {
      const relay = new InMemoryRelay();
      const [sotw, delta] = [relay.sotw(), relay.delta()];
      sotw.send('eds', { resourceNames: ['', 'a'] });
      delta.send('eds', { resourceNamesSubscribe: ['', 'a'] });
      expect(relay.upstream.journal).to.deep.equal(['+eds a']);
      expect(sotw.one().resourceErrors.map(({ errorDetail }) => errorDetail?.code)).to.deep.equal([5]);
      expect(delta.one().removedResources).to.deep.equal(['']);
      relay.says({ type: type('eds'), holder: namedHolder, puts: [put(type('eds'), 'a', '1')] });
      expect(sotw.one().resources.map(nameOf)).to.deep.equal(['a']);
      delta.send('eds', { resourceNamesUnsubscribe: [''] });
      expect(delta.received()).to.have.length(1);
      relay.clock.advance(3_600_000);
      expect(relay.upstream.journal).to.deep.equal(['+eds a']);
    });

    it('nothing is found under them that nobody put there', () => {
      const relay = new InMemoryRelay();
      const client = relay.sotw();
      client.send('cds', { resourceNames: ['__proto__', 'constructor'] });
      relay.says({ type: type('cds'), holder: namedHolder });
      expect(client.one().resources).to.deep.equal([]);
    });

    it('they are metadata, parameter keys and values like others', () => {
      const relay = new InMemoryRelay({
        rules: ['__proto__', 'constructor'].map((key) => ({
          key,
          from: `node.metadata.${key}`,
          authorities: [],
          pattern: undefined,
          default: undefined,
          values: [],
          trusted: false,
        })),
      });
      const client = relay.sotw();
      client.send('eds', {
        node: create(NodeSchema, node({ constructor: '__proto__' })),
        resourceNames: ['x'],
        resourceLocators: [{ name: 'y', dynamicParameters: { constructor: 'toString' } }],
      });
      expect(client.status).to.equal(undefined);
      expect(relay.upstream.journal).to.deep.equal([
        '+eds x [["constructor","__proto__"]]',
        '+eds y [["constructor","toString"]]',
      ]);
    });

    longTest('100,000 of them are served, and repeated for nothing', () => {
      const relay = new InMemoryRelay();
      const untouched = checkConsistency(relay);
      const client = relay.sotw();
      const names = Array.from({ length: 100_000 }, (_, index) => `name-${index}`);
      client.send('eds', { resourceNames: names });
      relay.clock.advance(0);
      const puts = names.map((name) => put(type('eds'), name, '1'));
      relay.says({ type: type('eds'), holder: namedHolder, puts, resolved: [] });
      const response = client.one();
      expect(response.resources).to.have.length(100_000);
      const before = cpuSeconds();
      for (let count = 0; count < 3; count++) client.ack('eds', response, names);
      expect(cpuSeconds() - before).to.be.lessThan(4);
      expect(client.received()).to.deep.equal([]);
      untouched();
    });
  });
});
