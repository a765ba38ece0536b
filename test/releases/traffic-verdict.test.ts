import { expect } from 'chai';
import { itsOwn, type LoadOrigin } from '../../src/model/load.ts';
import {
  addTo,
  type ComparedClient,
  compareTraffic,
  reported,
  sumOf,
  type Tally,
} from '../../src/releases/traffic.ts';
import { cases } from '../support/cases.ts';
import { Random } from '../support/random.ts';
import { type Errors, partFoundBad } from '../support/traffic-fleet.ts';

/** The last: of 1,000 fleets. */
type FoundOften = readonly [
  errors: Errors,
  base: number,
  released: number,
  clients: number,
  rise: number,
  bound: number,
  least: number,
];

const bounds = { maxErrorIncrease: 5, maxRequestDrop: 50, minRequests: 100 };

/** Reports of ten seconds, all the same. */
const tally = (requests: number, errors = 0, seconds = 10): Tally => {
  const reports = Math.ceil(seconds / 10);
  return sumOf(
    Array.from({ length: reports }, () => reported(requests / reports, errors / reports, seconds / reports)),
  );
};
const none = tally(0, 0, 0);
const client = (counted: Tally, usual = none): ComparedClient => ({ counted, usual, origin: itsOwn });

describe('a change judged by traffic', () => {
  for (const [what, canaries, others, state] of [
    ['as many errors as the others', [tally(1000, 10)], [tally(1000, 10)], 'GOOD'],
    ['5 points more: the bound', [tally(1000, 60)], [tally(1000, 10)], 'GOOD'],
    ['6 points more', [tally(1000, 70)], [tally(1000, 10)], 'BAD'],
    ['fewer errors', [tally(1000, 10)], [tally(1000, 500)], 'GOOD'],
    ['6 points more of 100 requests may be chance', [tally(100, 6)], [tally(100, 0)], 'GOOD'],
    ['9 points more of 100 requests may be chance', [tally(100, 9)], [tally(100, 0)], 'GOOD'],
    ['10 points more of 100 requests', [tally(100, 10)], [tally(100, 0)], 'BAD'],
    ['all of 100 requests fail', [tally(100, 100)], [tally(100, 0)], 'BAD'],
    ['99 requests', [tally(99, 99)], [tally(190, 0)], 'UNKNOWN'],
    ['99 requests at the others', [tally(1000, 900)], [tally(99, 0)], 'UNKNOWN'],
    ['half as many requests: the bound', [tally(500)], [tally(1000)], 'GOOD'],
    [
      'fewer than half of clients that have just come, against one other',
      [tally(400)],
      [tally(1000)],
      'GOOD',
    ],
    ['fewer than half, against three', [tally(400)], [tally(1000), tally(1000), tally(1000)], 'BAD'],
    ['none at all', [tally(0)], [tally(100)], 'BAD'],
    ['none at all where 8 are expected', [tally(0, 0, 0.8)], [tally(100)], 'BAD'],
    ['none at all where 6 are expected may be chance', [tally(0, 0, 0.6)], [tally(100)], 'UNKNOWN'],
    ['more requests', [tally(9000)], [tally(1000)], 'GOOD'],
    ['half of the time is half of the requests', [tally(500, 0, 5)], [tally(1000)], 'GOOD'],
    ['one of two has none: half', [tally(1000), tally(0)], [tally(1000)], 'GOOD'],
    ['nobody has reported twice', [none], [tally(1000)], 'UNKNOWN'],
  ] as const) {
    it(`${what}: ${state}`, () => {
      const found = compareTraffic(
        { canaries: canaries.map((one) => client(one)), others: others.map((one) => client(one)) },
        bounds,
        1,
      );
      expect(found.state, found.reason).to.equal(state);
    });
  }

  for (const [what, canary, other, state] of [
    ['10 of 20 requests fail, and none of 20', tally(20, 10), tally(20), 'BAD'],
    ['5 of 20 may be chance', tally(20, 5), tally(20), 'GOOD'],
    ['none at all where 20 are expected', tally(0), tally(20), 'BAD'],
    ['none at all where 10 are expected', tally(0, 0, 5), tally(20), 'BAD'],
    ['none at all where 7 are expected by 20', tally(0, 0, 3.5), tally(20), 'UNKNOWN'],
  ] as const)
    it(`with min_requests: 20: ${what}: ${state}`, () => {
      const clients = { canaries: [client(canary)], others: [client(other)] };
      const found = compareTraffic(clients, { ...bounds, minRequests: 20 }, 1);
      expect(found.state, found.reason).to.equal(state);
    });

  it('no requests at all is chance where the client had intervals without any before', () => {
    const usual = sumOf([0, 100, 100, 0, 100, 100, 0, 100, 100].map((one) => reported(one, 0, 10)));
    const state = (reports: number) => {
      const canaries = [client(tally(0, 0, 10 * reports), usual)];
      const others = [client(tally(100 * reports, 0, 10 * reports), usual)];
      return compareTraffic({ canaries, others }, bounds, 1).state;
    };
    expect([2, 5, 40].map(state)).to.deep.equal(['UNKNOWN', 'UNKNOWN', 'BAD']);
  });

  it('where nobody of the class is left: as before the change', () => {
    const before = tally(6000, 60, 60);
    const judged = (counted: Tally) =>
      compareTraffic({ canaries: [client(counted, before)], others: [] }, bounds, 1);
    expect(judged(tally(1000, 10)).state).to.equal('GOOD');
    expect(judged(tally(1000, 100)).state).to.equal('BAD');
    expect(judged(tally(100)).state).to.equal('BAD');
    expect(compareTraffic({ canaries: [client(tally(1000, 900))], others: [] }, bounds, 1).state).to.equal(
      'UNKNOWN',
    );
    expect(judged(tally(1000, 100)).reason).to.equal(
      '10.0 % of 1000 requests failed for clients that have it, 1.0 % of 6000 before: max_error_increase is 5 points',
    );
    expect(judged(tally(100)).reason).to.equal(
      '10.0 requests a second for each client that has it, 100.0 before: max_request_drop is 50 percent',
    );
  });

  describe('where nobody of the class is left, and little is known of the time before', () => {
    const before = tally(6000, 60, 60);
    const judged = (...canaries: readonly ComparedClient[]) =>
      compareTraffic({ canaries, others: [] }, bounds, 1);

    it('fewer than min_requests before: UNKNOWN', () => {
      const { state, reason } = judged(client(tally(1000, 900), tally(99, 0, 60)));
      expect([state, reason]).to.deep.equal(['UNKNOWN', '99 requests before: min_requests is 100']);
    });

    it('a burst in the only reports before is not what is usual', () => {
      for (const seconds of [10, 50]) {
        const usual = tally(100 * seconds, 0, seconds);
        expect(judged(client(tally(100, 1), usual)).state).to.equal('GOOD');
        expect(judged(client(tally(99, 1), usual)).state).to.equal('UNKNOWN');
        expect(judged(client(tally(1000, 200), usual)).state).to.equal('BAD');
      }
    });

    it('a client that has just come has no fewer requests than another one had', () => {
      const newcomer = client(tally(0));
      expect(judged(client(tally(800, 8), before), newcomer).state).to.equal('GOOD');
      expect(judged(client(tally(0), before), newcomer).reason).to.equal(
        '0.0 requests a second for each client that has it, 100.0 before: max_request_drop is 50 percent',
      );
    });
  });

  it('a client of which more failed, or which had less to do, before already: compared with that too', () => {
    const others = [client(tally(10_000, 100), tally(60_000, 600, 60))];
    const state = (counted: Tally, usual: Tally) =>
      compareTraffic({ canaries: [client(counted, usual)], others }, bounds, 1).state;
    expect(state(tally(1000, 200), tally(6000, 1140, 60))).to.equal('GOOD');
    expect(state(tally(1000, 200), tally(6000, 60, 60))).to.equal('BAD');
    expect(state(tally(1000, 10), tally(6000, 60, 60))).to.equal('GOOD');
    expect(state(tally(1000, 10), tally(60_000, 600, 60))).to.equal('BAD');
    expect(state(tally(0), tally(0, 0, 100))).to.equal('UNKNOWN');
    // It has just come: nobody knows what is usual for it.
    expect(state(tally(0), tally(0, 0, 10))).to.equal('BAD');
    expect(state(tally(4000, 40), tally(6000, 60, 60))).to.equal('GOOD');
    expect(state(tally(400, 4), tally(20_000, 200, 20))).to.equal('BAD');
  });

  it('with a relay among them, who had how many requests before is known, or fewer are not looked for', () => {
    const relay = (counted: Tally, usual = none): ComparedClient => ({
      counted,
      usual,
      origin: { stages: 1, isPartial: false },
    });
    const [small, large] = [tally(600, 6, 60), tally(60_000, 600, 60)];
    const state = (canary: ComparedClient, ...others: readonly ComparedClient[]) =>
      compareTraffic({ canaries: [canary], others }, bounds, 1).state;
    expect(state(relay(tally(100, 1)), relay(tally(10_000, 100)))).to.equal('GOOD');
    expect(state(relay(tally(100, 1), small), relay(tally(10_000, 100)))).to.equal('GOOD');
    expect(state(relay(tally(100, 1), small), relay(tally(10_000, 100), large))).to.equal('GOOD');
    expect(state(client(tally(100, 1)), relay(tally(10_000, 100), large))).to.equal('GOOD');
    // One that has just come among the others.
    const others = [relay(tally(100, 1), small), relay(tally(10_000, 100))];
    expect(state(relay(tally(100, 1), small), ...others)).to.equal('GOOD');
    expect(state(relay(tally(0), small), ...others)).to.equal('BAD');
    expect(state(relay(tally(20_000, 2000)), relay(tally(10_000, 100)))).to.equal('BAD');
  });

  it('after a restart: what one report each says is not what is usual, and hides no drop', () => {
    const others = Array.from({ length: 9 }, (_, index) =>
      client(tally(3000, 0, 100), tally(40 * (index + 1))),
    );
    const found = compareTraffic({ canaries: [client(tally(0, 0, 150), tally(200))], others }, bounds, 1);
    expect(found.state, found.reason).to.equal('BAD');
  });

  it('that a client began between its two reports is no burst', () => {
    const begun = sumOf([reported(0, 0, 10), reported(300, 0, 10)]);
    const others = Array.from({ length: 9 }, () => client(tally(3000, 0, 100), tally(3000, 0, 100)));
    const found = compareTraffic({ canaries: [client(tally(0, 0, 150), begun)], others }, bounds, 1);
    expect(found.state, found.reason).to.equal('BAD');
  });

  it('who has said too little may have such bursts as others have', () => {
    const bursty = sumOf(
      Array.from({ length: 20 }, (_, index) => reported(index % 10 === 0 ? 3000 : 0, 0, 10)),
    );
    const others = [client(bursty, bursty), client(bursty, bursty)];
    const canaries = [client(tally(0, 0, 50), sumOf([reported(300, 0, 10), reported(300, 0, 10)]))];
    expect(compareTraffic({ canaries, others }, bounds, 1).state).to.equal('UNKNOWN');
  });

  it('one canary that has just come hides no drop at those that are known', () => {
    const rates = [30, 60, 120, 250, 500, 1000, 2000, 4000, 8000];
    const steady = (rate: number): ComparedClient =>
      client(tally(rate * 10, 0, 100), tally(rate * 10, 0, 100));
    const silent = rates.map((rate) => client(tally(0, 0, 100), tally(rate * 10, 0, 100)));
    const canaries = [...silent, client(none, tally(0))];
    const found = compareTraffic({ canaries, others: rates.map(steady) }, bounds, 1);
    expect(found.state, found.reason).to.equal('BAD');
  });

  it('where nobody is left, canaries that are alike now may have been so by chance', () => {
    const canaries = [300, 100, 50].map((rate) => client(tally(60 * 100, 0, 100), tally(rate * 100, 0, 100)));
    expect(compareTraffic({ canaries, others: [] }, bounds, 1).state).to.equal('GOOD');
  });

  it('clients that differ much among each other may differ from canaries as much', () => {
    const errors = [0, 900, 20, 400, 10, 700].map((count) => client(tally(1000, count)));
    expect(
      compareTraffic({ canaries: [client(tally(1000, 800))], others: errors }, bounds, 1).state,
    ).to.equal('GOOD');
    const requests = [10, 5000, 200, 9000, 40, 3000].map((count) => client(tally(count)));
    expect(compareTraffic({ canaries: [client(tally(0))], others: requests }, bounds, 1).state).to.equal(
      'UNKNOWN',
    );
  });

  describe('with simulated fleets, asked after each report of a bake', () => {
    it('of 10,000 good changes fewer than 10 are found bad', () => {
      let alarms = 0;
      for (let change = 0; change < 10_000; change++) if (new Fleet(change).isFoundBad(0, 1)) alarms++;
      expect(alarms).to.be.below(10);
    });

    it('nor are good changes that all of a class have, where many clients have just come', () => {
      let alarms = 0;
      for (let change = 0; change < 10_000; change++) {
        const fleet = new Fleet(change, undefined, 1 + (change % 6));
        if (fleet.isFoundBad(0, 1)) alarms++;
      }
      expect(alarms).to.be.below(10);
    });

    for (const others of [1, 2, 9])
      it(`nor are good changes whose first clients have just come, where ${others} others have requests at any rate`, () => {
        expect(newcomersFoundBad(others, 1)).to.be.below(2);
      });

    for (const others of [1, 2])
      it(`after which no request comes at clients that have just come, against ${others}: found in 985 of 1,000`, () => {
        expect(newcomersFoundBad(others, 0)).to.be.at.least(985);
      });

    it('a change after which 7 points more fail is found in 990 of 1,000', () => {
      expect(found(0.07, 1)).to.be.at.least(990);
    });

    it('a change after which 5 points more fail is found in 990 of 1,000, with max_error_increase: 2.5', () => {
      expect(found(0.05, 1, { ...bounds, maxErrorIncrease: 2.5 })).to.be.at.least(990);
    });

    it('a change after which no request comes is found in 990 of 1,000', () => {
      expect(found(0, 0)).to.be.at.least(990);
    });

    for (const [errors, base, released, clients, rise, bound, least] of cases<FoundOften>(
      ['alike', 0, 1000, 1, 5, 2.5, 990],
      ['alike', 0.01, 1000, 1, 5, 2.5, 990],
      ['alike', 0.01, 9000, 10, 5, 2.5, 999],
      ['alike', 0.05, 9000, 10, 5, 2.5, 940],
      ['alike', 0.2, 9000, 1, 7, 5, 750],
      ['differing', 0.05, 9000, 1, 7, 5, 750],
      ['differing', 0.05, 9000, 10, 7, 5, 930],
      ['bursts', 0.05, 9000, 10, 7, 5, 940],
    ))
      it(`${clients} with 1,000 requests of which ${base * 100} percent failed (${errors}), against ${released}: ${rise} points more are found`, () => {
        const settings = { base, canary: 1000, released, clients, errors, shape: 4 };
        expect(partFoundBad(1000, settings, rise / 100, bound) * 1000).to.be.at.least(least);
      });

    for (const [base, clients] of cases<readonly [base: number, clients: number]>(
      [0.01, 1],
      [0.05, 1],
      [0.2, 4],
    ))
      it(`errors that come in bursts, ${base * 100} percent at ${clients}: of 3,000 good changes fewer than 3 are found bad`, () => {
        const settings = { base, canary: 1000, released: 1000, clients, errors: 'bursts', shape: 1 } as const;
        expect(partFoundBad(3000, settings, 0, 5) * 3000).to.be.below(3);
      });

    function found(moreErrors: number, requests: number, by = bounds): number {
      let count = 0;
      for (let change = 0; change < 1000; change++)
        if (new Fleet(change, 1000).isFoundBad(moreErrors, requests, by)) count++;
      return count;
    }
  });
});

/** Of 1,000 changes after which a client that has just come has so large a part of its requests. */
function newcomersFoundBad(others: number, part: number): number {
  const random = new Random(1);
  const newcomer = () => {
    const rate = 100 * Math.exp(random.normal());
    const said = Array.from({ length: random.below(6) }, () => reported(random.poisson(rate), 0, 10));
    return { rate, usual: sumOf(said), counted: sumOf([]), origin: itsOwn };
  };
  const report = ({ counted, rate }: ReturnType<typeof newcomer>, of: number): void =>
    addTo(counted, reported(random.poisson(rate * of), 0, 10), 1);
  let found = 0;
  for (let change = 0; change < 1000; change++) {
    const canary = newcomer();
    const clients = { canaries: [canary], others: Array.from({ length: others }, newcomer) };
    const isBad = (): boolean => {
      report(canary, part);
      for (const one of clients.others) report(one, 1);
      return compareTraffic(clients, bounds, 1).state === 'BAD';
    };
    if (Array.from({ length: 10 }).some(isBad)) found++;
  }
  return found;
}

const intervalSeconds = 10;
/** Those of a bake of half a minute that count, and some more: waves may take longer. */
const reports = 5;

/** Clients of one class, each with traffic of its own: rates over two orders of magnitude, bursts, errors of each. */
class Fleet {
  readonly #random: Random;
  readonly #clients: {
    readonly rate: number;
    readonly errors: number;
    readonly usual: Tally;
    readonly counted: Tally;
    readonly origin: LoadOrigin;
  }[];
  readonly #canaries: number;

  /**
   * `requests`: what its canaries have in three reports; left out: anything. `reports`: all have the change, and have
   * reported so often before; left out: some have it, and 20.
   */
  constructor(seed: number, requests?: number, reports?: number) {
    this.#random = new Random(seed);
    const random = (): number => this.#random.next();
    const size = 1 + Math.floor(40 * random() ** 2);
    this.#canaries = reports === undefined ? Math.max(1, Math.round(size * 0.05)) : size;
    const mean =
      requests === undefined ? 10 ** (random() * 3) : requests / (3 * intervalSeconds) / this.#canaries;
    const differ = requests === undefined ? random() * 1.5 : 0;
    const errors = [0, 0.001, 0.01, 0.03][Math.floor(random() * 4)] ?? 0;
    this.#clients = Array.from({ length: size }, () => ({
      rate: mean * Math.exp(differ * this.#random.normal()),
      errors: errors * (requests === undefined ? random() * 2 : 1),
      usual: tally(0, 0, 0),
      counted: tally(0, 0, 0),
      origin: itsOwn,
    }));
    for (let report = 0; report < (reports ?? 20); report++)
      for (const one of this.#clients) this.#report(one, one.usual, 0, 1);
  }

  isFoundBad(moreErrors: number, requests: number, by = bounds): boolean {
    const canaries = this.#clients.slice(0, this.#canaries);
    const others = this.#clients.slice(this.#canaries);
    for (let report = 0; report < reports; report++) {
      for (const one of canaries) this.#report(one, one.counted, moreErrors, requests);
      for (const one of others) this.#report(one, one.counted, 0, 1);
      if (compareTraffic({ canaries, others }, by, 1).state === 'BAD') return true;
    }
    return false;
  }

  /** Requests come in bursts: from half to one and a half of the rate in each interval. */
  #report(
    client: { readonly rate: number; readonly errors: number },
    to: Tally,
    moreErrors: number,
    share: number,
  ): void {
    const requests = this.#random.poisson(
      client.rate * intervalSeconds * share * (0.5 + this.#random.next()),
    );
    const errors = Math.min(requests, this.#random.poisson(requests * (client.errors + moreErrors)));
    addTo(to, reported(requests, errors, intervalSeconds), 1);
  }
}
