import { expect } from 'chai';
import type { ResourceName } from '../../src/model/brand.ts';
import { placeOf } from '../../src/model/node-path.ts';
import { elect, type Member } from '../../src/releases/canaries.ts';
import type { CanaryStream, Standing, Survey } from '../../src/releases/waiting.ts';
import type { Message } from '../../src/workers/ipc-messages.ts';
import { CanaryReporter, reportOf, surveyOf } from '../../src/workers/reporters.ts';
import { type } from '../support/in-memory-relay.ts';
import { Random } from '../support/random.ts';
import { VirtualClock } from '../support/virtual-clock.ts';

describe('the report of a worker', () => {
  it('leads to the same election as all members would', () => {
    const sets = [new Set(['cds a']), new Set(['cds b', 'cds c']), new Set(['cds a', 'cds c'])];
    for (let seed = 1; seed <= 200; seed++) {
      const random = new Random(seed);
      const workers = [0, 1].map((worker) =>
        Array.from({ length: 30 }, (_, index): Member => {
          const subscribed = new Set(sets.filter(() => random.next() < 0.5));
          return {
            nodeKey: `n${worker}-${index}`,
            mayBeCanary: true,
            place: placeOf(`n${worker}-${index}`),
            classKey: random.next() < 0.5 ? 'prod' : 'test',
            cohort: random.next() < 0.03 ? 'canary' : 'released',
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

  it('names a stream that has rejected something as long as it lists it: the primary forgets it then', () => {
    const clock = new VirtualClock();
    const reports: Message<'canary_report'>[] = [];
    let canaries: readonly CanaryStream[] = [];
    const fleet = {
      waitingChanged: () => {},
      over: () => {},
      survey: (): Survey => ({ complete: true, members: [], canaries }),
    };
    const reporter = new CanaryReporter(fleet, clock, (message) => {
      if (message.kind === 'canary_report') reports.push(message);
    });
    const listed = (...kinds: readonly Standing['kind'][]): readonly string[] => {
      canaries = kinds.map((kind) => ({
        ...{ stream: '1-1', node: 'envoy', classKey: 'prod', names: [] },
        standing: kind === 'rejected' ? { kind, reason: '', names: new Set(), isFinal: true } : { kind },
      }));
      clock.advance(1000);
      return reports.at(-1)?.canaries.map(({ stream }) => stream) ?? [];
    };
    const waiting = new Map([[type('cds'), new Set<ResourceName>()]]);
    reporter.ask({ kind: 'waiting', round: 1, waiting });
    expect(listed('rejected')).to.deep.equal(['1-1']);
    reporter.ask({ kind: 'waiting', round: 2, waiting: new Map() });
    listed('accepted');
    reporter.ask({ kind: 'waiting', round: 3, waiting });
    expect(listed('accepted'), 'after a freeze').to.deep.equal(['1-1']);
    expect(listed('accepted')).to.deep.equal(['1-1']);
    expect(listed()).to.deep.equal([]);
    expect(listed('accepted')).to.deep.equal(['']);
  });
});
