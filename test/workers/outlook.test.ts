import { expect } from 'chai';
import { CLAIMS_EVERYTHING } from '../../src/upstream/claims.ts';
import { Outlook } from '../../src/workers/outlook.ts';
import { type } from '../support/lab.ts';
import { VirtualClock } from '../support/virtual-clock.ts';

const cds = type('cds');
const lds = type('lds');

function start() {
  const clock = new VirtualClock();
  let looks = 0;
  const upstreams = [
    { name: 'files', claims: { ...CLAIMS_EVERYTHING, types: [cds] } },
    { name: 'central', claims: CLAIMS_EVERYTHING },
  ];
  const outlook = new Outlook(upstreams, clock, () => {
    looks++;
  });
  return { clock, outlook, looks: () => looks };
}

describe('hope in a worker (protocol §8)', () => {
  it('ends a second after the upstream that serves a name has gone', () => {
    const { clock, outlook } = start();
    outlook.news(['central']);
    expect(outlook.hopeless(lds, '*')).to.equal(false);
    clock.advance(1000);
    expect(outlook.hopeless(lds, '*')).to.equal(true);
    expect(outlook.hopeless(cds, '*'), 'served by another').to.equal(false);
  });

  it('is there for a second for whatever is asked for: the primary may have it', () => {
    const { clock, outlook } = start();
    outlook.news(['central']);
    clock.advance(5000);
    outlook.asked(lds, 'late');
    expect([outlook.hopeless(lds, 'late'), outlook.hopeless(lds, 'early')]).to.deep.equal([false, true]);
    clock.advance(1000);
    expect(outlook.hopeless(lds, 'late')).to.equal(true);
  });

  it('is back with the upstream', () => {
    const { clock, outlook } = start();
    outlook.news(['central']);
    clock.advance(5000);
    outlook.news([]);
    expect(outlook.hopeless(lds, '*')).to.equal(false);
  });

  it('has everybody looked at again as long as something is down, and not longer', () => {
    const { clock, outlook, looks } = start();
    outlook.news(['central']);
    clock.advance(2000);
    expect(looks()).to.equal(4);
    outlook.news([]);
    clock.advance(2000);
    expect(looks()).to.equal(4);
  });
});
