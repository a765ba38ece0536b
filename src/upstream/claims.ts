import type { TypeUrl } from '../model/brand.ts';
import { UNCONSTRAINED } from '../model/constraints.ts';
import { type Holder, type Interest, type Transaction, transaction } from '../model/transaction.ts';
import { authorityOf } from '../model/xdstp.ts';
import { Code } from '../wire/grpc-status.ts';
import { encodeStatus } from '../wire/responses.ts';

/** What of the configuration decides whether an upstream serves a name. An empty list is the same as none. */
export interface ClaimOptions {
  /** Claims the xdstp names of these authorities, of every type. */
  readonly authorities: readonly string[];
  /** Claims these types; with `names`, only what both match. */
  readonly types: readonly TypeUrl[];
  /** Claims these names: exact ones, or `prefix*`. */
  readonly names: readonly string[];
}

export const CLAIMS_EVERYTHING: ClaimOptions = { authorities: [], types: [], names: [] };

/**
 * Whether a name, a glob or `*` of a type is served by the upstream that has these options (docs/configuration.md, upstreams).
 * Without any claim it serves everything. `*` belongs to who may serve any name: names claim it only by the pattern
 * `*`, authorities never (protocol §6: it has none).
 */
export function claims(options: ClaimOptions, type: TypeUrl, selector: string): boolean {
  const { authorities, types, names } = options;
  if (authorities.length > 0) {
    const authority = authorityOf(selector);
    if (authority !== undefined && authorities.includes(authority)) return true;
    if (types.length === 0 && names.length === 0) return false;
  }
  return (types.length === 0 || types.includes(type)) && (names.length === 0 || named(names, selector));
}

function named(patterns: readonly string[], selector: string): boolean {
  return patterns.some((pattern) => {
    if (pattern === '*') return true;
    if (selector === '*') return false;
    return pattern.endsWith('*') ? selector.startsWith(pattern.slice(0, -1)) : selector === pattern;
  });
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
