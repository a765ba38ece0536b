import { expect } from 'chai';
import type { Peer } from '../../src/wire/server-stream.ts';
import { LoopDetection, newRelayId } from '../../src/wire/via.ts';
import { testPeer } from '../support/peers.ts';
import { VirtualClock } from '../support/virtual-clock.ts';

class FakeStream {
  readonly peer: Peer;
  readonly #via: string | undefined;
  asked = 0;

  constructor(via?: string, address = 'relay') {
    this.peer = testPeer({ address });
    this.#via = via;
  }

  header(name: string): string | undefined {
    this.asked++;
    return name === 'x-distributary-via' ? this.#via : undefined;
  }
}

describe('downstream/loops', () => {
  function setting() {
    const clock = new VirtualClock();
    const loops = new LoopDetection(newRelayId('relay'), ({ address }) => address === 'relay', clock);
    let grown = 0;
    loops.onNewRelaysBelow(() => {
      grown++;
      return true;
    });
    const take = (via?: string, address?: string): FakeStream => {
      const stream = new FakeStream(via, address);
      loops.streamAccepted(stream);
      return stream;
    };
    return { clock, loops, take, grown: () => grown };
  }

  it('says itself, and who is below', () => {
    const { loops, take } = setting();
    expect(loops.via()).to.match(/^relay\/[0-9a-f]{16}$/);
    take();
    take('b/1, c/1');
    take('b/1, c/1');
    expect(loops.via()).to.match(/^relay\/[0-9a-f]{16}, b\/1, b\/1>c\/1$/);
  });

  it('each listener hears of new relays', () => {
    const { clock, loops, take, grown } = setting();
    let second = 0;
    loops.onNewRelaysBelow(() => {
      second++;
      return false;
    });
    loops.via();
    take('b/1');
    clock.advance(100);
    expect([grown(), second]).to.deep.equal([1, 1]);
  });

  it('forgets who has left, and does not look at clients that are no relays', () => {
    const { clock, loops, take } = setting();
    const own = loops.via();
    const relay = take('b/1');
    const clients = Array.from({ length: 100 }, () => take());
    const asked = clients.reduce((sum, client) => sum + client.asked, 0);
    expect(loops.via()).to.equal(`${own}, b/1`);
    loops.streamEnded(relay);
    clock.advance(30_000);
    expect(loops.via()).to.equal(own);
    expect(clients.reduce((sum, client) => sum + client.asked, 0)).to.equal(asked);
  });

  it('refuses what leads back to itself', () => {
    const { loops } = setting();
    expect(loops.refusal(new FakeStream())).to.equal(undefined);
    expect(loops.refusal(new FakeStream('b/1'))).to.equal(undefined);
    expect(loops.refusal(new FakeStream(`b/1, ${loops.via()}`))?.message).to.match(
      /^loop: relay → b → relay/,
    );
  });

  it('tells of a relay that no stream upstream has told of, once for those that come together', () => {
    const { clock, take, grown, loops } = setting();
    loops.via();
    take();
    take('b/1');
    take('c/1');
    expect(grown()).to.equal(0);
    clock.advance(100);
    expect(grown()).to.equal(1);
    loops.via();
    take('b/1');
    clock.advance(60_000);
    expect(grown()).to.equal(1);
  });

  it('remembers for 30 s who was below, as two cold relays end each other’s streams at once', () => {
    const { clock, loops } = setting();
    const own = loops.via();
    loops.streamEnded(new FakeStream('b/1, c/1'));
    expect(loops.via()).to.equal(`${own}, b/1, b/1>c/1`);
    // The other one has found the loop, and is found as well; the path through this relay is no news.
    expect(loops.refusal(new FakeStream(`d/1, ${own}`))?.message).to.match(/^loop: /);
    expect(loops.via()).to.equal(`${own}, b/1, d/1, b/1>c/1`);
    loops.streamEnded(new FakeStream('liar/1', 'client'));
    clock.advance(30_000);
    expect(loops.via()).to.equal(own);
  });

  it('is not hurried by one who comes under ever new names', () => {
    const { clock, take, grown, loops } = setting();
    for (let second = 0; second < 600; second++) {
      take(`liar/${second}`);
      clock.advance(1000);
      loops.via();
    }
    expect(grown(), 'once a minute').to.be.at.most(11);
  });

  it('believes nobody who cannot be a relay', () => {
    const { clock, take, grown, loops } = setting();
    const own = loops.via();
    take('liar/1', 'client');
    clock.advance(60_000);
    expect(grown()).to.equal(0);
    expect(loops.via()).to.equal(own);
    expect(loops.refusal(new FakeStream(own, 'client'))).to.equal(undefined);
    expect(loops.refusal(new FakeStream(own))?.message).to.match(/^loop: /);
  });
});
