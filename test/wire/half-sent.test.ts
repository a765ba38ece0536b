import { expect } from 'chai';
import { Deframer, frameOf } from '../../src/wire/grpc-frames.ts';
import { Code, type GrpcStatus } from '../../src/wire/grpc-status.ts';
import { type Gatherer, HalfSent, halfSentBudget } from '../../src/wire/half-sent.ts';
import type { Peer } from '../../src/wire/server-stream.ts';
import { testAccounts, testPeer } from '../support/peers.ts';
import { VirtualClock } from '../support/virtual-clock.ts';

const accounts = testAccounts();

/** Gathers, as a stream does, and remembers how that ended. */
class Sender implements Gatherer {
  readonly peer: Peer;
  readonly got: number[] = [];
  status: GrpcStatus | undefined;
  readonly #deframer: Deframer;

  constructor(halfSent: HalfSent, address: string) {
    this.peer = testPeer({ address }, accounts);
    this.#deframer = new Deframer(
      {
        message: (bytes) => this.got.push(bytes.length),
        holds: (bytes) => halfSent.resize(this, bytes),
      },
      1 << 22,
      'limits.max_request_bytes',
    );
  }

  /** The first `part` bytes of a message of `length`. */
  begin(length: number, part: number): void {
    this.#deframer.push(frameOf(Buffer.alloc(length)).subarray(0, 5));
    this.more(part);
  }

  more(bytes: number): void {
    this.#deframer.push(Buffer.alloc(bytes));
  }

  abandon(status: GrpcStatus): void {
    this.status = status;
    this.#deframer.stop();
  }
}

const mega = 1 << 20;

describe('half-sent messages', () => {
  const clock = new VirtualClock();
  const limited = (budget: number): HalfSent => new HalfSent(clock, budget);

  it('within the budget all arrive', () => {
    const halfSent = limited(10 * mega);
    for (let round = 0; round < 3; round++) {
      const senders = Array.from({ length: 10 }, (_, index) => new Sender(halfSent, `10.0.0.${index}:1`));
      for (const sender of senders) sender.begin(mega, mega - 1);
      for (const sender of senders) sender.more(1);
      expect(senders.map(({ got }) => got)).to.deep.equal(senders.map(() => [mega]));
    }
  });

  it('past it the peer that holds most loses its largest, until there is room again', () => {
    const halfSent = limited(10 * mega);
    const modest = new Sender(halfSent, '10.0.0.1:1');
    modest.begin(3 * mega, 3 * mega - 1);
    const small = new Sender(halfSent, '10.0.0.2:100');
    small.begin(200_000, 199_999);
    const large = Array.from({ length: 8 }, (_, index) => new Sender(halfSent, `10.0.0.2:${index}`));
    for (const sender of large) sender.begin(mega, mega - 1);
    const refused = large.filter(({ status }) => status !== undefined);
    expect(refused.map(({ status }) => status?.code)).to.deep.equal(
      refused.map(() => Code.RESOURCE_EXHAUSTED),
    );
    expect(refused.length).to.be.within(3, 6);
    for (const sender of [modest, small, ...large]) sender.more(1);
    expect([modest.got, small.got]).to.deep.equal([[3 * mega], [200_000]]);
    for (const sender of large) expect(sender.got).to.deep.equal(sender.status === undefined ? [mega] : []);
  });

  it('one that goes over it by itself is refused while it grows, and nothing of it is delivered', () => {
    const halfSent = limited(mega);
    const sender = new Sender(halfSent, '10.0.0.1:1');
    sender.begin(2 * mega, mega);
    sender.more(mega);
    expect(sender.status?.code).to.equal(Code.RESOURCE_EXHAUSTED);
    expect(sender.got).to.deep.equal([]);
    const after = new Sender(halfSent, '10.0.0.1:2');
    after.begin(1000, 999);
    after.more(1);
    expect(after.got, 'what it held is free').to.deep.equal([1000]);
  });

  it('the default holds a fleet’s requests of 61 KB a thousand times', () => {
    const halfSent = limited(halfSentBudget(4 << 20));
    const fleet = Array.from({ length: 1000 }, (_, index) => new Sender(halfSent, `10.0.1.1:${index}`));
    for (const sender of fleet) sender.begin(61_000, 60_999);
    for (const sender of fleet) sender.more(1);
    expect(fleet.filter(({ got }) => got.length === 1)).to.have.length(1000);
  });

  it('one that does not arrive in time is given up, however it trickles; a new one has its own time', () => {
    const halfSent = new HalfSent(clock, mega, () => 60_000);
    const slow = new Sender(halfSent, '10.0.0.1:1');
    const good = new Sender(halfSent, '10.0.0.2:1');
    slow.begin(1000, 1);
    good.begin(1000, 1);
    clock.advance(50_000);
    slow.more(1);
    good.more(999);
    good.begin(1000, 1);
    clock.advance(12_000);
    expect(slow.status?.code).to.equal(Code.DEADLINE_EXCEEDED);
    expect(slow.status?.message).to.contain('limits.stalled_timeout');
    expect([good.status, good.got]).to.deep.equal([undefined, [1000]]);
    halfSent.stop();
  });
});
