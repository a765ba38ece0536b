import { type ConstraintsKey, constraintsKey } from './brand.ts';
import type { Parameters } from './parameters.ts';
import { assertNever } from './result.ts';

/** What a DynamicParameterConstraints says, in the form that everything here works on (protocol §5). */
export type Expression =
  /** No constraint, or an unset oneof: matches all. */
  | { readonly kind: 'all' }
  | { readonly kind: 'value'; readonly key: string; readonly value: string }
  | { readonly kind: 'exists'; readonly key: string }
  | { readonly kind: 'or'; readonly of: readonly Expression[] }
  | { readonly kind: 'and'; readonly of: readonly Expression[] }
  | { readonly kind: 'not'; readonly of: Expression }
  /** Poisoned: there is an unknown kind somewhere in it. Only ever a whole expression, never a part of one. */
  | { readonly kind: 'never' };

type Predicate = (parameters: Parameters) => boolean;

const always: Predicate = () => true;
const never: Predicate = () => false;

/** Closures, built once when constraints arrive: matching does not walk the expression again. */
export function compile(expression: Expression): Predicate {
  switch (expression.kind) {
    case 'all':
      return always;
    case 'never':
      return never;
    case 'value': {
      const { key, value } = expression;
      return (parameters) => parameters.entries.get(key) === value;
    }
    case 'exists': {
      const { key } = expression;
      return (parameters) => parameters.entries.has(key);
    }
    case 'not': {
      const inner = compile(expression.of);
      return (parameters) => !inner(parameters);
    }
    case 'and': {
      const parts = expression.of.map(compile);
      return (parameters) => {
        for (const part of parts) if (!part(parameters)) return false;
        return true;
      };
    }
    case 'or': {
      const parts = expression.of.map(compile);
      return (parameters) => {
        for (const part of parts) if (part(parameters)) return true;
        return false;
      };
    }
    default:
      return assertNever(expression);
  }
}

/**
 * The identity of a variant beside its type and name: JSON of nested arrays, so that no key or value can imitate
 * another expression; children of AND and OR sorted and deduplicated, nothing else simplified (protocol §5). An
 * unset expression has the empty key. `bytes` stand for a poisoned expression, whose meaning is not known.
 */
export function canonicalKey(expression: Expression, bytes: Uint8Array): ConstraintsKey {
  switch (expression.kind) {
    case 'all':
      return constraintsKey('');
    case 'never':
      return constraintsKey(`["?",${JSON.stringify(Buffer.from(bytes).toString('base64'))}]`);
    default:
      return constraintsKey(canonicalText(expression));
  }
}

function canonicalText(expression: Expression): string {
  switch (expression.kind) {
    case 'all':
      return '["*"]';
    case 'never':
      return '["?"]';
    case 'value':
      return JSON.stringify(['=', expression.key, expression.value]);
    case 'exists':
      return JSON.stringify(['exists', expression.key]);
    case 'not':
      return `["not",${canonicalText(expression.of)}]`;
    case 'and':
    case 'or': {
      const children = [...new Set(expression.of.map(canonicalText))].toSorted();
      return `["${expression.kind}"${children.map((child) => `,${child}`).join('')}]`;
    }
    default:
      return assertNever(expression);
  }
}

/** One key with the one value of it that can match at all, or undefined where there is no such pair. */
export interface RequiredPair {
  readonly key: string;
  readonly value: string;
}

/** Of several pairs the lowest, so that equal canonical keys give equal pairs. */
export function requiredPair(expression: Expression): RequiredPair | undefined {
  switch (expression.kind) {
    case 'value':
      return { key: expression.key, value: expression.value };
    case 'and':
      return lowest(expression.of.map(requiredPair));
    case 'or': {
      const [only, ...others] = expression.of;
      return only !== undefined && others.length === 0 ? requiredPair(only) : undefined;
    }
    case 'all':
    case 'exists':
    case 'not':
    case 'never':
      return undefined;
    default:
      return assertNever(expression);
  }
}

function lowest(pairs: readonly (RequiredPair | undefined)[]): RequiredPair | undefined {
  let found: RequiredPair | undefined;
  for (const pair of pairs) {
    if (pair === undefined) continue;
    if (found === undefined || pair.key < found.key || (pair.key === found.key && pair.value < found.value))
      found = pair;
  }
  return found;
}
