import { expect } from 'chai';
import { systemClock } from '../../src/model/clock.ts';
import { OverTurns, type Payer, TimeSlices, Turns } from '../../src/model/time-slices.ts';
import { VirtualClock } from '../support/virtual-clock.ts';

/** So many milliseconds of work in one piece. */
function work(milliseconds: number): void {
  for (const end = performance.now() + milliseconds; performance.now() < end; );
}

const payer = (): Payer & { paid: number } => ({
  paid: 0,
  spent(milliseconds) {
    this.paid += milliseconds;
  },
  keeps: () => {},
});

describe('slices of work', () => {
  it('jobs that never yield leave turns to others between them', async () => {
    const slices = new TimeSlices(systemClock);
    let done = 0;
    const turns: number[] = [];
    const timer = setInterval(() => turns.push(done), 1);
    const jobs = Array.from({ length: 30 }, () =>
      slices.run(async () => {
        work(2);
        done++;
      }),
    );
    await Promise.all(jobs);
    clearInterval(timer);
    const mostInOneTurn = Math.max(...turns.map((count, at) => count - (turns[at - 1] ?? 0)));
    // A timer of a millisecond may leave out a turn.
    expect(mostInOneTurn).to.be.within(1, 10);
  });

  it('payers take turns, and each pays for its own', async () => {
    const slices = new TimeSlices(systemClock);
    const [many, few] = [payer(), payer()];
    const order: string[] = [];
    const job = (name: string, of: Payer) =>
      slices.run(async () => {
        work(1);
        order.push(name);
      }, of);
    const jobs = [job('m1', many), job('m2', many), job('m3', many), job('f1', few), job('f2', few)];
    await Promise.all(jobs);
    expect(order).to.deep.equal(['m1', 'm2', 'f1', 'm3', 'f2']);
    expect(many.paid).to.be.at.least(3);
    expect(few.paid).to.be.at.least(2);
  });

  it('a job that fails ends its turn', async () => {
    const slices = new TimeSlices(systemClock);
    const failed = slices.run(async () => {
      throw new Error('no');
    });
    const next = slices.run(async () => 'yes');
    expect(await failed.catch(String)).to.equal('Error: no');
    expect(await next).to.equal('yes');
  });
});

describe('turns', () => {
  it('who waits no longer gets none, and holds up nobody', async () => {
    const turns = new Turns<string>();
    expect(await turns.begin('a')).to.equal(true);
    const gone = new AbortController();
    const waiting = [turns.begin('b', gone.signal), turns.begin('b', gone.signal), turns.begin('c')];
    gone.abort();
    expect(await Promise.all(waiting.slice(0, 2))).to.deep.equal([false, false]);
    turns.end();
    expect(await waiting[2]).to.equal(true);
    expect(await turns.begin('b', gone.signal)).to.equal(false);
    turns.end();
    expect(await turns.begin('b')).to.equal(true);
  });
});

describe('many over turns', () => {
  it('what is cleared is not done, and what is added then begins at once', () => {
    const clock = new VirtualClock();
    let spent = 0;
    const busy = {
      after: (milliseconds: number, run: () => void) => clock.after(milliseconds, run),
      monotonic: () => clock.monotonic() + spent,
    };
    const done: number[] = [];
    const many = new OverTurns<number>(busy, (one) => {
      many.delete(one);
      done.push(one);
      spent += 3;
    });
    many.addAll([1, 2, 3]);
    expect([done, many.size]).to.deep.equal([[1, 2], 1]);
    many.clear();
    many.addAll([4, 5, 6, 7, 8]);
    clock.advance(5);
    expect(done, 'one turn has passed since').to.deep.equal([1, 2, 4, 5, 6, 7]);
    clock.advance(5);
    expect([done, many.size]).to.deep.equal([[1, 2, 4, 5, 6, 7, 8], 0]);
  });
});
