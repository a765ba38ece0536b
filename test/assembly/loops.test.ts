import { expect } from 'chai';
import { Loops, newRelayId } from '../../src/assembly/loops.ts';
import { VirtualClock } from '../support/virtual-clock.ts';

class FakeStream {
  readonly #via: string | undefined;

  constructor(via?: string) {
    this.#via = via;
  }

  header(name: string): string | undefined {
    return name === 'x-distributary-via' ? this.#via : undefined;
  }
}

describe('assembly/loops', () => {
  function setting() {
    const clock = new VirtualClock();
    const open: FakeStream[] = [];
    const loops = new Loops(newRelayId('relay'), () => open, clock);
    let grown = 0;
    loops.onGrowth(() => grown++);
    const take = (via?: string): void => {
      const stream = new FakeStream(via);
      open.push(stream);
      loops.taken(stream);
    };
    return { clock, open, loops, take, grown: () => grown };
  }

  it('says itself, and who is below', () => {
    const { loops, take } = setting();
    expect(loops.via()).to.match(/^relay\/[0-9a-f]{16}$/);
    take();
    take('b/1, c/1');
    take('b/1, c/1');
    expect(loops.via()).to.match(/^relay\/[0-9a-f]{16}, b\/1, b\/1>c\/1$/);
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

  it('is not hurried by one who comes under ever new names', () => {
    const { clock, take, grown, loops } = setting();
    for (let second = 0; second < 20; second++) {
      take(`liar/${second}`);
      clock.advance(1000);
      loops.via();
    }
    expect(grown()).to.be.at.most(5);
  });
});
