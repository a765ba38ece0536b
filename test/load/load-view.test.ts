import { expect } from 'chai';
import { LoadView } from '../../src/load/load-view.ts';
import { internParameters } from '../../src/model/parameters.ts';
import { VirtualClock } from '../support/virtual-clock.ts';

const of = { id: 'one', parameters: internParameters([['env', 'x']]) };

const report = (clusters: readonly string[], dropped = 1) =>
  clusters.map((name) => ({ name, success: 0, error: 0, dropped }));

describe('the load that operators see', () => {
  let clock: VirtualClock;
  let view: LoadView;

  const peer = { key: 'one', exempt: false };

  beforeEach(() => {
    clock = new VirtualClock();
    view = new LoadView(clock);
  });

  const shown = () => view.rows().loads.map(({ cluster, dropped }) => [cluster, dropped]);

  it('is of the last half a minute to minute', () => {
    view.add(of, peer, report(['a', 'b']));
    clock.advance(29_000);
    view.add(of, peer, report(['a']));
    expect(shown()).to.deep.equal([
      ['a', 2],
      ['b', 1],
    ]);
    clock.advance(2000);
    view.add(of, peer, report(['a']));
    expect(shown()).to.deep.equal([
      ['a', 3],
      ['b', 1],
    ]);
    expect(view.rows().seconds).to.equal(31);
    clock.advance(30_000);
    expect(shown()).to.deep.equal([['a', 1]]);
    clock.advance(60_000);
    expect(shown()).to.deep.equal([]);
  });

  it('a peer has half of the rows, and others the rest', () => {
    const many = (from: string): readonly string[] =>
      Array.from({ length: 12_000 }, (_, at) => `${from}${at}`);
    view.add(of, peer, report(many('x')));
    expect(view.rows().loads).to.have.lengthOf(10_000);
    view.add(of, { key: 'two', exempt: false }, report(many('y')));
    view.add(of, { key: 'three', exempt: false }, report(['z']));
    const { loads } = view.rows();
    expect(loads.filter(({ cluster }) => cluster.startsWith('y'))).to.have.lengthOf(10_000);
    expect(loads).to.have.lengthOf(20_000);
  });
});
