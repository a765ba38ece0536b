import { create } from '@bufbuild/protobuf';
import { expect } from 'chai';
import { NodeSubscriptionsSchema } from '../../src/gen/distributary/workers/v1/workers_pb.ts';
import { subscribedElsewhere } from '../../src/workers/worker.ts';
import { VirtualClock } from '../support/virtual-clock.ts';

describe('which upstreams a node has subscriptions of in other workers (protocol §5c.2)', () => {
  const clock = () => new VirtualClock();

  function started(upstreamsOf: Record<string, string[]>) {
    const time = clock();
    const asked: string[][] = [];
    let changes = 0;
    const elsewhere = subscribedElsewhere(
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
    const pass = async (milliseconds: number): Promise<void> => {
      for (let left = milliseconds; left > 0; left -= 50) {
        time.advance(50);
        await new Promise((resolve) => {
          setImmediate(resolve);
        });
      }
    };
    return { elsewhere, asked, pass, changes: () => changes };
  }

  it('who reports is asked about together, and again each second', async () => {
    const { elsewhere, asked, pass, changes } = started({ a: ['central'] });
    expect([...elsewhere('a', 'a'), ...elsewhere('b', 'b')]).to.deep.equal([]);
    await pass(1000);
    expect(asked).to.deep.equal([['a', 'b']]);
    expect([[...elsewhere('a', 'a')], [...elsewhere('b', 'b')], changes()]).to.deep.equal([
      ['central'],
      [],
      1,
    ]);
    await pass(2000);
    expect(asked.slice(1)).to.deep.equal([
      ['a', 'b'],
      ['a', 'b'],
    ]);
    expect(changes()).to.equal(1);
  });

  it('what is no longer subscribed is forgotten, and a node that reports no more is not asked about', async () => {
    const upstreams: Record<string, string[]> = { a: ['central'] };
    const { elsewhere, asked, pass, changes } = started(upstreams);
    elsewhere('a', 'a');
    await pass(1000);
    delete upstreams['a'];
    await pass(5000);
    expect([[...elsewhere('a', 'a')], changes()]).to.deep.equal([[], 2]);
    await pass(20_000);
    const before = asked.length;
    await pass(10_000);
    expect(asked).to.have.lengthOf(before);
  });

  it('a node that comes back has nothing of before until it is known again', async () => {
    const { elsewhere, pass } = started({ a: ['central'] });
    elsewhere('a', 'a');
    await pass(1000);
    await pass(20_000);
    expect([...elsewhere('a', 'a')]).to.deep.equal([]);
    await pass(1000);
    expect([...elsewhere('a', 'a')]).to.deep.equal(['central']);
  });

  it('a stream has one node, however often it changes', async () => {
    const { elsewhere, asked, pass } = started({});
    for (let count = 0; count < 1000; count++) elsewhere(`node-${count}`, 'a');
    elsewhere('node-999', 'b');
    await pass(1000);
    expect(asked).to.deep.equal([['node-999']]);
  });

  it('a question is about 20,000 nodes at most, and the next one about the others', async () => {
    const { elsewhere, asked, pass } = started({});
    for (let count = 0; count < 30_000; count++) elsewhere(`node-${count}`, `${count}`);
    await pass(2000);
    expect(asked.map(({ length }) => length)).to.deep.equal([20_000, 20_000]);
    expect(new Set(asked.flat()).size).to.equal(30_000);
  });

  it('one question is open at a time', async () => {
    const time = clock();
    let asked = 0;
    const elsewhere = subscribedElsewhere(
      time,
      () => {
        asked++;
        return new Promise(() => undefined);
      },
      () => undefined,
    );
    elsewhere('a', 'a');
    for (let passed = 0; passed < 5000; passed += 50) time.advance(50);
    expect(asked).to.equal(1);
  });
});
