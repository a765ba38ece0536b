import { type ResourceName, type Revision, resourceName } from '../model/brand.ts';
import type { Parameters } from '../model/parameters.ts';
import { deltaVersionOf } from '../model/payloads.ts';
import type { Payload, Ttl, Variant } from '../model/resource.ts';
import { isCollection } from '../model/selection.ts';
import {
  type Heartbeat,
  type Interest,
  type Put,
  type ResourceError,
  type Transaction,
  WILDCARD,
} from '../model/transaction.ts';
import { Code } from '../wire/grpc-status.ts';
import { type CachedResource, type CacheEntry, hasHolder } from './cached-resource.ts';
import type { CommitChanges } from './commit-changes.ts';
import { hasContent } from './interest-content.ts';
import { sameContent, sameError } from './same-content.ts';
import type { TypeTable } from './type-table.ts';
import { VariantRemover } from './variant-remover.ts';

/** The variant that a parameter set had before another one came that matches it too. */
interface PreviousChoice {
  readonly cached: CachedResource;
  readonly name: ResourceName;
  readonly parameters: Parameters;
  readonly before: CacheEntry;
}

/** One transaction on its way into a table. */
export class Update {
  readonly changes: CommitChanges;
  readonly #table: TypeTable;
  readonly #transaction: Transaction;
  readonly #revision: Revision;
  readonly #removal: VariantRemover;

  constructor(table: TypeTable, transaction: Transaction, revision: Revision, changes: CommitChanges) {
    this.#table = table;
    this.#transaction = transaction;
    this.#revision = revision;
    this.changes = changes;
    this.#removal = new VariantRemover(table, transaction);
  }

  /** Confirms first, then removes, then adds: a swap of variants must not look ambiguous on the way (protocol §5). */
  run(): void {
    const { puts, complete, cannotDelete, heartbeats, resourceErrors, holder } = this.#transaction;
    const choices = this.#confirmAll();
    this.#removeAll();
    if (complete) this.#sweep();
    for (const put of puts) this.#put(put);
    for (const choice of choices) this.#keepChoice(choice);
    if (cannotDelete) this.#lastWins();
    for (const beat of heartbeats) this.#heartbeat(beat);
    for (const error of resourceErrors) this.#resourceError(error);
    if (holder.restored) this.#resolveForNow();
    else this.#resolveInterests();
  }

  /**
   * Marks the variants that are cached already and stay. A new variant changes nothing for parameter sets that have a
   * match (protocol §5, Ambiguity). Returns what these have now.
   */
  #confirmAll(): readonly PreviousChoice[] {
    const choices: PreviousChoice[] = [];
    /** Nothing changes meanwhile: one choice for each resource and parameter set. */
    const remembered = new Map<CachedResource, Set<Parameters>>();
    for (const put of this.#transaction.puts) {
      const cached = this.#table.resources.get(put.name);
      const entry = cached?.variants.get(put.constraints.key);
      if (entry !== undefined) entry.confirmedIn = this.#revision;
      else if (cached !== undefined && !this.#transaction.cannotDelete)
        this.#remember(cached, put, remembered, choices);
    }
    return choices;
  }

  #remember(
    cached: CachedResource,
    put: Put,
    remembered: Map<CachedResource, Set<Parameters>>,
    choices: PreviousChoice[],
  ): void {
    const { name } = put;
    const seen = remembered.get(cached) ?? new Set<Parameters>();
    remembered.set(cached, seen);
    for (const { parameters } of this.#interested(put)) {
      if (seen.has(parameters)) continue;
      seen.add(parameters);
      const before = this.#pick(cached, name, parameters);
      if (before !== undefined) choices.push({ cached, name, parameters, before });
    }
  }

  /** The interests that see a resource that comes: by its name, an alias, a wildcard or a glob. */
  *#interested(put: Put): Iterable<Interest> {
    const { interests } = this.#table;
    for (const { interest } of interests.seeing(put.name, put.constraints)) yield interest;
    for (const alias of put.aliases) {
      for (const state of interests.named(resourceName(alias))?.matching(put.constraints) ?? []) {
        yield state.interest;
      }
    }
  }

  #keepChoice({ cached, name, parameters, before }: PreviousChoice): void {
    if (cached.variants.get(before.constraints.key) !== before) return;
    const matches = cached.variants.match(parameters);
    if (matches.length < 2) return;
    cached.bind(parameters, before);
    this.#table.ambiguous(name, parameters, [before, ...matches.filter((entry) => entry !== before)]);
  }

  #removeAll(): void {
    for (const { name, constraints } of this.#transaction.removals) {
      const cached = this.#table.resources.get(name);
      const entry = cached?.variants.get(constraints.key);
      if (cached === undefined || entry === undefined) {
        this.#removal.resolveNamed(name, constraints, this.changes);
      } else if (entry.confirmedIn !== this.#revision) {
        this.#removal.drop(name, cached, entry, this.#transaction.holder, this.changes);
      }
    }
  }

  /** Full state: what this holder has not confirmed is removed. */
  #sweep(): void {
    const { holder } = this.#transaction;
    for (const [name, cached] of this.#table.resources) {
      for (const entry of cached.variants.all()) {
        if (entry.confirmedIn !== this.#revision)
          this.#removal.drop(name, cached, entry, holder, this.changes);
      }
    }
  }

  #put(put: Put): void {
    const cached = this.#table.place(put.name);
    if (cached.resourceErrors !== undefined) {
      this.changes.touch(put.name, put.constraints);
      cached.clearErrors(put.constraints);
    }
    const entry = cached.variants.get(put.constraints.key);
    if (entry !== undefined && this.#transaction.holder.restored) {
      this.#keep(entry);
    } else if (entry !== undefined && sameContent(entry.variant, put)) {
      entry.confirmedIn = this.#revision;
      this.#confirm(put, entry);
    } else {
      const variant = this.#variant(put);
      this.changes.touch(put.name, put.constraints, put.aliases);
      if (entry === undefined) this.#add(cached, variant);
      else this.#replace(entry, variant);
      this.#table.expiring(variant);
    }
  }

  /** The same content again: there may be one more holder, or another TTL. */
  #confirm(put: Put, entry: CacheEntry): void {
    const { holder } = this.#transaction;
    // It may have become a member of the wildcard.
    if (!hasHolder(entry, holder)) this.changes.touch(put.name, put.constraints);
    this.#table.addHolder(entry, holder);
    const ttl = this.#ttl(put.ttlMilliseconds);
    if (ttl === undefined && entry.variant.ttl === undefined) return;
    // Clients with a running TTL must get the new one, or learn that there is none.
    this.changes.touch(put.name, put.constraints);
    entry.variant = { ...entry.variant, ttl };
    this.#table.expiring(entry.variant);
  }

  #variant(put: Put): Variant {
    const { type, version, holder } = this.#transaction;
    const payload = this.#payload(put);
    const metadata = put.metadata === undefined ? undefined : Buffer.from(put.metadata);
    return {
      type,
      name: put.name,
      constraints: put.constraints,
      version: put.version,
      deltaVersion: deltaVersionOf(put.version, put.constraints, payload, put.aliases, metadata),
      payload,
      aliases: put.aliases,
      ttl: this.#ttl(put.ttlMilliseconds),
      doNotCache: put.doNotCache,
      metadata,
      responseVersion: version,
      upstream: holder.upstream,
      cachedSince: this.#table.all.options.clock.now(),
      revision: this.#revision,
    };
  }

  #payload({ any, payload }: Put): Payload | undefined {
    if (payload !== undefined) return this.#table.payloads.share(payload);
    return any === undefined ? undefined : this.#table.payloads.acquire(any);
  }

  #ttl(milliseconds: number | undefined): Ttl | undefined {
    if (milliseconds === undefined) return undefined;
    return { milliseconds, deadline: this.#table.all.options.clock.now() + milliseconds };
  }

  #add(cached: CachedResource, variant: Variant): void {
    const { constraints } = variant;
    const holders = [this.#transaction.holder];
    this.#table.add(cached, { constraints, variant, holders, confirmedIn: this.#revision });
  }

  #replace(entry: CacheEntry, variant: Variant): void {
    const { holder } = this.#transaction;
    const before = entry.variant;
    this.#table.unlink(before);
    this.#table.payloads.release(before.payload);
    entry.variant = variant;
    entry.confirmedIn = this.#revision;
    this.#table.link(variant);
    this.#table.addHolder(entry, holder);
    if (before.aliases.length === 0) return;
    const kept = new Set(variant.aliases);
    for (const alias of before.aliases) {
      if (kept.has(alias)) continue;
      const name = resourceName(alias);
      this.changes.touch(name, variant.constraints);
      this.#removal.resolveNamed(name, variant.constraints, this.changes);
    }
  }

  /**
   * Upstream cannot delete the predecessors of what it sends: who matches several variants gets the last received
   * (protocol §5). Nothing is dropped before all of the response is in: it may deliver the same variant again.
   */
  #lastWins(): void {
    const latest = new Map<CachedResource, { readonly name: ResourceName; readonly entry: CacheEntry }>();
    for (const put of this.#transaction.puts) {
      const cached = this.#table.resources.get(put.name);
      const entry = cached?.variants.get(put.constraints.key);
      if (cached === undefined || entry === undefined || cached.variants.size < 2) continue;
      this.changes.touch(put.name, put.constraints);
      for (const { parameters } of this.#interested(put))
        if (cached.variants.match(parameters).length > 1) cached.bind(parameters, entry);
      latest.set(cached, { name: put.name, entry });
    }
    for (const [cached, { name, entry }] of latest) this.#dropUnbound(cached, name, entry);
  }

  #dropUnbound(cached: CachedResource, name: ResourceName, latest: CacheEntry): void {
    const bound = new Set<CacheEntry>([latest]);
    for (const entry of cached.variants.values()) {
      for (const { interest } of this.#table.interests.seeing(name, entry.constraints)) {
        const picked = this.#pick(cached, name, interest.parameters);
        if (picked !== undefined) bound.add(picked);
      }
    }
    for (const entry of cached.variants.values()) {
      if (!bound.has(entry)) this.#removal.drop(name, cached, entry, this.#transaction.holder, this.changes);
    }
  }

  #heartbeat(beat: Heartbeat): void {
    const entry = this.#table.resources.get(beat.name)?.variants.get(beat.constraints.key);
    if (entry === undefined) return;
    this.changes.touch(beat.name, beat.constraints);
    entry.confirmedIn = this.#revision;
    entry.variant = { ...entry.variant, ttl: this.#ttl(beat.ttlMilliseconds) };
    this.#table.expiring(entry.variant);
  }

  #resourceError(error: ResourceError): void {
    const { name, constraints, code } = error;
    if (code === Code.NOT_FOUND) this.#removal.resolveNamed(name, constraints, this.changes);
    const [somebody] = this.#table.interests.seeing(name, constraints);
    if (somebody === undefined) return; // nobody would get it
    const cached = this.#table.place(name);
    cached.resourceErrors ??= new Map();
    const known = cached.resourceErrors.get(constraints.key);
    const { role } = this.#transaction.holder;
    const again = known !== undefined && sameError(known, error);
    const fromWildcard = (again && known.fromWildcard) || role === 'wildcard' || name === WILDCARD;
    // Each error is forwarded once (protocol §8). Upstreams that send their whole state repeat it in each response.
    if (again && known.fromWildcard === fromWildcard) return;
    const status = Buffer.from(error.status);
    this.changes.touch(name, constraints);
    cached.resourceErrors.set(constraints.key, { ...error, status, revision: this.#revision, fromWildcard });
  }

  /** The wildcard is served now, so an earlier refusal of its session (max_upstream_sessions) is cleared. */
  #clearRefusal({ selector, parameters }: Interest): void {
    const cached = selector === WILDCARD ? this.#table.resources.get(WILDCARD) : undefined;
    if (cached?.resourceErrors === undefined) return;
    for (const { constraints, revision } of cached.resourceErrors.values()) {
      if (revision !== this.#revision && constraints.matches(parameters)) cached.clearErrors(constraints);
    }
    if (cached.empty) this.#table.resources.delete(WILDCARD);
  }

  #resolveInterests(): void {
    const { resolved, holder, resourceErrors } = this.#transaction;
    // Nothing but NOT_FOUND drops what is cached (protocol §8).
    const failed = new Set(
      resourceErrors.filter(({ code }) => code !== Code.NOT_FOUND).map(({ name }) => name),
    );
    const confirmed: Interest[] = [];
    for (const interest of resolved) {
      const state = this.#table.interests.get(interest.selector, interest.parameters);
      if (state === undefined || (state.answer === 'restored' && failed.has(interest.selector))) continue;
      if (state.holder?.key !== holder.key) this.#table.all.journal.interest(interest);
      state.holder = holder;
      confirmed.push(interest);
      this.#clearRefusal(interest);
      if (state.answer === undefined) this.changes.resolve(state);
      else state.answer = 'confirmed';
    }
    // Only when all interests are confirmed: restored variants that none of them needs are removed.
    for (const interest of confirmed) this.#removal.releaseRestored(interest, this.changes);
  }

  /**
   * What another relay has in its cache, while upstream is away (docs/adr/0126-siblings.md), is as good as what was
   * restored from disk: upstream's own answer takes its place. It is never better than what this relay has: a variant
   * that is cached stays as it is. It may have become a member of the wildcard, or be subscribed by name.
   */
  #keep(entry: CacheEntry): void {
    const { holder } = this.#transaction;
    if (entry.holders.some(({ role }) => role === holder.role)) return;
    this.changes.touch(entry.variant.name, entry.constraints);
    this.#table.addHolder(entry, holder);
  }

  /** Resolves the interests that upstream has not answered, until it does. */
  #resolveForNow(): void {
    const { resolved, holder } = this.#transaction;
    for (const interest of resolved) {
      const state = this.#table.interests.get(interest.selector, interest.parameters);
      if (state === undefined || state.answer !== undefined) continue;
      // That another relay does not have it says nothing.
      if (!isCollection(interest.selector) && !hasContent(this.#table, interest)) continue;
      state.holder = holder;
      this.#table.all.journal.interest(state.interest);
      this.changes.resolve(state, 'restored');
    }
  }

  #pick(cached: CachedResource, name: ResourceName, parameters: Parameters): CacheEntry | undefined {
    return cached.pick(parameters, (matches) => this.#table.ambiguous(name, parameters, matches));
  }
}
