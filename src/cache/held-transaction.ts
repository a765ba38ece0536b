import { type ResourceName, resourceName, type TypeUrl } from '../model/brand.ts';
import type { Commit } from '../model/catalog.ts';
import type { Constraints } from '../model/constraints.ts';
import type { Holds } from '../model/holds.ts';
import type { Parameters } from '../model/parameters.ts';
import type { PendingChange } from '../model/rollout.ts';
import type { Side } from '../model/side.ts';
import { type Interest, WILDCARD } from '../model/transaction.ts';
import { CachedResource, type CacheEntry, isHeldByWildcard } from './cached-resource.ts';
import { followTtls, type HeldType } from './held-type.ts';
import type { Interests } from './interests.ts';
import { sameVariantContent, sameVariants, type VariantsOf, variantsOf } from './same-content.ts';
import type { HeldName, TypeTable } from './type-table.ts';

/** What one transaction does to the held names of its type. */
export class HeldTransaction {
  readonly #type: HeldType;
  readonly #isGated: boolean;
  readonly #holds: Holds;
  readonly #now: number;
  /** Every name that changes. */
  readonly #names = new Set<ResourceName>();
  /** Of names that were held before: what upstream had. */
  readonly #before = new Map<ResourceName, VariantsOf>();
  /** Names of which a side sees something else, though they are held. */
  readonly #altered = new Set<ResourceName>();
  /** Names that a rollback has removed, and upstream says anew. */
  readonly #keptAway = new Set<ResourceName>();
  /** Names that canaries see as upstream has them from now on: for them all of it may be new. */
  readonly #unmasked = new Set<ResourceName>();
  /** Names that do not wait any more, and whose errors waited with them: who has not heard of these. */
  readonly #errors: Readonly<Record<Side, Set<ResourceName>>> = { released: new Set(), canary: new Set() };

  constructor(type: HeldType, isGated: boolean, holds: Holds, now: number) {
    this.#type = type;
    this.#isGated = isGated;
    this.#holds = holds;
    this.#now = now;
  }

  get table(): TypeTable {
    return this.#type.table;
  }

  /** Must be called before the variants of a name change for the first time. */
  readonly changing = (name: ResourceName): void => {
    if (this.#names.has(name)) return;
    this.#names.add(name);
    const live = this.#type.liveResource(name);
    const held = this.#type.names.get(name);
    if (held !== undefined) {
      this.#before.set(name, variantsOf(live));
      if (held.masked !== undefined || live === undefined || !this.#isFrozen(live)) return;
      this.#type.change(name, held, { masked: 'frozen', canary: live.copy() });
      return;
    }
    // Nobody has anything of it: there is nothing to protect, unless a rollback has removed it.
    if (live === undefined || live.variants.size === 0) {
      if (this.#holds.isRemoved(this.#type.type, name)) this.#keepAway(name);
      return;
    }
    if (!this.#waits(live)) return;
    const masked = this.#isFrozen(live) ? ('frozen' as const) : undefined;
    this.#type.hold(name, live, this.#now, masked);
  };

  /** A name whose change does not wait, as the end of a TTL. */
  passing(name: ResourceName, altered: boolean): void {
    this.#names.add(name);
    if (altered) this.#altered.add(name);
  }

  /**
   * After the transaction: what must not wait goes into the columns of the sides, and names that are equal to what
   * upstream has are held no more. `released`: the version of the holder's last response before this one.
   */
  settle(holder: string | undefined, released: string | undefined): void {
    for (const name of this.#names) this.#settle(name);
    const { held, releasedVersions } = this.table;
    if (held.size === 0 || holder === undefined || released === undefined) return;
    if (!releasedVersions.has(holder)) releasedVersions.set(holder, released);
  }

  /** For interests that upstream has answered now: what waits may be all that there is for their parameters. */
  admit(resolved: readonly Interest[]): void {
    const { names } = this.#type;
    for (const { selector } of resolved) {
      const seen = selector === WILDCARD ? names : [[selector, names.get(selector)] as const];
      for (const [name, held] of seen) {
        const live = this.#type.liveResource(name);
        if (held === undefined || held.closed || live === undefined) continue;
        for (const [side, column] of columnsOf(held)) {
          this.#letNewIn(side, column, live);
          joinWildcards(column, live, this.#interests);
        }
      }
    }
  }

  /** What each side sees of a commit. */
  split(commit: Commit): Commit {
    const { names } = this.#type;
    if (names.size === 0 && this.#errors.released.size === 0) return commit;
    if (commit.version !== undefined) this.table.heldVersion = commit.version;
    const isHidden = (name: ResourceName): boolean => names.has(name) && !this.#altered.has(name);
    const released = without(commit.changed, isHidden);
    const canary = without(commit.changed, (name) => isHidden(name) && names.get(name)?.masked !== undefined);
    // While something waits it has not got the whole response: the version of the last one stays.
    const version = names.size === 0 ? commit.version : undefined;
    return {
      ...commit,
      sides: {
        released: { ...commit, changed: this.#withAll(released, this.#errors.released), version },
        canary: {
          ...commit,
          changed: this.#withAll(canary, this.#unmasked.union(this.#errors.canary)),
        },
      },
    };
  }

  /** What has changed in what is pending; undefined: nothing. */
  pendingChange(receivedAt: number): PendingChange | undefined {
    const { type, names } = this.#type;
    const joined: ResourceName[] = [];
    const left: ResourceName[] = [];
    for (const name of this.#names) {
      const before = this.#before.get(name);
      const held = names.get(name);
      if (held === undefined || held.masked !== undefined) {
        if (before !== undefined) left.push(name);
      } else if (before === undefined || !sameVariants(before, this.#waiting(name, before))) {
        this.#type.change(name, held, { since: this.#now });
        joined.push(name);
      }
    }
    return joined.length + left.length > 0 ? { receivedAt, type, joined, left } : undefined;
  }

  /**
   * What upstream has of a name, but for what has come since and does not wait: a client with other parameters changes
   * nothing for those who have judged the others.
   */
  #waiting(name: ResourceName, before: VariantsOf): VariantsOf {
    const released = this.#type.names.get(name)?.released.variants;
    return variantsOf(this.#type.liveResource(name), ({ constraints: { key }, variant }) => {
      const everybodys = before.has(key) ? undefined : released?.get(key);
      return everybodys !== undefined && sameVariantContent(everybodys.variant, variant);
    });
  }

  #settle(name: ResourceName): void {
    const live = this.#type.liveResource(name);
    if (live !== undefined && this.#keptAway.has(name) && !this.#staysAway(name, live)) return;
    const held = this.#type.names.get(name);
    if (held === undefined) return;
    this.#follow(name, held, live);
    const refused = held.refused ?? new Map();
    if (held.masked === 'discarded' && !sameVariants(refused, this.#waiting(name, refused))) {
      if (this.#isFrozen(live ?? held.released)) this.#type.change(name, held, { masked: 'frozen' });
      else {
        this.#type.unmask(name, held);
        this.#unmasked.add(name);
      }
    }
    this.#stopHoldingIfEqual(name);
  }

  /** What must not wait goes into the columns of the sides. */
  #follow(name: ResourceName, held: HeldName, live: CachedResource | undefined): void {
    for (const [side, column] of columnsOf(held)) {
      const followed = followTtls(column, live);
      const grown = !held.closed && live !== undefined && this.#letNewIn(side, column, live);
      const joined = !held.closed && joinWildcards(column, live, this.#interests);
      if (followed || grown || joined) this.#altered.add(name);
    }
  }

  /** Whether changes of a name wait, by what it was. */
  #waits(cached: CachedResource): boolean {
    return this.#isGated || this.#isFrozen(cached);
  }

  #isFrozen(cached: CachedResource): boolean {
    return isFrozen(this.#holds, this.#type.type, cached);
  }

  #keepAway(name: ResourceName): void {
    this.#keptAway.add(name);
    this.table.hold(name, {
      since: this.#now,
      masked: undefined,
      refused: undefined,
      closed: true,
      released: new CachedResource(),
      canary: undefined,
    });
  }

  /** Only now it is known from which upstream it is. False: nothing is gated or frozen any more. */
  #staysAway(name: ResourceName, live: CachedResource): boolean {
    const held = this.#type.names.get(name);
    if (held === undefined) return false;
    if (!this.#waits(live)) {
      this.#type.stopHolding(name);
      return false;
    }
    if (this.#isFrozen(live))
      this.#type.change(name, held, { masked: 'rolledBack', canary: new CachedResource() });
    return true;
  }

  #stopHoldingIfEqual(name: ResourceName): void {
    const masked = this.#type.names.get(name)?.masked;
    const hasErrors = this.#type.liveResource(name)?.resourceErrors !== undefined;
    if (!this.#type.stopHoldingIfEqual(name) || !hasErrors) return;
    this.#errors.released.add(name);
    if (masked !== undefined) this.#errors.canary.add(name);
  }

  /** All that may look different of these names, whatever this transaction says of them. */
  #withAll(changed: Commit['changed'], names: ReadonlySet<ResourceName>): Commit['changed'] {
    if (names.size === 0) return changed;
    const merged = new Map(changed);
    for (const [name, constraints] of this.#type.changesOf(names))
      merged.set(name, [...(merged.get(name) ?? []), ...constraints]);
    return merged;
  }

  get #interests(): Interests {
    return this.table.interests;
  }

  /** A variant for parameter sets that have nothing of the name yet does not wait. */
  #letNewIn(side: Side, column: CachedResource, live: CachedResource): boolean {
    const isNew = (entry: CacheEntry): boolean => {
      if (column.variants.get(entry.constraints.key) !== undefined) return false;
      const all = interestedIn(this.#interests, entry);
      const having = all.filter((parameters) => matchesAny(column, parameters));
      if (all.length > 0 && having.length === all.length) return false;
      return !this.#isTakenOver(side, entry) && keepsOwn(column, having, entry);
    };
    const { table } = this;
    const added = live.variants.all().filter(isNew);
    if (added.length > 0 && column.empty) column.order = live.order;
    for (const { constraints, variant, holders, confirmedIn } of added) {
      table.payloads.retain(variant.payload);
      table.add(column, { constraints, variant, holders, confirmedIn }, side);
    }
    return added.length > 0;
  }

  /** Whether who asks by one of its aliases has something, of another resource maybe. */
  #isTakenOver(side: Side, { variant, constraints }: CacheEntry): boolean {
    const { table } = this;
    return variant.aliases.map(resourceName).some((alias) => {
      const targets = [...table.aliased(alias, side)].map((name) => table.resource(name, side));
      const states = [...(this.#interests.named(alias)?.matching(constraints) ?? [])];
      return states.some(({ interest }) => targets.some((one) => matchesAny(one, interest.parameters)));
    });
  }
}

/** What the sides have apart from what upstream says. */
function columnsOf({ released, canary }: HeldName): readonly (readonly [Side, CachedResource])[] {
  const own = [['released', released] as const];
  return canary === undefined ? own : [...own, ['canary', canary] as const];
}

/** Those who have something of a name keep that, although a new variant matches too. False: it would replace it. */
function keepsOwn(cached: CachedResource, having: readonly Parameters[], { holders }: CacheEntry): boolean {
  if (having.length === 0) return true;
  if (holders.some(({ exactParameters }) => exactParameters !== undefined)) return false;
  const own = having.map((parameters) => [parameters, cached.variants.match(parameters)] as const);
  if (own.some(([, matches]) => matches.length > 1)) return false;
  for (const [parameters, [entry]] of own) if (entry !== undefined) cached.bind(parameters, entry);
  return true;
}

const matchesAny = (cached: CachedResource | undefined, parameters: Parameters): boolean =>
  cached !== undefined && cached.variants.match(parameters).length > 0;

/** The parameters of each interest that sees a variant by its name. */
function interestedIn(interests: Interests, { variant }: CacheEntry): Parameters[] {
  const { name, constraints } = variant;
  return [...interests.seeing(name, constraints)].map(({ interest }) => interest.parameters);
}

/** Wildcards that have nothing of a name yet get its released content at once. The others keep what they show. */
function joinWildcards(
  column: CachedResource,
  live: CachedResource | undefined,
  interests: Interests,
): boolean {
  let joined = false;
  for (const entry of column.variants.all()) {
    const now = live?.variants.get(entry.constraints.key);
    if (now === undefined || isHeldByWildcard(entry) || !isHeldByWildcard(now)) continue;
    const wildcards = [...(interests.named(WILDCARD)?.matching(entry.constraints) ?? [])];
    const all = wildcards.map(({ interest }) => interest.parameters);
    const having = all.filter((parameters) => column.variants.match(parameters).some(isHeldByWildcard));
    if (all.length > 0 && having.length === all.length) continue;
    for (const parameters of having) bindShown(column, parameters);
    entry.holders = [...entry.holders, ...now.holders.filter(({ role }) => role === 'wildcard')];
    joined = true;
  }
  return joined;
}

/** What a wildcard shows becomes its choice. A choice that was made before stays: it is that of names too. */
function bindShown(column: CachedResource, parameters: Parameters): void {
  if (column.bindings?.has(parameters) === true) return;
  const shown = column.pick(parameters, () => {}, { access: undefined, fromWildcard: true });
  if (shown !== undefined) column.bind(parameters, shown);
}

function without(
  changed: Commit['changed'],
  isHidden: (name: ResourceName) => boolean,
): ReadonlyMap<ResourceName, readonly Constraints[]> {
  return new Map([...changed].filter(([name]) => !isHidden(name)));
}

/** A name is of one upstream. */
export function isFrozen(holds: Holds, type: TypeUrl, cached: CachedResource): boolean {
  if (holds.freezes.length === 0 || cached.empty) return false;
  const [entry] = cached.variants.all();
  return holds.isFrozen(type, entry?.variant.upstream);
}
