import { expect } from 'chai';
import { Sweep } from '../../src/model/clock.ts';
import { VirtualClock } from '../support/virtual-clock.ts';

describe('repeated work', () => {
  it('can be started again after it was stopped', () => {
    const clock = new VirtualClock();
    let runs = 0;
    const sweep = new Sweep(clock, 100, () => ++runs < 2);
    sweep.start();
    sweep.stop();
    clock.advance(1000);
    expect(runs).to.equal(0);
    sweep.start();
    clock.advance(1000);
    expect(runs).to.equal(2);
  });
});
