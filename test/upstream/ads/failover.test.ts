import { fromBinary } from '@bufbuild/protobuf';
import { expect } from 'chai';
import { NodeSchema } from '../../../src/gen/envoy/config/core/v3/base_pb.ts';
import { Backoff } from '../../../src/model/clock.ts';
import { internParameters } from '../../../src/model/parameters.ts';
import { Failover } from '../../../src/upstream/ads/connection.ts';
import { encodeNode } from '../../../src/upstream/ads/node.ts';

describe('backoff', () => {
  it('doubles its bound up to the longest, with full jitter', () => {
    const half = new Backoff(500, 3000, () => 0.5);
    expect([1, 2, 3, 4, 5].map(() => half.next())).to.deep.equal([250, 500, 1000, 1500, 1500]);
    expect(new Backoff(500, 3000, () => 0).next()).to.equal(0);
  });

  it('begins anew after a reset', () => {
    const backoff = new Backoff(500, 3000, () => 1);
    backoff.next();
    backoff.next();
    backoff.reset();
    expect(backoff.next()).to.equal(500);
  });
});

describe('failover', () => {
  const policy = (count: number): Failover => new Failover(count, new Backoff(100, 1000, () => 1));

  it('tries the endpoints in order, at once, and waits after each round', () => {
    const failover = policy(3);
    const waits = [1, 2, 3, 4, 5, 6].map(() => failover.failed('unreachable'));
    expect(waits).to.deep.equal([0, 0, 100, 0, 0, 200]);
    expect(failover.current).to.equal(0);
  });

  it('is down after a round without success', () => {
    const failover = policy(2);
    failover.failed('unreachable');
    expect(failover.down).to.equal(false);
    failover.failed('unreachable');
    expect(failover.down).to.equal(true);
    failover.connected();
    expect(failover.down).to.equal(false);
  });

  it('to be connected is no success where silence was the failure', () => {
    const failover = policy(1);
    failover.failed('unanswered');
    failover.connected();
    expect(failover.down).to.equal(true);
    failover.answered();
    expect(failover.down).to.equal(false);
  });

  it('the wait grows until a connection has lived for a while, however often it connects and answers', () => {
    const failover = policy(1);
    expect(failover.failed('unreachable')).to.equal(100);
    failover.connected();
    expect(failover.failed('unanswered')).to.equal(200);
    failover.connected();
    failover.answered();
    expect(failover.lost()).to.equal(400);
    failover.lasted();
    expect(failover.lost()).to.equal(100);
  });

  it('stays with an endpoint that had worked', () => {
    const failover = policy(2);
    failover.failed('unreachable');
    failover.answered();
    failover.lost();
    expect(failover.current).to.equal(1);
  });

  it('an endpoint that was silent must prove itself for longer, until it has worked for a while', () => {
    const failover = policy(2);
    failover.failed('unanswered');
    expect(failover.penalty(0)).to.equal(2);
    failover.failedBack(0);
    failover.answered();
    expect(failover.penalty(0)).to.equal(2);
    failover.lasted();
    expect(failover.penalty(0)).to.equal(1);
  });
});

describe('the node of a session', () => {
  const relay = {
    id: 'relay',
    cluster: 'relays',
    metadata: { a: { b: 'own', c: 'kept' } },
    locality: { region: 'r', zone: '', subZone: '' },
  };
  const encode = (to: string, value: string | undefined) =>
    fromBinary(
      NodeSchema,
      encodeNode(
        relay,
        [{ key: 'k', to }],
        internParameters(value === undefined ? [] : [['k', value]]),
        '1',
        false,
      ),
    );

  it('shows each parameter where its rule says', () => {
    expect(encode('node.id', 'x').id).to.equal('x');
    expect(encode('node.cluster', 'x').cluster).to.equal('x');
    expect(encode('node.locality.sub_zone', 'x').locality).to.include({ region: 'r', subZone: 'x' });
    expect(encode('node.metadata.a.b', 'x').metadata).to.deep.equal({ a: { b: 'x', c: 'kept' } });
    expect(encode('node.metadata.a.b.d', 'x').metadata).to.deep.equal({ a: { b: { d: 'x' }, c: 'kept' } });
  });

  it('an absent parameter leaves what is there', () => {
    expect(encode('node.metadata.a.b', undefined).metadata).to.deep.equal(relay.metadata);
  });

  it('shows an id of its own where no rule writes one', () => {
    expect(encode('node.cluster', 'x').id).to.equal('relay~x');
    expect(encode('node.cluster', undefined).id).to.equal('relay');
  });

  it('a path through __proto__ changes no prototype', () => {
    encode('node.metadata.__proto__.polluted', 'x');
    expect({}).to.not.have.property('polluted');
  });
});
