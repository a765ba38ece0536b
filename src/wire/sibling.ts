import { resourceName, type TypeUrl, typeUrl } from '../model/brand.ts';
import { internParameters, NO_PARAMETERS } from '../model/parameters.ts';
import { type Interest, WILDCARD } from '../model/transaction.ts';

/**
 * How replicas of a relay ask each other while their control plane is away (docs/adr/0126-siblings.md): over delta ADS,
 * as a relay of variants, on streams with this request header. Its value is the id of the relay that asks. Who answers
 * asks nobody, so no such stream leads in a circle.
 */
export const SIBLING_HEADER = 'x-distributary-sibling';

/**
 * A type that only siblings know: a resource for each interest that a relay can answer, whose name says which. Who
 * subscribes to its wildcard learns what to ask for.
 */
export const INTERESTS_TYPE: TypeUrl = typeUrl('type.googleapis.com/distributary.sibling.v1.Interest');

export const ALL_INTERESTS: Interest = {
  type: INTERESTS_TYPE,
  selector: WILDCARD,
  parameters: NO_PARAMETERS,
};

/** An interest as the name of a resource. */
export function nameOfInterest({ type, selector, parameters }: Interest): string {
  return JSON.stringify([type, selector, ...[...parameters.entries].flat()]);
}

/** Undefined: it is not one. */
export function interestOfName(name: string): Interest | undefined {
  const parts = stringsOf(name);
  const [type, selector, ...rest] = parts ?? [];
  if (type === undefined || type === INTERESTS_TYPE || selector === undefined || rest.length % 2 !== 0)
    return undefined;
  const pairs: [string, string][] = [];
  for (let at = 0; at < rest.length; at += 2) pairs.push([rest[at] ?? '', rest[at + 1] ?? '']);
  return {
    type: typeUrl(type),
    selector: resourceName(selector),
    parameters: internParameters(pairs),
  };
}

function stringsOf(text: string): readonly string[] | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return Array.isArray(value) && value.every((part) => typeof part === 'string') ? value : undefined;
  } catch {
    return undefined;
  }
}
