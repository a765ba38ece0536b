import type { Cohort } from '../model/access.ts';
import type { ConstraintsKey, ResourceName, TypeUrl } from '../model/brand.ts';
import type { Clock } from '../model/clock.ts';
import { assignmentType, endpointsIn } from '../model/cluster.ts';
import { areDisjoint, type Constraints } from '../model/constraints.ts';
import { includes, nameKey } from '../model/holds.ts';
import { getOrMake, isEqual } from '../model/maps.ts';
import type { Payload, Variant } from '../model/resource.ts';
import type { Gate, HeldVariant, PendingName, ReleasedSize } from '../model/rollout.ts';
import type { Holder, Put, Transaction } from '../model/transaction.ts';
import { typeInfo } from '../model/types.ts';
import type { HeldRemovals } from '../model/upstream.ts';
import { type HeardChange, type Opinion, objection, type VerdictSource } from './changes.ts';
import { type RolloutSettings, type Verdict, verdictOn } from './judge.ts';
import type { WaitingNames } from './waiting.ts';

type GuardBounds = RolloutSettings['guard'];

/** What of the settings of a rollout it goes by. */
type GuardSettings = Pick<RolloutSettings, 'guard' | 'types' | 'bakeMs'>;

/** An assignment of a session that has fewer endpoints than before. */
interface Loss {
  /** The key of the session. */
  readonly holder: string;
  readonly name: ResourceName;
  /** `nameKey` of that. */
  readonly key: string;
  readonly constraints: ConstraintsKey;
  /** The constraints of what its clients had. */
  readonly former: readonly ConstraintsKey[];
  readonly before: number;
  readonly after: number;
  /** When it began to lose them, by `Clock.monotonic()`. */
  readonly at: number;
}

type GuardedGate = Pick<Gate, 'contentOf' | 'releasedByHolder' | 'pending' | 'revision'>;

const none: readonly Verdict[] = [];

/**
 * Finds changes that nobody should get, by their content alone (`rollout.guard`, docs/adr/0170). Endpoints do not wait for
 * canaries; those that it stops do.
 */
export class Guard implements VerdictSource {
  readonly #gate: GuardedGate;
  readonly #clock: Clock;
  #settings: GuardSettings | undefined;
  /** What everybody has lost within the last bake, by `lossKey`. */
  readonly #passed = new Map<string, Loss>();
  /** What is pending against what everybody has, whether it loses anything or not: it is the same as long as that is. */
  readonly #pending = new WeakMap<PendingName, readonly Loss[]>();
  /** Sessions of which lost endpoints are held. */
  readonly #losing = new Set<string>();
  /** What was found bad, the same values until something of it changes. */
  objections = none;
  /** Of what these were found, and all that is at fault. Time changes nothing: what is older than a bake only makes it less. */
  #weighed:
    | { readonly waiting: WaitingNames; readonly revision: number; readonly stopped: ReadonlySet<string> }
    | undefined;

  constructor(gate: GuardedGate, clock: Clock) {
    this.#gate = gate;
    this.#clock = clock;
  }

  /** Undefined: nobody is judged. */
  configure(settings: GuardSettings | undefined): void {
    this.#settings = settings;
    this.#weighed = undefined;
    if (settings === undefined) this.#passed.clear();
  }

  /** Losses that are not too many are remembered: the next ones may be with them. */
  stops({ type, holder, puts }: Transaction): boolean {
    const bounds = this.#settings?.guard;
    if (bounds === undefined || type !== assignmentType || holder.restored === true) return false;
    const fresh = this.#freshLosses(puts, holder, bounds);
    if (fresh.length === 0) return false;
    this.#forgetOld();
    const waiting = this.#gate.pending.filter((one) => one.type === type && isGuarded(one));
    const names = new Set(fresh.map(({ name }) => name));
    const others = [...this.#waitingLosses(waiting), ...this.#passedLosses()].filter(
      (one) => one.holder === holder.key && !names.has(one.name),
    );
    const released = this.#gate.releasedByHolder(type).get(holder.key);
    const objections = lossObjections([...fresh, ...others], released, bounds);
    if (objections.some((one) => !one.names.isDisjointFrom(keysOf(fresh)))) return true;
    for (const one of fresh) this.#passed.set(lossKey(one), one);
    return false;
  }

  /**
   * Must be called before `look`: what it finds bad of all that waits, as one update may be several changes. `queued`:
   * what nobody has yet. By `nameKey`.
   */
  weigh(waiting: WaitingNames, queued: readonly PendingName[]): ReadonlySet<string> {
    const settings = this.#settings;
    if (settings === undefined || (waiting.names.length === 0 && queued.length === 0)) {
      this.objections = none;
      this.#losing.clear();
      this.#weighed = undefined;
      return new Set();
    }
    const { revision } = this.#gate;
    if (this.#weighed?.waiting === waiting && this.#weighed.revision === revision)
      return this.#weighed.stopped;
    const losses = this.#lossObjections([...waiting.names, ...queued], settings.guard);
    const sizes = this.#sizeObjections(waiting, settings);
    const known = this.objections;
    this.objections = [...losses, ...sizes].map(
      (one) => known.find(({ reason, names }) => reason === one.reason && isEqual(names, one.names)) ?? one,
    );
    const stopped = new Set(this.objections.flatMap(({ names }) => [...names]));
    this.#weighed = { waiting, revision, stopped };
    return stopped;
  }

  look(changes: readonly HeardChange[]): readonly (Opinion | undefined)[] {
    return changes.map(({ change }) => objection(this.objectionTo(change.keys)));
  }

  objectionTo(keys: ReadonlySet<string>): Verdict | undefined {
    return verdictOn(this.objections, keys);
  }

  #freshLosses(puts: readonly Put[], holder: Holder, bounds: GuardBounds): readonly Loss[] {
    const { maxEmptiedPercent, maxLostEndpointsPercent } = bounds;
    if (maxEmptiedPercent >= 100 && maxLostEndpointsPercent === undefined) return [];
    // As far as the first endpoint, if nobody counts them.
    const most = maxLostEndpointsPercent === undefined ? 1 : undefined;
    const had = [this.#reading('said'), this.#reading('released')] as const;
    return puts.flatMap((put) => this.#freshLoss(put, holder, most, had) ?? []);
  }

  /** Assignments in a column, each read once. */
  #reading(column: Cohort | 'said'): (name: ResourceName) => Variants {
    const known = new Map<ResourceName, Variants>();
    return (of) => getOrMake(known, of, () => new Variants(this.#gate.contentOf(assignmentType, of, column)));
  }

  /** Undefined: it takes nothing, or says the same as upstream did. */
  #freshLoss(
    { name, constraints, any }: Put,
    by: Holder,
    most: number | undefined,
    [saidOf, releasedOf]: readonly [(name: ResourceName) => Variants, (name: ResourceName) => Variants],
  ): Loss | undefined {
    if (any === undefined) return undefined;
    const after = endpointsIn(any, most);
    const of = { holder: by.key, name, constraints: constraints.key };
    if (after === most) {
      if (this.#passed.size > 0) this.#passed.delete(lossKey(of));
      return undefined;
    }
    const said = saidOf(name).former(constraints, [by]);
    if (said.some(({ variant }) => variant.constraints.key === constraints.key && isSame(variant, any)))
      return undefined;
    const released = releasedOf(name).former(constraints, [by]);
    const key = nameKey(assignmentType, name);
    const former = countsOf([...said, ...released]);
    const loss = this.#withPassed({ ...of, key, ...former, after, at: this.#clock.monotonic() });
    if (after < loss.before) return loss;
    this.#passed.delete(lossKey(of));
    return undefined;
  }

  /** With what it has lost before, within this bake. */
  #withPassed(loss: Loss): Loss {
    if (this.#passed.size === 0) return loss;
    const keys = new Set([loss.constraints, ...loss.former]);
    const passed = [...keys].flatMap(
      (constraints) => this.#passed.get(lossKey({ ...loss, constraints })) ?? [],
    );
    if (passed.length === 0) return loss;
    const before = Math.max(loss.before, ...passed.map((one) => one.before));
    return { ...loss, before, at: Math.min(loss.at, ...passed.map(({ at }) => at)) };
  }

  #waitingLosses(waiting: readonly PendingName[]): readonly Loss[] {
    const losses: Loss[] = [];
    for (const one of waiting) {
      for (const compared of getOrMake(this.#pending, one, () => this.#compared(one))) {
        const loss = this.#withPassed(compared);
        if (loss.after < loss.before) losses.push(loss);
      }
    }
    return losses;
  }

  /** What everybody has against what upstream says. What is removed loses nothing. */
  #compared({ type, name, key, masked, since: at }: PendingName): readonly Loss[] {
    const released = new Variants(this.#gate.contentOf(type, name, 'released'));
    const now = this.#gate.contentOf(type, name, masked === undefined ? 'canary' : 'said');
    return now.flatMap(({ variant, holders }) => {
      const { constraints } = variant;
      const after = countIn(variant);
      return [...byHolder(released.former(constraints, holders))].map(([holder, own]) => {
        const { former, before } = countsOf(own);
        return { holder, name, key, constraints: constraints.key, former, before, after, at };
      });
    });
  }

  /** Those that upstream still says. */
  #passedLosses(): readonly Loss[] {
    const saidOf = this.#reading('said');
    return [...this.#passed.values()].filter((one) => {
      const said = saidOf(one.name).get(one.constraints);
      return said !== undefined && countIn(said) <= one.after;
    });
  }

  /** While endpoints of a session are held nothing of it is forgotten: it would go on because it has waited. */
  #forgetOld(): void {
    const { bakeMs } = this.#settings ?? { bakeMs: 0 };
    if (this.#passed.size === 0) return;
    const oldest = this.#clock.monotonic() - bakeMs;
    for (const [key, { at, holder }] of this.#passed)
      if (at < oldest && !this.#losing.has(holder)) this.#passed.delete(key);
  }

  #lossObjections(all: readonly PendingName[], bounds: GuardBounds): readonly Verdict[] {
    const names = all.filter(({ type }) => type === assignmentType);
    if (names.length === 0) {
      this.#losing.clear();
      return none;
    }
    this.#forgetOld();
    this.#losing.clear();
    const discarded = this.#gate.pending.filter(
      ({ type, masked }) => type === assignmentType && masked === 'discarded',
    );
    const waiting = this.#waitingLosses([...names, ...discarded]);
    if (waiting.length === 0) return none;
    const released = this.#gate.releasedByHolder(assignmentType);
    const before = this.#passedLosses();
    const waitingKeys = new Set(before.length === 0 ? [] : waiting.map(lossKey));
    const passed = before.filter((one) => !waitingKeys.has(lossKey(one)));
    const objections: Verdict[] = [];
    for (const [holder, own] of Map.groupBy(waiting, (one) => one.holder)) {
      const losses = [...own, ...passed.filter((one) => one.holder === holder)];
      const found = lossObjections(losses, released.get(holder), bounds);
      if (found.length > 0) this.#losing.add(holder);
      objections.push(...found);
    }
    // What is told is about the session that it is worst for.
    return objections.toSorted((a, b) => b.names.size - a.names.size);
  }

  /** What a type has more, and how much of it is another. */
  #sizeObjections({ names, byType }: WaitingNames, { guard, types }: GuardSettings): readonly Verdict[] {
    const { maxGrowthPercent, maxChangedPercent } = guard;
    if (maxGrowthPercent === undefined && maxChangedPercent === undefined) return none;
    const objections: Verdict[] = [];
    for (const type of byType.keys()) {
      if (!types.includes(type)) continue;
      const released = this.#gate.releasedByHolder(type);
      const own = names.filter((one) => one.type === type);
      for (const [holder, sizes] of this.#sizesByHolder(own)) {
        const before = released.get(holder);
        if (before !== undefined) objections.push(...sizeObjections(type, sizes, before, guard));
      }
    }
    return objections;
  }

  /** By holder: of each name that changes, how many bytes it has more. */
  #sizesByHolder(names: readonly PendingName[]): ReadonlyMap<string, ReadonlyMap<string, number>> {
    const sizes = new Map<string, Map<string, number>>();
    for (const { type, name, key: of } of names) {
      const add = (holder: string, bytes: number): void => {
        const own = getOrMake(sizes, holder, () => new Map());
        own.set(of, (own.get(of) ?? 0) + bytes);
      };
      const before = new Variants(this.#gate.contentOf(type, name, 'released'));
      const after = new Variants(this.#gate.contentOf(type, name, 'canary'));
      for (const { variant, holders } of before.all) {
        const now = after.get(variant.constraints.key);
        if (now?.payload?.hash === variant.payload?.hash) continue;
        for (const { key } of holders) add(key, bytesOf(now) - bytesOf(variant));
      }
      // What has other constraints stands for what its holder had before.
      const known = byHolder(before.all);
      for (const { variant, holders } of after.all) {
        if (before.get(variant.constraints.key) !== undefined) continue;
        for (const { key } of holders) if (known.has(key)) add(key, bytesOf(variant));
      }
    }
    return sizes;
  }
}

/** What the judge sees, what waits behind it, and what was taken back as long as upstream says it. */
const isGuarded = ({ masked }: PendingName): boolean =>
  masked === undefined || masked === 'queued' || masked === 'discarded';

const lossKey = ({ holder, name, constraints }: Pick<Loss, 'holder' | 'name' | 'constraints'>): string =>
  JSON.stringify([holder, constraints, name]);

const bytesOf = (variant: Variant | undefined): number => variant?.payload?.bytes.length ?? 0;

/** What came before, and the most that one of them had. */
const countsOf = (all: readonly HeldVariant[]): Pick<Loss, 'former' | 'before'> => ({
  former: all.map(({ variant }) => variant.constraints.key),
  before: all.reduce((most, { variant }) => Math.max(most, countIn(variant)), 0),
});

/** While something is held it is asked for at every look. */
const counted = new WeakMap<Payload, number>();

function countIn({ payload }: Variant): number {
  if (payload === undefined) return 0;
  return getOrMake(counted, payload, () => endpointsIn(payload.bytes));
}

const isSame = ({ payload }: Variant, any: Uint8Array): boolean =>
  payload !== undefined && Buffer.compare(payload.bytes, any) === 0;

function byHolder(variants: readonly HeldVariant[]): ReadonlyMap<string, readonly HeldVariant[]> {
  const all = new Map<string, HeldVariant[]>();
  for (const one of variants) for (const { key } of one.holders) getOrMake(all, key, () => []).push(one);
  return all;
}

/** Of thousands of variants that a client may have had, so many of those with the most endpoints tell what it had. */
const mostFormer = 100;

/** Those of a name in one column, as they are now. */
class Variants {
  readonly all: readonly HeldVariant[];
  #byKey: ReadonlyMap<ConstraintsKey, HeldVariant> | undefined;
  #sorted: readonly HeldVariant[] | undefined;

  constructor(all: readonly HeldVariant[]) {
    this.all = all;
  }

  get(key: ConstraintsKey): Variant | undefined {
    return this.#held(key)?.variant;
  }

  #held(key: ConstraintsKey): HeldVariant | undefined {
    this.#byKey ??= new Map(this.all.map((one) => [one.variant.constraints.key, one]));
    return this.#byKey.get(key);
  }

  /**
   * What clients have that get a variant with these constraints: the one that had the same; without it, those of the same
   * holders whose clients may get this instead.
   */
  former(constraints: Constraints, holders: readonly Holder[]): readonly HeldVariant[] {
    const own = this.#held(constraints.key);
    if (own !== undefined) return [own];
    const former: HeldVariant[] = [];
    const asked = new Set(holders.map((one) => one.key));
    const left = new Set(asked);
    for (const { variant, holders: all } of this.#largestFirst) {
      const wanted = former.length < mostFormer ? asked : left;
      if (wanted.size === 0) break;
      const both = all.filter(({ key }) => wanted.has(key));
      if (both.length === 0 || areDisjoint(variant.constraints.expression, constraints.expression)) continue;
      for (const { key } of both) left.delete(key);
      former.push({ variant, holders: both });
    }
    return former;
  }

  /** The first of a holder is the most that it has. */
  get #largestFirst(): readonly HeldVariant[] {
    this.#sorted ??= this.all.length <= mostFormer ? this.all : this.all.toSorted(byEndpoints);
    return this.#sorted;
  }
}

const byEndpoints = (a: HeldVariant, b: HeldVariant): number => countIn(b.variant) - countIn(a.variant);

/** Of one session. */
function lossObjections(
  losses: readonly Loss[],
  released: ReleasedSize | undefined,
  { maxEmptiedPercent, maxLostEndpointsPercent = 100 }: GuardBounds,
): readonly Verdict[] {
  const objections: Verdict[] = [];
  const all = released?.names ?? 0;
  const emptied = keysOf(losses.filter(({ after }) => after === 0));
  if (emptied.size * 100 > maxEmptiedPercent * all) {
    const reason = `${amount(emptied.size)} of ${amount(all)} eds would have no endpoints any more; rollout.guard.max_emptied_percent allows ${maxEmptiedPercent} %`;
    objections.push({ cause: 'content', reason, names: emptied });
  }
  const lost = losses.filter((one) => lostPercent(one) > maxLostEndpointsPercent);
  const [worst] = lost.toSorted((a, b) => lostPercent(b) - lostPercent(a));
  if (worst === undefined) return objections;
  const more = lost.length > 1 ? `, and ${amount(lost.length - 1)} more lose too many` : '';
  const reason = `eds ${worst.name}: ${amount(worst.before)} endpoints became ${amount(worst.after)} (${signed(-lostPercent(worst))} %)${more}; rollout.guard.max_lost_endpoints_percent allows ${maxLostEndpointsPercent} %`;
  return [...objections, { cause: 'content', reason, names: keysOf(lost) }];
}

const keysOf = (losses: readonly Loss[]): ReadonlySet<string> => new Set(losses.map(({ key }) => key));

/** How many there were elsewhere nobody knows. */
const lostPercent = ({ before, after }: Loss): number =>
  after === 0 ? 100 : Number.isFinite(before) ? ((before - after) * 100) / before : 0;

/** Of one type in one session. `sizes`: of each name that changes, how many bytes it has more. */
function sizeObjections(
  type: TypeUrl,
  sizes: ReadonlyMap<string, number>,
  before: ReleasedSize,
  { maxGrowthPercent = Number.POSITIVE_INFINITY, maxChangedPercent = 100 }: GuardBounds,
): readonly Verdict[] {
  const objections: Verdict[] = [];
  const { short } = typeInfo(type);
  const after = before.bytes + [...sizes.values()].reduce((sum, more) => sum + more, 0);
  const growth = ((after - before.bytes) * 100) / Math.max(1, before.bytes);
  if (growth > maxGrowthPercent) {
    const reason = `${short}: ${amount(before.bytes)} bytes became ${amount(after)} (${signed(growth)} %); rollout.guard.max_growth_percent allows ${maxGrowthPercent} %`;
    const names = new Set([...sizes].filter(([, more]) => more > 0).map(([key]) => key));
    objections.push({ cause: 'content', reason, names });
  }
  if (sizes.size * 100 > maxChangedPercent * before.names) {
    const reason = `${amount(sizes.size)} of ${amount(before.names)} ${short} would change at once; rollout.guard.max_changed_percent allows ${maxChangedPercent} %`;
    objections.push({ cause: 'content', reason, names: new Set(sizes.keys()) });
  }
  return objections;
}

const amount = (count: number): string => (Number.isFinite(count) ? count.toLocaleString('en') : 'some');
const signed = (percent: number): string => `${percent < 0 ? '-' : '+'}${Math.round(Math.abs(percent))}`;

/** As configured of an upstream. */
export interface RemovalLimit {
  /** The upstream's. */
  readonly name: string;
  /** Of the resources of a type that are released; undefined: there is no limit. */
  readonly maxRemovalPercent?: number | undefined;
  /** After so many milliseconds it is no objection any more. */
  readonly maxRemovalHoldMs: number;
}

/** What of an upstream and a type is too much. `names`: what of it no operator has let through. `recent`: the reason. */
type Excess = HeldRemovals &
  Readonly<{
    upstream: string;
    names: readonly PendingName[];
    recent: ReadonlySet<PendingName>;
    reason: string;
  }>;

/** Holds a change that removes more than `max_removal_percent` of what its upstream has of a type. */
export class RemovalLimits implements VerdictSource {
  readonly #gate: Gate;
  readonly #limits: () => readonly RemovalLimit[];
  /** Of what waits now. */
  #excesses: readonly Excess[] = [];
  /**
   * By `nameKey`: since when, and whether an operator has let it through. What is frozen or queued waits for something else,
   * and is judged anew after that.
   */
  #judged: ReadonlyMap<string, { readonly since: number; isWaived: boolean }> = new Map();

  constructor(gate: Gate, limits: () => readonly RemovalLimit[]) {
    this.#gate = gate;
    this.#limits = limits;
  }

  look(changes: readonly HeardChange[], _frozen: unknown, now: number): readonly (Opinion | undefined)[] {
    const removed = changes.flatMap(({ change }) => change.names.filter((one) => one.removed));
    const judgedOf = ({ key, since }: PendingName) => {
      const known = this.#judged.get(key);
      // Upstream may have taken it back since the last look, and removed it again.
      return known !== undefined && known.since >= since ? known : { since: now, isWaived: false };
    };
    this.#judged = new Map(removed.map((one) => [one.key, judgedOf(one)]));
    this.#excesses = this.#limits().flatMap((limit) => this.#excessesOf(limit, removed, now));
    return changes.map(({ change }) => {
      const found = this.#excesses.find(({ recent }) => change.names.some((one) => recent.has(one)));
      return objection(found && { cause: 'removals', reason: found.reason, names: change.keys });
    });
  }

  /** What of this is too much. What has waited for long enough is no reason any more. */
  #excessesOf(
    { name: upstream, maxRemovalPercent, maxRemovalHoldMs }: RemovalLimit,
    all: readonly PendingName[],
    now: number,
  ): readonly Excess[] {
    if (maxRemovalPercent === undefined) return [];
    const sinceOf = ({ key }: PendingName): number => this.#judged.get(key)?.since ?? now;
    const own = all.filter(
      (one) => one.upstream === upstream && this.#judged.get(one.key)?.isWaived !== true,
    );
    return [...Map.groupBy(own, ({ type }) => type)].flatMap(([type, names]) => {
      const recent = new Set(names.filter((one) => now < sinceOf(one) + maxRemovalHoldMs));
      if (recent.size === 0) return [];
      const { removed, released } = this.#gate.removals({ upstream, type });
      if (Math.min(removed, recent.size) * 100 <= maxRemovalPercent * released) return [];
      const count = Math.min(removed, names.length);
      const since = recent.values().reduce((first, one) => Math.min(first, sinceOf(one)), now);
      const reason = `${count} of ${released} ${typeInfo(type).short} of ${upstream} would be removed: max_removal_percent is ${maxRemovalPercent}`;
      return { type, count, since, upstream, names, recent, reason };
    });
  }

  held(upstream: string): readonly HeldRemovals[] {
    return this.#excesses.filter((one) => one.upstream === upstream);
  }

  /** Whether that many are removed is for the canaries to judge now. How many. */
  waive(upstream: string, type: TypeUrl | undefined): number {
    const isMeant = (one: Excess): boolean => includes({ upstream, type }, one);
    const { waived = [], left = [] } = Object.groupBy(this.#excesses, (one) =>
      isMeant(one) ? 'waived' : 'left',
    );
    this.#excesses = left;
    for (const { key } of waived.flatMap(({ names }) => names)) {
      const judged = this.#judged.get(key);
      if (judged !== undefined) judged.isWaived = true;
    }
    return waived.reduce((sum, { count }) => sum + count, 0);
  }
}
