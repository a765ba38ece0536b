import { join } from 'node:path';
import { expect } from 'chai';
import { makePlan, makeSteps, sizeOf } from './schedule.ts';
import { readScenarios } from './shrink.ts';
import { simulate } from './simulation.ts';
import { Tally } from './tally.ts';

/** Schedules, shrunk, that once broke a rule. */
const regressions = readScenarios(join(import.meta.dirname, 'regressions.jsonl'));

/** About half of how often each occurs in the 200 schedules: what hardly ever happens is not checked. */
const leastOf: ReadonlyMap<string, number> = new Map(
  Object.entries({
    change: 600,
    'gate release': 40,
    'gate discard': 10,
    'gate freeze': 10,
    'release of what waits': 10,
    'discard of what waits': 3,
    swap: 250,
    'swap: make before break': 80,
    'swap: clusters first': 80,
    'swap: routes first': 80,
    subscribe: 150,
    unsubscribe: 100,
    node: 60,
    stall: 300,
    NACK: 200,
    disconnect: 80,
    'plane down': 40,
    'plane deaf': 15,
    restart: 20,
    stream: 25,
    cut: 25,
    stallLink: 25,
    crash: 25,
    failover: 30,
    'cold restart': 15,
    'restart with a saved cache': 20,
    outage: 15,
    'type served from a saved cache': 15,
    fault: 30,
    'resource error': 130,
    'name said to be missing': 100,
    'stream refused by a cold relay': 500,
    'resumption with initial_resource_versions': 400,
    'eviction by size': 50,
    'ambiguous match': 80,
    'response to a sotw client': 2500,
    'response to a delta client': 2500,
    'response to a locator client': 1500,
    'response to a client of several parameter sets': 400,
    'response to wildcard and names': 1000,
    'response over two relays': 1200,
    removal: 800,
    'cluster looked for that a route leads to': 600,
    'response behind a closed gate': 200,
    'swap of variants': 20,
    'sent to a canary of a rollout': 150,
    'sent to an elected canary': 20,
    'a change in wave 2': 25,
    'rollout released': 40,
    'discarded, and looked for in quiet': 2,
    'check says UNKNOWN': 10,
    'released with good checks': 5,
    harm: 15,
    'load report of a client': 20_000,
  }),
);

describe('the simulator', () => {
  for (const { name = 'a schedule', plan, steps } of regressions) {
    it(name, () => {
      expect(simulate(plan, steps).failure).to.equal(undefined);
    });
  }

  const tally = new Tally();

  it('the ten rules hold in 200 random schedules', function () {
    this.timeout(300_000);
    let responses = 0;
    for (let seed = 0; seed < 200; seed++) {
      const size = sizeOf(seed);
      const plan = makePlan(seed, size);
      const outcome = simulate(plan, makeSteps(plan, size));
      expect(outcome.failure, `seed ${seed}: npm run simulate -- --seed ${seed}`).to.equal(undefined);
      responses += outcome.responses;
      tally.add(outcome.tally);
    }
    expect(responses, 'something was checked').to.be.above(5000);
  });

  it('all that the rules are about occurs in them', () => {
    const rare = [...leastOf].filter(([event, least]) => (tally.counts.get(event) ?? 0) < least);
    expect(rare.map(([event]) => `${event}: ${tally.counts.get(event) ?? 0}`)).to.deep.equal([]);
  });

  it('a seed gives the same run, to the millisecond and the byte', () => {
    const run = (): string[] => {
      const size = sizeOf(9);
      const plan = makePlan(9, size);
      // Nonces are unique in the process.
      return simulate(plan, makeSteps(plan, size), true).transcript.map((line) => line.replace(/#\d+/, '#'));
    };
    expect(run()).to.deep.equal(run());
  });
});
