import {
  type Condition,
  type Identity,
  messages,
  type ParameterRule,
  type Policy,
  type Resource,
  type Rule,
  type Selector,
  type Type,
} from './policy.ts';

// What a client may see, by the contract and the protocol. Nothing of `src/` is used here, or looked at: where the two
// disagree, one of them is wrong.

type Parameters = ReadonlyMap<string, string>;

interface Uri {
  readonly authority: string;
  /** Decoded; the type first. */
  readonly path: readonly string[];
  readonly parameters: readonly (readonly [string, string])[];
}

/** RFC 3986, as TP1 uses it. Undefined: no xdstp name at all; null: not a valid one. */
function uriOf(name: string): Uri | undefined | null {
  if (!name.startsWith('xdstp:')) return undefined;
  if (!name.startsWith('xdstp://')) return null;
  const [before = ''] = name.split('#', 1);
  const question = before.indexOf('?');
  const hierarchy = before.slice('xdstp://'.length, question < 0 ? undefined : question);
  const query = question < 0 ? '' : before.slice(question + 1);
  const [authority, ...path] = hierarchy.split('/').map(decode);
  if (authority === undefined || path.length < 2 || path.slice(1).join('') === '') return null;
  if (authority === null || path.includes(null)) return null;
  const parameters: [string, string][] = [];
  for (const pair of query.split('&').filter((one) => one !== '')) {
    const [key = '', ...value] = pair.split('=');
    const decoded = [decode(key), decode(value.join('='))] as const;
    if (decoded[0] === null || decoded[1] === null || decoded[0] === '') return null;
    parameters.push([decoded[0], decoded[1]]);
  }
  if (new Set(parameters.map(([key]) => key)).size < parameters.length) return null;
  parameters.sort(([a], [b]) => (a < b ? -1 : 1));
  return { authority, path: path.filter((segment) => segment !== null), parameters };
}

function decode(text: string): string | null {
  try {
    return decodeURIComponent(text);
  } catch {
    return null;
  }
}

/** The same text for the same name, whatever its spelling. */
export function identityOf(name: string): string {
  const uri = uriOf(name);
  return uri ? JSON.stringify([uri.authority, uri.path, uri.parameters]) : name;
}

function authorityOf(name: string): string | undefined {
  return uriOf(name)?.authority;
}

const isGlob = (name: string): boolean => {
  const uri = uriOf(name);
  return uri ? uri.path.at(-1) === '*' : false;
};

export const isCollection = (name: string): boolean => name === '*' || isGlob(name);

/** `xdstp://…/*`: one level, parameters exactly equal. */
function globShows(glob: string, name: string): boolean {
  const [of, one] = [uriOf(glob), uriOf(name)];
  if (!of || !one || of.authority !== one.authority || of.path.length !== one.path.length) return false;
  if (JSON.stringify(of.parameters) !== JSON.stringify(one.parameters)) return false;
  const last = one.path.at(-1);
  return last !== '' && last !== '*' && of.path.slice(0, -1).every((part, at) => part === one.path[at]);
}

/** Characters of a name with its separators told from what is only spelled like them. */
function symbols(start: string): readonly string[] | null {
  const found: string[] = ['<xdstp>'];
  for (const [index, part] of start.slice('xdstp://'.length).split('/').entries()) {
    const text = decode(part);
    if (text === null) return null;
    if (index > 0) found.push('</>');
    found.push(...Array.from(text));
  }
  return found;
}

/** Whether a rule may have this name: else validation must refuse it. */
export function isPattern(pattern: string): boolean {
  const prefix = pattern.endsWith('*');
  const text = prefix ? pattern.slice(0, -1) : pattern;
  if (!text.startsWith('xdstp:')) return true;
  if (!prefix) return !text.includes('#') && uriOf(text) !== null;
  if ('xdstp://'.startsWith(text)) return true;
  return text.startsWith('xdstp://') && !/[?#]/.test(text) && symbols(text) !== null;
}

function patternMatches(pattern: string, name: string): boolean {
  if (!pattern.endsWith('*')) return identityOf(pattern) === identityOf(name);
  const start = pattern.slice(0, -1);
  if (!start.startsWith('xdstp://')) return name.startsWith(start);
  const uri = uriOf(name);
  if (!uri) return false;
  const all = [
    '<xdstp>',
    ...Array.from(uri.authority),
    ...uri.path.flatMap((part) => ['</>', ...Array.from(part)]),
  ];
  return symbols(start)?.every((symbol, at) => symbol === all[at]) === true;
}

/** `*` stands for any characters. */
function principalMatches(principal: string, { uris, dns }: Identity): boolean {
  const isDns = principal.startsWith('dns:');
  const text = isDns ? principal.slice('dns:'.length).toLowerCase() : principal;
  const escaped = text.split('*').map((part) => part.replaceAll(/[^\w]/g, (one) => `\\${one}`));
  const expression = new RegExp(`^${escaped.join('.*')}$`, 's');
  return isDns
    ? dns.some((name) => expression.test(name.toLowerCase()))
    : uris.some((uri) => expression.test(uri));
}

export class Reference {
  readonly #policy: Policy;
  readonly #client: Identity;

  constructor(policy: Policy, client: Identity) {
    this.#policy = policy;
    this.#client = client;
  }

  /** The first rule that matches decides; without rules everything is allowed. */
  allows(type: Type, name: string): boolean {
    const { rules } = this.#policy;
    return rules.length === 0 || rules.find((rule) => this.#applies(rule, type, name))?.allow === true;
  }

  #applies({ principals, types, names }: Rule, type: Type, name: string): boolean {
    return (
      (principals?.some((one) => principalMatches(one, this.#client)) ?? true) &&
      (types?.includes(type) ?? true) &&
      (names?.some((pattern) => patternMatches(pattern, name)) ?? true)
    );
  }

  /** Of the names that there may be. */
  allowsNone(type: Type, names: readonly string[]): boolean {
    return !names.some((name) => this.allows(type, name));
  }

  /** By all its names. */
  allowsResource({ type, name, aliases }: Resource): boolean {
    return [name, ...aliases].every((one) => this.allows(type, one));
  }

  /** Whether there are parameters with which the client could get it: those that it may choose are any. */
  mayHave(resource: Resource): boolean {
    if (!this.allowsResource(resource)) return false;
    const trusted = this.#trusted(authorityOf(resource.name));
    const choices = parameterSets.map((free) => new Map([...free].filter(([key]) => !trusted.has(key))));
    return choices.some((free) => {
      for (const [key, value] of trusted) if (value !== undefined) free.set(key, value);
      return holds(resource.condition, free);
    });
  }

  /** Whether what the client subscribes to shows this resource. */
  shows(selector: Selector, resource: Resource): boolean {
    if (!this.allowsResource(resource) || !concerns(selector, resource)) return false;
    // The name that is asked for is one of the resource's, so it is allowed, too.
    const asked = this.#parameters(selector);
    const own = new Map(asked);
    for (const [key, value] of this.#trusted(authorityOf(resource.name))) {
      if (value === undefined) own.delete(key);
      else own.set(key, value);
    }
    return holds(resource.condition, asked) && holds(resource.condition, own);
  }

  /** Whether what a client has got is still subject to a subscription, whatever the rules say of it now. */
  covers(selector: Selector, resource: Resource): boolean {
    if (!concerns(selector, resource)) return false;
    return selector.parameters === undefined || holds(resource.condition, this.#parameters(selector));
  }

  /** Whether a variant is for the parameters that a selector asks with. */
  matches(selector: Selector, { condition }: Resource): boolean {
    return holds(condition, this.#parameters(selector));
  }

  /** Equal for selectors that ask with the same parameters. */
  asks(selector: Selector): string {
    return JSON.stringify([...this.#parameters(selector)].toSorted(([a], [b]) => (a < b ? -1 : 1)));
  }

  /** What a selector asks with: a plain name with what the rules derive, a locator with its own. */
  #parameters({ name, parameters }: Selector): Parameters {
    const authority = name === '*' ? undefined : authorityOf(name);
    if (parameters === undefined) return this.#derived(authority);
    const own = new Map(Object.entries(parameters));
    for (const [key, value] of own) {
      const rules = this.#rulesFor(authority).filter((rule) => rule.key === key);
      if (rules.length > 0 && !rules.some((rule) => lists(rule, value))) own.delete(key);
    }
    for (const [key, value] of this.#trusted(authority)) {
      if (value === undefined) own.delete(key);
      else own.set(key, value);
    }
    return own;
  }

  #derived(authority: string | undefined): Parameters {
    const found = new Map<string, string>();
    for (const rule of this.#rulesFor(authority)) {
      const value = this.#valueOf(rule);
      if (value !== undefined && !found.has(rule.key)) found.set(rule.key, value);
    }
    return found;
  }

  /** Of the keys that are never the client's word; undefined: absent. */
  #trusted(authority: string | undefined): ReadonlyMap<string, string | undefined> {
    const keys = this.#rulesFor(authority)
      .filter(({ trusted }) => trusted)
      .map(({ key }) => key);
    const derived = this.#derived(authority);
    return new Map(keys.map((key) => [key, derived.get(key)]));
  }

  #rulesFor(authority: string | undefined): readonly ParameterRule[] {
    return this.#policy.parameters.filter(
      ({ authorities }) =>
        authorities.length === 0 || (authority !== undefined && authorities.includes(authority)),
    );
  }

  #valueOf(rule: ParameterRule): string | undefined {
    const { from, pattern = '.*', default: fallback } = rule;
    for (const text of this.#texts(from)) {
      const match = new RegExp(pattern).exec(text);
      const value = match?.[1] ?? match?.[0];
      if (value !== undefined && lists(rule, value)) return value;
    }
    return fallback;
  }

  #texts(from: string): readonly string[] {
    const { uris, dns, id, metadata } = this.#client;
    if (from === 'peer.uri_san') return uris;
    if (from === 'peer.dns_san') return dns;
    const text = from === 'node.id' ? id : metadata[from.replace('node.metadata.', '')];
    return text === undefined || (from === 'node.id' && text === '') ? [] : [text];
  }
}

/** `values`: what is allowed, anything if it is left out. */
const lists = ({ values: listed }: ParameterRule, value: string): boolean => listed?.includes(value) ?? true;

/** By its name, an alias, or as a member. */
export function concerns({ name }: Selector, resource: Resource): boolean {
  if (name === '*') return resource.collected;
  if (isGlob(name)) return globShows(name, resource.name);
  return [resource.name, ...resource.aliases].some((one) => identityOf(one) === identityOf(name));
}

/** TP2's table (protocol §5). */
export function holds(condition: Condition | undefined, given: Parameters): boolean {
  if (condition === undefined) return true;
  if ('key' in condition) return given.get(condition.key) === condition.value;
  if ('exists' in condition) return given.has(condition.exists);
  if ('not' in condition) return !holds(condition.not, given);
  if ('all' in condition) return condition.all.every((one) => holds(one, given));
  return condition.any.some((one) => holds(one, given));
}

export const keys = ['tenant', 'env'] as const;
export const values = ['a', 'b'] as const;

/** Every parameter set that can make a difference; `z` is a value that no condition names. */
const parameterSets: readonly Parameters[] = [undefined, ...values, 'z'].flatMap((tenant) =>
  [undefined, ...values, 'z'].map((env) => {
    const given = new Map<string, string>();
    if (tenant !== undefined) given.set('tenant', tenant);
    if (env !== undefined) given.set('env', env);
    return given;
  }),
);

/** So that xdstp names are of the type that they are asked for. */
export const xdstpName = (type: Type, authority: string, path: string, query = ''): string =>
  `xdstp://${authority}/${messages[type]}/${path}${query}`;
