import { create, fromBinary, type Message, type MessageInitShape, toBinary } from '@bufbuild/protobuf';
import { expect } from 'chai';
import fc from 'fast-check';
import { LocalitySchema } from '../../src/gen/envoy/config/core/v3/base_pb.ts';
import type { UpstreamLocalityStatsSchema } from '../../src/gen/envoy/config/endpoint/v3/load_report_pb.ts';
import {
  type LoadStatsRequest,
  LoadStatsRequestSchema,
} from '../../src/gen/envoy/service/load_stats/v3/lrs_pb.ts';
import type { Wanted } from '../../src/load/instruction.ts';
import { Reading } from '../../src/load/reading.ts';
import { type Payer, Reporter } from '../../src/load/rows.ts';
import { LoadSums } from '../../src/load/sums.ts';
import { atOnce } from '../../src/model/time-slices.ts';
import { encode, encoded, type Field, message, utf8 } from '../../src/protobuf/field-writer.ts';

type Clusters = NonNullable<MessageInitShape<typeof LoadStatsRequestSchema>['clusterStats']>;

const report = (clusterStats: Clusters, id = 'a'): Buffer =>
  Buffer.from(
    toBinary(LoadStatsRequestSchema, create(LoadStatsRequestSchema, { node: { id }, clusterStats })),
  );

const free: Payer = { hold: () => undefined, count: () => 0, enter() {}, leave() {}, exempt: false };
const reporter = (maxClusters = 100): Reporter => new Reporter(free, maxClusters);

/** `left`: so many clusters were left out. */
function added(sums: LoadSums, bytes: Buffer, reporter: Reporter, wanted: Wanted | undefined) {
  const reading = sums.reading(reporter, wanted);
  try {
    atOnce(reading.read(bytes));
    return { left: atOnce(reading.apply()), clusters: reading.clusters };
  } finally {
    reading.close();
  }
}

const add = (...report: Parameters<typeof added>): number => added(...report).left;

function readTotals(bytes: Buffer): Pick<Reading, 'totals' | 'clusters'> {
  const reading = new Reading();
  atOnce(reading.read(bytes));
  return reading;
}

function taken(sums: LoadSums, now = 0): LoadStatsRequest {
  const said = sums.take(now);
  said.confirm();
  // Repeated fields of one message after the other are one list.
  return fromBinary(LoadStatsRequestSchema, Buffer.concat(said.messages));
}

type Numbers = Map<string, number>;

/** What a report says, by what it is of. What is 0 is not there. */
function numbersOf(request: LoadStatsRequest): { readonly counters: Numbers; readonly gauges: Numbers } {
  const all = { counters: new Map<string, number>(), gauges: new Map<string, number>() };
  const note = (key: readonly unknown[], message: Message): void => {
    const gauge = /^total(?:RequestsInProgress|ActiveConnections)$/;
    for (const [name, value] of Object.entries(message))
      if (typeof value === 'bigint' || (typeof value === 'number' && name !== 'priority'))
        addNumbers(
          gauge.test(name) ? all.gauges : all.counters,
          new Map([[JSON.stringify([...key, name]), Number(value)]]),
        );
  };
  for (const cluster of request.clusterStats) {
    const ofCluster = [cluster.clusterName, cluster.clusterServiceName];
    note(ofCluster, cluster);
    for (const drop of cluster.droppedRequests) note([...ofCluster, 'drop', drop.category], drop);
    for (const locality of cluster.upstreamLocalityStats) {
      const ofLocality = [...ofCluster, locality.locality?.zone, locality.priority];
      note(ofLocality, locality);
      for (const metric of locality.loadMetricStats) note([...ofLocality, metric.metricName], metric);
      if (locality.cpuUtilization !== undefined) note([...ofLocality, 'cpu'], locality.cpuUtilization);
      for (const endpoint of locality.upstreamEndpointStats) {
        // One for each locality: what an endpoint is called by its metadata is what was said last.
        note([...ofLocality, 'endpoint'], endpoint);
        for (const metric of endpoint.loadMetricStats)
          note([...ofLocality, 'endpoint', metric.metricName], metric);
      }
    }
  }
  return all;
}

function addNumbers(to: Numbers, more: ReadonlyMap<string, number>): void {
  for (const [key, value] of more) {
    const sum = (to.get(key) ?? 0) + value;
    if (sum === 0) to.delete(key);
    else to.set(key, sum);
  }
}

/** Of one cluster `shop` and one locality. */
const shop = (stats: Exclude<MessageInitShape<typeof UpstreamLocalityStatsSchema>, Message>): Clusters => [
  {
    clusterName: 'shop',
    upstreamLocalityStats: [{ locality: create(LocalitySchema, { zone: 'a' }), ...stats }],
  },
];

describe('sums of load reports', () => {
  it('add up every counter, also those below a locality, and drops by category', () => {
    const sums = new LoadSums();
    const clusters: Clusters = [
      {
        clusterName: 'shop',
        clusterServiceName: 'shop-eds',
        totalDroppedRequests: 3n,
        droppedRequests: [{ category: 'overload', droppedCount: 2n }],
        loadReportInterval: { seconds: 9n },
        upstreamLocalityStats: [
          {
            locality: { region: 'r', zone: 'a' },
            priority: 1,
            totalSuccessfulRequests: 10n,
            totalErrorRequests: 1n,
            totalIssuedRequests: 11n,
            totalNewConnections: 4n,
            totalFailConnections: 5n,
            cpuUtilization: { numRequestsFinishedWithMetric: 2n, totalMetricValue: 0.25 },
            loadMetricStats: [
              { metricName: 'named', numRequestsFinishedWithMetric: 1n, totalMetricValue: 1.5 },
            ],
            upstreamEndpointStats: [
              {
                address: {
                  address: {
                    case: 'socketAddress',
                    value: { address: '10.0.0.1', portSpecifier: { case: 'portValue', value: 80 } },
                  },
                },
                metadata: { version: 'v1' },
                totalIssuedRequests: 11n,
              },
            ],
          },
        ],
      },
    ];
    add(sums, report(clusters), reporter(), undefined);
    add(sums, report(clusters), reporter(), undefined);
    const [cluster] = taken(sums, 1500).clusterStats;
    const [locality] = cluster?.upstreamLocalityStats ?? [];
    expect(cluster).to.deep.include({
      clusterName: 'shop',
      clusterServiceName: 'shop-eds',
      totalDroppedRequests: 6n,
    });
    expect(cluster?.droppedRequests).to.have.lengthOf(1);
    expect(cluster?.droppedRequests[0]).to.include({ category: 'overload', droppedCount: 4n });
    expect(cluster?.loadReportInterval).to.include({ seconds: 1n, nanos: 500_000_000 });
    expect(locality).to.include({
      priority: 1,
      totalSuccessfulRequests: 20n,
      totalErrorRequests: 2n,
      totalIssuedRequests: 22n,
      totalNewConnections: 8n,
      totalFailConnections: 10n,
    });
    expect(locality?.locality).to.include({ region: 'r', zone: 'a' });
    expect(locality?.cpuUtilization).to.include({ numRequestsFinishedWithMetric: 4n, totalMetricValue: 0.5 });
    expect(locality?.loadMetricStats[0]).to.include({ metricName: 'named', totalMetricValue: 3 });
    expect(locality?.upstreamEndpointStats).to.have.lengthOf(1);
    expect(locality?.upstreamEndpointStats[0]).to.deep.include({
      totalIssuedRequests: 22n,
      metadata: { version: 'v1' },
    });
  });

  it('what became of requests, over all clusters and localities', () => {
    const load = { totalSuccessfulRequests: 3n, totalErrorRequests: 2n, totalIssuedRequests: 9n };
    const clusters: Clusters = [
      { clusterName: 'shop', totalDroppedRequests: 1n, upstreamLocalityStats: [load, load] },
      { clusterName: 'shop', clusterServiceName: 's', totalDroppedRequests: 2n },
      { clusterName: 'shop', totalDroppedRequests: 4n, upstreamLocalityStats: [load] },
    ];
    const { totals, clusters: read } = readTotals(report(clusters));
    expect(totals).to.deep.equal({ clusters: 3, success: 9, error: 6, dropped: 7 });
    expect(read.map(({ name, success, dropped }) => [name, success, dropped])).to.deep.equal([
      ['shop', 6, 1],
      ['shop', 0, 2],
      ['shop', 3, 4],
    ]);
  });

  it('fields in another order are the same key', () => {
    const sums = new LoadSums();
    for (const hex of ['12063201730a0163', '12060a0163320173'])
      add(sums, Buffer.from(hex, 'hex'), reporter(), undefined);
    expect(taken(sums).clusterStats).to.have.lengthOf(1);
  });

  it('localities, priorities and service names are apart', () => {
    const sums = new LoadSums();
    const one = reporter();
    add(sums, report(shop({ totalIssuedRequests: 1n })), one, undefined);
    add(sums, report(shop({ priority: 1, totalIssuedRequests: 2n })), one, undefined);
    add(sums, report([{ clusterName: 'shop', clusterServiceName: 's' }]), one, undefined);
    const { clusterStats } = taken(sums);
    expect(
      clusterStats.map((each) => [each.clusterServiceName, each.upstreamLocalityStats.length]),
    ).to.deep.equal([
      ['', 2],
      ['s', 0],
    ]);
  });

  it('what is in progress is the sum of the last reports of living clients, and 0 once', () => {
    const sums = new LoadSums();
    const [a, b] = [reporter(), reporter()];
    const inProgress = (): readonly bigint[] =>
      taken(sums).clusterStats.flatMap(({ upstreamLocalityStats }) =>
        upstreamLocalityStats.map((each) => each.totalRequestsInProgress),
      );
    add(sums, report(shop({ totalRequestsInProgress: 5n })), a, undefined);
    add(sums, report(shop({ totalRequestsInProgress: 7n })), b, undefined);
    expect(inProgress()).to.deep.equal([12n]);
    add(sums, report(shop({ totalRequestsInProgress: 1n })), a, undefined);
    expect(inProgress()).to.deep.equal([8n]);
    sums.leave(b);
    expect(inProgress()).to.deep.equal([1n]);
    add(sums, report([]), a, undefined);
    expect(inProgress()).to.deep.equal([0n]);
    expect(inProgress()).to.deep.equal([]);
    expect(sums.isEmpty).to.equal(true);
  });

  it('what was not taken is in the next sums, with what came meanwhile, and the whole interval', () => {
    const sums = new LoadSums();
    const one = reporter();
    add(sums, report(shop({ totalIssuedRequests: 1n })), one, undefined);
    const lost = sums.take(1000);
    add(sums, report(shop({ totalIssuedRequests: 2n })), one, undefined);
    lost.giveBack();
    const [cluster] = taken(sums, 2000).clusterStats;
    expect(cluster?.upstreamLocalityStats[0]?.totalIssuedRequests).to.equal(3n);
    expect(cluster?.loadReportInterval?.seconds).to.equal(2n);
    expect(taken(sums, 3000).clusterStats).to.deep.equal([]);
  });

  it('of a report that is malformed at its end nothing counts', () => {
    const sums = new LoadSums();
    const whole = report(shop({ totalIssuedRequests: 1n, totalRequestsInProgress: 4n }));
    const broken = Buffer.concat([whole, Buffer.from([0x12, 0x7f])]);
    expect(() => add(sums, broken, reporter(), undefined)).to.throw(RangeError);
    expect(taken(sums).clusterStats).to.deep.equal([]);
  });

  it('a name that no decoder takes is refused', () => {
    const sums = new LoadSums();
    const broken = Buffer.from([0x12, 3, 0x0a, 1, 0xff]);
    expect(() => add(sums, broken, reporter(), undefined)).to.throw(TypeError);
    expect(taken(sums).clusterStats).to.deep.equal([]);
  });

  const inLocality = (...fields: Field[]): Buffer =>
    encode([message(2, [utf8(1, 'shop'), message(2, fields)])]);
  const hex = (bytes: string): Field => encoded(Buffer.from(bytes, 'hex'));
  const structs = (levels: number): Field[] =>
    levels < 3 ? [] : [message(1, [utf8(1, 'k'), message(2, [message(5, structs(levels - 3))])])];
  for (const [what, broken] of [
    ['a priority of more than 64 bits', inLocality(hex('30ffffffffffffffffff7f'))],
    ['a locality with a tag of six bytes', inLocality(message(1, [hex('8a8080808000'), hex('0161')]))],
    ['a locality with a tag of more than 32 bits', inLocality(message(1, [hex('8a808080100161')]))],
    ['a locality with a group that another number ends', inLocality(message(1, [hex('232c')]))],
    [
      'metadata of 100 levels, which are more in a report',
      inLocality(message(7, [message(6, structs(100))])),
    ],
  ] as const) {
    it(`5c.5: ${what} is refused, as a decoder would refuse the sums of all clients`, () => {
      const sums = new LoadSums();
      add(sums, report([{ clusterName: 'other', totalDroppedRequests: 1n }]), reporter(), undefined);
      expect(() => add(sums, broken, reporter(), undefined)).to.throw(RangeError);
      expect(taken(sums).clusterStats.map(({ clusterName }) => clusterName)).to.deep.equal(['other']);
    });
  }

  it('numbers that would spoil a sum do not', () => {
    const sums = new LoadSums();
    const metric = (totalMetricValue: number): Clusters =>
      shop({
        totalSuccessfulRequests: 2n ** 64n - 1n,
        loadMetricStats: [{ metricName: 'm', totalMetricValue }],
      });
    for (const value of [Number.NaN, Number.POSITIVE_INFINITY, 2])
      add(sums, report(metric(value)), reporter(), undefined);
    const [locality] = taken(sums).clusterStats[0]?.upstreamLocalityStats ?? [];
    expect(locality?.loadMetricStats[0]?.totalMetricValue).to.equal(2);
    expect(locality?.totalSuccessfulRequests).to.equal(3n * 2n ** 40n);
  });

  it('a report adds 2^40 to each number at most: so do its totals, which a counter of doubles adds up', () => {
    const most = { totalSuccessfulRequests: 2n ** 63n, totalErrorRequests: 2n ** 40n + 1n };
    const often = Array.from({ length: 3 }, () => most);
    const { totals, clusters } = readTotals(
      report([{ clusterName: 'shop', totalDroppedRequests: 2n ** 64n - 1n, upstreamLocalityStats: often }]),
    );
    const each = { success: 2 ** 40, error: 2 ** 40, dropped: 2 ** 40 };
    expect(totals).to.deep.equal({ clusters: 1, ...each });
    expect(clusters).to.deep.equal([{ name: 'shop', ...each }]);
  });

  it('what is in progress is exact again when a client has left that said too much', () => {
    const sums = new LoadSums();
    const [good, evil] = [reporter(), reporter()];
    const active = (): bigint | undefined =>
      taken(sums).clusterStats[0]?.upstreamLocalityStats[0]?.totalRequestsInProgress;
    add(sums, report(shop({ totalRequestsInProgress: 51n })), good, undefined);
    // So many add up to more than doubles count exactly.
    const much = shop({ totalRequestsInProgress: 2n ** 63n })[0]?.upstreamLocalityStats ?? [];
    const often = Array.from({ length: 10_000 }, () => much).flat();
    add(sums, report([{ clusterName: 'shop', upstreamLocalityStats: often }]), evil, undefined);
    expect(active()).to.equal(2n ** 53n - 1n);
    add(sums, report(shop({ totalRequestsInProgress: 52n })), good, undefined);
    sums.leave(evil);
    add(sums, report(shop({ totalRequestsInProgress: 53n })), good, undefined);
    expect(active()).to.equal(53n);
  });

  it('a client has so many clusters, and the others are counted', () => {
    const sums = new LoadSums();
    const clusters = Array.from({ length: 5 }, (_, at) => ({ clusterName: `c${at}` }));
    expect(add(sums, report(clusters), reporter(3), undefined)).to.equal(2);
    expect(taken(sums).clusterStats).to.have.lengthOf(3);
  });

  it('what a client makes is paid by its account, and paid back', () => {
    let held = 0;
    const payer: Payer = {
      ...free,
      hold(bytes) {
        if (held + bytes > 5000) return 'too much';
        held += bytes;
        return undefined;
      },
    };
    const sums = new LoadSums();
    const clusters = Array.from({ length: 100 }, (_, at) => ({
      clusterName: `c${at}`,
      totalDroppedRequests: 5n,
      upstreamLocalityStats: [{ totalIssuedRequests: 5n }],
    }));
    const [one, other] = [new Reporter(payer, 1000), new Reporter(payer, 1000)];
    expect(add(sums, report(clusters), one, undefined)).to.be.above(80);
    expect(held).to.be.above(2000);
    taken(sums);
    taken(sums);
    // What it has said last is kept while it is there.
    expect(held).to.be.within(1, 500);
    sums.leave(one);
    expect(held).to.equal(0);
    add(sums, report(clusters), other, undefined);
    sums.clear();
    sums.leave(other);
    expect(held).to.equal(0);
    // Nothing is left of their numbers either.
    add(sums, report(shop({ totalIssuedRequests: 1n })), new Reporter(payer, 1000), undefined);
    expect(taken(sums).clusterStats[0]?.upstreamLocalityStats[0]).to.include({ totalIssuedRequests: 1n });
  });

  it('an account makes 50,000 rows at most, in however many clusters', () => {
    const places = { rows: 0 };
    const payer: Payer = {
      ...free,
      count: () => places.rows,
      enter: () => void places.rows++,
      leave: () => void places.rows--,
    };
    const sums = new LoadSums();
    const upstreamLocalityStats = Array.from({ length: 60_000 }, (_, priority) => ({
      priority,
      totalIssuedRequests: 1n,
    }));
    add(sums, report([{ clusterName: 'shop', upstreamLocalityStats }]), new Reporter(payer, 1000), undefined);
    expect(places.rows).to.equal(50_000);
    taken(sums);
    taken(sums);
    expect(places.rows).to.equal(0);
  });

  it('a session has 100,000 rows at most, whoever makes them', () => {
    const sums = new LoadSums();
    const exempt: Payer = { ...free, exempt: true };
    const clusters = (from: number) =>
      report(Array.from({ length: 40_000 }, (_, at) => ({ clusterName: `c${from + at}` })));
    const said = (from: number): number =>
      add(sums, clusters(from), new Reporter(exempt, Number.POSITIVE_INFINITY), undefined);
    expect([0, 40_000, 80_000].map(said)).to.deep.equal([0, 0, 20_000]);
    // Who is in them already stays in them, and there is room again when others have left.
    expect(said(40_000)).to.equal(0);
    for (let times = 0; times < 3; times++) taken(sums);
    expect(said(80_000)).to.equal(0);
  });

  it('what is more than a gRPC server takes is several messages', () => {
    const sums = new LoadSums();
    const clusters = Array.from({ length: 20_000 }, (_, at) => ({
      clusterName: `${at}-${'x'.repeat(250)}`,
      totalDroppedRequests: 1n,
    }));
    for (let from = 0; from < clusters.length; from += 5000)
      add(sums, report(clusters.slice(from, from + 5000)), reporter(20_000), undefined);
    const whole = sums.take(1000, Number.POSITIVE_INFINITY);
    expect(whole.messages).to.have.lengthOf(1);
    whole.giveBack();
    const said = sums.take(1000);
    const { messages } = said;
    expect(messages).to.have.lengthOf(3);
    for (const one of messages) expect(one.length).to.be.below(2_200_000);
    const read = messages.flatMap((one) => fromBinary(LoadStatsRequestSchema, one).clusterStats);
    expect(read.reduce((sum, one) => sum + Number(one.totalDroppedRequests), 0)).to.equal(20_000);
    said.confirm();
    expect(sums.isEmpty).to.equal(true);
  });

  it('what a client says of gauges is added up, and paid for', () => {
    const sums = new LoadSums();
    let held = 0;
    const hold = (bytes: number): string | undefined => {
      if (held + bytes > 100_000) return 'too much';
      held += bytes;
      return undefined;
    };
    const one = new Reporter({ ...free, hold }, 100);
    const say = (times: number): bigint | undefined => {
      const often = Array.from({ length: times }, () => ({ totalRequestsInProgress: 2n }));
      add(sums, report([{ clusterName: 'shop', upstreamLocalityStats: often }]), one, undefined);
      return taken(sums).clusterStats[0]?.upstreamLocalityStats[0]?.totalRequestsInProgress;
    };
    expect(say(1000)).to.equal(2000n);
    expect(say(10)).to.equal(20n);
    expect(say(3000)).to.equal(0n);
    expect(() => say(10_000)).to.throw('too much');
    expect(held).to.be.below(1000);
  });

  it('between two turns of a report the sums may be taken, and the report counts all the same, once', () => {
    const sums = new LoadSums();
    const load = { totalIssuedRequests: 1n, totalRequestsInProgress: 1n };
    const localities = Array.from({ length: 5000 }, (_, at) => ({
      locality: { zone: `zone-${at}` },
      ...load,
    }));
    const bytes = report([{ clusterName: 'large', upstreamLocalityStats: localities }, ...shop(load)]);
    const one = new Reporter(free, 100);
    const reading = sums.reading(one, undefined);
    let turns = 0;
    for (const read = reading.read(bytes); read.next().done !== true; turns++) {
      add(sums, report(shop(load)), one, undefined);
      taken(sums);
      taken(sums);
    }
    expect(turns).to.be.above(3);
    // Nor is anything lost between its last byte and the moment when it counts.
    taken(sums);
    taken(sums);
    atOnce(reading.apply());
    reading.close();
    const [large, other] = taken(sums).clusterStats;
    expect(large?.upstreamLocalityStats).to.have.lengthOf(5000);
    for (const at of large?.upstreamLocalityStats ?? []) expect(at).to.include(load);
    expect(other?.upstreamLocalityStats[0]).to.include(load);
    add(sums, report([]), one, undefined);
    for (let left = 0; left < 3; left++) taken(sums);
    expect(sums.isEmpty).to.equal(true);
  });

  it('a report in another order than the last one of its client counts the same', () => {
    const sums = new LoadSums();
    const one = reporter();
    const cluster = (clusterName: string, clusterServiceName: string, zones: string): Clusters[number] => ({
      clusterName,
      clusterServiceName,
      totalDroppedRequests: 1n,
      upstreamLocalityStats: zones.split('').map((zone) => ({
        locality: create(LocalitySchema, { zone }),
        totalErrorRequests: 1n,
        totalRequestsInProgress: 1n,
      })),
    });
    const orders: readonly Clusters[] = [
      [cluster('a', 'x', '123'), cluster('b', 'x', '12')],
      [cluster('b', 'x', '12'), cluster('a', 'x', '123')],
      // The same until the end of a cluster, or of a locality.
      [cluster('b', 'y', '12'), cluster('a', 'x', '132')],
      [cluster('a', 'x', '1'), cluster('a', 'x', '23')],
      [],
      [cluster('a', 'x', '123')],
    ];
    for (const clusters of orders) {
      const bytes = report(clusters);
      const { totals, clusters: read } = readTotals(bytes);
      add(sums, bytes, one, undefined);
      const { clusterStats } = taken(sums);
      const names = ({ clusterName, clusterServiceName }: Clusters[number]): string =>
        `${clusterName}/${clusterServiceName}`;
      const errors = new Map<string, number>();
      for (const each of clusters)
        for (const { locality } of each.upstreamLocalityStats ?? [])
          errors.set(`${names(each)}/${locality?.zone}`, 1);
      const heard = clusterStats.flatMap((each) =>
        each.upstreamLocalityStats
          .filter(({ totalErrorRequests }) => totalErrorRequests > 0n)
          .map(({ locality, totalErrorRequests, totalRequestsInProgress }) => {
            expect(totalRequestsInProgress).to.equal(1n);
            return [`${names(each)}/${locality?.zone}`, Number(totalErrorRequests)] as const;
          }),
      );
      expect(new Map(heard)).to.deep.equal(errors);
      expect(totals.error).to.equal(errors.size);
      expect(read.map(({ name, dropped }) => [name, dropped])).to.deep.equal(
        clusters.map(({ clusterName }) => [clusterName, 1]),
      );
    }
  });

  it('what a report does not name is not in the sums, though the last one of its client had it there', () => {
    const sums = new LoadSums();
    const one = reporter();
    // What tells them apart comes last.
    const cluster = (clusterServiceName: string, metadata?: { version: string }): Clusters => [
      {
        clusterName: 'shop',
        clusterServiceName,
        upstreamLocalityStats: [
          { upstreamEndpointStats: [{ ...(metadata && { metadata }), totalIssuedRequests: 1n }] },
        ],
      },
    ];
    const heard = () =>
      taken(sums).clusterStats.map(({ clusterServiceName, upstreamLocalityStats: [locality] }) => [
        clusterServiceName,
        locality?.upstreamEndpointStats.map(({ metadata }) => metadata?.['version']),
      ]);
    const [first, other] = [cluster('a', { version: 'v1' }), cluster('b', { version: 'v2' })];
    add(sums, report([...first, ...other]), one, undefined);
    expect(heard()).to.deep.equal([
      ['a', ['v1']],
      ['b', ['v2']],
    ]);
    add(sums, report(other), one, undefined);
    expect(heard()).to.deep.equal([['b', ['v2']]]);
    add(sums, report(first), one, undefined);
    add(sums, report(other), one, undefined);
    add(sums, report(cluster('a')), one, undefined);
    expect(heard()).to.have.deep.members([
      ['a', ['v1']],
      ['b', ['v2']],
    ]);
  });

  it('rows that stay count on where thousands of others have come and gone', () => {
    const sums = new LoadSums();
    const [stays, goes] = [reporter(10_000), reporter(10_000)];
    const clusters = (from: number, count: number): Buffer =>
      report(
        Array.from({ length: count }, (_, at) => ({
          clusterName: `c${from + at}`,
          upstreamLocalityStats: [{ totalIssuedRequests: BigInt(from + at), totalRequestsInProgress: 1n }],
        })),
      );
    for (let round = 0; round < 12; round++) {
      add(sums, clusters(1, 20), stays, undefined);
      if (round % 6 < 2) add(sums, clusters(100 + round, 2000), goes, undefined);
      else sums.leave(goes);
      const heard = taken(sums).clusterStats.map(({ clusterName, upstreamLocalityStats: [locality] }) => [
        clusterName,
        Number(locality?.totalIssuedRequests),
        Number(locality?.totalRequestsInProgress),
      ]);
      expect(heard.slice(0, 20)).to.deep.equal(
        Array.from({ length: 20 }, (_, at) => [`c${1 + at}`, 1 + at, 1]),
      );
      expect(heard.length > 2000).to.equal(round % 6 < 3);
    }
  });

  it('what is given up in the middle leaves nothing', () => {
    const sums = new LoadSums();
    const clusters = Array.from({ length: 5000 }, (_, at) => ({ clusterName: `cluster-${at}` }));
    const reading = sums.reading(reporter(10_000), undefined);
    const read = reading.read(report(clusters));
    read.next();
    read.next();
    reading.close();
    expect(taken(sums).clusterStats).to.deep.equal([]);
    expect(taken(sums).clusterStats).to.deep.equal([]);
  });

  it('what is wanted of a client that is asked for more', () => {
    const sums = new LoadSums();
    const stats = { upstreamEndpointStats: [{ totalIssuedRequests: 1n }], totalIssuedRequests: 1n };
    const clusters: Clusters = [
      { clusterName: 'a', upstreamLocalityStats: [stats] },
      { clusterName: 'b', upstreamLocalityStats: [stats] },
    ];
    add(sums, report(clusters), reporter(), { clusters: new Set(['b']), endpoints: false });
    const { clusterStats } = taken(sums);
    expect(clusterStats.map(({ clusterName }) => clusterName)).to.deep.equal(['b']);
    expect(clusterStats[0]?.upstreamLocalityStats[0]?.upstreamEndpointStats).to.deep.equal([]);
  });

  it('of a million names of one cluster only the last one counts, and the others cost what unknown fields do', () => {
    const after = (field: number): Buffer => {
      const many = encoded(Buffer.alloc(3_000_000, encode([utf8(field, 'a')])));
      return encode([message(2, [many, utf8(1, 'shop')])]);
    };
    const [names, unknown] = [after(1), after(15)];
    const cost = (bytes: Buffer): number => {
      const sums = new LoadSums();
      const before = process.threadCpuUsage();
      add(sums, bytes, reporter(), undefined);
      const { user, system } = process.threadCpuUsage(before);
      expect(taken(sums).clusterStats.map(({ clusterName }) => clusterName)).to.deep.equal(['shop']);
      return user + system;
    };
    const least = (bytes: Buffer): number => Math.min(...Array.from({ length: 4 }, () => cost(bytes)));
    expect(least(names) / least(unknown)).to.be.below(4);
  });

  it('property: whatever the bytes, the sums can be read', () => {
    const tags = [0x0a, 0x12, 0x18, 0x1a, 0x22, 0x2a, 0x30, 0x32, 0x3a, 0x11, 0x19, 0x40, 0x62];
    const piece = fc.oneof(
      fc.constantFrom(...tags).map((tag) => [tag]),
      fc.array(fc.nat(12), { maxLength: 3 }),
    );
    const field = fc
      .array(piece, { maxLength: 12 })
      .map((pieces) => Buffer.from(pieces.flat()))
      .map((inner) => Buffer.concat([Buffer.from([0x12, inner.length]), inner]));
    fc.assert(
      fc.property(fc.array(fc.oneof(field, fc.uint8Array({ maxLength: 20 })), { maxLength: 6 }), (parts) => {
        const sums = new LoadSums();
        try {
          add(sums, Buffer.concat(parts), reporter(), undefined);
        } catch (thrown) {
          expect(thrown instanceof RangeError || thrown instanceof TypeError, String(thrown)).to.equal(true);
        }
        taken(sums);
      }),
      { numRuns: 2500 },
    );
  });

  it('property: the sums are those of the decoded reports, whatever is below the clusters', () => {
    const few = fc.nat(2);
    const count = fc.oneof(fc.nat(3), fc.constantFrom(127, 128, 2 ** 28, 2 ** 35)).map(BigInt);
    const metrics = fc.array(
      fc.record({
        metricName: few.map(String),
        numRequestsFinishedWithMetric: count,
        totalMetricValue: fc.constantFrom(0, 0.5, -3),
      }),
      { maxLength: 2 },
    );
    const endpoint = fc.record({
      metadata: few.map((v) => ({ v })),
      totalErrorRequests: count,
      loadMetricStats: metrics,
    });
    const locality = fc.record({
      locality: fc.option(
        few.map((zone) => create(LocalitySchema, { zone: String(zone) })),
        { nil: undefined },
      ),
      priority: few,
      totalSuccessfulRequests: count,
      totalErrorRequests: count,
      totalRequestsInProgress: count,
      totalActiveConnections: count,
      upstreamEndpointStats: fc.array(endpoint, { maxLength: 2 }),
      loadMetricStats: metrics,
      cpuUtilization: fc.option(fc.record({ numRequestsFinishedWithMetric: count }), { nil: undefined }),
    });
    const cluster = fc.record({
      clusterName: few.map(String),
      clusterServiceName: fc.constantFrom('', 's'),
      totalDroppedRequests: count,
      droppedRequests: fc.array(fc.record({ category: few.map(String), droppedCount: count }), {
        maxLength: 2,
      }),
      upstreamLocalityStats: fc.array(locality, { maxLength: 3 }),
    });
    const step = fc.record({
      client: few,
      clusters: fc.array(cluster, { maxLength: 4 }),
      isTaken: fc.boolean(),
    });
    fc.assert(
      fc.property(fc.array(step, { maxLength: 8 }), (steps) => {
        const sums = new LoadSums();
        const clients = [reporter(), reporter(), reporter()];
        const counted = new Map<string, number>();
        const open = new Map<number, Map<string, number>>();
        const heard = new Map<string, number>();
        for (const { client, clusters, isTaken } of steps) {
          const bytes = report(clusters);
          const { clusters: read } = added(sums, bytes, clients[client] ?? reporter(), undefined);
          const said = numbersOf(fromBinary(LoadStatsRequestSchema, bytes));
          expect(read).to.deep.equal(readTotals(bytes).clusters);
          addNumbers(counted, said.counters);
          open.set(client, said.gauges);
          if (!isTaken) continue;
          const { counters, gauges } = numbersOf(taken(sums));
          addNumbers(heard, counters);
          const now = new Map<string, number>();
          for (const one of open.values()) addNumbers(now, one);
          expect(gauges).to.deep.equal(now);
        }
        addNumbers(heard, numbersOf(taken(sums)).counters);
        expect(heard).to.deep.equal(counted);
      }),
      { numRuns: 500 },
    );
  });

  it('property: whatever is lost and reported in whatever order, each request is counted once', () => {
    const step = fc.oneof(
      fc.record({
        kind: fc.constant('report' as const),
        client: fc.nat(2),
        cluster: fc.nat(2),
        requests: fc.nat(5),
        active: fc.nat(3),
      }),
      fc.record({ kind: fc.constant('leave' as const), client: fc.nat(2) }),
      fc.record({ kind: fc.constant('take' as const) }),
      fc.record({ kind: fc.constant('lose' as const) }),
    );
    fc.assert(
      fc.property(fc.array(step, { maxLength: 30 }), (steps) => {
        const sums = new LoadSums();
        const clients = [reporter(), reporter(), reporter()];
        const active = new Map<number, readonly [cluster: number, count: number]>();
        const said = new Map<string, number>();
        const heard = new Map<string, number>();
        const hear = (): void => {
          const request = taken(sums);
          for (const { clusterName, upstreamLocalityStats } of request.clusterStats)
            for (const { totalIssuedRequests } of upstreamLocalityStats)
              heard.set(clusterName, (heard.get(clusterName) ?? 0) + Number(totalIssuedRequests));
          for (const cluster of [0, 1, 2]) {
            const expected = [...active.values()].reduce(
              (sum, [of, count]) => sum + (of === cluster ? count : 0),
              0,
            );
            const shown = request.clusterStats
              .filter(({ clusterName }) => clusterName === `c${cluster}`)
              .flatMap((each) =>
                each.upstreamLocalityStats.map((one) => Number(one.totalRequestsInProgress)),
              );
            expect(shown[0] ?? 0).to.equal(expected);
          }
        };
        for (const each of steps) {
          if (each.kind === 'take') hear();
          else if (each.kind === 'lose') sums.take(0).giveBack();
          else {
            const client = clients[each.client] ?? reporter();
            active.delete(each.client);
            if (each.kind === 'leave') {
              sums.leave(client);
              continue;
            }
            const name = `c${each.cluster}`;
            const stats = {
              totalIssuedRequests: BigInt(each.requests),
              totalRequestsInProgress: BigInt(each.active),
            };
            add(sums, report([{ clusterName: name, upstreamLocalityStats: [stats] }]), client, undefined);
            active.set(each.client, [each.cluster, each.active]);
            said.set(name, (said.get(name) ?? 0) + each.requests);
          }
        }
        hear();
        for (const [name, count] of said) expect(heard.get(name) ?? 0).to.equal(count);
      }),
      { numRuns: 500 },
    );
  });
});
