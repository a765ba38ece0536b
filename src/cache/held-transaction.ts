import { type ResourceName, resourceName, type TypeUrl } from '../model/brand.ts';
import type { Commit } from '../model/catalog.ts';
import type { Constraints } from '../model/constraints.ts';
import type { Holds } from '../model/holds.ts';
import type { Parameters } from '../model/parameters.ts';
import type { PendingChange } from '../model/rollout.ts';
import type { Side } from '../model/side.ts';
import { type Interest, WILDCARD } from '../model/transaction.ts';
import { type CachedResource, type CacheEntry, isHeldByWildcard } from './cached-resource.ts';
import { followTtls, type HeldName, type HeldType } from './held-type.ts';
import type { Interests } from './interests.ts';
import { sameVariantContent, sameVariants, type VariantsOf, variantsOf } from './same-content.ts';

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

  /** Must be called before the variants of a name change for the first time. */
  readonly changing = (name: ResourceName): void => {
    if (this.#names.has(name)) return;
    this.#names.add(name);
    const live = this.#type.liveResource(name);
    const held = this.#type.names.get(name);
    if (held !== undefined) {
      this.#before.set(name, variantsOf(live));
      if (held.masked !== undefined || live === undefined || !this.#isFrozen(live)) return;
      this.#type.canary.keep(name, live);
      held.masked = 'frozen';
      return;
    }
    // Nobody has anything of it: there is nothing to protect, unless a rollback has removed it.
    if (live === undefined || live.variants.size === 0) {
      if (this.#holds.isRemoved(this.#type.type, name)) this.#keepAway(name);
      return;
    }
    if (!this.#waits(live)) return;
    const masked = this.#isFrozen(live) ? ('frozen' as const) : undefined;
    this.#type.released.keep(name, live);
    if (masked !== undefined) this.#type.canary.keep(name, live);
    this.#type.names.set(name, { since: this.#now, masked, refused: undefined, closed: false });
  };

  /** A name whose change does not wait, as the end of a TTL. */
  passing(name: ResourceName, altered: boolean): void {
    this.#names.add(name);
    if (altered) this.#altered.add(name);
  }

  /**
   * After the transaction: what must not wait goes into the images, and images that are equal to what upstream has are
   * dropped. `released`: the version of the holder's last response before this one.
   */
  settle(interests: Interests, holder: string | undefined, released: string | undefined): void {
    for (const name of this.#names) this.#settle(name, interests);
    const { names, versions } = this.#type;
    if (names.size === 0 || holder === undefined || released === undefined) return;
    if (!versions.has(holder)) versions.set(holder, released);
  }

  /** For interests that upstream has answered now: what waits may be all that there is for their parameters. */
  admit(resolved: readonly Interest[], interests: Interests): void {
    const { names } = this.#type;
    for (const { selector } of resolved) {
      const seen = selector === WILDCARD ? names : [[selector, names.get(selector)] as const];
      for (const [name, held] of seen) {
        const live = this.#type.liveResource(name);
        if (held === undefined || held.closed || live === undefined) continue;
        for (const side of this.#sidesWithImage(name)) {
          this.#letNewIn(name, side, live, interests);
          joinWildcards(this.#type[side].get(name), live, interests);
        }
      }
    }
  }

  /** What each side sees of a commit. */
  split(commit: Commit): Commit {
    const { names } = this.#type;
    if (names.size === 0 && this.#errors.released.size === 0) return commit;
    if (commit.version !== undefined) this.#type.version = commit.version;
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
        held.since = this.#now;
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
    const released = this.#type.released.get(name)?.variants;
    return variantsOf(this.#type.liveResource(name), ({ constraints: { key }, variant }) => {
      const everybodys = before.has(key) ? undefined : released?.get(key);
      return everybodys !== undefined && sameVariantContent(everybodys.variant, variant);
    });
  }

  #settle(name: ResourceName, interests: Interests): void {
    const held = this.#type.names.get(name);
    if (held === undefined) return;
    const live = this.#type.liveResource(name);
    if (live !== undefined && this.#keptAway.has(name) && !this.#staysAway(name, held, live)) return;
    this.#follow(name, held, live, interests);
    const refused = held.refused ?? new Map();
    if (held.masked === 'discarded' && !sameVariants(refused, this.#waiting(name, refused))) {
      const known = live ?? this.#type.released.get(name);
      if (known !== undefined && this.#isFrozen(known)) held.masked = 'frozen';
      else {
        this.#type.unmask(name, held);
        this.#unmasked.add(name);
      }
    }
    this.#stopHoldingIfEqual(name, held);
  }

  /** What must not wait goes into the images. */
  #follow(name: ResourceName, held: HeldName, live: CachedResource | undefined, interests: Interests): void {
    for (const side of this.#sidesWithImage(name)) {
      const images = this.#type[side];
      const followed = followTtls(images.get(name), live);
      const grown = !held.closed && live !== undefined && this.#letNewIn(name, side, live, interests);
      const joined = !held.closed && joinWildcards(images.get(name), live, interests);
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
    this.#type.released.keep(name, undefined);
    this.#type.names.set(name, { since: this.#now, masked: undefined, refused: undefined, closed: true });
  }

  /** Only now it is known from which upstream it is. False: nothing is gated or frozen any more. */
  #staysAway(name: ResourceName, held: HeldName, live: CachedResource): boolean {
    if (!this.#waits(live)) {
      this.#type.stopHolding(name);
      return false;
    }
    if (!this.#isFrozen(live)) return true;
    this.#type.canary.keep(name, undefined);
    held.masked = 'rolledBack';
    return true;
  }

  #stopHoldingIfEqual(name: ResourceName, { masked }: HeldName): void {
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

  #sidesWithImage(name: ResourceName): readonly Side[] {
    return this.#type.canary.has(name) ? ['released', 'canary'] : ['released'];
  }

  /** A variant for parameter sets that have nothing of the name yet does not wait. */
  #letNewIn(name: ResourceName, side: Side, live: CachedResource, interests: Interests): boolean {
    const images = this.#type[side];
    const known = images.get(name);
    const isNew = (entry: CacheEntry): boolean => {
      if (known?.variants.get(entry.constraints.key) !== undefined) return false;
      const all = interestedIn(interests, entry);
      const having = all.filter((parameters) => matchesAny(known, parameters));
      if (all.length > 0 && having.length === all.length) return false;
      return !this.#isTakenOver(side, entry, interests) && keepsOwn(known, having, entry);
    };
    const added = live.variants.all().filter(isNew);
    for (const entry of added) images.add(name, entry, live.order);
    return added.length > 0;
  }

  /** Whether who asks by one of its aliases has something, of another resource maybe. */
  #isTakenOver(side: Side, { variant, constraints }: CacheEntry, interests: Interests): boolean {
    const table = this.#type.side(side);
    return variant.aliases.map(resourceName).some((alias) => {
      const targets = [...table.aliased(alias)].map((name) => table.resource(name));
      const states = [...(interests.named(alias)?.matching(constraints) ?? [])];
      return states.some(({ interest }) => targets.some((one) => matchesAny(one, interest.parameters)));
    });
  }
}

/** Those who have something of a name keep that, although a new variant matches too. False: it would replace it. */
function keepsOwn(
  cached: CachedResource | undefined,
  having: readonly Parameters[],
  { holders }: CacheEntry,
): boolean {
  if (cached === undefined || having.length === 0) return true;
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
  image: CachedResource | undefined,
  live: CachedResource | undefined,
  interests: Interests,
): boolean {
  if (image === undefined) return false;
  let joined = false;
  for (const entry of image.variants.all()) {
    const now = live?.variants.get(entry.constraints.key);
    if (now === undefined || isHeldByWildcard(entry) || !isHeldByWildcard(now)) continue;
    const wildcards = [...(interests.named(WILDCARD)?.matching(entry.constraints) ?? [])];
    const all = wildcards.map(({ interest }) => interest.parameters);
    const having = all.filter((parameters) => image.variants.match(parameters).some(isHeldByWildcard));
    if (all.length > 0 && having.length === all.length) continue;
    for (const parameters of having) bindShown(image, parameters);
    entry.holders = [...entry.holders, ...now.holders.filter(({ role }) => role === 'wildcard')];
    joined = true;
  }
  return joined;
}

/** What a wildcard shows becomes its choice. A choice that was made before stays: it is that of names too. */
function bindShown(image: CachedResource, parameters: Parameters): void {
  if (image.bindings?.has(parameters) === true) return;
  const shown = image.pick(parameters, () => {}, { access: undefined, fromWildcard: true });
  if (shown !== undefined) image.bind(parameters, shown);
}

function without(
  changed: Commit['changed'],
  isHidden: (name: ResourceName) => boolean,
): ReadonlyMap<ResourceName, readonly Constraints[]> {
  return new Map([...changed].filter(([name]) => !isHidden(name)));
}

/** A name is of one upstream. */
export function isFrozen(holds: Holds, type: TypeUrl, { variants }: CachedResource): boolean {
  if (holds.freezes.length === 0) return false;
  const [entry] = variants.all();
  return holds.isFrozen(type, entry?.variant.upstream);
}
