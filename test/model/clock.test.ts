import { expect } from 'chai';
import { Sweep, systemClock, WallTime } from '../../src/model/clock.ts';
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

describe('the clock of the system', () => {
  it('runs at once what was due before, without a warning on stderr', async () => {
    const warnings: Error[] = [];
    const take = (warning: Error) => void warnings.push(warning);
    process.on('warning', take);
    try {
      await new Promise<void>((resolve) => {
        const keepsAlive = setTimeout(resolve, 10_000);
        systemClock.after(-0.25, () => {
          clearTimeout(keepsAlive);
          setImmediate(resolve); // warnings come in a later tick
        });
      });
    } finally {
      process.off('warning', take);
    }
    expect(warnings).to.deep.equal([]);
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
