import { Agent, request as http, type IncomingMessage } from 'node:http';
import { text } from 'node:stream/consumers';
import { expect } from 'chai';
import { manyResources, ResourceFiles } from '../e2e/support/files.ts';
import { cpuSeconds } from '../e2e/support/process-figures.ts';
import { RelayProcess } from '../e2e/support/relay.ts';

const MB = 1024 * 1024;

/** A poll with a node in which nobody reads what takes so many bytes. */
const empties = (bytes: number, id = 'attacker'): string =>
  `{"node":{"id":"${id}","metadata":{"a":[${'{},'.repeat((bytes - 60) / 3)}{}]}}}`;

/** What a peer's polls may cost: judged by the CPU time and the memory of the relay's own process. */
describe('polls that cost more than they should', function () {
  this.timeout(120_000);
  let files: ResourceFiles;
  let relay: RelayProcess;
  let agent: Agent;

  const start = async (limits: Readonly<Record<string, unknown>> = {}): Promise<void> => {
    relay = await RelayProcess.start(
      { upstreams: [files.upstream], rest: {}, limits },
      { flags: ['--max-old-space-size=128'] },
    );
    // What runs for the first time is compiled.
    for (let at = 0; at < 20; at++) await poll(empties(20_000, `warm-${at}`));
  };

  beforeEach(() => {
    files = new ResourceFiles();
    files.write('cds', new Map([['shop', '1']]));
    agent = new Agent({ keepAlive: true });
  });

  afterEach(async () => {
    agent.destroy();
    await relay?.[Symbol.asyncDispose]();
    files[Symbol.dispose]();
  });

  const poll = async (body: string) => {
    const [hostname, port] = relay.rest.split(':');
    const headers = { 'content-type': 'application/json', 'content-length': body.length };
    const sent = http({ hostname, port, path: '/v3/discovery:clusters', method: 'POST', agent, headers });
    const { promise, resolve, reject } = Promise.withResolvers<IncomingMessage>();
    sent.once('error', reject).once('response', resolve);
    sent.end(body);
    const answer = await promise;
    return { status: answer.statusCode, body: await text(answer) };
  };

  it('a poll of 4.19 MB of empty objects: 413, and those of 1 MB build nothing', async () => {
    await start();
    const large = await poll(empties(4.19e6));
    expect(large.status).to.equal(413);
    expect(JSON.parse(large.body)).to.include({ code: 'resource_exhausted' });
    expect(large.body).to.contain('limits.max_poll_bytes');
    const before = cpuSeconds(relay.pid);
    const answers = await Promise.all(Array.from({ length: 6 }, (_, at) => poll(empties(MB, `many-${at}`))));
    for (const { status, body } of answers) expect([status, body]).to.deep.equal([400, tooMany(body)]);
    for (let at = 0; at < 20; at++) expect((await poll(empties(500_000, `few-${at}`))).status).to.equal(200);
    // 16 MB, of which a parser that builds it makes 5 million objects in 8 s.
    expect(cpuSeconds(relay.pid) - before).to.be.below(2);
    expect((await poll('{"node":{"id":"other"}}')).status).to.equal(200);
  });

  it('classes that differ by invented names share a body, and are dropped', async () => {
    files.write('cds', manyResources(5000));
    relay = await RelayProcess.startMeasurable({
      upstreams: [files.upstream],
      rest: {},
      limits: { subscription_changes_per_second: 10_000 },
    });
    const names = (name: string): string => `{"node":{"id":"a"},"resource_names":["*","${name}"]}`;
    for (let at = 0; at < 10; at++) expect((await poll(names(`warm-${at}`))).status).to.equal(200);
    const before = await relay.memory();
    for (let at = 0; at < 300; at++) expect((await poll(names(`z${at}`))).status).to.equal(200);
    // With a body for each, and a gigabyte in the end: 2 MB each.
    expect((await relay.memory()).used - before.used).to.be.below(30 * MB);
  });

  it('a peer whose classes hold more than its share is refused, with the reason', async () => {
    files.write('cds', manyResources(1000));
    await start({ max_held_bytes_per_peer: 4 * MB });
    const [known = ''] = [...manyResources(1).keys()];
    const names = (at: number): string => {
      const list = Array.from({ length: 200 }, (_, index) =>
        known.replace('-0-', `-${(at * 7 + index) % 1000}-`),
      );
      return JSON.stringify({ node: { id: 'a' }, resource_names: list });
    };
    let answer = await poll(names(0));
    for (let at = 1; at < 50 && answer.status === 200; at++) answer = await poll(names(at));
    expect(answer.status).to.equal(429);
    expect(answer.body).to.contain('limits.max_held_bytes_per_peer');
  });

  it('bodies of 200 KB are charged, and before anything of them is read', async () => {
    await start({ subscription_changes_per_second: 4 });
    const statuses: (number | undefined)[] = [];
    for (let at = 0; at < 60 && !statuses.includes(429); at++) {
      statuses.push((await poll(empties(200_000, `charged-${at}`))).status);
    }
    expect(statuses.at(-1)).to.equal(429);
    // What is no JSON is not looked at either.
    expect((await poll('?'.repeat(900_000))).status).to.equal(429);
    expect(await relay.metric('downstream_rejected_total', 'reason="rate"')).to.be.at.least(2);
  });
});

const tooMany = (body: string): string => (body.includes('values') ? body : 'more than so many values');
