import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { create, toBinary } from '@bufbuild/protobuf';
import { Code as ConnectCode, ConnectError, createClient } from '@connectrpc/connect';
import { createConnectTransport, createGrpcTransport, Http2SessionManager } from '@connectrpc/connect-node';
import type { Client } from '@grpc/grpc-js';
import { expect } from 'chai';
import { AggregatedDiscoveryService } from '../../src/gen/envoy/service/discovery/v3/ads_pb.ts';
import { DeltaDiscoveryRequestSchema } from '../../src/gen/envoy/service/discovery/v3/discovery_pb.ts';
import { ClientStatusDiscoveryService } from '../../src/gen/envoy/service/status/v3/csds_pb.ts';
import { ADS_SERVICE } from '../../src/model/types.ts';
import { Code } from '../../src/wire/grpc-status.ts';
import { slower } from '../support/cpu.ts';
import { nextMessage, openCall, rawClient, statusOf } from '../support/grpc-calls.ts';
import { type } from '../support/in-memory-relay.ts';
import { clientStatus, namesOf, safeRegex, unary } from './support/csds.ts';
import { eventually } from './support/eventually.ts';
import { manyResources, ResourceFiles } from './support/files.ts';
import { RelayProcess } from './support/relay.ts';
import { XdsClient } from './support/xds-client.ts';

const csds = '/envoy.service.status.v3.ClientStatusDiscoveryService';
const health = '/grpc.health.v1.Health';
const ads = `/${ADS_SERVICE}/DeltaAggregatedResources`;
const empty = Buffer.alloc(0);

/** The first request of a node whose id no pattern of many repetitions is done with soon. */
const slowToMatch = (index: number) =>
  create(DeltaDiscoveryRequestSchema, {
    node: { id: `${'a'.repeat(500)}${index}` },
    typeUrl: type('cds'),
    resourceNamesSubscribe: [[...manyResources(1).keys()][0] ?? ''],
  });
/** Milliseconds of CPU. */
const promptly = 400;
const resources = 20_000;

describe('attacks by CSDS and health on a relay', () => {
  let files: ResourceFiles;
  let relay: RelayProcess;
  let victim: XdsClient;
  let prober: Client;

  /** Of minutes: what a busy machine sends late does not end for that. */
  const configWith = (stalled_timeout: string) => ({
    upstreams: [files.upstream],
    limits: { stalled_timeout, first_request_timeout: '120s', max_response_bytes: 6_200_000 },
  });

  before(async () => {
    files = new ResourceFiles();
    files.write('cds', new Map([...manyResources(resources)].map(([name]) => [name, 'x'.repeat(100)])));
    relay = await RelayProcess.startProbed(configWith('120s'));
    victim = new XdsClient(relay.xds, 'delta', { node: { id: 'victim' } });
    victim.subscribe('cds');
    await victim.gets('cds');
    prober = rawClient(relay.xds);
  });

  after(async () => {
    prober?.close();
    await victim?.[Symbol.asyncDispose]();
    await relay?.[Symbol.asyncDispose]();
    files?.[Symbol.dispose]();
  });

  async function failure(answer: Promise<unknown>): Promise<{ code: number; details: string }> {
    try {
      await answer;
    } catch (error) {
      const { code, details } = error as { code: number; details: string };
      return { code, details: decodeURIComponent(details) };
    }
    throw new Error('it was answered');
  }

  /** What comes of an attack. Meanwhile Check is answered, and nothing blocks the relay for long. */
  async function during<T>(attack: Promise<T>): Promise<T> {
    await relay.blocked();
    const progress = { over: false };
    const ended = attack.finally(() => {
      progress.over = true;
    });
    while (!progress.over) await Promise.race([unary(prober, `${health}/Check`, empty), ended]);
    const outcome = await ended;
    const { cpu } = await relay.blocked();
    expect(cpu / slower(), 'the longest that the event loop stood still').to.be.below(promptly);
    return outcome;
  }

  it('a pattern that RE2 would make 36,000 instructions of, eight times: INVALID_ARGUMENT, and nobody waits', async () => {
    const bombs = [
      'x{1000}'.repeat(36),
      `(${'a'.repeat(245)}){1000}`,
      'x{1000}'.repeat(1000),
      `(?i)${'\\pL'.repeat(84)}`,
    ];
    for (const bomb of bombs) {
      const nodeMatchers = Array.from({ length: 8 }, () => safeRegex(bomb));
      const { code, details } = await during(failure(clientStatus(victim.connection, { nodeMatchers })));
      expect(code, details).to.equal(Code.INVALID_ARGUMENT);
      expect(details).to.match(/^node_matchers: safe_regex: .* at most (256|500) are accepted$/);
    }
    const many = Array.from({ length: 9 }, () => safeRegex('victim'));
    const { code, details } = await failure(clientStatus(victim.connection, { nodeMatchers: many }));
    expect([code, details]).to.deep.equal([
      Code.INVALID_ARGUMENT,
      'node_matchers: expected at most 8, got 9',
    ]);
    const few = { nodeMatchers: many.slice(1), excludeResourceContents: true };
    expect(await clientStatus(victim.connection, few)).to.have.length(1);
  });

  it('two million matchers in a request of 4 MiB: refused by its size', async () => {
    const request = Buffer.alloc(4 << 20);
    for (let at = 0; at < request.length; at += 2) request[at] = 0x0a;
    const { code } = await during(failure(unary(victim.connection, `${csds}/FetchClientStatus`, request)));
    expect(code).to.equal(Code.RESOURCE_EXHAUSTED);
  });

  it('an empty request that would be answered with more than limits.max_response_bytes: RESOURCE_EXHAUSTED, which says how to get less', async () => {
    const { code, details } = await during(failure(clientStatus(victim.connection)));
    expect(code).to.equal(Code.RESOURCE_EXHAUSTED);
    expect(details)
      .to.include('larger than 6200000 bytes')
      .and.include('limits.max_response_bytes')
      .and.include('exclude_resource_contents')
      .and.include('node_matchers');
    const within = await during(clientStatus(victim.connection, { excludeResourceContents: true }));
    expect(namesOf(within)).to.have.length(resources);
  });

  it('the same by Connect, which is written in one go: at most 1 MiB', async () => {
    const sessionManager = new Http2SessionManager(`http://${relay.xds}`, { idleConnectionTimeoutMs: 100 });
    const options = { baseUrl: `http://${relay.xds}`, sessionManager };
    const grpc = createGrpcTransport(options);
    const json = createConnectTransport({ ...options, httpVersion: '2', useBinaryFormat: false });
    const leave = new AbortController();
    const subscribes = (async function* () {
      yield { node: { id: 'attacker' }, typeUrl: type('cds') };
      await once(leave.signal, 'abort');
    })();
    const discovery = createClient(AggregatedDiscoveryService, grpc);
    const stream = discovery.deltaAggregatedResources(subscribes, { signal: leave.signal });
    await stream[Symbol.asyncIterator]().next();
    const client = createClient(ClientStatusDiscoveryService, json);
    const error = await during(client.fetchClientStatus({}).catch((refusal: unknown) => refusal));
    expect(error).to.be.instanceOf(ConnectError).and.to.have.property('code', ConnectCode.ResourceExhausted);
    leave.abort();
  });

  it('clients that hang up while their answer is made: nothing stays reserved for them', async () => {
    await using attacker = new XdsClient(relay.xds, 'delta', { node: { id: 'attacker' } });
    attacker.subscribe('cds');
    await attacker.gets('cds');
    const withoutContents = Buffer.of(0x18, 0x01);
    for (let round = 0; round < 24; round++) {
      const call = openCall(attacker.connection, `${csds}/FetchClientStatus`);
      const ended = statusOf(call);
      call.end(withoutContents);
      await new Promise((resolve) => setTimeout(resolve, 2 + round * 2));
      call.cancel();
      await ended;
    }
    const request = { excludeResourceContents: true };
    await eventually(async () => {
      expect(namesOf(await clientStatus(victim.connection, request))).to.have.length(resources);
    });
  });

  it('node ids and patterns that take long to compare: nobody waits', async () => {
    const open = Array.from({ length: 32 }, (_, index) => {
      const one = openCall(victim.connection, ads);
      one.write(Buffer.from(toBinary(DeltaDiscoveryRequestSchema, slowToMatch(index))));
      return one;
    });
    await Promise.all(open.map((one) => nextMessage(one)));
    const nodeMatchers = Array.from({ length: 8 }, () => safeRegex('a{0,160}a{0,160}a{0,160}'));
    await during(clientStatus(victim.connection, { nodeMatchers, excludeResourceContents: true }));
    for (const one of open) one.cancel();
  });

  it('calls by the dozen: a peer has four at once, the others are RESOURCE_EXHAUSTED', async () => {
    const request = { excludeResourceContents: true };
    // All are there before the first is answered, however late this process sends them.
    relay.signal('SIGSTOP');
    const calls = Array.from({ length: 12 }, () =>
      clientStatus(victim.connection, request).then(
        () => 'answered',
        (error: unknown) => (error as { code: number }).code,
      ),
    );
    await sleep(200);
    relay.signal('SIGCONT');
    const outcomes = await during(Promise.all(calls));
    const answered = outcomes.filter((outcome) => outcome === 'answered').length;
    expect(answered).to.be.within(1, 6);
    expect(outcomes.filter((outcome) => outcome === Code.RESOURCE_EXHAUSTED)).to.have.length(12 - answered);
  });

  it('answers that nobody reads, and requests that never end, are over after limits.stalled_timeout', async () => {
    relay.configure(configWith('2s'));
    await relay.says(/configuration reloaded/, 1);
    const silent = rawClient(relay.xds);
    try {
      const unread = openCall(victim.connection, `${csds}/StreamClientStatus`);
      const ended = statusOf(unread);
      unread.write(Buffer.from([0x18, 1])); // exclude_resource_contents
      await new Promise((resolve) => unread.once('metadata', resolve));
      unread.pause();
      const half: Promise<{ code: number }>[] = [];
      await eventually(async () => {
        half.push(statusOf(openCall(silent, `${csds}/StreamClientStatus`)));
        expect((await failure(clientStatus(prober))).code).to.equal(Code.RESOURCE_EXHAUSTED);
      });
      for (const { code } of await Promise.all(half)) expect(code).to.equal(Code.RESOURCE_EXHAUSTED);
      unread.resume();
      expect((await ended).code).to.not.equal(Code.OK);
      await eventually(async () => expect(await clientStatus(prober)).to.deep.equal([]));
      expect(await relay.metric('downstream_rejected_total', 'reason="stalled"')).to.be.at.least(2);
    } finally {
      silent.close();
      relay.configure(configWith('120s'));
      await relay.says(/configuration reloaded/, 2);
    }
  });

  it('answers of one call that are read, one after the other: nothing of them stays held', async () => {
    await using small = await RelayProcess.start({
      upstreams: [files.upstream],
      limits: { max_held_bytes_per_peer: 8_000_000 },
    });
    const client = rawClient(small.xds);
    const subscriber = openCall(client, ads);
    const asks = openCall(client, `${csds}/StreamClientStatus`);
    try {
      const names = [...manyResources(1000).keys()];
      const request = create(DeltaDiscoveryRequestSchema, {
        node: { id: 'reader' },
        typeUrl: type('cds'),
        resourceNamesSubscribe: names,
      });
      subscriber.write(Buffer.from(toBinary(DeltaDiscoveryRequestSchema, request)));
      await nextMessage(subscriber);
      const held = (): Promise<number> => small.metric('peer_held_bytes');
      const before = await held();
      const ended = statusOf(asks).then(({ details }) => {
        throw new Error(details);
      });
      let bytes = 0;
      while (bytes < 12_000_000) {
        const answer = nextMessage(asks);
        asks.write(empty);
        bytes += (await Promise.race([answer, ended])).length;
      }
      await eventually(async () => expect(await held()).to.be.most(before));
    } finally {
      asks.cancel();
      subscriber.cancel();
      client.close();
    }
  });

  it('1,000 watches: past 100 a peer is refused, and Check and List always answer', async () => {
    const attacker = rawClient(relay.xds);
    try {
      const calls = Array.from({ length: 1000 }, () => openCall(attacker, `${health}/Watch`));
      const answers = calls.map((call) =>
        Promise.race([
          nextMessage(call).then(() => 'answered'),
          statusOf(call).then(({ code }): number => code),
        ]),
      );
      for (const call of calls) call.end(empty);
      const outcomes = Map.groupBy(await during(Promise.all(answers)), (outcome) => outcome);
      expect([...outcomes].map(([outcome, { length }]) => [outcome, length])).to.have.deep.members([
        ['answered', 100],
        [Code.RESOURCE_EXHAUSTED, 900],
      ]);
      expect((await unary(attacker, `${health}/List`, empty)).length).to.be.above(0);
      expect((await unary(attacker, `${health}/Check`, empty)).length).to.be.above(0);
    } finally {
      attacker.close();
    }
  });

  it('1,000 half-sent checks: Check answers the same peer', async () => {
    const attacker = rawClient(relay.xds);
    try {
      const calls = Array.from({ length: 1000 }, () => openCall(attacker, `${health}/Check`));
      await during(Promise.all(calls.slice(0, 900).map(statusOf)));
      for (let asked = 0; asked < 50; asked++) await unary(prober, `${health}/Check`, empty);
    } finally {
      attacker.close();
    }
  });

  it('through all of it the victim kept its stream', () => {
    expect(victim.status).to.equal(undefined);
    // That it stood still on a busy machine is none. `during` goes by its CPU time.
    expect(relay.faults()).to.deep.equal([]);
  });
});
