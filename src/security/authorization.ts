import { createHash } from 'node:crypto';
import { LRUCache } from 'lru-cache';
import type { Access, Cohort } from '../model/access.ts';
import type { TypeUrl } from '../model/brand.ts';
import { getOrMake } from '../model/maps.ts';
import type { Parameters } from '../model/parameters.ts';
import type { Variant } from '../model/resource.ts';
import { authorityOf } from '../model/xdstp.ts';
import type { Peer } from '../wire/server-stream.ts';
import type { DerivedParameters } from './derive-parameters.ts';
import { compilePrincipals, type NamePattern, NamePatterns } from './pattern.ts';

/** As configured. An undefined list matches all. */
export interface AuthorizationRule {
  /** See `compilePrincipals`. */
  readonly principals?: readonly string[] | undefined;
  readonly types?: readonly TypeUrl[] | undefined;
  readonly names?: readonly NamePattern[] | undefined;
  readonly allow: boolean;
}

/** One for each combination of rules that some peer matches: few. If there are more, they are forgotten and made again. */
const maxRemembered = 1000;

/** The first rule that matches decides; once there is a rule, what none matches is denied (docs/configuration.md, xds.authorization). */
export function compileAuthorization(rules: readonly AuthorizationRule[]): {
  /** What a peer may see. Peers to which the same rules apply have equal keys, also after a reload. */
  accessOf(peer: Peer): ClientAccess;
} {
  if (rules.length === 0) return { accessOf: () => ALLOW_ALL };
  const applies = rules.map(({ principals }) =>
    principals === undefined ? () => true : compilePrincipals(principals),
  );
  const remembered = new LRUCache<string, ClientAccess>({ max: maxRemembered });
  return {
    accessOf(peer) {
      const indexes = rules.keys().filter((index) => applies[index]?.(peer) === true);
      const combination = [...indexes];
      return getOrMake(remembered, combination.join(','), () =>
        accessBy(combination.flatMap((index) => rules[index] ?? [])),
      );
    },
  };
}

type CompiledRule = ReturnType<typeof compileRule>;

function accessBy(rules: readonly AuthorizationRule[]): ClientAccess {
  const reachable = withoutUnreachable(rules);
  const [only] = reachable;
  if (only?.allow === true && matchesAll(only)) return ALLOW_ALL;
  return new ClientAccess(keyOf(reachable), reachable.map(compileRule));
}

const matchesAll = (rule: AuthorizationRule): boolean => rule.types === undefined && rule.names === undefined;

/** Rules after one that matches everything never apply. Without them, more peers have equal rules. */
function withoutUnreachable(rules: readonly AuthorizationRule[]): readonly AuthorizationRule[] {
  const end = rules.findIndex(matchesAll);
  return end < 0 ? rules : rules.slice(0, end + 1);
}

/** Made of the rules, not of their indexes: two versions of the configuration may number them differently. */
function keyOf(rules: readonly AuthorizationRule[]): string {
  const content = rules.map(({ types, names, allow }) => [types ?? null, names ?? null, allow]);
  return createHash('sha256').update(JSON.stringify(content)).digest('base64url').slice(0, 22);
}

function compileRule({ types, names, allow }: AuthorizationRule) {
  return { types: types && new Set(types), names: names && new NamePatterns(names), allow };
}

/** Immutable: the same rules for others are another one. */
class ClientAccess implements Access {
  readonly key: string;
  readonly unrestricted: boolean;
  readonly cohort: Cohort;
  /** Undefined: everything is allowed. */
  readonly #rules: readonly CompiledRule[] | undefined;
  readonly #derived: DerivedParameters | undefined;
  #canaries: ClientAccess | undefined;

  constructor(
    key: string,
    rules: readonly CompiledRule[] | undefined,
    derived?: DerivedParameters,
    cohort: Cohort = 'released',
  ) {
    this.key = key;
    this.unrestricted = rules === undefined && derived === undefined;
    this.cohort = cohort;
    this.#rules = rules;
    this.#derived = derived;
  }

  /**
   * Where trusted rules are for single authorities. A wildcard or an alias can show resources of other authorities than
   * its own, so each resource must also match the parameters that are trusted for its authority.
   */
  guardedBy(derived: DerivedParameters): ClientAccess {
    const { trustedKey } = derived;
    return trustedKey === '' ? this : new ClientAccess(`${this.key} ${trustedKey}`, this.#rules, derived);
  }

  /** The same access for canaries: they share no view with the others. */
  get ofCanaries(): ClientAccess {
    this.#canaries ??= new ClientAccess(`canary:${this.key}`, this.#rules, this.#derived, 'canary');
    return this.#canaries;
  }

  allows(type: TypeUrl, name: string): boolean {
    if (this.#rules === undefined) return true;
    for (const { types, names, allow } of this.#rules) {
      if ((types?.has(type) ?? true) && (names?.matches(name) ?? true)) return allow;
    }
    return false;
  }

  /** All its names must be allowed, because the client would get all of them. */
  admits(
    { type, name, aliases, constraints }: Pick<Variant, 'type' | 'name' | 'aliases' | 'constraints'>,
    parameters: Parameters,
  ): boolean {
    if (!this.allows(type, name) || !aliases.every((alias) => this.allows(type, alias))) return false;
    const trusted = this.#derived?.enforce(parameters, authorityOf(name)) ?? parameters;
    return trusted === parameters || constraints.matches(trusted);
  }

  deniesEverything(type: TypeUrl | undefined): boolean {
    if (this.#rules === undefined) return false;
    if (type !== undefined) return this.#deniesAllOf(type);
    const allowing = this.#rules.filter(({ allow }) => allow);
    const named = new Set(allowing.flatMap(({ types }) => [...(types ?? [])]));
    if (named.values().some((one) => !this.#deniesAllOf(one))) return false;
    // For types that no such rule names, the rules for every type decide.
    return !allowing.some(({ types }) => types === undefined) || this.#deniesAllOf(undefined);
  }

  /** Undefined: of a type that no rule names. */
  #deniesAllOf(type: TypeUrl | undefined): boolean {
    const denied: NamePatterns[] = [];
    for (const { types, names, allow } of this.#rules ?? []) {
      if (types !== undefined && (type === undefined || !types.has(type))) continue;
      if (names === undefined) return !allow;
      if (!allow) denied.push(names);
      else if (names.list.some((pattern) => !denied.some((earlier) => earlier.covers(pattern)))) return false;
    }
    return true;
  }
}

/** Without rules: everyone may see everything. */
export const ALLOW_ALL = new ClientAccess('', undefined);
