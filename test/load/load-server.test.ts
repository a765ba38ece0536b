import { create, fromBinary, type MessageInitShape, toBinary } from '@bufbuild/protobuf';
import { expect } from 'chai';
import { ClientRules } from '../../src/clients.ts';
import { parseConfig } from '../../src/config/load.ts';
import { NodeSchema } from '../../src/gen/envoy/config/core/v3/base_pb.ts';
import {
  LoadStatsRequestSchema,
  type LoadStatsResponse,
  LoadStatsResponseSchema,
} from '../../src/gen/envoy/service/load_stats/v3/lrs_pb.ts';
import { type Instruction, joined, readInstruction } from '../../src/load/instruction.ts';
import { LoadServer, type ReportingClient } from '../../src/load/load-server.ts';
import type { ReportingClass } from '../../src/load/load-view.ts';
import { Rows } from '../../src/load/rows.ts';
import { charged } from '../../src/model/brand.ts';
import { itsOwn, LOAD_PATH, type LoadStreamHandler } from '../../src/model/load.ts';
import { NO_PARAMETERS } from '../../src/model/parameters.ts';
import { ok } from '../../src/model/result.ts';
import { encode, bytes as field, message } from '../../src/protobuf/field-writer.ts';
import { boundlessAccounts } from '../../src/wire/accounts.ts';
import { featuresOfOrigin } from '../../src/wire/between-relays.ts';
import { Code, type GrpcStatus } from '../../src/wire/grpc-status.ts';
import type { Peer, ServerStream, StreamHandler } from '../../src/wire/server-stream.ts';
import { testAccounts, testPeer } from '../support/peers.ts';
import { VirtualClock } from '../support/virtual-clock.ts';
import { workOf } from '../support/work.ts';

/** A control plane that takes all that it is told. */
class Plane {
  issued = 0;
  /** Names of clusters, and of them with `/endpoints` where their endpoints were reported. */
  readonly told: string[] = [];
  handler: LoadStreamHandler | undefined;
  /** What it has not read yet, of a control plane that does not read. */
  unread: (() => void)[] | undefined;
  readonly #finishing = Promise.withResolvers<void>();

  openLoadStream(_: unknown, handler: LoadStreamHandler) {
    this.handler = handler;
    return {
      report: (bytes: Uint8Array, taken: () => void): void => {
        const read = (): void => {
          const { clusterStats } = fromBinary(LoadStatsRequestSchema, bytes);
          for (const { clusterName, upstreamLocalityStats } of clusterStats)
            for (const { totalIssuedRequests, upstreamEndpointStats } of upstreamLocalityStats) {
              this.issued += Number(totalIssuedRequests);
              this.told.push(upstreamEndpointStats.length === 0 ? clusterName : `${clusterName}/endpoints`);
            }
          taken();
        };
        if (this.unread === undefined) read();
        else this.unread.push(read);
      },
      finish: () => (this.unread === undefined ? Promise.resolve() : this.#finishing.promise),
    };
  }

  /** The stream that is to be finished is over. */
  async over(): Promise<void> {
    this.#finishing.resolve();
    await this.#finishing.promise;
  }

  ask(...clusters: readonly string[]): void {
    this.askFor({ clusters: [...clusters], sendAllClusters: clusters.length === 0 });
  }

  askFor(
    what: Partial<Pick<LoadStatsResponse, 'clusters' | 'sendAllClusters' | 'reportEndpointGranularity'>>,
  ): void {
    const asked = create(LoadStatsResponseSchema, { ...what, loadReportingInterval: { seconds: 1n } });
    this.handler?.asked(Buffer.from(toBinary(LoadStatsResponseSchema, asked)));
  }
}

class Stream implements ServerStream {
  readonly path = LOAD_PATH;
  readonly peer: Peer;
  readonly waitedMilliseconds = 0;
  handler: StreamHandler | undefined;
  paused = false;
  status: GrpcStatus | undefined;
  written = 0;
  last: Buffer | undefined;
  readonly #clock: VirtualClock | undefined;

  /** `clock`: of which each write takes a little. */
  constructor(peer = testPeer(), clock?: VirtualClock) {
    this.peer = peer;
    this.#clock = clock;
  }

  header(): undefined {}
  handle(handler: StreamHandler): void {
    this.handler = handler;
  }
  write(frame: Buffer): boolean {
    this.written++;
    this.last = frame;
    this.#clock?.advance(0.02);
    return true;
  }
  pause(): void {
    this.paused = true;
  }
  resume(): void {
    this.paused = false;
  }
  end(status: GrpcStatus): void {
    this.status = status;
  }

  send(request: MessageInitShape<typeof LoadStatsRequestSchema>, more = ''): void {
    const bytes = toBinary(LoadStatsRequestSchema, create(LoadStatsRequestSchema, request));
    this.handler?.message(charged(Buffer.concat([bytes, Buffer.from(more, 'hex')])));
  }
}

const localities = Array.from({ length: 5000 }, (_, at) => ({
  locality: { zone: `zone-${at}` },
  totalIssuedRequests: 1n,
}));
const large = { clusterStats: [{ clusterName: 'shop', upstreamLocalityStats: localities }] };

const targets = [{ upstream: 'central', parameters: NO_PARAMETERS }];

function setUp(
  of?: ReportingClass,
  places = { sessions: 10 },
  peer = testPeer(),
  settings: { clusters: number; targets?: typeof targets } = { clusters: 100 },
  mayKnow?: ReportingClient['mayKnow'],
) {
  const clock = new VirtualClock();
  const plane = new Plane();
  let current = plane;
  let closed = 0;
  let renewals = 0;
  const malformed: string[] = [];
  const rejected: string[] = [];
  const client: ReportingClient = {
    of,
    origin: itsOwn,
    mayKnow,
    targets: () => settings.targets ?? targets,
    reported() {},
    left() {},
    byNewRules: () => {
      clock.advance(0.1);
      renewals++;
      return client;
    },
  };
  const server = new LoadServer({
    clock,
    identify: () => ok(client),
    limits: () => ({
      maxLoadReportClusters: settings.clusters,
      firstRequestTimeoutMs: 10_000,
      stalledTimeoutMs: 10_000,
    }),
    maxSessions: () => ({ all: places.sessions, ofPeer: places.sessions }),
    ownIntervalMs: () => undefined,
    upstream: () => current,
    holdsBack: () => false,
    places: {
      denial: () => undefined,
      refusal: () => undefined,
      streamOpened() {},
      streamClosed: () => {
        closed++;
      },
    },
    events: {
      rejected: ({ reason }) => rejected.push(reason),
      sent: () => ({ inc() {} }),
      left() {},
      malformed: (_, reason) => malformed.push(reason),
    },
  });
  const stream = new Stream(peer);
  server.accept(stream);
  stream.send({ node: { id: 'a' } });
  plane.ask();
  /** The upstream is another one. */
  const replace = (): Plane => {
    current = new Plane();
    server.reload();
    current.ask();
    return current;
  };
  return {
    clock,
    plane,
    server,
    stream,
    closed: () => closed,
    renewed: () => renewals,
    malformed,
    rejected,
    replace,
  };
}

const clustersIn = (frame: Buffer | undefined): readonly string[] =>
  fromBinary(LoadStatsResponseSchema, frame?.subarray(5) ?? Buffer.of()).clusters;

const small = {
  clusterStats: [{ clusterName: 'shop', upstreamLocalityStats: [{ totalIssuedRequests: 7n }] }],
};

describe('bounds of what is reported', () => {
  it('are those of a reload, for streams that are open too', () => {
    const settings = { clusters: 100 };
    const { clock, plane, server, stream } = setUp(undefined, undefined, undefined, settings);
    const clusterStats = Array.from({ length: 150 }, (_, at) => ({
      clusterName: `c${at}`,
      upstreamLocalityStats: [{ totalIssuedRequests: 1n }],
    }));
    stream.send({ clusterStats });
    clock.advance(1000);
    expect(plane.told).to.have.lengthOf(100);
    settings.clusters = 200;
    server.reload();
    stream.send({ clusterStats });
    clock.advance(1000);
    expect(plane.told).to.have.lengthOf(250);
  });

  it('are those of a session for workers too: all of them together have 100,000 rows', () => {
    const accounts = boundlessAccounts(new VirtualClock());
    const worker = (id: string): Stream => {
      const known = { address: id, unix: true, uriSans: [], dnsSans: [] };
      return new Stream({ ...known, account: accounts.of(known) });
    };
    const { clock, plane, server, stream } = setUp(undefined, undefined, worker('a').peer);
    const other = worker('b');
    server.accept(other);
    other.send({ node: { id: 'b' } });
    for (const [at, one] of [stream, other].entries()) {
      const upstreamLocalityStats = Array.from({ length: 60_000 }, (_, zone) => ({
        locality: { zone: `${at}-${zone}` },
        totalIssuedRequests: 1n,
      }));
      one.send({ clusterStats: [{ clusterName: 'shop', upstreamLocalityStats }] });
    }
    clock.advance(3000);
    expect(plane.told).to.have.lengthOf(99_999); // and the row of the cluster
  });
});

describe('sums that are on their way when the upstream is replaced', () => {
  it('are not sent again, if the old control plane reads them', async () => {
    const { clock, plane, stream, replace } = setUp();
    plane.unread = [];
    stream.send(small);
    clock.advance(1000);
    const after = replace();
    stream.send(small);
    clock.advance(1000);
    for (const read of plane.unread) read();
    await plane.over();
    clock.advance(3000);
    expect([plane.issued, after.issued]).to.deep.equal([7, 7]);
  });

  it('are sent to the new one, if not, also if that one was lost meanwhile', async () => {
    const { clock, plane, stream, replace } = setUp();
    plane.unread = [];
    stream.send(small);
    clock.advance(1000);
    const after = replace();
    stream.send(small);
    after.handler?.down();
    after.ask();
    clock.advance(1000);
    expect(after.issued).to.equal(0);
    await plane.over();
    clock.advance(3000);
    expect([plane.issued, after.issued]).to.deep.equal([0, 14]);
  });
});

describe('to whom clients report', () => {
  it('is looked up again: who found no room reports when there is some', () => {
    const places = { sessions: 0 };
    const { clock, plane, stream } = setUp(undefined, places);
    stream.send(small);
    expect(plane.handler).to.equal(undefined);
    places.sessions = 1;
    clock.advance(5000);
    plane.ask();
    stream.send(small);
    clock.advance(1000);
    expect(plane.issued).to.equal(7);
  });

  it('§5c.2 is looked up for each early report: none counts for an upstream to which its client is not subscribed', () => {
    const settings: Parameters<typeof setUp>[3] = { clusters: 100 };
    const { clock, plane, stream } = setUp(undefined, undefined, undefined, settings);
    settings.targets = [{ upstream: 'other', parameters: NO_PARAMETERS }];
    stream.send(small);
    clock.advance(1000);
    expect(plane.issued).to.equal(0);
    plane.ask();
    stream.send(small);
    clock.advance(1000);
    expect(plane.issued).to.equal(7);
  });

  it('§5c.2 is looked up every 5 s for later reports, however many come', () => {
    let looks = 0;
    const settings = {
      clusters: 100,
      get targets() {
        looks++;
        return targets;
      },
    };
    const { clock, stream } = setUp(undefined, undefined, undefined, settings);
    for (let count = 0; count < 3; count++) stream.send(small);
    const before = looks;
    for (let count = 0; count < 100; count++) stream.send(small);
    expect(looks).to.equal(before);
    clock.advance(5000);
    expect(looks).to.equal(before + 1);
  });

  it('costs as much as a change of subscriptions where a stream changes its node: reading pauses', () => {
    const { clock, stream, rejected } = setUp(
      undefined,
      undefined,
      testPeer({}, testAccounts({ changesPerSecond: 10 }, new VirtualClock())),
    );
    for (let count = 0; count < 10; count++) stream.send({ node: { id: `b${count}` } });
    stream.send({ node: { id: 'b9' } });
    expect([stream.paused, rejected]).to.deep.equal([false, []]);
    stream.send({ node: { id: 'c' } });
    expect([stream.paused, rejected]).to.deep.equal([true, ['rate']]);
    clock.advance(100);
    expect(stream.paused).to.equal(false);
    stream.send({ node: { id: 'd' }, ...large });
    for (let turn = 0; turn < 50; turn++) clock.advance(0);
    expect(stream.paused, 'the report is read').to.equal(true);
    clock.advance(200);
    expect(stream.paused).to.equal(false);
  });

  it('who finds no room is counted as refused once, however often it is looked up', () => {
    const { clock, server, rejected } = setUp(undefined, { sessions: 0 });
    clock.advance(60_000);
    expect(rejected).to.deep.equal(['upstream_sessions']);
    const second = new Stream();
    server.accept(second);
    second.send({ node: { id: 'b' } });
    clock.advance(60_000);
    expect(rejected).to.deep.equal(['upstream_sessions', 'upstream_sessions']);
  });
});

describe('new rules', () => {
  it('reach a fleet over several turns, and who reports before its turn first', () => {
    const { clock, server, renewed } = setUp();
    const fleet = Array.from({ length: 500 }, (_, at) => {
      const stream = new Stream();
      server.accept(stream);
      stream.send({ node: { id: `node-${at}` } });
      return stream;
    });
    server.reload();
    const first = renewed();
    expect(first).to.be.within(1, 100);
    fleet.at(-1)?.send(small);
    expect(renewed()).to.equal(first + 1);
    for (let turn = 0; turn < 20; turn++) clock.turn();
    expect(renewed()).to.be.within(501, 502);
  });
});

describe('what a control plane asks for', () => {
  it('is told to a fleet over several turns, and only the last of it', () => {
    const { clock, plane, server } = setUp();
    const fleet = Array.from({ length: 1000 }, (_, at) => {
      const stream = new Stream(undefined, clock);
      server.accept(stream);
      stream.send({ node: { id: `node-${at}` } });
      return stream;
    });
    const written = (): number => fleet.reduce((sum, stream) => sum + stream.written, 0);
    const before = written();
    plane.ask('shop');
    expect(written() - before).to.be.below(500);
    plane.ask('basket');
    for (let turn = 0; turn < 6; turn++) clock.turn();
    expect(written() - before).to.be.within(1000, 1300);
    plane.ask('shop');
    for (let turn = 0; turn < 6; turn++) clock.turn();
    expect(written() - before).to.be.within(2000, 2300);
  });

  it('is all that goes up, whatever its clients say of other clusters and of endpoints', () => {
    const { clock, plane, stream } = setUp();
    const load = { totalIssuedRequests: 1n };
    const stats = { upstreamLocalityStats: [{ ...load, upstreamEndpointStats: [load] }] };
    const everything = ['cart', 'shop'].map((clusterName) => ({ clusterName, ...stats }));
    const heard = (): readonly string[] => {
      stream.send({ clusterStats: everything });
      clock.advance(1000);
      return plane.told.splice(0);
    };
    plane.askFor({ clusters: ['shop'] });
    expect(heard()).to.deep.equal(['shop']);
    plane.askFor({ clusters: ['shop', 'cart'], reportEndpointGranularity: true });
    expect(heard()).to.have.members(['cart/endpoints', 'shop/endpoints']);
    plane.askFor({ clusters: ['cart'] });
    // The sums of before are part of this one, with what it is 0 of now.
    heard();
    expect([heard(), heard()]).to.deep.equal([['cart'], ['cart']]);
    plane.askFor({ sendAllClusters: true });
    expect(heard()).to.have.members(['cart', 'shop']);
    plane.askFor({});
    heard();
    expect(heard()).to.deep.equal([]);
  });

  it('is asked for before anything counts', () => {
    const places = { sessions: 0 };
    const { clock, plane, stream } = setUp(undefined, places);
    places.sessions = 1;
    clock.advance(5000);
    stream.send(small);
    plane.ask();
    clock.advance(1000);
    expect(plane.issued).to.equal(0);
    stream.send(small);
    clock.advance(1000);
    expect(plane.issued).to.equal(7);
  });

  it('is ignored if it is more than 100,000 names', () => {
    const { plane, malformed } = setUp();
    plane.ask(...Array.from({ length: 99_000 }, (_, at) => `cluster-${at}`));
    expect(malformed).to.deep.equal([]);
    plane.ask(...Array.from({ length: 100_001 }, (_, at) => `cluster-${at}`));
    expect(malformed).to.deep.equal(['malformed LoadStatsResponse: more than 100000 fields']);
  });
});

describe('what a client is told', () => {
  it('is worked out once for all clients that may know the same clusters', () => {
    const asked: string[] = [];
    const { clock, plane, server } = setUp(undefined, undefined, undefined, undefined, (cluster) => {
      asked.push(cluster);
      return cluster !== 'secret';
    });
    const fleet = Array.from({ length: 3 }, (_, at) => {
      const stream = new Stream();
      server.accept(stream);
      stream.send({ node: { id: `node-${at}` } });
      return stream;
    });
    plane.ask('shop', 'secret');
    for (let turn = 0; turn < 6; turn++) clock.turn();
    expect(fleet.map(({ last }) => clustersIn(last))).to.deep.equal([['shop'], ['shop'], ['shop']]);
    expect(asked).to.deep.equal(['shop', 'secret']);
  });

  it('of several control planes is all that any of them asks for, in one message for all', () => {
    const of = (asked: MessageInitShape<typeof LoadStatsResponseSchema>): Instruction => {
      const read = readInstruction(
        Buffer.from(toBinary(LoadStatsResponseSchema, create(LoadStatsResponseSchema, asked))),
      );
      if (!read.ok) throw new Error(read.error);
      return read.value;
    };
    const all = [
      of({ clusters: ['b'], loadReportingInterval: { seconds: 2n } }),
      of({ clusters: ['a', 'b'], reportEndpointGranularity: true }),
      of({ clusters: ['c'], loadReportingInterval: { nanos: 500_000_000 } }),
    ];
    const told = joined(all);
    const { $typeName: _, ...said } = fromBinary(
      LoadStatsResponseSchema,
      told?.frame.subarray(5) ?? Buffer.of(),
    );
    expect(said).to.deep.include({
      clusters: ['a', 'b', 'c'],
      reportEndpointGranularity: true,
      sendAllClusters: false,
    });
    expect(said.loadReportingInterval).to.deep.include({ seconds: 0n, nanos: 500_000_000 });
    expect(joined(all)).to.equal(told);
    const everything = joined([...all, of({ sendAllClusters: true, clusters: ['d'] })])?.frame.subarray(5);
    expect(everything?.toString('hex')).to.equal('12061080cab5ee0118012001');
  });
});

describe('a large load report, read in turns', () => {
  it('counts when it is read, and nothing else of its client is read before', () => {
    const { clock, plane, stream } = setUp();
    stream.send(large);
    expect(stream.paused).to.equal(true);
    clock.advance(1000);
    expect(stream.paused).to.equal(false);
    clock.advance(1000);
    expect(plane.issued).to.equal(5000);
  });

  it('counts also if its client goes before it is read', () => {
    const { clock, plane, server, stream, closed } = setUp();
    stream.send(large);
    stream.handler?.closed();
    expect([server.size, closed()]).to.deep.equal([1, 0]);
    clock.advance(3000);
    expect([server.size, closed(), plane.issued]).to.deep.equal([0, 1, 5000]);
    clock.advance(3000);
    expect(stream.peer.account.held).to.equal(0);
  });

  it('counts also if rules change before it is read', () => {
    const { clock, plane, server, stream, renewed } = setUp();
    stream.send(large);
    server.reload();
    // Not in this turn.
    expect(stream.paused).to.equal(true);
    expect(renewed()).to.equal(0);
    clock.advance(2000);
    expect([stream.paused, renewed(), plane.issued]).to.deep.equal([false, 1, 5000]);
  });

  it('counts at a drain', async () => {
    const { plane, server, stream } = setUp();
    stream.send(large);
    await server.drain();
    expect(plane.issued).to.equal(5000);
  });

  it('counts at a drain, and others have their turn between two of them', async () => {
    const { plane, server, stream } = setUp();
    const other = new Stream();
    server.accept(other);
    other.send({ node: { id: 'b' } });
    for (const each of [stream, other]) each.send(large);
    const drained = server.drain();
    expect([stream.paused, other.paused]).to.deep.equal([false, true]);
    await drained;
    expect(plane.issued).to.equal(10_000);
  });

  it('of one that is malformed at its end nothing counts, and its stream ends', () => {
    const { clock, plane, stream } = setUp();
    stream.send(large, '12ff');
    clock.advance(3000);
    expect(stream.status?.code).to.equal(Code.INVALID_ARGUMENT);
    stream.handler?.closed();
    clock.advance(3000);
    expect(plane.issued).to.equal(0);
    expect(stream.peer.account.held).to.equal(0);
  });

  for (const [what, fields] of [
    ['counters', '2001'],
    ['gauges', '1801'],
    ['rows', '3a00'],
    ['metadata', '3a023200'],
  ] as const) {
    it(`ends its stream where its peer may not hold what is noted of it: ${what}`, () => {
      const peer = testPeer({}, testAccounts({ heldPerPeer: 4 << 20 }));
      const { clock, plane, stream } = setUp(undefined, undefined, peer);
      plane.askFor({ sendAllClusters: true, reportEndpointGranularity: true });
      const locality = fields.repeat((1 << 20) / (fields.length / 2));
      const report = encode([message(2, [field(2, Buffer.from(locality, 'hex'))])]);
      stream.handler?.message(charged(report));
      clock.advance(3000);
      expect(stream.status?.code).to.equal(Code.RESOURCE_EXHAUSTED);
      stream.handler?.closed();
      clock.advance(60_000);
      expect(peer.account.held).to.equal(0);
    });
  }
});

describe('the first report of a client', () => {
  it('is read as those of others: no row is looked up by its key', () => {
    const { clock, plane, server, stream } = setUp();
    stream.send(small);
    const other = new Stream();
    server.accept(other);
    other.send({ node: { id: 'b' } });
    expect(workOf(Rows.prototype, ['find'], () => other.send(small))).to.equal(0);
    expect(workOf(Rows.prototype, ['find'], () => other.send(large))).to.be.above(0);
    clock.advance(1000);
    expect(plane.issued).to.equal(5014);
  });
});

describe('how often a client says that its reports were added up', () => {
  const clientFeatures = [...featuresOfOrigin({ stages: 32, isPartial: true })];
  const said = Buffer.from(toBinary(NodeSchema, create(NodeSchema, { id: 'n1', clientFeatures })));
  const tls = { certificate: 'relay.pem', private_key: 'relay.key' };
  const originBy = (xds: object, uriSans: readonly string[]) => {
    const config = parseConfig(
      JSON.stringify({
        upstreams: [{ name: 'files', filesystem: { path: '/nowhere' } }],
        xds,
        ...('tls' in xds ? { limits: { relay_peers: ['spiffe://example.com/relay'] } } : {}),
      }),
      'configuration',
      {},
    );
    if (!config.ok) throw new Error(config.error.map(({ message }) => message).join('\n'));
    const client = new ClientRules(config.value).context(said, testPeer({ uriSans }));
    return client.ok ? client.value.loadOrigin : client.error;
  };

  it('is believed of relays alone, where clients are verified', () => {
    const verified = { tls: { ...tls, ca: 'ca.pem' } };
    expect(originBy(verified, ['spiffe://example.com/shop'])).to.deep.equal(itsOwn);
    expect(originBy(verified, ['spiffe://example.com/relay'])).to.deep.equal({ stages: 32, isPartial: true });
  });

  it('is believed of anybody, where nobody is verified', () => {
    expect(originBy({}, [])).to.deep.equal({ stages: 32, isPartial: true });
  });
});
