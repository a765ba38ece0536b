/** How many relays a fleet needs. docs/scale.md explains each formula. */

export interface PlanInput {
  readonly envoys: number;
  readonly regions: number;
  /** Sets of dynamic parameters in a region: each is a session with the control plane and a class of clients. */
  readonly parameterSets: number;
  /** What one update sends to each client, in KB. */
  readonly updateKb: number;
  readonly updatesPerMinute: number;
  /** All resources in all variants, in MB. */
  readonly resourcesMb: number;
  /** How soon the last client shall have an update, in seconds, if the relay's core has nothing else to do. */
  readonly secondsToLast: number;
  /** The part of one core that updates may use on average. */
  readonly busy: number;
  /** Streams that the control plane serves comfortably. */
  readonly planeStreams: number;
  /** So many times over the time that is computed, for machines that are slower. */
  readonly slower: number;
  readonly tls: (typeof choices.tls)[number];
  /** Of the relay's certificate and of the clients'. */
  readonly key: (typeof choices.key)[number];
  /** The share of clients that resume their TLS session, 0 to 1. */
  readonly resumed: number;
  /** Cores of one relay: with more than one `workers` is that number. */
  readonly workers: number;
  /** How soon all clients of a region have their configuration, once its relays serve again. */
  readonly secondsToReturn: number;
  /** For so long no relay of the region serves, so clients wait longer before they try again. */
  readonly secondsDown: number;
  /** A client gives up a connection whose TLS handshake takes longer, in seconds: Envoy's default. */
  readonly connectTimeout: number;
}

export const choices = { tls: ['none', 'mtls'], key: ['ecdsa', 'rsa-2048', 'rsa-4096'] } as const;

export const defaults: PlanInput = {
  envoys: 10_000,
  regions: 3,
  parameterSets: 3,
  updateKb: 36,
  updatesPerMinute: 6,
  resourcesMb: 20,
  secondsToLast: 1,
  busy: 0.5,
  planeStreams: 500,
  slower: 1,
  tls: 'none',
  key: 'ecdsa',
  resumed: 0,
  workers: 1,
  secondsToReturn: 30,
  secondsDown: 1,
  connectTimeout: 5,
};

/** docs/scale.md has the same table, and says where each comes from. Microseconds of CPU, KB and MB. */
export const measured = {
  /** An update of 2 KB for one client, its ACK included. */
  updateMicros: 35,
  /** For each KB more. */
  microsPerKb: 0.15,
  /** Times that with TLS. */
  updateTls: 1.33,
  /** Times that with workers. */
  updateWorkers: 1.17,
  /** A client that connects and gets everything, in a process that has just started, and later. */
  firstMicros: 575,
  laterMicros: 377,
  /** The same with a client's certificate of ECDSA. */
  firstMtlsMicros: 1479,
  laterMtlsMicros: 1196,
  /** A session that is resumed, times that. */
  resumed: 0.76,
  /** Times the part of TLS with RSA 4096, in full and resumed. RSA 2048 is as ECDSA. */
  rsa4096: 2.78,
  rsa4096Resumed: 1.08,
  /** Times a connection with workers, without TLS and with it. */
  joinWorkers: 1.16,
  joinMtlsWorkers: 1.29,
  /** An idle stream, without TLS and with it. */
  streamKb: 32,
  mtlsStreamKb: 107,
  /** A process without clients and resources. */
  baseMb: 150,
  /** `limits.max_streams`, the default. */
  maxStreams: 20_000,
} as const;

/** A plan counts on so much of a core: updates go on, and chance deals clients unevenly to workers. */
const usable = 0.7;
/** Seconds after which the relay ends a TLS handshake, whatever the client's `connect_timeout` is. */
const handshakeTimeout = 15;
/**
 * Seconds until 99 % of Envoys have tried again, once a relay serves. They wait from 0 to 0.5 s at first, and from 0 to
 * twice as long each time; the longest such wait is 30 s.
 */
export const lastRetry = (secondsDown: number): number => Math.min(27, 0.5 + 3 * secondsDown);

type Bound = 'max_streams' | 'seconds_to_last' | 'busy' | 'seconds_to_return' | 'connect_timeout';

export interface Plan {
  readonly envoysPerRegion: number;
  /** When one region's clients go to the others. */
  readonly envoysPerRegionAfterFailover: number;
  readonly streamsPerRelay: number;
  /** What bounds it. */
  readonly boundBy: Bound;
  /** Enough for a region that has taken over, and one more. */
  readonly relaysPerRegion: number;
  readonly tiers: number;
  /** Relays of the upper tier: a pair in each region, or one pair for all. */
  readonly upperRelays: number;
  /** What the control plane sees. */
  readonly planeStreams: number;
  /** With idle streams, all its processes together. */
  readonly memoryMbPerRelay: number;
  /** CPU of one update in each process of a relay with all its streams, seconds: so long the last client waits. */
  readonly updateSeconds: number;
  readonly coresPerRegion: number;
  /** CPU of a relay that takes its share of another region's clients, seconds. */
  readonly failoverSeconds: number;
  /** CPU of a region whose relays have all just started, and whose clients all connect, seconds. */
  readonly returnSeconds: number;
  /** What that needs within `secondsToReturn`, in as few relays as `max_streams` allows. */
  readonly returnCores: number;
  readonly returnBoundBy: Bound;
  readonly returnRelays: number;
  readonly returnWorkers: number;
}

export function plan(input: PlanInput): Plan {
  const { envoys, regions, workers } = input;
  const { update, first, later, streamKb } = costs(input, workers);
  const envoysPerRegion = Math.ceil(envoys / regions);
  const afterFailover = regions > 1 ? Math.ceil(envoys / (regions - 1)) : envoysPerRegion;
  const bounds: readonly (readonly [Bound, number])[] = [
    ['max_streams', measured.maxStreams],
    ['seconds_to_last', Math.floor((workers * input.secondsToLast) / update)],
    ['busy', Math.floor((workers * 60 * input.busy) / (input.updatesPerMinute * update))],
    ...storm(input, workers).map(([name, cores]) => [name, Math.floor(workers / cores)] as const),
  ];
  const [boundBy, streamsPerRelay] = bounds.reduce((least, bound) => (bound[1] < least[1] ? bound : least));
  if (streamsPerRelay < 1) throw new Error(`${boundBy}: a relay could not serve one client`);
  const relaysPerRegion = Math.ceil(afterFailover / streamsPerRelay) + 1;
  const streams = Math.ceil(afterFailover / (relaysPerRegion - 1));
  const newStreams = Math.ceil((afterFailover - envoysPerRegion) / relaysPerRegion);
  const processes = workers > 1 ? workers + 1 : 1;
  const memoryMb = processes * (measured.baseMb + input.resourcesMb) + (streams * streamKb) / 1024;
  return {
    envoysPerRegion,
    envoysPerRegionAfterFailover: afterFailover,
    streamsPerRelay,
    boundBy,
    relaysPerRegion,
    ...tiersFor(input, relaysPerRegion * regions),
    memoryMbPerRelay: Math.ceil(memoryMb),
    updateSeconds: round((streams * update) / workers),
    coresPerRegion: round((envoysPerRegion * update * input.updatesPerMinute) / 60),
    failoverSeconds: round(newStreams * later),
    returnSeconds: round(afterFailover * first),
    ...coresToReturn(input, afterFailover),
  };
}

/** Seconds of CPU for one client, and the memory of its stream. */
function costs(
  { tls, key, resumed, updateKb, slower }: PlanInput,
  workers: number,
): { update: number; first: number; later: number; handshake: number; streamKb: number } {
  const secure = tls === 'mtls';
  const many = workers > 1;
  const seconds = slower / 1e6;
  const connection = seconds * (many ? (secure ? measured.joinMtlsWorkers : measured.joinWorkers) : 1);
  const [full, again] = key === 'rsa-4096' ? [measured.rsa4096, measured.rsa4096Resumed] : [1, 1];
  const ofTls = (plain: number, mtls: number): number =>
    secure ? (1 - resumed) * full * (mtls - plain) + resumed * again * (measured.resumed * mtls - plain) : 0;
  const { firstMicros, laterMicros } = measured;
  const handshake = ofTls(firstMicros, measured.firstMtlsMicros);
  return {
    update:
      (measured.updateMicros + measured.microsPerKb * Math.max(0, updateKb - 2)) *
      (secure ? measured.updateTls : 1) *
      (many ? measured.updateWorkers : 1) *
      seconds,
    first: (firstMicros + handshake) * connection,
    later: (laterMicros + ofTls(laterMicros, measured.laterMtlsMicros)) * connection,
    handshake: handshake * connection,
    streamKb: secure ? measured.mtlsStreamKb : measured.streamKb,
  };
}

/** Cores that one client needs, so that it is back in time, and does not give up its TLS handshake. */
function storm(input: PlanInput, workers: number): readonly (readonly [Bound, number])[] {
  const { first, handshake } = costs(input, workers);
  const { secondsToReturn, secondsDown, connectTimeout } = input;
  const retry = lastRetry(secondsDown);
  if (secondsToReturn <= retry)
    throw new Error(
      `--seconds-to-return ${secondsToReturn}: accepted is more than ${retry}, as clients wait that long`,
    );
  return [
    ['seconds_to_return', first / (usable * (secondsToReturn - retry))],
    ['connect_timeout', handshake / (usable * Math.min(connectTimeout, handshakeTimeout))],
  ];
}

/** In as few relays as may be: one process each where that is enough, else with workers, which cost more. */
function coresToReturn(
  input: PlanInput,
  clients: number,
): Pick<Plan, 'returnCores' | 'returnBoundBy' | 'returnRelays' | 'returnWorkers'> {
  const returnRelays = Math.ceil(clients / measured.maxStreams);
  const needed = (workers: number): readonly [Bound, number] => {
    const [name, cores] = storm(input, workers).reduce((most, bound) => (bound[1] > most[1] ? bound : most));
    return [name, Math.ceil(clients * cores)];
  };
  const one = needed(1);
  const [returnBoundBy, returnCores] = one[1] > returnRelays ? needed(2) : one;
  return { returnCores, returnBoundBy, returnRelays, returnWorkers: Math.ceil(returnCores / returnRelays) };
}

/** One tier if the control plane bears it; else the first upper tier that is small enough, or the smallest. */
function tiersFor(
  { regions, parameterSets, planeStreams: most }: PlanInput,
  relays: number,
): Pick<Plan, 'tiers' | 'upperRelays' | 'planeStreams'> {
  const one = { tiers: 1, upperRelays: 0, planeStreams: relays * parameterSets };
  if (one.planeStreams <= most) return one;
  const pairInEachRegion = 2 * regions;
  const onePair = 2;
  const upper = [pairInEachRegion, onePair].filter((count) => count < relays);
  const count = upper.find((some) => some * parameterSets <= most) ?? upper.at(-1);
  if (count === undefined) return one;
  return { tiers: 2, upperRelays: count, planeStreams: count * parameterSets };
}

const round = (value: number): number => Number(value.toPrecision(2));
const grouped = (value: number): string => value.toLocaleString('en-US');

const upperTier = ({ upperRelays }: Plan, { regions }: PlanInput): string =>
  regions > 1 && upperRelays === 2 * regions ? '2 relays in each region' : '2 relays for all regions';

const tooMany = ({ planeStreams }: Plan, input: PlanInput): string =>
  planeStreams > input.planeStreams ? `, more than the ${grouped(input.planeStreams)} that it bears` : '';

const asRelays = (count: number, workers: number): string =>
  `${count === 1 ? 'one relay' : `${grouped(count)} relays`} ${workers > 1 ? `with workers: ${workers}` : 'of one process'}`;

type Row = readonly [name: string, value: string];

export function planText(input: PlanInput, result: Plan): string {
  const back = asRelays(result.returnRelays, result.returnWorkers);
  const others = (...row: Row): readonly Row[] => (input.regions > 1 ? [row] : []);
  const rows: readonly Row[] = [
    ['Envoys in a region', grouped(result.envoysPerRegion)],
    ...others('… when another region has failed', grouped(result.envoysPerRegionAfterFailover)),
    ['streams that one relay may have', `${grouped(result.streamsPerRelay)} (${result.boundBy})`],
    ['relays in a region', `${grouped(result.relaysPerRegion)}, one of them to spare`],
    ['tiers of relays', result.tiers === 1 ? '1' : `2, with ${upperTier(result, input)} above`],
    ['streams at the control plane', `${grouped(result.planeStreams)}${tooMany(result, input)}`],
    ['memory of a relay', `${grouped(result.memoryMbPerRelay)} MB`],
    ['an update reaches the last client after', `${result.updateSeconds} s of CPU`],
    ['cores for updates in a region', String(result.coresPerRegion)],
    ...others("a failed region's clients, for each relay", `${result.failoverSeconds} s of CPU`),
    ['all clients of a region connect anew', `${result.returnSeconds} s of CPU`],
    [
      `cores, to be back within ${input.secondsToReturn} s`,
      `${result.returnCores} (${result.returnBoundBy}): ${back}`,
    ],
  ];
  const width = Math.max(...rows.map(([name]) => name.length));
  const fleet = `${grouped(input.envoys)} Envoys${input.tls === 'none' ? '' : ' with mTLS'}, ${input.regions > 1 ? `${input.regions} regions` : '1 region'}`;
  const title = `${fleet}, ${input.updatesPerMinute} updates of ${input.updateKb} KB a minute`;
  return [title, '', ...rows.map(([name, value]) => `  ${name.padEnd(width)}  ${value}`), ''].join('\n');
}
