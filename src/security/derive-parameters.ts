import { hash } from 'node:crypto';
import { LRUCache } from 'lru-cache';
import { RE2JS } from 're2js';
import { getOrMake } from '../model/maps.ts';
import { nodePath } from '../model/node-path.ts';
import { internParameters, type Parameters } from '../model/parameters.ts';
import type { Peer } from '../wire/server-stream.ts';
import { type ClientNode, longestValue, type Metadata } from './client-node.ts';

/** As configured; the schema has checked `from` and `pattern`. */
export interface ParameterRule {
  readonly key: string;
  /** See `sources`. */
  readonly from: string;
  /** The rule is for xdstp names of these authorities; empty: for every name. */
  readonly authorities: readonly string[];
  /** RE2; its first group is the value, or the whole match where it has none. */
  readonly pattern: string | undefined;
  /** Undefined: without a value the key is absent. */
  readonly default: string | undefined;
  /** Another value counts as none, a client's own too; empty: any is allowed. */
  readonly values: readonly string[];
  /**
   * The derived value wins over one that the client sends. Where a trusted rule applies, untrusted rules of its key do
   * not: what the client sends must not replace a value that its certificate does not have.
   */
  readonly trusted: boolean;
}

/**
 * Bounds on the results that are remembered so that equal clients share one: bytes in all, and bytes of one beside its
 * values.
 */
const maxRemembered = { bytes: 4 << 20, perResult: 400 };

type CompiledRule = ReturnType<typeof compileRule>;

/** Of several rules for one key the first wins that gives a value. Throws if a pattern is not RE2. */
export function compileParameterRules(rules: readonly ParameterRule[]): {
  of(node: ClientNode, peer: Peer): DerivedParameters;
} {
  const compiled = rules.map(compileRule);
  const results = new LRUCache<string, DerivedParameters>({
    maxSize: maxRemembered.bytes,
    sizeCalculation: (_, key) => maxRemembered.perResult + key.length,
  });
  return {
    of(node, peer) {
      const values: (string | undefined)[] = [];
      let key = '';
      for (const one of compiled) {
        const value = valueOf(one, node, peer);
        values.push(value);
        key += value === undefined ? '-' : `${value.length}:${value}`;
      }
      return getOrMake(results, key, () => new DerivedParameters(compiled, values));
    },
  };
}

function compileRule(rule: ParameterRule) {
  return {
    ...rule,
    // There may be as many as tenants.
    authorities: new Set(rule.authorities),
    source: parameterSource(rule.from),
    extract: compilePattern(rule.pattern),
  };
}

function compilePattern(pattern: string | undefined): (text: string) => string | undefined {
  if (pattern === undefined) return (text) => text;
  const compiled = RE2JS.compile(pattern);
  return (text) => {
    const matcher = compiled.matcher(text);
    if (!matcher.find()) return undefined;
    return matcher.group(Math.min(1, matcher.groupCount())) ?? undefined;
  };
}

function valueOf(rule: CompiledRule, node: ClientNode, peer: Peer): string | undefined {
  for (const text of rule.source(node, peer)) {
    const value = text.length <= longestValue ? rule.extract(text) : undefined;
    if (value !== undefined && isAllowed(rule, value)) return value;
  }
  return rule.default;
}

function isAllowed({ values }: Pick<ParameterRule, 'values'>, value: string): boolean {
  return values.length === 0 || values.includes(value);
}

const none: readonly string[] = [];

/** The parameters that the rules derive for a client. Clients with equal results share it. */
export class DerivedParameters {
  readonly #rules: readonly CompiledRule[];
  readonly #values: readonly (string | undefined)[];
  readonly #named: ReadonlySet<string>;
  readonly #trusting: ReadonlySet<string>;
  readonly #listsValues: boolean;
  readonly #byAuthority = new Map<string | undefined, Parameters>();
  #trustedKey: string | undefined;

  constructor(rules: readonly CompiledRule[], values: readonly (string | undefined)[]) {
    this.#rules = rules;
    this.#values = values;
    this.#listsValues = rules.some(({ values }) => values.length > 0);
    this.#named = new Set(rules.flatMap((rule) => Array.from(rule.authorities)));
    this.#trusting = new Set(
      rules.filter(({ trusted }) => trusted).flatMap(({ authorities }) => Array.from(authorities)),
    );
  }

  /** The parameters of a plain name with this xdstp authority (undefined: not an xdstp name). */
  for(authority: string | undefined): Parameters {
    // All authorities that no rule names have the same result, and a client can name any.
    const relevant = authority !== undefined && this.#named.has(authority) ? authority : undefined;
    return getOrMake(this.#byAuthority, relevant, () => internParameters(this.#derive(relevant, () => true)));
  }

  /**
   * For a TP2 locator: the client's own parameters, with two exceptions. A key with a trusted rule has the derived
   * value or is absent. A value that the rules of its key do not list is absent.
   */
  merge(own: Parameters, authority: string | undefined): Parameters {
    const refused = this.#listsValues ? this.#refusedKeys(own, authority) : none;
    return this.#merge(own, authority, refused);
  }

  /** These parameters, with the values of the trusted rules for this authority. */
  enforce(parameters: Parameters, authority: string | undefined): Parameters {
    const derived = this.for(authority).entries;
    const agrees = this.#trustedKeys(authority)
      .values()
      .every((key) => parameters.entries.get(key) === derived.get(key));
    return agrees ? parameters : this.#merge(parameters, authority, none);
  }

  #merge(own: Parameters, authority: string | undefined, refused: readonly string[]): Parameters {
    const trusted = this.#trustedKeys(authority);
    if (trusted.size === 0 && refused.length === 0) return own;
    const entries = new Map(own.entries);
    for (const key of [...trusted, ...refused]) entries.delete(key);
    for (const [key, value] of this.#derive(authority, (rule) => rule.trusted)) entries.set(key, value);
    return internParameters(entries);
  }

  /**
   * Equal for clients for which the trusted rules derive the same values for every authority: a wildcard or an alias can
   * show names of any authority. Empty: no trusted rule is for single authorities, so all authorities have the same.
   */
  get trustedKey(): string {
    this.#trustedKey ??= this.#trusting.size === 0 ? '' : hash('sha256', this.#trustedValues(), 'base64url');
    return this.#trustedKey;
  }

  #trustedValues(): string {
    const values = [undefined, ...this.#trusting].map((authority) => ({
      authority,
      values: [...this.#derive(authority, ({ trusted }) => trusted)],
    }));
    return JSON.stringify(values);
  }

  #derive(
    authority: string | undefined,
    isUsed: (rule: CompiledRule) => boolean,
  ): ReadonlyMap<string, string> {
    const trusted = this.#trustedKeys(authority);
    const entries = new Map<string, string>();
    for (const [index, rule] of this.#rules.entries()) {
      const value = this.#values[index];
      if (value === undefined || entries.has(rule.key) || !appliesTo(rule, authority) || !isUsed(rule))
        continue;
      if (trusted.has(rule.key) && !rule.trusted) continue;
      entries.set(rule.key, value);
    }
    return entries;
  }

  /** The keys of a locator with a value that no rule of the key allows. */
  #refusedKeys(own: Parameters, authority: string | undefined): readonly string[] {
    const refused: string[] = [];
    for (const [key, value] of own.entries) {
      const rules = this.#rules.filter((rule) => rule.key === key && appliesTo(rule, authority));
      if (rules.length > 0 && !rules.some((rule) => isAllowed(rule, value))) refused.push(key);
    }
    return refused;
  }

  #trustedKeys(authority: string | undefined): ReadonlySet<string> {
    const rules = this.#rules.filter((rule) => rule.trusted && appliesTo(rule, authority));
    return new Set(rules.map(({ key }) => key));
  }
}

function appliesTo({ authorities }: CompiledRule, authority: string | undefined): boolean {
  return authorities.size === 0 || (authority !== undefined && authorities.has(authority));
}

/** What a rule's `from` reads of a client: several values of a certificate or of its features, else one or none. */
type ParameterSource = (node: ClientNode, peer: Peer) => readonly string[];

const sources: ReadonlyMap<string, ParameterSource> = new Map<string, ParameterSource>([
  ['node.id', (node) => given(node.id)],
  ['node.cluster', (node) => given(node.cluster)],
  ['node.locality.region', (node) => given(node.locality.region)],
  ['node.locality.zone', (node) => given(node.locality.zone)],
  ['node.locality.sub_zone', (node) => given(node.locality.subZone)],
  ['node.user_agent_name', (node) => given(node.userAgentName)],
  ['node.user_agent_version', (node) => given(node.userAgentVersion)],
  ['node.client_features', (node) => shortFeatures(node.clientFeatures)],
  ['peer.uri_san', (_node, peer) => peer.uriSans],
  ['peer.dns_san', (_node, peer) => peer.dnsSans],
]);

/** For a path that the configuration's schema has accepted; what it would not accept reads nothing. */
function parameterSource(from: string): ParameterSource {
  if (!/^node\.metadata[.[]/.test(from)) return sources.get(from) ?? (() => []);
  const [, ...keys] = nodePath(from) ?? [];
  return (node) => metadataText(node.metadata, keys);
}

/** The proto cannot tell an empty string from none. */
const given = (text: string): readonly string[] => (text === '' ? [] : [text]);

/** As many as have the length of one value together: a pattern must not cost more for them than for another source. */
function shortFeatures(features: readonly string[]): readonly string[] {
  let length = 0;
  const end = features.findIndex((feature) => {
    length += feature.length;
    return length > longestValue;
  });
  return end === -1 ? features : features.slice(0, end);
}

function metadataText(metadata: Metadata, keys: readonly string[]): readonly string[] {
  let value: string | Metadata | undefined = metadata;
  for (const key of keys) {
    if (value === undefined || typeof value === 'string') return [];
    value = value.get(key);
  }
  return typeof value === 'string' ? [value] : [];
}
