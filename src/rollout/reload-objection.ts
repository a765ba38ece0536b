import type { TypeUrl } from '../model/brand.ts';
import type { PendingName } from '../model/rollout.ts';
import { counted } from '../model/text.ts';
import { typeInfo } from '../model/types.ts';
import type { CanaryRules } from './canary-choice.ts';

interface Gating {
  readonly canary: CanaryRules;
  readonly types: readonly TypeUrl[];
}

export interface HeldChange {
  /** Why it is held. */
  readonly reason: string;
  readonly names: readonly Pick<PendingName, 'type'>[];
}

const remedy =
  'run `distributary release` (everybody gets it) or `distributary discard` (canaries go back) first, then send SIGHUP';

/**
 * Why a reload must not take effect while a change is held: it would show the change to clients that are protected from
 * it. Undefined: it would not.
 */
export function reloadObjection(
  { reason, names }: HeldChange,
  before: Gating,
  after: Gating | undefined,
): string | undefined {
  const refused = (path: string, why: string): string => {
    const types = [...new Set(names.map(({ type }) => typeInfo(type).short))].join(', ');
    return `${path}: ${why} while a change is held (${types}: ${counted(names.length, 'name')}; ${reason}): ${remedy}`;
  };
  if (after === undefined) return refused('rollout', 'it cannot be taken out');
  const ungated = names.find(({ type }) => before.types.includes(type) && !after.types.includes(type));
  if (ungated !== undefined)
    return refused('rollout.types', `${typeInfo(ungated.type).short} cannot be taken out`);
  if (after.canary.percent > before.canary.percent) {
    const change = `${before.canary.percent} to ${after.canary.percent}`;
    return refused('rollout.canary.percent', `it cannot grow (${change})`);
  }
  const added = after.canary.match.find(
    (one) => !before.canary.match.some(({ key, value }) => key === one.key && value === one.value),
  );
  if (added === undefined) return undefined;
  return refused('rollout.canary.match', `${added.key}: ${added.value} cannot be added`);
}
