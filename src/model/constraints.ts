import type { ConstraintsKey } from './brand.ts';
import { decodeExpression, encodeStamp } from './constraints-wire.ts';
import { canonicalKey, compile, type Expression, type RequiredPair, requiredPair } from './expression.ts';
import type { Parameters } from './parameters.ts';
import { ok, type Result } from './result.ts';

export { explainMatch, formatConstraints } from './constraints-text.ts';

/**
 * The TP2 constraints of one variant: the key that identifies it, the bytes that are forwarded, and the test that
 * matches parameters (protocol §5). Immutable.
 */
export interface Constraints {
  /** Canonical form; `''` for none. */
  readonly key: ConstraintsKey;
  /** The DynamicParameterConstraints as it was received, for forwarding; an own copy; empty for none. */
  readonly bytes: Uint8Array;
  readonly expression: Expression;
  /** A parameter that every matching set has, for indexing; undefined if there is none. */
  readonly required: RequiredPair | undefined;
  matches(parameters: Parameters): boolean;
}

function constraints(expression: Expression, bytes: Uint8Array): Constraints {
  return {
    key: canonicalKey(expression, bytes),
    bytes,
    expression,
    required: requiredPair(expression),
    matches: compile(expression),
  };
}

/** No constraints: matches every set of parameters. */
export const UNCONSTRAINED: Constraints = constraints({ kind: 'all' }, new Uint8Array(0));

const interned = new Map<string, WeakRef<Constraints>>();
const forget = new FinalizationRegistry<string>((bytes) => {
  if (interned.get(bytes)?.deref() === undefined) interned.delete(bytes);
});

/**
 * Reads an encoded DynamicParameterConstraints, which may be a view into a larger buffer. Equal bytes give the same
 * object, as a few constraints serve many resources. The error says what breaks the transport contract and deserves
 * a NACK: malformed bytes, a SingleConstraint that constrains nothing, or more than `maxDepth` expressions inside
 * each other.
 */
export function parseConstraints(bytes: Uint8Array, maxDepth: number): Result<Constraints> {
  if (bytes.length === 0) return ok(UNCONSTRAINED);
  const id = `${maxDepth} ${Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('latin1')}`;
  const known = interned.get(id)?.deref();
  if (known !== undefined) return ok(known);
  const expression = decodeExpression(bytes, maxDepth);
  if (!expression.ok) return expression;
  // Uint8Array.from, because a Buffer's own slice would be a view that pins the whole response.
  const created = constraints(expression.value, Uint8Array.from(bytes));
  interned.set(id, new WeakRef(created));
  forget.register(created, id);
  return ok(created);
}

/**
 * What a session of one parameter set stamps on what it receives (protocol §5): each of these keys equal to the
 * session's value, or absent as it is in the session. Order and duplicates of the keys do not matter.
 */
export function stampConstraints(keys: readonly string[], parameters: Parameters): Constraints {
  if (keys.length === 0) return UNCONSTRAINED;
  const pairs = [...new Set(keys)].toSorted().map((key) => [key, parameters.entries.get(key)] as const);
  const of = pairs.map(
    ([key, value]): Expression =>
      value === undefined ? { kind: 'not', of: { kind: 'exists', key } } : { kind: 'value', key, value },
  );
  return constraints({ kind: 'and', of }, encodeStamp(pairs));
}
