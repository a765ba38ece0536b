import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, connect as dial, type Socket, type Server as TcpServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { ServerCredentials, status } from '@grpc/grpc-js';
import { expect } from 'chai';
import { resourceName, typeUrl } from '../../../src/model/brand.ts';
import { systemClock } from '../../../src/model/clock.ts';
import { formatConstraints } from '../../../src/model/constraints.ts';
import { internParameters } from '../../../src/model/parameters.ts';
import { fail, ok } from '../../../src/model/result.ts';
import type { Interest, Restamp, Transaction } from '../../../src/model/transaction.ts';
import type { Log } from '../../../src/observe/log.ts';
import { AdsUpstream } from '../../../src/upstream/ads/ads-upstream.ts';
import type { AdsUpstreamOptions } from '../../../src/upstream/ads/connection.ts';
import type { Address } from '../../../src/wire/address.ts';
import { Code, codeName } from '../../../src/wire/grpc-status.ts';
import { issueCertificate } from '../../support/certificates.ts';
import { VirtualClock } from '../../support/virtual-clock.ts';
import { type AdsStream, ControlPlane, type Request } from './control-plane.ts';
import { contentOf, typeOf } from './responses.ts';

const cds = typeOf('cds');
const eds = typeOf('eds');

const address = (port: number): Address => ({ kind: 'tcp', host: '127.0.0.1', port });

function want(selector: string, parameters: Record<string, string> = {}, type = cds): Interest {
  return { type, selector: resourceName(selector), parameters: internParameters(Object.entries(parameters)) };
}

async function until(what: string, condition: () => boolean): Promise<void> {
  const end = Date.now() + 30_000;
  while (!condition()) {
    if (Date.now() > end) throw new Error(`waited in vain for: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

class Observed {
  readonly transactions: Transaction[] = [];
  readonly lines: string[] = [];
  readonly restamps: Restamp[] = [];
  /** How streams ended. */
  readonly ends: string[] = [];
  readonly refusals: { readonly reason: string; readonly arrivedAt: number | undefined }[] = [];
  readonly counts = { accepted: 0, rejected: 0, reconnects: 0, refused: 0 };

  get log(): Log {
    const line = (message: string, fields?: Readonly<Record<string, unknown>>): void => {
      this.lines.push(`${message} ${JSON.stringify(fields ?? {})}`);
    };
    const log: Log = { debug: line, info: line, warn: line, error: line, child: () => log };
    return log;
  }

  /** Content by name, of everything put and not removed. */
  get contents(): Record<string, string> {
    const contents = new Map<string, string>();
    for (const { puts, removals, complete } of this.transactions) {
      if (complete) contents.clear();
      for (const removal of removals) contents.delete(removal.name);
      for (const put of puts) contents.set(put.name, contentOf(put.any));
    }
    return Object.fromEntries(contents);
  }

  get settled(): string[] {
    return this.transactions.flatMap((transaction) => transaction.resolved.map(({ selector }) => selector));
  }
}

describe('an ADS upstream', () => {
  let running: (() => unknown)[] = [];
  let observed: Observed;

  beforeEach(() => {
    observed = new Observed();
  });

  afterEach(async () => {
    for (const stop of running.toReversed()) await stop();
    running = [];
  });

  async function controlPlane(port = 0, credentials?: ServerCredentials): Promise<ControlPlane> {
    const plane = await new ControlPlane().listen(port, credentials);
    running.push(() => plane.kill());
    return plane;
  }

  function start(
    part: Partial<AdsUpstreamOptions> & Pick<AdsUpstreamOptions, 'endpoints'>,
    restored: ReadonlySet<Interest> = new Set(),
  ): AdsUpstream {
    const options: AdsUpstreamOptions = {
      name: 'test',
      claims: { authorities: [], types: [], names: [] },
      protocol: 'DELTA',
      variants: 'PER_PARAMETERS',
      tls: undefined,
      connectTimeoutMs: 1000,
      resourceTimeoutMs: 1000,
      keepalive: { timeMs: 30_000, timeoutMs: 10_000 },
      backoff: { initialMs: 10, maxMs: 40 },
      failbackAfterMs: 150,
      rules: [],
      node: {
        id: 'relay',
        cluster: 'relays',
        metadata: { role: 'relay' },
        locality: { region: '', zone: '', subZone: '' },
      },
      version: '1.2.3',
      via: () => 'relay-1',
      maxConstraintDepth: 8,
      maxSessions: () => 100,
      clock: systemClock,
      random: () => 0.9,
      log: observed.log,
      metrics: {
        accepted: () => observed.counts.accepted++,
        rejected: (_, reason, arrivedAt) => {
          observed.counts.rejected++;
          observed.refusals.push({ reason, arrivedAt });
        },
        reconnect: () => observed.counts.reconnects++,
        streamEnd: (code) => observed.ends.push(codeName(code)),
        refused: () => observed.counts.refused++,
      },
      ...part,
    };
    const upstream = new AdsUpstream(options, {
      apply: (transaction) => observed.transactions.push(transaction),
      restamp: (restamp) => observed.restamps.push(restamp),
      changed: () => {},
      isRestored: (interest) => restored.has(interest) && !observed.settled.includes(interest.selector),
    });
    running.push(() => upstream.stop());
    upstream.start();
    return upstream;
  }

  /** Answers each first request of a wildcard with these items. */
  function serving(
    version: string,
    ...items: readonly string[]
  ): (stream: AdsStream, request: Request) => void {
    return (stream, request) => {
      if (request.responseNonce === '') stream.send(cds, version, ...items);
    };
  }

  it('is connected, and known to be, without any subscription', async () => {
    const plane = await controlPlane();
    const upstream = start({ endpoints: [address(plane.port)] });
    expect(upstream.state()).to.include({ connected: false, everConnected: false, sessions: 0 });
    await until('connected', () => upstream.state().connected);
    expect(upstream.state()).to.include({
      everConnected: true,
      down: false,
      staleSince: undefined,
      sessions: 0,
    });
    expect(upstream.state().endpoint).to.equal(`127.0.0.1:${plane.port}`);
    expect(plane.streams).to.have.length(0);
  });

  for (const protocol of ['SOTW', 'DELTA'] as const) {
    it(`§3.1 ${protocol}: the node goes with each request, as control planes that are made for Envoy expect`, async () => {
      const plane = await controlPlane();
      plane.answer = serving('1', 'a:1@1');
      const upstream = start({ endpoints: [address(plane.port)], protocol });
      upstream.subscribe(want('*'));
      await until('the acknowledgement', () => plane.requests.length === 2);
      const [first, second] = plane.requests;
      expect(first?.node).to.include({ id: 'relay', cluster: 'relays', userAgentName: 'distributary' });
      expect(first?.node?.metadata).to.deep.equal({ role: 'relay' });
      expect(first?.node?.userAgentVersionType).to.deep.equal({ case: 'userAgentVersion', value: '1.2.3' });
      expect(first?.node?.clientFeatures).to.deep.equal([
        'xds.config.resource-in-sotw',
        'xds.config.supports-resource-ttl',
        'distributary.unknown-names',
      ]);
      expect(second?.node).to.deep.equal(first?.node);
      expect(second?.responseNonce).to.equal('1');
      expect(plane.streams[0]?.metadata.get('x-distributary-via')).to.deep.equal(['relay-1']);
      expect(observed.contents).to.deep.equal({ a: '1' });
      expect(observed.counts.accepted).to.equal(1);
    });
  }

  it('a missing token is no end by the control plane: nothing is counted, and no type is suspected', async () => {
    const plane = await controlPlane();
    plane.answer = (stream, request) => {
      if (request.responseNonce === '') stream.send(typeUrl(request.typeUrl), '1', 'a:1@1', 'b:1@1');
    };
    const directory = mkdtempSync(join(tmpdir(), 'token-'));
    running.push(() => rmSync(directory, { recursive: true }));
    const tokenFile = join(directory, 'token');
    const upstream = start({ endpoints: [address(plane.port)], tokenFile });
    upstream.subscribe(want('*'));
    upstream.subscribe(want('a', {}, eds));
    await until('several tries', () => observed.counts.reconnects > 4);
    expect(upstream.state().lastError).to.include('token_file');
    writeFileSync(tokenFile, 'secret');
    await until('an answer', () => observed.settled.includes('a'));
    rmSync(tokenFile);
    observed.lines.splice(0);
    plane.openStreams[0]?.end();
    await until('a stream that is not opened', () =>
      observed.lines.some((line) => line.includes('token_file')),
    );
    writeFileSync(tokenFile, 'secret');
    await until('another stream', () => plane.openStreams.length === 1);
    expect(observed.ends).to.deep.equal(['OK']);
    expect(upstream.suspects()).to.deep.equal([]);
    expect(plane.streams).to.have.length(2);
  });

  it('subscriptions of one moment go out as one request', async () => {
    const plane = await controlPlane();
    const upstream = start({ endpoints: [address(plane.port)] });
    for (let index = 0; index < 100; index++) upstream.subscribe(want(`c${index}`));
    await until('a request', () => plane.requests.length > 0);
    upstream.subscribe(want('later'));
    await until('another one', () => plane.requests.length > 1);
    const [first, second] = plane.requests;
    expect(first).to.have.property('resourceNamesSubscribe').with.length(100);
    expect(second).to.have.deep.property('resourceNamesSubscribe', ['later']);
  });

  it('§5b a wildcard and names of one type have a stream each, other types share the first', async () => {
    const plane = await controlPlane();
    const upstream = start({ endpoints: [address(plane.port)] });
    upstream.subscribe(want('*'));
    upstream.subscribe(want('a'));
    upstream.subscribe(want('a', {}, eds));
    await until('three requests', () => plane.requests.length === 3);
    const types = plane.streams.map((stream) => stream.requests.map((request) => request.typeUrl));
    expect(types).to.deep.include.members([[cds, eds], [cds]]);
    expect(types).to.have.length(2);
  });

  it('ends a stream that nothing is subscribed on, and opens it again', async () => {
    const plane = await controlPlane();
    const upstream = start({ endpoints: [address(plane.port)] });
    upstream.subscribe(want('a'));
    await until('a stream', () => plane.openStreams.length === 1);
    upstream.unsubscribe(want('a'));
    await until('no stream', () => plane.openStreams.length === 0);
    expect(upstream.state()).to.include({ connected: true, sessions: 0 });
    upstream.subscribe(want('b'));
    await until('a stream', () => plane.openStreams.length === 1);
  });

  it('resumes after an outage, with what it holds, and logs once per change and not per retry', async () => {
    const plane = await controlPlane();
    plane.answer = serving('1', 'a:1@v1', 'b:1@v1');
    let later = 0;
    const clock = { ...systemClock, monotonic: () => systemClock.monotonic() + later };
    const upstream = start({ endpoints: [address(plane.port)], clock });
    upstream.subscribe(want('*'));
    await until('the whole wildcard', () => observed.settled.includes('*'));
    plane.kill();
    await until('retries', () => observed.counts.reconnects >= 5);
    expect(upstream.state()).to.include({ connected: false, everConnected: true, down: true });
    expect(upstream.state().staleSince).to.be.a('number');
    expect(upstream.state().lastError).to.contain('ECONNREFUSED');
    expect(observed.contents, 'an outage removes nothing').to.deep.equal({ a: '1', b: '1' });
    expect(observed.lines.filter((line) => line.startsWith('control plane failed'))).to.have.length.within(
      1,
      2,
    );

    later = 192_000;
    const again = await controlPlane(plane.port);
    again.answer = serving('2', '-b', 'c:1@v1');
    await until('the difference', () => observed.contents['c'] === '1');
    expect(again.requests[0]).to.have.deep.property('initialResourceVersions', { a: 'v1', b: 'v1' });
    expect(observed.contents).to.deep.equal({ a: '1', c: '1' });
    expect(upstream.state()).to.include({
      connected: true,
      down: false,
      staleSince: undefined,
      lastError: '',
    });
    const connected = observed.lines.filter((line) => line.startsWith('connected'));
    expect(connected.map((line) => /"after":"3 min 1\d s"/.test(line))).to.deep.equal([false, true]);
  });

  it('opens a stream again that the server ended, on the same connection', async () => {
    const plane = await controlPlane();
    plane.answer = serving('1', 'a:1@1');
    const upstream = start({ endpoints: [address(plane.port)] });
    upstream.subscribe(want('*'));
    await until('content', () => observed.contents['a'] === '1');
    plane.streams[0]?.end();
    await until('a new stream', () => plane.streams.length === 2);
    expect(upstream.state().connected).to.equal(true);
    expect(observed.counts.reconnects).to.equal(0);
  });

  it('a response that cannot be decoded ends the stream; one over 4 MiB is nothing special', async () => {
    const plane = await controlPlane();
    plane.answer = (stream, request) => {
      if (request.responseNonce !== '') return;
      if (plane.streams.length === 1) stream.sendRaw(Buffer.from([0x0a, 0xff, 0x01]));
      else
        stream.send(cds, '1', ...Array.from({ length: 25_000 }, (_, i) => `name-${i}:${'x'.repeat(110)}@1`));
    };
    const upstream = start({ endpoints: [address(plane.port)], resourceTimeoutMs: 15_000 });
    upstream.subscribe(want('*'));
    await until('everything', () => Object.keys(observed.contents).length === 25_000);
    expect(plane.streams).to.have.length(2);
  }).timeout(20_000);

  it('a malformed response is refused with a reason; the last good stays', async () => {
    const plane = await controlPlane();
    plane.answer = serving('1', 'a:1@1');
    const upstream = start({ endpoints: [address(plane.port)], protocol: 'SOTW' });
    upstream.subscribe(want('*'));
    await until('content', () => observed.contents['a'] === '1');
    plane.streams[0]?.send(cds, '2', 'a:2', 'b:1#lds');
    await until('the refusal', () => plane.requests.length === 3);
    const refusal = plane.requests[2];
    expect(refusal).to.include({ responseNonce: '2', versionInfo: '1' });
    expect(refusal?.errorDetail?.code).to.equal(Code.INVALID_ARGUMENT);
    expect(refusal?.errorDetail?.message).to.contain('"b"');
    expect(observed.contents).to.deep.equal({ a: '1' });
    expect(observed.counts).to.include({ accepted: 1, rejected: 1 });
    expect(observed.refusals).to.have.length(1);
    expect(observed.refusals[0]?.reason).to.equal(refusal?.errorDetail?.message);
    expect(observed.refusals[0]?.arrivedAt).to.be.a('number');
  });

  describe('a request that makes the control plane end the stream', () => {
    const poison = typeUrl('type.googleapis.com/istio.io.debug');
    const asksPoison = ({ typeUrl: asked }: Request): boolean => asked === poison;
    const answering = (stream: AdsStream, request: Request): void => {
      if (asksPoison(request)) stream.fail(status.UNAUTHENTICATED, 'not you');
      else if (request.responseNonce === '') stream.send(typeUrl(request.typeUrl), '1', 'a:1@1');
    };
    const backoff = { initialMs: 10, maxMs: 30_000 };

    it('is tried on a stream of its own, while the rest goes on', async () => {
      const plane = await controlPlane();
      plane.answer = answering;
      const upstream = start({ endpoints: [address(plane.port)], backoff });
      upstream.subscribe(want('*'));
      upstream.subscribe(want('b', {}, eds));
      await until('answers', () => observed.counts.accepted === 2);
      upstream.subscribe(want('*', {}, poison));
      await until('tries', () => plane.streams.length >= 5);
      const usual = plane.openStreams.filter(({ requests }) => !requests.some(asksPoison));
      expect(usual).to.have.length(1);
      expect(usual[0]?.requests.map((request) => request.typeUrl)).to.include.members([cds, eds]);
      const both = plane.streams.filter(({ requests }) => requests.some(asksPoison));
      expect(
        both.filter(({ requests }) => requests.length > 1),
        'never together',
      ).to.deep.equal([]);
      const { connected, lastError, refusedStreams } = upstream.state();
      const suspects = upstream.suspects();
      expect({ connected, refusedStreams }).to.deep.equal({ connected: true, refusedStreams: 1 });
      expect(lastError).to.include('not you');
      expect(suspects.map(({ type, reason }) => `${type} ${reason}`)).to.have.length(1);
      expect(suspects[0]).to.include({ type: poison });
      expect(suspects[0]?.reason).to.include('not you');
      expect(observed.ends).to.include('UNAUTHENTICATED');
      expect(observed.counts.reconnects).to.equal(0);
      upstream.unsubscribe(want('*', {}, poison));
      expect(upstream.suspects()).to.deep.equal([]);
      await until('no trouble', () => upstream.state().refusedStreams === 0);
    });

    it('is found among what was asked together with it, also by the first request', async () => {
      const plane = await controlPlane();
      plane.answer = answering;
      const upstream = start({ endpoints: [address(plane.port)], backoff });
      for (const type of ['lds', 'rds', 'sds']) upstream.subscribe(want('x', {}, typeOf(type)));
      upstream.subscribe(want('*', {}, poison));
      upstream.subscribe(want('*'));
      await until('answers', () => observed.counts.accepted >= 4);
      await until('it is found', () => upstream.suspects().length === 1);
      expect(upstream.suspects()[0]?.type).to.equal(poison);
      expect(plane.streams.length).to.be.at.most(20);
    });

    it('comes back from its own stream when that has lived for a while', async () => {
      const plane = await controlPlane();
      const known = typeOf('sds');
      plane.answer = (stream, request) => {
        if (request.typeUrl === known) stream.fail(status.UNAUTHENTICATED, 'not you');
        else answering(stream, request);
      };
      const upstream = start({ endpoints: [address(plane.port)], backoff: { initialMs: 10, maxMs: 300 } });
      upstream.subscribe(want('*'));
      await until('an answer', () => observed.counts.accepted === 1);
      upstream.subscribe(want('x', {}, known));
      await until('suspected', () => upstream.suspects().length === 1);
      plane.answer = serving('1', 'a:1@1');
      await until('acquitted', () => upstream.suspects().length === 0);
      await until('one stream', () => plane.openStreams.length === 1);
      await until('both are asked there', () =>
        [cds, known].every((type) => plane.openStreams[0]?.requests.some((one) => one.typeUrl === type)),
      );
    });

    it('comes back to the stream of the types that the relay does not know if it is one of them', async () => {
      const plane = await controlPlane();
      plane.answer = answering;
      const upstream = start({ endpoints: [address(plane.port)], backoff: { initialMs: 10, maxMs: 300 } });
      upstream.subscribe(want('*'));
      await until('an answer', () => observed.counts.accepted === 1);
      upstream.subscribe(want('*', {}, poison));
      await until('suspected', () => upstream.suspects().length === 1);
      plane.answer = serving('1', 'a:1@1');
      await until('acquitted', () => upstream.suspects().length === 0);
      await until('two streams', () => plane.openStreams.length === 2);
      expect(plane.openStreams[0], 'never ended').to.equal(plane.streams[0]);
    });
  });

  it('the wait for the next stream starts over only when one has lived for a while', async () => {
    const plane = await controlPlane();
    plane.answer = (stream, request) => {
      if (request.responseNonce === '') stream.send(cds, '1', 'a:1@1');
      else stream.end();
    };
    const upstream = start({ endpoints: [address(plane.port)], backoff: { initialMs: 20, maxMs: 30_000 } });
    const began = Date.now();
    upstream.subscribe(want('*'));
    await until('streams', () => plane.streams.length === 6);
    // 18 + 36 + 72 + 144 + 288 ms: each is answered, and ends.
    expect(Date.now() - began).to.be.at.least(500);
    expect(observed.ends.slice(0, 5)).to.deep.equal(Array.from({ length: 5 }, () => 'OK'));
  });

  it('SOTW: says how much it keeps of the last responses, which no bound of the cache has', async () => {
    const plane = await controlPlane();
    plane.answer = serving('1', ...Array.from({ length: 100 }, (_, each) => `a${each}:${'x'.repeat(100)}@1`));
    const upstream = start({ endpoints: [address(plane.port)], protocol: 'SOTW' });
    upstream.subscribe(want('*'));
    await until('content', () => observed.counts.accepted === 1);
    expect(upstream.keptBytes()).to.be.within(10_000, 50_000);
    upstream.unsubscribe(want('*'));
    expect(upstream.keptBytes()).to.equal(0);
  });

  describe('failover', () => {
    it('goes to the next endpoint at once, and back to the preferred one when it is well again', async () => {
      const preferred = await controlPlane();
      const other = await controlPlane();
      preferred.kill();
      other.answer = serving('o', 'a:other@1');
      const upstream = start({ endpoints: [address(preferred.port), address(other.port)] });
      upstream.subscribe(want('*'));
      upstream.subscribe(want('x', {}, eds));
      await until('content from the other', () => observed.contents['a'] === 'other');
      expect(upstream.state()).to.include({ down: false, endpoint: `127.0.0.1:${other.port}` });

      const back = await controlPlane(preferred.port);
      back.answer = serving('p', 'b:preferred@1');
      await until('content from the preferred', () => observed.contents['b'] === 'preferred');
      expect(back.requests[0], 'versions are worth nothing elsewhere').to.have.deep.property(
        'initialResourceVersions',
        {},
      );
      expect(other.openStreams).to.have.length(0);
      await until('the sweep', () => observed.contents['a'] === undefined);
      expect(upstream.state().endpoint).to.equal(`127.0.0.1:${preferred.port}`);
    });

    it('is down when one round over all endpoints has failed', async () => {
      const [a, b] = [await controlPlane(), await controlPlane()];
      a.kill();
      b.kill();
      const upstream = start({ endpoints: [address(a.port), address(b.port)] });
      await until('a failed round', () => upstream.state().down);
      expect(upstream.state()).to.include({ connected: false, everConnected: false });
    });

    it('an endpoint that takes connections and never speaks HTTP/2 fails by connect_timeout', async () => {
      const mute = await listening(createServer());
      running.push(() => mute.server.close());
      const plane = await controlPlane();
      plane.answer = serving('1', 'a:1@1');
      const upstream = start({
        endpoints: [address(mute.port), address(plane.port)],
        connectTimeoutMs: 100,
        resourceTimeoutMs: 200,
      });
      upstream.subscribe(want('*'));
      await until('content', () => observed.contents['a'] === '1');
    });

    for (const selector of ['*', 'name']) {
      it(`an endpoint that answers nothing to ${JSON.stringify(selector)} fails by resource_timeout`, async () => {
        const silent = await controlPlane();
        const plane = await controlPlane();
        plane.answer = serving('1', 'name:1@1');
        const upstream = start({
          endpoints: [address(silent.port), address(plane.port)],
          resourceTimeoutMs: 100,
          failbackAfterMs: 10_000,
        });
        upstream.subscribe(want(selector));
        await until('content', () => observed.contents['name'] === '1');
        expect(silent.requests.length).to.be.greaterThan(0);
        expect(observed.settled.slice(1), 'silence said nothing').to.deep.equal([]);
        expect(upstream.state().down).to.equal(false);
      });
    }

    it('a single endpoint that is silent about names is well, and the names are absent', async () => {
      const silent = await controlPlane();
      const upstream = start({ endpoints: [address(silent.port)], resourceTimeoutMs: 50 });
      upstream.subscribe(want('a'));
      await until('absence', () => observed.settled.includes('a'));
      expect(upstream.state()).to.include({ connected: true, down: false });
      expect(observed.counts.reconnects).to.equal(0);
    });

    it('names from before a restart have their whole time from the first word on another stream of the session', async () => {
      const plane = await controlPlane();
      const clock = new VirtualClock();
      const held = want('a');
      const upstream = start(
        { endpoints: [address(plane.port)], clock, resourceTimeoutMs: 1000 },
        new Set([held]),
      );
      for (const interest of [want('*'), held, want('never')]) upstream.subscribe(interest);
      await until('both streams', () => {
        clock.advance(0);
        return plane.streams.filter(({ requests }) => requests.length > 0).length === 2;
      });
      clock.advance(900);
      const wildcard = plane.streams.find(
        ({ first }) =>
          first === undefined ||
          !('resourceNamesSubscribe' in first) ||
          first.resourceNamesSubscribe.length === 0,
      );
      wildcard?.send(cds, '1', 'x:1@1');
      await until('its answer', () => observed.contents['x'] === '1');
      clock.advance(300);
      expect(observed.settled.toSorted()).to.deep.equal(['*', 'never']);
      clock.advance(600);
      expect(observed.settled).not.to.include('a');
      clock.advance(200);
      expect(observed.settled).to.include('a');
    });

    it('a single endpoint that is silent about a wildcard is down, and nothing is concluded', async () => {
      const silent = await controlPlane();
      const upstream = start({ endpoints: [address(silent.port)], resourceTimeoutMs: 50 });
      upstream.subscribe(want('*'));
      await until('down', () => upstream.state().down);
      await until('another try', () => silent.streams.length > 2);
      expect(observed.settled).to.deep.equal([]);
      expect(upstream.state().down, 'being connected again is no recovery').to.equal(true);
      expect(observed.lines.filter((line) => line.startsWith('control plane failed'))).to.have.length(1);
      expect(upstream.state().lastError).to.match(
        /no response within 0.05 s to the node with id "relay[^"]*" and cluster "relays"$/,
      );
    });

    for (const count of [1, 2]) {
      it(`is out of date since the first failure, however often an endpoint that is silent about a wildcard is tried (endpoints: ${count})`, async () => {
        const silent = await Promise.all(Array.from({ length: count }, () => controlPlane()));
        const clock = new VirtualClock();
        const endpoints = silent.map(({ port }) => address(port));
        const upstream = start({ endpoints, clock, resourceTimeoutMs: 1000 });
        const seen = new Set<unknown>();
        const passing = (condition: () => boolean) => (): boolean => {
          clock.advance(20);
          seen.add(upstream.state().staleSince);
          return condition();
        };
        upstream.subscribe(want('*'));
        const tries = () => silent.reduce((sum, { streams }) => sum + streams.length, 0);
        await until(
          'all endpoints failed',
          passing(() => upstream.state().down),
        );
        const before = tries();
        await until(
          'more tries',
          passing(() => {
            expect(upstream.state().down).to.equal(true);
            return tries() > before + 2;
          }),
        );
        expect([...seen]).to.have.length(1);
        expect(seen.has(undefined)).to.equal(false);
      });
    }

    for (const protocol of ['DELTA', 'SOTW'] as const) {
      for (const isHeld of [true, false]) {
        const what = isHeld ? 'what it had: it fails' : 'what nobody has: it is well';
        it(`an endpoint that has answered comes back silent about ${what} (${protocol})`, async () => {
          // Without versions nothing is resumed.
          const serve = (body: string) => (stream: AdsStream, request: Request) => {
            if (request.responseNonce === '') stream.send(eds, '', `a:${body}`);
          };
          const plane = await controlPlane();
          plane.answer = serve('1');
          const other = await controlPlane();
          other.answer = serve('2');
          const upstream = start({
            endpoints: [address(plane.port), address(other.port)],
            protocol,
            resourceTimeoutMs: 200,
            failbackAfterMs: 60_000,
          });
          const held = want('a', {}, eds);
          upstream.subscribe(held);
          await until('content', () => observed.contents['a'] === '1');
          if (!isHeld) {
            upstream.subscribe(want('b', {}, eds));
            upstream.unsubscribe(held);
          }
          plane.kill();
          const again = await controlPlane(plane.port);
          await until('the stream', () => again.requests.length > 0);
          await until('it is current', () => upstream.state().staleSince === undefined);
          expect(upstream.state().endpoint).to.equal(`127.0.0.1:${isHeld ? other.port : plane.port}`);
          expect(other.streams).to.have.length(isHeld ? 1 : 0);
        });
      }
    }

    it('a resumed stream may be silent: nothing has changed', async () => {
      const plane = await controlPlane();
      plane.answer = serving('1', 'a:1@1');
      const clock = new VirtualClock();
      const passing = (condition: () => boolean) => (): boolean => {
        clock.advance(1);
        return condition();
      };
      const upstream = start({ endpoints: [address(plane.port), address(1)], resourceTimeoutMs: 50, clock });
      upstream.subscribe(want('*'));
      await until('the stream', () => plane.requests.length > 0);
      await until(
        'content',
        passing(() => observed.settled.includes('*')),
      );
      plane.kill();
      const again = await controlPlane(plane.port);
      await until(
        'the stream again',
        passing(() => again.requests.length > 0),
      );
      clock.advance(60_000);
      expect(again.openStreams).to.have.length(1);
      expect(upstream.state()).to.include({ connected: true, staleSince: undefined });
    });
  });

  it('keepalive notices a connection that is half open', async () => {
    const plane = await controlPlane();
    plane.answer = serving('1', 'a:1@1');
    const proxy = await cuttable(plane.port);
    running.push(() => proxy.close());
    const upstream = start({
      endpoints: [address(proxy.port)],
      keepalive: { timeMs: 100, timeoutMs: 100 },
    });
    upstream.subscribe(want('*'));
    await until('content', () => observed.contents['a'] === '1');
    proxy.cut();
    await until('the loss', () => upstream.state().staleSince !== undefined);
    proxy.mend();
    await until('the stream', () => plane.streams.length === 2);
    await until('connected', () => upstream.state().connected);
  });

  describe('TLS', () => {
    const authority = issueCertificate({ name: 'authority', authority: true });
    const server = issueCertificate({ name: 'server', issuer: authority, dns: ['control-plane.test'] });
    const client = issueCertificate({ name: 'client', issuer: authority });
    const secure = (mutual: boolean): ServerCredentials =>
      ServerCredentials.createSsl(
        Buffer.from(authority.certificate),
        [{ cert_chain: Buffer.from(server.certificate), private_key: Buffer.from(server.privateKey) }],
        mutual,
      );

    it('verifies the server for server_name and shows its own certificate', async () => {
      const plane = await controlPlane(0, secure(true));
      const upstream = start({
        endpoints: [address(plane.port)],
        tls: {
          material: async () =>
            ok({
              ca: Buffer.from(authority.certificate),
              certificate: Buffer.from(client.certificate),
              privateKey: Buffer.from(client.privateKey),
            }),
          serverName: 'control-plane.test',
          serverIdentities: [],
        },
      });
      upstream.subscribe(want('*'));
      await until('a request', () => plane.requests.length > 0);
      expect(upstream.state().connected).to.equal(true);
    });

    it('says what is wrong, and takes what is in force for each try', async () => {
      const plane = await controlPlane(0, secure(false));
      const stranger = issueCertificate({ name: 'stranger', authority: true });
      let ca = stranger;
      const upstream = start({
        endpoints: [address(plane.port)],
        tls: {
          material: async () => ok({ ca: Buffer.from(ca.certificate) }),
          serverName: 'control-plane.test',
          serverIdentities: [],
        },
      });
      await until('an error', () => upstream.state().lastError !== '');
      expect(upstream.state().lastError).to.match(/certificate/);
      expect(upstream.state().connected).to.equal(false);
      ca = authority;
      await until('connected', () => upstream.state().connected);
    });

    it('says why there is nothing to connect with', async () => {
      const material = async () => fail('ca none.pem: there is no such file');
      const upstream = start({
        endpoints: [address(1)],
        tls: { material, serverName: undefined, serverIdentities: [] },
      });
      await until('an error', () => upstream.state().lastError !== '');
      expect(upstream.state().lastError).to.contain('none.pem').and.contain('no such file');
    });
  });

  describe('PER_PARAMETERS', () => {
    const rules = [
      { key: 'env', to: 'node.metadata.where.env' },
      { key: 'zone', to: 'node.locality.zone' },
      { key: 'tenant', to: 'node.id' },
    ];

    it('§5 one session per parameter set of the rules, its node made by them, its resources stamped', async () => {
      const plane = await controlPlane();
      plane.answer = (stream, request) => {
        const node = stream.first?.node;
        if (request.responseNonce === '')
          stream.send(cds, '1', `a:${node?.id.replaceAll('~', '.')}-${node?.locality?.zone ?? ''}@1`);
      };
      const upstream = start({ endpoints: [address(plane.port)], rules });
      upstream.subscribe(want('*', { env: 'prod', zone: 'z1', color: 'red' }));
      upstream.subscribe(want('*', { env: 'prod', zone: 'z1', color: 'blue' }));
      upstream.subscribe(want('*', { tenant: 't' }));
      await until('both', () => observed.transactions.filter(({ puts }) => puts.length > 0).length === 2);
      expect(plane.streams).to.have.length(2);
      expect(upstream.state().sessions).to.equal(2);
      const nodes = plane.streams.map((stream) => stream.first?.node);
      expect(nodes.map((node) => node?.metadata)).to.deep.include.members([
        { role: 'relay', where: { env: 'prod' } },
        { role: 'relay' },
      ]);
      const stamped = observed.transactions.flatMap(({ puts }) =>
        puts.map((put) => `${formatConstraints(put.constraints.expression)}: ${contentOf(put.any)}`),
      );
      expect(stamped).to.have.members([
        'env == "prod" and not exists(tenant) and zone == "z1": relay.prod.z1-z1',
        'not exists(env) and tenant == "t" and not exists(zone): t-',
      ]);
      upstream.unsubscribe(want('*', { tenant: 't' }));
      await until('one stream less', () => plane.openStreams.length === 1);
      expect(upstream.state().sessions).to.equal(1);
    });

    it('past max_upstream_sessions a subscription is answered RESOURCE_EXHAUSTED, and gets a place that frees', async () => {
      const plane = await controlPlane();
      const upstream = start({ endpoints: [address(plane.port)], rules, maxSessions: () => 1 });
      upstream.subscribe(want('a', { env: 'prod' }));
      upstream.subscribe(want('a', { env: 'test' }));
      const [refusal] = observed.transactions;
      expect(refusal?.resourceErrors[0]).to.include({ name: 'a', code: Code.RESOURCE_EXHAUSTED });
      expect(refusal?.resourceErrors[0]?.message).to.contain('max_upstream_sessions');
      expect(refusal?.resourceErrors[0]?.constraints.matches(want('a', { env: 'prod' }).parameters)).to.equal(
        false,
      );
      expect(refusal?.resolved, 'it may well be there').to.deep.equal([]);
      expect(upstream.refusal(want('a', { env: 'test' }))).to.equal(refusal?.resourceErrors[0]?.message);
      expect(upstream.refusal(want('a', { env: 'prod' }))).to.equal(undefined);
      expect(observed.counts.refused).to.equal(1);
      upstream.unsubscribe(want('a', { env: 'prod' }));
      await until('the other', () =>
        plane.requests.some((request) => request.node?.metadata?.['where'] !== undefined),
      );
      expect(upstream.state().sessions).to.equal(1);
    });

    it('a limit that was raised gives what was refused a session, and those that are open go on', async () => {
      const plane = await controlPlane();
      let limit = 1;
      const upstream = start({ endpoints: [address(plane.port)], rules, maxSessions: () => limit });
      for (const env of ['prod', 'test', 'dev']) upstream.subscribe(want('a', { env }));
      await until('a stream', () => plane.streams.length === 1);
      limit = 2;
      upstream.reconfigure(rules);
      await until('one stream more', () => plane.streams.length === 2);
      expect(plane.openStreams).to.have.length(2);
      expect(upstream.refusal(want('a', { env: 'test' }))).to.equal(undefined);
      expect(upstream.refusal(want('a', { env: 'dev' }))).to.include('all 2 sessions');
    });

    it('a session for which the connection has no stream left is said to be refused, and nothing is concluded', async () => {
      const plane = await new ControlPlane({ 'grpc.max_concurrent_streams': 1 }).listen();
      running.push(() => plane.kill());
      plane.answer = serving('1', 'a:1@1');
      const upstream = start({
        endpoints: [address(plane.port)],
        rules,
        connectTimeoutMs: 200,
        resourceTimeoutMs: 400,
      });
      const first = want('*', { env: 'prod' });
      upstream.subscribe(first);
      await until('content', () => observed.settled.includes('*'));
      upstream.subscribe(want('b', { env: 'test' }));
      await until('the refusal', () => upstream.state().refusedStreams === 1);
      expect(upstream.state().lastError).to.include('may allow no more streams');
      expect(upstream.suspects()).to.deep.equal([]);
      await new Promise((resolve) => setTimeout(resolve, 500));
      expect(observed.settled).to.deep.equal(['*']);
      upstream.unsubscribe(first);
      await until('an answer', () => observed.settled.includes('b'));
      expect(upstream.state()).to.include({ refusedStreams: 0, connected: true });
      expect(observed.counts.reconnects).to.equal(0);
    });

    it('a session that is refused leaves the others alone', async () => {
      const plane = await controlPlane();
      plane.answer = (stream, request) => {
        if (stream.first?.node?.id === 'bad') stream.fail(status.PERMISSION_DENIED, 'not you');
        else if (request.responseNonce === '') stream.send(cds, '1', 'a:1@1');
      };
      const upstream = start({ endpoints: [address(plane.port)], rules });
      upstream.subscribe(want('*', { tenant: 'good' }));
      await until('content', () => observed.contents['a'] === '1');
      upstream.subscribe(want('*', { tenant: 'bad' }));
      await until('tries', () => plane.streams.length >= 4);
      expect(observed.counts.reconnects).to.equal(0);
      expect(plane.openStreams.filter((stream) => stream.first?.node?.id === 'good')).to.have.length(1);
    });
  });

  it('a relay more below: open streams are opened anew to say so, with what is held', async () => {
    const plane = await controlPlane();
    plane.answer = serving('1', 'a:1@v1', 'b:1@v1');
    let via = 'own/1';
    const upstream = start({ endpoints: [address(plane.port)], via: () => via });
    upstream.subscribe(want('*'));
    await until('an answer', () => observed.settled.length === 1);
    upstream.reannounce();
    via = 'own/1, below/1';
    upstream.reannounce();
    await until('another stream', () => plane.streams.length === 2 && plane.streams[1]?.first !== undefined);
    expect(plane.streams.map(({ metadata }) => metadata.get('x-distributary-via'))).to.deep.equal([
      ['own/1'],
      ['own/1, below/1'],
    ]);
    expect(plane.streams[1]?.first).to.have.deep.property('initialResourceVersions', { a: 'v1', b: 'v1' });
    via = 'own/1';
    upstream.reannounce();
    await until('one is left', () => plane.openStreams.length === 1);
    expect(plane.streams).to.have.length(2);
    expect(observed.contents).to.deep.equal({ a: '1', b: '1' });
  });

  it('§5 a key more: what is held is stamped anew, once for a type, and interests move to their sessions', async () => {
    const plane = await controlPlane();
    plane.answer = (stream, request) => {
      if (request.responseNonce === '') stream.send(typeUrl(request.typeUrl), '1', 'a:1@1', 'b{z=1}:1@1');
    };
    const env = { key: 'env', to: 'node.metadata.env' };
    const upstream = start({ endpoints: [address(plane.port)], rules: [env] });
    const moved = want('a', { env: 'prod', zone: 'z1' });
    upstream.subscribe(want('*', { env: 'prod' }));
    upstream.subscribe(want('a', { env: 'prod' }));
    upstream.subscribe(moved);
    upstream.subscribe(want('*', { env: 'test' }));
    await until('answers', () => observed.settled.length === 4);
    upstream.reconfigure([env]);
    expect(observed.restamps).to.deep.equal([]);
    upstream.reconfigure([env, { key: 'zone', to: 'node.locality.zone' }]);
    expect(observed.restamps).to.have.length(1);
    const [restamp] = observed.restamps;
    const changes = restamp?.moves.map(
      ({ holder, name, from, to }) =>
        `${holder.role} ${name} ${formatConstraints(from.expression)} -> ${to === undefined ? '' : formatConstraints(to.expression)}`,
    );
    expect(changes).to.have.members([
      'wildcard a env == "prod" -> env == "prod" and not exists(zone)',
      'wildcard b env == "prod" and z == "1" -> env == "prod" and not exists(zone) and z == "1"',
      'named a env == "prod" -> env == "prod" and not exists(zone)',
      'wildcard a env == "test" -> env == "test" and not exists(zone)',
      'wildcard b env == "test" and z == "1" -> env == "test" and not exists(zone) and z == "1"',
    ]);
    expect(restamp?.unresolved).to.deep.equal([moved]);
    await until('its session', () => observed.settled.length === 5);
    expect(upstream.state().sessions).to.equal(3);
    expect(plane.requests.find(({ node }) => node?.locality?.zone === 'z1')).to.not.equal(undefined);
    // The sessions that go on have not asked again.
    expect(plane.streams).to.have.length(4);
  });

  it('§5b a rule in front of others: a session that goes on shows its new id, on a new stream', async () => {
    const plane = await controlPlane();
    plane.answer = serving('1', 'a:1@1');
    const env = { key: 'env', to: 'node.metadata.env' };
    const upstream = start({ endpoints: [address(plane.port)], rules: [env] });
    upstream.subscribe(want('*', { env: 'prod' }));
    await until('an answer', () => observed.settled.length === 1);
    upstream.reconfigure([{ key: 'zone', to: 'node.locality.zone' }, env]);
    await until('a stream more', () => plane.streams[1]?.first !== undefined);
    expect(plane.streams.map(({ first }) => first?.node?.id)).to.deep.equal(['relay~prod', 'relay~~prod']);
    expect(plane.streams[1]?.first, 'nothing is resumed').to.have.deep.property(
      'initialResourceVersions',
      {},
    );
    await until('one is left', () => plane.openStreams.length === 1);
  });

  it('NATIVE: all parameter sets in one session, as locators', async () => {
    const plane = await controlPlane();
    const upstream = start({ endpoints: [address(plane.port)], variants: 'NATIVE' });
    upstream.subscribe(want('a', { env: 'prod' }));
    upstream.subscribe(want('a'));
    await until('a request', () => plane.requests.length === 1);
    expect(upstream.state().sessions).to.equal(1);
    expect(plane.requests[0]).to.have.deep.property('resourceNamesSubscribe', ['a']);
    expect(plane.requests[0])
      .to.have.property('resourceLocatorsSubscribe')
      .with.deep.nested.property('[0].dynamicParameters', { env: 'prod' });
  });

  describe('NATIVE, a session for each parameter set', () => {
    const perParameters = {
      variants: 'NATIVE',
      sessionPerParameters: true,
      resourceTimeoutMs: 60_000,
    } as const;

    it('a wildcard is answered by the first response on its own stream, at once, and by no other', async () => {
      const plane = await controlPlane();
      const clock = new VirtualClock();
      const upstream = start({ endpoints: [address(plane.port)], ...perParameters, clock });
      upstream.subscribe(want('*', { env: 'prod' }));
      upstream.subscribe(want('*', { env: 'test' }));
      await until('two streams', () => plane.requests.length === 2);
      const [first, second] = plane.streams;
      first?.send(cds, '1', 'a:x@1');
      await until('an answer', () => observed.settled.length === 1);
      clock.advance(50_000);
      expect(observed.settled).to.deep.equal(['*']);
      second?.send(cds, '1');
      await until('the other', () => observed.settled.length === 2);
      expect(observed.contents).to.deep.equal({ a: 'x' });
    });

    it('the holders say for which parameters something was chosen', async () => {
      const plane = await controlPlane();
      plane.answer = serving('1', 'a:x@1');
      const upstream = start({ endpoints: [address(plane.port)], ...perParameters });
      const { parameters } = want('*', { env: 'prod' });
      upstream.subscribe(want('*', { env: 'prod' }));
      await until('an answer', () => observed.settled.length === 1);
      expect(observed.transactions[0]?.holder.exactParameters).to.equal(parameters);
    });

    it('past the limit parameter sets share a session; nobody is refused', async () => {
      const plane = await controlPlane();
      const upstream = start({ endpoints: [address(plane.port)], ...perParameters, maxSessions: () => 2 });
      const wants = ['a', 'b', 'c', 'd'].map((env) => want('x', { env }));
      for (const interest of wants) upstream.subscribe(interest);
      await until('three streams', () => plane.streams.length === 3);
      expect(upstream.state().sessions).to.equal(3);
      expect(observed.counts.refused).to.equal(0);
      for (const interest of wants.slice(2)) upstream.unsubscribe(interest);
      expect(upstream.state().sessions).to.equal(2);
      for (const interest of wants.slice(0, 2)) upstream.unsubscribe(interest);
      expect(upstream.state().sessions).to.equal(0);
    });

    it('a limit that was raised counts for the next parameter set', async () => {
      const plane = await controlPlane();
      let limit = 1;
      const maxSessions = (): number => limit;
      const upstream = start({ endpoints: [address(plane.port)], ...perParameters, maxSessions });
      for (const env of ['a', 'b']) upstream.subscribe(want('x', { env }));
      limit = 10;
      for (const env of ['c', 'd']) upstream.subscribe(want('x', { env }));
      await until('three of their own, and the shared one', () => plane.streams.length === 4);
      expect(upstream.state().sessions).to.equal(4);
    });
  });
});

interface Listening {
  readonly server: TcpServer;
  readonly port: number;
  readonly sockets: Socket[];
}

async function listening(server: TcpServer): Promise<Listening> {
  const sockets: Socket[] = [];
  server.on('connection', (socket) => {
    sockets.push(socket);
    socket.on('error', () => {});
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const bound = server.address();
  if (bound === null || typeof bound === 'string') throw new Error('no port');
  return { server, port: bound.port, sockets };
}

/** A TCP proxy that can stop forwarding without closing anything. */
async function cuttable(
  port: number,
): Promise<{ readonly port: number; cut(): void; mend(): void; close(): void }> {
  let isCut = false;
  const outgoing: Socket[] = [];
  const {
    server,
    port: own,
    sockets,
  } = await listening(
    createServer((socket) => {
      const out = dial(port, '127.0.0.1');
      outgoing.push(out);
      out.on('error', () => {});
      let dead = false;
      const forward = (from: Socket, to: Socket): void => {
        from.on('data', (bytes) => {
          dead ||= isCut;
          if (!dead) to.write(bytes);
        });
      };
      forward(socket, out);
      forward(out, socket);
    }),
  );
  return {
    port: own,
    cut() {
      isCut = true;
    },
    mend() {
      isCut = false;
    },
    close() {
      server.close();
      for (const socket of [...sockets, ...outgoing]) socket.destroy();
    },
  };
}
