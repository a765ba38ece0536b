import { encode, type Field, message, text, utf8 } from '../protobuf/field-writer.ts';
import { asBuffer, bytesTag, MessageReader } from '../protobuf/message-reader.ts';
import { type ConstraintsKey, constraintsKey } from './brand.ts';
import { getOrMake, onceFor } from './maps.ts';
import type { Parameters } from './parameters.ts';
import { assertNever, errorMessage, fail, ok, type Result } from './result.ts';
import { counted, shorten } from './text.ts';

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
  /** Every matching set has one of these parameters, for indexing; undefined: nothing of the kind is known. */
  readonly required: readonly Pair[] | undefined;
  matches(parameters: Parameters): boolean;
}

/** A parameter. */
type Pair = Readonly<Record<'key' | 'value', string>>;

function constraints(expression: Expression, bytes: Uint8Array): Constraints {
  return {
    key: canonicalKey(expression, bytes),
    bytes,
    expression,
    required: requiredPairs(expression),
    matches: compile(expression),
  };
}

const interned = new Map<string, WeakRef<Constraints>>();

/** Of one resource: tens of thousands of values. They are read, compiled and matched in one turn. */
const mostBytes = 2 * 1024 * 1024;
const forget = new FinalizationRegistry<string>((bytes) => {
  if (interned.get(bytes)?.deref() === undefined) interned.delete(bytes);
});

/**
 * Reads an encoded DynamicParameterConstraints, which may be a view into a larger buffer. Equal bytes give the same
 * object, as a few constraints serve many resources. The error says what breaks the transport contract and deserves
 * a NACK: malformed bytes, a SingleConstraint that constrains nothing, more than `maxDepth` expressions inside
 * each other, or more than 2 MiB.
 */
export function parseConstraints(bytes: Uint8Array, maxDepth: number): Result<Constraints> {
  if (bytes.length === 0) return ok(UNCONSTRAINED);
  const id = `${maxDepth} ${asBuffer(bytes).toString('latin1')}`;
  const known = interned.get(id)?.deref();
  if (known !== undefined) return ok(known);
  // What was read before may be longer by its stamp.
  if (bytes.length > mostBytes && maxDepth < maxStampedDepth)
    return fail(`constraints: ${bytes.length} bytes; at most ${mostBytes} are read`);
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

/** How tightly a kind binds: an operand that binds less than its operator needs parentheses. */
const binding = { or: 1, and: 2, not: 3, atom: 4 } as const;

/** `env == "prod" and not exists(version)`: for people; two expressions may read the same. Of what is longer the beginning. */
export const formatConstraints = (expression: Expression, longest = Number.POSITIVE_INFINITY): string =>
  shorten(textOf(expression, longest), longest);

/** At least so many characters of it, in parentheses if it binds less than its operator. */
function textOf(expression: Expression, longest: number, operator = 0): string {
  const binds = bindingOf(expression);
  const text = openTextOf(expression, longest, binds);
  return binds < operator ? `(${text})` : text;
}

function openTextOf(expression: Expression, longest: number, binds: number): string {
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
      return `not ${textOf(expression.of, longest, binds)}`;
    case 'and':
    case 'or': {
      const { kind, of } = expression;
      let text = of.length === 0 ? `${kind}()` : '';
      // Not joined: what each level joined would be copied as often as there are levels.
      for (const [at, child] of of.entries())
        if (text.length <= longest) text += (at > 0 ? ` ${kind} ` : '') + textOf(child, longest, binds);
      return text;
    }
    default:
      return assertNever(expression);
  }
}

function bindingOf(expression: Expression): number {
  if (expression.kind === 'not') return binding.not;
  if (expression.kind !== 'and' && expression.kind !== 'or') return binding.atom;
  const [only, ...others] = expression.of.slice(0, 2);
  if (only === undefined) return binding.atom;
  return others.length === 0 ? bindingOf(only) : binding[expression.kind];
}

const reserved = new Set(['and', 'or', 'not', 'exists']);

function formatKey(key: string): string {
  return /^[A-Za-z_][\w.-]*$/.test(key) && !reserved.has(key) ? key : JSON.stringify(key);
}

/** Characters of an expression, and alternatives, in what is said of a match. */
const said = { characters: 1000, alternatives: 20 };

/** Whether it matches and why: the first part that fails, for `explain`. */
export function explainMatch(
  expression: Expression,
  parameters: Parameters,
): { readonly matches: boolean; readonly reason: string } {
  if (expression.kind === 'all') return { matches: true, reason: 'no constraints' };
  const reason = failureOf(expression, parameters);
  return { matches: reason === undefined, reason: reason ?? holds(expression) };
}

const holds = (expression: Expression): string => `${formatConstraints(expression, said.characters)} holds`;

const fails = (expression: Expression, why: string): string =>
  `${formatConstraints(expression, said.characters)} fails: ${why}`;

/** Each part is looked at once. Undefined: it matches. */
function failureOf(expression: Expression, parameters: Parameters): string | undefined {
  switch (expression.kind) {
    case 'all':
      return undefined;
    case 'never':
      return 'it has an unknown kind of constraint, so it never matches';
    case 'value':
    case 'exists':
      return isMet(expression, parameters)
        ? undefined
        : fails(expression, describe(expression.key, parameters));
    case 'not':
      return failureOfNot(expression, parameters);
    case 'and': {
      for (const child of expression.of) {
        const failure = failureOf(child, parameters);
        if (failure !== undefined) return failure;
      }
      return undefined;
    }
    case 'or':
      return failureOfAny(expression, parameters);
    default:
      return assertNever(expression);
  }
}

type Kind<K extends Expression['kind']> = Extract<Expression, { readonly kind: K }>;

/** It fails because what is in it matches. */
function failureOfNot(expression: Kind<'not'>, parameters: Parameters): string | undefined {
  const { of } = expression;
  if (of.kind === 'not') return failureOf(of.of, parameters);
  if (!isMet(of, parameters)) return undefined;
  return fails(expression, 'key' in of ? describe(of.key, parameters) : holds(of));
}

function failureOfAny(expression: Kind<'or'>, parameters: Parameters): string | undefined {
  const { of } = expression;
  if (of.length === 0) return fails(expression, 'it has no alternatives');
  const failures: string[] = [];
  let characters = 0;
  for (const child of of) {
    if (failures.length < said.alternatives && characters < said.characters) {
      const failure = failureOf(child, parameters);
      if (failure === undefined) return undefined;
      failures.push(failure);
      characters += failure.length;
    } else if (isMet(child, parameters)) return undefined;
  }
  const left = of.length - failures.length;
  return [...failures, ...(left === 0 ? [] : [counted(left, 'more alternative')])].join('; ');
}

const isMet = (expression: Expression, parameters: Parameters): boolean => compile(expression)(parameters);

function describe(key: string, parameters: Parameters): string {
  const value = parameters.entries.get(key);
  return value === undefined
    ? `${formatKey(key)} is not given`
    : `${formatKey(key)} is ${JSON.stringify(value)}`;
}

/**
 * What has passed limits.max_constraint_depth (1000 at most) has at most so many levels with a stamp. So deep is what our
 * own processes, relays beside this one and its disk may have. Nothing is read that is deeper: decoding, compiling and
 * matching each use some stack.
 */
export const maxStampedDepth = 1002;

/** One unknown kind poisons the whole: under NOT or OR, "does not match" would turn into a wrong match. */
type Poison = () => void;

/**
 * Decodes a DynamicParameterConstraints. By hand and not with the generated schema, because the depth has to be
 * bounded, invalid UTF-8 refused, and unknown fields seen at every level (protocol §5). The outermost expression is
 * at depth 1.
 */
function decodeExpression(bytes: Uint8Array, maxDepth: number): Result<Expression> {
  const limit = Math.min(maxDepth, maxStampedDepth);
  let isPoisoned = false;
  try {
    const expression = readExpression([new MessageReader(bytes)], 1, limit, () => {
      isPoisoned = true;
    });
    return ok(isPoisoned ? { kind: 'never' } : expression);
  } catch (error) {
    // The reader of the wire format throws on malformed bytes; this is where its errors become values.
    return fail(`constraints: ${errorMessage(error)}`);
  }
}

/** Of one message, which protobuf lets come in pieces. */
type Pieces = readonly MessageReader[];

const members: ReadonlySet<number> = new Set([1, 2, 3, 4].map(bytesTag));

/**
 * Of a oneof the last member wins, but the same member again is another piece of the first. Without `poison` it was not
 * the last: only what is malformed is refused.
 */
function readExpression(pieces: Pieces, depth: number, limit: number, poison?: Poison): Expression {
  if (depth > limit) throw new Error(`nested deeper than ${limit}`);
  let [tag, isUnknown] = [0, false];
  let member: MessageReader[] = [];
  for (const reader of pieces) {
    while (reader.next()) {
      if (!members.has(reader.tag)) isUnknown = true;
      else if (reader.tag === tag) member.push(reader.message());
      else {
        readMember(tag, member, depth, limit);
        [tag, member] = [reader.tag, [reader.message()]];
      }
    }
  }
  if (isUnknown && tag === 0) poison?.();
  return readMember(tag, member, depth, limit, poison);
}

function readMember(tag: number, pieces: Pieces, depth: number, limit: number, poison?: Poison): Expression {
  switch (tag) {
    case bytesTag(1):
      return readSingle(pieces, poison);
    case bytesTag(2):
      return { kind: 'or', of: readList(pieces, depth + 1, limit, poison) };
    case bytesTag(3):
      return { kind: 'and', of: readList(pieces, depth + 1, limit, poison) };
    case bytesTag(4):
      return { kind: 'not', of: readExpression(pieces, depth + 1, limit, poison) };
    default:
      return { kind: 'all' };
  }
}

function readList(pieces: Pieces, depth: number, limit: number, poison?: Poison): Expression[] {
  const of: Expression[] = [];
  for (const reader of pieces) {
    while (reader.next()) {
      // A list has no oneof: fields that it may gain one day do not change what it says today.
      if (reader.tag === bytesTag(1)) of.push(readExpression([reader.message()], depth, limit, poison));
    }
  }
  return of;
}

function readSingle(pieces: Pieces, poison?: Poison): Expression {
  let [key, isUnknown] = ['', false];
  let test: { readonly kind: 'value'; readonly value: string } | { readonly kind: 'exists' } | undefined;
  for (const reader of pieces) {
    while (reader.next()) {
      if (reader.tag === bytesTag(1)) key = reader.text();
      else if (reader.tag === bytesTag(2)) test = { kind: 'value', value: reader.text() };
      else if (reader.tag === bytesTag(3)) {
        for (const exists = reader.message(); exists.next(); ); // what is malformed is refused here, too
        test = { kind: 'exists' };
      } else isUnknown = true;
    }
  }
  if (test !== undefined) return { key, ...test };
  if (poison === undefined) return { kind: 'all' };
  if (!isUnknown) throw new Error(`the one for key ${JSON.stringify(key)} has neither value nor exists`);
  poison();
  return { kind: 'all' };
}

/** Encodes AND(key == value …), with not(exists key) where the value is undefined. */
function encodeStamp(pairs: readonly (readonly [key: string, value: string | undefined])[]): Uint8Array {
  const parts = pairs.map(([key, value]) => {
    const single: Field[] = [];
    text(single, 1, key);
    single.push(value === undefined ? message(3, []) : utf8(2, value));
    const one = message(1, single);
    return message(1, [value === undefined ? message(4, [one]) : one]);
  });
  return encode([message(3, parts)]);
}

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

/** So many pairs of parts are compared, in some milliseconds. */
const mostPairs = 100_000;

/** Whether no parameters match both, as far as single parts show it, and so do few enough of them. False: some may. */
export const areDisjoint = (a: Expression, b: Expression): boolean =>
  sizeOf(a) * sizeOf(b) <= mostPairs && areApart(a, b);

function areApart(a: Expression, b: Expression): boolean {
  if (a.kind === 'or') return a.of.every((part) => areApart(part, b));
  if (b.kind === 'or') return areApart(b, a);
  const parts = partsOf(a);
  if (parts !== undefined) return parts.some((part) => areApart(part, b));
  if (partsOf(b) !== undefined) return areApart(b, a);
  return contradicts(a, b) || contradicts(b, a);
}

/** Its parts, and theirs. */
function partsIn(one: Expression): number {
  if (one.kind === 'not') return partsIn(one.of);
  if (one.kind !== 'or' && one.kind !== 'and') return 1;
  return one.of.reduce((sum, part) => sum + partsIn(part), 1);
}

/** Kept of whole expressions alone: one may have tens of thousands of parts. */
const sizeOf = onceFor(partsIn);

/** All of which must match; undefined: it has no such parts. */
function partsOf(one: Expression): readonly Expression[] | undefined {
  if (one.kind === 'and') return one.of;
  if (one.kind !== 'not' || one.of.kind !== 'or') return undefined;
  return one.of.of.map((of) => ({ kind: 'not', of }));
}

function contradicts(a: Expression, b: Expression): boolean {
  if (b.kind === 'never') return true;
  if (a.kind !== 'value' && a.kind !== 'exists') return false;
  if (b.kind === 'value') return a.kind === 'value' && a.key === b.key && a.value !== b.value;
  if (b.kind !== 'not' || (b.of.kind !== 'value' && b.of.kind !== 'exists') || b.of.key !== a.key)
    return false;
  return b.of.kind === 'exists' || (a.kind === 'value' && a.value === b.of.value);
}

type Predicate = (parameters: Parameters) => boolean;

/** More values are looked up, and not compared one after the other: there may be as many as 2 MiB have room for. */
const mostCompared = 8;

/** Whether there is one of these parameters. */
function oneOf(pairs: readonly Pair[]): Predicate {
  const byKey = new Map<string, Set<string>>();
  for (const { key, value } of pairs) getOrMake(byKey, key, () => new Set()).add(value);
  return ({ entries }) => {
    for (const [key, values] of byKey) {
      const value = entries.get(key);
      if (value !== undefined && values.has(value)) return true;
    }
    return false;
  };
}

/** What must not be there, or nothing. */
const refusedValue = (part: Expression) => (part.kind === 'not' && part.of.kind === 'value' ? [part.of] : []);

const always: Predicate = () => true;
const never: Predicate = () => false;

/** Closures, built once when constraints arrive: matching does not walk the expression again. */
function compile(expression: Expression): Predicate {
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
      const refused = expression.of.flatMap(refusedValue);
      if (refused.length > mostCompared) {
        const isRefused = oneOf(refused);
        const isRest = compile({
          ...expression,
          of: expression.of.filter((part) => refusedValue(part).length === 0),
        });
        return (parameters) => !isRefused(parameters) && isRest(parameters);
      }
      const parts = expression.of.map(compile);
      return (parameters) => {
        for (const part of parts) if (!part(parameters)) return false;
        return true;
      };
    }
    case 'or': {
      const values = expression.of.filter((part) => part.kind === 'value');
      if (values.length > mostCompared) {
        const isOne = oneOf(values);
        const isRest = compile({ ...expression, of: expression.of.filter(({ kind }) => kind !== 'value') });
        return (parameters) => isOne(parameters) || isRest(parameters);
      }
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
function canonicalKey(expression: Expression, bytes: Uint8Array): ConstraintsKey {
  if (expression.kind === 'all') return constraintsKey('');
  if (expression.kind !== 'never') return constraintsKey(canonicalText(expression));
  return constraintsKey(JSON.stringify(['?', Buffer.from(bytes).toString('base64')]));
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

/** Of several lists that would do the one with the fewest pairs. */
function requiredPairs(expression: Expression): readonly Pair[] | undefined {
  switch (expression.kind) {
    case 'value':
      return [expression];
    case 'and':
      return expression.of.map(requiredPairs).reduce((found, list) => {
        const isBetter = found === undefined || (list !== undefined && isLower(list, found));
        return isBetter ? list : found;
      }, undefined);
    case 'or': {
      const pairs = expression.of.map(requiredPairs);
      return pairs.every((each) => each !== undefined) ? pairs.flat() : undefined;
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

/** Of lists of one pair: so that expressions with the same pairs require the same one. */
const isLower = (a: readonly Pair[], b: readonly Pair[]): boolean =>
  a.length < b.length || (a.length === 1 && b.length === 1 && pairText(a) < pairText(b));

const pairText = ([one]: readonly Pair[]): string => JSON.stringify([one?.key, one?.value]);

/** The one parameter that every matching set has; undefined: there is none, or one of several. */
export const onlyRequired = ({ required }: Constraints): Pair | undefined =>
  required?.length === 1 ? required[0] : undefined;

/** No constraints: matches every set of parameters. */
export const UNCONSTRAINED: Constraints = constraints({ kind: 'all' }, new Uint8Array(0));
