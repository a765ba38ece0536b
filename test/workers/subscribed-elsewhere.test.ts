import { create } from '@bufbuild/protobuf';
import { expect } from 'chai';
import { NodeSubscriptionsSchema } from '../../src/gen/distributary/workers/v1/workers_pb.ts';
import { SubscribedElsewhere } from '../../src/workers/subscribed-elsewhere.ts';
import { VirtualClock } from '../support/virtual-clock.ts';

describe('which upstreams a node has subscriptions of in other workers (protocol §5c.2)', () => {
  const clock = () => new VirtualClock();

  async function passOn(time: VirtualClock, milliseconds: number): Promise<void> {
    for (let left = milliseconds; left > 0; left -= 50) {
      time.advance(50);
      await new Promise((resolve) => {
        setImmediate(resolve);
      });
    }
  }

  function started(upstreamsOf: Record<string, string[]>) {
    const time = clock();
    const asked: string[][] = [];
    let changes = 0;
    const elsewhere = new SubscribedElsewhere(
      time,
      (nodes) => {
        asked.push(nodes.toSorted());
        const found = nodes.flatMap((node) => {
          const upstreams = upstreamsOf[node];
          return upstreams === undefined ? [] : create(NodeSubscriptionsSchema, { node, upstreams });
        });
        return Promise.resolve(found);
      },
      () => {
        changes++;
      },
    );
    const pass = (milliseconds: number): Promise<void> => passOn(time, milliseconds);
    return { elsewhere, asked, pass, changes: () => changes };
  }

  it('new nodes are asked about at once and together, those without an answer every second, the others every 5 s', async () => {
    const { elsewhere, asked, pass, changes } = started({ a: ['central'] });
    expect([elsewhere.of('a', 'a'), elsewhere.of('b', 'b')]).to.deep.equal([undefined, undefined]);
    await pass(100);
    expect(asked).to.deep.equal([['a', 'b']]);
    expect([elsewhere.of('a', 'a'), elsewhere.of('b', 'b'), changes()]).to.deep.equal([
      new Set(['central']),
      new Set(),
      1,
    ]);
    await pass(5000);
    expect(asked.slice(1)).to.deep.equal([['b'], ['b'], ['b'], ['b'], ['a', 'b']]);
    expect(changes()).to.equal(1);
  });

  it('what is no longer subscribed is forgotten, and a node that reports no more is not asked about', async () => {
    const upstreams: Record<string, string[]> = { a: ['central'] };
    const { elsewhere, asked, pass, changes } = started(upstreams);
    elsewhere.of('a', 'a');
    await pass(100);
    delete upstreams['a'];
    await pass(5000);
    expect([elsewhere.of('a', 'a'), changes()]).to.deep.equal([new Set(), 2]);
    await pass(20_000);
    const before = asked.length;
    await pass(10_000);
    expect(asked).to.have.lengthOf(before);
  });

  it('another stream of a node that is known has its upstreams at once', async () => {
    const { elsewhere, pass } = started({ a: ['central'] });
    elsewhere.of('a', '1');
    await pass(100);
    expect(elsewhere.of('a', '2')).to.deep.equal(new Set(['central']));
  });

  it('nothing is known of a new node until it is answered, and that it has nothing is an answer: both are told', async () => {
    const { elsewhere, pass, changes } = started({});
    elsewhere.of('a', 'a');
    expect([elsewhere.of('a', 'a'), changes()]).to.deep.equal([undefined, 0]);
    await pass(100);
    expect([elsewhere.of('a', 'a'), changes()]).to.deep.equal([new Set(), 1]);
    await pass(10_000);
    expect(changes()).to.equal(1);
  });

  it('a node has nothing, as far as it is known, where the primary does not answer; what was known stays', async () => {
    const time = clock();
    let isAway = false;
    let changes = 0;
    const elsewhere = new SubscribedElsewhere(
      time,
      (nodes) => {
        if (isAway) return Promise.reject(new Error('away'));
        return Promise.resolve(
          nodes.map((node) => create(NodeSubscriptionsSchema, { node, upstreams: ['central'] })),
        );
      },
      () => {
        changes++;
      },
    );
    elsewhere.of('a', 'a');
    await passOn(time, 100);
    isAway = true;
    elsewhere.of('b', 'b');
    await passOn(time, 6000);
    expect([elsewhere.of('a', 'a'), elsewhere.of('b', 'b'), changes]).to.deep.equal([
      new Set(['central']),
      new Set(),
      2,
    ]);
  });

  it('a node that comes back has nothing of before until it is known again', async () => {
    const { elsewhere, pass } = started({ a: ['central'] });
    elsewhere.of('a', 'a');
    await pass(100);
    await pass(20_000);
    expect(elsewhere.of('a', 'a')).to.equal(undefined);
    await pass(100);
    expect(elsewhere.of('a', 'a')).to.deep.equal(new Set(['central']));
  });

  it('a stream has one node, however often it changes', async () => {
    const { elsewhere, asked, pass } = started({});
    for (let count = 0; count < 1000; count++) elsewhere.of(`node-${count}`, 'a');
    elsewhere.of('node-999', 'b');
    await pass(100);
    expect(asked).to.deep.equal([['node-999']]);
  });

  it('a question is about 20,000 nodes at most, and the next one about the others', async () => {
    const { elsewhere, asked, pass } = started({});
    for (let count = 0; count < 30_000; count++) elsewhere.of(`node-${count}`, `${count}`);
    await pass(100);
    await pass(1000);
    expect(asked.map(({ length }) => length)).to.deep.equal([20_000, 20_000]);
    expect(new Set(asked.flat()).size).to.equal(30_000);
  });

  it('one question is open at a time', async () => {
    const time = clock();
    let asked = 0;
    const elsewhere = new SubscribedElsewhere(
      time,
      () => {
        asked++;
        return new Promise(() => undefined);
      },
      () => undefined,
    );
    elsewhere.of('a', 'a');
    for (let passed = 0; passed < 5000; passed += 50) time.advance(50);
    expect(asked).to.equal(1);
  });
});
