import type { ClientPlan } from './client.ts';
import { parameterSets } from './constraints.ts';
import type { Habits } from './control-plane.ts';
import { Random } from './random.ts';
import type { GateTurn, RelayPlan } from './relay-host.ts';
import type { CheckSays, Operation, RolloutPlan } from './rollout.ts';
import { catalog, type Kind, kinds, type SwapOrder } from './world.ts';

/** Who is there. */
export interface Plan {
  readonly seed: number;
  readonly planes: readonly { readonly id: string; readonly habits: Habits }[];
  readonly relays: readonly RelayPlan[];
  readonly clients: readonly ClientPlan[];
}

/**
 * What happens, so many milliseconds after the step before. A step undoes itself after a while, and means something
 * whatever other steps there are: any subset of a schedule is a schedule.
 */
export type Step = { readonly wait: number } & (
  | { readonly kind: 'start'; readonly client: string }
  /** A transaction; the salt decides which. */
  | { readonly kind: 'change'; readonly salt: number }
  /** An error about a resource; the salt decides which. */
  | { readonly kind: 'fault'; readonly salt: number }
  /** CDS{X,Y}, RDS→Y, CDS{Y}, so far apart. */
  | { readonly kind: 'swap'; readonly salt: number; readonly gap: number; readonly order?: SwapOrder }
  | {
      readonly kind: 'subscribe' | 'unsubscribe';
      readonly client: string;
      readonly type: Kind;
      readonly names: readonly string[];
      readonly wildcard: boolean;
    }
  | { readonly kind: 'node'; readonly client: string; readonly parameters: number }
  | { readonly kind: 'reject'; readonly client: string }
  | { readonly kind: 'stall'; readonly client: string; readonly milliseconds: number }
  | {
      readonly kind: 'disconnect';
      readonly client: string;
      readonly milliseconds: number;
      readonly elsewhere: boolean;
    }
  | {
      readonly kind: 'plane';
      readonly plane: string;
      readonly does: 'down' | 'deaf';
      readonly milliseconds: number;
    }
  | { readonly kind: 'restart'; readonly plane: string }
  | { readonly kind: 'stream'; readonly plane: string; readonly at: number }
  | { readonly kind: 'cut'; readonly relay: string }
  | { readonly kind: 'stallLink'; readonly relay: string; readonly milliseconds: number }
  /** `gracefully`: what it knows is saved before. */
  | {
      readonly kind: 'crash';
      readonly relay: string;
      readonly milliseconds: number;
      readonly gracefully?: boolean;
    }
  /** What the judge or an operator does to what waits at a relay, or a reload of `rollout`. */
  | {
      readonly kind: 'gate';
      readonly relay: string;
      readonly does: GateTurn;
    }
  /** Content that clients accept, and that makes their requests fail; the salt decides where. */
  | { readonly kind: 'harm'; readonly salt: number }
  /** What an operator does to a rollout. */
  | { readonly kind: 'rollout'; readonly relay: string; readonly does: Operation }
  /** What the checks of a relay say from now on. */
  | { readonly kind: 'check'; readonly relay: string; readonly says: CheckSays }
  /** Control planes ask for other load reports; the salt decides for which. */
  | { readonly kind: 'ask'; readonly salt: number }
  /** In quiet, everything above dies, the relay restarts, and its clients come back to it. */
  | { readonly kind: 'outage'; readonly relay: string }
  /** Everything heals, and after a while nothing may be left to say. */
  | { readonly kind: 'quiet' }
);

/** More of what is rarer else. */
interface More {
  /** A rollout at nearly every relay. */
  readonly waves: boolean;
  /** After four steps of ten: what operators do to rollouts, and what may come in a freeze. */
  readonly freezes: boolean;
}

const nothingMore: More = { waves: false, freezes: false };

export interface Size {
  readonly clients: number;
  readonly steps: number;
}

const orders: readonly SwapOrder[] = ['make before break', 'clusters first', 'routes first'];

const SMALL: Size = { clients: 6, steps: 30 };
const LARGE: Size = { clients: 50, steps: 120 };

/** How large a seed's schedule is: most are small, as most bugs are. */
export function sizeOf(seed: number): Size {
  if (seed % 50 === 49) return LARGE;
  return seed % 10 === 9 ? { clients: 16, steps: 70 } : SMALL;
}

export function makePlan(seed: number, size: Size, { waves } = nothingMore): Plan {
  const random = new Random(seed, 'plan');
  const habits = withErrors(seed, makeHabits(random));
  const planes = [{ id: 'p0', habits }];
  if (random.chance(0.4)) {
    planes.push({ id: 'p1', habits: { ...habits, lag: random.chance(0.3) ? random.between(100, 2000) : 0 } });
  }
  const relays = makeRelays(
    random,
    planes.map(({ id }) => id),
    habits,
  ).map((relay) => withGate(seed, withTurns(seed, withGrace(seed, withPersistence(seed, relay)))));
  const entries = relays.filter(
    ({ id }) => !relays.some(({ endpoints }) => endpoints.includes(id)) || random.chance(0.3),
  );
  const clients = Array.from({ length: random.between(1, size.clients) }, (_, index) =>
    makeClient(random, `c${index}`, entries),
  );
  return withLoads({ seed, planes, relays: relays.map((relay) => withRollout(seed, relay, waves)), clients });
}

const allWaves: readonly RolloutPlan['waves'][] = [
  [
    { percent: 0, match: [{ key: 'env', value: 'dev' }] },
    { percent: 30, match: [] },
    { percent: 70, match: [], bakeMs: 1500 },
  ],
  [
    { percent: 15, match: [] },
    { percent: 60, match: [{ key: 'version', value: '2' }], bakeMs: 4000 },
  ],
  [{ percent: 20, match: [{ key: 'env', value: 'prod' }] }],
  [
    { percent: 0, match: [{ key: 'version', value: '2' }] },
    { percent: 100, match: [] },
  ],
];

/** A relay without a gate may have a rollout. `isLikely`: nearly all have one. */
function withRollout(seed: number, relay: RelayPlan, isLikely: boolean): RelayPlan {
  const random = new Random('rollout', relay.id, seed);
  const { gate, ...ungated } = relay;
  if (isLikely ? gate === true && random.chance(0.5) : gate === true || !random.chance(0.3)) return relay;
  const traffic = random.chance(isLikely ? 0.15 : 0.4);
  const rollout: RolloutPlan = {
    waves: random.pick(allWaves),
    bakeMs: traffic ? 8000 : random.pick([500, 2000, 4000]),
    maxWaitMs: 20_000,
    onTimeout: random.chance(0.3) ? 'PROCEED' : 'HOLD',
    onFailure: random.chance(0.5) ? 'DISCARD' : 'HOLD',
    mode: random.chance(0.15) ? 'MANUAL' : 'AUTOMATIC',
    maxDisconnects: random.chance(0.7) ? 100 : 20,
    checks: random.chance(0.7),
    traffic,
  };
  return { ...ungated, rollout };
}

/** Clients report their load, and control planes take it or do not. */
function withLoads(plan: Plan): Plan {
  const random = new Random('loads', plan.seed);
  if (!random.chance(0.3) && !plan.relays.some(({ rollout }) => rollout?.traffic === true)) return plan;
  const isTaken = random.chance(0.85);
  const loads = { intervalMs: random.pick([500, 1000, 3000]), clusters: undefined };
  return {
    ...plan,
    planes: plan.planes.map((plane) => (isTaken ? { ...plane, habits: { ...plane.habits, loads } } : plane)),
    relays: plan.relays.map((relay) => ({ ...relay, loads: true })),
    clients: plan.clients.map((client) => (random.chance(0.7) ? { ...client, reports: true } : client)),
  };
}

function makeHabits(random: Random): Habits {
  return {
    protocol: random.chance(0.6) ? 'DELTA' : 'SOTW',
    native: random.chance(0.5),
    tellsMissing: random.chance(0.6),
    splits: random.chance(0.2),
    dropsStale: random.chance(0.3),
    wholePartial: random.chance(0.5),
    versions: random.chance(0.6) ? 'revision' : random.pick(['none', 'restart'] as const),
    lag: 0,
  };
}

function withErrors(seed: number, habits: Habits): Habits {
  return new Random('errors', seed).chance(0.2) ? { ...habits, errors: true } : habits;
}

function withTurns(seed: number, relay: RelayPlan): RelayPlan {
  return new Random('turns', seed, relay.id).chance(0.25) ? { ...relay, requestsInTurns: true } : relay;
}

/** All relays of a plan: then each swap is made before it breaks. */
function withGrace(seed: number, relay: RelayPlan): RelayPlan {
  return new Random('grace', seed).chance(0.35) ? { ...relay, keepsNothing: true } : relay;
}

function makeRelays(random: Random, planes: readonly string[], habits: Habits): RelayPlan[] {
  const common = {
    idleMilliseconds: random.pick([0, 200, 5000, 600_000]),
    maxCacheBytes: random.chance(0.1) ? 200 : 2 ** 30,
    contentVersions: random.chance(0.2),
    constrained: random.chance(0.15),
  };
  const upper = (id: string): RelayPlan => ({
    id,
    endpoints: random.chance(0.2) ? planes.toReversed() : planes,
    protocol: habits.protocol,
    variants: habits.native ? 'NATIVE' : 'PER_PARAMETERS',
    ...common,
  });
  const lower = (id: string, endpoints: readonly string[]): RelayPlan => ({
    id,
    endpoints,
    protocol: random.chance(0.7) ? 'DELTA' : 'SOTW',
    variants: random.chance(0.7) ? 'NATIVE' : 'PER_PARAMETERS',
    ...common,
  });
  const shape = random.next();
  if (shape < 0.5) return [upper('r0')];
  if (shape < 0.7) return [upper('r0'), upper('r1')];
  if (shape < 0.9) return [upper('r0'), lower('r1', ['r0'])];
  return [upper('r0'), upper('r1'), lower('r2', ['r0', 'r1'])];
}

function withGate(seed: number, relay: RelayPlan): RelayPlan {
  return new Random('gate', relay.id, seed).chance(0.35) ? { ...relay, gate: true } : relay;
}

function withPersistence(seed: number, relay: RelayPlan): RelayPlan {
  const random = new Random('persistence', relay.id, seed);
  return random.chance(0.6) ? { ...relay, persistence: { secrets: random.chance(0.5) } } : relay;
}

function makeClient(random: Random, id: string, entries: readonly RelayPlan[]): ClientPlan {
  const first = random.pick(entries);
  // Replicas: relays with the same endpoints, so that versions mean the same.
  const replicas = entries.filter(({ endpoints }) => endpoints.join() === first.endpoints.join());
  const locators = random.chance(0.3) ? distinct(random, random.chance(0.3) ? 2 : 1) : [];
  const sotw = random.chance(0.45);
  return {
    id,
    protocol: sotw ? 'sotw' : 'delta',
    relays: random.chance(0.5) ? [first.id] : replicas.map((relay) => relay.id),
    locators,
    node: random.below(parameterSets.length),
    wrapped: random.chance(0.4),
    slow: random.chance(0.3),
    chatty: random.chance(0.4),
    resumes: random.chance(0.7),
    wants: makeWants(random, sotw),
  };
}

function distinct(random: Random, count: number): number[] {
  const chosen = new Set<number>();
  while (chosen.size < count) chosen.add(random.below(parameterSets.length));
  return [...chosen];
}

function makeWants(random: Random, sotw: boolean): ClientPlan['wants'] {
  // Often an Envoy, so that the order of types and make before break are seen.
  if (random.chance(0.5)) {
    const wants = [
      { kind: 'cds', names: [], wildcard: true },
      { kind: 'eds', names: random.some(catalog.eds.names, 0.6), wildcard: false },
      { kind: 'lds', names: [], wildcard: true },
      { kind: 'rds', names: [...random.some(['r', 's'], 0.5), 'to'], wildcard: false },
    ] as const;
    return wants.filter(({ names, wildcard }) => wildcard || names.length > 0);
  }
  const wants: { kind: Kind; names: readonly string[]; wildcard: boolean }[] = [];
  for (const kind of random.some(kinds, 0.5)) {
    const wildcard = random.chance(0.4) && !(sotw && (kind === 'eds' || kind === 'rds'));
    // No client asks for everything and for names of a type at once, where a lack means nothing by itself.
    const names = wildcard && sotw && !catalog[kind].full ? [] : random.some(catalog[kind].names, 0.4);
    if (wildcard || names.length > 0) wants.push({ kind, names, wildcard });
  }
  return wants;
}

export function makeSteps(plan: Plan, size: Size, { freezes } = nothingMore): Step[] {
  const random = new Random(plan.seed, 'steps');
  const calm = random.chance(0.35);
  const steps: Step[] = plan.clients.map(({ id }) => ({
    wait: random.chance(0.7) ? 0 : random.between(1, 500),
    kind: 'start',
    client: id,
  }));
  const length = random.between(3, size.steps);
  if (random.chance(0.7)) steps.push({ wait: 0, kind: 'quiet' });
  for (let count = 0; count < length; count++) {
    steps.push({ ...makeStep(random, plan, calm), wait: makeWait(random) });
    if (random.chance(0.04)) steps.push({ wait: 0, kind: 'quiet' });
  }
  const all = withLoadSteps(plan, withRolloutSteps(plan, withGateSteps(plan, withSwaps(plan, steps))));
  return freezes ? withFreezes(plan, all) : all;
}

/** Where the order alone keeps what clients need: all of a swap waits for a client that does not read. */
function withSwaps(plan: Plan, steps: readonly Step[]): Step[] {
  if (!plan.relays.some(({ keepsNothing }) => keepsNothing === true)) return [...steps];
  const random = new Random('swap steps', plan.seed);
  return steps.flatMap((step): Step[] => {
    if (step.kind !== 'quiet') return [step];
    const client = random.pick(plan.clients).id;
    return [
      step,
      { wait: 0, kind: 'stall', client, milliseconds: 1500 },
      { wait: 0, kind: 'swap', salt: random.below(2 ** 30), gap: random.pick([0, 5, 30]) },
    ];
  });
}

const operations: readonly Operation[] = [
  'release',
  'discard',
  'promote',
  'promote',
  'freeze',
  'unfreeze',
  'reload',
];

/** Rollouts take time: the schedule waits for them now and then. */
function withRolloutSteps(plan: Plan, steps: readonly Step[]): Step[] {
  const judged = plan.relays.filter(({ rollout }) => rollout !== undefined);
  if (judged.length === 0) return [...steps];
  const random = new Random('rollout steps', plan.seed);
  const harms = random.chance(0.5) || judged.some(({ rollout }) => rollout?.traffic === true);
  return steps.flatMap((step): Step[] => {
    const slower = random.chance(0.15)
      ? { ...step, wait: step.wait + random.pick([1000, 4000, 9000]) }
      : step;
    if (!random.chance(0.25)) return [slower];
    const wait = random.pick([0, 100, 1500, 6000]);
    const relay = random.pick(judged).id;
    const choice = random.next();
    if (choice < 0.3) return [slower, { wait, kind: 'change', salt: random.below(2 ** 30) }];
    if (choice < 0.5)
      return [slower, { wait, kind: 'check', relay, says: random.pick(['GOOD', 'BAD', 'UNKNOWN']) }];
    // Long enough for clients to say that they fail.
    if (choice < 0.7 && harms)
      return [
        slower,
        { wait, kind: 'harm', salt: random.below(2 ** 30) },
        { wait: 15_000, kind: 'rollout', relay, does: 'reload' },
      ];
    return [slower, { wait, kind: 'rollout', relay, does: random.pick(operations) }];
  });
}

/** Freezes, and what may come in one. */
function withFreezes(plan: Plan, steps: readonly Step[]): Step[] {
  const judged = plan.relays.filter(({ rollout }) => rollout !== undefined);
  if (judged.length === 0) return [...steps];
  const random = new Random('freezes', plan.seed);
  return steps.flatMap((step): Step[] => {
    if (step.kind === 'start' || !random.chance(0.4)) return [step];
    const wait = random.pick([0, 0, 50, 600, 3000]);
    const relay = random.pick(judged).id;
    const client = random.pick(plan.clients).id;
    const choices: Step[] = [
      ...operations.map((does): Step => ({ wait, kind: 'rollout', relay, does })),
      { wait, kind: 'change', salt: random.below(2 ** 30) },
      { wait, kind: 'crash', relay, milliseconds: 10, gracefully: random.chance(0.5) },
      { wait, kind: 'reject', client },
      { wait, kind: 'node', client, parameters: random.below(parameterSets.length) },
    ];
    return [step, random.pick(choices)];
  });
}

function withLoadSteps(plan: Plan, steps: readonly Step[]): Step[] {
  if (!plan.planes.some(({ habits }) => habits.loads !== undefined)) return [...steps];
  const random = new Random('load steps', plan.seed);
  return steps.flatMap((step): Step[] => {
    if (!random.chance(0.1)) return [step];
    return [step, { wait: random.pick([0, 1000, 3000]), kind: 'ask', salt: random.below(2 ** 30) }];
  });
}

function withGateSteps(plan: Plan, steps: readonly Step[]): Step[] {
  const gated = plan.relays.filter(({ gate }) => gate === true);
  if (gated.length === 0) return [...steps];
  const random = new Random('gate steps', plan.seed);
  const reloading = new Random('gate reloads', plan.seed);
  return steps.flatMap((step): Step[] => {
    if (!random.chance(0.2)) return [step];
    const does = random.pick(['release', 'release', 'release', 'discard', 'freeze', 'unfreeze'] as const);
    const turned: Step = { wait: random.between(0, 300), kind: 'gate', relay: random.pick(gated).id, does };
    return [step, turned, ...reloads(gated, reloading)];
  });
}

/** Now and then a reload of `rollout` follows. */
function reloads(gated: readonly RelayPlan[], random: Random): Step[] {
  if (!random.chance(0.25)) return [];
  const does = random.pick(['canaries', 'types'] as const);
  return [{ wait: random.between(0, 300), kind: 'gate', relay: random.pick(gated).id, does }];
}

function makeWait(random: Random): number {
  const choice = random.next();
  if (choice < 0.35) return 0;
  if (choice < 0.7) return random.between(1, 40);
  return choice < 0.95 ? random.between(40, 800) : random.between(800, 8000);
}

function makeStep(random: Random, plan: Plan, calm: boolean): Step {
  const wait = 0;
  const client = random.pick(plan.clients);
  const { id } = client;
  const choice = random.next() * (calm ? 0.72 : 1);
  if (choice < 0.28) return { wait, kind: 'change', salt: random.below(2 ** 30) };
  if (choice < 0.3) return { wait, kind: 'fault', salt: random.below(2 ** 30) };
  if (choice < 0.42) {
    const salt = random.below(2 ** 30);
    const order = new Random('order', salt).pick(orders);
    return { wait, kind: 'swap', salt, gap: random.pick([0, 5, 30, 200]), order };
  }
  if (choice < 0.56) {
    return { wait, kind: 'stall', client: id, milliseconds: random.pick([50, 300, 1500, 8000]) };
  }
  if (choice < 0.68) {
    const kind = random.chance(0.55) ? 'subscribe' : 'unsubscribe';
    const type = random.pick(kinds);
    const sotw = client.protocol === 'sotw';
    const wildcard = random.chance(0.2) && !(sotw && (type === 'eds' || type === 'rds'));
    return { wait, kind, client: id, type, names: random.some(catalog[type].names, 0.4), wildcard };
  }
  if (choice < 0.72) return { wait, kind: 'reject', client: id };
  if (choice < 0.77) {
    return { wait, kind: 'node', client: id, parameters: random.below(parameterSets.length) };
  }
  if (choice < 0.83) {
    return {
      wait,
      kind: 'disconnect',
      client: id,
      milliseconds: random.pick([0, 100, 1000, 5000]),
      elsewhere: random.chance(0.4),
    };
  }
  const plane = random.pick(plan.planes).id;
  const relay = random.pick(plan.relays).id;
  if (choice < 0.88) {
    const does = random.chance(0.7) ? 'down' : 'deaf';
    return { wait, kind: 'plane', plane, does, milliseconds: random.pick([100, 2000, 8000]) };
  }
  if (choice < 0.9) return { wait, kind: 'restart', plane };
  if (choice < 0.92) return { wait, kind: 'stream', plane, at: random.below(10) };
  if (choice < 0.94) return { wait, kind: 'cut', relay };
  if (choice < 0.96) {
    return { wait, kind: 'stallLink', relay, milliseconds: random.pick([100, 1000, 4000]) };
  }
  if (choice < 0.975) {
    const saving = plan.relays.filter(({ persistence }) => persistence !== undefined);
    return { wait, kind: 'outage', relay: saving.length > 0 ? random.pick(saving).id : relay };
  }
  const gracefully = random.chance(0.4);
  return { wait, kind: 'crash', relay, milliseconds: random.pick([10, 1000, 5000]), gracefully };
}
