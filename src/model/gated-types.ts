import type { TypeUrl } from './brand.ts';
import { knownTypes } from './types.ts';

/** Endpoints and runtime values change often and must be fast. */
const ungated = new Set(['eds', 'leds', 'rtds']);

/** The types that go to canaries first where rollout.types says nothing. */
export const gatedByDefault: ReadonlySet<TypeUrl> = new Set(
  knownTypes.filter(({ short }) => !ungated.has(short)).map(({ url }) => url),
);
