import { fromBinary } from '@bufbuild/protobuf';
import { expect } from 'chai';
import {
  type LoadStatsRequest,
  LoadStatsRequestSchema,
} from '../../src/gen/envoy/service/load_stats/v3/lrs_pb.ts';
import type { Reading } from '../../src/load/reading.ts';
import { type Payer, Reporter } from '../../src/load/rows.ts';
import { LoadSums } from '../../src/load/sums.ts';
import {
  encode,
  encoded,
  type Field,
  bytes as field,
  message,
  varint,
} from '../../src/protobuf/field-writer.ts';
import { Random } from '../support/random.ts';

/** What every client may hold, and what all of them hold. */
class Account implements Payer {
  readonly exempt = false;
  held = 0;
  rows = 0;
  hold(bytes: number): undefined {
    this.held += bytes;
  }
  count(): number {
    return this.rows;
  }
  enter(): void {
    this.rows++;
  }
  leave(): void {
    this.rows--;
  }
}

type Numbers = Map<string, number>;

function addAll(to: Numbers, more: ReadonlyMap<string, number>): void {
  for (const [key, value] of more) to.set(key, (to.get(key) ?? 0) + value);
}

const withoutZeros = (numbers: Numbers): Numbers => new Map([...numbers].filter(([, value]) => value !== 0));

/** What a report says, as a decoder reads it. */
function decoded(report: Buffer): { readonly counters: Numbers; readonly gauges: Numbers } {
  const counters: Numbers = new Map();
  const gauges: Numbers = new Map();
  const { clusterStats }: LoadStatsRequest = fromBinary(LoadStatsRequestSchema, report);
  for (const cluster of clusterStats) {
    const ofCluster = `${cluster.clusterName} ${cluster.clusterServiceName}`;
    addAll(counters, new Map([[ofCluster, Number(cluster.totalDroppedRequests)]]));
    for (const { category, droppedCount } of cluster.droppedRequests)
      addAll(counters, new Map([[`${ofCluster} drop ${category}`, Number(droppedCount)]]));
    for (const one of cluster.upstreamLocalityStats) {
      const key = `${ofCluster} ${one.locality?.zone} ${one.priority}`;
      addAll(counters, new Map([[`${key} ok`, Number(one.totalSuccessfulRequests)]]));
      addAll(counters, new Map([[`${key} bad`, Number(one.totalErrorRequests)]]));
      addAll(gauges, new Map([[key, Number(one.totalRequestsInProgress)]]));
      for (const { metricName, numRequestsFinishedWithMetric: count } of one.loadMetricStats)
        addAll(counters, new Map([[`${key} metric ${metricName}`, Number(count)]]));
    }
  }
  return { counters, gauges };
}

/** Number 77, a varint. */
const unknownField = Buffer.from([0xe8, 0x04, 5]);

/** Reports of one fleet, by a seed. */
class Reports {
  readonly #random: Random;
  /** How often fields are in another order, and how often there are fields that nobody knows. */
  readonly #disorder: number;
  readonly #unknown: number;
  readonly #sizes: readonly [clusters: number, names: number, localities: number];

  constructor(random: Random) {
    this.#random = random;
    this.#disorder = random.pick([0, 0, 0.2, 1]);
    this.#unknown = random.pick([0, 0, 0.3]);
    this.#sizes = random.pick([
      [1, 2, 1],
      [4, 4, 3],
      [8, 30, 4],
      [3, 4, 150],
    ] as const);
  }

  /** Nearly what the last one said, as a rule. */
  next(last: readonly Field[]): readonly Field[] {
    const random = this.#random;
    const [clusters] = this.#sizes;
    if (last.length === 0 || random.chance(0.4))
      return Array.from({ length: random.below(clusters + 1) }, () => this.#cluster());
    const fields = [...last];
    const at = random.below(fields.length);
    random.pick([
      () => fields.splice(at, 0, this.#cluster()),
      () => fields.splice(at, 1, this.#cluster()),
      () => fields.splice(at, 1),
      () => fields.splice(0, Number.POSITIVE_INFINITY, ...fields.toReversed()),
      () => fields.push(random.pick(fields)),
      () => undefined,
    ])();
    return fields;
  }

  #cluster(): Field {
    const [, names, localities] = this.#sizes;
    const drop = (): Field => message(5, this.#fields([this.#name(1, 2), this.#count(2)]));
    return message(
      2,
      this.#fields([
        this.#name(1, names),
        this.#name(6, 2),
        this.#count(3),
        ...this.#some(2, drop),
        ...this.#some(localities, () => this.#locality(localities)),
      ]),
    );
  }

  #locality(names: number): Field {
    const metric = (): Field => message(5, this.#fields([this.#name(1, 2), this.#count(2)]));
    const priority = varint(6, this.#random.below(3));
    const zone = message(1, [this.#name(2, names + 1)]);
    return message(
      2,
      this.#fields([
        zone,
        this.#count(2),
        this.#count(3),
        this.#count(4),
        priority,
        ...this.#some(1, metric),
      ]),
    );
  }

  #some(most: number, make: () => Field): readonly Field[] {
    return Array.from({ length: this.#random.below(most + 1) }, make);
  }

  #count(number: number): Field {
    return varint(number, this.#random.pick([0, 0, 1, 2, 127, 128, 2 ** 20]));
  }

  #name(number: number, names: number): Field {
    const at = this.#random.below(names);
    return field(number, Buffer.from(`${at}`.repeat(at % 5 === 4 ? 40 : 1)));
  }

  #fields(known: readonly Field[]): readonly Field[] {
    const random = this.#random;
    const unknown = random.chance(this.#unknown) ? [encoded(unknownField)] : [];
    const all = [...known, ...unknown];
    return random.chance(this.#disorder) ? all.toSorted(() => random.next() - 0.5) : all;
  }
}

/** A report on its way into the sums, in turns. */
interface UnderWay {
  readonly client: Client;
  readonly reading: Reading;
  readonly turns: Iterator<unknown>;
  readonly said: ReturnType<typeof decoded>;
}

interface Client {
  readonly reporter: Reporter;
  fields: readonly Field[];
  gauges: Numbers;
}

function* readAndApply(reading: Reading, report: Buffer): Generator {
  yield* reading.read(report);
  yield* reading.apply();
  reading.close();
}

/** Throws where the sums are not those of the decoded reports. */
function compare(seed: number): void {
  const random = new Random(seed);
  const reports = new Reports(random);
  const account = new Account();
  const sums = new LoadSums();
  const newClient = (): Client => ({ reporter: new Reporter(account, 1000), fields: [], gauges: new Map() });
  const clients = Array.from({ length: 1 + random.below(4) }, newClient);
  const counted: Numbers = new Map();
  const heard: Numbers = new Map();
  let underWay: readonly UnderWay[] = [];

  const advance = (): void => {
    underWay = underWay.filter(({ client, turns, said }) => {
      if (turns.next().done !== true) return true;
      addAll(counted, said.counters);
      client.gauges = said.gauges;
      return false;
    });
  };
  const take = (): void => {
    const taken = sums.take(0);
    const open: Numbers = new Map();
    for (const { gauges } of clients) addAll(open, gauges);
    if (random.chance(0.5)) advance();
    if (random.chance(0.2)) {
      taken.giveBack();
      return;
    }
    taken.confirm();
    const { counters, gauges } = decoded(Buffer.concat(taken.messages));
    addAll(heard, counters);
    expect(withoutZeros(gauges)).to.deep.equal(withoutZeros(open));
  };
  const report = (client: Client): void => {
    client.fields = reports.next(client.fields);
    const bytes = encode(client.fields);
    const reading = sums.reading(client.reporter, undefined);
    if (bytes.length > 1 && random.chance(0.1)) {
      // It ends in the middle of its last row.
      expect(() => [...readAndApply(reading, bytes.subarray(0, -1))]).to.throw(RangeError);
      reading.close();
      return;
    }
    underWay = [...underWay, { client, reading, turns: readAndApply(reading, bytes), said: decoded(bytes) }];
    if (random.chance(0.7)) advance();
  };
  const leave = (client: Client): void => {
    sums.leave(client.reporter);
    clients[clients.indexOf(client)] = newClient();
  };

  for (let step = 0; step < 40; step++) {
    const idle = clients.filter((one) => !underWay.some(({ client }) => client === one));
    if (idle.length > 0 && random.chance(0.6)) report(random.pick(idle));
    else if (idle.length > 0 && random.chance(0.2)) leave(random.pick(idle));
    else if (random.chance(0.5)) take();
    else advance();
  }
  while (underWay.length > 0) advance();
  for (const client of [...clients]) leave(client);
  for (let more = 0; more < 20; more++) take();
  expect(withoutZeros(heard)).to.deep.equal(withoutZeros(counted));
  expect([account.held, account.rows, sums.isEmpty]).to.deep.equal([0, 0, true]);
}

describe('a report that is read as the last one of its client', () => {
  it('property: the sums are those of the decoded reports, in whatever order, turns and shape they come', () => {
    for (let seed = 0; seed < 75; seed++) {
      try {
        compare(seed);
      } catch (cause) {
        throw new Error(`seed ${seed}`, { cause });
      }
    }
  });
});
