import { compile, type Expression } from './expression.ts';
import type { Parameters } from './parameters.ts';
import { assertNever } from './result.ts';

/** How tightly a kind binds: an operand that binds less than its operator needs parentheses. */
const binding = { or: 1, and: 2, not: 3, atom: 4 } as const;

/** `env == "prod" and not exists(version)`: for people; two expressions may read the same. */
export function formatConstraints(expression: Expression): string {
  switch (expression.kind) {
    case 'all':
      return '(all)';
    case 'never':
      return '(never: unknown kind of constraint)';
    case 'value':
      return `${formatKey(expression.key)} == ${JSON.stringify(expression.value)}`;
    case 'exists':
      return `exists(${formatKey(expression.key)})`;
    case 'not':
      return `not ${operand(expression.of, binding.not)}`;
    case 'and':
    case 'or':
      return expression.of.length === 0
        ? `${expression.kind}()`
        : expression.of
            .map((child) => operand(child, expression.of.length === 1 ? 0 : binding[expression.kind]))
            .join(` ${expression.kind} `);
    default:
      return assertNever(expression);
  }
}

function operand(expression: Expression, operator: number): string {
  const text = formatConstraints(expression);
  return bindingOf(expression) < operator ? `(${text})` : text;
}

function bindingOf(expression: Expression): number {
  switch (expression.kind) {
    case 'and':
    case 'or': {
      const [only] = expression.of;
      if (only === undefined) return binding.atom;
      return expression.of.length === 1 ? bindingOf(only) : binding[expression.kind];
    }
    case 'not':
      return binding.not;
    case 'all':
    case 'never':
    case 'value':
    case 'exists':
      return binding.atom;
    default:
      return assertNever(expression);
  }
}

const reserved = new Set(['and', 'or', 'not', 'exists']);

function formatKey(key: string): string {
  return /^[A-Za-z_][\w.-]*$/.test(key) && !reserved.has(key) ? key : JSON.stringify(key);
}

/** Whether it matches and why: the first part that fails, for `explain`. */
interface MatchReason {
  readonly matches: boolean;
  readonly reason: string;
}

export function explainMatch(expression: Expression, parameters: Parameters): MatchReason {
  if (expression.kind === 'all') return { matches: true, reason: 'no constraints' };
  if (compile(expression)(parameters)) return { matches: true, reason: holds(expression) };
  return { matches: false, reason: explainFailure(expression, parameters) };
}

const holds = (expression: Expression): string => `${formatConstraints(expression)} holds`;

const fails = (expression: Expression, why: string): string =>
  `${formatConstraints(expression)} fails: ${why}`;

/** For an expression that does not match. */
function explainFailure(expression: Expression, parameters: Parameters): string {
  switch (expression.kind) {
    case 'all':
      return holds(expression);
    case 'never':
      return 'it has an unknown kind of constraint, so it never matches';
    case 'value':
    case 'exists':
      return fails(expression, describe(expression.key, parameters));
    case 'not':
      return explainMatched(expression, expression.of, parameters);
    case 'and': {
      const failing = expression.of.find((child) => !compile(child)(parameters));
      return failing === undefined ? holds(expression) : explainFailure(failing, parameters);
    }
    case 'or': {
      if (expression.of.length === 0) return fails(expression, 'none of nothing holds');
      return expression.of.map((child) => explainFailure(child, parameters)).join('; ');
    }
    default:
      return assertNever(expression);
  }
}

/** NOT fails because what is in it matches. */
function explainMatched(whole: Expression, inner: Expression, parameters: Parameters): string {
  switch (inner.kind) {
    case 'value':
    case 'exists':
      return fails(whole, describe(inner.key, parameters));
    case 'not':
      return explainFailure(inner.of, parameters);
    case 'all':
    case 'never':
    case 'and':
    case 'or':
      return fails(whole, holds(inner));
    default:
      return assertNever(inner);
  }
}

function describe(key: string, parameters: Parameters): string {
  const value = parameters.entries.get(key);
  return value === undefined
    ? `${formatKey(key)} is not given`
    : `${formatKey(key)} is ${JSON.stringify(value)}`;
}
