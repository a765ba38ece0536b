/** The world of a case as plain data, which can be printed and shrunk. What it means is said in reference.ts. */

export const types = ['cds', 'eds', 'vhds'] as const;
export type Type = (typeof types)[number];

/** What xdstp names carry as their type. */
export const messages: Readonly<Record<Type, string>> = {
  cds: 'envoy.config.cluster.v3.Cluster',
  eds: 'envoy.config.endpoint.v3.ClusterLoadAssignment',
  vhds: 'envoy.config.route.v3.VirtualHost',
};

/** As the contract has them, `xds.authorization.rules[]`. */
export interface Rule {
  readonly principals?: readonly string[];
  readonly types?: readonly Type[];
  readonly names?: readonly string[];
  readonly allow: boolean;
}

/** As the contract has them, `parameters[]`. */
export interface ParameterRule {
  readonly key: string;
  readonly from: string;
  readonly authorities: readonly string[];
  readonly pattern?: string;
  readonly default?: string;
  readonly values?: readonly string[];
  readonly trusted: boolean;
}

export interface Policy {
  readonly rules: readonly Rule[];
  readonly parameters: readonly ParameterRule[];
}

/** TP2's constraints; undefined: none. */
export type Condition =
  | { readonly key: string; readonly value: string }
  | { readonly exists: string }
  | { readonly not: Condition }
  | { readonly all: readonly Condition[] }
  | { readonly any: readonly Condition[] };

/** One variant of a resource, as a control plane has it. Known by type, name and condition. */
export interface Resource {
  readonly type: Type;
  readonly name: string;
  readonly aliases: readonly string[];
  readonly condition: Condition | undefined;
  /** The wildcard has it; else only who names it, or a glob over it, is given it. */
  readonly collected: boolean;
}

/** Who a client is. */
export interface Identity {
  readonly uris: readonly string[];
  readonly dns: readonly string[];
  readonly id: string;
  readonly metadata: Readonly<Record<string, string>>;
}

/** A name, a glob or `*`; with parameters it is a TP2 locator. */
export interface Selector {
  readonly name: string;
  readonly parameters?: Readonly<Record<string, string>>;
}
