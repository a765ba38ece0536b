import { expect } from 'chai';
import { LoadView } from '../../src/load/load-view.ts';
import { internParameters } from '../../src/model/parameters.ts';
import { VirtualClock } from '../support/virtual-clock.ts';

/** Counts what it has. */
class Payer {
  rows = 0;
  held = 0;
  readonly exempt = false;
  count(): number {
    return this.rows;
  }
  hold(bytes: number): undefined {
    this.held += bytes;
  }
  enter(): void {
    this.rows++;
  }
  leave(): void {
    this.rows--;
  }
}

const of = { id: 'one', parameters: internParameters([['env', 'x']]) };

const report = (clusters: readonly string[], dropped = 1) =>
  clusters.map((name) => ({ name, success: 0, error: 0, dropped }));

describe('the load that operators see', () => {
  let clock: VirtualClock;
  let view: LoadView;
  let payer: Payer;

  beforeEach(() => {
    clock = new VirtualClock();
    view = new LoadView(clock);
    payer = new Payer();
  });

  const shown = () => view.rows().loads.map(({ cluster, dropped }) => [cluster, dropped]);

  it('is of the last half a minute to minute, and nobody pays for what is forgotten', () => {
    view.add(of, payer, report(['a', 'b']));
    clock.advance(29_000);
    view.add(of, payer, report(['a']));
    expect(shown()).to.deep.equal([
      ['a', 2],
      ['b', 1],
    ]);
    clock.advance(2000);
    view.add(of, payer, report(['a']));
    expect(shown()).to.deep.equal([
      ['a', 3],
      ['b', 1],
    ]);
    expect(view.rows().seconds).to.equal(31);
    clock.advance(30_000);
    expect(shown()).to.deep.equal([['a', 1]]);
    expect(payer.rows).to.equal(1);
    clock.advance(60_000);
    expect(shown()).to.deep.equal([]);
    expect([payer.rows, payer.held]).to.deep.equal([0, 0]);
  });

  it('a peer has half of the rows, and others the rest', () => {
    const many = (from: string): readonly string[] =>
      Array.from({ length: 12_000 }, (_, at) => `${from}${at}`);
    view.add(of, payer, report(many('x')));
    expect(payer.rows).to.equal(10_000);
    const other = new Payer();
    view.add(of, other, report(many('y'), 2));
    expect(other.rows).to.equal(10_000);
    view.add(of, new Payer(), report(['z']));
    expect(view.rows().loads).to.have.lengthOf(20_000);
  });
});
