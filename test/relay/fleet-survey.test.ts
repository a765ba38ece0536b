import { expect } from 'chai';
import { fleetSurvey } from '../../src/admin/fleet-survey.ts';
import { systemClock } from '../../src/model/clock.ts';
import { TimeSlices } from '../../src/model/time-slices.ts';
import { InMemoryRelay, node, put, type, when } from '../support/in-memory-relay.ts';

const minute = 60_000;

function setUp() {
  const lab = new InMemoryRelay();
  const survey = fleetSurvey(lab.relay, new TimeSlices(systemClock), lab.clock);
  const problems = async (kind: string) => {
    lab.clock.advance(1000); // an answer is good for a second
    return (await survey()).problems.filter((problem) => problem.kind === kind);
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

  describe('since when something is missing', () => {
    const at = (milliseconds: number): string => new Date(milliseconds).toISOString();
    const hour = 60 * minute;
    const sinceOf = async (problems: (kind: string) => Promise<readonly { name: string; since: string }[]>) =>
      Object.fromEntries((await problems('MISSING')).map(({ name, since }) => [name, since]));

    it('a name: since upstream has answered, or has removed it; other changes do not move it', async () => {
      const { lab, problems } = setUp();
      lab.delta().send('eds', { node: node(), resourceNamesSubscribe: ['here', 'later'] });
      lab.clock.advance(minute);
      const answered = lab.clock.now();
      lab.full('eds', { here: '1' });
      lab.clock.advance(hour);
      lab.full('eds', { here: '2' });
      expect(await sinceOf(problems)).to.deep.equal({ later: at(answered) });
      lab.clock.advance(hour);
      const removed = lab.clock.now();
      lab.full('eds', {});
      expect(await sinceOf(problems)).to.deep.equal({ later: at(answered), here: at(removed) });
    });

    it('a client that subscribes to more has missed the first since it did so', async () => {
      const { lab, problems } = setUp();
      const client = lab.delta();
      client.send('eds', { node: node(), resourceNamesSubscribe: ['a', '*'] });
      lab.full('eds', {});
      client.ack('eds', client.one());
      lab.full('cds', {});
      lab.clock.advance(hour);
      client.send('eds', { resourceNamesSubscribe: ['b'] });
      const second = lab.clock.now();
      lab.full('eds', {});
      expect(await sinceOf(problems)).to.deep.equal({ a: at(second), b: at(second) });
    });

    it('of several clients of a class the earliest that is still there', async () => {
      const { lab, problems } = setUp();
      const first = lab.clock.now();
      const client = lab.delta();
      client.send('eds', { node: node(), resourceNamesSubscribe: ['a'] });
      lab.full('eds', { other: '1' });
      lab.clock.advance(hour);
      const second = lab.clock.now();
      lab.delta().send('eds', { node: node(), resourceNamesSubscribe: ['a', 'other'] });
      expect(await sinceOf(problems)).to.deep.equal({ a: at(first) });
      client.end({ code: 0, message: '' });
      expect(await sinceOf(problems)).to.deep.equal({ a: at(second) });
    });

    it('a wildcard: since its answer, or since the last resource has gone', async () => {
      const { lab, problems } = setUp();
      lab.delta().send('eds', { node: node(), resourceNamesSubscribe: ['*'] });
      lab.delta().send('eds', { node: node({ env: 'test' }), resourceNamesSubscribe: ['*'] });
      const answered = lab.clock.now();
      const only = put(type('eds'), 'a', '1', { constraints: when({ env: 'test' }) });
      lab.says({ type: type('eds'), puts: [only], complete: true });
      lab.clock.advance(hour);
      expect(await sinceOf(problems)).to.deep.equal({ '*': at(answered) });
      const changed = lab.clock.now();
      const other = put(type('eds'), 'a', '1', { constraints: when({ env: 'prod' }) });
      lab.says({ type: type('eds'), puts: [other], complete: true });
      lab.clock.advance(hour);
      expect((await problems('MISSING')).map(({ since }) => since).toSorted()).to.deep.equal([
        at(answered),
        at(changed),
      ]);
    });
  });

  it('a class with any number of problems leaves others their places', async () => {
    const { lab, problems } = setUp();
    const names = Array.from({ length: 6000 }, (_, at) => `name-${at}`);
    for (let client = 0; client < 2; client++)
      lab.delta().send('eds', { node: node({ env: 'prod' }), resourceNamesSubscribe: names });
    lab.delta().send('eds', { node: node({ env: 'test' }), resourceNamesSubscribe: ['own'] });
    lab.clock.advance(0);
    lab.full('eds', {});
    const listed = await problems('MISSING');
    expect(listed).to.have.length(100);
    expect(listed.map(({ name }) => name)).to.include('own');
  });

  it('classes count their streams, and those that reject', async () => {
    const { lab, survey } = setUp();
    const [good, bad] = [lab.sotw(), lab.sotw()];
    for (const client of [good, bad]) client.send('cds', { node: node() });
    lab.full('cds', { a: '1' });
    good.ack('cds', good.one());
    bad.nack('cds', bad.one());
    const { classes, streams } = await survey();
    expect(streams).to.equal(2);
    expect(classes).to.have.length(1);
    expect(classes[0]).to.include({ streams: 2, rejecting: 1 });
    expect(classes[0]?.subscriptions).to.deep.equal([{ type: 'cds', name: '*' }]);
  });
});
