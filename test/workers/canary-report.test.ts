import { expect } from 'chai';
import { placeOf } from '../../src/model/node-path.ts';
import { elect, type Member } from '../../src/rollout/canaries.ts';
import { reportOf } from '../../src/workers/reporters.ts';
import { surveyOf } from '../../src/workers/workers-fleet.ts';
import { Random } from '../support/random.ts';

describe('the report of a worker', () => {
  it('leads to the same election as all members would', () => {
    const sets = [new Set(['cds a']), new Set(['cds b', 'cds c']), new Set(['cds a', 'cds c'])];
    for (let seed = 1; seed <= 200; seed++) {
      const random = new Random(seed);
      const workers = [0, 1].map((worker) =>
        Array.from({ length: 30 }, (_, index): Member => {
          const subscribed = new Set(sets.filter(() => random.next() < 0.5));
          return {
            nodeId: `n${worker}-${index}`,
            mayBeCanary: true,
            place: placeOf(`n${worker}-${index}`),
            classKey: random.next() < 0.5 ? 'prod' : 'test',
            side: random.next() < 0.03 ? 'canary' : 'released',
            subscribed: subscribed.size === 0 ? new Set(sets.slice(0, 1)) : subscribed,
          };
        }),
      );
      const reports = workers.map((members) =>
        reportOf({ complete: true, members, canaries: [] }, 1, [], new Set()),
      );
      for (const { members } of reports) expect(members.length).to.be.lessThan(30);
      const { members } = surveyOf(reports);
      expect(elect(members), `seed ${seed}`).to.have.members(elect(workers.flat()));
    }
  });
});
