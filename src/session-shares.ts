import type { Config } from './config/config.ts';
import type { Subscribed } from './downstream/services.ts';
import type { ParametersKey, TypeUrl } from './model/brand.ts';
import { countIn, getOrMake } from './model/maps.ts';
import type { Selection } from './model/selection.ts';
import { restrict } from './upstream/ads/stamp.ts';
import { claimant } from './upstream/claims.ts';
import type { Account } from './wire/accounts.ts';

/**
 * A stream and a peer may use at least so many parameter sets: a small limit has no smaller one below it. With workers a
 * peer has no more than that over all of them, as it could take all sessions otherwise.
 */
const leastOf = { stream: 8, peer: 16 };

type Sets = ReadonlySet<ParametersKey>;

const none: Sets = new Set();

/**
 * How many of the upstream sessions one client may use (limits.max_upstream_sessions): a stream a quarter of them, a
 * peer half. Otherwise a client that chooses its own parameters could use all sessions with one request.
 */
export class SessionShares {
  #config: Config;
  /** For each account, how many of its streams need a session for a parameter set. */
  #peers = new Map<Account, Map<ParametersKey, number>>();
  /** What each owner, a stream or a class of polls, needs one for, and of which account. */
  #needs = new WeakMap<object, { readonly account: Account; readonly sets: Sets }>();
  /** The parameter sets that a selection needs by the rules in force. */
  #known = new WeakMap<Selection, Sets>();

  constructor(config: Config) {
    this.#config = config;
  }

  /** Takes other rules and limits. Every stream must report again what it needs. */
  reload(config: Config): void {
    this.#config = config;
    this.#peers = new Map();
    this.#needs = new WeakMap();
    this.#known = new WeakMap();
  }

  /** How many parameter sets are new to an owner, or why it may not have these now. */
  take(owner: object, account: Account, subscribed: Iterable<Subscribed>): number | string {
    const before = this.#needs.get(owner)?.sets ?? none;
    const now = this.#setsOf(subscribed);
    if (now.size === before.size && now.isSubsetOf(before)) return 0;
    const excess = this.#excess(account, before, now);
    if (excess !== undefined) return excess;
    this.#replace(owner, account, now);
    return now.difference(before).size;
  }

  release(owner: object): void {
    const share = this.#needs.get(owner);
    if (share !== undefined) this.#replace(owner, share.account, none);
  }

  /** The parameter sets that these take. */
  #setsOf(subscribed: Iterable<Subscribed>): Sets {
    if (this.#config.parameters.length === 0) return none;
    let needs = none;
    for (const { info, selection } of subscribed) {
      const more = this.#needsOf(info.url, selection);
      // Nearly all clients have the same parameters for all types.
      if (!more.isSubsetOf(needs)) needs = needs.size === 0 ? more : needs.union(more);
    }
    return needs;
  }

  #needsOf(type: TypeUrl, selection: Selection): Sets {
    const known = this.#known.get(selection);
    if (known !== undefined) return known;
    const keys = this.#config.parameters.map(({ key }) => key);
    const seen = new Set<unknown>();
    const needs = new Set<ParametersKey>();
    for (const { selector, parameters } of selection.entries.values()) {
      if (seen.has(parameters) || !this.#decidesByNode(type, selector)) continue;
      seen.add(parameters);
      needs.add(restrict(keys, parameters).key);
    }
    this.#known.set(selection, needs);
    return needs;
  }

  /** The upstream has a session for each parameter set. */
  #decidesByNode(type: TypeUrl, selector: string): boolean {
    const upstream = claimant(this.#config.upstreams, type, selector);
    return upstream?.kind === 'ads' && upstream.variants === 'PER_PARAMETERS';
  }

  /** Why an account may not have these now. */
  #excess(account: Account, before: Sets, now: Sets): string | undefined {
    const { limits, workers } = this.#config;
    const max = limits.maxUpstreamSessions;
    const ofStream = Math.min(max, Math.max(leastOf.stream, Math.floor(max / 4)));
    const ofPeer = mostOfPeer(max, workers);
    if (now.size > ofStream) {
      return `a stream that uses ${now.size} parameter sets: at most ${ofStream} are accepted, as each takes one of ${max} upstream sessions (limits.max_upstream_sessions). ${advice}`;
    }
    const counts = this.#peers.get(account);
    const left = [...before].filter((set) => counts?.get(set) === 1 && !now.has(set));
    const total =
      (counts?.size ?? 0) - left.length + [...now].filter((set) => counts?.has(set) !== true).length;
    // If a peer may use all sessions, the upstream itself refuses what is too much.
    if (total <= ofPeer || ofPeer === max || now.isSubsetOf(before)) return undefined;
    return `${account.key} uses ${total} parameter sets: at most ${ofPeer} are accepted of one peer${workers > 1 ? ` in each of ${workers} workers` : ''}, as each takes one of ${max} upstream sessions (limits.max_upstream_sessions). ${advice}`;
  }

  #replace(owner: object, account: Account, now: Sets): void {
    const before = this.#needs.get(owner)?.sets ?? none;
    if (before.size + now.size === 0) return;
    this.#needs.set(owner, { account, sets: now });
    const counts = getOrMake(this.#peers, account, () => new Map());
    for (const set of now) countIn(counts, set, 1);
    for (const set of before) countIn(counts, set, -1);
    if (counts.size === 0) this.#peers.delete(account);
  }
}

/** Of the sessions of an upstream. Clients are spread over the workers, and each worker counts its own. */
export function mostOfPeer(max: number, workers: number): number {
  if (max <= leastOf.peer) return max;
  const ofAll = Math.max(leastOf.peer, Math.floor(max / 2));
  return Math.max(1, Math.floor(ofAll / Math.max(1, workers)));
}

const advice =
  'Raise the limit, list what clients may say in parameters[].values, or name a relay in limits.relay_peers';
