import { Agent, request as http, type IncomingMessage } from 'node:http';
import { text } from 'node:stream/consumers';
import { create, toBinary } from '@bufbuild/protobuf';
import { AnySchema } from '@bufbuild/protobuf/wkt';
import { expect } from 'chai';
import { DiscoveryResponseSchema } from '../../src/gen/envoy/service/discovery/v3/discovery_pb.ts';
import { jsonToBytes } from '../../src/wire/registry.ts';
import { eventually } from '../e2e/support/eventually.ts';
import { manyResources, ResourceFiles } from '../e2e/support/files.ts';
import { cpuSeconds } from '../e2e/support/process-figures.ts';
import { RelayProcess } from '../e2e/support/relay.ts';
import { slower } from '../support/cpu.ts';
import { type } from '../support/in-memory-relay.ts';

const MB = 1024 * 1024;

/** A poll with a node in which nobody reads what takes so many bytes. */
const empties = (bytes: number, id = 'attacker'): string =>
  `{"node":{"id":"${id}","metadata":{"a":[${'{},'.repeat((bytes - 60) / 3)}{}]}}}`;

/** What a peer's polls may cost: judged by the CPU time and the memory of the relay's own process. */
describe('polls that cost more than they should', function () {
  this.timeout(300_000);
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

  const poll = async (body: string, of = 'clusters') => {
    const [hostname, port] = relay.rest.split(':');
    const headers = { 'content-type': 'application/json', 'content-length': body.length };
    const sent = http({ hostname, port, path: `/v3/discovery:${of}`, method: 'POST', agent, headers });
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
    expect((cpuSeconds(relay.pid) - before) / slower()).to.be.below(2);
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
    for (let at = 0; at < 60; at++) expect((await poll(names(`z${at}`))).status).to.equal(200);
    // With a body for each: 2 MB each.
    await eventually(async () => expect((await relay.memory()).used - before.used).to.be.below(30 * MB));
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

  describe('by the JSON of large resources', () => {
    const startWith = async (bytes: number, limits: Readonly<Record<string, unknown>> = {}) => {
      files.writeText('eds.pb', largeEndpoints(bytes));
      relay = await RelayProcess.startProbed({
        upstreams: [files.upstream],
        rest: {},
        limits: { subscription_changes_per_second: 10_000, ...limits },
      });
      // What runs for the first time is compiled, and the Envoy API is loaded.
      for (let at = 0; at < 20; at++) await poll(names('warm', `w${at}`), 'endpoints');
      await relay.blocked();
    };
    const names = (...list: readonly string[]): string =>
      JSON.stringify({ node: { id: 'a' }, resource_names: list });

    it('100 polls at once, each with a large resource and a name of its own: it is converted once', async () => {
      await startWith(MB);
      const before = cpuSeconds(relay.pid);
      const answers = await Promise.all(
        Array.from({ length: 100 }, (_, at) => poll(names('big', `u${at}`), 'endpoints')),
      );
      const { cpu } = await relay.blocked();
      // In one piece each they take 150 ms in a turn, and 13 s in all.
      const factor = slower();
      expect(cpu / factor).to.be.below(120);
      expect((cpuSeconds(relay.pid) - before) / factor).to.be.below(5);
      const taken = answers.filter(({ status }) => status === 200);
      expect(taken.length).to.be.above(5);
      for (const { body } of taken) expect(body.length).to.be.above(MB);
      // The others would hold too much.
      for (const { status, body } of answers)
        if (status !== 200) expect([status, body]).to.deep.equal([429, held(body)]);
    });

    it('a resource of 8 MB: it is converted in slices', async () => {
      await startWith(8 * MB);
      const { status, body } = await poll(names('big'), 'endpoints');
      expect(status).to.equal(200);
      expect((await relay.blocked()).cpu / slower()).to.be.below(120);
      expect(JSON.parse(body)).to.have.property('resources');
      expect(body.match(/"healthStatus"/g)).to.have.length(endpointsOf(8 * MB));
    });

    it('a body of more than limits.max_response_bytes is refused, and the limit is named', async () => {
      await startWith(2 * MB, { max_response_bytes: 3 * MB });
      const { status, body } = await poll(names('big'), 'endpoints');
      expect(status).to.equal(429);
      expect(body).to.contain('limits.max_response_bytes');
      expect((await relay.blocked()).cpu / slower()).to.be.below(120);
    });
  });
});

const endpointBytes = 25;
const endpointsOf = (bytes: number): number => Math.floor(bytes / endpointBytes);

/** A file of EDS with a cluster of so many bytes, in endpoints as they are in the field. */
function largeEndpoints(bytes: number): Uint8Array {
  const endpoint = (path: string) => ({
    endpoint: { address: { pipe: { path } } },
    health_status: 'HEALTHY',
    load_balancing_weight: 1,
  });
  const url = type('eds');
  const body = (count: number, path: string): Uint8Array => {
    const json = {
      cluster_name: 'big',
      endpoints: [{ lb_endpoints: Array.from({ length: count }, () => endpoint(path)) }],
    };
    const encoded = jsonToBytes('envoy.config.endpoint.v3.ClusterLoadAssignment', json);
    if (!encoded.ok) throw new Error(encoded.error[0]?.message);
    return encoded.value;
  };
  const value = body(endpointsOf(bytes), '/'.repeat(8));
  return toBinary(
    DiscoveryResponseSchema,
    create(DiscoveryResponseSchema, {
      typeUrl: url,
      resources: [create(AnySchema, { typeUrl: url, value })],
    }),
  );
}

const held = (body: string): string =>
  body.includes('limits.max_held_bytes_per_peer') ? body : 'would hold too much';

const tooMany = (body: string): string => (body.includes('values') ? body : 'more than so many values');
