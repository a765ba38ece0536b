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
}

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
};

/** Measured on the machine of docs/performance.md, one process. Microseconds of CPU, KB and MB. */
export const measured = {
  /** An update of 2 KB for one client, its ACK included. */
  updateMicros: 35,
  /** For each KB more. */
  microsPerKb: 0.15,
  /** A client that connects and gets everything anew. */
  joinMicros: 370,
  /** An idle stream. */
  streamKb: 32,
  /** A process without clients and resources. */
  baseMb: 150,
  /** `limits.max_streams`, the default. */
  maxStreams: 20_000,
} as const;

export interface Plan {
  readonly envoysPerRegion: number;
  /** When one region's clients go to the others. */
  readonly envoysPerRegionAfterFailover: number;
  readonly streamsPerProcess: number;
  /** What bounds it. */
  readonly boundBy: 'max_streams' | 'seconds_to_last' | 'busy';
  /** Enough for a region that has taken over, and one more. */
  readonly processesPerRegion: number;
  readonly tiers: number;
  /** Relays of the upper tier: a pair in each region, or one pair for all. */
  readonly upperRelays: number;
  /** What the control plane sees. */
  readonly planeStreams: number;
  readonly memoryMbPerProcess: number;
  /** CPU of one update in a process with all its streams, seconds: so long the last client waits. */
  readonly updateSeconds: number;
  readonly coresPerRegion: number;
  /** CPU of a process that takes its share of another region's clients, seconds. */
  readonly failoverSeconds: number;
}

export function plan(input: PlanInput): Plan {
  const { envoys, regions, slower } = input;
  const perUpdate =
    ((measured.updateMicros + measured.microsPerKb * Math.max(0, input.updateKb - 2)) * slower) / 1e6;
  const envoysPerRegion = Math.ceil(envoys / regions);
  const afterFailover = regions > 1 ? Math.ceil(envoys / (regions - 1)) : envoysPerRegion;
  const bounds = [
    ['max_streams', measured.maxStreams],
    ['seconds_to_last', Math.floor(input.secondsToLast / perUpdate)],
    ['busy', Math.floor((60 * input.busy) / (input.updatesPerMinute * perUpdate))],
  ] as const;
  const [boundBy, streamsPerProcess] = bounds.reduce((least, bound) => (bound[1] < least[1] ? bound : least));
  const processesPerRegion = Math.ceil(afterFailover / streamsPerProcess) + 1;
  const tiers = tiersFor(input, processesPerRegion * regions);
  const streams = Math.ceil(afterFailover / (processesPerRegion - 1));
  const newStreams = Math.ceil((afterFailover - envoysPerRegion) / processesPerRegion);
  return {
    envoysPerRegion,
    envoysPerRegionAfterFailover: afterFailover,
    streamsPerProcess,
    boundBy,
    processesPerRegion,
    ...tiers,
    memoryMbPerProcess: Math.ceil(measured.baseMb + input.resourcesMb + (streams * measured.streamKb) / 1024),
    updateSeconds: round(streams * perUpdate),
    coresPerRegion: round((envoysPerRegion * perUpdate * input.updatesPerMinute) / 60),
    failoverSeconds: round((newStreams * measured.joinMicros * slower) / 1e6),
  };
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

export function planText(input: PlanInput, result: Plan): string {
  const rows: readonly (readonly [string, string])[] = [
    ['Envoys in a region', grouped(result.envoysPerRegion)],
    ['… when another region has failed', grouped(result.envoysPerRegionAfterFailover)],
    ['streams that one process may have', `${grouped(result.streamsPerProcess)} (${result.boundBy})`],
    ['processes in a region', `${grouped(result.processesPerRegion)}, one of them to spare`],
    ['tiers of relays', result.tiers === 1 ? '1' : `2, with ${upperTier(result, input)} above`],
    ['streams at the control plane', `${grouped(result.planeStreams)}${tooMany(result, input)}`],
    ['memory of a process', `${grouped(result.memoryMbPerProcess)} MB`],
    ['an update reaches the last client after', `${result.updateSeconds} s of CPU`],
    ['cores for updates in a region', String(result.coresPerRegion)],
    ["a failed region's clients, for each process", `${result.failoverSeconds} s of CPU`],
  ];
  const width = Math.max(...rows.map(([name]) => name.length));
  const title = `${grouped(input.envoys)} Envoys, ${input.regions} regions, ${input.updatesPerMinute} updates of ${input.updateKb} KB a minute`;
  return [title, '', ...rows.map(([name, value]) => `  ${name.padEnd(width)}  ${value}`), ''].join('\n');
}
