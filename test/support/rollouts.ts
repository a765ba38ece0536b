import type { TypeUrl } from '../../src/model/brand.ts';
import type { RolloutSettings } from '../../src/releases/judge.ts';
import type { RolloutEvents } from '../../src/releases/seams.ts';

/** Nobody is a canary: a change goes to everybody after its bake of 30 s. */
export const withoutCanaries = (types: readonly TypeUrl[]): RolloutSettings => ({
  bakeMs: 30_000,
  maxWaitMs: 600_000,
  guard: { maxEmptiedPercent: 100 },
  onTimeout: 'HOLD',
  onFailure: 'HOLD',
  maxDisconnects: 20,
  mode: 'AUTOMATIC',
  waves: [{ path: 'rollout.canary', percent: 0, match: [], elects: true, bakeMs: undefined }],
  canaryPrincipals: [],
  types,
});

/** Nobody hears of what happens. */
export const unheard: RolloutEvents = {
  counted: () => {},
  canariesSaid: () => {},
  released: () => {},
  stateChanged: () => {},
  changeIs: () => {},
  decided: () => {},
  discarded: () => {},
  resolved: () => {},
  save: () => {},
};
