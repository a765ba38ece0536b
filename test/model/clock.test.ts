import { expect } from 'chai';
import { Sweep, WallTime } from '../../src/model/clock.ts';
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

  it('is done once, however often it was started, if it does not say that there is more', () => {
    const clock = new VirtualClock();
    let runs = 0;
    const sweep = new Sweep(clock, 100, () => void runs++);
    sweep.start();
    sweep.start();
    clock.advance(1000);
    expect(runs).to.equal(1);
  });
});

describe('wall time of a moment', () => {
  it('is the same time, though the clocks are not read at once, until the wall clock is set', () => {
    let [wall, passed] = [5_000_000_000_000, 1000.25];
    const times = new WallTime({ now: () => Math.floor(wall), monotonic: () => passed });
    const began = times.of(1000.25);
    expect(began).to.be.within(wall - 1, wall + 1);
    for (let step = 0; step < 100; step++) {
      wall += 16.7;
      passed += 16.7 + (step % 3) / 10;
      expect(times.of(1000.25)).to.equal(began);
    }
    wall -= 3_600_000;
    expect(times.of(1000.25)).to.be.within(began - 3_600_020, began - 3_599_980);
  });
});
