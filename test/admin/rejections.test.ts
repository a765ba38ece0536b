import { setImmediate } from 'node:timers/promises';
import { expect } from 'chai';
import { waveClients } from '../../src/admin/client-list.ts';
import { fleetSurvey } from '../../src/admin/fleet-survey.ts';
import { systemClock } from '../../src/model/clock.ts';
import { Pace, TimeSlices } from '../../src/model/time-slices.ts';
import { InMemoryRelay, node } from '../support/in-memory-relay.ts';

function setUp() {
  const lab = new InMemoryRelay();
  /** A stream that has rejected each of these endpoints alone (protocol §3.12). */
  const rejects = (names: readonly string[]): void => {
    const client = lab.delta();
    client.send('eds', { node: node(), resourceNamesSubscribe: [...names] });
    client.blocked = true;
    // One after the other: answers to what is long outstanding count no more.
    for (let open = client.received(); open.length > 0; client.readOne(), open = client.received())
      for (const response of open) client.nack('eds', response);
  };
  return { lab, rejects };
}

const namesOf = (count: number): readonly string[] => Array.from({ length: count }, (_, at) => `name-${at}`);

/** How often the event loop turns until it is there. */
async function turnsUntil(answer: Promise<unknown>): Promise<number> {
  let turns = 0;
  for (;;) {
    const turn = setImmediate('turn');
    if ((await Promise.race([answer, turn])) !== 'turn') break;
    turns++;
  }
  return turns;
}

describe('rejections of clients', () => {
  it('are looked at in slices, however many one stream has', async () => {
    const { lab, rejects } = setUp();
    const names = namesOf(3000);
    lab.full('eds', Object.fromEntries(names.map((name) => [name, '1'])));
    rejects(names);
    const survey = fleetSurvey(lab.relay, new TimeSlices(systemClock), lab.clock);
    expect(await turnsUntil(survey())).to.be.above(2);
  });

  it('so are the waves of all clients', async () => {
    const streams = Array.from({ length: 50 }, (_, at) => ({ id: String(at), client: undefined }));
    const waveOf = () => {
      for (const until = performance.now() + 1; performance.now() < until; );
      return { wave: 1, waves: 1, answer: 'ACCEPTED' };
    };
    const counted = waveClients(streams, waveOf, new Pace(systemClock));
    expect(await turnsUntil(counted)).to.be.above(2);
    expect((await counted)[0]).to.include({ clients: 50, accepted: 50 });
  });
});
