import { resourceName, type TypeUrl } from '../model/brand.ts';
import { UNCONSTRAINED } from '../model/constraints.ts';
import { getOrMake } from '../model/maps.ts';
import { type Holder, type Interest, type Transaction, transaction, WILDCARD } from '../model/transaction.ts';
import { authorityOf, parentGlob } from '../model/xdstp.ts';
import { type NamePattern, NamePatterns } from '../security/pattern.ts';
import { Code } from '../wire/grpc-status.ts';
import { encodeStatus } from '../wire/responses.ts';
import { hasService } from './ads/quarantine.ts';

/** What an upstream serves, as configured. An empty list is the same as none. */
export interface Claims {
  /** Claims the xdstp names of these authorities, of every type. */
  readonly authorities: readonly string[];
  /** Claims these types; with `names`, only what both match. */
  readonly types: readonly TypeUrl[];
  /** Claims these names; with an xdstp glob, its members too. */
  readonly names: readonly NamePattern[];
  /** A control plane without ADS: whatever is claimed, only types with a service for this protocol. Undefined: all. */
  readonly services?: 'DELTA' | 'SOTW';
}

export const CLAIMS_EVERYTHING: Claims = { authorities: [], types: [], names: [] };

/**
 * Whether a name, a glob or `*` of a type is served by the upstream that claims this (docs/configuration.md, upstreams).
 * Without any claim it serves everything. `*` belongs to who may serve any name: names claim it only by the pattern
 * `*`, authorities never (protocol §6: it has none).
 */
export function claims(
  { authorities, types, names, services }: Claims,
  type: TypeUrl,
  selector: string,
): boolean {
  if (services !== undefined && !hasService(type, services)) return false;
  if (authorities.length > 0) {
    const authority = authorityOf(selector);
    if (authority !== undefined && authorities.includes(authority)) return true;
    if (types.length === 0 && names.length === 0) return false;
  }
  return (types.length === 0 || types.includes(type)) && (names.length === 0 || named(names, selector));
}

/** The first upstream that claims a name serves it. */
export const claimant = <Upstream extends { readonly claims: Claims }>(
  upstreams: readonly Upstream[],
  type: TypeUrl,
  selector: string,
): Upstream | undefined => upstreams.find((one) => claims(one.claims, type, selector));

/** Asked for each name of each transaction where there are several upstreams. */
const compiled = new WeakMap<readonly NamePattern[], NamePatterns>();

function named(list: readonly NamePattern[], selector: string): boolean {
  const patterns = getOrMake(compiled, list, () => new NamePatterns(list));
  if (selector === WILDCARD) return patterns.covers({ text: '', prefix: true });
  const glob = parentGlob(resourceName(selector));
  return patterns.matches(selector) || (glob !== undefined && patterns.matches(glob));
}

const NO_HOLDER: Holder = { key: 'nobody', upstream: '', role: 'named' };

/** An authority, type or name that no upstream serves: an error, not silence (protocol §6). */
export function unclaimed(interest: Interest): Transaction {
  const { type, selector } = interest;
  const message =
    selector === ''
      ? 'a resource name may not be empty'
      : `no upstream is configured for ${selector} of ${type}`;
  const fault = {
    name: selector,
    constraints: UNCONSTRAINED,
    code: Code.NOT_FOUND,
    message,
    status: encodeStatus(Code.NOT_FOUND, message),
  };
  return transaction({ holder: NO_HOLDER, type, resourceErrors: [fault], resolved: [interest] });
}
