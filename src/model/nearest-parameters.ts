import type { Constraints, Expression } from './constraints.ts';
import { internParameters, type Parameters } from './parameters.ts';
import { assertNever } from './result.ts';
import { distance } from './text.ts';

/** What would have to be otherwise in a set of parameters. Undefined: the key must be left out. */
type Changes = ReadonlyMap<string, string | undefined>;

export interface NearParameters {
  readonly changes: Changes;
  /** How many names have a variant then. */
  readonly names: number;
}

const noChange: Changes = new Map();

/**
 * Of names that have nothing for a client: which other parameters have something, those with the fewest changes first, and
 * among them those that are spelled most alike. `names`: the constraints of the variants of each.
 */
export function nearestParameters(
  names: Iterable<readonly Constraints[]>,
  own: Parameters,
  most: number,
): readonly NearParameters[] {
  const found = new Map<string, { readonly changes: Changes; names: number }>();
  const known = new Map<Constraints, string | undefined>();
  const keyOf = (constraints: Constraints): string | undefined => {
    if (known.has(constraints)) return known.get(constraints);
    const changes = changesFor(constraints, own);
    const key = changes && JSON.stringify([...changes].toSorted(([a], [b]) => (a < b ? -1 : 1)));
    known.set(constraints, key);
    if (changes !== undefined && key !== undefined && !found.has(key)) found.set(key, { changes, names: 0 });
    return key;
  };
  for (const variants of names) {
    for (const key of new Set(variants.map(keyOf))) {
      const near = key === undefined ? undefined : found.get(key);
      if (near !== undefined) near.names++;
    }
  }
  const costs = new Map([...found.values()].map((near) => [near, costOf(near.changes, own)]));
  const cost = (near: NearParameters): number => costs.get(near) ?? 0;
  return [...costs.keys()]
    .toSorted((a, b) => a.changes.size - b.changes.size || cost(a) - cost(b) || b.names - a.names)
    .slice(0, most);
}

/** Longer words are not compared to their end. */
const longestCompared = 64;

function costOf(changes: Changes, own: Parameters): number {
  let cost = 0;
  for (const [key, value = ''] of changes) {
    const before = own.entries.get(key) ?? '';
    cost += distance(before.slice(0, longestCompared), value.slice(0, longestCompared));
  }
  return cost;
}

/** Undefined: it is not known, or nothing has to change. */
function changesFor(constraints: Constraints, own: Parameters): Changes | undefined {
  const changes = changesIn(constraints.expression, own);
  if (changes === undefined || changes.size === 0) return undefined;
  const changed = [...new Map([...own.entries, ...changes])].flatMap(([key, value]) =>
    value === undefined ? [] : [[key, value] as const],
  );
  return constraints.matches(internParameters(changed)) ? changes : undefined;
}

function changesIn(expression: Expression, own: Parameters): Changes | undefined {
  switch (expression.kind) {
    case 'all':
      return noChange;
    case 'never':
      return undefined;
    case 'value': {
      const { key, value } = expression;
      return own.entries.get(key) === value ? noChange : new Map([[key, value]]);
    }
    case 'exists':
      return own.entries.has(expression.key) ? noChange : undefined;
    case 'not': {
      const { of } = expression;
      if (of.kind === 'exists') return own.entries.has(of.key) ? new Map([[of.key, undefined]]) : noChange;
      // Which other value would do is not known. What matches already is seen at the end.
      return noChange;
    }
    case 'and': {
      const all = new Map<string, string | undefined>();
      for (const part of expression.of) {
        const changes = changesIn(part, own);
        if (changes === undefined) return undefined;
        for (const [key, value] of changes) all.set(key, value);
      }
      return all;
    }
    case 'or': {
      const ways = expression.of.map((part) => changesIn(part, own)).filter((one) => one !== undefined);
      const costs = new Map(ways.map((way) => [way, costOf(way, own)]));
      const cost = (way: Changes): number => costs.get(way) ?? 0;
      return ways.toSorted((a, b) => a.size - b.size || cost(a) - cost(b))[0];
    }
    default:
      return assertNever(expression);
  }
}
