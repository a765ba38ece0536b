import fc from 'fast-check';
import {
  type Condition,
  type Identity,
  type ParameterRule,
  type Policy,
  type Resource,
  type Rule,
  type Selector,
  type Type,
  types,
} from './policy.ts';
import { keys, values, xdstpName } from './reference.ts';

export type Event =
  | { readonly kind: 'subscribe'; readonly client: number; readonly add: Wanted; readonly drop: number }
  | { readonly kind: 'put'; readonly resource: Resource }
  | { readonly kind: 'remove'; readonly at: number }
  | { readonly kind: 'error'; readonly type: Type; readonly name: string; readonly code: 5 | 14 }
  | { readonly kind: 'reload'; readonly policy: Policy }
  | { readonly kind: 'node'; readonly client: number; readonly metadata: Identity['metadata'] }
  | { readonly kind: 'stop' | 'read on' | 'reject' | 'reconnect'; readonly client: number };

interface Wanted {
  readonly type: Type;
  readonly selectors: readonly Selector[];
}

export interface ClientPlan {
  readonly identity: Identity;
  readonly protocol: 'sotw' | 'delta';
  /** ADS, or a service of its own for each type. */
  readonly ads: boolean;
  /** The client feature xds.config.resource-in-sotw. */
  readonly wrapped: boolean;
}

export interface Case {
  readonly policy: Policy;
  readonly clients: readonly ClientPlan[];
  readonly resources: readonly Resource[];
  readonly events: readonly Event[];
  readonly withConstraints: boolean;
  readonly contentVersions: boolean;
}

const plainNames = ['a/1', 'a/2', 'b/1', 'ab'];
const authorities = ['x', 'y'];
const paths = ['a/1', 'b%2F1'];
const queries = ['', '?k=1&l=2'];

/** In the spelling of a control plane. */
const resourceNames = (type: Type): readonly string[] => [
  ...plainNames,
  ...authorities.flatMap((authority) =>
    paths.flatMap((path) => queries.map((query) => xdstpName(type, authority, path, query))),
  ),
];

/** The names that resources may have, in one spelling. */
export const allNames: ReadonlyMap<Type, readonly string[]> = new Map(
  types.map((type) => [type, resourceNames(type)]),
);

/** The same name, written differently. */
const respellings: readonly ((name: string) => string)[] = [
  (name) => name,
  (name) => name,
  (name) => (name.startsWith('xdstp:') ? name.replace('/a/', '/%61/').replace('?k=1', '?%6b=1') : name),
  (name) => name.replace('?k=1&l=2', '?l=2&k=1'),
  (name) => name.replace('b%2F1', '%62%2f1'),
  (name) => (name.startsWith('xdstp://x') ? name.replace('xdstp://x', 'xdstp://%78') : name),
];

const respelled = (name: string): fc.Arbitrary<string> =>
  fc.constantFrom(...respellings).map((respell) => respell(name));

const nameOf = (type: Type): fc.Arbitrary<string> =>
  fc.oneof(
    { arbitrary: fc.constantFrom(...plainNames), weight: 2 },
    { arbitrary: fc.constantFrom(...resourceNames(type)).chain(respelled), weight: 1 },
  );

/** Mostly clusters: what has the same type can meet. */
const typed = fc.constantFrom<Type>('cds', 'cds', ...types);

const conditions: fc.Arbitrary<Condition> = fc.letrec<{ one: Condition }>((tie) => ({
  one: fc.oneof(
    { maxDepth: 2 },
    fc.record({ key: fc.constantFrom(...keys), value: fc.constantFrom(...values) }),
    fc.record({ exists: fc.constantFrom(...keys) }),
    fc.record({ not: tie('one') }),
    fc.record({ all: fc.array(tie('one'), { maxLength: 2 }) }),
    fc.record({ any: fc.array(tie('one'), { maxLength: 2 }) }),
  ),
})).one;

const resources: fc.Arbitrary<Resource> = typed.chain((type) =>
  fc.record({
    type: fc.constant(type),
    name: nameOf(type),
    aliases: fc.oneof(
      { arbitrary: fc.constant([]), weight: 2 },
      { arbitrary: fc.uniqueArray(nameOf(type), { maxLength: 2 }), weight: 1 },
    ),
    condition: fc.option(conditions, { nil: undefined }),
    collected: fc.boolean(),
  }),
);

/** Cut anywhere: what cannot be a pattern must be refused. */
const prefixes: fc.Arbitrary<string> = typed
  .chain(nameOf)
  .chain((name) => fc.nat({ max: name.length }).map((length) => `${name.slice(0, length)}*`));

const rules: fc.Arbitrary<Rule> = fc.record(
  {
    principals: fc.subarray(['spiffe://t/a', 'spiffe://t/*', 'spiffe://*/b', 'dns:web.*', 'dns:WEB.b'], {
      minLength: 1,
    }),
    types: fc.subarray([...types], { minLength: 1 }),
    names: fc.array(fc.oneof(typed.chain(nameOf), prefixes, fc.constantFrom('a/*', 'b/*', '*', 'xdstp:*')), {
      minLength: 1,
      maxLength: 3,
    }),
    allow: fc.boolean(),
  },
  { requiredKeys: ['allow'] },
);

const sources: readonly Pick<ParameterRule, 'from' | 'pattern'>[] = [
  { from: 'peer.uri_san', pattern: '/([a-z])$' },
  { from: 'peer.dns_san', pattern: '[.](.)$' },
  { from: 'peer.uri_san' },
];

/** The rules of one key: all trusted, or none. */
const parameterRules = (key: string): fc.Arbitrary<readonly ParameterRule[]> =>
  fc.boolean().chain((trusted) =>
    fc.array(
      fc
        .record({
          source: fc.constantFrom<Pick<ParameterRule, 'from' | 'pattern'>>(
            ...sources,
            ...(trusted ? [] : [{ from: `node.metadata.${key}` }, { from: 'node.id' }]),
          ),
          authorities: fc.oneof(fc.constant([]), fc.subarray([...authorities], { minLength: 1 })),
          fallback: fc.option(fc.constantFrom(...values), { nil: undefined }),
          allowed: fc.oneof(
            { arbitrary: fc.constant(undefined), weight: 3 },
            { arbitrary: fc.subarray([...values], { minLength: 1 }), weight: 1 },
          ),
        })
        .map(({ source, authorities: list, fallback, allowed }) => ({
          key,
          ...source,
          authorities: list,
          ...(fallback === undefined || allowed?.includes(fallback) === false ? {} : { default: fallback }),
          ...(allowed === undefined ? {} : { values: allowed }),
          trusted,
        })),
      { maxLength: 2 },
    ),
  );

const policies: fc.Arbitrary<Policy> = fc.record({
  rules: fc
    .tuple(fc.array(rules, { maxLength: 4 }), fc.constantFrom<readonly Rule[]>([], [{ allow: true }]))
    .map((lists) => lists.flat()),
  parameters: fc.tuple(...keys.map(parameterRules)).map((lists) => lists.flat()),
});

const metadata = fc.record(
  { tenant: fc.constantFrom(...values), env: fc.constantFrom(...values) },
  { requiredKeys: [] },
);

const identities: fc.Arbitrary<Identity> = fc.record({
  uris: fc.subarray(['spiffe://t/a', 'spiffe://t/b']),
  dns: fc.subarray(['web.a', 'WEB.b']),
  id: fc.constantFrom('a', 'b'),
  metadata,
});

const selectors = (type: Type): fc.Arbitrary<Selector> =>
  fc.record(
    {
      name: fc.oneof(
        { arbitrary: nameOf(type), weight: 4 },
        { arbitrary: fc.constant('*'), weight: 1 },
        {
          arbitrary: fc
            .tuple(
              fc.constantFrom(...authorities),
              fc.constantFrom('a/*', '%61/*', 'a/%2A', '*'),
              fc.constantFrom(...queries),
            )
            .map((parts) => xdstpName(type, ...parts)),
          weight: 1,
        },
      ),
      parameters: fc.record(
        { tenant: fc.constantFrom(...values), env: fc.constantFrom(...values) },
        { requiredKeys: [] },
      ),
    },
    { requiredKeys: ['name'] },
  );

const mostClients = 3;
const client = fc.nat({ max: mostClients - 1 });

const events: fc.Arbitrary<Event> = fc.oneof(
  {
    arbitrary: fc.record({
      kind: fc.constant('subscribe' as const),
      client,
      add: typed.chain((type) =>
        fc.record({
          type: fc.constant(type),
          selectors: fc.array(selectors(type), { maxLength: 3, size: 'max' }),
        }),
      ),
      drop: fc.nat({ max: 3 }),
    }),
    weight: 8,
  },
  { arbitrary: fc.record({ kind: fc.constant('put' as const), resource: resources }), weight: 4 },
  { arbitrary: fc.record({ kind: fc.constant('remove' as const), at: fc.nat({ max: 7 }) }), weight: 1 },
  {
    arbitrary: typed.chain((type) =>
      fc.record({
        kind: fc.constant('error' as const),
        type: fc.constant(type),
        name: nameOf(type),
        code: fc.constantFrom(5 as const, 14 as const),
      }),
    ),
    weight: 2,
  },
  { arbitrary: fc.record({ kind: fc.constant('reload' as const), policy: policies }), weight: 2 },
  { arbitrary: fc.record({ kind: fc.constant('node' as const), client, metadata }), weight: 1 },
  {
    arbitrary: fc.record({
      kind: fc.constantFrom('stop' as const, 'read on' as const, 'reject' as const, 'reconnect' as const),
      client,
    }),
    weight: 3,
  },
);

export const cases: fc.Arbitrary<Case> = fc.record({
  policy: policies,
  clients: fc.array(
    fc.record({
      identity: identities,
      protocol: fc.constantFrom('sotw' as const, 'delta' as const),
      ads: fc.boolean(),
      wrapped: fc.boolean(),
    }),
    { minLength: 1, maxLength: mostClients },
  ),
  resources: fc.array(resources, { minLength: 3, maxLength: 10, size: 'max' }),
  events: fc.array(events, { minLength: 6, maxLength: 16, size: 'max' }),
  withConstraints: fc.boolean(),
  contentVersions: fc.boolean(),
});
