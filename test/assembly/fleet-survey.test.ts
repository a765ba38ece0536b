import { expect } from 'chai';
import { FleetSurvey } from '../../src/inspect/fleet-survey.ts';
import { systemClock } from '../../src/model/clock.ts';
import { TimeSlices } from '../../src/model/time-slices.ts';
import { InMemoryRelay, node } from '../support/in-memory-relay.ts';

const minute = 60_000;

function setUp() {
  const lab = new InMemoryRelay();
  const survey = new FleetSurvey(lab.relay, new TimeSlices(systemClock), lab.clock);
  const problems = async (kind: string) => {
    lab.clock.advance(1000); // an answer is good for a second
    return (await survey.classes()).problems.filter((problem) => problem.kind === kind);
  };
  return { lab, survey, problems };
}

describe('a look at all streams', () => {
  it('an update that is not acknowledged for 30 s is late, from its arrival on', async () => {
    const { lab, problems } = setUp();
    const client = lab.sotw();
    client.send('cds', { node: node() });
    lab.full('cds', { a: '1' });
    client.ack('cds', client.one());
    lab.full('cds', { a: '2' }, '2');
    const response = client.one();
    expect(await problems('LATE')).to.be.empty;
    const sentAt = lab.clock.now() - 1000;
    lab.clock.advance(minute);
    const [late] = await problems('LATE');
    expect(late).to.include({ type: 'cds', clients: 1, since: new Date(sentAt).toISOString() });
    client.ack('cds', response);
    expect(await problems('LATE')).to.be.empty;
  });

  it('a first response is late 30 s after it was first seen unanswered', async () => {
    const { lab, problems } = setUp();
    const client = lab.sotw();
    client.send('cds', { node: node() });
    lab.full('cds', { a: '1' });
    lab.clock.advance(minute);
    expect(await problems('LATE')).to.be.empty;
    lab.clock.advance(minute);
    expect(await problems('LATE')).to.have.length(1);
    client.ack('cds', client.one());
    expect(await problems('LATE')).to.be.empty;
  });

  it('a name that upstream does not have is missing, until it comes', async () => {
    const { lab, problems } = setUp();
    const client = lab.delta();
    client.send('eds', { node: node(), resourceNamesSubscribe: ['here', 'later'] });
    expect(await problems('MISSING'), 'upstream has said nothing').to.be.empty;
    lab.full('eds', { here: '1' });
    const [missing, ...others] = await problems('MISSING');
    expect(missing).to.include({ type: 'eds', name: 'later', clients: 1 });
    expect(others).to.be.empty;
    lab.full('eds', { here: '1', later: '1' });
    expect(await problems('MISSING')).to.be.empty;
  });

  it('classes count their streams, and those that reject', async () => {
    const { lab, survey } = setUp();
    const [good, bad] = [lab.sotw(), lab.sotw()];
    for (const client of [good, bad]) client.send('cds', { node: node() });
    lab.full('cds', { a: '1' });
    good.ack('cds', good.one());
    bad.nack('cds', bad.one());
    const { classes, streams } = await survey.classes();
    expect(streams).to.equal(2);
    expect(classes).to.have.length(1);
    expect(classes[0]).to.include({ streams: 2, rejecting: 1, unacknowledged: 0 });
    expect(classes[0]?.subscriptions).to.deep.equal([{ type: 'cds', name: '*' }]);
  });
});
