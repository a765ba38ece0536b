import {
  type Constraints,
  maxStampedDepth,
  parseConstraints,
  stampConstraints,
  UNCONSTRAINED,
} from '../../model/constraints.ts';
import { internParameters, NO_PARAMETERS, type Parameters } from '../../model/parameters.ts';
import { ok, type Result } from '../../model/result.ts';
import { bytes, encode, message } from '../../protobuf/field-writer.ts';

/** What a session makes of the constraints of what it receives. */
export type Stamp = (received: Constraints) => Result<Constraints>;

/** For each stamp: the received constraints of every stamped one, where they differ. */
const originals = new WeakMap<Stamp, WeakMap<Constraints, Constraints>>();

/** The constraints that upstream sent, before the stamp was added. */
export function originalOf(stamp: Stamp, stamped: Constraints): Constraints {
  return originals.get(stamp)?.get(stamped) ?? stamped;
}

/** NATIVE, and PER_PARAMETERS without rules: as received. */
export const unstamped: Stamp = ok;

/** The parameters that a session of PER_PARAMETERS is opened for: those that the rules know of. */
export function restrict(keys: readonly string[], parameters: Parameters): Parameters {
  const entries = keys.flatMap((key) => {
    const value = parameters.entries.get(key);
    return value === undefined ? [] : [[key, value] as const];
  });
  return internParameters(entries);
}

/** The parameters of the session that has these. */
export const sessionParameters = (
  variants: 'NATIVE' | 'PER_PARAMETERS',
  rules: readonly { readonly key: string }[],
  parameters: Parameters,
): Parameters =>
  variants === 'NATIVE'
    ? NO_PARAMETERS
    : restrict(
        rules.map(({ key }) => key),
        parameters,
      );

/**
 * The stamp of a session of one parameter set (protocol §5). A control plane that decides by node may send constraints
 * of its own nevertheless (another relay, a TP2 server): both must hold then.
 */
export function stampFor(keys: readonly string[], parameters: Parameters): Stamp {
  if (keys.length === 0) return unstamped;
  const own = stampConstraints(keys, parameters);
  const made = new WeakMap([[own, UNCONSTRAINED]]);
  const stamp: Stamp = (received) => {
    if (received.key === UNCONSTRAINED.key) return ok(own);
    // DynamicParameterConstraints{and_constraints{constraints: [own, received]}}.
    const both = encode([message(3, [bytes(1, own.bytes), bytes(1, received.bytes)])]);
    // Each part may be deeper than the limit then, which has let pass what was received.
    const combined = parseConstraints(both, maxStampedDepth);
    if (combined.ok) made.set(combined.value, received);
    return combined;
  };
  originals.set(stamp, made);
  return stamp;
}
